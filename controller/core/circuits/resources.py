"""The library that scheduling algorithms use (paper, Sec. III-B): availability of servers' ToR ports, OCS ports and
splitters, live circuits to reuse, and what a request would take.

`plan_circuit` and `plan_packet` say how a request can be served now, or what is in the way; `reserve` takes what a plan
needs. A scheduler gets a fork: what it reserves there is a proposal, which the manager carries out on the real one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from rostrum.controller.core.circuits import plan as circuit_plan
from rostrum.controller.core.circuits.circuits import Circuit, CircuitState, CircuitTable, Conflict, OcsState, OcsStatus
from rostrum.controller.core.circuits.plan import CircuitPlan
from rostrum.controller.core.circuits.splitters import Cascade, TorPort
from rostrum.controller.core.circuits.stale_rules import StaleRules
from rostrum.controller.core.light.health import Health
from rostrum.controller.core.packet import trees
from rostrum.controller.core.packet.fabric import Ends, Fabric
from rostrum.controller.core.packet.failed_links import FailedLinks
from rostrum.controller.core.packet.trees import RACK_TREES_MAX, Hop, NoTree, RackTrees, Tree
from rostrum.controller.core.requests.queue import Key
from rostrum.controller.core.text import listed
from rostrum.controller.core.values import Obstacle, ObstacleKind, PathRequest, Settings
from rostrum.controller.speed.cache import Cache
from rostrum.topologies.model import Topology

CASCADES_MAX: Final = 1 << 12
ENDS_MAX: Final = 1 << 8  # requests that are remembered so


@dataclass(frozen=True)
class PacketPlan:
    """A tree of packet switches, the rules for it, and the rate of its slowest link."""

    tree: Tree
    hops: tuple[Hop, ...]
    rate_bps: int


Plan = CircuitPlan | PacketPlan


@dataclass(frozen=True)
class Reservation:
    """What `reserve` took: a circuit (new or reused) and the idle circuits that had to go for it."""

    circuit: Circuit | None
    evicted: tuple[Circuit, ...]


class Resources:
    """What paths use and what is free: ports, circuits, splitters, packet trees. A scheduler gets a `fork`: it asks
    `plan_circuit`, `plan_packet` or `plan_share` for a plan, and what it reserves there keeps its own proposals apart.
    """

    def __init__(
        self,
        topology: Topology,
        settings: Settings,
        now: int = 0,
        like: Resources | None = None,
        keeps: bool = True,
    ) -> None:
        self.topology = topology
        self.settings = settings
        self._keeps = keeps
        self._look: Resources | None = None
        if like is not None:
            self._share(like)
            return
        self.fabric = Fabric(topology)
        self.failed = FailedLinks(self.fabric, settings.link_retry_ns)
        self.circuits = CircuitTable()
        self.health = Health(settings.quarantine_ns)
        self.switches_down: dict[str, str] = dict.fromkeys(topology.switches, "not connected yet")
        self.ports_down: dict[tuple[str, int], str] = {}  # (switch, port) -> as text
        self.stale_rules = StaleRules(topology)
        self.ocs: dict[str, OcsStatus] = {name: OcsStatus(OcsState.STARTING, now) for name in topology.ocs}
        self.ports = _ports(topology)
        tors = {one.tor for one in topology.servers.values()}
        self.everywhere = {name for name in topology.ocs if all((name, tor) in self.ports for tor in tors)}
        self.never: dict[tuple[str, int], Obstacle | None] = {}
        self._sending = _Shares("sending", settings.paths_per_server)
        self._receiving = _Shares("receiving", settings.paths_per_server)
        self.cascades: Cache[tuple[Cascade | None]] = Cache(CASCADES_MAX)  # found before: plan.py
        self.rack_trees: RackTrees = Cache(RACK_TREES_MAX)
        self._ends: dict[tuple[str, tuple[str, ...]], Ends] = {}  # who waits is planned for again
        self._serial = 0

    def _share(self, one: Resources) -> None:
        """Becomes a fork: all is shared but what is reserved."""
        self.fabric, self.failed, self.health = one.fabric, one.failed, one.health
        self.switches_down, self.ports_down, self.ocs = one.switches_down, one.ports_down, one.ocs
        self.stale_rules = one.stale_rules
        self.ports, self.never, self.everywhere = one.ports, one.never, one.everywhere
        self.cascades, self.rack_trees = one.cascades, one.rack_trees
        self._ends = one._ends
        self.circuits, self._sending, self._receiving = one.circuits, one._sending, one._receiving
        if self._keeps:
            self.circuits = self.circuits.fork()
            self._sending, self._receiving = self._sending.fork(), self._receiving.fork()
        self._serial = one._serial

    def fork(self) -> Resources:
        """A copy: what is reserved in it is not reserved here."""
        return Resources(self.topology, self.settings, like=self)

    def look(self) -> Resources:
        """For who decides about one request at a time: all is shared, and what is reserved there is not kept."""
        if self._look is None:
            self._look = Resources(self.topology, self.settings, like=self, keeps=False)
        return self._look

    def take_freed(self) -> set[Key]:
        """What became free since the last call."""
        freed: set[Key] = set()
        for one in (self.circuits.freed, self._sending.freed, self._receiving.freed):
            if one:
                freed |= one
                one.clear()
        return freed

    def any_free(self, keys: Iterable[Key]) -> bool:
        """Whether one of these is not in use."""
        for name, what, port in keys:
            if what in ("sending", "receiving"):
                if (self._sending if what == "sending" else self._receiving).free(name):
                    return True
                continue
            holder = self.circuits.holder(name, what, port)
            if holder is None or (isinstance(holder, Circuit) and not holder.users):
                return True
        return False

    def remote_racks(self, request: PathRequest) -> tuple[str, ...]:
        """ToRs of the receivers outside the sender's rack, sorted."""
        return self.ends(request).remote

    def ends(self, request: PathRequest) -> Ends:
        """Raises KeyError for who is no server."""
        key = (request.sender, request.receivers)
        found = self._ends.get(key)
        if found is None:
            if len(self._ends) >= ENDS_MAX:
                self._ends.clear()
            found = self._ends[key] = self.fabric.ends(request.sender, request.receivers)
        return found

    def plan_circuit(self, request: PathRequest, now: int) -> CircuitPlan | Obstacle:
        """A live circuit to reuse, or cross-connects to make; or what is in the way."""
        return self._common_obstacle(request) or circuit_plan.plan(self, request, now)

    def plan_share(self, request: PathRequest) -> CircuitPlan | None:
        """A place on a circuit that carries other paths: from the same rack, to all the wanted racks and perhaps more,
        with as much of its rate left as the request's slowest server can use.
        """
        return None if self._common_obstacle(request) else circuit_plan.share(self, request)

    def plan_packet(self, request: PathRequest, now: int) -> PacketPlan | Obstacle:
        """A tree through the packet network; or what is in the way."""
        return self._common_obstacle(request) or self.packet_tree(request)

    def packet_tree(self, request: PathRequest, avoid: Collection[str] = ()) -> PacketPlan | Obstacle:
        """As `plan_packet`, for a path that has its share of the servers' ports already; around the switches in
        `avoid`.
        """
        down: list[str] = []
        if self.switches_down:
            tors = self.ends(request).tors
            down = [name for name in self.switches_down if name not in tors]
        try:
            tree = self._tree(request, {*down, *avoid} if down or avoid else ())
        except NoTree as error:
            if not down and self.ports_down:
                text = f"{error}: {'; '.join(sorted(self.ports_down.values())[:3])}"
                return Obstacle(ObstacleKind.PORT_DOWN, text)
            if not down:
                return Obstacle(ObstacleKind.UNREACHABLE, f"{error}: no packet links lead there", ever=not avoid)
            return Obstacle(ObstacleKind.DEVICE_DOWN, f"{error}: waiting for {listed(down)} to connect")
        return PacketPlan(tree, tree.hops, tree.rate_bps)

    def _tree(self, request: PathRequest, avoid: Collection[str]) -> Tree:
        """Around failed links unless nothing else leads there. Raises NoTree."""
        ends, failed = self.ends(request), self.failed.links
        if failed:
            with suppress(NoTree):
                return trees.build(self.fabric, ends, avoid, self.ports_down, failed)
        kept = None if avoid or self.ports_down else self.rack_trees
        return trees.build(self.fabric, ends, avoid, self.ports_down, kept=kept)

    def reserve(self, path_id: str, request: PathRequest, plan: Plan, now: int) -> Reservation:
        """Takes what the plan needs. Raises Conflict, and changes nothing, if something of it was taken since."""
        reservation = Reservation(None, ())
        if not self._keeps:
            return reservation
        if isinstance(plan, CircuitPlan):
            reservation = self._reserve_circuit(path_id, plan, now)
        self.share_ports(path_id, request.sender, request.receivers)
        return reservation

    def share_ports(self, path_id: str, sender: str, receivers: Iterable[str]) -> None:
        self._sending.add((sender,), path_id)
        self._receiving.add(receivers, path_id)

    def release(self, path_id: str, sender: str, receivers: Iterable[str], now: int) -> None:
        """Everything the path held is free again; its circuit stays, idle."""
        self.leave_ports(path_id, sender, receivers)
        self.leave_circuit(path_id, now)

    def leave_ports(self, path_id: str, sender: str, receivers: Iterable[str]) -> None:
        self._sending.remove((sender,), path_id)
        self._receiving.remove(receivers, path_id)

    def leave_circuit(self, path_id: str, now: int) -> Circuit | None:
        return self.circuits.leave(path_id, now)

    def next_circuit_id(self) -> str:
        self._serial += 1
        return f"c-{self._serial}"

    def known_serial(self, circuit_id: str) -> None:
        """Ids made from now on differ from this one, an earlier manager's."""
        number = circuit_id.rpartition("-")[2]
        self._serial = max(self._serial, int(number) if number.isdecimal() else 0)

    def _reserve_circuit(self, path_id: str, plan: CircuitPlan, now: int) -> Reservation:
        if plan.reuse is not None:
            return Reservation(self.circuits.use(plan.reuse, path_id, now, plan.rate_bps, plan.share), ())
        for circuit_id in plan.evict:
            victim = self.circuits.get(circuit_id)
            if victim is None or victim.users:
                raise Conflict(f"circuit {circuit_id} is gone or in use")
        made = Circuit(self.next_circuit_id(), plan.ocs, plan.cascade, CircuitState.SETTING, 0, (path_id,), now)
        self.circuits.check(made, plan.evict)
        evicted = tuple(self.circuits.drop(circuit_id) for circuit_id in plan.evict)
        self.circuits.add(made, plan.rate_bps)
        return Reservation(made, evicted)

    def _common_obstacle(self, request: PathRequest) -> Obstacle | None:
        tors = self.ends(request).tors if self.switches_down else set()
        down = [name for name in self.switches_down if name in tors]
        if down:
            text = f"waiting for {listed(down)} to connect ({self.switches_down[sorted(down)[0]]})"
            return Obstacle(ObstacleKind.DEVICE_DOWN, text)
        for name in (request.sender, *request.receivers) if self.ports_down else ():
            if cause := self.cut_off(name):
                return Obstacle(ObstacleKind.PORT_DOWN, f"waiting for {name}'s link: {cause}")
        if not self._sending.free(request.sender):
            name, (count, users) = request.sender, self._sending.of(request.sender)
            text = f"waiting for {name}'s port: it sends on {count} paths already ({listed(users, 4)})"
            return Obstacle(ObstacleKind.SERVER_PORT, text, blockers=((name, "sending", 0),))
        for name in self._receiving.full(request.receivers):
            count, users = self._receiving.of(name)
            text = f"waiting for {name}'s port: it receives from {count} paths already ({listed(users, 4)})"
            return Obstacle(ObstacleKind.SERVER_PORT, text, blockers=((name, "receiving", 0),))
        return None

    def cut_off(self, server: str) -> str:
        """Why nothing gets to or from a server; empty = its port is up."""
        one = self.topology.servers[server]
        return self.ports_down.get((one.tor, one.tor_port), "")

    def in_use(self) -> set[str]:
        """Ids of all paths that hold anything."""
        users = {path_id for circuit in self.circuits for path_id in circuit.users}
        return users | self._sending.everybody() | self._receiving.everybody()

    def set_ocs(self, name: str, state: OcsState, now: int, cause: str = "") -> None:
        self.ocs[name] = replace(self.ocs[name], state=state, since=now, cause=cause)


def _ports(topology: Topology) -> dict[tuple[str, str], list[TorPort]]:
    """(OCS, ToR) -> the OCS ports that ToR is cabled to."""
    ports: dict[tuple[str, str], list[TorPort]] = {}
    for ocs in topology.ocs.values():
        for number, end in sorted(ocs.attached.items()):
            ports.setdefault((ocs.name, end.node), []).append(TorPort(end.node, end.port, number))
    return ports


class _Shares:
    """Which paths share each server's port, in one direction; at most `limit` each. A fork only counts what it adds."""

    def __init__(self, what: str, limit: int) -> None:
        self._what, self._limit = what, limit
        self._users: dict[str, dict[str, None]] = {}
        self._crowded: set[str] = set()  # who has as many as may be
        self._more: dict[str, int] | None = None  # of a fork
        self.freed: set[Key] = set()

    def fork(self) -> _Shares:
        copy = _Shares(self._what, self._limit)
        copy._users, copy._crowded, copy._more = self._users, self._crowded, dict(self._more or {})
        return copy

    def free(self, name: str) -> bool:
        users = self._users.get(name)
        more = self._more.get(name, 0) if self._more else 0
        return (len(users) if users else 0) + more < self._limit

    def full(self, names: Iterable[str]) -> list[str]:
        if self._more:
            return [name for name in names if not self.free(name)]
        return [name for name in names if name in self._crowded] if self._crowded else []

    def of(self, name: str) -> tuple[int, list[str]]:
        """How many paths, and their ids as far as they are known."""
        users = list(self._users.get(name, ()))
        return len(users) + (self._more or {}).get(name, 0), users

    def add(self, names: Iterable[str], path_id: str) -> None:
        for name in names:
            if self._more is not None:
                self._more[name] = self._more.get(name, 0) + 1
                continue
            users = self._users.get(name)
            if users is None:
                users = self._users[name] = {}
            users[path_id] = None
            if len(users) >= self._limit:
                self._crowded.add(name)

    def remove(self, names: Iterable[str], path_id: str) -> None:
        for name in names:
            if self._more is not None:
                self._more[name] = self._more.get(name, 0) - 1
                continue
            users = self._users.get(name)
            if users is None or path_id not in users:
                continue
            del users[path_id]
            if self._crowded and name in self._crowded and len(users) < self._limit:
                self._crowded.discard(name)
                self.freed.add((name, self._what, 0))
            if not users:
                del self._users[name]

    def everybody(self) -> set[str]:
        return {path_id for users in self._users.values() for path_id in users}
