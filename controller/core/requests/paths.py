"""One path from request to end, the transfers that use paths, and the rules kept for a path that comes again."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from rostrum.controller.core.circuits.splitters import Cascade
from rostrum.controller.core.model import CrossConnect, MulticastRule, Pair, PathKind
from rostrum.controller.core.packet.steiner import SteinerTree
from rostrum.controller.core.packet.trees import Hop, Tree
from rostrum.controller.core.values import (
    Budget,
    FirstLight,
    Obstacle,
    ObstacleKind,
    PathRequest,
    Protocol,
    Stamps,
    State,
    TransferReport,
)

if TYPE_CHECKING:
    from rostrum.controller.core.rdcm.views import Backup
    from rostrum.controller.core.requests.quotas import Over


def _may(state: State, following: State) -> bool:
    """queued -> configuring -> active -> released | failed; a moved path is configured again; a queued one may be
    withdrawn or denied.
    """
    if state is State.RELEASED or state is State.FAILED:
        return False
    if following is State.CONFIGURING:
        return state is not State.CONFIGURING
    if following is State.ACTIVE:
        return state is State.CONFIGURING
    return following is not State.QUEUED


@dataclass
class Path:
    """`reason`: why it is queued, or why it is carried as it is; `cause`: why it failed or was taken back."""

    id: str
    request: PathRequest
    stamps: Stamps
    state: State = State.QUEUED
    reason: str = ""
    cause: str = ""
    kind: PathKind | None = None
    group: IPv4Address | None = None
    hops: tuple[Hop, ...] = ()
    rules: tuple[MulticastRule, ...] = ()
    ocs: str = ""
    protocol: Protocol = Protocol.REPUBLIC
    planned: Tree | None = None  # packet: the tree as it was granted, until somebody asks for its nodes
    nodes: SteinerTree | None = None  # and then these
    backup: Backup | None = None  # RDCM: its overlay
    retired: tuple[MulticastRule, ...] = ()  # to be removed when the rules that replace them are in
    circuit_id: str | None = None
    cascade: Cascade | None = None
    cross_connects: tuple[CrossConnect, ...] = ()
    reused_circuit: bool = False
    accepted_size: int = 0
    rate_bps: int = 0
    reconfiguration_ns: int = 0
    rules_op: int | None = None  # outstanding installation of rules
    circuit_op: int | None = None  # outstanding Connect
    waiting_since: int = 0  # queued: when its turn to wait began
    circuit_until: int = 0  # queued: then it takes a packet path
    wait_until: int = 0  # queued: then it is denied
    follows: str = ""  # queued: the path of its transfer's session before, until that one is out of the way
    lease_until: int | None = None
    unconfirmed_until: int | None = None  # its agent came back without naming it
    lapsed: bool = False  # taken back because its agent said nothing: it may ask for the same once more
    adopted: bool = False
    unread: set[str] = field(default_factory=set)  # restored: switches not yet seen to have its rules
    rules_in: bool = False
    rules_retried: bool = False
    room_made: bool = False  # kept rules were dropped for these
    complaints: dict[str, int] = field(default_factory=dict)  # receiver -> times without light
    dark: set[str] = field(default_factory=set)  # receivers that saw nothing of it, since it was moved last
    light: dict[str, FirstLight] = field(default_factory=dict)  # by receivers' rack, where its switch tells
    obstacle: Obstacle | None = None  # queued, or denied: what is, or was, in its way; none after a restart
    told: tuple[ObstacleKind, str] | None = None  # queued: what it was last said to wait for
    told_at: int = 0
    transfer_id: str = ""
    on_end: Callable[[Path], None] | None = field(default=None, repr=False, compare=False)
    over_quota: Over | None = None  # queued: a grant was beyond its tenant's quota

    def to(self, state: State, now: int) -> None:
        """Raises ValueError on a change that cannot be."""
        if not _may(self.state, state):
            raise ValueError(f"{self.id} cannot go from {self.state.value} to {state.value}")
        self.state = state
        if state is State.ACTIVE:
            self.stamps.active = now
        elif state is State.RELEASED:
            self.stamps.released = now
        elif state is State.FAILED:
            self.stamps.failed = now
        if self.final and self.on_end:
            self.on_end(self)

    def take_tree(self, planned: Tree) -> None:
        """Is carried by it from now on."""
        self.planned, self.nodes = planned, None

    @property
    def tree(self) -> SteinerTree | None:
        """Of a packet path: from the sender's ToR."""
        if self.planned is not None:
            self.nodes, self.planned = self.planned.nodes, None
        return self.nodes

    @tree.setter
    def tree(self, nodes: SteinerTree | None) -> None:
        self.nodes, self.planned = nodes, None

    @property
    def final(self) -> bool:
        return self.state in (State.RELEASED, State.FAILED)

    @property
    def granted(self) -> bool:
        return self.state in (State.CONFIGURING, State.ACTIVE)

    @property
    def kind_name(self) -> str:
        """As its value, which an enumeration takes long to find; empty = none yet."""
        return "circuit" if self.kind is PathKind.CIRCUIT else "packet" if self.kind is PathKind.PACKET else ""

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return self.cascade.pairs if self.cascade else ()

    @property
    def budgets(self) -> tuple[Budget, ...]:
        return self.cascade.budgets if self.cascade else ()


class PathTable(dict[str, Path]):
    """All paths by id, in the order they were made. Knows whose live ones are, and which ended first, so that nothing
    has to look through all of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[str, dict[str, Path]] = {}  # origin -> id -> path
        self._ended: deque[str] = deque()

    def __setitem__(self, path_id: str, path: Path) -> None:
        super().__setitem__(path_id, path)
        if path.final:
            self._ended.append(path_id)
        else:
            self._live.setdefault(path.request.origin, {})[path_id] = path
            path.on_end = self._end

    def live_of(self, origin: str) -> list[Path]:
        """Its paths that wait or are granted."""
        return list(self._live.get(origin, {}).values())

    def live(self) -> Iterator[Path]:
        """All that wait or are granted, by origin."""
        for held in self._live.values():
            yield from held.values()

    @property
    def ended(self) -> int:
        """How many have ended and are remembered."""
        return len(self._ended)

    def forget_oldest(self) -> Path:
        """Removes the one that ended first. Raises IndexError if none has."""
        return self.pop(self._ended.popleft())

    def _end(self, path: Path) -> None:
        origin = path.request.origin
        self._live[origin].pop(path.id)
        if not self._live[origin]:
            del self._live[origin]
        self._ended.append(path.id)


ObjectKey = tuple[str, bytes, int]
"""Sender, application and number of an object."""


@dataclass
class Transfer:
    """An object on its way: one path per session, and the sender's last report."""

    id: str
    sender: str
    receivers: tuple[str, ...]
    app_id: bytes
    data_id: int
    size: int
    sessions: list[str]
    begun: int
    reported: int | None = None
    report: TransferReport | None = None

    @staticmethod
    def of(path: Path, size: int, begun: int) -> Transfer:
        """The transfer of `path.transfer_id`, with this path as its first session."""
        one = path.request
        return Transfer(path.transfer_id, one.sender, one.receivers, one.app_id, one.data_id, size, [path.id], begun)

    @property
    def key(self) -> ObjectKey:
        return (self.sender, self.app_id, self.data_id)

    @property
    def ended(self) -> bool:
        return self.report is not None and self.report.phase in ("done", "failed")


@dataclass(eq=False)
class RuleSet:
    """Rules of a released path, with their group, for an identical path to come. `op`: their installation, if it is
    outstanding.
    """

    hops: tuple[Hop, ...]
    group: IPv4Address
    rules: tuple[MulticastRule, ...]
    circuit_id: str | None
    op: int | None = None


class IdleRules:
    """At most `limit` rule sets. When there are more, an eighth goes at once, the least recently used: an order to a
    switch costs hardly more for many rules than for one.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sets: OrderedDict[tuple[Hop, ...], RuleSet] = OrderedDict()
        self._of_circuits: dict[str, list[RuleSet]] = {}  # those that lead into one
        self._setting: dict[int, RuleSet] = {}  # by outstanding installation

    def __len__(self) -> int:
        return len(self._sets)

    def take(self, hops: tuple[Hop, ...]) -> RuleSet | None:
        found = self._sets.pop(hops, None)
        if found is not None:
            self._forget(found)
        return found

    def keep(self, rule_set: RuleSet) -> list[RuleSet]:
        """Returns what has to go for it (perhaps it too)."""
        same = self.take(rule_set.hops)
        gone = [] if same is None else [same]
        self._sets[rule_set.hops] = rule_set
        if rule_set.circuit_id is not None:
            self._of_circuits.setdefault(rule_set.circuit_id, []).append(rule_set)
        if rule_set.op is not None:
            self._setting[rule_set.op] = rule_set
        if len(self._sets) > self._limit:
            while len(self._sets) > self._limit * 7 // 8 and (one := self.oldest()):
                gone.append(one)
        return gone

    def oldest(self) -> RuleSet | None:
        """Removes and returns the least recently used."""
        if not self._sets:
            return None
        found = self._sets.popitem(last=False)[1]
        self._forget(found)
        return found

    def of_circuit(self, circuit_id: str) -> list[RuleSet]:
        """Removes and returns the sets that lead into a circuit."""
        found = self._of_circuits.get(circuit_id, [])[:]
        for one in found:
            self.take(one.hops)
        return found

    def of_switches(self, switches: Collection[str]) -> list[RuleSet]:
        """Removes and returns the sets that have rules there."""
        found = [one for one in self._sets.values() if any(rule.switch in switches for rule in one.rules)]
        for one in found:
            self.take(one.hops)
        return found

    def installed(self, op: int) -> None:
        """An outstanding installation is answered."""
        rule_set = self._setting.pop(op, None)
        if rule_set is not None:
            rule_set.op = None

    def failed(self, op: int) -> list[RuleSet]:
        """Removes and returns the set (or none) whose installation this was."""
        rule_set = self._setting.get(op)
        if rule_set is None:
            return []
        self.take(rule_set.hops)
        return [rule_set]

    def all(self) -> list[RuleSet]:
        return list(self._sets.values())

    def _forget(self, gone: RuleSet) -> None:
        if gone.op is not None:
            del self._setting[gone.op]
        if gone.circuit_id is not None:
            left = self._of_circuits[gone.circuit_id]
            left.remove(gone)
            if not left:
                del self._of_circuits[gone.circuit_id]
