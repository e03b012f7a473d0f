"""RDCM's trees, overlays and failures in the manager's core, on fabrics in virtual time: who is told what, what the
switches have at every moment, and that the link which failed is always among those left alone.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.packet import reroute
from rostrum.controller.core.packet.failed_links import FailedLinks
from rostrum.controller.core.rdcm import views as rdcm
from rostrum.controller.core.values import (
    Decision,
    FailureKind,
    FailureReport,
    OverlayView,
    Protocol,
    RingKind,
    S,
    Settings,
    State,
)
from rostrum.topologies import load

from tests.controller.crashes import MortalTimeline
from tests.controller.timeline import Timeline, hybrid

FABRICS = ["fat-tree-4", "bcube-4-1", "vl2-4-4"]


class Group:
    """A granted path of RDCM on a fabric. `views`: the newest one that each server was told."""

    def __init__(
        self, fabric: str, sender: str, receivers: list[str], settings: Settings | None = None, size: int = 1 << 20
    ) -> None:
        self.line = Timeline(load(fabric), settings)
        for server in self.line.topology.servers:
            self.line.do(ev.AgentUp(server, 1, 7071, protocols=("rdcm",)))
        self.path = self.line.ask(sender, *receivers, origin=sender, size=size)
        self.sender = sender

    @property
    def receivers(self) -> set[str]:
        assert self.path.backup
        return set(self.path.backup.overlay.receivers)

    @property
    def views(self) -> dict[str, OverlayView]:
        told: dict[str, OverlayView] = {}
        for action in self.line.actions:
            if isinstance(action, act.PushView):
                known = told.get(action.server)
                assert known is None or action.view.version > known.version
                told[action.server] = action.view
        return told

    def check(self) -> None:
        """Everybody gets one copy; the views told last fit together."""
        assert self.path.group is not None and self.path.state is State.ACTIVE
        assert self.line.network.deliver(self.sender, self.path.group) == dict.fromkeys(self.receivers, 1)
        views = {name: view for name, view in self.views.items() if name in self.receivers | {self.sender}}
        assert views.keys() == self.receivers | {self.sender}
        for name, view in views.items():
            for kind in ("leaf", "proxy"):
                place = getattr(view, kind)
                if place is None:
                    continue
                behind = views[place.predecessor]
                assert name in {one.successor for one in (behind.leaf, behind.proxy) if one}
                assert name in views[place.parent].children
            known = {one.server for one in view.addresses}
            places = [place for place in (view.leaf, view.proxy) if place]
            assert known >= {end for one in places for end in (one.predecessor, one.successor, one.parent)}
            assert known >= set(view.children)
            assert (view.group, view.data_id, view.sender) == (str(self.path.group), 7, self.sender)
        assert views[self.sender].children

    def way(self, receiver: str) -> list[str]:
        assert self.path.tree
        return [self.sender, *self.path.tree.way(receiver)]

    def report(
        self, by: str, kind: FailureKind, ring: RingKind, server: str, version: int | None = None, wait_ms: float = 45
    ) -> None:
        assert self.path.backup
        version = self.path.backup.version if version is None else version
        self.line.do(ev.FailureReported(FailureReport(self.path.id, version, kind, ring, server), by))
        if kind is FailureKind.LINK and wait_ms:
            self.line.wait(wait_ms)  # for text that speak against it

    def who_tells(self, link: tuple[str, str]) -> tuple[str, RingKind, str] | None:
        """Whose report of which successor a failed link leads to: the one who still gets data by the tree. None: all
        receivers are behind the link.
        """
        assert self.path.backup
        overlay = self.path.backup.overlay
        cut_off = {name for name in self.receivers if link in pairwise(self.way(name))}
        branch = {}
        for ring in overlay.rings():
            for member in ring.members:
                way = self.way(member)
                child = way[way.index(ring.node) + 1]
                branch[ring.node, member] = {name for name in self.receivers if child in self.way(name)}
        for ring in overlay.rings():
            for member in ring.members:
                before = ring.predecessor(member)
                if branch[ring.node, member] <= cut_off and not branch[ring.node, before] <= cut_off:
                    kind = RingKind.LEAF if overlay.view(before).leaf == ring else RingKind.PROXY
                    return before, kind, member
        return None


def draw(fabric: str, rng: random.Random) -> tuple[str, list[str]]:
    """A sender and receivers that are not all in its rack: one switch is no tree, and no path of RDCM."""
    racks = {name: server.tor for name, server in load(fabric).servers.items()}
    while True:
        sender, *receivers = rng.sample(list(racks), rng.randint(3, len(racks)))
        if {racks[name] for name in receivers} != {racks[sender]}:
            return sender, receivers


def group(fabric: str, rng: random.Random, settings: Settings | None = None) -> Group:
    return Group(fabric, *draw(fabric, rng), settings)


@pytest.mark.parametrize("fabric", FABRICS)
def test_grant__everybody_gets_a_view_and_one_copy(fabric: str, seed: int) -> None:
    made = group(fabric, random.Random(seed))
    response = made.line.responses()[-1]
    assert (response.decision, response.protocol) == (Decision.ACCEPTED, Protocol.RDCM)
    assert f"rdcm: {len(made.receivers)} receivers on a packet tree" in response.reason
    made.check()
    first = next(n for n, one in enumerate(made.line.actions) if isinstance(one, act.PushView))
    assert any(isinstance(one, act.Respond) for one in made.line.actions[:first])  # the sender knows its path by then
    made.line.release(made.path)
    made.line.assert_nothing_held()


@pytest.mark.parametrize("fabric", FABRICS)
def test_link_failure__every_link_of_many_trees(fabric: str, seed: int) -> None:
    """Zero false negatives: whichever single link fails, it is among those left alone (Sec. 3.4), nobody who was not
    behind it is moved, and switches never make packets loop while they change.
    """
    rng = random.Random(seed)
    for _ in range(6):
        sender, receivers = draw(fabric, rng)
        links = sorted(Group(fabric, sender, receivers).path.tree.links)  # type: ignore[union-attr]
        for link in links:
            made = Group(fabric, sender, receivers)
            told = made.who_tells(link)
            top = made.path.backup.overlay.top()  # type: ignore[union-attr]
            by, ring, server = told or (sender, RingKind.LEAF, top[0])
            calm = {name: made.way(name) for name in made.receivers if link not in pairwise(made.way(name))}
            made.report(by, FailureKind.LINK, ring, server)
            failed = made.line.manager.core.resources.failed
            others = {*failed.links, link, link[::-1]}
            possible = made.line.manager.core.resources.fabric.connected_without(others)
            if all(end in made.line.topology.switches for end in link) and possible:
                assert link in failed.links, (fabric, link, told)
                assert link not in made.path.tree.links  # type: ignore[union-attr]
            if link in failed.links:
                moved = {name for name in calm if made.way(name) != calm[name]}
                suspects = failed.links
                assert all(any(one in suspects for one in pairwise(calm[name])) for name in moved)
            made.check()
            made.line.release(made.path)
            made.line.assert_nothing_held()


def test_link_failure__is_around_in_one_step_with_the_new_rules_in_before_the_old_go() -> None:
    made = Group("fat-tree-4", "h0-0-0", ["h1-0-0", "h1-1-0", "h2-0-0", "h3-1-1"])
    link = next(one for one in pairwise(made.way("h2-0-0")) if one[0].startswith("agg2"))
    by, ring, server = made.who_tells(link)  # type: ignore[misc]
    made.line.devices_answer = False
    made.line.actions.clear()
    made.report(by, FailureKind.LINK, ring, server)
    kinds = [
        type(one) for one in made.line.actions if isinstance(one, (act.InstallRules, act.RemoveRules, act.PushView))
    ]
    assert kinds[0] is act.InstallRules and act.PushView in kinds and act.RemoveRules not in kinds
    made.line.devices_answer = True
    made.line.let()
    assert isinstance(made.line.actions[-1], act.RemoveRules) or made.line.of(act.RemoveRules)
    change = made.path.backup.changes[-1]  # type: ignore[union-attr]
    assert change.rules_in is not None and change.links_added and "gets nothing by the tree" in change.cause


def test_link_failure__known_to_all_paths_and_to_unicast() -> None:
    """Another group's tree goes around too, without a report of its own, and so do repairs."""
    made = Group("fat-tree-4", "h0-0-0", ["h1-0-0", "h2-0-0"])
    other = made.line.ask("h0-0-1", "h1-0-1", "h2-0-1", origin="h0-0-1")
    shared = {*made.path.tree.links} & {*other.tree.links}  # type: ignore[union-attr]
    link = next((a, b) for a, b in sorted(shared) if a.startswith("agg"))
    reroute.fail_links(made.line.manager.core, [link], "a test", made.line.now)
    assert link not in other.tree.links and link not in made.path.tree.links  # type: ignore[union-attr]
    later = made.line.ask("h3-0-0", "h1-0-0", "h2-0-0", origin="h3-0-0")
    assert link not in later.tree.links  # type: ignore[union-attr]


def test_link_reports__of_a_busy_network_change_nothing() -> None:
    """Many at a time, and taken back: acknowledgements are late everywhere. One that stands is believed in the end."""
    made = Group("fat-tree-4", "h0-0-0", ["h1-0-0", "h1-1-0", "h2-0-0", "h3-0-0", "h3-1-1"])
    core, tree = made.line.manager.core, made.path.tree.links  # type: ignore[union-attr]
    overlay = made.path.backup.overlay  # type: ignore[union-attr]
    fields = []
    for ring in overlay.rings():
        for member in ring.members:
            kind = RingKind.LEAF if overlay.view(member).leaf == ring else RingKind.PROXY
            fields.append((member, kind, ring.successor(member)))
    for what in (FailureKind.LINK, FailureKind.LINK, FailureKind.LINK_WORKS):
        for by, kind, server in fields:
            made.report(by, what, kind, server, wait_ms=10)
    made.line.wait(1000)
    assert core.counts["link_reports_taken_back"] == len(fields)
    assert made.path.tree.links == tree and not core.resources.failed  # type: ignore[union-attr]
    link = next(one for one in pairwise(made.way("h2-0-0")) if one[0].startswith("agg2"))
    true = made.who_tells(link)
    assert true
    other = next(one for one in fields if one != true)
    made.report(true[0], FailureKind.LINK, *true[1:], wait_ms=0)
    made.report(other[0], FailureKind.LINK, *other[1:], wait_ms=100)
    assert link not in core.resources.failed.links
    made.report(other[0], FailureKind.LINK_WORKS, *other[1:])
    made.line.wait(400)
    assert link in core.resources.failed.links


@pytest.mark.parametrize("wait_ms", [0, 10, 60, 149, 200])
def test_link_failure__a_second_one_while_the_tree_settles_is_looked_at_then(wait_ms: int, seed: int) -> None:
    """Whenever after the first: the tree goes around both, without a message more than the one that told it."""
    rng, found = random.Random(seed), 0
    for _ in range(40):
        servers = list(load("fat-tree-4").servers)
        made = Group("fat-tree-4", *(lambda some: (some[0], some[1:]))(rng.sample(servers, 6)))
        failed = made.line.manager.core.resources.failed
        first = rng.choice(sorted(made.path.tree.links))  # type: ignore[union-attr]
        if told := made.who_tells(first):
            made.report(told[0], FailureKind.LINK, *told[1:])
        if first not in failed.links:
            continue
        second = rng.choice(sorted(made.path.tree.links - failed.links))  # type: ignore[union-attr]
        possible = made.line.manager.core.resources.fabric.connected_without({*failed.links, second, second[::-1]})
        told = made.who_tells(second)
        if not told or not possible or not all(end in made.line.topology.switches for end in second):
            continue
        found += 1
        made.line.wait(wait_ms)
        made.report(told[0], FailureKind.LINK, *told[1:], wait_ms=0)
        made.line.wait(400)
        assert second in failed.links, (seed, first, second, told)
        assert second not in made.path.tree.links  # type: ignore[union-attr]
        made.check()
    assert found >= 3


def test_link_failure__one_that_is_taken_back_while_the_tree_settles_changes_nothing() -> None:
    made = Group("fat-tree-4", "h0-0-0", ["h1-0-0", "h1-1-0", "h2-0-0", "h3-0-0", "h3-1-1"])
    link = next(one for one in pairwise(made.way("h2-0-0")) if one[0].startswith("agg2"))
    by, ring, server = made.who_tells(link)  # type: ignore[misc]
    made.report(by, FailureKind.LINK, ring, server)
    links, failed = made.path.tree.links, made.line.manager.core.resources.failed.links  # type: ignore[union-attr]
    other = next(one for one in pairwise(made.way("h3-1-1")) if one[0].startswith("agg3"))
    told = made.who_tells(other)
    assert told
    made.report(told[0], FailureKind.LINK, *told[1:], wait_ms=20)
    made.report(told[0], FailureKind.LINK_WORKS, *told[1:])
    made.line.wait(1000)
    assert made.path.tree.links == links  # type: ignore[union-attr]
    assert made.line.manager.core.resources.failed.links == failed


def test_failed_links__come_back_and_stay_out_longer_when_they_fail_again() -> None:
    made = Group("fat-tree-4", "h0-0-0", ["h1-0-0", "h2-0-0"])
    core = made.line.manager.core
    link = ("agg1-0", "core0-0")
    for times in (1, 2, 4):
        reroute.fail_links(core, [link], "a test", made.line.now)
        assert core.resources.failed.get(link).times == times.bit_length()  # type: ignore[union-attr]
        made.line.wait(times * 30_000 - 1)
        assert link in core.resources.failed.links
        made.line.wait(2)
        assert link not in core.resources.failed.links
        for server in core.agents:
            made.line.do(ev.KeepAlive(server))
    made.line.wait(600_000)
    reroute.fail_links(core, [link], "a test", made.line.now)
    assert core.resources.failed.get(link).times == 1  # type: ignore[union-attr]
    assert reroute.put_back(core, link) and not reroute.put_back(core, link)
    assert link not in core.resources.failed.links


def test_failed_links__never_cut_off_a_rack() -> None:
    core = Timeline(load("fat-tree-4")).manager.core
    failed = FailedLinks(core.resources.fabric, 30 * S)
    assert failed.add([("agg0-0", "edge0-0"), ("h0-0-0", "edge0-0")], "both", 0) == (("agg0-0", "edge0-0"),)
    assert failed.add([("edge0-0", "agg0-1")], "the other", 0) == ()
    assert hybrid().switches and Timeline(hybrid()).manager.core.resources.failed.add([("tor1", "core")], "", 0) == ()


@pytest.mark.parametrize("fabric", FABRICS)
def test_receiver_failure__the_others_go_on(fabric: str, seed: int) -> None:
    """Until one is left; each time only few hear of it."""
    rng = random.Random(seed)
    made = group(fabric, rng)
    while len(made.receivers) > 1:
        overlay = made.path.backup.overlay  # type: ignore[union-attr]
        gone = rng.choice(sorted(made.receivers))
        view = overlay.view(gone)
        by = view.leaf.predecessor(gone)  # type: ignore[union-attr]
        kind = RingKind.LEAF if overlay.view(by).leaf == view.leaf else RingKind.PROXY
        made.line.do(ev.AgentDown(gone, 1, "killed"))
        made.report(by, FailureKind.RECEIVER, kind, gone)
        assert gone not in made.receivers
        made.check()
    last = next(iter(made.receivers))
    made.line.do(ev.AgentDown(last, 1, "killed"))
    made.report(made.sender, FailureKind.RECEIVER, RingKind.LEAF, last)
    assert made.path.granted and any("last receiver" in note for note in made.path.stamps.notes)
    made.line.release(made.path)
    made.line.assert_nothing_held()


def test_receiver_failure__a_receiver_that_reaches_nobody_does_not_take_others_with_it() -> None:
    """It finds its successors dead, and its predecessors find it dead; all their agents are heard."""
    made = Group("fat-tree-4", "h0-0-0", ["h1-0-0", "h1-0-1", "h1-1-0", "h2-0-0", "h3-0-0"])
    overlay = made.path.backup.overlay  # type: ignore[union-attr]
    cut_off = next(name for name in sorted(made.receivers) if overlay.view(name).proxy)
    view, before = overlay.view(cut_off), made.receivers
    fields = []
    for kind, ring in ((RingKind.LEAF, view.leaf), (RingKind.PROXY, view.proxy)):
        fields.append((cut_off, kind, ring.successor(cut_off)))  # type: ignore[union-attr]
        by = ring.predecessor(cut_off)  # type: ignore[union-attr]
        fields.append((by, RingKind.LEAF if overlay.view(by).leaf == ring else RingKind.PROXY, cut_off))
    for _ in range(5):
        assert made.receivers == before  # nobody is judged at once
        for by, kind, server in fields:
            made.report(by, FailureKind.RECEIVER, kind, server)
        made.line.wait(750)
        for server in made.line.topology.servers:
            made.line.do(ev.KeepAlive(server))
    assert made.receivers == before - {cut_off}
    made.check()


def test_receiver_failure__a_slow_one_is_forgiven() -> None:
    """Its agent is heard, and now and then something comes from it: then nobody says that it is gone."""
    made = Group("fat-tree-4", "h0-0-0", ["h1-0-0", "h1-0-1", "h2-0-0"])
    for turn in range(48):
        if turn < 40 and turn % 5 == 0:
            made.report("h1-0-0", FailureKind.RECEIVER, RingKind.LEAF, "h1-0-1")
        made.line.wait(300)
        for server in made.line.topology.servers:
            made.line.do(ev.KeepAlive(server))
    assert len(made.receivers) == 3 and not made.path.backup.suspected_receivers  # type: ignore[union-attr]


@pytest.mark.parametrize("size", [0, 1 << 20])  # a stream, an object
def test_receiver_failure__of_a_stopped_one__a_stream_waits_for_its_bound(size: int) -> None:
    """Its agent is connected and silent; of an object it can ask for all when it goes on."""
    made = Group("fat-tree-4", "h0-0-0", ["h1-0-0", "h1-0-1", "h2-0-0"], size=size)
    began = made.line.now
    while "h1-0-1" in made.receivers and made.line.now < began + 8 * S:
        made.report("h1-0-0", FailureKind.RECEIVER, RingKind.LEAF, "h1-0-1")
        made.line.wait(750)
        for server in made.line.topology.servers.keys() - {"h1-0-1"}:
            made.line.do(ev.KeepAlive(server))
    waited_s = (made.line.now - began) / S
    assert made.receivers == {"h1-0-0", "h2-0-0"}
    assert 5.5 < waited_s < 7.5 if size == 0 else waited_s < 4.0
    made.check()


def test_receiver_failure__of_one_that_left_a_stream__it_is_out_at_once() -> None:
    made = Group("fat-tree-4", "h0-0-0", ["h1-0-0", "h1-0-1", "h2-0-0"], size=0)
    made.line.do(ev.AgentDown("h1-0-1", 1, "killed"))
    made.report("h1-0-0", FailureKind.RECEIVER, RingKind.LEAF, "h1-0-1")
    assert made.receivers == {"h1-0-0", "h2-0-0"}


def test_reports__of_strangers_of_what_is_over_and_of_older_trees_do_nothing() -> None:
    made = Group("fat-tree-4", "h0-0-0", ["h1-0-0", "h1-0-1", "h2-0-0", "h3-0-0"])
    version = made.path.backup.version  # type: ignore[union-attr]
    ring = next(made.path.backup.overlay.rings())  # type: ignore[union-attr]
    stranger = next(name for name in made.receivers if ring.successor(ring.members[0]) != name)
    made.report("h3-1-1", FailureKind.LINK, RingKind.LEAF, "h1-0-0")
    made.report(ring.members[0], FailureKind.RECEIVER, RingKind.PROXY, stranger)
    made.report(made.sender, FailureKind.LINK, RingKind.LEAF, "nobody")
    link = next(one for one in pairwise(made.way("h2-0-0")) if one[0].startswith("agg2"))
    by, kind, server = made.who_tells(link)  # type: ignore[misc]
    made.report(by, FailureKind.LINK, kind, server)
    failed = len(made.line.manager.core.resources.failed)
    assert failed and made.path.backup.version == version + 1  # type: ignore[union-attr]
    told = made.who_tells(next(one for one in pairwise(made.way(server)) if one[0].startswith("agg")))
    if told:
        made.report(*told, version=version)  # type: ignore[call-arg]
    made.report(by, FailureKind.LINK, kind, server, version=version)
    assert len(made.line.manager.core.resources.failed) == failed
    made.line.release(made.path)
    made.report(by, FailureKind.LINK, kind, server)
    made.line.do(ev.FailureReported(FailureReport("p-9", 1, FailureKind.LINK, RingKind.LEAF, "h1-0-0"), "h2-0-0"))


@pytest.mark.parametrize("fabric", FABRICS)
def test_port_down__the_tree_goes_around_with_its_overlay(fabric: str, seed: int) -> None:
    made = group(fabric, random.Random(seed))
    switches = made.line.topology.switches
    tree = made.path.tree
    assert tree
    links = [(a, b) for a, b in sorted(tree.links) if a in switches and b in switches]
    for a, b in links:
        if not made.line.manager.core.resources.fabric.connected_without({(a, b), (b, a)}):
            continue
        port = next(port for port, end in switches[a].neighbours.items() if end.node == b)
        made.line.do(ev.PortChanged(a, port, False))
        assert (a, b) not in made.path.tree.links  # type: ignore[union-attr]
        made.check()
        made.line.do(ev.PortChanged(a, port, True))
        break


def test_agents__that_come_back_are_told_again() -> None:
    made = Group("fat-tree-4", "h0-0-0", ["h1-0-0", "h2-0-0", "h3-0-0"])
    view = made.views["h2-0-0"]
    made.line.actions.clear()
    made.line.do(ev.AgentUp("h2-0-0", 1, 7071, protocols=("rdcm",)))
    assert [one.view for one in made.line.of(act.PushView)] == [view]  # type: ignore[attr-defined]
    made.line.do(ev.ViewUsed(made.path.id, view.version, "h2-0-0"))
    made.line.do(ev.ViewUsed(made.path.id, 99, "h1-0-0"))
    made.line.do(ev.ViewUsed(made.path.id, 1, "stranger"))
    assert made.path.backup.used == {"h2-0-0": view.version}  # type: ignore[union-attr]


@pytest.mark.parametrize("fabric", FABRICS)
def test_join_and_leave__one_receiver_at_a_time(fabric: str, seed: int) -> None:
    """Of a path asked for by REST: there is no transfer, but tree and overlay are the same."""
    rng = random.Random(seed)
    line = Timeline(load(fabric))
    sender, *others = rng.sample(list(line.topology.servers), 16)
    path = line.ask(sender, *others[:2], protocol=Protocol.RDCM)
    there = set(others[:2])
    for _ in range(40):
        name = rng.choice(others)
        before = path.tree.links  # type: ignore[union-attr]
        if name not in there:
            there.add(name)
            line.do(ev.ReceiverJoins(path.id, name))
            assert path.tree.links > before or name in before  # type: ignore[union-attr]
        elif len(there) > 1:
            there.remove(name)
            line.do(ev.ReceiverLeaves(path.id, name))
            assert path.tree.links < before  # type: ignore[union-attr]
        assert path.backup and path.backup.overlay.receivers == there
        assert path.backup.views.keys() == there | {sender}
        full = rdcm.Backup(path.backup.overlay, path.backup.version)
        for server, view in path.backup.views.items():
            fresh = rdcm.view_of(line.manager.core, path, full, server)
            assert (fresh.leaf, fresh.proxy, fresh.children) == (view.leaf, view.proxy, view.children)
        assert path.group and line.network.deliver(sender, path.group) == dict.fromkeys(there, 1)
    core = line.manager.core
    assert "is in p-" in reroute.join_obstacle(core, path, sender)
    assert "no server is called" in reroute.join_obstacle(core, path, "h99")
    assert "no receiver" in reroute.leave_obstacle(path, sender)
    line.do(ev.ReceiverJoins(path.id, sender))
    line.do(ev.ReceiverLeaves(path.id, sender))
    line.release(path)
    line.assert_nothing_held()
    assert "not on a packet tree" in reroute.join_obstacle(core, path, others[0])


def test_hearing__is_in_the_tree_by_the_senders_report_and_in_no_overlay() -> None:
    line = Timeline(load("fat-tree-4"))
    sender, *others = list(line.topology.servers)[::3]
    path = line.ask(sender, *others[:3], protocol=Protocol.RDCM)
    assert path.backup and path.tree and path.group
    views = {server: view.version for server, view in path.backup.views.items()}
    line.do(ev.ReceiverJoins(path.id, others[4], others[0]))  # nobody else's report counts
    assert line.network.deliver(sender, path.group) == dict.fromkeys(others[:3], 1)
    line.do(ev.ReceiverJoins(path.id, others[4], sender))
    assert line.network.deliver(sender, path.group) == dict.fromkeys([*others[:3], others[4]], 1)
    assert path.backup.overlay.receivers == set(others[:3])
    assert {server: view.version for server, view in path.backup.views.items()} == views  # nobody is told of it
    line.do(ev.ReceiverLeaves(path.id, others[4], sender))
    assert line.network.deliver(sender, path.group) == dict.fromkeys(others[:3], 1)
    line.do(ev.ReceiverLeaves(path.id, others[1], sender))  # a receiver that leaves is in the overlay
    assert path.backup.overlay.receivers == {others[0], others[2]}
    line.release(path)
    line.assert_nothing_held()


@pytest.mark.parametrize("journal", [True, False])
def test_restart__a_path_by_wan_stays_one(journal: bool) -> None:
    """By the journal, else by what its agent tells of it."""
    line = MortalTimeline(load("fat-tree-4"))
    names = sorted(line.topology.servers)[:4]
    for server in names:
        line.do(ev.AgentUp(server, 1, 7071, protocols=("rdcm", "wan")))
    path = line.ask(*names, origin=names[0], protocol=Protocol.WAN)
    assert path.protocol is Protocol.WAN
    line.restart(journal=journal)
    assert line.path(path.id).protocol is Protocol.WAN


def test_restart__failed_links_and_overlay_survive() -> None:
    """A new manager with the records of the old one: the same tree, the same links left alone, newer views."""
    line = MortalTimeline(load("fat-tree-4"))
    for server in line.topology.servers:
        line.do(ev.AgentUp(server, 1, 7071, protocols=("rdcm",)))
    path = line.ask("h0-0-0", "h1-0-0", "h1-1-0", "h2-0-0", "h3-0-0", origin="h0-0-0")
    assert path.tree
    link = next(one for one in pairwise(path.tree.way("h2-0-0")) if one[0].startswith("agg2"))
    reroute.fail_links(line.manager.core, [link], "a test", line.now)
    line.do(ev.Tick())
    line.restart()
    again = line.path_of(path)
    core = line.manager.core
    assert again is not path and link in core.resources.failed.links
    assert again.hops == path.hops and again.protocol is Protocol.RDCM
    assert again.tree and path.tree and again.tree.links == path.tree.links
    assert again.backup and path.backup and again.backup.version > path.backup.version
    line.actions.clear()
    line.do(ev.AgentUp("h2-0-0", 1, 7071, protocols=("rdcm",)))
    assert [one.view.version for one in line.of(act.PushView)] == [again.backup.version]  # type: ignore[attr-defined]
    line.assert_delivers(again)
    line.wait(40_000)
    assert not core.resources.failed.links
