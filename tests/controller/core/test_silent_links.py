"""Links that pass nothing though no port is down, and links that an operator drained, on the core in virtual time."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.model import PathKind, Sighting
from rostrum.controller.core.packet import cabling, drains
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.values import MS, State, Wanted
from rostrum.topologies import load, load_text
from rostrum.topologies.model import Topology

from tests.controller.core.test_failures import TWO_CORES
from tests.controller.crashes import MortalTimeline

Way = tuple[str, str]  # from a switch to a neighbour
SECOND = 1000.0
STEP_MS = 50.0


def both(a: str, b: str) -> set[Way]:
    return {(a, b), (b, a)}


class Fabric:
    """A manager and switches that send discovery frames into all their links; `dead` ways pass nothing. Switches in
    `deaf` hand nothing up, those in `mute` send nothing; `loss`: share of the frames that get lost anywhere.
    """

    def __init__(self, topology: Topology | None = None, seed: int = 1) -> None:
        self.line = MortalTimeline(topology or load_text(TWO_CORES))
        self.dead: set[Way] = set()
        self.deaf: set[str] = set()
        self.mute: set[str] = set()
        self.loss, self.random = 0.0, random.Random(seed)
        self.slept = False  # the manager sends and hears nothing
        self._next = self.line.now
        self.run(5 * SECOND)

    @property
    def failed(self) -> set[Way]:
        return {one.link for one in self.line.manager.core.resources.failed}

    def run(self, ms: float) -> None:
        end = self.line.now + round(ms * MS)
        while self.line.now < end:
            if self.line.now >= self._next:
                self._next = self.line.now + cabling.interval_ns(self.line.topology)
                self.frames(
                    [(one.name, port) for one in self.line.topology.switches.values() for port in one.neighbours]
                )
            mark = len(self.line.actions)
            self.line.wait(STEP_MS)
            for action in self.line.actions[mark:]:
                if isinstance(action, act.Discover):
                    self.frames(action.ports)

    def until(self, holds: object, bound_ms: float) -> float:
        """Ms until `holds()`."""
        assert callable(holds)
        begin = self.line.now
        while not holds():
            assert self.line.now < begin + bound_ms * MS, f"not within {bound_ms} ms; failed: {self.failed}"
            self.run(STEP_MS)
        return (self.line.now - begin) / MS

    def frames(self, ports: object) -> None:
        topology = self.line.topology
        for switch, port in list(ports):  # type: ignore[call-overload]
            end = topology.switches[switch].neighbours[port]
            if end.node not in topology.switches or self.slept or (switch, end.node) in self.dead:
                continue
            if switch in self.mute or end.node in self.deaf or self.random.random() < self.loss:
                continue
            origin = topology.switches[end.node].neighbours[end.port]
            assert origin.node == switch
            self.line.do(ev.Sighted(Sighting(end.node, end.port, origin)))

    def seems_deaf_or_mute(self, switch: str) -> bool:
        """All of its links are dead one way, in the same direction, and one at least lives the other way."""
        ends = {end.node for end in self.line.topology.switches[switch].neighbours.values()}
        near = [one for one in ends if one in self.line.topology.switches]
        into = all((one, switch) in self.dead for one in near)
        out_of = all((switch, one) in self.dead for one in near)
        return into != out_of

    def crosses(self, path: Path) -> set[frozenset[str]]:
        assert path.tree is not None
        return {frozenset(link) for link in path.tree.links}

    def unicast(self, sender: str, receiver: str) -> list[str]:
        """The switches on the way of a unicast packet."""
        topology, network = self.line.topology, self.line.network
        at, way = topology.servers[sender].tor, []
        while at in topology.switches:
            way.append(at)
            assert len(way) < 20, f"a loop: {way}"
            (rule,) = [one for one in network.unicast[at] if one.address == topology.servers[receiver].address]
            at = topology.switches[at].neighbours[rule.out_port].node
        assert at == receiver
        return way


@pytest.mark.parametrize("dead", [both("tor1", "a"), {("tor1", "a")}, {("a", "tor1")}], ids=["both", "up", "down"])
def test_a_link_that_passes_nothing__is_avoided_by_trees_and_unicast_and_comes_back(dead: set[Way]) -> None:
    made = Fabric()
    path = made.line.ask("h1", "h2", wanted=Wanted.PACKET)
    by = "a" if frozenset(("tor1", "a")) in made.crosses(path) else "b"
    made.dead = {tuple(by if name == "a" else name for name in way) for way in dead}  # type: ignore[misc]
    other = "b" if by == "a" else "a"
    link = tuple(sorted(("tor1", by)))
    took = made.until(lambda: made.failed == {link}, 3 * SECOND)
    assert took > 1 * SECOND  # not for one lost frame
    assert path.state is State.ACTIVE and frozenset(("tor1", by)) not in made.crosses(path)
    made.line.assert_delivers(path)
    assert made.unicast("h1", "h2") == ["tor1", other, "tor2"] == made.unicast("h2", "h1")[::-1]
    (cause,) = [one.cause for one in made.line.manager.core.resources.failed]
    assert "hears nothing of" in cause and "no port is down" in cause
    made.run(60 * SECOND)
    assert made.failed == {link}  # for as long as it is silent, not for a fixed time
    made.dead = set()
    took = made.until(lambda: not made.failed, 6 * SECOND)
    assert took > 2 * SECOND  # not for the first frame
    again = made.line.ask("h1", "h2", wanted=Wanted.PACKET)
    made.line.assert_delivers(again)
    assert made.line.manager.core.counts["links_silent"] == 1


def test_a_link_that_comes_and_goes__is_left_alone_ever_longer() -> None:
    made = Fabric()
    waits = []
    for _ in range(3):
        made.dead = both("tor1", "a")
        made.until(lambda: made.failed, 3 * SECOND)
        made.dead = set()
        waits.append(made.until(lambda: not made.failed, 60 * SECOND))
    assert 1.5 * waits[0] < waits[1] and 1.5 * waits[1] < waits[2]


@pytest.mark.parametrize("who", ["deaf", "mute"])
def test_a_switch_whose_discovery_is_broken__costs_no_link(who: str) -> None:
    made = Fabric()
    getattr(made, who).add("a")
    made.run(30 * SECOND)
    assert not made.failed
    told = [one for one in made.line.of(act.Log) if getattr(one, "event", "") == "discovery does not work at a switch"]
    assert len(told) == 1


def test_a_switch_that_sleeps__loses_its_connection_before_its_links_are_blamed() -> None:
    made = Fabric()
    made.deaf.add("a")
    made.mute.add("a")
    made.run(4 * SECOND)
    assert not made.failed
    made.line.do(ev.SwitchDown("a", "it did not answer 3 echo requests"))
    made.run(20 * SECOND)
    assert not made.failed
    made.deaf.clear()
    made.mute.clear()
    made.line.do(ev.SwitchUp("a"))
    made.run(5 * SECOND)
    assert not made.failed


def test_a_switch_that_is_connected_and_forwards_nothing__is_avoided() -> None:
    made = Fabric()
    path = made.line.ask("h1", "h2", wanted=Wanted.PACKET)
    by = "a" if frozenset(("tor1", "a")) in made.crosses(path) else "b"
    made.dead = both("tor1", by) | both("tor2", by)
    made.until(lambda: len(made.failed) == 2, 10 * SECOND)
    assert all(by not in link for link in made.crosses(path))
    made.line.assert_delivers(path)


def test_a_manager_that_hears_nothing_at_all__blames_no_link() -> None:
    made = Fabric(load("fat-tree-4"))
    made.slept = True
    made.run(30 * SECOND)
    assert not made.failed
    told = [one for one in made.line.of(act.Log) if getattr(one, "event", "") == "discovery hears nothing"]
    assert len(told) == 1
    made.slept = False
    made.run(5 * SECOND)
    assert not made.failed


def test_the_last_link_of_a_rack__stays_in_use_until_another_one_works() -> None:
    made = Fabric(load("fat-tree-4"))
    tor = made.line.topology.servers[sorted(made.line.topology.servers)[0]].tor
    switches = made.line.topology.switches
    ups = sorted(end.node for end in switches[tor].neighbours.values() if end.node in switches)
    made.line.do(ev.LinkDrained((tor, ups[0]), "new cable"))
    made.dead = both(tor, ups[1])
    made.run(12 * SECOND)
    assert not made.failed
    made.line.do(ev.LinkDrained((tor, ups[0]), drained=False))
    made.until(lambda: made.failed == {tuple(sorted((tor, ups[1])))}, 3 * SECOND)


def test_lossy_links__are_not_taken_for_dead_ones(seed: int) -> None:
    """At 20 % of loss, one direction of 64 loses enough frames in a row to be left alone in one run of twenty."""
    made = Fabric(load("fat-tree-4"), seed)
    made.loss = 0.1
    made.run(120 * SECOND)
    assert not made.failed and made.line.manager.core.counts["links_silent"] == 0


def test_silent_when_the_manager_starts__is_found_and_a_remembered_one_is_left_alone_from_the_start() -> None:
    made = Fabric()
    made.dead = both("tor1", "a")
    made.until(lambda: made.failed, 3 * SECOND)
    made.line.restart()
    assert made.failed == {("a", "tor1")}
    made.run(30 * SECOND)
    assert made.failed == {("a", "tor1")}
    made.line.records["failed-link"].clear()
    made.line.restart()
    assert not made.failed
    made.until(lambda: made.failed == {("a", "tor1")}, 4 * SECOND)
    made.line.restart()
    made.dead = set()
    made.until(lambda: not made.failed, 16 * SECOND)


def test_drained__is_avoided_survives_restarts_and_comes_back_when_told() -> None:
    made = Fabric()
    path = made.line.ask("h1", "h2", wanted=Wanted.PACKET)
    by = "a" if frozenset(("tor1", "a")) in made.crosses(path) else "b"
    other = "b" if by == "a" else "a"
    made.line.do(ev.LinkDrained(("tor1", by), "new cable"))
    failed = made.line.manager.core.resources.failed
    assert failed.is_drained((by, "tor1")) and path.state is State.ACTIVE
    assert frozenset(("tor1", by)) not in made.crosses(path)
    made.line.assert_delivers(path)
    assert made.unicast("h1", "h2") == ["tor1", other, "tor2"]
    assert "cut off" in drains.obstacle(made.line.manager.core, ("tor1", other))
    made.line.do(ev.LinkDrained(("tor1", other), "both"))  # as if two had asked at once
    assert not failed.is_drained(("tor1", other))
    made.run(120 * SECOND)  # it works, and stays out all the same
    made.line.restart()
    (drained,) = made.line.manager.core.resources.failed.all_drained
    assert drained.link == tuple(sorted(("tor1", by))) and drained.reason == "new cable"
    made.run(5 * SECOND)
    assert made.unicast("h2", "h1") == ["tor2", other, "tor1"]
    made.line.do(ev.LinkDrained(("tor1", by), drained=False))
    made.line.restart()
    assert not made.line.manager.core.resources.failed.all_drained


def test_drained_beside_a_failed_one__the_failed_one_is_used_again_if_nothing_else_leads_there() -> None:
    made = Fabric()
    made.line.do(ev.LinkSuspected(("tor1", "a"), "a test"))
    assert made.failed == {("a", "tor1")}
    made.line.do(ev.LinkDrained(("tor1", "b"), "new cable"))
    assert made.failed == set()
    assert made.unicast("h1", "h2") == ["tor1", "a", "tor2"]


def test_drained_fibres_of_a_rack__its_circuits_move_and_no_new_one_is_made() -> None:
    made = Fabric(load("hybrid-4x2"))
    line = made.line
    path = line.ask_as_agent("h1", "h3", "h5")
    assert path.kind is PathKind.CIRCUIT
    line.do(ev.LinkDrained(("tor2", "ocs"), "dirty connector"))
    assert path.kind is PathKind.PACKET and path.state is State.ACTIVE and "drained" in path.reason
    line.assert_delivers(path)
    later = line.ask("h7", "h3")
    assert later.kind is PathKind.PACKET and "tor2's fibres to ocs: they are drained" in later.reason
    assert line.ask("h8", "h5").kind is PathKind.CIRCUIT  # another rack's
    line.restart()
    assert line.ask("h6", "h4").kind is PathKind.PACKET
    line.do(ev.LinkDrained(("tor2", "ocs"), drained=False))
    assert line.ask("h1", "h4").kind is PathKind.CIRCUIT


def test_random_faults__every_dead_link_that_can_be_spared_is_avoided_and_no_other(seed: int) -> None:
    """Few at a time, as a fabric that is mostly well; whatever is asked for meanwhile is delivered once all is told."""
    rng = random.Random(seed)
    made = Fabric(load("fat-tree-4"), seed)
    topology = made.line.topology
    links = sorted({tuple(sorted((one.switch, one.origin))) for one in made.line.manager.core.silence.directions})
    for _ in range(6):
        chosen = rng.sample(links, rng.randint(0, 3))
        made.dead = set().union(*(rng.choice([both(a, b), {(a, b)}, {(b, a)}]) for a, b in chosen))
        made.run(rng.uniform(9, 12) * SECOND)
        assert made.failed <= set(chosen), f"seed {seed}: {made.failed} for {chosen}"
        core = made.line.manager.core
        for link in set(chosen) - made.failed:
            if any(made.seems_deaf_or_mute(name) for name in link):
                continue  # its silence is told of, and by itself says nothing of the links
            left = {one for a, b in made.failed | {link} for one in ((a, b), (b, a))}
            assert not core.resources.fabric.connected_without(left), f"seed {seed}: {link} is used still"
        names = sorted(topology.servers)
        for _ in range(4):
            sender, receiver = rng.sample(names, 2)
            way = made.unicast(sender, receiver)
            spared = {frozenset(one) for one in made.failed}
            assert not any(frozenset(step) in spared for step in pairwise(way)), f"seed {seed}: {way}"
        made.dead = set()
        made.until(lambda: not made.failed, 400 * SECOND)
