"""What programs of different users may ask of their agent: the policy file, files of objects, and the audit."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner
from rostrum.client import Agent, Denied, RostrumError, wire
from rostrum.client.cli import main

from tests.agent_e2e.agents import APP, ROSTRUMD, World, wait_until
from tests.agent_e2e.agents import Agent as Daemon
from tests.agent_e2e.network import Network, network

ALICE, BOB, TEAM = 64001, 64002, 64003
OTHER = UUID("0c0ffee0-7dec-11d0-a765-00a0c91e6bf6")
DATA = b"what only some may read" * 1000
POLICY = f"""
[application weights]
id = {APP}

[user {ALICE}]
send = h2
publish = news*
read = weights
write = weights
delete = weights

[group {TEAM}]
subscribe = news*
read = {OTHER}
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(3) as it:
        yield it


@contextlib.contextmanager
def user(uid: int, *groups: int) -> Iterator[None]:
    """What is connected or opened meanwhile is that user's."""
    before = os.getgroups()
    os.setgroups(list(groups))
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)


def connect(agent: Daemon, uid: int, *groups: int, app: UUID = APP) -> Agent:
    with user(uid, *groups):
        return Agent(agent.socket, app)


def reload(agent: Daemon, text: str, words: str) -> str:
    """Another policy; the line of the log that tells of it."""
    before = len(agent.log)
    (agent.folder / "policy").write_text(text)
    agent.process.send_signal(signal.SIGHUP)
    return wait_until(lambda: next((line for line in agent.log[before:] if words in line), ""), words)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def start(lab: World, *names: str, text: str = POLICY, standalone: bool = False) -> list[Daemon]:
    agents = []
    lab.folder.chmod(0o711)
    for name in names:
        folder = lab.folder / name
        folder.mkdir(exist_ok=True)
        folder.chmod(0o711)
        (folder / "policy").write_text(text)
        own = ["--policy", str(folder / "policy"), "--audit", str(folder / "audit"), "--socket-mode", "0666"]
        own += ["--standalone", "true"] if standalone else []
        agents.append(lab.start(name, *own, manager=not standalone))
    return agents


def test_users_send_where_the_policy_says_and_read_what_it_says(lab: World) -> None:
    h1, h2 = start(lab, "h1", "h2")
    alice, bob = connect(h1, ALICE), connect(h1, BOB)
    alice.send(1, ["h2"], source=DATA).wait(60)
    with pytest.raises(Denied, match=r"uid 64001 may not send to h3 on this server.*line \"send =\""):
        alice.send(1, ["h2", "h3"]).wait(60)
    with pytest.raises(Denied, match=f"uid 64002 may not write objects of application {APP}"):
        bob.add(2, DATA)
    # Who knows the application's id knows a name, and no more.
    there, other = connect(h2, ALICE), connect(h2, BOB)
    assert bytes(there.read(1)) == DATA
    for refused in (lambda: other.read(1), lambda: other.delete(1), lambda: other.subscribe(1), lambda: other.leave(1)):
        with pytest.raises(Denied):
            refused()
    with pytest.raises(Denied, match="write"):
        other.add(9, b"x")
    assert [(one.app, one.data_id) for one in other.status().objects] == [(UUID(int=0), 1)]
    assert [one.app for one in there.status().objects] == [APP]
    there.delete(1)
    for agent in (alice, bob, there, other):
        agent.close()


def test_nobody_opens_an_object_but_by_its_agent(lab: World) -> None:
    (h1,) = start(lab, "h1")
    with connect(h1, ALICE) as alice:
        with alice.create(1000) as file:
            file.write(b"x" * 1000)
            alice.add(5, file)
        path = h1.store / str(APP) / "5"
        assert path.stat().st_mode & 0o777 == 0o400 and h1.store.stat().st_mode & 0o777 == 0o711
        for uid in (ALICE, BOB):
            with user(uid), pytest.raises(PermissionError):
                path.read_bytes()
            with user(uid), pytest.raises(PermissionError):
                os.listdir(h1.store)
        assert len(bytes(alice.read(5))) == 1000


class Framed:
    """A program that can take no descriptors, as the Java client."""

    def __init__(self, agent: Daemon, uid: int) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(60)
        with user(uid):
            self.socket.connect(f"{agent.socket}.framed")
        self.tags = itertools.count(1)
        assert self.ask(wire.REGISTER, APP.bytes + wire.text("framed"))[0].type == wire.REGISTERED

    def ask(self, kind: int, body: bytes, text: bytes = b"") -> tuple[wire.Answer, str]:
        message = wire.request(kind, next(self.tags), body)
        self.socket.sendall(struct.pack("<II", len(message), len(text)) + message + text)
        length, more = struct.unpack("<II", self._get(8))
        return wire.parse(self._get(length)), self._get(more).decode()

    def _get(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            got = self.socket.recv(count - len(data))
            assert got
            data += got
        return data


def test_a_path_is_given_to_the_user_that_may_read_it(lab: World) -> None:
    (h1,) = start(lab, "h1", text=POLICY + f"\n[user {BOB}]\nread = weights\n")
    alice, bob = Framed(h1, ALICE), Framed(h1, BOB)
    created, writable = alice.ask(wire.CREATE, struct.pack("<Q", 6))
    with user(BOB), pytest.raises(PermissionError):
        Path(writable).write_bytes(b"not he")
    with user(ALICE):
        Path(writable).write_bytes(b"object")
    added, _ = alice.ask(wire.ADD, struct.pack("<Q", 8), f"file {created.value[0]}".encode())
    assert added.type == wire.ADDED, added
    path = str(h1.store / str(APP) / "8")
    with user(ALICE), pytest.raises(PermissionError):  # what let her write went
        Path(path).read_bytes()
    for program, uid in ((alice, ALICE), (bob, BOB)):
        answer, given = program.ask(wire.READ, struct.pack("<QI", 8, 0))
        assert (answer.type, given) == (wire.OBJECT, path)
        with user(uid):
            assert Path(path).read_bytes() == b"object"
        with user(uid), pytest.raises(PermissionError):
            Path(path).write_bytes(b"other")
    with user(65000), pytest.raises(PermissionError):
        Path(path).read_bytes()
    with user(ALICE):  # bob's turn did not take hers
        assert Path(path).read_bytes() == b"object"
    reload(h1, POLICY, "read again")
    with user(BOB), pytest.raises(PermissionError):
        Path(path).read_bytes()
    assert bob.ask(wire.READ, struct.pack("<QI", 8, 0))[0].type == wire.ERROR


def test_groups_are_for_those_whom_the_policy_lets_in(lab: World) -> None:
    (h1,) = start(lab, "h1", standalone=True)
    alice, member = connect(h1, ALICE), connect(h1, BOB, TEAM)
    with pytest.raises(Denied, match="may not subscribe news"):
        alice.join("news", protocol="plain")
    with pytest.raises(Denied, match="may not publish rumours"):
        alice.publisher("rumours", protocol="plain")
    with member.join("news", protocol="plain") as hears, alice.publisher("news") as tells:
        tells.publish(b"hello")
        assert hears.next(60).data == b"hello"
        # Who may only subscribe publishes nothing, though its socket goes both ways.
        hears.publish(b"I too")
        with pytest.raises(Denied, match="may not publish here"):
            hears.next(60)
    with member.join("news") as hears:
        reload(h1, POLICY.replace("subscribe = news*", "subscribe ="), "read again")
        with pytest.raises(Denied, match="policy of this server's agent changed"):
            hears.next(60)
    alice.close()
    member.close()


def test_another_policy_holds_from_sighup_on_and_a_wrong_one_never(lab: World) -> None:
    (h1,) = start(lab, "h1")
    with connect(h1, ALICE) as alice:
        alice.add(1, DATA)
        line = reload(h1, POLICY + "\n[user alice-of-nowhere]\n", "policy")
        assert "line 16: this machine has no user alice-of-nowhere" in line and "read before goes on" in line
        assert bytes(alice.read(1)) == DATA
        events = alice.subscribe(1)
        reload(h1, POLICY.replace("read = weights", ""), "read again")
        with pytest.raises(Denied, match="policy changed"):
            events.next(60)
        with pytest.raises(Denied, match="may not read"):
            alice.read(1)
        reload(h1, POLICY, "read again")
        assert bytes(alice.read(1)) == DATA


def test_an_agent_does_not_start_with_a_policy_that_is_wrong(lab: World) -> None:
    host, file = lab.net.hosts["h3"], lab.folder / "policy"
    (lab.folder / "objects").mkdir()
    command = [
        *host.namespace.prefix(), str(ROSTRUMD), "--server", "h3", "--interface", host.interface, "--address",
        host.address, "--socket", str(lab.folder / "a.sock"), "--store", str(lab.folder / "objects"),
        "--nic-rate", "1G", "--policy", str(file),
    ]  # fmt: skip
    for text, mode, words in (
        ("[others]\nsned = *\n", 0o600, "line 2: there is no right"),
        ("[others]\n", 0o666, "chmod go-w"),
    ):
        file.write_text(text)
        file.chmod(mode)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1 and words in done.stderr, done.stderr
    file.unlink()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "cannot be opened" in done.stderr


def test_the_command_shows_the_text(lab: World, tmp_path: Path) -> None:
    (h1,) = start(lab, "h1")
    file = tmp_path / "file"
    file.write_bytes(DATA)
    with user(BOB, TEAM):
        told = CliRunner().invoke(main, ["pub", "news", "x", "--socket", str(h1.socket)])
    assert told.exit_code == 1 and "may not publish news on this server" in told.output, told.output
    with user(BOB, TEAM):
        told = CliRunner().invoke(main, ["read", "file", "--socket", str(h1.socket), "-o", str(tmp_path / "out")])
    assert told.exit_code == 1 and "may not read objects" in told.output, told.output


def test_the_audit_says_who_asked_for_what_and_is_only_appended_to(lab: World) -> None:
    (h1, _) = start(lab, "h1", "h2")
    file = h1.folder / "audit"
    assert file.stat().st_mode & 0o777 == 0o600
    with connect(h1, ALICE) as alice, connect(h1, BOB) as bob:
        alice.send(1, ["h2"], source=DATA).wait(60)
        with pytest.raises(RostrumError):
            bob.delete(1)
        with pytest.raises(RostrumError):
            alice.publisher("rumours", protocol="plain")
        with pytest.raises(Denied):
            alice.send(1, ['h"3\\']).wait(60)
        rows = lines(file)
        assert rows[0]["request"] == "start"
        sent, strange = [row for row in rows if row["request"] == "send"]
        assert (strange["servers"], strange["allowed"]) == (['h"3\\'], False)
        assert (sent["uid"], sent["application"], sent["object"], sent["servers"], sent["allowed"], sent["server"]) == (
            ALICE, str(APP), 1, ["h2"], True, "h1",
        )  # fmt: skip
        [deleted] = [row for row in rows if row["request"] == "delete"]
        assert (deleted["uid"], deleted["allowed"], deleted["pid"]) == (BOB, False, os.getpid())
        [asked] = [row for row in rows if row["request"] == "publish"]
        assert (asked["group"], asked["allowed"]) == ("rumours", False)
        before = file.read_bytes()
        assert b"what only some may read" not in before
        # Rotated: what was renamed stays as it was, and a new file goes on.
        old = file.rename(file.with_suffix(".1"))
        reload(h1, POLICY, "read again")
        wait_until(file.exists, "new audit file")
        alice.delete(1)
        assert old.read_bytes() == before
        assert [row["request"] for row in lines(file)] == ["policy", "delete"]
        # Cut short, it is appended to: no hole.
        file.write_text("")
        alice.add(2, b"x")
        assert [row["request"] for row in lines(file)] == ["create", "add"]


def test_without_a_policy_sighup_changes_nothing(lab: World) -> None:
    h1 = lab.start("h1")
    h1.process.send_signal(signal.SIGHUP)
    with connect(h1, 0) as root:
        root.add(1, DATA)
        assert bytes(root.read(1)) == DATA
    assert h1.stop() == 0
