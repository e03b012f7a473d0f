"""Circuits on the OCSs: live ones and who uses them, idle ones kept for reuse, and cross-connects found at start that
nobody here made.

Paper, Sec. III-B: "the manager also remembers the circuit connections ... so that a new configuration can reuse the
existing circuits".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from rostrum.controller.core.model import CrossConnect, Pair
from rostrum.controller.core.splitters import Cascade


class Conflict(Exception):
    """Something that is held already was to be taken; nothing changed."""


class CircuitState(Enum):
    SETTING = "setting"
    LIVE = "live"


@dataclass(frozen=True)
class Circuit:
    """One sender rack's light to a set of receiver racks.

    `user`: the path it carries, None = idle. `op`: the Connect that sets it up.
    """

    id: str
    ocs: str
    cascade: Cascade
    state: CircuitState
    op: int
    user: str | None
    last_used: int
    settled_at: int = 0
    powers: tuple[CrossConnect, ...] = ()

    @property
    def downlinks(self) -> frozenset[int]:
        return frozenset(port.ocs_port for port in self.cascade.downlinks)


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


class CircuitTable:
    """Who holds each fibre of each OCS. Invariant: a fibre has one holder at most."""

    def __init__(self) -> None:
        self._circuits: dict[str, Circuit] = {}
        self._fibres: dict[Fibre, str | Foreign] = {}

    def fork(self) -> CircuitTable:
        copy = CircuitTable()
        copy._circuits = dict(self._circuits)
        copy._fibres = dict(self._fibres)
        return copy

    def __iter__(self) -> Iterator[Circuit]:
        return iter(self._circuits.values())

    def __len__(self) -> int:
        return len(self._circuits)

    def get(self, circuit_id: str) -> Circuit | None:
        return self._circuits.get(circuit_id)

    def of_user(self, path_id: str) -> Circuit | None:
        return next((circuit for circuit in self if circuit.user == path_id), None)

    def holder(self, ocs: str, side: str, port: int) -> Holder | None:
        """Who holds the input or output fibre (`side`) of a port."""
        held = self._fibres.get((ocs, side, port))
        return self._circuits[held] if isinstance(held, str) else held

    def add(self, circuit: Circuit) -> None:
        """Raises Conflict if one of its fibres is held."""
        fibres = list(_fibres(circuit.ocs, circuit.cascade.pairs))
        for ocs, side, port in fibres:
            if self.holder(ocs, side, port) is not None:
                raise Conflict(f"{side} {port} of {ocs} is held already")
        if circuit.id in self._circuits or len(set(fibres)) != len(fibres):
            raise Conflict(f"circuit {circuit.id} is there already, or uses a fibre twice")
        self._circuits[circuit.id] = circuit
        for fibre in fibres:
            self._fibres[fibre] = circuit.id

    def drop(self, circuit_id: str) -> Circuit:
        circuit = self._circuits.pop(circuit_id)
        for fibre in _fibres(circuit.ocs, circuit.cascade.pairs):
            del self._fibres[fibre]
        return circuit

    def use(self, circuit_id: str, path_id: str, now: int) -> Circuit:
        """Raises Conflict if another path uses it."""
        circuit = self._circuits.get(circuit_id)
        if circuit is None or circuit.user is not None:
            raise Conflict(f"circuit {circuit_id} is gone or in use")
        return self._put(replace(circuit, user=path_id, last_used=now))

    def leave(self, circuit_id: str, now: int) -> None:
        if circuit_id in self._circuits:
            self._put(replace(self._circuits[circuit_id], user=None, last_used=now))

    def settled(self, circuit_id: str, powers: tuple[CrossConnect, ...], now: int) -> Circuit:
        return self._put(replace(self._circuits[circuit_id], state=CircuitState.LIVE, powers=powers, settled_at=now))

    def measured(self, circuit_id: str, powers: tuple[CrossConnect, ...]) -> None:
        self._put(replace(self._circuits[circuit_id], powers=powers))

    def setting(self, circuit_id: str, op: int) -> Circuit:
        return self._put(replace(self._circuits[circuit_id], state=CircuitState.SETTING, op=op))

    def idle(self) -> list[Circuit]:
        """Idle circuits, least recently used first."""
        return sorted((one for one in self if one.user is None), key=lambda one: (one.last_used, one.id))

    def foreign(self, ocs: str | None = None) -> list[Foreign]:
        """What was found on one OCS, or on all."""
        found = (one for one in self._fibres.values() if isinstance(one, Foreign) and ocs in (None, one.ocs))
        return list({(one.ocs, one.cross_connect.pair): one for one in found}.values())

    def add_foreign(self, foreign: Foreign) -> None:
        """Raises Conflict if one of its fibres is held."""
        for ocs, side, port in _fibres(foreign.ocs, (foreign.cross_connect.pair,)):
            if self.holder(ocs, side, port) is not None:
                raise Conflict(f"{side} {port} of {ocs} is held already")
        for fibre in _fibres(foreign.ocs, (foreign.cross_connect.pair,)):
            self._fibres[fibre] = foreign

    def drop_foreign(self, ocs: str, pair: Pair) -> Foreign | None:
        held = self._fibres.get((ocs, "input", pair.input))
        if not isinstance(held, Foreign) or held.cross_connect.pair != pair:
            return None
        for fibre in _fibres(ocs, (pair,)):
            del self._fibres[fibre]
        return held

    def _put(self, circuit: Circuit) -> Circuit:
        self._circuits[circuit.id] = circuit
        return circuit


def _fibres(ocs: str, pairs: tuple[Pair, ...]) -> Iterator[Fibre]:
    for pair in pairs:
        yield ocs, "input", pair.input
        yield ocs, "output", pair.output
