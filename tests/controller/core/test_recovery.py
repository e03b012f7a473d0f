"""Restarts of the core: what it remembered is back, devices are as they should be, live paths do not notice."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.circuits.circuits import CircuitState
from rostrum.controller.core.manager import Manager
from rostrum.controller.core.model import MulticastRule, Pair, PathKind
from rostrum.controller.core.persistence.persistence import Persistence
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.values import REST, Settings, State, Wanted
from rostrum.topologies.model import Topology

from tests.controller.core.test_properties import Chaos, data_centers
from tests.controller.crashes import Killed, MortalTimeline


def changing(line: MortalTimeline) -> list[act.Action]:
    """Orders that change a device."""
    kinds = (act.InstallRules, act.RemoveRules, act.Connect, act.Disconnect)
    return [action for action in line.actions if isinstance(action, kinds)]


def test_restart__a_live_circuit_and_its_rules_are_not_touched() -> None:
    line = MortalTimeline()
    path = line.ask_as_agent("h1", "h3", "h5", "h7")
    assert path.kind is PathKind.CIRCUIT and path.state is State.ACTIVE
    line.actions.clear()
    line.restart()
    again = line.path_of(path)
    assert again is not path and again.state is State.ACTIVE
    assert (again.group, again.hops, again.pairs, again.rules) == (path.group, path.hops, path.pairs, path.rules)
    assert again.request == path.request and again.budgets == path.budgets
    assert changing(line) == []
    line.assert_delivers(again)
    line.release(again)
    line.assert_nothing_held()


def test_restart__a_packet_path_and_a_rest_path_with_its_lease() -> None:
    line = MortalTimeline()
    packet = line.ask_as_agent("h1", "h3", wanted=Wanted.PACKET)
    leased = line.ask("h5", "h7", lease_ms=1000)
    forever = line.ask("h5", "h8", wanted=Wanted.PACKET)
    line.wait(900)
    line.restart()
    assert [line.path_of(one).state for one in (packet, leased, forever)] == [State.ACTIVE] * 3
    line.wait(900)
    assert line.path_of(leased).state is State.ACTIVE  # its lease started over: nobody could renew it meanwhile
    line.do(ev.KeepAlive("h1"))
    line.wait(200)
    assert line.path_of(leased).cause == "lease of 1000 ms over"
    assert line.path_of(forever).state is State.ACTIVE


def test_restart__what_is_missing_is_set_again() -> None:
    line = MortalTimeline()
    path = line.ask_as_agent("h1", "h3", "h5", "h7")
    packet = line.ask_as_agent("h2", "h4", wanted=Wanted.PACKET)
    line.network.tables["tor1"].clear()
    del line.network.crossed["ocs"][path.pairs[1].input]
    line.restart()
    for one in (path, packet):
        assert line.path_of(one).state is State.ACTIVE and line.path_of(one).kind is one.kind
        line.assert_delivers(line.path_of(one))


def test_restart__what_is_stale_goes_at_once_what_is_not_ours_stays() -> None:
    line = MortalTimeline()
    path = line.ask_as_agent("h1", "h3", "h5")
    line.release(path)  # its rules and its circuit are kept for another time
    rule = MulticastRule("tor2", 3, path.group, (1,))  # type: ignore[arg-type]
    line.network.install((rule,))
    ports = set(line.topology.ocs["ocs"].attached)
    dark, unlit = ports - {pair.input for pair in path.pairs}, ports - {pair.output for pair in path.pairs}
    theirs = Pair(min(dark), min(unlit - {min(dark)}))
    line.network.crossed["ocs"][theirs.input] = theirs
    line.restart()
    assert line.network.rules() == set()
    assert theirs in line.network.pairs()
    line.wait(60_000)
    assert theirs in line.network.pairs()
    (circuit,) = line.manager.core.resources.circuits
    assert circuit.state is CircuitState.LIVE and circuit.user is None
    reused = line.ask("h1", "h3", "h5")
    assert reused.reused_circuit and reused.state is State.ACTIVE
    assert any("of others found" in action.event for action in line.actions if isinstance(action, act.Log))


def test_restart__an_agent_that_was_restarted_meanwhile_loses_its_paths() -> None:
    line = MortalTimeline()
    path = line.ask_as_agent("h1", "h3", "h5")
    line.boots["h1"] = 2
    line.believed.clear()
    line.restart()
    assert line.path_of(path).cause == "the agent of h1 was restarted"


def test_restart__an_agent_that_never_comes_back() -> None:
    line = MortalTimeline()
    path = line.ask_as_agent("h1", "h3", "h5")
    line.boots.clear()
    line.restart()
    line.wait(5_900)
    assert line.path_of(path).state is State.ACTIVE
    line.wait(200)
    assert line.path_of(path).state is State.RELEASED and "silent" in line.path_of(path).cause


def test_restart__a_path_taken_back_meanwhile_is_told_to_its_agent() -> None:
    line = MortalTimeline()
    path = line.ask_as_agent("h1", "h3", "h5")
    live = dict(line.believed)
    line.do(ev.Released(path.id, "", REST))
    line.believed = live  # the report of it got lost
    line.actions.clear()
    line.restart()
    assert [action.path_id for action in line.actions if isinstance(action, act.NotifyFailed)] == [path.id]
    assert line.believed == {} and path.id not in line.manager.core.paths


def test_restart__requests_go_on_waiting_in_their_order() -> None:
    line = MortalTimeline(settings=Settings(scheduler="fifo", paths_per_server=1, idle_rule_sets=0))
    first = line.ask_as_agent("h1", "h3")
    second = line.ask("h1", "h5")
    third = line.ask_as_agent("h1", "h7")
    assert second.state is third.state is State.QUEUED
    for _ in range(10):
        line.wait(1_000)
        line.do(ev.KeepAlive("h1"))
    line.restart()
    assert list(line.manager.core.queue) == [second.id, third.id]
    line.do(ev.KeepAlive("h1"))
    line.release(line.path_of(first))
    assert line.path_of(second).state is State.ACTIVE and line.path_of(third).state is State.QUEUED
    line.do(ev.KeepAlive("h1"))
    for _ in range(30):
        line.wait(1_000)
        line.do(ev.KeepAlive("h1"))
    assert "not served within" in line.path_of(third).cause  # 30 s, most of them under the manager before


def test_restart__a_disconnect_that_was_under_way_is_carried_out() -> None:
    line = MortalTimeline()
    path = line.ask("h1", "h3", "h5")
    line.network.refusing = {"ocs"}
    line.do(ev.NoLight(path.id, ("h3", "h5"), REST))  # the circuit is given up, and stays: the OCS does not answer
    assert line.network.pairs() >= set(path.pairs) or path.kind is PathKind.PACKET
    assert line.network.pairs()
    line.network.refusing = set()
    line.restart()
    assert line.network.pairs() == set() and line.path_of(path).state is State.ACTIVE
    assert line.records.get("leaving", {}) == {}


FAR = ("h3", "h4", "h5", "h6", "h7", "h8")


def fenced(taken_back: bool) -> tuple[MortalTimeline, Path, Path]:
    """A circuit that its sender, who sleeps, did not give back, kept because orders do not reach tor1; and who waits
    for it.
    """
    line = MortalTimeline()
    first = line.ask_as_agent("h1", *FAR)
    second = line.ask_as_agent("h2", *FAR, wanted=Wanted.CIRCUIT, wait_ms=60_000)
    assert first.kind is PathKind.CIRCUIT and second.state is State.QUEUED
    line.network.deaf = {"tor1"}
    if taken_back:
        line.do(ev.Released(first.id, "", REST))
    else:
        line.wait(2_000)
        line.do(ev.KeepAlive("h2"))
        line.wait(1_100)
    assert line.manager.core.fences and second.state is State.QUEUED
    del line.boots["h1"]  # it does not come back to the next manager
    return line, first, second


def leads_out(line: MortalTimeline, path: Path) -> bool:
    """Whether what h1 sends on the path it believes to hold gets into the OCS."""
    up = line.topology.switches["tor1"].neighbours
    rules = [rule for rule in line.network.tables["tor1"].values() if rule.group == path.group]
    return any(up[port].node == "ocs" for rule in rules for port in rule.out_ports)


def pass_time(line: MortalTimeline, seconds: int) -> None:
    for _ in range(seconds):
        line.wait(1_000)
        line.do(ev.KeepAlive("h2"))


def told_rules(line: MortalTimeline) -> ev.RulesFound:
    return ev.RulesFound("tor1", frozenset(line.network.tables["tor1"].values()), line.now)


@pytest.mark.parametrize("taken_back", [True, False], ids=["taken back", "moved"])
@pytest.mark.parametrize("killed", [False, True], ids=["read once", "killed again"])
def test_restart__a_circuit_whose_old_rules_may_be_there_is_nobodys_before_they_are_out(
    taken_back: bool, killed: bool
) -> None:
    line, first, second = fenced(taken_back)
    line.restart()
    line.do(ev.KeepAlive("h2"))
    assert line.path_of(second).state is State.QUEUED and leads_out(line, first)
    assert "waits for tor1 to tell which rules it has" in line.path_of(second).reason
    packets = line.ask_as_agent("h2", "h3", wanted=Wanted.PACKET, request_id="packets")
    elsewhere = line.ask_as_agent("h3", "h5", "h7", wanted=Wanted.CIRCUIT, request_id="elsewhere")
    assert packets.granted and elsewhere.granted and elsewhere.kind is PathKind.CIRCUIT
    line.release(elsewhere)
    if killed:
        line.restart()
        assert line.path_of(second).state is State.QUEUED
    line.do(told_rules(line))
    assert line.path_of(second).state is State.QUEUED and leads_out(line, first)  # to take them out was not heard
    line.network.deaf = set()
    line.do(ev.SwitchDown("tor1", "reset"))
    line.do(ev.SwitchUp("tor1"))
    again = line.path_of(second)
    assert again.granted and again.kind is PathKind.CIRCUIT and not leads_out(line, first)
    line.assert_delivers(again)


def test_restart__old_rules_that_a_switch_does_not_take_out_keep_its_circuits_until_it_does() -> None:
    line, first, second = fenced(taken_back=True)
    line.network.deaf, line.network.refusing = set(), {"tor1"}
    line.restart()
    pass_time(line, 6)
    assert line.path_of(second).state is State.QUEUED and leads_out(line, first)
    asks = line.ask_as_agent("h2", "h3", "h5", size=1 << 30, request_id="any")  # would take a circuit
    assert asks.state is State.FAILED or asks.kind is PathKind.PACKET  # at once
    line.network.refusing = set()
    pass_time(line, 7)
    assert line.path_of(second).granted and not leads_out(line, first)
    line.release(line.path_of(second))


def test_restart__the_switch_never_comes_back_and_others_have_circuits() -> None:
    line, first, second = fenced(taken_back=True)
    line.restart(late=("tor1",))
    assert not line.manager.core.fences and line.path_of(second).state is State.QUEUED
    for sender, to in (("h3", "h5"), ("h5", "h7"), ("h7", "h3")):
        path = line.ask_as_agent(sender, to, wanted=Wanted.CIRCUIT, request_id=f"from {sender}")
        assert path.granted and path.kind is PathKind.CIRCUIT
        line.release(path)
    pass_time(line, 62)
    assert "not served within" in line.path_of(second).cause and "tor1 to connect" in line.path_of(second).cause
    assert leads_out(line, first)
    line.do(ev.KeepAlive("h3"))
    line.assert_delivers(line.ask_as_agent("h3", "h5", request_id="at last"))


def test_restart__a_switch_that_does_not_tell_its_rules_is_asked_again() -> None:
    line, _, second = fenced(taken_back=True)
    second.wait_until += 10**12
    line.manager.core.persistence.mark("path", second.id)
    line.restart()
    line.actions.clear()
    pass_time(line, 5)
    assert not line.of(act.ReadRules) and line.path_of(second).state is State.QUEUED
    quick = line.ask_as_agent("h2", *FAR, size=1 << 30, request_id="quick")
    assert quick.granted and quick.kind is PathKind.PACKET and "tell which rules" in quick.reason
    pass_time(line, 180)
    assert 3 <= len(line.of(act.ReadRules)) <= 5


@pytest.mark.parametrize("taken_back", [True, False], ids=["taken back", "moved"])
def test_restart__without_a_journal_only_circuits_that_may_be_in_use_wait(taken_back: bool) -> None:
    line, first, _ = fenced(taken_back)
    line.network.deaf = set()
    line.unanswered.clear()
    line.restart(journal=False)
    assert leads_out(line, first) and line.manager.core.foreign_rules
    packets = line.ask_as_agent("h2", "h3", "h5", size=1 << 30, request_id="auto")
    assert packets.granted and packets.kind is PathKind.PACKET  # at once: the grace time is longer than it waits
    elsewhere = line.ask_as_agent("h3", "h1", wanted=Wanted.CIRCUIT, request_id="elsewhere")
    assert elsewhere.granted and elsewhere.kind is PathKind.CIRCUIT  # on fibres that nothing holds
    line.release(elsewhere)
    waits = line.ask_as_agent("h2", *FAR, wanted=Wanted.CIRCUIT, wait_ms=60_000, request_id="waits")
    assert waits.state is State.QUEUED
    pass_time(line, 4)
    line.devices_answer = False
    pass_time(line, 3)
    assert waits.state is State.QUEUED, "its old rules are being taken out"
    line.devices_answer = True
    line.let()
    assert waits.granted and waits.kind is PathKind.CIRCUIT and not leads_out(line, first)
    line.assert_delivers(waits)


def test_restart__without_a_journal_a_switch_read_late_does_not_give_its_circuits_before() -> None:
    """The OCS's cross-connects were found, and taken down as nobody's, long before the ToR came back."""
    line, first, _ = fenced(taken_back=True)
    line.network.deaf = set()
    line.unanswered.clear()
    line.restart(journal=False, late=("tor1",))
    pass_time(line, 10)
    assert not line.network.pairs()
    line.devices_answer = False
    line.do(ev.SwitchUp("tor1"))
    waits = line.ask_as_agent("h2", *FAR, wanted=Wanted.CIRCUIT, wait_ms=60_000, request_id="waits")
    assert waits.state is State.QUEUED and "tell which rules" in waits.reason
    line.devices_answer = True
    line.let()
    assert waits.state is State.QUEUED and "old rules" in waits.reason and leads_out(line, first)
    pass_time(line, 7)
    assert waits.granted and waits.kind is PathKind.CIRCUIT and not leads_out(line, first)


def test_restart__a_disconnect_as_an_earlier_release_wrote_it() -> None:
    line = MortalTimeline()
    path = line.ask("h1", "h3", "h5")
    line.network.refusing = {"ocs"}
    line.do(ev.NoLight(path.id, ("h3", "h5"), REST))
    assert line.network.pairs()
    pairs = [pair for record in line.records["leaving"].values() for pair in record["pairs"]]
    line.records["leaving"] = {f"ocs {a}>{b}": {} for a, b in pairs} | {"elsewhere 1>2": {}}
    line.network.refusing = set()
    line.restart()
    assert line.network.pairs() == set() and line.records["leaving"] == {}


def test_restart__records_of_what_left_the_topology_are_dropped() -> None:
    line = MortalTimeline()
    path = line.ask_as_agent("h1", "h3", "h5")
    line.records["path"][path.id]["request"]["receivers"] = ["h3", "h99"]
    line.records["circuit"]["c-77"] = {**line.records["circuit"][path.circuit_id or ""], "ocs": "elsewhere"}
    line.records["agent"]["h99"] = {"boot": 1, "port": 1}
    line.restart()
    assert path.id not in line.manager.core.paths and line.network.rules() == set()
    assert not any(key in line.records["circuit"] for key in ("c-77",)) and "h99" not in line.records["agent"]
    line.wait(10_000)
    assert not line.manager.core.resources.in_use()


def test_restart__times_are_of_the_wall_clock() -> None:
    line = MortalTimeline(settings=Settings(scheduler="fifo", paths_per_server=1))
    line.manager.core.persistence = Persistence(offset=10**18)
    line.ask("h1", "h3")
    waiting = line.ask("h1", "h5")
    line.ask("h1", "h7")
    assert line.records["path"][waiting.id]["requested"] == 10**18 + waiting.stamps.requested
    later = Manager(line.topology, line.settings, 5)
    later.core.persistence = Persistence(offset=10**18 + waiting.stamps.requested - 5)  # its clock began later
    later.restore(line.records, 5)
    assert later.core.paths[waiting.id].stamps.requested == 5
    assert later.core.paths[waiting.id].wait_until == 5 + line.settings.wait_ns


class CrashingChaos(Chaos):
    """Random requests, releases and failures, and a manager that is killed at random points of them, also while it
    starts."""

    def __init__(self, topology: Topology, seed: int, scheduler: str) -> None:
        super().__init__(topology, seed, scheduler)
        lenient = self.line.network.lenient
        self.line: MortalTimeline = MortalTimeline(topology, self.line.settings)
        self.line.network.lenient = lenient
        self.crashes = 0

    def step(self) -> None:
        line = self.line
        if self.rng.random() < 0.3:
            line.fuse = self.rng.randrange(1, 12)
        try:
            super().step()
        except Killed:
            self.revive()
        line.fuse = None

    def revive(self) -> None:
        line = self.line
        steady = [path for path in self.open() if path.state is State.ACTIVE and path.id in line.believed]
        undisturbed = not self.faulty and line.devices_answer and not line.held
        line.actions.clear()
        while True:
            self.crashes += 1
            line.fuse = self.rng.randrange(60) if self.rng.random() < 0.4 else None
            try:
                line.restart()
                break
            except Killed:
                continue
        line.fuse = None
        if undisturbed:
            for path in steady:
                if path.id in line.believed:
                    line.assert_delivers(line.path(path.id))
        if line.devices_answer:
            self.agreed()

    def agreed(self) -> None:
        """What an agent believes to hold, it holds, with the same group."""
        core = self.line.manager.core
        for path_id, live in self.line.believed.items():
            path = core.paths[path_id]
            assert path.granted and path.group == live.group, path
            assert path.kind is live.kind

    def finish(self) -> None:
        super().finish()
        assert {key for part in ("path", "leaving") for key in self.line.records.get(part, {})} == set()
        circuits = {one.id for one in self.line.manager.core.resources.circuits}
        assert set(self.line.records.get("circuit", {})) == circuits


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data_centers(), st.integers(0, 2**32 - 1), st.sampled_from(["fifo", "best-effort"]), st.integers(10, 60))
def test_restart__killed_anywhere_nothing_leaks_nothing_is_granted_twice(
    topology: Topology, seed: int, scheduler: str, steps: int
) -> None:
    note(f"seed {seed}")
    chaos = CrashingChaos(topology, seed, scheduler)
    for _ in range(steps):
        chaos.step()
    chaos.finish()


def test_restart__killed_at_every_point_of_one_life() -> None:
    """A circuit granted, moved, another one granted, given back: every fault point of it, one after the other."""
    point = 0
    while True:
        line = MortalTimeline()
        line.fuse = point
        try:
            _life(line, random.Random(7))
        except Killed:
            line.restart()
            for path_id, live in line.believed.items():
                assert line.path(path_id).group == live.group and line.path(path_id).state is State.ACTIVE
                line.assert_delivers(line.path(path_id))
            for path in [one for one in line.manager.core.paths.values() if not one.final]:
                line.release(path)
            line.wait(60_000)
            line.assert_nothing_held()
            point += 1
            continue
        break
    assert point > 60, f"only {point} fault points"


def _life(line: MortalTimeline, rng: random.Random) -> None:
    first = line.ask_as_agent("h1", "h3", "h5", "h7")
    second = line.ask_as_agent("h2", "h4", wanted=Wanted.PACKET)
    line.do(ev.NoLight(first.id, ("h3", "h5", "h7"), "h1"))
    third = line.ask("h3", "h1", "h8")
    line.release(second)
    line.release(third)
    line.ask("h3", "h1", "h8")
    line.release(first)
