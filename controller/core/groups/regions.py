"""Groups mapped to regions of servers (QSM, Sec. 2.1), pure.

A region is the servers that are in the same groups, of those whose options are the same. Its views are immutable and
versioned: a group maps to regions, and these to servers. Changes are gathered, and one batch makes at most one new view
of each region, however many changes there were. Where overlap is irregular, a cover keeps a group's regions few: a
region may then serve groups that some of its servers are not in, and these drop what they get of them (`waste`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from rostrum.controller.core.groups.trees import bits

Signature = tuple[str, frozenset[str]]  # kind, groups
HINTED = "\0"  # with a place among the hints: its groups, whichever; no group's name begins so


@dataclass(frozen=True)
class RegionView:
    """`kind`: protocol and kind. `nodes`: a mask of servers."""

    region: int
    version: int
    kind: str
    nodes: int


@dataclass(frozen=True)
class Batch:
    """Regions that have a new view, regions that are no more, and groups that have other regions than before."""

    views: tuple[RegionView, ...]
    gone: tuple[int, ...]
    groups: frozenset[str]


@dataclass
class Regions:
    """`first`: versions are larger. `most`: regions of a group, 0 for no bound. `hints`: sets of groups that overlap by
    design (`blue.*`: all that begin so): servers in any of a set's groups are of one region.
    """

    first: int = 0
    most: int = 0
    hints: tuple[frozenset[str], ...] = ()
    views: dict[int, RegionView] = field(default_factory=dict)
    of: dict[str, tuple[int, ...]] = field(default_factory=dict)  # group -> its regions
    within: dict[int, set[str]] = field(default_factory=dict)  # region -> groups that have it
    _groups: dict[str, tuple[str, int]] = field(default_factory=dict)  # kind, members
    _hinted: dict[str, str] = field(default_factory=dict)  # group -> what stands for all of its hint's
    _wanted: dict[tuple[str, int], set[str]] = field(default_factory=dict)  # kind, server -> groups
    _signed: dict[tuple[str, int], Signature] = field(default_factory=dict)
    _parts: dict[Signature, int] = field(default_factory=dict)
    touched: set[tuple[str, int]] = field(default_factory=set)  # kind, server: its groups changed since the last batch
    _dirty: set[tuple[str, int]] = field(default_factory=set)
    _changed: set[str] = field(default_factory=set)
    _restarted: int = 0
    _last: int = 0

    def put(self, group: str, kind: str, members: int) -> None:
        """These are its members now."""
        before_kind, before = self._groups.get(group, (kind, 0))
        if before_kind != kind:
            self.remove(group)
            before = 0
        for server in bits(before & ~members):
            self._wanted[kind, server].discard(group)
            self._touch(kind, server)
        for server in bits(members & ~before):
            self._wanted.setdefault((kind, server), set()).add(group)
            self._touch(kind, server)
        if group not in self._groups:
            for place, hint in enumerate(self.hints):
                if _has(hint, group):
                    self._hinted[group] = f"{HINTED}{place}"
        self._groups[group] = (kind, members)
        self._changed.add(group)

    def remove(self, group: str) -> None:
        kind, members = self._groups.pop(group, ("", 0))
        self._hinted.pop(group, None)
        for server in bits(members):
            self._wanted[kind, server].discard(group)
            self._touch(kind, server)
        self._changed.add(group)

    def _touch(self, kind: str, server: int) -> None:
        self._dirty.add((kind, server))
        self.touched.add((kind, server))

    def renew(self, server: int) -> None:
        """It was restarted: what it knew is gone, and its regions start over."""
        self._restarted |= 1 << server

    def restore(self, view: RegionView) -> None:
        """As an earlier manager had it; before the first batch."""
        self.views[view.region] = view
        self._last = max(self._last, view.region)
        self.first = max(self.first, view.version)

    def next_version(self, region: int) -> RegionView:
        """The same servers in a new view."""
        self.first += 1
        before = self.views[region]
        made = self.views[region] = RegionView(region, self.first, before.kind, before.nodes)
        return made

    @property
    def changed(self) -> bool:
        return bool(self._dirty or self._changed or self._restarted)

    def may_stay(self) -> set[tuple[str, int]]:
        """Kind, server: those in other groups than their regions were made for that need no other region. New groups'
        messages come by the region that is there, and who is not in them drops these."""
        known = (one for one in self._dirty if one in self._signed and self._wanted.get(one))
        return {(kind, server) for kind, server in known if not self._restarted >> server & 1}

    def batch(self, staying: Collection[tuple[str, int]] = ()) -> Batch:
        """All that changed since the last one becomes new views. `staying`: of `may_stay`, servers that keep the region
        that they are in, and are looked at in a later batch."""
        if not self.changed:
            return Batch((), (), frozenset())
        for one in self._dirty.difference(staying):
            self._sign(one)
        changed, gone = self._renew(self._cover())
        groups = self._map({view.region for view in changed} | set(gone))
        self._dirty.intersection_update(staying)
        self.touched.clear()
        self._changed.clear()
        self._restarted = 0
        return Batch(tuple(changed), tuple(gone), groups)

    def waste(self, group: str) -> int:
        """Servers that get its messages without being in it."""
        _, members = self._groups.get(group, ("", 0))
        return sum((self.views[number].nodes & ~members).bit_count() for number in self.of.get(group, ()))

    def _sign(self, one: tuple[str, int]) -> None:
        """Servers of the same signature are a region: their groups, and all that are hinted to belong with these."""
        kind, server = one
        groups = set(self._wanted.get(one, ()))
        if not groups:
            self._wanted.pop(one, None)
        if self._hinted:
            groups = {self._hinted.get(group, group) for group in groups}
        before = self._signed.pop(one, None)
        if before:
            self._parts[before] &= ~(1 << server)
            if not self._parts[before]:
                del self._parts[before]
        if groups:
            now = self._signed[one] = (kind, frozenset(groups))
            self._parts[now] = self._parts.get(now, 0) | 1 << server

    def _cover(self) -> list[tuple[str, int]]:
        """Servers by region. Of a group with too many, the two smallest become one until the bound holds: a region of
        all its servers is always possible."""
        parts = sorted(((kind, nodes) for (kind, _), nodes in self._parts.items()), key=_order)
        if not self.most:
            return parts
        masks = [nodes for _, nodes in parts]
        for group in sorted(self._groups):
            kind, members = self._groups[group]
            places = {i for i, nodes in enumerate(masks) if parts[i][0] == kind and nodes & members}
            while len(places) > self.most:
                into, gone = sorted(places, key=lambda place: (masks[place].bit_count(), place))[1::-1]
                masks[into] |= masks[gone]
                masks[gone] = 0
                places.discard(gone)
        return [(kind, nodes) for (kind, _), nodes in zip(parts, masks, strict=True) if nodes]

    def _renew(self, parts: Iterable[tuple[str, int]]) -> tuple[list[RegionView], list[int]]:
        """Each part goes on with the region that most of its servers were in; other regions end."""
        was = {(view.kind, server): view.region for view in self.views.values() for server in bits(view.nodes)}
        known = {(view.kind, view.nodes): view.region for view in self.views.values()}
        kept: dict[int, RegionView] = {}
        changed: list[RegionView] = []
        open_parts: list[tuple[str, int]] = []
        for part in parts:
            same = known.get(part)
            if same is None:
                open_parts.append(part)
            else:
                kept[same] = self.views[same]
                if part[1] & self._restarted:
                    kept[same] = self._view(same, *part)
                    changed.append(kept[same])
        for kind, nodes in sorted(open_parts, key=lambda part: (-part[1].bit_count(), _order(part))):
            votes: dict[int, int] = {}
            for server in bits(nodes):
                number = was.get((kind, server))
                if number is not None and number not in kept:
                    votes[number] = votes.get(number, 0) + 1
            number = max(votes, key=lambda one: (votes[one], -one)) if votes else self._new()
            kept[number] = self._view(number, kind, nodes)
            changed.append(kept[number])
        gone = sorted(self.views.keys() - kept.keys())
        self.views = kept
        return changed, gone

    def _new(self) -> int:
        self._last += 1
        return self._last

    def _view(self, number: int, kind: str, nodes: int) -> RegionView:
        self.first += 1
        return RegionView(number, self.first, kind, nodes)

    def _map(self, touched: set[int]) -> frozenset[str]:
        """Which regions the groups have that changed, or whose regions did."""
        concerned = self._changed | {group for number in touched for group in self.within.get(number, ())}
        by_kind: dict[str, list[RegionView]] = {}
        for view in self.views.values():
            by_kind.setdefault(view.kind, []).append(view)
        other = set[str]()
        for group in concerned:
            kind, members = self._groups.get(group, ("", 0))
            now = tuple(sorted(view.region for view in by_kind.get(kind, ()) if view.nodes & members))
            before = self.of.pop(group, ())
            for number in before:
                self.within[number].discard(group)
            for number in now:
                self.within.setdefault(number, set()).add(group)
            if group in self._groups:
                self.of[group] = now
            if now != before:
                other.add(group)
        for number in [one for one, groups in self.within.items() if not groups]:
            del self.within[number]
        return frozenset(other)


def _has(hint: frozenset[str], group: str) -> bool:
    return group in hint or any(one.endswith("*") and group.startswith(one[:-1]) for one in hint)


def _order(part: tuple[str, int]) -> tuple[str, int]:
    """By kind, then by the first server."""
    kind, nodes = part
    return kind, nodes & -nodes
