"""What receivers report of each other (RDCM, Sec. 3.4): a successor that is gone, or one that gets everything by repair
because a link of the tree has failed.
"""

from __future__ import annotations

from rostrum.controller.core import events as ev
from rostrum.controller.core.packet import reroute
from rostrum.controller.core.packet.fabric import Link
from rostrum.controller.core.packet.reroute import CannotChange
from rostrum.controller.core.rdcm.overlay import BackupOverlay, Ring
from rostrum.controller.core.rdcm.views import Backup
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.state import Core
from rostrum.controller.core.values import MS, FailureKind, RingKind

CONFIRM_NS = 3000 * MS  # a receiver whose agent is heard must be suspected for so long to count as gone
STREAM_NS = 6000 * MS  # of a stream, any receiver that has not left: it is waited for up to its bound on silence, 5 s
FORGET_NS = 1000 * MS  # an accusation that is not repeated within this is over: something came from there
HOLD_NS = 40 * MS  # a word about links waits so long for others that speak against it
DISPUTE_NS = 400 * MS  # so long if there are such
SETTLE_NS = 150 * MS  # after a tree changed nobody's report of links counts: repairs feed those who were moved


def failure_reported(core: Core, event: ev.FailureReported, now: int) -> None:
    report, origin = event.report, event.origin
    path = core.paths.get(report.path_id)
    if path is None or path.backup is None or not path.granted:
        return
    if report.kind is FailureKind.LINK_WORKS:
        _taken_back(core, path, origin, report.server)
        return
    core.counts[f"reports_{report.kind.name.lower()}"] += 1
    backup = path.backup
    if report.server not in backup.overlay.receivers:
        return  # known already
    ring = ring_of(backup.overlay, path.request.sender, origin, report.ring, report.server)
    if ring is None:
        core.log("failure report out of date", path=path.id, by=origin, server=report.server, version=report.version)
        return
    core.warn(
        "failure reported",
        path=path.id,
        kind=report.kind.name.lower(),
        by=origin,
        server=report.server,
        ring=ring.node or "all",
    )
    if report.kind is FailureKind.RECEIVER:
        _suspect_receiver(core, path, backup, origin, report.server, now)
    elif report.version >= backup.moved.get(report.server, 0):
        _suspected(core, path, backup, origin, report.server, now)


def _settled_at(path: Path, backup: Backup, now: int) -> int:
    """When text about links count: not while switches are just being told another tree, nor a moment after that."""
    last = max((one.rules_in or one.at for one in backup.changes if one.links_added), default=None)
    if path.retired:
        return now + SETTLE_NS  # counted from the switches' answer, which has a bound of its own
    return 0 if last is None else last + SETTLE_NS


def ring_of(overlay: BackupOverlay, sender: str, origin: str, kind: RingKind, server: str) -> Ring | None:
    """The ring in which `origin` mends `server`, as it is now. For the sender, which is in none, one without a node:
    all the receivers it hears.
    """
    if origin == sender:
        return Ring("", overlay.top(), sender) if server in overlay.top() else None
    if origin not in overlay.receivers:
        return None
    view = overlay.view(origin)
    ring = view.leaf if kind is RingKind.LEAF else view.proxy
    return ring if ring and ring.successor(origin) == server else None


def suspects(overlay: BackupOverlay, ring: Ring, server: str) -> tuple[Link, ...]:
    """The links of which one has failed when `server` gets nothing by the tree: from the ring's node towards it, down
    to the next branching node or to itself. When nobody has anything: from the sender to the first branching node.
    """
    return overlay.suspects(ring.node, server) if ring.node else overlay.trunk()


def _suspected(core: Core, path: Path, backup: Backup, origin: str, server: str, now: int) -> None:
    """Notes a word about links. It waits until the tree has settled, if that has just changed: a second failure within
    that time is looked at then. Who says the same again stands by it.
    """
    backup.suspected_links.setdefault((origin, server), now)
    core.schedule_check("suspected links", max(now, _settled_at(path, backup, now)) + HOLD_NS)


def _taken_back(core: Core, path: Path, origin: str, server: str) -> None:
    """Something came to `server` by the tree: no link has failed, the network was too busy to acknowledge in time."""
    backup = path.backup
    if backup and backup.suspected_links.pop((origin, server), None) is not None:
        core.counts["link_reports_taken_back"] += 1


def weigh(core: Core, now: int) -> None:
    """Text about links that waited: one alone is believed, as a single failure explains it (Sec. 3.4). Several at a
    time come from a busy network more often than from several failures: those that stand for a while are believed.
    After each one that changed the tree, the others wait until that has settled: they may be of the links before.
    """
    for path in core.paths.values():
        backup = path.backup
        if not backup or not backup.suspected_links or not path.granted:
            continue
        alone = len(backup.suspected_links) == 1
        for (origin, server), said in list(backup.suspected_links.items()):
            settled = _settled_at(path, backup, now)
            due = max(said + (HOLD_NS if alone else DISPUTE_NS), settled + HOLD_NS if said < settled else 0)
            if now < due:
                core.schedule_check("suspected links", due)
                continue
            if backup.suspected_links.pop((origin, server), None) is None:
                continue  # another word moved it to another way
            rings = (ring_of(backup.overlay, path.request.sender, origin, kind, server) for kind in RingKind)
            ring = next((one for one in rings if one), None)
            if ring and server in backup.overlay.receivers:
                _link(core, path, backup, ring, server, origin, now)


def _link(core: Core, path: Path, backup: Backup, ring: Ring, server: str, origin: str, now: int) -> None:
    links = suspects(backup.overlay, ring, server)
    cause = f"{server} gets nothing by the tree of {path.id}, says {origin}"
    if not reroute.fail_links(core, links, cause, now):
        text = ", ".join("-".join(link) for link in links)
        path.stamps.notes.append(f"{cause}: {text} may have failed, but nothing else leads there")
        del path.stamps.notes[: -reroute.NOTES_MAX]


def _suspect_receiver(core: Core, path: Path, backup: Backup, origin: str, server: str, now: int) -> None:
    """Who is gone, or so busy that it looks like it? A receiver with a living agent gets time, and needs to be
    suspected again after that: to go on without one that is only slow costs it the object. One whose agent is silent,
    too, may be stopped: of an object it asks for all when it goes on, a stream would leave it behind.
    """
    accusers = backup.suspected_receivers.setdefault(server, {})
    first, last = accusers.get(origin, (now, now))
    first = now if now > last + FORGET_NS else first
    accusers[origin] = (first, now)
    bound = STREAM_NS if path.request.streams else CONFIRM_NS
    if _gone(core, path, server, now) or (now >= first + bound and not _cut_off(backup, origin, server)):
        _remove(core, path, server, f"{server} failed: repairs by {origin} did not reach it", now)
    else:
        core.schedule_check("suspected receivers", now + FORGET_NS)


def _gone(core: Core, path: Path, server: str, now: int) -> bool:
    agent = core.agents.get(server)
    silent = agent is not None and now > agent.heard + core.settings.lease_ns // 2
    return agent is None or not agent.connected or (silent and not path.request.streams)


def _cut_off(backup: Backup, accuser: str, suspected: str) -> bool:
    """A receiver that reaches nobody accuses its successors, and is suspected itself, by others than those."""
    return bool(backup.suspected_receivers.get(accuser, {}).keys() - {suspected})


def judge(core: Core, now: int) -> None:
    """Receivers that were suspected while their agents were heard: some agents are silent by now, some reports old."""
    for path in core.paths.values():
        backup = path.backup
        if not backup or not backup.suspected_receivers or not path.granted:
            continue
        for server, by in list(backup.suspected_receivers.items()):
            for origin, (_, last) in list(by.items()):
                if server in backup.suspected_receivers and now > last + FORGET_NS:
                    del by[origin]
                elif (
                    server in backup.suspected_receivers
                    and not _cut_off(backup, origin, server)
                    and _gone(core, path, server, now)
                ):
                    _remove(core, path, server, f"{server} failed: repairs by {origin} did not reach it", now)
        backup.suspected_receivers = {server: by for server, by in backup.suspected_receivers.items() if by}
        if backup.suspected_receivers:
            core.schedule_check("suspected receivers", now + FORGET_NS)


def _remove(core: Core, path: Path, server: str, cause: str, now: int) -> None:
    backup = path.backup
    assert backup is not None
    backup.suspected_receivers.pop(server, None)
    for by in backup.suspected_receivers.values():
        by.pop(server, None)  # the report of the dead
    backup.suspected_receivers = {name: by for name, by in backup.suspected_receivers.items() if by}
    core.counts["receivers_failed"] += 1
    try:
        reroute.leave(core, path, server, cause, now)
    except CannotChange as error:
        path.stamps.notes.append(f"{cause}; {error}")
        del path.stamps.notes[: -reroute.NOTES_MAX]
