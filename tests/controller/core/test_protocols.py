"""Which protocol a path gets, and what is said of it."""

from __future__ import annotations

from typing import Any

from rostrum.controller.core import events as ev
from rostrum.controller.core.model import PathKind
from rostrum.controller.core.values import Protocol, State
from rostrum.topologies import generate, load, load_text

from tests.controller.timeline import Timeline


def test_protocol__which_and_why() -> None:
    line = Timeline(load("fat-tree-4"))
    ends = ["h0-0-0", "h1-0-0", "h2-0-0"]
    for server in ends[:2]:
        line.do(ev.AgentUp(server, 1, 7071, protocols=("rdcm",)))

    def protocol(*receivers: str) -> tuple[Protocol, str]:
        path = line.ask(ends[0], *receivers, origin=ends[0])
        return path.protocol, path.reason

    assert protocol(ends[1]) == (Protocol.REPUBLIC, "the topology has no optical circuit switch")
    assert protocol(*ends[1:])[0] is Protocol.REPUBLIC
    assert "not rdcm: h2-0-0 not connected yet" in protocol(*ends[1:])[1]  # as just after the manager's start
    line.do(ev.AgentUp(ends[2], 1, 7071))
    assert "not rdcm: h2-0-0 cannot" in protocol(*ends[1:])[1]
    line.do(ev.AgentDown(ends[2], 1, "away"))  # as one that the journal tells of is
    assert "not rdcm: h2-0-0 not connected yet" in protocol(*ends[1:])[1]
    line.do(ev.AgentUp(ends[2], 1, 7071, protocols=("rdcm",)))
    assert protocol(*ends[1:])[0] is Protocol.RDCM
    line.do(ev.AgentUp("h0-0-1", 1, 7071, protocols=("rdcm",)))
    assert protocol("h0-0-1", ends[1])[0] is Protocol.RDCM
    assert line.ask(*ends).protocol is Protocol.REPUBLIC  # of REST: no agent has a transfer
    circuit = Timeline()
    for server in circuit.topology.servers:
        circuit.do(ev.AgentUp(server, 1, 7071, protocols=("rdcm",)))
    path = circuit.ask("h1", "h3", "h5", origin="h1")
    assert (path.kind, path.protocol) == (PathKind.CIRCUIT, Protocol.REPUBLIC)


def test_protocol__within_a_rack_there_is_no_tree_to_mend() -> None:
    line = Timeline(load_text(generate.hybrid(generate.Hybrid(racks=2, servers=4))))
    servers = [one.name for one in line.topology.servers.values() if one.tor == "tor1"]
    for server in servers:
        line.do(ev.AgentUp(server, 1, 7071, protocols=("rdcm",)))
    path = line.ask(*servers, origin=servers[0])
    assert path.protocol is Protocol.REPUBLIC and "one switch is no tree" in path.reason
    asked = line.ask(*servers, origin=servers[0], protocol=Protocol.RDCM)
    assert asked.protocol is Protocol.RDCM
    for_wan = line.ask(*servers, origin=servers[0], protocol=Protocol.WAN)
    assert for_wan.state is State.QUEUED and "agents that know wan" in for_wan.reason
    for server in servers:
        line.do(ev.AgentUp(server, 2, 7071, protocols=("rdcm", "wan")))
    again = line.ask(*servers, origin=servers[0], protocol=Protocol.WAN)
    assert (again.protocol, again.kind) == (Protocol.WAN, PathKind.PACKET) and "wan: asked for" in again.reason


def test_protocol__wan_where_receivers_are_far() -> None:
    """By what the sender has measured, or by how differently far they are from the manager."""
    line = Timeline(load("fat-tree-4"))
    a, b, c = "h0-0-0", "h1-0-0", "h2-0-0"
    for server, round_trip_us in ((a, 1_000), (b, 9_000), (c, 31_000)):
        line.do(ev.AgentUp(server, 1, 7071, protocols=("rdcm", "wan"), round_trip_us=round_trip_us))

    def protocol(sender: str, *receivers: str, **request: Any) -> tuple[Protocol, str]:
        path = line.ask(sender, *receivers, origin=sender, **request)
        return path.protocol, path.reason

    assert protocol(a, b)[0] is Protocol.REPUBLIC
    assert protocol(a, b, c)[0] is Protocol.WAN and f"wan: {c} is at least 30 ms away" in protocol(a, b, c)[1]
    assert protocol(a, b, c, protocol=Protocol.RDCM)[0] is Protocol.RDCM
    assert protocol(a, b, round_trip_us=9_999)[0] is Protocol.REPUBLIC
    far = protocol(a, b, round_trip_us=42_000)
    assert far[0] is Protocol.WAN and "wan: a receiver is 42 ms away" in far[1]
    line.do(ev.AgentUp(b, 2, 7071, protocols=("rdcm",)))
    old = protocol(a, b, round_trip_us=42_000)
    assert old[0] is Protocol.REPUBLIC and "a receiver is 42 ms away; not wan: h1-0-0 cannot" in old[1]


def test_tree_shape__a_wan_path_tells_its_links() -> None:
    """Three pods of a fat-tree: what the sender predicts its first rate from (docs/wan.md)."""
    line = Timeline(load("fat-tree-4"))
    ends = ["h0-0-0", "h1-0-0", "h1-0-1", "h2-0-0"]
    for server in ends:
        line.do(ev.AgentUp(server, 1, 7071, protocols=("rdcm", "wan")))

    def shape(protocol: Protocol, *receivers: str) -> tuple[int, int]:
        line.ask(ends[0], *receivers, origin=ends[0], protocol=protocol)
        return line.responses()[-1].tree_links, line.responses()[-1].path_links

    # server - ToR - aggregation - core - aggregation - ToR - server
    assert shape(Protocol.WAN, "h1-0-0") == (6, 6)
    assert shape(Protocol.WAN, "h1-0-0", "h1-0-1") == (7, 12)
    assert shape(Protocol.WAN, *ends[1:]) == (10, 18)
    assert shape(Protocol.RDCM, *ends[1:]) == (0, 0)
