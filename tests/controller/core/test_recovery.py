"""Restarts of the core: what it remembered is back, devices are as they should be, live paths do not notice."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.circuits.circuits import CircuitState
from rostrum.controller.core.manager import Manager
from rostrum.controller.core.model import MulticastRule, Pair, PathKind
from rostrum.controller.core.persistence.durable import Durable
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
    assert line.path_of(leased).state is State.ACTIVE  # its lease began anew: nobody could renew it meanwhile
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
    line.believed = live  # the word of it got lost
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
    line.manager.core.durable = Durable(offset=10**18)
    line.ask("h1", "h3")
    waiting = line.ask("h1", "h5")
    line.ask("h1", "h7")
    assert line.records["path"][waiting.id]["requested"] == 10**18 + waiting.stamps.requested
    later = Manager(line.topology, line.settings, 5)
    later.core.durable = Durable(offset=10**18 + waiting.stamps.requested - 5)  # another machine's clock began later
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
