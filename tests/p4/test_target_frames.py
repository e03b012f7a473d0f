"""The reference target as a program: real frames on real interfaces, in a network namespace of its own.

harness socket <-> h2 =veth= p2 <-> port 2 of the target
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from finsy.proto import p4r
from google.protobuf import text_format
from rostrum.lab.p4target.__main__ import main
from rostrum.lab.p4target.interfaces import Batch, Interface

from tests.agent_e2e.network import Namespace
from tests.p4.target_client import DEVICE, INSERT, Client
from tests.p4.target_json import Builder, assign, byte_header, call, field, number, op
from tests.p4.target_p4info import TABLE, p4info

pytestmark = pytest.mark.lab

BOUND_S = 60.0
PORTS = (1, 2, 3)
MTU = 9000
SO_RCVBUFFORCE = 33
PREFIX = b"\2\2\2\2\2\2\4\4\4\4\4\4\x88\xb5"  # destination, source, an Ethernet type for experiments


def program() -> Builder:
    """Group or port, and priority, by bytes after the Ethernet header; a table on the kind of frame."""
    built = byte_header()
    names = [("kind", 8), ("to", 8), ("level", 8)]
    built.root["header_types"][1]["fields"] = [["ethernet", 112, False], *([*each, False] for each in names)]
    group = [assign("s.mcast_grp", field("h.to"))]
    unicast = [assign("s.egress_spec", field("h.to")), assign("s.priority", op("&", field("h.level"), number(7)))]
    built.conditional("ingress", "multicast", op("==", field("h.kind"), number(1)), "group", "unicast")
    built.statements("ingress", group, "group").statements("ingress", unicast, "unicast")
    drop = built.action("drop", [call("mark_to_drop", {"type": "header", "value": "standard_metadata"})])
    leave = built.action("leave", [])
    return built.table("egress", "out", [("s.egress_port", "exact"), ("h.kind", "exact")], [leave, drop])


def frame(to: int, body: bytes = b"", *, kind: int = 0, level: int = 0, size: int = 60) -> bytes:
    return (PREFIX + bytes((kind, to, level)) + body).ljust(size, b".")


class Wire:
    """A namespace with the target's interfaces p1 ... and sockets on the far ends h1 ..."""

    def __init__(self) -> None:
        self.namespace = Namespace()
        for port in PORTS:
            self.namespace.ip("link", "add", f"p{port}", "mtu", str(MTU), "type", "veth", "peer", f"h{port}")
            self.namespace.ip("link", "set", f"h{port}", "mtu", str(MTU))
        self.namespace.run("sh", "-c", "for i in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$i; done")
        for port in PORTS:
            self.namespace.ip("link", "set", f"p{port}", "up")
            self.namespace.ip("link", "set", f"h{port}", "up")
        self.sockets: dict[int, Interface] = {}
        self.batch = Batch()
        opener = threading.Thread(target=self._open)
        opener.start()
        opener.join()
        assert len(self.sockets) == len(PORTS)

    def _open(self) -> None:
        self.namespace.enter_thread()
        for port in PORTS:
            self.sockets[port] = Interface(port, f"h{port}")

    def send(self, port: int, data: bytes) -> None:
        assert self.sockets[port].send(data)

    def receive(self, port: int, count: int, bound_s: float = BOUND_S) -> list[bytes]:
        """So many frames at a port, within the bound."""
        frames: list[bytes] = []
        end = time.monotonic() + bound_s
        while len(frames) < count and (left := end - time.monotonic()) > 0:
            if select.select([self.sockets[port]], [], [], left)[0]:
                frames += self.batch.receive(self.sockets[port].fileno())
        return frames

    def close(self) -> None:
        for each in self.sockets.values():
            each.close()
        self.namespace.close()


class Running:
    """The target's process."""

    def __init__(self, wire: Wire, folder: Path, *more: str) -> None:
        self.wire, self.address = wire, f"unix:{folder / 'p4.sock'}"
        (folder / "program.json").write_text(program().text)
        (folder / "p4info.txtpb").write_text(text_format.MessageToString(p4info(program())))
        ports = [word for port in PORTS for word in ("-i", f"{port}@p{port}")]
        options = [*ports, "--device-id", str(DEVICE), "--", "--grpc-server-addr", self.address, *more]
        options += ["--p4", str(folder / "program.json"), "--p4info", str(folder / "p4info.txtpb")]
        command = [sys.executable, "-m", "rostrum.lab.p4target", *options]
        self.log = folder / "target.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*wire.namespace.prefix(), "setpriv", "--pdeathsig", "KILL", "--", *command],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline()
        assert self.ready.startswith("p4target: ready: "), self.log.read_text()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(BOUND_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(BOUND_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Served(NamedTuple):
    wire: Wire
    target: Running
    client: Client


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Served]:
    with contextlib.closing(Wire()) as wire, contextlib.closing(Running(wire, folder)) as target:
        client = Client(target.address)
        try:
            client.primary()
            yield Served(wire, target, client)
        finally:
            client.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Served]:
    """A target that the test may break."""
    with served(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def module_wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("target")) as made:
        yield made


@pytest.fixture
def shared(module_wide: Served) -> Served:
    """A target that other tests use too, with a fresh pipeline."""
    module_wide.client.push(program())
    return module_wide


def test_frames__of_every_length_pass_unchanged(own: Served) -> None:
    wire, target, _ = own
    assert f"device {DEVICE}, P4Runtime at {target.address}, ports 1@p1 2@p2 3@p3" in target.ready
    sent = [frame(2, b"%d" % size, size=size) for size in (17, 60, 61, 1514, 9014)]
    for data in sent:
        wire.send(1, data)
    assert wire.receive(2, len(sent)) == sent
    wire.send(2, frame(1, b"back"))
    assert wire.receive(1, 1) == [frame(1, b"back")]
    assert target.end() == 0
    assert "6 frames received, 6 sent; dropped: none" in target.log.read_text()


def test_tags__stay_in_frames(shared: Served) -> None:
    wire, _, client = shared
    built = byte_header()
    built.root["header_types"][1]["fields"] = [["all", 144, False]]
    built.statements("ingress", [assign("s.egress_spec", number(2))])
    client.push(built)
    for tag in (b"\x81\0\xa0\x05", b"\x88\xa8\x20\x07", b"\x88\xa8\x20\x07\x81\0\xa0\x05"):
        data = (PREFIX[:12] + tag + PREFIX[12:]).ljust(70, b".")
        wire.send(1, data)
        assert wire.receive(2, 1) == [data]


def test_multicast_and_tables__by_p4runtime(shared: Served) -> None:
    wire, _, client = shared
    replicas = [p4r.Replica(port=bytes([port]), instance=port) for port in PORTS]
    client.write((INSERT, p4r.MulticastGroupEntry(multicast_group_id=7, replicas=replicas)))
    drop = p4r.TableAction(action=p4r.Action(action_id=0x01000000 + 3))
    match = [{"field_id": 1, "exact": {"value": b"\2"}}, {"field_id": 2, "exact": {"value": b"\1"}}]
    wire.send(1, frame(7, b"first", kind=1))
    for port in PORTS:
        assert wire.receive(port, 1) == [frame(7, b"first", kind=1)]
    client.write((INSERT, p4r.TableEntry(table_id=TABLE + 1, match=match, action=drop)))
    wire.send(1, frame(7, b"second", kind=1))
    assert [wire.receive(port, 1) for port in (1, 3)] == [[frame(7, b"second", kind=1)]] * 2
    wire.send(1, frame(2, b"third"))
    assert wire.receive(2, 1) == [frame(2, b"third")]  # and not the second


def test_burst__is_not_lost(shared: Served) -> None:
    wire = shared.wire
    count = 2000
    for each in range(count):
        wire.send(1, frame(2, b"%06d" % each, size=1000))
    assert wire.receive(2, count) == [frame(2, b"%06d" % each, size=1000) for each in range(count)]


def test_slow_port__holds_frames_and_lets_urgent_ones_pass(shared: Served) -> None:
    """What the kernel's buffer does not take waits in the port's queues, where the urgent overtake."""
    wire, shape = shared.wire, ["dev", "p2", "root", "tbf", "burst", "20k", "limit", "100000000", "rate"]
    wire.namespace.run("tc", "qdisc", "add", *shape, "1mbit")
    slow, urgent = 1100, 5
    for each in range(slow):
        wire.send(1, frame(2, b"%06d" % each, size=9000))
    for each in range(urgent):
        wire.send(1, frame(2, b"!%05d" % each, size=9000, level=7))
    wire.send(1, frame(3))
    assert wire.receive(3, 1)  # so all before it are where they wait
    wire.namespace.run("tc", "qdisc", "change", *shape, "10gbit")
    bodies = [data[17:23] for data in wire.receive(2, slow + urgent)]
    wire.namespace.run("tc", "qdisc", "del", "dev", "p2", "root")
    assert [body for body in bodies if body[:1] == b"!"] == [b"!%05d" % each for each in range(urgent)]
    assert [body for body in bodies if body[:1] != b"!"] == [b"%06d" % each for each in range(slow)]
    assert bodies.index(b"!00000") < slow - 100


def test_interface_gone__is_told_and_the_others_go_on(own: Served) -> None:
    wire, target, _ = own
    wire.namespace.ip("link", "del", "p2")
    end = time.monotonic() + BOUND_S
    while "port 2: interface p2 is gone" not in target.log.read_text():
        assert time.monotonic() < end, target.log.read_text()
        time.sleep(0.02)
    wire.send(1, frame(2))
    wire.send(1, frame(3, b"still"))
    assert wire.receive(3, 1) == [frame(3, b"still")]
    assert target.end() == 0
    assert "no port 1" in target.log.read_text()


def test_interface_down_and_up__goes_on(shared: Served) -> None:
    wire = shared.wire
    wire.namespace.ip("link", "set", "p2", "down")
    wire.send(1, frame(2, b"lost"))
    wire.send(1, frame(3))
    assert wire.receive(3, 1)
    wire.namespace.ip("link", "set", "p2", "up")
    for sender, to in ((1, 2), (2, 1)):
        end = time.monotonic() + BOUND_S
        while not wire.receive(to, 1, bound_s=0.1):  # Linux takes a moment to notice the carrier
            assert time.monotonic() < end
            wire.send(sender, frame(to))


def test_pushing_a_program_while_frames_flow__loses_none(shared: Served) -> None:
    """Every frame is handled by the one program or the other."""
    wire, _, client = shared
    sender = threading.Thread(target=lambda: [wire.send(1, frame(2, b"%06d" % each)) for each in range(3000)])
    sender.start()
    for _ in range(5):
        client.push(program())
    sender.join()
    assert len(wire.receive(2, 3000)) == 3000


def command(*options: str, **more: Any) -> subprocess.CompletedProcess[str]:
    text = [sys.executable, "-m", "rostrum.lab.p4target", *options]
    return subprocess.run(text, capture_output=True, text=True, timeout=BOUND_S, check=False, **more)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("-i", "1@nosuch0"), "p4target: port 1: there is no interface nosuch0"),
        (("-i", "1"), "'1' is not PORT@INTERFACE"),
        (("-i", "1@a", "-i", "1@b"), "the same port twice"),
        (("--p4", "x.json"), "--p4 and --p4info belong together"),
        (("--p4", "nosuch.json", "--p4info", os.devnull), "No such file or directory: 'nosuch.json'"),
        (("--p4", os.devnull, "--p4info", os.devnull), "this target cannot run the program: not JSON"),
        (("--cpu-port", "511"), "the CPU port is a port of its own"),
        (("--priority-queues", "0"), "at least one queue"),
    ],
)
def test_mistakes__are_told_with_a_reason(
    options: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["p4target", *options])
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)  # this process is not the target's
    try:
        status: Any = main()
    except SystemExit as end:
        status = end.code
    assert status in (1, 2)
    assert text in capsys.readouterr().err


def test_address_in_use__is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = command("--no-p4", "--grpc-server-addr", address)
    assert done.returncode == 1
    assert f"p4target: {address}: " in done.stderr
    assert "Traceback" not in done.stderr
