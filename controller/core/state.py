"""The manager's state, and the small steps that all its handlers share."""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from itertools import chain
from typing import TYPE_CHECKING

from rostrum.controller.core import actions as act
from rostrum.controller.core import schedulers
from rostrum.controller.core.circuits.circuits import FOREVER, Circuit, Foreign
from rostrum.controller.core.circuits.resources import Resources
from rostrum.controller.core.groups.addresses import Groups
from rostrum.controller.core.groups.state import Membership
from rostrum.controller.core.groups.values import Engine
from rostrum.controller.core.model import MulticastRule, Pair, PathKind, UnicastRule
from rostrum.controller.core.packet import failover
from rostrum.controller.core.packet import rules as rule_making
from rostrum.controller.core.packet.failed_links import Silence
from rostrum.controller.core.packet.rules import RuleKey
from rostrum.controller.core.persistence.persistence import Persistence
from rostrum.controller.core.requests.idempotency import Repeats
from rostrum.controller.core.requests.paths import IdleRules, ObjectKey, Path, PathTable, RuleSet, Transfer
from rostrum.controller.core.requests.queue import Queue
from rostrum.controller.core.requests.quotas import Quotas
from rostrum.controller.core.requests.relay_orders import RelayPart
from rostrum.controller.core.schedulers.base import Scheduler
from rostrum.controller.core.values import REST, ServerAddress, Settings
from rostrum.topologies.model import Topology

if TYPE_CHECKING:
    from rostrum.controller.core.packet.cabling import Heard

READ_AGAIN_NS = 45_000_000_000  # an order to read has three tries of ten seconds
BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass
class Agent:
    """A server's agent. `heard`: its last message; its circuits live one lease beyond that. `lapsed`: it has said
    nothing since; what waits for a path of it is passed over until it does.
    """

    server: str
    boot_id: int
    control_port: int
    connected: bool
    heard: int
    since: int
    cause: str = ""
    wants_light: bool = False
    protocols: tuple[str, ...] = ()
    group_engines: tuple[Engine, ...] = ()
    round_trip_us: int = 0  # between it and this manager; 0: not known
    lapsed: bool = False
    left: int = 0  # when it went while it was silent: it has a lease to come back


@dataclass(frozen=True)
class PendingRules:
    path_id: str
    rules: tuple[MulticastRule, ...]
    until: int
    removal: bool = False
    mends: str = ""  # only this switch's share of a granted path, which lacked it


@dataclass
class PendingCircuit:
    circuit_id: str
    until: int
    doubted: bool = False  # the OCS told of trouble meanwhile


@dataclass(frozen=True)
class PendingDisconnect:
    """`recheck`: something was wrong there; read what the OCS has afterwards."""

    ocs: str
    pairs: tuple[Pair, ...]
    recheck: bool


@dataclass
class ForeignRule:
    rule: MulticastRule
    since: int
    until: int


@dataclass
class Core:
    topology: Topology
    settings: Settings
    resources: Resources
    groups: Groups
    members: Membership
    scheduler: Scheduler
    epoch: str
    paths: PathTable = field(default_factory=PathTable)
    queue: Queue = field(default_factory=Queue)
    by_request: dict[tuple[str, str], str] = field(default_factory=dict)
    agents: dict[str, Agent] = field(default_factory=dict)
    transfers: OrderedDict[str, Transfer] = field(default_factory=OrderedDict)
    newest_transfer: dict[ObjectKey, str] = field(default_factory=dict)
    repeats: Repeats = field(default_factory=Repeats)
    relay_parts: dict[str, RelayPart] = field(default_factory=dict)  # by leg
    idle_rules: IdleRules = field(default_factory=lambda: IdleRules(0))
    foreign_rules: dict[RuleKey, ForeignRule] = field(default_factory=dict)
    rule_ops: dict[int, PendingRules] = field(default_factory=dict)
    circuit_ops: dict[int, PendingCircuit] = field(default_factory=dict)
    disconnect_ops: dict[int, PendingDisconnect] = field(default_factory=dict)
    disconnecting: Counter[tuple[str, int, int]] = field(default_factory=Counter)  # (OCS, input, output) in those
    counts: Counter[str] = field(default_factory=Counter)
    out: list[act.Action] = field(default_factory=list)
    serial: int = 0
    unicast: dict[str, tuple[UnicastRule, ...]] = field(default_factory=dict)  # by switch: as ordered last
    timers: list[int] = field(default_factory=list)
    check_timers: dict[str, int] = field(default_factory=dict)  # what is to be checked -> when (ns)
    check_at: int = FOREVER  # not later than the first of them
    expiries: list[tuple[int, str]] = field(default_factory=list)  # heap: when a path's own lease may be over, its id
    addresses: dict[str, ServerAddress] = field(default_factory=dict)  # of servers, as last told to agents
    heard: dict[tuple[str, int], Heard] = field(default_factory=dict)  # (switch, port) -> by discovery
    silence: Silence = field(default_factory=Silence)
    started: int = 0
    quotas: Quotas = field(default_factory=lambda: Quotas({}))
    persistence: Persistence = field(default_factory=Persistence)
    remembers_all: bool = False  # records of an earlier manager explain everything that it did
    unread_circuits: set[str] = field(default_factory=set)  # restored; their OCS has not told what it has
    left: dict[str, int] = field(default_factory=dict)  # OCS -> when cross-connects of it were last taken down (ns)
    leaving: dict[str, tuple[str, set[Pair]]] = field(default_factory=dict)  # record -> OCS, what is on its way out
    leaving_in: dict[tuple[str, Pair], str] = field(default_factory=dict)  # (OCS, pair) -> its record
    to_leave: dict[str, set[Pair]] = field(default_factory=dict)  # OCS -> to be taken down when it was read
    leave_after: dict[str, int] = field(default_factory=dict)  # OCS that refused -> when it is asked again (ns)
    fences: dict[int, str] = field(default_factory=dict)  # order to switches -> the path whose circuit it keeps

    @classmethod
    def new(cls, topology: Topology, settings: Settings, now: int) -> Core:
        groups = Groups(topology.multicast, settings.boot_id)
        return cls(
            topology=topology,
            settings=settings,
            resources=Resources(topology, settings, now),
            groups=groups,
            members=Membership(topology, settings, groups, now),
            scheduler=schedulers.create(settings.scheduler, settings.session_bytes),
            epoch=base36(settings.boot_id // 100 % 36**4),
            idle_rules=IdleRules(settings.idle_rule_sets),
            quotas=Quotas(settings.quotas),
            started=now,
        )

    def emit(self, action: act.Action) -> None:
        self.out.append(action)
        if self.quotas.limits and isinstance(action, act.PathChanged):
            self.count_held(action.path_id)

    def count_held(self, path_id: str) -> None:
        """What the path takes counts against its tenant's quota, or no longer."""
        path = self.paths.get(path_id)
        if path:
            self.quotas.note(path)

    def log(self, event: str, /, **facts: object) -> None:
        self.emit(act.Log("info", event, tuple(facts.items())))

    def warn(self, event: str, /, **facts: object) -> None:
        self.emit(act.Log("warning", event, tuple(facts.items())))

    def next_serial(self) -> int:
        self.serial += 1
        return self.serial

    def next_id(self, letter: str) -> str:
        """Ids do not repeat across restarts: the epoch is the manager's boot."""
        while (made := f"{letter}-{self.epoch}-{self.next_serial()}") in self.paths:
            continue  # restored, of a manager that began just so many days ago that the epoch is the same again
        return made

    def wake_at(self, when: int) -> None:
        """Ask for a Tick then; everything is looked at."""
        heapq.heappush(self.timers, when)

    def schedule_check(self, what: str, when: int) -> None:
        """Ask for a look at one kind of thing (manager.py has them) then or earlier. Who looks asks again for what is
        left; so what is asked for with every request costs no timer of its own.
        """
        due = self.check_timers.get(what)
        if due is None or when < due:
            self.check_timers[what] = when
            self.check_at = min(self.check_at, when)

    def expires(self, path: Path, when: int) -> None:
        """The path's own lease may be over then."""
        heapq.heappush(self.expiries, (when, path.id))
        self.schedule_check("leases", when)

    def address(self, server: str) -> ServerAddress:
        """Where its agent listens; the same object as long as that stays so."""
        agent = self.agents.get(server)
        control_port = agent.control_port if agent else self.topology.control_port
        found = self.addresses.get(server)
        if found is None or found.control_port != control_port:
            fabric = self.resources.fabric
            place = fabric.places[server]
            rack = fabric.racks[place.tor]
            found = self.addresses[server] = ServerAddress(place.server, place.address, control_port, rack)
        return found

    def tell(self, path: Path) -> bool:
        """Whether the path's origin is an agent that listens now."""
        return path.request.origin != REST

    def users(self, circuit: Circuit) -> list[Path]:
        """The paths that a circuit carries; not those that it is only kept for (`leave_circuit_after`)."""
        known = (self.paths[path_id] for path_id in circuit.users if path_id in self.paths)
        return [path for path in known if path.circuit_id == circuit.id and not path.final]

    def install(self, path: Path, now: int) -> int:
        """Sets the path's rules; they are outstanding until the answer to this op, which is returned."""
        op = self.next_serial()
        until = now + self.settings.configure_bound_ns
        path.rules_op, path.rules_in = op, False
        path.unread.clear()
        self.rule_ops[op] = PendingRules(path.id, path.rules, until)
        for rule in path.rules if self.foreign_rules else ():
            self.foreign_rules.pop(rule_making.key(rule), None)
        self.emit(act.InstallRules(op, path.rules, path.id))
        self.schedule_check("orders", until)
        return op

    def take_over(self, op: int, path: Path) -> None:
        """An installation that is outstanding is this path's from now on."""
        path.rules_op, path.rules_in = op, False
        self.rule_ops[op] = replace(self.rule_ops[op], path_id=path.id)

    def mend(self, path: Path, switch: str, now: int) -> None:
        """Sets again what one switch lacks of a granted path's rules."""
        op = self.next_serial()
        until = now + self.settings.configure_bound_ns
        own = tuple(rule for rule in path.rules if rule.switch == switch)
        self.rule_ops[op] = PendingRules(path.id, own, until, mends=switch)
        self.emit(act.InstallRules(op, own, path.id))
        self.schedule_check("orders", until)
        self.counts["mended_rules"] += len(own)
        self.log("rules set again", path=path.id, switch=switch, rules=len(own))

    def set_rules(self, path: Path) -> None:
        """The rules of the path's hops: only its sender may use them, and receivers' racks watch for its light."""
        assert path.group is not None
        path.light = {}
        path.room_made = False
        path.rules = rule_making.multicast(
            path.hops,
            path.group,
            self.topology.servers[path.request.sender].address,
            self.settings.level,
            # As receivers do: through a circuit that is just being made, single packets get before its light is steady.
            confirm=self.settings.light_confirm if path.reconfiguration_ns else 1,
            racks=set(self.resources.ends(path.request).remote),
        )
        if self.settings.fast_failover and path.kind is PathKind.PACKET:
            resources = self.resources
            path.rules = failover.guarded(resources.fabric, path.rules, resources.ports_down, resources.failed.links)

    def remove(self, rules: tuple[MulticastRule, ...], path_id: str, now: int) -> int | None:
        """Returns the op that is outstanding until they are gone; None: there are none."""
        if not rules:
            return None
        op = self.next_serial()
        until = now + self.settings.configure_bound_ns
        self.rule_ops[op] = PendingRules(path_id, rules, until, removal=True)
        self.emit(act.RemoveRules(op, rules, path_id))
        self.schedule_check("orders", until)
        return op

    def leave_circuit_after(self, path_id: str, ops: Iterable[int | None], now: int) -> None:
        """Its circuit is free for others when these orders to switches are answered: until then its sender, who did not
        give it back, may still send there.
        """
        asked = [op for op in ops if op in self.rule_ops]
        if not asked or self.resources.circuits.of_user(path_id) is None:
            self.resources.leave_circuit(path_id, now)
        for op in asked:
            self.fences[op] = path_id

    def read_rules(self, switch: str, now: int) -> None:
        """No circuit begins at this switch before it has told which rules it has."""
        self.resources.stale_rules.to_read(switch, now + self.settings.circuit_wait_ns)
        self.emit(act.ReadRules(switch))
        self.schedule_check("unread", now + READ_AGAIN_NS)

    def disconnect(self, ocs: str, pairs: tuple[Pair, ...], reason: str, recheck: bool = False) -> None:
        if not pairs:
            return
        op = self.next_serial()
        self.disconnect_ops[op] = PendingDisconnect(ocs, pairs, recheck)
        for pair in pairs:
            self.disconnecting[ocs, pair.input, pair.output] += 1
        self.mark_leaving(ocs, pairs)
        self.emit(act.Disconnect(op, ocs, pairs, reason))

    def disconnected(self, op: int) -> PendingDisconnect | None:
        """What an answered Disconnect was about; it is not under way any more."""
        pending = self.disconnect_ops.pop(op, None)
        if pending is None:
            return None
        for pair in pending.pairs:
            end = (pending.ocs, pair.input, pair.output)
            self.disconnecting[end] -= 1
            if not self.disconnecting[end]:
                del self.disconnecting[end]
        return pending

    def mark_leaving(self, ocs: str, pairs: Collection[Pair]) -> None:
        """Whether these cross-connects are on their way out has changed: they have a record together."""
        if not pairs:
            return
        key = f"{ocs} {self.next_serial()}"
        self.leaving[key] = (ocs, set(pairs))
        for pair in pairs:
            before = self.leaving_in.get((ocs, pair))
            if before is not None:
                self.leaving[before][1].discard(pair)
                self.persistence.mark("leaving", before)
            self.leaving_in[ocs, pair] = key
        self.persistence.mark("leaving", key)

    def mark_left(self, ocs: str, pairs: Iterable[Pair]) -> None:
        """They are no longer on their way out. A manager that starts before that is written finds them gone, or in use
        by a circuit that was.
        """
        for pair in pairs:
            key = self.leaving_in.get((ocs, pair))
            if key is not None:
                self.persistence.mark_later("leaving", key)

    def leaves(self, ocs: str, pair: Pair) -> bool:
        """A cross-connect of ours is being taken down, or waits for the next try."""
        if pair in self.to_leave.get(ocs, ()):
            return True
        if (ocs, pair.input, pair.output) in self.disconnecting:
            return True
        held = self.resources.circuits.holder(ocs, "input", pair.input)
        return isinstance(held, Foreign) and held.cross_connect.pair == pair and held.until < FOREVER

    def discard(self, rule_sets: Sequence[RuleSet], now: int) -> None:
        """Idle rule sets go, their groups with them."""
        if not rule_sets:
            return
        self.remove(tuple(chain.from_iterable(one.rules for one in rule_sets)), "", now)
        for one in rule_sets:
            self.groups.give_back(one.group)

    def expected_rules(self, switch: str) -> dict[RuleKey, MulticastRule]:
        """What should be on a switch: rules of granted paths and of idle sets."""
        sets = [path.retired for path in self.paths.values() if path.granted and path.retired]
        sets += [path.rules for path in self.paths.values() if path.granted]
        sets += [one.rules for one in self.idle_rules.all()]
        sets.append(tuple(self.members.sharing.rules_on(switch)))
        return {rule_making.key(rule): rule for rules in sets for rule in rules if rule.switch == switch}

    def add_transfer(self, transfer: Transfer) -> None:
        self.transfers[transfer.id] = transfer
        self.newest_transfer[transfer.key] = transfer.id

    def group_in_use(self, group: IPv4Address) -> bool:
        return any(path.granted and path.group == group for path in self.paths.values())

    def forget_old(self) -> None:
        """Keeps the history of ended paths and transfers bounded."""
        while self.paths.ended > self.settings.history_max:
            gone = self.paths.forget_oldest()
            asked = (gone.request.origin, gone.request.request_id)
            if self.by_request.get(asked) == gone.id:
                del self.by_request[asked]
        while len(self.transfers) > self.settings.history_max:
            transfer_id, transfer = self.transfers.popitem(last=False)
            if self.newest_transfer.get(transfer.key) == transfer_id:
                del self.newest_transfer[transfer.key]


def base36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = BASE36[digit] + digits
        if number == 0:
            return digits
