"""RDCM on a path's packet tree: the backup overlay, and the views of it that agents hold (Sec. 3.2).

What changes a tree is in reroute.py, what agents report in failures.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.packet.steiner import SteinerTree
from rostrum.controller.core.rdcm.overlay import BackupOverlay, Ring
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.state import Core
from rostrum.controller.core.values import REST, OverlayView, RingPlace

CHANGES_MAX = 16  # remembered for each path


@dataclass
class Change:
    """Something happened to a path's tree or overlay (times in ns of the manager's clock). `rules_in`: when the
    switches had confirmed the new tree; None = not yet, or no rule changed. `told`: how many agents got a new view.
    """

    version: int
    at: int
    cause: str
    links_added: int = 0
    links_removed: int = 0
    told: int = 0
    rules_in: int | None = None


@dataclass
class Backup:
    """The backup overlay of one path. `views`: by server, as last told; `used`: the newest version that a server says
    it repairs by; `moved`: the version since which a receiver is reached another way.
    """

    overlay: BackupOverlay
    version: int = 0
    views: dict[str, OverlayView] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    suspected_links: dict[tuple[str, str], int] = field(
        default_factory=dict
    )  # (who says so, receiver without tree): when
    suspected_receivers: dict[str, dict[str, tuple[int, int]]] = field(
        default_factory=dict
    )  # receiver -> by whom, since, last


def children(path: Path, tree: SteinerTree) -> dict[str, list[str]]:
    """The path's tree from the sender down."""
    return {path.request.sender: [tree.sender], **tree.children}


def begin(core: Core, path: Path, now: int, version: int = 0) -> None:
    """A granted path of RDCM gets its overlay, and everybody a view. `version`: the newest one told before."""
    assert path.tree is not None
    there = path.tree.receivers
    overlay = BackupOverlay.build(path.request.sender, children(path, path.tree), sorted(there))
    path.backup = Backup(overlay, version)
    push(core, path, Change(version, now, "granted" if version == 0 else "the manager was restarted"))


def end(path: Path) -> None:
    """The path is over: of its tree and overlay only what happened to them is kept."""
    path.tree, path.retired = None, ()
    if path.backup:
        over = path.backup
        path.backup = Backup(BackupOverlay(path.request.sender), over.version, changes=over.changes)


def push(core: Core, path: Path, change: Change, nodes: Iterable[str] | None = None, moved: Iterable[str] = ()) -> None:
    """Tells whose view has changed (of `nodes`; None = of anybody), under a new version; and to the predecessors of
    receivers that are reached another way (`moved`) under that version too, so that their reports say of which way.
    """
    backup, sender = path.backup, path.request.sender
    assert backup is not None
    backup.version = change.version = backup.version + 1
    backup.changes = [*backup.changes[1 - CHANGES_MAX :], change]
    alive = backup.overlay.receivers
    again = set()
    for name in moved:
        backup.moved[name] = backup.version
        for about in [one for one in backup.suspected_links if one[1] == name]:
            del backup.suspected_links[about]  # was of the way before
        rings = backup.overlay.view(name)
        again |= {ring.predecessor(name) for ring in (rings.leaf, rings.proxy) if ring} or {sender}
    for gone in backup.views.keys() - alive - {sender}:
        del backup.views[gone]
        backup.used.pop(gone, None)
    concerned = {sender, *alive} if nodes is None else ({*nodes, *again, sender} & {sender, *alive})
    for name in sorted(concerned):
        view = view_of(core, path, backup, name)
        known = backup.views.get(name)
        if known is None or name in again or not _same(known, view):
            backup.views[name] = view
            change.told += 1
            _tell(core, path, name)
    core.persistence.mark("path", path.id)
    core.emit(act.PathChanged(path.id))


def tell_again(core: Core, server: str) -> None:
    """The agent of `server` came back: what it was told meanwhile may be lost."""
    for path in core.paths.values():
        if path.backup and path.granted and server in path.backup.views:
            _tell(core, path, server)


def view_used(core: Core, event: ev.ViewUsed, now: int) -> None:
    path = core.paths.get(event.path_id)
    backup = path.backup if path else None
    if backup and event.origin in backup.views and backup.used.get(event.origin, 0) < event.version <= backup.version:
        backup.used[event.origin] = event.version


def _tell(core: Core, path: Path, server: str) -> None:
    if path.request.origin != REST:  # nobody has a transfer of a path that was asked for by REST
        assert path.backup is not None
        core.counts["views_told"] += 1
        core.emit(act.PushView(server, path.backup.views[server]))


def view_of(core: Core, path: Path, backup: Backup, server: str) -> OverlayView:
    """What a server must know of the overlay as it is now."""
    request, overlay = path.request, backup.overlay
    leaf = proxy = None
    if server == request.sender:
        below = overlay.top()
    else:
        view = overlay.view(server)
        leaf, proxy, below = _place(view.leaf, server), _place(view.proxy, server), view.children
    named = dict.fromkeys(below)
    for place in (leaf, proxy):
        if place:
            named |= dict.fromkeys((place.predecessor, place.successor, place.parent))
    if not leaf and server != request.sender:
        named[request.sender] = None  # the only receiver acknowledges to the sender
    return OverlayView(
        path_id=path.id,
        version=backup.version,
        group=str(path.group),
        app_id=request.app_id,
        data_id=request.data_id,
        sender=request.sender,
        leaf=leaf,
        proxy=proxy,
        children=below,
        addresses=tuple(core.address(name) for name in named),
    )


def _place(ring: Ring | None, server: str) -> RingPlace | None:
    return RingPlace(ring.predecessor(server), ring.successor(server), ring.parent) if ring else None


def _same(a: OverlayView, b: OverlayView) -> bool:
    return (a.leaf, a.proxy, a.children, a.addresses) == (b.leaf, b.proxy, b.children, b.addresses)
