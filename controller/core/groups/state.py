"""Message groups as the manager holds them, and the views made of them. Sets of servers are int masks."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.groups.addresses import Groups
from rostrum.controller.core.groups.regions import Regions
from rostrum.controller.core.groups.sharing import Sharing
from rostrum.controller.core.groups.trees import Places, bits
from rostrum.controller.core.groups.trouble import Trouble
from rostrum.controller.core.groups.values import Engine, GroupFacts, GroupOptions, GroupPeer, GroupRegion, GroupView
from rostrum.controller.core.values import Settings
from rostrum.topologies.model import Topology

IDS_PER_PUSH = 20_000  # ids of peers in one call, about; a frame may have 1 MiB
VIEWS_PER_PUSH = 1_000
REGIONS_PER_GROUP = 8  # each of its messages is sent once to each of them
ADDRESSES_SHARE = 2  # groups take at most one in so many addresses of the multicast range: paths need some too


@dataclass(eq=False)
class Group:
    """`members`, `uses` (who publish without receiving, or will when they leave): as they are. `told_*`: as in the view
    of `version`, the last one told.

    `fresh`: to be told the whole view. `reborn`: restarted, or out of it, since the last view. `kept`: made by REST,
    stays when it is empty. `lately`: left it a moment ago, and may publish again. `held_until`: an earlier manager had
    it, and its members have not all come back: no view before that.

    `more`: addresses of further channels, of protocols that use several; `listens`: of servers that listen at some of
    the channels only, which. `regional`: its protocol has regions, and these have the addresses.
    """

    name: str
    id: int
    options: GroupOptions
    kept: bool
    regional: bool = False
    members: int = 0
    uses: int = 0
    version: int = 0
    told_members: int = 0
    told_senders: int = 0
    told_facts: GroupFacts | None = None
    fresh: int = 0
    reborn: int = 0
    lately: int = 0
    held_until: int = 0
    more: tuple[IPv4Address, ...] = ()
    listens: dict[int, tuple[int, ...]] = field(default_factory=dict)
    told_listens: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def senders(self) -> int:
        """Who only publish."""
        return self.uses & ~self.members

    @property
    def everybody(self) -> int:
        return self.members | self.uses

    def view(self, members: int, senders: int, facts: GroupFacts) -> dict[int, GroupView]:
        """Makes the next view, of these members and senders; server's number -> what it is told."""
        everybody = members | senders
        changed = facts if facts != self.told_facts else None
        new_members = members & (~self.told_members | self.reborn)
        new_senders = senders & (~self.told_senders | self.reborn)
        gone = (self.told_members | self.told_senders) & ~everybody
        moved = {
            server
            for server in self.listens.keys() | self.told_listens.keys()
            if self.listens.get(server) != self.told_listens.get(server)
        }
        self.fresh |= sum(1 << server for server in moved)
        fresh, base = self.fresh & everybody, self.version
        if moved or changed or new_members or new_senders or gone:
            self.version += 1
        # Who was not in the last view has nothing that a delta could change. Publishers are told who the members are
        # too: what these ask for, and how far they say they are, counts; nobody else's report does. Those who are in it
        # hear of a new publisher before it is told that it may publish.
        whole = (fresh | new_members | new_senders) & self.everybody
        views: dict[int, GroupView] = {}
        if base != self.version and (rest := everybody & self.everybody & ~whole):
            delta = GroupView(self.id, self.version, base, changed, ids(new_members), ids(new_senders), ids(gone))
            views |= dict.fromkeys(bits(rest), delta)
        if told := whole & everybody:
            full = GroupView(self.id, self.version, None, facts, ids(members), ids(senders))
            views |= dict.fromkeys(bits(told & members), full)
            views |= dict.fromkeys(bits(told & senders), full)
            if rejoined := told & new_members & self.reborn:
                views |= dict.fromkeys(bits(rejoined), replace(full, rejoined=True))
        for server in views.keys() & self.listens.keys():
            views[server] = replace(views[server], listens=self.listens[server])
        self.told_members, self.told_senders, self.told_facts = members, senders, facts
        self.told_listens = dict(self.listens)
        self.fresh &= ~everybody
        self.reborn &= ~everybody
        return views


def ids(servers: int) -> tuple[int, ...]:
    """Peers' ids: numbers from 1."""
    return tuple(place + 1 for place in bits(servers))


@dataclass
class Flush:
    """Changes under way: groups as they are to be told (members, senders, address) when the rules are in, or at
    `until`, and regions whose views are to be told by then; `ops`: orders not yet answered; `away`: switches that get
    theirs when they are back and have been read.
    """

    until: int
    groups: dict[str, tuple[int, int, IPv4Address]] = field(default_factory=dict)
    regions: set[int] = field(default_factory=set)
    ops: set[int] = field(default_factory=set)
    away: set[str] = field(default_factory=set)


@dataclass
class ToldRegion:
    """A region as it was last told, and the servers whose agents hold that, by their connections."""

    version: int
    address: IPv4Address | None
    kind: str
    nodes: int
    knows: int = 0


@dataclass
class Outbox:
    """Views to be pushed, and the peers that agents have been told of on their connections."""

    places: Places
    told: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, list[GroupView]] = field(default_factory=dict)
    waiting_regions: dict[int, list[GroupRegion]] = field(default_factory=dict)

    def add(self, views: dict[int, GroupView]) -> None:
        for server, view in views.items():
            self.waiting.setdefault(server, []).append(view)

    def add_regions(self, servers: int, view: GroupRegion) -> None:
        for server in bits(servers):
            self.waiting_regions.setdefault(server, []).append(view)

    def forget(self, server: int) -> None:
        """A new connection: it knows nobody."""
        self.told.pop(server, None)

    def moved(self, server: int) -> None:
        """Its address or port changed: whoever was told of it is told again."""
        for other in self.told:
            self.told[other] &= ~(1 << server)

    def take(self, agents: Mapping[str, tuple[int, int]], default_port: int) -> list[act.PushGroups]:
        """`agents`: server -> (port, boot id)."""
        pushes = []
        for server, regions in self.waiting_regions.items():
            some: list[GroupRegion] = []
            size = 0
            for region in regions:
                if some and (size + len(region.nodes) > IDS_PER_PUSH or len(some) >= VIEWS_PER_PUSH):
                    pushes.append(self._push(server, [], agents, default_port, some))
                    some, size = [], 0
                some.append(region)
                size += len(region.nodes) + len(region.gone)
            pushes.append(self._push(server, [], agents, default_port, some))
        self.waiting_regions = {}
        for server, views in self.waiting.items():
            batch: list[GroupView] = []
            size = 0
            for view in views:
                named = len(view.members) + len(view.senders) + len(view.gone)
                if batch and (size + named > IDS_PER_PUSH or len(batch) >= VIEWS_PER_PUSH):
                    pushes.append(self._push(server, batch, agents, default_port))
                    batch, size = [], 0
                batch.append(view)
                size += named
            pushes.append(self._push(server, batch, agents, default_port))
        self.waiting = {}
        return pushes

    def _push(
        self,
        server: int,
        views: list[GroupView],
        agents: Mapping[str, tuple[int, int]],
        default_port: int,
        regions: Sequence[GroupRegion] = (),
    ) -> act.PushGroups:
        told = self.told.get(server, 0)
        peers = []
        named = [(*view.members, *view.senders) for view in views] + [region.nodes for region in regions]
        for some in named:
            for one in some:
                if not told >> (one - 1) & 1:
                    told |= 1 << (one - 1)
                    name = self.places.names[one - 1]
                    port, boot_id = agents.get(name, (default_port, 0))
                    peers.append(GroupPeer(one, name, self.places.topology.servers[name].address, port, boot_id))
        self.told[server] = told
        return act.PushGroups(self.places.names[server], tuple(peers), tuple(views), tuple(regions))


class Membership:
    """All groups. Handlers are in membership.py."""

    def __init__(self, topology: Topology, settings: Settings, addresses: Groups, now: int) -> None:
        self.since = now
        self.places = Places(topology)
        room = addresses.room // ADDRESSES_SHARE
        self.sharing = Sharing(
            topology, self.places, settings.group_rules, settings.level, addresses.take, addresses.give_back, room
        )
        self.regions = Regions(most=REGIONS_PER_GROUP, hints=tuple(map(frozenset, topology.regions)))
        self.told_regions: dict[int, ToldRegion] = {}
        self.moved_regions: set[int] = set()  # to have another address
        self.unplaced_regions: dict[int, None] = {}  # without an address; who was tried is last
        self.place_at: int | None = None  # they are tried again then
        # By kind of region: when servers' groups changed, first and last, while these keep the regions they are in.
        self.settling: dict[str, tuple[int, int]] = {}
        self.settle_at: int | None = None  # they get those that fit then
        self.groups: dict[str, Group] = {}
        self.engines: dict[str, Engine] = {}  # protocols that agents told of, as the last one has them
        self.of_server: dict[int, dict[str, None]] = {}  # names of the groups a server is in
        self.trouble: dict[str, Trouble] = {}  # of groups with guarantees that somebody held up
        self.dirty: dict[str, None] = {}
        self.flush_at: int | None = None
        self.gathered_from = self.changed_at = 0  # the first and the last change that the next flush has
        self.flush: Flush | None = None
        self.ops: set[int] = set()  # orders not yet answered, of earlier flushes too
        self.outbox = Outbox(self.places)
        self.lapsed: dict[int, list[ev.GroupJoined]] = {}  # silent for their leases: what they were in
        self.unconfirmed: dict[int, tuple[set[str], int]] = {}  # came back: groups not told again -> until when
        self.empty: dict[str, int] = {}  # groups without anybody -> when they go
        self.held: dict[str, int] = {}
        self.lately: dict[tuple[str, int], int] = {}  # (group, server that left) -> until when it is in Group.lately
        self.tidy_at: int | None = None
        self.relieve_at: int | None = None
        self.unsure: dict[str, tuple[int, int]] = {}  # switches that failed an order: (read again at, wait before that)
        self.down: dict[str, int] = {}  # switches -> when their roots are given up
        self.bad_roots: frozenset[str] = frozenset()
        self.timers: list[int] = []
        self.ids: set[int] = set()
        self.next_id = 1

    def wake_at(self, when: int) -> None:
        """Asks for `membership.expire` then."""
        heapq.heappush(self.timers, when)

    def take_id(self, wanted: int = 0) -> int:
        """`wanted` if nobody has it."""
        if not 0 < wanted < 1 << 31 or wanted in self.ids:
            while self.next_id in self.ids:
                self.next_id += 1
            wanted = self.next_id
        self.next_id = max(self.next_id, wanted + 1) if wanted < 1 << 30 else self.next_id
        self.ids.add(wanted)
        return wanted
