"""Trees of granted packet paths change while data flows: around links and ports that are gone, for receivers that come,
leave or fail (RDCM, Sec. 3.4). As little changes as can, and new rules are in before old ones go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.groups import rules as membership_rules
from rostrum.controller.core.model import MulticastRule
from rostrum.controller.core.packet import rules as rule_making
from rostrum.controller.core.packet import trees
from rostrum.controller.core.packet.fabric import Link
from rostrum.controller.core.packet.failed_links import key as record_key
from rostrum.controller.core.packet.steiner import Unreachable
from rostrum.controller.core.rdcm import views
from rostrum.controller.core.rdcm.overlay import BackupOverlay
from rostrum.controller.core.rdcm.views import Change
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.state import Core, PendingRules
from rostrum.controller.core.text import listed
from rostrum.controller.core.values import REST

NOTES_MAX = 16


class CannotChange(Exception):
    """The text says why a path's receivers stay as they are."""


def fail_links(core: Core, links: Iterable[Link], cause: str, now: int, wait_ns: int | None = None) -> tuple[Link, ...]:
    """Leaves links alone from now on, for all paths; returns those that were not known. `wait_ns`: as `hold_ns` of
    `FailedLinks.add`.
    """
    new = core.resources.failed.add(links, cause, now, wait_ns)
    if not new:
        return ()
    for link in new:
        failed = core.resources.failed.get(link)
        assert failed is not None
        core.persistence.mark("failed-link", record_key(link))
        core.schedule_check("links", failed.until)
        core.warn("link out of service", link="-".join(link), cause=cause, ms=(failed.until - now) // 1_000_000)
    core.counts["links_failed"] += len(new)
    leave_links(core, new, cause, now)
    return new


def leave_links(core: Core, links: Iterable[Link], cause: str, now: int) -> None:
    """What runs over links that are not to be used any more is led around them, where there is a way."""
    new = list(links)
    for path in [one for one in core.paths.values() if one.granted and one.tree]:
        if path.tree and any(link in path.tree.links for a, b in new for link in ((a, b), (b, a))):
            around(core, path, cause, now)
    reroute_unicast(core)
    membership_rules.links_changed(core, now)


def activate(core: Core, now: int) -> None:
    """Links whose time is over may be used again; nobody is moved to them."""
    for failed in core.resources.failed.activate(now):
        core.persistence.mark("failed-link", record_key(failed.link))
        core.log("link used again", link="-".join(failed.link), cause=failed.cause)
        core.counts["links_activated"] += 1
        reroute_unicast(core)
        membership_rules.links_changed(core, now)
    if core.resources.failed:
        core.schedule_check("links", min(one.until for one in core.resources.failed))


def put_back(core: Core, link: Link) -> bool:
    """Somebody says that a link works; False = it was in use."""
    if not core.resources.failed.put_back(link):
        return False
    core.persistence.mark("failed-link", record_key(link))
    core.log("link used again", link="-".join(sorted(link)), cause="by request over REST")
    reroute_unicast(core)
    return True


def reroute_unicast(core: Core) -> None:
    """Shortest ways around what is down or suspected, on every switch that is there; these change only what is new."""
    dead = dead_ports(core)
    for name in core.topology.switches:
        if name in core.resources.switches_down:
            continue
        wanted = rule_making.unicast(core.topology, name, dead)
        if core.unicast.get(name) != wanted:
            core.unicast[name] = wanted
            core.emit(act.InstallUnicast(name, wanted))


def dead_ports(core: Core) -> set[tuple[str, int]]:
    """Ports that are down, and those of links left alone."""
    dead = set(core.resources.ports_down)
    for a, b in core.resources.failed.links:
        if a not in core.topology.switches:
            continue  # a drained fibre to an OCS
        dead |= {(a, port) for port, end in core.topology.switches[a].neighbours.items() if end.node == b}
    return dead


def around(core: Core, path: Path, cause: str, now: int) -> bool:
    """Whoever is reached over links that are gone is joined again. False: that cannot be, and nothing was changed."""
    tree, resources = path.tree, core.resources
    if tree is None:
        return False
    down = resources.fabric.links_at(resources.ports_down)
    before = tree.links
    tree.avoid({*down, *resources.failed.links})
    try:
        moved = tree.reroute()
    except Unreachable as error:
        moved = frozenset(error.receivers)
        tree.avoid(down)  # a suspected link is better than none
        try:
            tree.join_all(error.receivers)
        except Unreachable as cut_off:  # they stay without; the last ones end with the path
            core.warn("no way around", path=path.id, cause=cause, cut_off=listed(cut_off.receivers))
            path.stamps.notes.append(f"{cause}; no way leads to {listed(cut_off.receivers)}")
            del path.stamps.notes[:-NOTES_MAX]
            if not tree.receivers:
                return False
    hops, _ = trees.hops_of(resources.fabric, path.request.sender, tree, resources.ports_down)
    if tree.links != before or hops != path.hops:  # by another of parallel links: only the hops differ
        _changed(core, path, before, cause, moved, now)
    return True


def follow(core: Core, path: Path, cause: str, now: int) -> None:
    """The path has another tree altogether (`path.tree`, its rules are being set): its overlay follows."""
    if path.backup and path.tree:
        _overlay(core, path, Change(0, now, cause), path.tree.receivers)


def leave_obstacle(path: Path, receiver: str) -> str:
    """Why a path cannot go on without a receiver, as text; empty = it can."""
    if path.tree is None or receiver not in path.tree.receivers or not path.granted:
        return f"{receiver} is no receiver of a packet tree of {path.id}"
    if len(path.tree.receivers) == 1:
        return f"{receiver} is the last receiver of {path.id}; release the path instead"
    return ""


def leave(core: Core, path: Path, receiver: str, cause: str, now: int) -> None:
    """A receiver is no longer in tree and overlay. Raises CannotChange."""
    if text := leave_obstacle(path, receiver):
        raise CannotChange(text)
    tree = path.tree
    assert tree is not None
    before, way = tree.links, [path.request.sender, *tree.way(receiver)]
    tree.leave(receiver)
    _set_rules(core, path, now)
    change = Change(0, now, cause, links_removed=len(before - tree.links))
    if path.backup and receiver in path.backup.overlay.receivers:
        _ring_change(core, path, change, way, lambda overlay: overlay.leave(receiver))
    path.stamps.notes.append(cause)
    del path.stamps.notes[:-NOTES_MAX]
    core.persistence.mark("path", path.id)
    core.log("receiver left", path=path.id, receiver=receiver, cause=cause)


def join_obstacle(core: Core, path: Path, receiver: str, hears: bool = False) -> str:
    """Why a path cannot have one more receiver, as text; empty = it can. `hears`: by its sender's report."""
    if receiver not in core.topology.servers:
        return f"no server is called {receiver}"
    if core.topology.tenant_of(receiver) != core.topology.tenant_of(path.request.sender):
        return f"{receiver} is not of the tenant of {path.request.sender}; a path stays within a tenant"
    if path.tree is None or not path.granted:
        return f"{path.id} is not on a packet tree now"
    if path.request.origin != REST and not hears:
        return f"the receivers of {path.id} are those of {path.request.origin}'s transfer; send to {receiver} again"
    if receiver in path.tree.receivers or receiver == path.request.sender:
        return f"{receiver} is in {path.id} already"
    return core.resources.cut_off(receiver)


def join(core: Core, path: Path, receiver: str, now: int, hears: bool = False) -> None:
    """A receiver is added to tree and overlay, one that only hears to the tree. Raises CannotChange."""
    if text := join_obstacle(core, path, receiver, hears):
        raise CannotChange(text)
    tree, resources = path.tree, core.resources
    assert tree is not None
    before = tree.links
    tree.avoid({*resources.fabric.links_at(resources.ports_down), *resources.failed.links})
    try:
        tree.join(receiver)
    except Unreachable as error:
        raise CannotChange(str(error)) from error
    _set_rules(core, path, now)
    change = Change(0, now, f"{receiver} joined", links_added=len(tree.links - before))
    if path.backup and not hears:
        way = [path.request.sender, *tree.way(receiver)]
        _ring_change(core, path, change, way, lambda overlay: overlay.join(receiver, way))
    core.persistence.mark("path", path.id)
    core.log("receiver joined", path=path.id, receiver=receiver)


def receiver_joins(core: Core, event: ev.ReceiverJoins, now: int) -> None:
    path = core.paths.get(event.path_id)
    if path and event.origin in ("", path.request.sender):
        try:
            join(core, path, event.server, now, hears=event.origin != "")
        except CannotChange as error:
            core.warn("receiver not joined", path=path.id, receiver=event.server, cause=error)
        core.emit(act.PathChanged(path.id))


def receiver_leaves(core: Core, event: ev.ReceiverLeaves, now: int) -> None:
    path = core.paths.get(event.path_id)
    if path and event.origin in ("", path.request.sender):
        try:
            leave(core, path, event.server, f"{event.server} left", now)
        except CannotChange as error:
            core.warn("receiver not taken out", path=path.id, receiver=event.server, cause=error)
        core.emit(act.PathChanged(path.id))


def link_suspected(core: Core, event: ev.LinkSuspected, now: int) -> None:
    if event.up:
        put_back(core, event.link)
    else:
        fail_links(core, [event.link], event.cause, now)


def rules_in(core: Core, path: Path, now: int) -> None:
    """The switches have a path's rules: what they replaced can go."""
    if path.retired:
        kept = {rule_making.key(rule) for rule in path.rules}
        core.remove(tuple(rule for rule in path.retired if rule_making.key(rule) not in kept), path.id, now)
        path.retired = ()
    if path.backup:
        for change in path.backup.changes:
            if change.rules_in is None and change.links_added + change.links_removed:
                change.rules_in = now
                core.counts["reroutes"] += 1
                core.log("tree changed", path=path.id, version=change.version, cause=change.cause,
                         ms=(now - change.at) / 1e6)  # fmt: skip


def _changed(core: Core, path: Path, before: Collection[Link], cause: str, moved: Collection[str], now: int) -> None:
    assert path.tree is not None
    links = path.tree.links
    _set_rules(core, path, now)
    change = Change(0, now, cause, links_added=len(links - set(before)), links_removed=len(set(before) - links))
    core.warn("tree goes around", path=path.id, cause=cause, receivers=listed(sorted(moved)),
              links=change.links_added)  # fmt: skip
    path.stamps.notes.append(f"tree changed: {cause}")
    del path.stamps.notes[:-NOTES_MAX]
    if path.backup:
        _overlay(core, path, change, moved)


def _overlay(core: Core, path: Path, change: Change, moved: Collection[str]) -> None:
    assert path.backup is not None and path.tree is not None
    path.backup.overlay = path.backup.overlay.follow(views.children(path, path.tree))
    views.push(core, path, change, moved=sorted(path.backup.overlay.receivers & set(moved)))


def _ring_change(
    core: Core, path: Path, change: Change, way: Iterable[str], make: Callable[[BackupOverlay], frozenset[str]]
) -> None:
    """A receiver at the end of `way` comes or goes: only rings along it change."""
    assert path.backup is not None
    overlay = path.backup.overlay
    concerned = overlay.near(way)
    concerned |= overlay.near(make(overlay))
    views.push(core, path, change, concerned)


def _set_rules(core: Core, path: Path, now: int) -> None:
    """The rules of the path's tree as it is now. Only what differs goes to the switches."""
    assert path.tree is not None
    dead = core.resources.ports_down
    path.hops, path.rate_bps = trees.hops_of(core.resources.fabric, path.request.sender, path.tree, dead)
    old = {rule_making.key(rule): rule for rule in (*path.retired, *path.rules)}
    core.set_rules(path)
    new = {rule_making.key(rule): rule for rule in path.rules}
    gone = tuple(rule for key, rule in old.items() if key not in new)
    if loops(core, old.values(), new.values()):
        core.remove(gone, path.id, now)
        gone = ()
    path.retired = gone
    outstanding = path.rules_op is not None
    changed = tuple(rule for key, rule in new.items() if outstanding or old.get(key) != rule)
    op = core.next_serial()
    until = now + core.settings.configure_bound_ns
    path.rules_op = op
    core.rule_ops[op] = PendingRules(path.id, path.rules, until)
    for key in new:
        core.foreign_rules.pop(key, None)
    core.emit(act.InstallRules(op, changed, path.id))
    core.schedule_check("orders", until)


def loops(core: Core, old: Iterable[MulticastRule], new: Iterable[MulticastRule]) -> bool:
    """Whether packets could go round while some switches have old rules and others new ones. A packet is at (switch, in
    port); each of its copies goes to where a rule's port leads.
    """
    steps: dict[tuple[str, int], set[tuple[str, int]]] = {}
    for rule in (*old, *new):
        here = core.topology.switches[rule.switch].neighbours
        ends = (here[port] for port in rule.out_ports)
        steps.setdefault((rule.switch, rule.in_port), set()).update((end.node, end.port) for end in ends)
    done: set[tuple[str, int]] = set()
    for start in steps:
        trail: list[tuple[tuple[str, int], list[tuple[str, int]]]] = [(start, list(steps[start]))]
        on_trail = {start}
        while trail:
            place, left = trail[-1]
            if not left:
                trail.pop()
                on_trail.discard(place)
                done.add(place)
                continue
            step = left.pop()
            if step in on_trail:
                return True
            if step not in done and step in steps:
                trail.append((step, list(steps[step])))
                on_trail.add(step)
    return False
