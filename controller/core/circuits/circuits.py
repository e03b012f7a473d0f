"""Circuits on the OCSs: live ones and who uses them, idle ones kept for reuse, and cross-connects found at start that
nobody here made.

Paper, Sec. III-B: "the manager also remembers the circuit connections ... so that a new configuration can reuse the
existing circuits".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from rostrum.controller.core.circuits.splitters import Cascade
from rostrum.controller.core.model import CrossConnect, Pair


class Conflict(Exception):
    """Something that is held already was to be taken; nothing changed."""


class CircuitState(Enum):
    SETTING = "setting"
    LIVE = "live"


@dataclass(frozen=True)
class Circuit:
    """One sender rack's light to a set of receiver racks.

    `users`: the paths it carries, in the order they came; none = idle. `op`: the Connect that sets it up.
    """

    id: str
    ocs: str
    cascade: Cascade
    state: CircuitState
    op: int
    users: tuple[str, ...]
    last_used: int
    settled_at: int = 0
    powers: tuple[CrossConnect, ...] = ()

    @property
    def user(self) -> str | None:
        """The path it carries, or the first of several."""
        return self.users[0] if self.users else None

    @property
    def downlinks(self) -> frozenset[int]:
        return frozenset(port.ocs_port for port in self.cascade.downlinks)

    @property
    def route(self) -> Route:
        return self.ocs, self.cascade.uplink.tor, tuple(sorted(port.tor for port in self.cascade.downlinks))


class OcsState(Enum):
    STARTING = "starting"
    UP = "up"
    DOWN = "down"


@dataclass(frozen=True)
class OcsStatus:
    state: OcsState
    since: int
    cause: str = ""


FOREVER = 1 << 63  # no clock gets there


@dataclass(frozen=True)
class Foreign:
    """A cross-connect found on the OCS that no path here explains; left alone until `until`, then deleted. FOREVER: it
    is not this manager's.
    """

    ocs: str
    cross_connect: CrossConnect
    since: int
    until: int


Holder = Circuit | Foreign
Fibre = tuple[str, str, int]  # OCS, "input" | "output", port
Route = tuple[str, str, tuple[str, ...]]  # OCS, sender's rack, receivers' racks in order


class CircuitTable:
    """Who holds each fibre of each OCS. Invariant: a fibre has one holder at most.

    `freed`: fibres that nobody uses any more, for whoever waits for one; taken and cleared by the owner.
    """

    def __init__(self) -> None:
        self._circuits: dict[str, Circuit] = {}
        self._fibres: dict[Fibre, str | Foreign] = {}
        self._idle: dict[str, None] = {}  # least recently used first
        self._of: dict[str, tuple[str, int]] = {}  # path -> its circuit, its share of the rate (bit/s)
        self._routes: dict[Route, dict[str, None]] = {}
        self._shared = False  # these dictionaries are another table's too
        self.freed: set[Fibre] = set()

    def fork(self) -> CircuitTable:
        """A copy; nothing is copied before one of the two changes."""
        copy = CircuitTable()
        copy._circuits, copy._fibres, copy._idle = self._circuits, self._fibres, self._idle
        copy._of, copy._routes = self._of, self._routes
        self._shared = copy._shared = True
        return copy

    def __iter__(self) -> Iterator[Circuit]:
        return iter(self._circuits.values())

    def __len__(self) -> int:
        return len(self._circuits)

    def get(self, circuit_id: str) -> Circuit | None:
        return self._circuits.get(circuit_id)

    def of_user(self, path_id: str) -> Circuit | None:
        of = self._of.get(path_id)
        return self._circuits[of[0]] if of else None

    def load_bps(self, circuit: Circuit) -> int:
        """What the paths on it were promised."""
        return sum(self._of[path_id][1] for path_id in circuit.users)

    def on_route(self, route: Route) -> list[Circuit]:
        """Circuits from a rack to exactly these racks."""
        return [self._circuits[one] for one in self._routes.get(route, ())]

    def holder(self, ocs: str, side: str, port: int) -> Holder | None:
        """Who holds the input or output fibre (`side`) of a port."""
        held = self._fibres.get((ocs, side, port))
        return self._circuits[held] if isinstance(held, str) else held

    def check(self, circuit: Circuit, without: Collection[str] = ()) -> None:
        """Raises Conflict if the circuit cannot be added, the circuits `without` having been dropped."""
        fibres = _fibres(circuit.ocs, circuit.cascade.pairs)
        for fibre in fibres:
            held = self._fibres.get(fibre)
            if held is not None and held not in without:
                raise Conflict(f"{fibre[1]} {fibre[2]} of {fibre[0]} is held already")
        outputs = {pair.output for pair in circuit.cascade.pairs}
        if circuit.id in self._circuits or len(outputs) != len(circuit.cascade.pairs):
            raise Conflict(f"circuit {circuit.id} is there already, or uses a fibre twice")

    def add(self, circuit: Circuit, rate_bps: int = 0) -> None:
        """`rate_bps`: what its user is promised. Raises Conflict if one of its fibres is held."""
        self.check(circuit)
        self._own()
        self._circuits[circuit.id] = circuit
        for fibre in _fibres(circuit.ocs, circuit.cascade.pairs):
            self._fibres[fibre] = circuit.id
        self._routes.setdefault(circuit.route, {})[circuit.id] = None
        for path_id in circuit.users:
            self._of[path_id] = (circuit.id, rate_bps)
        if not circuit.users:
            self._idle[circuit.id] = None

    def drop(self, circuit_id: str) -> Circuit:
        self._own()
        circuit = self._circuits.pop(circuit_id)
        for fibre in _fibres(circuit.ocs, circuit.cascade.pairs):
            del self._fibres[fibre]
            self.freed.add(fibre)
        route = self._routes[circuit.route]
        del route[circuit_id]
        if not route:
            del self._routes[circuit.route]
        self._idle.pop(circuit_id, None)
        for path_id in circuit.users:
            del self._of[path_id]
        return circuit

    def use(self, circuit_id: str, path_id: str, now: int, rate_bps: int = 0, share: bool = False) -> Circuit:
        """One path more on a circuit. Raises Conflict if another uses it already and it is not to be shared."""
        circuit = self._circuits.get(circuit_id)
        if circuit is None or (circuit.users and not share):
            raise Conflict(f"circuit {circuit_id} is gone or in use")
        self._own()
        self._idle.pop(circuit_id, None)
        self._of[path_id] = (circuit_id, rate_bps)
        return self._put(_used(circuit, (*circuit.users, path_id), now))

    def leave(self, path_id: str, now: int) -> Circuit | None:
        """The path's circuit is idle, if it was its last one; returns the circuit."""
        if path_id not in self._of:
            return None
        self._own()
        circuit_id, _ = self._of.pop(path_id)
        circuit = self._circuits[circuit_id]
        left = tuple(one for one in circuit.users if one != path_id)
        if not left:
            self._idle[circuit_id] = None
            self.freed.update(_fibres(circuit.ocs, circuit.cascade.pairs))
        else:
            self.freed.add((circuit.ocs, "input", circuit.cascade.uplink.ocs_port))  # room for one more
        return self._put(_used(circuit, left, now))

    def settled(self, circuit_id: str, powers: tuple[CrossConnect, ...], now: int) -> Circuit:
        return self._put(replace(self._circuits[circuit_id], state=CircuitState.LIVE, powers=powers, settled_at=now))

    def measured(self, circuit_id: str, powers: tuple[CrossConnect, ...]) -> None:
        self._put(replace(self._circuits[circuit_id], powers=powers))

    def setting(self, circuit_id: str, op: int) -> Circuit:
        return self._put(replace(self._circuits[circuit_id], state=CircuitState.SETTING, op=op))

    def idle(self) -> list[Circuit]:
        """Idle circuits, least recently used first."""
        return [self._circuits[one] for one in self._idle]

    def foreign(self, ocs: str | None = None) -> list[Foreign]:
        """What was found on one OCS, or on all."""
        found = (one for one in self._fibres.values() if isinstance(one, Foreign) and ocs in (None, one.ocs))
        return list({(one.ocs, one.cross_connect.pair): one for one in found}.values())

    def add_foreign(self, foreign: Foreign) -> None:
        """Raises Conflict if one of its fibres is held."""
        for ocs, side, port in _fibres(foreign.ocs, (foreign.cross_connect.pair,)):
            if self.holder(ocs, side, port) is not None:
                raise Conflict(f"{side} {port} of {ocs} is held already")
        self._own()
        for fibre in _fibres(foreign.ocs, (foreign.cross_connect.pair,)):
            self._fibres[fibre] = foreign

    def drop_foreign(self, ocs: str, pair: Pair) -> Foreign | None:
        held = self._fibres.get((ocs, "input", pair.input))
        if not isinstance(held, Foreign) or held.cross_connect.pair != pair:
            return None
        self._own()
        for fibre in _fibres(ocs, (pair,)):
            del self._fibres[fibre]
            self.freed.add(fibre)
        return held

    def _own(self) -> None:
        """Before a change: dictionaries that a fork sees too are copied."""
        if self._shared:
            self._circuits, self._fibres = dict(self._circuits), dict(self._fibres)
            self._idle, self._of = dict(self._idle), dict(self._of)
            self._routes = {route: dict(ids) for route, ids in self._routes.items()}
            self._shared = False

    def _put(self, circuit: Circuit) -> Circuit:
        self._own()
        self._circuits[circuit.id] = circuit
        return circuit


def _used(one: Circuit, users: tuple[str, ...], now: int) -> Circuit:
    """As `replace` does, several times a request."""
    return Circuit(one.id, one.ocs, one.cascade, one.state, one.op, users, now, one.settled_at, one.powers)


def _fibres(ocs: str, pairs: tuple[Pair, ...]) -> list[Fibre]:
    """Each once: a switch may make copies of what comes in at one."""
    found: dict[Fibre, None] = {}
    for pair in pairs:
        found[ocs, "input", pair.input] = None
        found[ocs, "output", pair.output] = None
    return list(found)
