"""Groups mapped to regions of nodes (QSM, Sec. 2.1): the membership service's two levels, pure.

A region is the nodes that are in the same groups. Group views and region views are immutable and versioned: a group
view maps to region views, and these to nodes. Changes are gathered, and one batch makes at most one new view of each
region and group, however many changes there were; each node is told only of what it is in or publishes to, and only
what is new to it. Where overlap is irregular, a cover keeps a group's regions few: a region may then serve groups that
some of its nodes are not in, and these drop what they get of them (`waste` tells how many).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

NO_ADDRESS = 0  # a region of a single receiver, or one for which the pool has none: by unicast


@dataclass(frozen=True)
class RegionView:
    """`address`: number of a multicast address of the pool, or NO_ADDRESS. `nodes`: ascending."""

    region: int
    version: int
    address: int
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class RegionGroupView:
    """`regions`: numbers and versions. `waste`: nodes in these regions that are not in the group."""

    group: str
    version: int
    regions: tuple[tuple[int, int], ...]
    members: frozenset[int]
    publishers: frozenset[int]
    waste: int


@dataclass(frozen=True)
class Told:
    """What one node is told by one batch; `gone`: regions and groups that are no more of its business."""

    regions: tuple[RegionView, ...]
    groups: tuple[RegionGroupView, ...]
    gone_regions: tuple[int, ...]
    gone_groups: tuple[str, ...]


@dataclass
class Regions:
    """`take`, `give`: addresses of the bounded pool; `take` may have none. `most`: regions of a group, 0 for no bound.
    `hints`: sets of groups that overlap by design: nodes in any of a set's groups are of one region.
    """

    take: Callable[[], int | None]
    give: Callable[[int], None]
    most: int = 0
    hints: tuple[frozenset[str], ...] = ()
    groups: dict[str, RegionGroupView] = field(default_factory=dict)
    regions: dict[int, RegionView] = field(default_factory=dict)
    _wanted: dict[int, set[str]] = field(default_factory=dict)  # node -> groups that it is a member of
    _publishes: dict[int, set[str]] = field(default_factory=dict)
    _dirty: set[int] = field(default_factory=set)
    _changed: set[str] = field(default_factory=set)  # groups whose publishers changed
    _known: dict[int, tuple[dict[int, int], dict[str, int]]] = field(default_factory=dict)  # node -> versions told
    _last: int = 0

    def join(self, node: int, groups: Iterable[str]) -> None:
        self._wanted.setdefault(node, set()).update(groups)
        self._dirty.add(node)

    def leave(self, node: int, groups: Iterable[str]) -> None:
        self._wanted.get(node, set()).difference_update(groups)
        self._dirty.add(node)

    def crash(self, node: int) -> None:
        """The failure detector's word: it is in no group any more. If it lives, it joins again, and is told all."""
        self._changed.update(self._publishes.pop(node, ()))
        self._wanted.pop(node, None)
        self._known.pop(node, None)
        self._dirty.add(node)

    def publish(self, node: int, groups: Iterable[str]) -> None:
        """It publishes to them without being a member."""
        wanted = set(groups)
        self._publishes.setdefault(node, set()).update(wanted)
        self._changed.update(wanted)

    def unpublish(self, node: int, groups: Iterable[str]) -> None:
        wanted = set(groups)
        self._publishes.get(node, set()).difference_update(wanted)
        self._changed.update(wanted)

    @property
    def changed(self) -> bool:
        return bool(self._dirty or self._changed)

    def batch(self) -> dict[int, Told]:
        """All that changed since the last one becomes new views; node -> what it is told."""
        if not self.changed:
            return {}
        members: dict[str, set[int]] = {}
        for node, groups in self._wanted.items():
            for group in groups:
                members.setdefault(group, set()).add(node)
        parts = self._cover(members)
        self._renew_regions(parts)
        self._renew_groups(members)
        self._dirty.clear()
        self._changed.clear()
        return self._tell()

    def _signature(self, node: int) -> frozenset[str]:
        """Nodes of the same one are a region: their groups, and all that are hinted to belong with these."""
        groups = set(self._wanted[node])
        for hint in self.hints:
            if groups & hint:
                groups |= hint
        return frozenset(groups)

    def _cover(self, members: Mapping[str, set[int]]) -> list[set[int]]:
        """Nodes by region. Of a group with too many, the two smallest become one until the bound holds: a region of all
        its nodes is always possible."""
        by_signature: dict[frozenset[str], set[int]] = {}
        for node, groups in self._wanted.items():
            if groups:
                by_signature.setdefault(self._signature(node), set()).add(node)
        parts = sorted(by_signature.values(), key=min)
        of_node = {node: place for place, part in enumerate(parts) for node in part}
        for group in sorted(members):
            places = {of_node[node] for node in members[group]}
            while self.most and len(places) > self.most:
                into, gone = sorted(places, key=lambda place: (len(parts[place]), place))[1::-1]
                parts[into] |= parts[gone]
                of_node.update(dict.fromkeys(parts[gone], into))
                parts[gone] = set()
                places.discard(gone)
        return [part for part in parts if part]

    def _renew_regions(self, parts: list[set[int]]) -> None:
        """Each part goes on with the region that most of its nodes were in; other regions end."""
        was = {node: view.region for view in self.regions.values() for node in view.nodes}
        kept: dict[int, RegionView] = {}
        for part in sorted(parts, key=lambda nodes: (-len(nodes), min(nodes))):
            votes: dict[int, int] = {}
            for node in part:
                if node in was and was[node] not in kept:
                    votes[was[node]] = votes.get(was[node], 0) + 1
            number = max(votes, key=lambda one: (votes[one], -one)) if votes else 0
            before = self.regions.get(number)
            nodes = tuple(sorted(part))
            if before and before.nodes == nodes:
                kept[number] = before
                continue
            if not before:
                self._last += 1
                number = self._last
            address = before.address if before else NO_ADDRESS
            if len(nodes) > 1 and address == NO_ADDRESS:
                address = self.take() or NO_ADDRESS
            elif len(nodes) == 1 and address != NO_ADDRESS:
                self.give(address)
                address = NO_ADDRESS
            kept[number] = RegionView(number, before.version + 1 if before else 1, address, nodes)
        for number, view in self.regions.items():
            if number not in kept and view.address != NO_ADDRESS:
                self.give(view.address)
        self.regions = kept

    def _renew_groups(self, members: Mapping[str, set[int]]) -> None:
        where = {node: view for view in self.regions.values() for node in view.nodes}
        publishers: dict[str, set[int]] = {}
        for node, groups in self._publishes.items():
            for group in groups:
                publishers.setdefault(group, set()).add(node)
        renewed: dict[str, RegionGroupView] = {}
        for group in {*members, *publishers}:
            own = members.get(group, set())
            views = {where[node].region: where[node] for node in own}
            regions = tuple((number, views[number].version) for number in sorted(views))
            waste = sum(len(view.nodes) for view in views.values()) - len(own)
            others = frozenset(publishers.get(group, set()) - own)
            before = self.groups.get(group)
            now = (regions, frozenset(own), others)
            if before and (before.regions, before.members, before.publishers) == now:
                renewed[group] = before
            else:
                version = before.version + 1 if before else 1
                renewed[group] = RegionGroupView(group, version, *now, waste)
        self.groups = renewed

    def _tell(self) -> dict[int, Told]:
        concerns: dict[int, tuple[dict[int, int], dict[str, int]]] = {}
        for group, view in self.groups.items():
            for node in view.members | view.publishers:
                regions, groups = concerns.setdefault(node, ({}, {}))
                groups[group] = view.version
                regions.update(view.regions)
        told: dict[int, Told] = {}
        for node in {*concerns, *self._known}:
            regions, groups = concerns.get(node, ({}, {}))
            old_regions, old_groups = self._known.get(node, ({}, {}))
            news = Told(
                tuple(self.regions[number] for number in sorted(regions) if old_regions.get(number) != regions[number]),
                tuple(self.groups[name] for name in sorted(groups) if old_groups.get(name) != groups[name]),
                tuple(sorted(set(old_regions) - set(regions))),
                tuple(sorted(set(old_groups) - set(groups))),
            )
            if news.regions or news.groups or news.gone_regions or news.gone_groups:
                told[node] = news
        self._known = concerns
        return told
