"""What goes wrong on the way, and what becomes of the paths."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

import pytest
from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.model import CrossConnect, CrossConnectState, MulticastRule, Pair, PathKind
from rostrum.controller.core.values import (
    REST,
    Decision,
    PathRequest,
    ReceiverReport,
    Settings,
    State,
    TransferReport,
    Wanted,
)
from rostrum.topologies import loader

from tests.controller.timeline import Timeline, live_path

SIX = ("h3", "h4", "h5", "h6", "h7", "h8")


def test_fault__the_path_moves_with_its_group() -> None:
    line = Timeline()
    line.network.faults.add(("ocs", Pair(6, 3)))  # s1's second output to tor3
    path = line.ask_as_agent("h1", *SIX)
    assert path.state is State.ACTIVE and path.kind is PathKind.PACKET
    assert path.reason == "cross-connect 6>3 of ocs is FAULT: mirror stuck"
    (moved,) = line.of(act.NotifyMoved)
    assert moved == act.NotifyMoved("h1", path.id, PathKind.PACKET, path.reason)
    assert line.responses()[0].group == str(path.group)
    line.assert_delivers(path)
    assert not line.network.pairs()  # the rest of the circuit is taken down
    again = line.ask("h2", *SIX)
    assert again.kind is PathKind.CIRCUIT and again.cascade and again.cascade.splitters == ("s2",)
    line.assert_delivers(again)
    line.release(path)
    line.release(again)
    line.assert_nothing_held()


def test_fault__a_dead_port_is_found_by_its_second_partner() -> None:
    line = Timeline()
    for splitter_output in range(5, 21):
        line.network.faults.add(("ocs", Pair(splitter_output, 3)))
    kinds = []
    for _ in range(3):
        path = line.ask("h1", *SIX)
        kinds.append(path.kind)
        line.release(path)
    assert kinds == [PathKind.PACKET] * 3
    assert "waiting for tor3's downlink: port 50 (ocs output 3) is out of use for" in path.reason
    assert path.reason.startswith("no circuit in time")
    line.wait(30_001)
    line.network.faults.clear()
    assert line.ask("h1", *SIX).kind is PathKind.CIRCUIT


def test_fault__a_demanded_circuit_fails() -> None:
    line = Timeline()
    line.network.faults.add(("ocs", Pair(1, 2)))
    path = line.ask_as_agent("h1", "h3", wanted=Wanted.CIRCUIT)
    assert path.state is State.FAILED and "demands a circuit" in path.cause
    assert len(line.of(act.NotifyFailed)) == 1
    line.assert_nothing_held()


def test_dim__the_splitter_is_named_and_left_alone() -> None:
    line = Timeline()
    line.network.dim["s1"] = 12.0
    path = line.ask("h1", *SIX)
    assert path.kind is PathKind.PACKET
    assert path.reason.startswith("s1 is dim: -20.0 dBm enter ocs at 5, -8.0 dBm are expected")
    again = line.ask("h2", *SIX)
    assert again.kind is PathKind.CIRCUIT and again.cascade and again.cascade.splitters == ("s2",)


def test_dim__within_the_margin_is_no_fault() -> None:
    line = Timeline()
    line.network.dim["s1"] = 5.0
    assert line.ask("h1", *SIX).kind is PathKind.CIRCUIT


def test_fault__of_a_live_circuit() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", *SIX)
    line.do(ev.CrossConnectChanged("ocs", CrossConnect(Pair(1, 5), CrossConnectState.FAULT, cause="power lost")))
    assert path.state is State.ACTIVE and path.kind is PathKind.PACKET and "power lost" in path.reason
    line.assert_delivers(path)


def test_ocs__silent() -> None:
    line = Timeline()
    line.devices_answer = False
    path = line.ask_as_agent("h1", *SIX)
    line.held.clear()
    line.do(ev.KeepAlive("h1"))
    line.devices_answer = True
    for _ in range(6):
        line.wait(1000)
        line.do(ev.KeepAlive("h1"))
    assert path.state is not State.CONFIGURING
    assert "did not answer within" in path.reason or "not confirmed within 5 s" in path.cause


def test_ocs__error_moves_the_path() -> None:
    line = Timeline()
    line.devices_answer = False
    path = line.ask_as_agent("h1", *SIX)
    (connect,) = line.of(act.Connect)
    assert isinstance(connect, act.Connect)
    line.do(ev.CircuitResult(connect.op, (), "ocs at 10.255.0.2:10034 is not connected: refused"))
    assert path.kind is PathKind.PACKET and "is not connected: refused" in path.reason


def test_ocs__down_means_packet_at_once_and_live_circuits_stay() -> None:
    line = Timeline()
    path = line.ask("h1", *SIX)
    line.do(ev.OcsDown("ocs", "connection reset"))
    assert path.state is State.ACTIVE and path.kind is PathKind.CIRCUIT
    other = line.ask("h3", "h5")
    assert other.kind is PathKind.PACKET
    assert other.reason == "no circuit in time: ocs is not connected: connection reset"
    line.do(ev.OcsUp("ocs"))
    assert path.kind is PathKind.CIRCUIT
    assert line.ask("h5", "h1").kind is PathKind.CIRCUIT


def test_ocs__comes_back_without_its_cross_connects() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", *SIX)
    line.release(line.ask("h3", "h1"))
    line.wait(1)
    line.do(ev.OcsDown("ocs", "power cycle"))
    line.network.crossed["ocs"].clear()
    line.do(ev.OcsUp("ocs"))
    assert path.kind is PathKind.PACKET and "is gone" in path.reason
    assert not len(line.manager.core.resources.circuits)
    line.assert_delivers(path)


def test_ocs__not_there_yet_at_start() -> None:
    line = Timeline(up=False)
    for name in line.topology.switches:
        line.do(ev.SwitchUp(name))
    early = line.ask("h1", *SIX)
    assert early.state is State.QUEUED and early.reason == "waiting for ocs to connect"
    line.do(ev.OcsUp("ocs"))
    assert early.state is State.ACTIVE and early.kind is PathKind.CIRCUIT


def test_no_light__the_circuit_is_given_up() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", *SIX)
    line.wait(410)
    line.do(ev.NoLight(path.id, ("h5", "h6"), "h1"))
    assert path.kind is PathKind.PACKET and path.reason == "no light at h5, h6 within 410 ms"
    line.assert_delivers(path)
    assert not line.network.pairs()


def test_no_light__of_a_dead_agent_alone_moves_nothing() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", *SIX)
    line.hello("h5", boot=3)
    line.do(ev.AgentDown("h5", 3, "reset"))
    line.do(ev.NoLight(path.id, ("h5",), "h1"))
    assert path.kind is PathKind.CIRCUIT and "not moved" in path.stamps.notes[-1]


def test_no_light__where_another_in_the_rack_has_light_moves_nothing() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", *SIX)
    lit = ReceiverReport("h6", "receiving", "", 5, 0, 10**18, 0)
    line.do(ev.ReportReceived(TransferReport("r1", path.id, "attempt", "", 0, 9, 0, 0, (lit,)), "h1"))
    line.do(ev.NoLight(path.id, ("h5",), "h1"))
    assert path.kind is PathKind.CIRCUIT
    line.do(ev.NoLight(path.id, ("h7",), "h1"))
    assert path.kind is PathKind.PACKET


def test_no_light__on_the_packet_path_fails_only_when_nobody_has_any() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", "h3", "h5", wanted=Wanted.AUTO)
    line.do(ev.NoLight(path.id, ("h3",), "h1"))
    assert path.kind is PathKind.PACKET
    line.wait(410)
    line.do(ev.NoLight(path.id, ("h3",), "h1"))
    line.do(ev.NoLight(path.id, ("h3",), "h1"))
    assert path.state is State.ACTIVE
    line.do(ev.NoLight(path.id, ("h3", "h5"), "h1"))
    line.do(ev.NoLight(path.id, ("h5",), "h1"))
    assert path.state is State.FAILED and "over the packet network too" in path.cause
    line.assert_nothing_held()


def test_no_light__said_of_the_circuit_does_not_count_against_the_packet_path() -> None:
    """Two receivers' bounds end one after the other, and the second report crosses the report that the path moved."""
    line = Timeline()
    path = line.ask_as_agent("h1", "h3", "h5")
    line.wait(410)
    line.do(ev.NoLight(path.id, ("h3",), "h1"))
    for _ in range(3):
        line.wait(1)
        line.do(ev.NoLight(path.id, ("h3", "h5"), "h1"))
    assert path.state is State.ACTIVE and path.kind is PathKind.PACKET
    assert not path.complaints and not path.stamps.notes


def test_no_light__from_somebody_else_is_ignored() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", *SIX)
    line.hello("h3")
    line.do(ev.NoLight(path.id, ("h3",), "h3"))
    line.do(ev.NoLight(path.id, ("h2",), "h1"))
    assert path.kind is PathKind.CIRCUIT


def test_rules__failure_at_a_tor_fails_the_path() -> None:
    line = Timeline()
    line.devices_answer = False
    path = line.ask_as_agent("h1", *SIX)
    (install,) = line.of(act.InstallRules)
    assert isinstance(install, act.InstallRules)
    line.do(ev.RulesFailed(install.op, (("tor3", "table full"),)))
    assert path.state is State.FAILED and path.cause == "rules not set on tor3: table full"
    assert line.of(act.NotifyFailed)
    line.devices_answer = True
    line.let()
    line.let()
    line.assert_nothing_held()


def test_rules__failure_at_a_core_goes_around_it() -> None:
    topology = loader.load_text(TWO_CORES)
    line = Timeline(topology)
    line.devices_answer = False
    path = line.ask("h1", "h2")
    (install,) = line.of(act.InstallRules)
    assert isinstance(install, act.InstallRules) and {rule.switch for rule in install.rules} == {"tor1", "a", "tor2"}
    line.do(ev.RulesFailed(install.op, (("a", "table full"),)))
    assert {rule.switch for rule in path.rules} == {"tor1", "b", "tor2"}
    line.let()
    line.let()
    assert path.state is State.ACTIVE
    line.assert_delivers(path)


def test_switch__down_is_waited_for_or_gone_around() -> None:
    line = Timeline()
    line.do(ev.SwitchDown("tor3", "reset"))
    path = line.ask_as_agent("h1", "h5")
    assert path.state is State.QUEUED and path.reason == "waiting for tor3 to connect (reset)"
    line.do(ev.SwitchUp("tor3"))
    assert path.state is State.ACTIVE
    line.do(ev.SwitchDown("core", "reset"))
    assert line.ask("h3", "h7").kind is PathKind.CIRCUIT
    waiting = line.ask("h3", "h4", "h7", wanted=Wanted.PACKET)
    assert waiting.state is State.QUEUED and "waiting for core to connect" in waiting.reason


def test_switch__comes_back_empty_and_gets_its_rules() -> None:
    line = Timeline()
    path = line.ask("h1", *SIX)
    idle = line.ask("h3", "h1", wanted=Wanted.PACKET)
    line.release(idle)
    line.do(ev.SwitchDown("tor2", "reboot"))
    line.network.tables["tor2"].clear()
    line.do(ev.SwitchUp("tor2"))
    line.assert_delivers(path)
    assert path.state is State.ACTIVE
    assert {rule.address for rule in line.network.unicast["tor2"]} == {
        s.address for s in line.topology.servers.values()
    }
    line.release(path)
    line.assert_nothing_held()


def test_unicast__every_switch_knows_every_server() -> None:
    line = Timeline()
    for switch in line.topology.switches:
        for server in line.topology.servers.values():
            at, hops = switch, 0
            while at != server.name:
                (port,) = [rule.out_port for rule in line.network.unicast[at] if rule.address == server.address]
                at, hops = line.topology.switches[at].neighbours[port].node, hops + 1
                assert hops < 4


def test_lease__a_killed_sender_frees_everything() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", *SIX)
    waiting = line.ask_as_agent("h1", "h3", wanted=Wanted.CIRCUIT, wait_ms=60_000)
    line.do(ev.AgentDown("h1", 1, "reset"))
    line.wait(2990)
    assert path.state is State.ACTIVE and waiting.state is State.QUEUED
    line.wait(20)
    assert path.state is State.RELEASED and "lease over: the agent of h1 is silent for 3 s" in path.cause
    assert waiting.state is State.RELEASED
    line.assert_nothing_held()


def test_agent__back_within_the_lease_keeps_its_paths() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", *SIX)
    lost = line.ask_as_agent("h1", "h2")
    line.do(ev.AgentDown("h1", 1, "reset"))
    line.wait(1000)
    line.hello("h1", 1, (live_path(path),))
    for _ in range(4):
        line.wait(1000)
        line.do(ev.KeepAlive("h1"))
    assert path.state is State.ACTIVE
    assert lost.state is State.RELEASED and "does not hold it any more" in lost.cause


def test_agent__repeats_a_request_whose_answer_was_lost() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", "h3", request_id="same")
    line.do(ev.AgentDown("h1", 1, "reset"))
    line.hello("h1", 1)
    assert line.ask_as_agent("h1", "h3", request_id="same") is path
    for _ in range(4):
        line.wait(1000)
        line.do(ev.KeepAlive("h1"))
    assert path.state is State.ACTIVE
    assert line.decisions() == [Decision.ACCEPTED, Decision.ACCEPTED]


def test_agent__restarted_loses_its_old_paths() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", *SIX)
    line.hello("h1", boot=2)
    assert path.state is State.RELEASED and path.cause == "the agent of h1 was restarted"
    line.assert_nothing_held()


def restarted(line: Timeline, boot: int = 977_000) -> Timeline:
    """A new manager on the old one's devices."""
    after = Timeline(line.topology, Settings(boot_id=boot), up=False)
    after.network = line.network
    after.now = line.now + 1_000_000
    return after


@pytest.mark.parametrize("devices_first", [True, False])
def test_restart__live_paths_are_adopted_and_the_rest_swept(devices_first: bool) -> None:
    before = Timeline()
    circuit = before.ask_as_agent("h1", "h3", "h5")
    packet = before.ask_as_agent("h7", "h1", "h4", wanted=Wanted.PACKET)
    before.ask_as_agent("h3", "h7")  # its agent will not come back
    claims = [("h1", live_path(circuit)), ("h7", live_path(packet))]
    after = restarted(before)
    if devices_first:
        after.all_up()
    for server, live in claims:
        after.hello(server, 1, (live,))
    if not devices_first:
        after.all_up()
    adopted = [after.path(circuit.id), after.path(packet.id)]
    assert [path.kind for path in adopted] == [PathKind.CIRCUIT, PathKind.PACKET]
    assert adopted[0].pairs and adopted[0].rules == circuit.rules and adopted[1].rules == packet.rules
    held = after.ask("h3", "h7")
    assert held.kind is PathKind.PACKET and "found at start" in held.reason
    for _ in range(7):
        after.wait(1000)
        for server, _ in claims:
            after.do(ev.KeepAlive(server))
    for path in adopted:
        assert path.state is State.ACTIVE
        after.assert_delivers(path)
    assert after.network.pairs() == set(circuit.pairs)
    assert after.ask("h4", "h8").kind is PathKind.CIRCUIT
    fresh = {path.group for path in after.manager.core.paths.values()}
    assert len(fresh) == len(after.manager.core.paths)
    for path in list(after.manager.core.paths.values()):
        after.release(path)
    after.assert_nothing_held()


def test_restart__a_circuit_that_is_gone_becomes_a_packet_path() -> None:
    before = Timeline()
    path = before.ask_as_agent("h1", "h3", "h5")
    after = restarted(before)
    after.network.crossed["ocs"].clear()
    after.all_up()
    after.hello("h1", 1, (live_path(path),))
    adopted = after.path(path.id)
    assert adopted.kind is PathKind.PACKET and after.of(act.NotifyMoved)
    after.assert_delivers(adopted)


def test_restart__absurd_claims_are_not_adopted() -> None:
    line = Timeline()
    good = live_path(line.ask_as_agent("h1", "h3"))
    for wrong in (
        replace(good, response_id="x1", request_id="a", receivers=("h99",)),
        replace(good, response_id="x2", request_id="b", receivers=("h7",)),
        replace(good, response_id="x3", request_id="c", group=IPv4Address("10.0.0.1")),
        replace(good, response_id="x4", request_id="d"),  # a group in use
        replace(good, response_id="x5", request_id="e", receivers=()),
    ):
        line.hello("h7", 1, (wrong,))
        assert wrong.response_id not in line.manager.core.paths


def test_restart__a_receiver_that_is_named_twice_gets_one_copy() -> None:
    for ends, ocs in ((("h1", "h2", "h3", "h3", "h3"), True), (("h1", "h2", "h2", "h3"), False)):
        before = Timeline()
        wanted = Wanted.AUTO if ocs else Wanted.PACKET
        path = before.ask_as_agent(ends[0], *dict.fromkeys(ends[1:]), wanted=wanted)
        after = restarted(before)
        after.all_up()
        after.hello("h1", 1, (replace(live_path(path), receivers=ends[1:]),))
        adopted = after.path(path.id)
        assert adopted.kind is path.kind and adopted.rules
        assert all(len(set(rule.out_ports)) == len(rule.out_ports) for rule in adopted.rules)
        after.assert_delivers(adopted)


def test_sweep__only_what_is_on_ports_of_the_topology() -> None:
    line = Timeline(up=False)
    strange = Pair(25, 26)
    line.network.connect("ocs", (Pair(1, 2), strange))
    line.network.install((MulticastRule("tor1", 1, IPv4Address("239.192.7.7"), (2,)),))
    line.all_up()
    assert len(line.network.pairs()) == 2 and len(line.network.rules()) == 1
    line.wait(6100)
    assert line.network.pairs() == {strange} and not line.network.rules()


def test_groups__run_out_and_come_back() -> None:
    line = Timeline()
    line.manager.core.groups._count = 2
    line.manager.core.groups._next = 0
    first = line.ask("h1", "h2")
    second = line.ask("h3", "h4")
    third = line.ask("h5", "h6")
    assert third.state is State.QUEUED and "multicast groups" in third.reason
    line.release(first)  # its rules were kept; they must go for the third
    assert third.state is State.ACTIVE and third.group == first.group
    line.assert_delivers(third)
    line.assert_delivers(second)


TWO_CORES = """
rostrum: 1
name: two-cores
network: {data: 10.0.0.0/16, management: 10.255.0.0/16, multicast: 239.192.0.0/16, mtu: 9000}
manager: {address: 10.255.0.1, openflow_port: 6653, thrift_port: 9090, rest_port: 8080}
agent: {control_port: 7071, data_port: 7070}
switches:
  a: {role: core, southbound: openflow, dpid: 1}
  b: {role: core, southbound: openflow, dpid: 2}
  tor1: {role: tor, southbound: openflow, dpid: 11}
  tor2: {role: tor, southbound: openflow, dpid: 12}
servers:
  h1: {address: 10.0.1.1, management: 10.255.1.1}
  h2: {address: 10.0.2.1, management: 10.255.2.1}
links:
  - {a: h1, b: "tor1:1", rate: 10G}
  - {a: h2, b: "tor2:1", rate: 10G}
  - {a: "tor1:40", b: "a:1", rate: 10G}
  - {a: "tor2:40", b: "a:2", rate: 10G}
  - {a: "tor1:41", b: "b:1", rate: 10G}
  - {a: "tor2:41", b: "b:2", rate: 10G}
"""


def test_no_ocs__packet_paths_with_the_reason() -> None:
    line = Timeline(loader.load_text(TWO_CORES))
    path = line.ask("h1", "h2")
    assert path.kind is PathKind.PACKET and path.reason == "the topology has no optical circuit switch"
    assert path.rate_bps == 10**10


def test_refused__a_cross_connect_that_cannot_be_taken_down_is_tried_again_later_not_at_once() -> None:
    """A newer circuit holds its fibre meanwhile: asking again and again would keep the manager busy for ever."""
    line = Timeline()
    path = line.ask("h1", "h3", wanted=Wanted.CIRCUIT)
    circuit = line.manager.core.resources.circuits.of_user(path.id)
    assert circuit is not None
    stuck = Pair(circuit.cascade.pairs[0].input, 9)  # of somebody before, on a fibre that is in use now
    line.network.refusing.add("ocs")
    line.network.crossed["ocs"][99] = stuck
    line.manager.core.disconnect("ocs", (stuck,), "left behind")
    line.actions.clear()
    line.do(ev.Tick())
    tries = [one for one in line.of(act.Disconnect) if stuck in one.pairs]
    assert len(tries) == 1
    line.wait(line.settings.grace / 1e6 + 10)
    assert len([one for one in line.of(act.Disconnect) if stuck in one.pairs]) == 2


def test_fault__told_while_the_circuit_is_still_being_made_is_looked_at() -> None:
    line = Timeline()
    manager, now = line.manager, line.now
    wanted = PathRequest("r", REST, "h1", ("h3", "h5"))
    made = [one for one in manager.step(ev.RequestReceived(wanted), now) if isinstance(one, act.Connect)]
    rows = tuple(CrossConnect(pair, CrossConnectState.STEADY) for pair in made[0].pairs)
    dead = CrossConnect(made[0].pairs[0], CrossConnectState.FAULT, cause="output is dead")
    assert manager.step(ev.CrossConnectChanged("ocs", dead), now) == []
    after = manager.step(ev.CircuitResult(made[0].op, rows), now)
    assert act.ReadCrossConnects("ocs") in after  # the answer may be from before the fault
    found = manager.step(ev.CrossConnectsFound("ocs", (dead, *rows[1:]), now + 2), now + 3)
    assert any(isinstance(one, act.Log) and one.event == "circuit lost" for one in found)
