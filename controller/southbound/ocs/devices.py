"""Which driver an OCS has, by the `dialect` of its topology entry (topologies/circuit_kinds.py)."""

from __future__ import annotations

from collections.abc import Callable

from rostrum.controller.southbound.api import CircuitSwitch
from rostrum.topologies import circuit_kinds

Driver = Callable[..., CircuitSwitch]


def driver_of(dialect: str) -> Driver:
    made: Driver = circuit_kinds.named(circuit_kinds.kind(dialect).driver)
    return made
