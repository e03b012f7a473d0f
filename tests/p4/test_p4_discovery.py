"""Frames between the control plane and ports, on every target there is: only LLDP of watched ports goes up."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from finsy import P4TableAction, P4TableEntry, P4TableMatch
from finsy.p4entity import P4PacketIn

from tests.p4 import frames
from tests.p4.bench import BOUND_S, Bench, insert
from tests.p4.target import CPU_PORT, kinds, running

pytestmark = pytest.mark.lab

LLDP = frames.ethernet(bytes(range(46)), 0x88CC)


@pytest.fixture(scope="module", params=[kind for kind in kinds() if not kind.missing], ids=lambda kind: kind.name)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with running(request.param, tmp_path_factory.mktemp("p4"), 4) as target:
        yield Bench(target)


@pytest.fixture
def watched(bench: Bench) -> Iterator[Bench]:
    """Port 2 is."""
    bench.drain()
    entry = P4TableEntry("discovery", match=P4TableMatch(ingress_port=2), action=P4TableAction("hand_up"))
    bench.target.control.write([insert(entry)])
    yield bench
    bench.clear()


def came(bench: Bench, count: int) -> list[tuple[int, bytes]]:
    """(port, frame) of each packet-in."""
    found = []
    for _ in range(count):
        packet: P4PacketIn = bench.target.control.packets.get(timeout=BOUND_S)
        found.append((int(packet["ingress_port"]), packet.payload))
    return found


def left(bench: Bench, count: int) -> list[tuple[int, bytes]]:
    """(port, frame) of each frame that left the switch."""
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + BOUND_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} frames came out"
        found += bench.target.ports.receive(0.2)
    return found


def test_lldp_of_a_watched_port_goes_up_whole(watched: Bench) -> None:
    for payload in (LLDP, frames.ethernet(bytes(1000), 0x88CC)):
        watched.target.ports.send(2, payload)
        assert came(watched, 1) == [(2, payload)]
    assert not watched.target.ports.receive(0)


def test_nothing_else_goes_up(watched: Bench) -> None:
    """Other ports' LLDP, other frames of the same port."""
    control, ports = watched.target.control, watched.target.ports
    before = control.counter("dropped").get(3, (0, 0))[0]
    for port, frame in ((1, LLDP), (3, LLDP), (2, frames.ethernet(bytes(46), 0x86DD))):
        ports.send(port, frame)
    ports.send(2, LLDP)  # behind them
    assert came(watched, 1) == [(2, LLDP)]
    deadline = time.monotonic() + BOUND_S
    while control.counter("dropped").get(3, (0, 0))[0] < before + 3:
        assert time.monotonic() < deadline
    assert control.packets.empty()


def test_what_the_control_plane_sends_leaves_by_its_port_as_it_is(watched: Bench) -> None:
    """Also what would otherwise be forwarded elsewhere, or dropped; and it counts as nobody's traffic."""
    control = watched.target.control
    sent = [(4, LLDP), (2, frames.unicast("10.0.1.1", "203.0.113.5", b"x")), (4, frames.ethernet(bytes(46), 0x86DD))]
    before = control.counter("port_sent_unicast"), control.counter("dropped"), control.counter("port_received")
    for port, frame in sent:
        control.send(port, frame)
    assert sorted(left(watched, len(sent))) == sorted(sent)
    after = control.counter("port_sent_unicast"), control.counter("dropped"), control.counter("port_received")
    assert after == before and CPU_PORT not in after[2]
