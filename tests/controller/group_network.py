"""Networks with several roots for tests of message groups, and agents that keep views as the interface says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.groups.values import (
    Engine,
    EngineOption,
    GroupFacts,
    GroupOptions,
    GroupRegion,
    GroupUse,
    GroupView,
)
from rostrum.controller.core.values import Settings
from rostrum.topologies.model import End, Link, Server, Switch, Topology

from tests.controller.timeline import Timeline, hybrid

ENGINES = (
    Engine("plain"),
    Engine(
        "ricochet",
        (
            EngineOption("r", 1000, 32_000, 8000),
            EngineOption("c", 0, 64_000, 5000, fraction=True),
            EngineOption("stagger", 1000, 64_000, 1000),
        ),
    ),
)


def spine(racks: int, servers: int, cores: int, southbound: str = "openflow") -> Topology:
    """Racks that are all connected to all cores."""
    cables = [(f"tor{r}", f"core{c}") for r in range(racks) for c in range(cores)]
    return network(
        {f"tor{r}": servers for r in range(racks)}, [f"core{c}" for c in range(cores)], (), cables, southbound
    )


def fat_tree(k: int) -> Topology:
    """k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 cores, k/2 servers at each edge switch."""
    half = k // 2
    edges = {f"edge{p}.{e}": half for p in range(k) for e in range(half)}
    between = [f"agg{p}.{a}" for p in range(k) for a in range(half)]
    cores = [f"core{c}" for c in range(half * half)]
    cables = [(f"edge{p}.{e}", f"agg{p}.{a}") for p in range(k) for e in range(half) for a in range(half)]
    cables += [(f"agg{p}.{a}", f"core{a * half + c}") for p in range(k) for a in range(half) for c in range(half)]
    return network(edges, cores, between, cables)


def network(
    racks: dict[str, int],
    cores: Iterable[str],
    between: Iterable[str],
    cables: Iterable[tuple[str, str]],
    southbound: str = "openflow",
) -> Topology:
    """`racks`: top-of-rack switch -> servers in it."""
    rate = 10**9
    kinds = {**dict.fromkeys(racks, "tor"), **dict.fromkeys(between, "core"), **dict.fromkeys(cores, "core")}
    switches = {name: Switch(name, role, southbound, i + 1) for i, (name, role) in enumerate(kinds.items())}
    servers, links = {}, []
    for tor, count in racks.items():
        for _ in range(count):
            number, port = len(servers) + 1, len(switches[tor].neighbours) + 1
            address = IPv4Address("10.0.0.0") + number
            server = Server(f"h{number}", address, address + 2**16, tor, port, rate)
            servers[server.name] = server
            switches[tor].neighbours[port] = End(server.name, 0)
    for a, b in cables:
        ends = [End(name, len(switches[name].neighbours) + 1) for name in (a, b)]
        switches[a].neighbours[ends[0].port] = ends[1]
        switches[b].neighbours[ends[1].port] = ends[0]
        links.append(Link(ends[0], ends[1], rate))
    for one in switches.values():
        one.rates.update(dict.fromkeys(one.neighbours, rate))
    return replace(
        hybrid(),
        name="several roots",
        multicast=IPv4Network("239.192.0.0/16"),
        switches=switches,
        servers=servers,
        links=tuple(links),
        ocs={},
    )


@dataclass
class Held:
    """A group as an agent holds it."""

    facts: GroupFacts
    version: int
    members: set[int]
    senders: set[int]
    listens: tuple[int, ...] | None = None
    rejoined: bool = False


@dataclass
class HeldRegion:
    """A region as an agent holds it; `nodes`: ids of peers."""

    version: int
    address: IPv4Address | None
    nodes: set[int]


@dataclass
class Listener:
    """An agent that follows its views. A delta that does not fit is a failed test."""

    server: str
    boot: int = 1
    peers: dict[int, tuple[str, int]] = field(default_factory=dict)  # id -> (name, boot)
    groups: dict[str, Held] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    regions: dict[int, HeldRegion] = field(default_factory=dict)
    calls: int = 0
    views: int = 0

    def hear(self, push: act.PushGroups) -> None:
        self.calls += 1
        for peer in push.peers:
            self.peers[peer.id] = (peer.server, peer.boot_id)
        for region in push.regions:
            self._take_region(region)
        for view in push.views:
            self._take(view)

    def _take_region(self, told: GroupRegion) -> None:
        assert {*told.nodes} <= self.peers.keys(), f"{self.server} does not know these peers: {told}"
        if told.base_version is None:
            self.regions.pop(told.region, None)
            if told.nodes:
                self.regions[told.region] = HeldRegion(told.version, told.address, set(told.nodes))
            return
        held = self.regions[told.region]
        assert held.version == told.base_version, f"{self.server} has version {held.version}, not the base of {told}"
        held.version, held.nodes = told.version, (held.nodes - {*told.gone}) | {*told.nodes}

    def _take(self, view: GroupView) -> None:
        self.views += 1
        assert {*view.members, *view.senders} <= self.peers.keys(), f"{self.server} does not know these peers: {view}"
        if view.base_version is None:
            assert view.facts and not view.gone
            assert set(view.facts.regions or ()) <= self.regions.keys(), "regions come before groups that name them"
            self.names[view.id] = view.facts.group
            members, senders = set(view.members), set(view.senders)
            self.groups[view.facts.group] = Held(
                view.facts, view.version, members, senders, view.listens, view.rejoined
            )
            return
        held = self.groups[self.names[view.id]]
        assert held.version == view.base_version, f"{self.server} has version {held.version}, not the base of {view}"
        held.version, held.facts = view.version, view.facts or held.facts
        held.members = (held.members - {*view.senders, *view.gone}) | {*view.members}
        held.senders = (held.senders - {*view.members, *view.gone}) | {*view.senders}


class GroupLine(Timeline):
    """A timeline with a listener on every server."""

    def __init__(self, topology: Topology | None = None, settings: Settings | None = None, up: bool = True) -> None:
        self.listeners: dict[str, Listener] = {}
        super().__init__(topology, settings, up)

    def do(self, event: ev.Event) -> list[act.Action]:
        done = super().do(event)
        for action in done:
            if isinstance(action, act.PushGroups | act.RefuseGroup):
                core = self.manager.core
                listener = self.listeners.get(action.server)
                if listener is None or not core.agents[action.server].connected:
                    continue
                if isinstance(action, act.PushGroups):
                    listener.hear(action)
                else:
                    listener.refused[action.group] = action.reason
                    listener.groups.pop(action.group, None)
        return done

    def up(self, *servers: str, boot: int = 1, port: int = 7071, knows: tuple[Engine, ...] = ENGINES) -> None:
        for name in servers:
            old = self.listeners.get(name)
            self.listeners[name] = Listener(name, boot)
            if old and old.boot == boot:
                self.listeners[name].groups = old.groups
            self.do(ev.AgentUp(name, boot, port, group_engines=knows))

    def join(self, group: str, *servers: str, options: GroupOptions | None = None, use: GroupUse | None = None) -> None:
        for name in servers:
            if name not in self.listeners:
                self.up(name)
            self.do(ev.GroupJoined(name, use or GroupUse(group, options)))

    def use(self, group: str, *servers: str) -> None:
        for name in servers:
            if name not in self.listeners:
                self.up(name)
            self.do(ev.GroupJoined(name, GroupUse(group), sends_only=True))

    def leave(self, group: str, *servers: str, sends_only: bool = False) -> None:
        for name in servers:
            self.do(ev.GroupLeft(name, group, sends_only))

    def alive(self) -> None:
        """Every agent that is connected says so."""
        for name, agent in self.manager.core.agents.items():
            if agent.connected:
                self.do(ev.KeepAlive(name))

    def wait_alive(self, ms: float) -> None:
        """Time passes, and the agents that are connected keep their leases."""
        for _ in range(max(1, round(ms / 1000))):
            self.wait(min(ms, 1000))
            self.alive()

    def members(self, group: str) -> set[str]:
        core = self.manager.core
        return set(core.members.places.named(core.members.groups[group].members))

    def senders(self, group: str) -> set[str]:
        core = self.manager.core
        return set(core.members.places.named(core.members.groups[group].senders))

    def assert_told(self) -> None:
        """Everybody holds the newest view of all its groups: the right members and senders, address, peers."""
        core = self.manager.core
        for group in core.members.groups.values():
            members, senders = self.members(group.name), self.senders(group.name)
            for name in members | senders:
                listener = self.listeners[name]
                held = listener.groups[group.name]
                shared = core.members.sharing.at[group.id]
                assert held.facts == GroupFacts(group.name, shared.address, core.topology.data_port, group.options)
                named = {listener.peers[one][0] for one in held.members}
                publishing = {listener.peers[one][0] for one in held.senders}
                assert held.version == group.version
                assert (named, publishing) == (members, senders)
                for one in (*held.members, *held.senders):
                    peer, boot = listener.peers[one]
                    assert boot == core.agents[peer].boot_id

    def assert_delivered(self) -> None:
        """Every member gets every sender's packet exactly once; others at most once, and as many as `waste` says."""
        core = self.manager.core
        for group in core.members.groups.values():
            members, senders = self.members(group.name), self.senders(group.name)
            shared = core.members.sharing.at.get(group.id)
            for sender in members | senders if shared else ():
                copies = self.network.deliver(sender, shared.address)
                assert set(copies.values()) <= {1}, f"{group.name} from {sender}: {copies}"
                assert members - {sender} <= copies.keys(), (
                    f"{group.name} from {sender} misses {members - copies.keys()}"
                )
                extra = copies.keys() - members
                assert len(extra) <= core.members.sharing.waste(group.id)

    def assert_within_budget(self) -> None:
        """On the switches themselves that can be told anything, paths' rules not counted."""
        sharing = self.manager.core.members.sharing
        for name in self.network.tables.keys() - self.manager.core.resources.switches_down.keys():
            table = self.network.tables[name]
            held = sum(sharing.cost[name] for in_port, _ in table if in_port == 0)
            assert held <= sharing.entries(name) <= sharing.budget, name
