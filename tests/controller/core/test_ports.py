"""Ports that go down and come up, and what discovery frames say of the cabling, on the core."""

from __future__ import annotations

from pathlib import Path

import pytest
from rostrum.controller.core import events as ev
from rostrum.controller.core.model import PathKind, Sighting
from rostrum.controller.core.packet import cabling
from rostrum.controller.core.values import S, Settings, State, Wanted
from rostrum.topologies import loader
from rostrum.topologies.kinds import with_kind
from rostrum.topologies.model import End

from tests.controller.timeline import Timeline


def test_port__a_circuit_through_it_moves_to_the_packet_network_with_the_cause() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", "h3", "h5")
    assert path.kind is PathKind.CIRCUIT
    line.do(ev.PortChanged("tor2", 50, False))
    assert path.kind is PathKind.PACKET and path.state is State.ACTIVE
    assert path.reason == "tor2 port 50 (to ocs:2) is down"
    line.assert_delivers(path)
    later = line.ask("h7", "h3")
    assert later.kind is PathKind.PACKET and "tor2's downlink: port 50 is down" in later.reason
    line.do(ev.PortChanged("tor2", 50, True))
    assert line.ask("h8", "h4").kind is PathKind.CIRCUIT


def test_port__a_request_that_demands_a_circuit_fails_with_the_cause() -> None:
    line = Timeline()
    path = line.ask("h1", "h3", wanted=Wanted.CIRCUIT)
    line.do(ev.PortChanged("tor1", 50, False))
    assert path.state is State.FAILED
    assert path.cause.startswith("tor1 port 50 (to ocs:1) is down; the request demands a circuit")


def test_port__a_packet_path_with_no_other_way_fails_and_new_ones_wait_for_it() -> None:
    line = Timeline()
    path = line.ask("h1", "h3", wanted=Wanted.PACKET)
    core_port = next(port for port, end in line.topology.switches["tor2"].neighbours.items() if end.node == "core")
    line.do(ev.PortChanged("tor2", core_port, False))
    assert path.state is State.FAILED and f"tor2 port {core_port} (to core:" in path.cause
    waits = line.ask("h1", "h3", wanted=Wanted.PACKET)
    assert waits.state is State.QUEUED and f"tor2 port {core_port} (to core:" in waits.reason
    line.do(ev.PortChanged("tor2", core_port, True))
    assert waits.granted
    line.assert_delivers(waits)


def test_port__a_server_without_a_link_neither_sends_nor_is_sent_to() -> None:
    line = Timeline()
    sends = line.ask("h1", "h3", "h5")
    receives = line.ask("h7", "h1", "h8")
    only = line.ask("h8", "h1", wanted=Wanted.PACKET)
    port = line.topology.servers["h1"].tor_port
    line.do(ev.PortChanged("tor1", port, False))
    assert sends.state is State.FAILED and f"tor1 port {port} (to h1:0) is down" in sends.cause
    assert receives.granted and any("h1 cannot receive" in note for note in receives.stamps.notes)
    assert only.state is State.FAILED
    waits = line.ask("h3", "h1")
    assert waits.state is State.QUEUED and waits.reason.startswith("waiting for h1's link")
    line.do(ev.PortChanged("tor1", port, True))
    assert "h1's link" not in waits.reason


def test_port__packet_paths_and_unicast_go_around_a_dead_link() -> None:
    line = Timeline(loader.load("fat-tree-4"))
    sender, _, *others = sorted(line.topology.servers)
    first = line.ask(sender, others[-1], others[len(others) // 2], wanted=Wanted.PACKET)
    line.assert_delivers(first)
    tor = line.topology.servers[sender].tor
    up = next(out_ports[0] for switch, _, out_ports in first.hops if switch == tor)
    line.do(ev.PortChanged(tor, up, False))
    assert first.state is State.ACTIVE
    assert all(not (switch == tor and up in out_ports) for switch, _, out_ports in first.hops)
    line.assert_delivers(first)
    assert all(rule.out_port != up for rule in line.network.unicast[tor])
    assert len(line.network.unicast[tor]) == len(line.topology.servers)
    line.release(first)


def test_port__events_repeated_or_of_unknown_ports_change_nothing() -> None:
    line = Timeline()
    path = line.ask("h1", "h3")
    for event in (
        ev.PortChanged("tor9", 1, False),
        ev.PortChanged("tor1", 999, False),
        ev.PortChanged("tor1", 50, True),
    ):
        assert line.do(event) == [] and path.state is State.ACTIVE
    line.do(ev.PortChanged("tor1", 50, False))
    moved = line.manager.core.counts["moved"]
    line.do(ev.PortChanged("tor1", 50, False))
    assert line.manager.core.counts["moved"] == moved


def see(line: Timeline, switch: str, port: int, origin: str, origin_port: int) -> str:
    line.do(ev.Sighted(Sighting(switch, port, End(origin, origin_port))))
    heard = line.manager.core.heard.get((switch, port))
    return heard.wrong if heard else "nothing"


def test_cabling__a_link_is_as_expected_or_named() -> None:
    line = Timeline()
    to_core = {
        name: next(port for port, end in line.topology.switches[name].neighbours.items() if end.node == "core")
        for name in ("tor1", "tor2")
    }
    ends = {name: line.topology.switches[name].neighbours[port] for name, port in to_core.items()}
    core = line.topology.switches["core"]
    assert see(line, "core", ends["tor1"].port, "tor1", to_core["tor1"]) == ""
    wrong = see(line, "core", ends["tor1"].port, "tor2", to_core["tor2"])
    assert wrong == f"core port {ends['tor1'].port} expected tor1:{to_core['tor1']}, sees tor2:{to_core['tor2']}"
    states = {(one.switch, one.port): one.state for one in cabling.links(line.manager.core, line.now)}
    assert states["core", ends["tor1"].port] == "miscabled"
    assert see(line, "core", ends["tor1"].port, "tor1", to_core["tor1"]) == ""
    assert core.name == "core"


def test_cabling__through_the_ocs_the_fibre_is_named() -> None:
    line = Timeline()
    path = line.ask("h1", "h3")  # tor1 (ocs:1) -> tor2 (ocs:2)
    assert path.kind is PathKind.CIRCUIT
    line.wait(1_500)
    assert see(line, "tor2", 50, "tor1", 50) == ""
    assert see(line, "tor3", 50, "tor1", 50) == "tor3 port 50 expected ocs:3, sees ocs:2"


def test_cabling__light_that_enters_at_a_wrong_port_is_named() -> None:
    line = Timeline()
    line.ask("h1", "h3")
    line.wait(1_500)
    wrong = see(line, "tor2", 50, "tor4", 50)
    assert wrong == "tor4 port 50 expected ocs:4, its light comes from ocs:1 (seen at tor2 port 50)"


def test_cabling__frames_under_way_while_a_circuit_changes_prove_nothing() -> None:
    line = Timeline()
    line.ask("h1", "h3")
    assert see(line, "tor3", 50, "tor1", 50) == "nothing"


def test_cabling__what_is_not_heard_any_more_is_silent_or_not_said() -> None:
    line = Timeline(settings=Settings())
    line.wait(60_000)
    states = {(one.switch, one.port): one for one in cabling.links(line.manager.core, line.now)}
    assert {one.state for one in states.values()} == {"silent", "not heard"}
    line.do(ev.SwitchDown("core", "gone"))
    states = {(one.switch, one.port): one for one in cabling.links(line.manager.core, line.now)}
    assert "silent" not in {one.state for one in states.values()}
    assert cabling.STALE_NS == 20 * S


def test_cabling__a_p4_switch_counts_once_it_was_heard() -> None:
    """Before that nobody knows whether it has a port to the manager."""
    text = (Path(__file__).parents[3] / "topologies" / "hybrid-4x2.yaml").read_text()
    line = Timeline(loader.load_text(with_kind(text, "p4")), Settings())
    line.wait(60_000)
    assert {one.state for one in cabling.links(line.manager.core, line.now)} == {"not looked at"}
    to_core = next(port for port, end in line.topology.switches["tor1"].neighbours.items() if end.node == "core")
    end = line.topology.switches["tor1"].neighbours[to_core]
    assert see(line, "core", end.port, "tor1", to_core) == ""  # tor1 sends, core hands up
    states = {(one.switch, one.port): one.state for one in cabling.links(line.manager.core, line.now)}
    assert states["core", end.port] == "as expected" and states["tor1", to_core] == "silent"
    others = {state for (switch, port), state in states.items() if (switch, port) != ("core", end.port)}
    assert others == {"silent", "not heard", "not looked at"}


@pytest.mark.parametrize("port", [0, 50, 4095])
def test_cabling__unknown_ports_and_switches_are_ignored(port: int) -> None:
    line = Timeline()
    assert see(line, "tor9", port, "tor1", 50) == "nothing"
    assert see(line, "tor1", 50, "elsewhere", port) == "nothing"
