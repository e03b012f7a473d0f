"""Light in the kernel: real frames through the emulator's circuits, in a private namespace.

Four ToRs' ends t1 ... t4 are cabled to the OCS' interfaces ocs-p1 ... ocs-p4. Frames carry the monotonic time they were
sent at, which is the clock of the kernel program too, so dark and ringing windows are checked against it.
"""

from __future__ import annotations

import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rostrum.controller.southbound.ocs.tl1 import Answer, Framer, Tl1Error, parse_message
from rostrum.lab.namespace import PrivateNamespace
from rostrum.lab.netns import call_in_network
from rostrum.lab.ocs.control import ask

pytestmark = pytest.mark.lab

TOPOLOGY = Path(__file__).parents[2] / "topologies" / "hybrid-4x2.yaml"
ETH_TYPE = 0x88B5  # for experiments, IEEE 802
PORT = 10034
PORTS = (1, 2, 3, 4)
BOUND_S = 60.0
MS = 1_000_000


class Bench:
    """The OCS, its ToRs' ends, and a TL1 session."""

    def __init__(self, ns: PrivateNamespace, run: Path) -> None:
        self.ns = ns
        self.control = run / "ocs-ocs.ctl"
        self.run = run
        for port in PORTS:
            ns.run(["ip", "link", "add", f"ocs-p{port}", "mtu", "9000", "type", "veth",
                    "peer", "name", f"t{port}", "mtu", "9000"])  # fmt: skip
            ns.run(["ip", "link", "set", f"ocs-p{port}", "up"])
            ns.run(["ip", "link", "set", f"t{port}", "up"])
        self.ends = {port: call_in_network(ns.pid, lambda port=port: _end(f"t{port}")) for port in PORTS}
        self.number = 0
        self.passed_by: dict[int, int] = {}  # send time -> when the kernel program had dealt with the frame

    def start(self, *options: str) -> None:
        command = [sys.executable, "-m", "rostrum.lab.ocs", "--topology", str(TOPOLOGY), "--run", str(self.run)]
        self.emulator = self.ns.popen(
            [*command, "--listen", f"127.0.0.1:{PORT}", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        lines = []
        while not lines or lines[-1] not in ("ready\n", ""):
            lines.append(self.emulator.stdout.readline())
        assert lines[-1] == "ready\n", "".join(lines)
        self.session = call_in_network(self.ns.pid, lambda: socket.create_connection(("127.0.0.1", PORT), BOUND_S))
        self.framer, self.answers = Framer(1_000_000), {}
        assert self.tl1("ACT-USER::admin:{}::rostrum;").code == "COMPLD"

    def stop(self, how: int = signal.SIGTERM) -> None:
        self.session.close()
        self.emulator.send_signal(how)
        self.emulator.wait(BOUND_S)
        self.emulator.stdout.close()

    def close(self) -> None:
        for end in self.ends.values():
            end.close()

    def tl1(self, command: str) -> Answer:
        self.number += 1
        ctag = str(self.number)
        self.session.sendall(command.format(ctag).encode())
        while ctag not in self.answers:
            data = self.session.recv(65536)
            assert data, "the emulator closed the session"
            for item in self.framer.feed(data):
                assert not isinstance(item, Tl1Error)
                message = parse_message(*item)
                if isinstance(message, Answer):
                    self.answers[message.ctag] = message
        return self.answers.pop(ctag)

    def connect(self, *pairs: tuple[int, int], mode: str = "SYNC") -> Answer:
        inputs = "&".join(str(10_000 + i) for i, _ in pairs)
        outputs = "&".join(str(20_000 + o) for _, o in pairs)
        return self.tl1(f"ENT-CRS-FIBER::{inputs},{outputs}:{{}}:::OPMODE={mode};")

    def ask(self, **request: Any) -> dict[str, Any]:
        return ask(self.control, request)

    def path(self, port: int) -> list[dict[str, Any]]:
        return self.ask(op="state")["paths"][str(port)]

    def send(self, port: int, count: int = 1, size: int = 64) -> list[int]:
        """Frames from a ToR; their send times."""
        return [self._send(port, size) for _ in range(count)]

    def _send(self, port: int, size: int) -> int:
        now = time.monotonic_ns()
        head = b"\xff" * 6 + b"\x02\0\0\0\0\1" + struct.pack("!Hq", ETH_TYPE, now)
        self.ends[port].send(head.ljust(size, b"\0"))
        self.passed_by[now] = time.monotonic_ns()
        return now

    def send_until(self, port: int, end_ns: int, interval_ns: int) -> list[int]:
        sent = []
        while time.monotonic_ns() < end_ns:
            sent.append(self._send(port, 64))
            while time.monotonic_ns() < sent[-1] + interval_ns:
                pass
        return sent

    def received(self, port: int, expected: int = 0) -> list[int]:
        """Send times of the frames that arrive at a ToR: waits for `expected` of them, then takes what there is."""
        times, end, got = [], self.ends[port], time.monotonic() + BOUND_S
        while select.select([end], [], [], max(0.0, got - time.monotonic()) if len(times) < expected else 0.0)[0]:
            times.append(struct.unpack_from("!q", end.recv(65536), 14)[0])
        return times


def _end(interface: str) -> socket.socket:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    end.setsockopt(263, 23, 1)  # SOL_PACKET, PACKET_IGNORE_OUTGOING
    end.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)  # SO_RCVBUFFORCE
    end.bind((interface, ETH_TYPE))
    return end


@pytest.fixture(scope="module")
def namespace() -> Iterator[PrivateNamespace]:
    with PrivateNamespace(switches=False) as ns:
        yield ns


@pytest.fixture(scope="module")
def bench_of_module(namespace: PrivateNamespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(namespace, tmp_path_factory.mktemp("ocs"))
    made.start("--reconfiguration", "fixed:20ms", "--ringing", "2ms:0.5")
    yield made
    made.stop()
    made.close()


@pytest.fixture
def bench(bench_of_module: Bench) -> Bench:
    b = bench_of_module
    b.tl1("DLT-CRS-FIBER::ALL:{};")
    b.ask(op="clear")
    b.ask(op="timing", reconfiguration="fixed:20ms", ringing="2ms:0.5")
    for port in PORTS:
        b.received(port)
    return b


def test_circuit__carries_any_frame_one_way_and_to_nobody_else(bench: Bench) -> None:
    assert bench.connect((1, 2)).code == "COMPLD"
    sent = bench.send(1, 20) + bench.send(1, 20, size=9014)
    assert bench.received(2, expected=40) == sent
    bench.send(2, 5)
    assert [bench.received(port) for port in (1, 3, 4)] == [[], [], []]


def test_both_ways__two_cross_connects(bench: Bench) -> None:
    bench.connect((1, 2), (2, 1))
    there, back = bench.send(1, 10), bench.send(2, 10)
    assert bench.received(2, expected=10) == there
    assert bench.received(1, expected=10) == back


def test_no_circuit__dark(bench: Bench) -> None:
    before = bench.ask(op="counters")["ports"]["1"]["no_circuit"]
    bench.send(1, 7)
    assert bench.ask(op="counters")["ports"]["1"]["no_circuit"] == before + 7
    assert all(not bench.received(port) for port in PORTS)


def test_splitter__one_copy_at_each_receiver(bench: Bench) -> None:
    assert bench.connect((1, 5), (5, 2), (6, 3), (7, 4)).code == "COMPLD"
    sent = bench.send(1, 200)
    for port in (2, 3, 4):
        assert bench.received(port, expected=200) == sent
    assert bench.received(1) == []


def test_splitters_in_cascade(bench: Bench) -> None:
    assert bench.connect((1, 5), (5, 6), (6, 2), (9, 3), (10, 4)).code == "COMPLD"
    sent = bench.send(1, 50)
    for port in (2, 3, 4):
        assert bench.received(port, expected=50) == sent


def test_dark_until_ready__and_every_frame_after(bench: Bench) -> None:
    for dark_ms in (100, 400, 1600):  # this program may be late for the first ones
        bench.tl1("DLT-CRS-FIBER::ALL:{};")
        bench.ask(op="timing", reconfiguration=f"fixed:{dark_ms}ms", ringing="0ms:0")
        bench.connect((1, 5), (5, 2), (6, 3), mode="ASYNC")
        (dark_until,) = {branch["dark_until_ns"] for branch in bench.path(1)}
        if time.monotonic_ns() < dark_until - 20 * MS:
            break
    sent = bench.send_until(1, dark_until + 20 * MS, interval_ns=50_000)
    lit = [t for t in sent if t >= dark_until]
    assert lit
    assert len(lit) < len(sent)
    for port in (2, 3):
        got = bench.received(port, expected=len(lit))
        assert bench.passed_by[got[0]] >= dark_until
        assert [t for t in got if t >= dark_until] == lit


def test_ringing__part_of_the_frames_then_all(bench: Bench) -> None:
    bench.ask(op="timing", reconfiguration="fixed:250ms", ringing="200ms:0.5")
    bench.connect((1, 2), mode="ASYNC")
    (branch,) = bench.path(1)
    dark_until, ringing_until = branch["dark_until_ns"], branch["ringing_until_ns"]
    assert ringing_until - dark_until == 200 * MS
    sent = bench.send_until(1, ringing_until + 20 * MS, interval_ns=100_000)
    steady = [t for t in sent if t >= ringing_until]
    got = bench.received(2, expected=len(steady))
    ringing = [t for t in sent if dark_until <= t and bench.passed_by[t] < ringing_until]
    passed = [t for t in got if dark_until <= t and bench.passed_by[t] < ringing_until]
    assert len(ringing) > 100
    assert 0.3 < len(passed) / len(ringing) < 0.7
    assert bench.passed_by[got[0]] >= dark_until
    assert [t for t in got if t >= ringing_until] == steady


def test_disconnect__dark_at_once(bench: Bench) -> None:
    bench.connect((1, 2))
    sent = bench.send(1, 3)
    assert bench.received(2, expected=3) == sent
    bench.tl1("DLT-CRS-FIBER::10001:{};")
    bench.send(1, 5)
    assert bench.received(2) == []


def test_faults__dim_splitter_dead_port_noisy_fibre(bench: Bench) -> None:
    bench.connect((1, 5), (5, 2), (6, 3))
    dim = bench.ask(op="fault", kind="dim-splitter", splitter="s1", db=20)["id"]
    bench.send(1, 5)
    assert [bench.received(port) for port in (2, 3)] == [[], []]
    bench.ask(op="clear", id=dim)
    sent = bench.send(1, 5)
    assert bench.received(2, expected=5) == sent
    assert bench.received(3, expected=5) == sent

    bench.ask(op="fault", kind="dead-port", port=2, side="output")
    bench.ask(op="fault", kind="noisy", port=3, loss=0.5)
    sent = bench.send(1, 1000)
    got = bench.received(3, expected=300)
    assert set(got) < set(sent)
    assert 300 <= len(got) <= 700
    assert bench.received(2) == []


def test_counters__add_up(bench: Bench) -> None:
    bench.connect((1, 5), (5, 2), (6, 3))
    before = bench.ask(op="counters")["ports"]
    sent = bench.send(1, 30, size=1000)
    assert bench.received(2, expected=30) == sent
    after = bench.ask(op="counters")["ports"]
    gained = {p: {k: after[p][k] - before[p][k] for k in after[p] if after[p][k] != before[p][k]} for p in after}
    assert gained == {
        "1": {"rx_frames": 30, "rx_bytes": 30_000},
        "2": {"forwarded": 30, "forwarded_bytes": 30_000},
        "3": {"forwarded": 30, "forwarded_bytes": 30_000},
        "4": {},
    }


def test_stopped_it_leaves_nothing_and_killed_it_can_start_again(bench: Bench) -> None:
    def programs() -> str:
        return bench.ns.run(["tc", "filter", "show", "dev", "ocs-p1", "ingress"]).stdout

    assert "light" in programs()
    bench.stop()
    assert programs() == ""
    bench.start("--reconfiguration", "fixed:0ms")
    bench.stop(signal.SIGKILL)
    assert "light" in programs()
    bench.start("--reconfiguration", "fixed:1ms")
    bench.connect((1, 2))
    sent = bench.send(1, 5)
    assert bench.received(2, expected=5) == sent
    assert bench.ns.run(["ls", "/sys/fs/bpf"]).stdout.count("rostrum") == 0
