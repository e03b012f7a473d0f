"""Files on a LAN without a manager: what a received object may make of a folder, and text where there is nobody."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import select
import struct
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner
from rostrum.client import lan
from rostrum.client.cli import main
from rostrum.client.lan import (
    LAN_APP_ID,
    TRAILER_MAGIC,
    Nic,
    Peer,
    PrivateAgent,
    Receiver,
    Trailer,
    _peers_of,
    find_receivers,
    free_path,
    names_of,
    nic_for,
    read_trailer,
    safe_name,
)
from rostrum.client.lan_doctor import absent, check_bridges, firewall_text, of_multicast, query_from
from rostrum.client.objects import ReadObject
from rostrum.client.values import Busy, RostrumError


def _object(tmp_path: Path, data: bytes) -> tuple[int, int]:
    path = tmp_path / "object"
    path.write_bytes(data)
    return os.open(path, os.O_RDONLY), len(data)


def test_names_of__two_at_one_address_are_named() -> None:
    """A send to all was refused: 10.0.0.2 is named twice."""
    addresses = {"h2-1": "10.0.0.2", "h2-2": "10.0.0.2", "h3-1": "10.0.0.3"}
    peers = [Peer(name, "h", address, 1, 1500, True, None, False) for name, address in addresses.items()]
    assert names_of(peers) == ["h2-1", "h2-2", "10.0.0.3"]


TRAILER = Trailer("model.bin", "0af3", 0, 5, 5, 0o644, "10.0.0.1")


def test_trailer__says_what_was_sent(tmp_path: Path) -> None:
    fd, size = _object(tmp_path, b"hello" + TRAILER.packed())
    assert read_trailer(fd, size) == TRAILER
    os.close(fd)


@pytest.mark.parametrize(
    "fields",
    [
        {"size": 6}, {"offset": -1}, {"offset": 1}, {"total": 4}, {"transfer": "../x"}, {"transfer": ""},
        {"name": None, "size": "x"}, {"mode": "rwx"}, {"total": 1e400},
    ],
)  # fmt: skip
def test_trailer__that_contradicts_its_object_is_none(tmp_path: Path, fields: dict[str, object]) -> None:
    body = json.dumps(TRAILER.__dict__ | fields).encode()
    fd, size = _object(tmp_path, b"hello" + body + struct.pack("<I", len(body)) + TRAILER_MAGIC)
    assert read_trailer(fd, size) is None
    os.close(fd)


def test_trailer__garbage(tmp_path: Path) -> None:
    seed = int(os.environ.get("LAN_SEED", "7"))
    print(f"LAN_SEED={seed}")
    randomly = random.Random(seed)
    whole = b"hello" + TRAILER.packed()
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(randomly.randint(1, 6)):
            data[randomly.randrange(len(data))] = randomly.randrange(256)
        fd, size = _object(tmp_path, bytes(data[randomly.randint(0, 8) :]))
        found = read_trailer(fd, size)
        os.close(fd)
        assert found is None or (found.name == safe_name(found.name) and 0 <= found.offset <= found.total)


class FakeAgent:
    """Has one object, which a transfer still holds when it is first deleted."""

    def __init__(self, path: Path) -> None:
        self.path, self.held = path, True

    def status(self) -> SimpleNamespace:
        item = SimpleNamespace(app=LAN_APP_ID, complete=True, received=True, data_id=7)
        return SimpleNamespace(objects=[item] if self.path.exists() else [])

    def read(self, data_id: int, wait: float) -> ReadObject:
        fd = os.open(self.path, os.O_RDONLY)
        return ReadObject(data_id, fd, os.fstat(fd).st_size, "right")

    def delete(self, data_id: int) -> None:
        if self.held:
            self.held = False
            raise Busy("a transfer holds it")
        self.path.unlink()


@pytest.mark.parametrize("linked", [False, True])
def test_receiver__a_file_is_copied_or_linked_and_has_no_trailer(tmp_path: Path, linked: bool) -> None:
    objects, folder = tmp_path / "objects", tmp_path / "in"
    objects.mkdir()
    folder.mkdir()
    (objects / "7").write_bytes(b"hello" + TRAILER.packed())
    (objects / "7").chmod(0o440)
    inode = (objects / "7").stat().st_ino
    agent: Any = FakeAgent(objects / "7")
    receiver = Receiver(agent, folder, False, objects if linked else None)
    rows = [row for _ in range(3) for row in receiver.look()]
    assert [(row["ok"], row["bytes"]) for row in rows] == [(True, 5)]
    assert [path.name for path in folder.iterdir()] == ["model.bin"]
    assert (folder / "model.bin").read_bytes() == b"hello"
    assert ((folder / "model.bin").stat().st_ino == inode) is linked
    assert not (objects / "7").exists()


# In place of rostrumd. Where the file `taken` is none yet, its port is another's.
FAKE_AGENT = f"""#!{sys.executable}
import errno, os, pathlib, socket, sys, time
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
taken, told = (pathlib.Path(__file__).with_name(name) for name in ("taken", "told"))
if not taken.exists():
    taken.write_text(given["--control-port"] + " " + given["--server"])
    sys.exit("2026-01-01T00:00:00Z error control cannot listen: " + os.strerror(errno.EADDRINUSE))
told.write_text(given["--control-port"] + " " + given["--server"] + " " + str(os.getpid()))
sockets = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET), socket.socket(socket.AF_UNIX)
for one, name in zip(sockets, ("--socket", "--metrics")):
    one.bind(given[name])
    one.listen()
time.sleep(600)
"""


@pytest.fixture
def fake_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its folder."""
    (tmp_path / "rostrumd").write_text(FAKE_AGENT)
    (tmp_path / "rostrumd").chmod(0o755)
    monkeypatch.setenv("ROSTRUM_AGENT", str(tmp_path / "rostrumd"))
    return tmp_path


def test_private_agent__ends_with_a_command_that_is_killed(fake_agent: Path) -> None:
    (fake_agent / "taken").touch()
    code = """
from rostrum.client.lan import Nic, PrivateAgent
with PrivateAgent(Nic("lo", "127.0.0.1"), "true") as private:
    print(private._store, flush=True)
    input()
"""
    environment = {**os.environ, "TMPDIR": str(fake_agent)}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdin=pipe, stdout=pipe) as command:
        assert command.stdout
        store = command.stdout.readline().strip()
        agent = os.pidfd_open(int((fake_agent / "told").read_text().split()[2]))
        command.kill()
    assert select.select([agent], [], [], 60)[0]
    os.close(agent)
    assert list(fake_agent.glob("rostrum-lan-*")) and os.path.isdir(store)
    code = code.replace("    input()", "    sweep_folders()").replace("PrivateAgent\n", "PrivateAgent, sweep_folders\n")
    argv = [sys.executable, "-c", code + "    print(private._store.is_dir(), private._folder.is_dir())"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split()[1:] == ["True", "True"], "what is in use stays"
    assert not list(fake_agent.glob("rostrum-lan-*")) and not os.path.exists(store)


@pytest.mark.parametrize("why", [errno.EBADF, errno.ENOSYS])
def test_private_agent__where_no_folder_can_be_locked(
    fake_agent: Path, monkeypatch: pytest.MonkeyPatch, why: int
) -> None:
    """NFS, and Lustre without -o flock: an error, and a folder that stayed."""

    def refuse(*_: object) -> None:
        raise OSError(why, os.strerror(why))

    (fake_agent / "taken").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(fake_agent))
    monkeypatch.setattr(fcntl, "flock", refuse)
    with PrivateAgent(Nic("lo", "127.0.0.1"), "true") as private:
        assert (private._folder / "log").exists() and not list(private._folder.glob(lan.STORE_LINK))
        lan.sweep_folders()
        assert private._folder.is_dir() and private._store.is_dir()
    assert not list(fake_agent.glob("rostrum-lan-*")) and not private._store.exists()


@pytest.mark.parametrize("what", ["_free_control_port", "agent_program", "_is_full"])
def test_private_agent__that_cannot_begin_leaves_nothing(
    fake_agent: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    made, make = [], tempfile.mkdtemp

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def once(*given: Any, **options: Any) -> str:
        if made and what == "_is_full":
            refuse()
        made.append(Path(make(*given, **options)))
        return str(made[-1])

    monkeypatch.setattr(tempfile, "tempdir", str(fake_agent))
    monkeypatch.setattr(tempfile, "mkdtemp", once)
    monkeypatch.setattr(lan, what, refuse, raising=False)
    with pytest.raises(OSError, match="No space"), PrivateAgent(Nic("lo", "127.0.0.1"), "true"):
        pass
    assert made and not any(folder.exists() for folder in made)


def test_private_agent__whose_port_another_got_meanwhile_starts_at_another_by_another_name(fake_agent: Path) -> None:
    with PrivateAgent(Nic("lo", "127.0.0.1"), "true"):
        first, second = ((fake_agent / name).read_text().split() for name in ("taken", "told"))
    assert first[0] != second[0] and first[1] != second[1]


@pytest.mark.parametrize("why", ["no room", "the folder is gone"])
def test_receiver__a_file_that_cannot_be_written_is_told_and_others_are_received(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    folder, data = tmp_path / "in", tmp_path / "7"
    folder.mkdir()
    agent: Any = FakeAgent(data)
    receiver = Receiver(agent, folder, False)

    def rows() -> list[tuple[bool, str]]:
        agent.held = False
        data.write_bytes(b"hello" + TRAILER.packed())
        return [(row["ok"], row.get("cause", "")) for row in receiver.look()]

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        if why == "no room":
            patch.setattr(os, "sendfile", full)
        else:
            folder.rmdir()
        [(ok, cause)] = rows()
    assert not ok and "model.bin from 10.0.0.1 could not be written" in cause
    assert os.strerror(errno.ENOSPC if why == "no room" else errno.ENOENT) in cause
    folder.mkdir(exist_ok=True)
    assert not data.exists() and list(folder.iterdir()) == []
    assert rows() == []  # what comes of it yet
    monkeypatch.setattr("tests.client.test_lan.TRAILER", replace(TRAILER, transfer="0af4"))
    assert rows() == [(True, "")] and (folder / "model.bin").read_bytes() == b"hello"


@pytest.mark.parametrize(
    ("given", "name"),
    [("../../etc/passwd", "passwd"), ("..", "received"), ("", "received"), ("a\x00b\n", "a_b_"),
     ("c:\\x\\y.bin", "y.bin"),
     ("/", "received"), ("ok name.txt", "ok name.txt")],
)  # fmt: skip
def test_safe_name__stays_in_its_folder(given: str, name: str) -> None:
    assert safe_name(given) == name


def test_free_path__leaves_what_is_there(tmp_path: Path) -> None:
    assert free_path(tmp_path, "x", False).name == "x"
    (tmp_path / "x").touch()
    (tmp_path / "x.1").touch()
    assert free_path(tmp_path, "x", False).name == "x.2"
    assert free_path(tmp_path, "x", True).name == "x"


def test_peers__of_the_agents_metrics() -> None:
    line = (
        'rostrum_agent_lan_peer_mtu_bytes{name="h3",host="lab-a",address="10.0.0.3",port="7071",receives="1",'
        'multicast="-1"} 9000\n'
    )
    (peer,) = _peers_of("# HELP x y\n" + line)
    assert (peer.title, peer.mtu, peer.receives, peer.multicast) == ("lab-a (10.0.0.3)", 9000, True, False)
    assert of_multicast(peer, 9000).level == "note"  # relays do it
    assert "MTU" in of_multicast(replace(peer, multicast_small=True), 9000).text


def test_doctor__tells_a_host_without_receiver_from_a_firewall_and_from_nobody() -> None:
    fields = [absent("10.0.0.9", code).text for code in (0, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ETIMEDOUT)]
    assert len(set(fields)) == 4
    assert "nothing receives" in fields[1] and "firewall" in fields[3]


def test_doctor__finds_a_bridge_that_snoops_without_a_querier(tmp_path: Path) -> None:
    for name, snooping, querier in (("br0", 1, 0), ("br1", 1, 1), ("br2", 0, 0)):
        (tmp_path / name / "bridge").mkdir(parents=True)
        (tmp_path / name / "bridge" / "multicast_snooping").write_text(f"{snooping}\n")
        (tmp_path / name / "bridge" / "multicast_querier").write_text(f"{querier}\n")
    (one,) = check_bridges(tmp_path)
    assert "br0" in one.subject and "mcast_querier 1" in one.remedy


def test_doctor__knows_an_igmp_query() -> None:
    head = bytes([0x46]) + bytes(8) + bytes([2]) + bytes(2) + bytes([10, 0, 0, 9, 224, 0, 0, 1]) + bytes(4)
    assert query_from(head + bytes([0x11]) + bytes(7)) == "10.0.0.9"
    assert query_from(head + bytes([0x16]) + bytes(7)) == ""  # a report
    for cut in range(len(head) + 1):
        assert query_from(head[:cut]) == ""
    assert query_from(bytes(64)) == "" and query_from(b"\xff" * 64) == ""


def test_doctor__reads_why_a_firewall_drops() -> None:
    chain = "table inet filter {{\n chain input {{\n type filter hook {}; policy {};\n tcp dport 22 accept\n{} }}\n}}"
    assert "no rule accepts" in firewall_text(chain.format("input priority 0", "drop", ""))
    assert "ends with a rule" in firewall_text(chain.format("input priority 0", "accept", "drop\n"))
    assert firewall_text(chain.format("input priority 0", "accept", "")) == ""
    assert firewall_text(chain.format("forward priority 0", "drop", "drop\n")) == ""


def test_interface__that_is_not_there_is_told_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rostrum.client.lan.interfaces", lambda: [Nic("eth0", "10.0.0.9")])
    assert nic_for([], "10.0.0.9").name == "eth0"
    with pytest.raises(RostrumError, match=r"no interface eth7 .*eth0 \(10.0.0.9\)"):
        nic_for([], "eth7")


def test_send__to_nobody_is_a_usage_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    result = CliRunner().invoke(main, ["send", str(file)])
    assert result.exit_code == 2
    assert "--to names no server" in result.output


@pytest.mark.parametrize(
    ("name", "why"), [("300.1.1.1", "300.1.1.1 is no IPv4 address"), ("127.0.0.1", "127.0.0.1 is this host")]
)
def test_send__to_what_cannot_be_a_receiver_says_so_at_once(name: str, why: str) -> None:
    private = cast(PrivateAgent, SimpleNamespace(nic=Nic("eth0", "10.0.0.9")))
    with pytest.raises(RostrumError, match=why):
        find_receivers(private, lan.resolve([name]), 1, 60.0, print)


def test_send__tells_whom_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    nic = SimpleNamespace(name="eth7", address="10.0.0.1")
    private = SimpleNamespace(nic=nic, peers=list)
    monkeypatch.setattr(lan, "TELL_FIRST_S", 0.0)
    said: list[str] = []
    with pytest.raises(RostrumError, match="0 of 2 receivers are there"):
        find_receivers(cast(PrivateAgent, private), [], 2, 0.05, said.append)
    with pytest.raises(RostrumError, match=r"no answer from 10\.0\.0\.2"):
        find_receivers(cast(PrivateAgent, private), ["10.0.0.2"], 1, 0.05, said.append)
    assert [line.split(":")[0] for line in said] == [
        "waiting for 2 receivers, 0 so far, on eth7 (10.0.0.1), 1 s more at most",
        "waiting for 10.0.0.2 on eth7 (10.0.0.1), 1 s more at most",
    ]
