"""What receivers report of each other (RDCM, Sec. 3.4): a successor that is gone, or one that gets everything by repair
because a link of the tree has failed.
"""

from __future__ import annotations

from rostrum.controller.core import events as ev
from rostrum.controller.core import retree
from rostrum.controller.core.fabric import Link
from rostrum.controller.core.overlay import BackupOverlay, Ring
from rostrum.controller.core.paths import Path
from rostrum.controller.core.rdcm import Backup
from rostrum.controller.core.retree import CannotChange
from rostrum.controller.core.state import Core
from rostrum.controller.core.values import MS, FailureKind, RingKind

CONFIRM_NS = 20 * MS  # how long a receiver whose agent is heard has to accuse its accuser


def failure_reported(core: Core, event: ev.FailureReported, now: int) -> None:
    report, origin = event.report, event.origin
    path = core.paths.get(report.path_id)
    if path is None or path.backup is None or not path.granted:
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
        _accused(core, path, backup, origin, report.server, now)
    elif report.version >= backup.moved.get(report.server, 0):
        _link(core, path, backup, ring, report.server, origin, now)


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


def _link(core: Core, path: Path, backup: Backup, ring: Ring, server: str, origin: str, now: int) -> None:
    links = suspects(backup.overlay, ring, server)
    cause = f"{server} gets nothing by the tree of {path.id}, says {origin}"
    if not retree.fail_links(core, links, cause, now) and links:
        words = ", ".join("-".join(link) for link in links)
        path.stamps.notes.append(f"{cause}: {words} may have failed, but nothing else leads there")
        del path.stamps.notes[: -retree.NOTES_MAX]


def _accused(core: Core, path: Path, backup: Backup, origin: str, server: str, now: int) -> None:
    backup.accused.setdefault(server, {})[origin] = now
    agent = core.agents.get(server)
    if origin == path.request.sender or agent is None or not agent.connected:
        _remove(core, path, server, f"{server} failed: repairs by {origin} did not reach it", now)
    else:
        core.look_at("accused", now + CONFIRM_NS)


def judge(core: Core, now: int) -> None:
    """Receivers that were accused while their agents were heard. One that cannot reach anybody accuses its successors,
    and is accused by its predecessors: accusers that are accused by others than the accused do not count.
    """
    for path in core.paths.values():
        backup = path.backup
        if not backup or not backup.accused or not path.granted:
            continue
        for server, by in list(backup.accused.items()):
            if server not in backup.accused:
                continue
            due = min(by.values()) + CONFIRM_NS
            if due > now:
                core.look_at("accused", due)
                continue
            sound = [one for one in by if not backup.accused.get(one, {}).keys() - {server}]
            if sound:
                _remove(core, path, server, f"{server} failed: repairs by {sound[0]} did not reach it", now)
            else:
                del backup.accused[server]  # whoever accused it is gone


def _remove(core: Core, path: Path, server: str, cause: str, now: int) -> None:
    backup = path.backup
    assert backup is not None
    backup.accused.pop(server, None)
    for by in backup.accused.values():
        by.pop(server, None)  # the word of the dead
    backup.accused = {name: by for name, by in backup.accused.items() if by}
    core.counts["receivers_failed"] += 1
    try:
        retree.leave(core, path, server, cause, now)
    except CannotChange as error:
        path.stamps.notes.append(f"{cause}; {error}")
        del path.stamps.notes[: -retree.NOTES_MAX]
