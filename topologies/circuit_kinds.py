"""Kinds of circuit switches, by the `dialect` of their topology entry: those here, and any that a package offers under
the entry point group `rostrum.circuit_switches` (an object of `CircuitKind`). A kind is a driver and, where circuits do
not work as light through external splitters does, the technology that says how. Both are named, not imported: this
package knows nothing of the manager.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

ENTRY_POINTS = "rostrum.circuit_switches"
SPLITTERS = "rostrum.controller.core.circuits.technology:Splitters"


@dataclass(frozen=True)
class CircuitKind:
    """`driver`: an `api.CircuitSwitch`, made of an OCS and the callbacks as `OcsDriver` is. `technology`: a
    `core.circuits.technology.Technology`. Both as module:name. `grpc`: the driver takes gRPC's `credentials`, for TLS.
    """

    name: str
    management_port: int
    driver: str
    technology: str = SPLITTERS
    grpc: bool = False


_TL1 = "rostrum.controller.southbound.ocs.driver:OcsDriver"
BUILT_IN = {
    one.name: one
    for one in (
        CircuitKind("glimmerglass", 10034, _TL1),
        CircuitKind("polatis", 3082, _TL1),
        CircuitKind("gnmi", 9339, "rostrum.controller.southbound.ocs.gnmi:GnmiDriver", grpc=True),
    )
}


class UnknownKind(Exception):
    """No kind of circuit switch has that name."""


def names() -> list[str]:
    return [*BUILT_IN, *sorted(point.name for point in entry_points(group=ENTRY_POINTS))]


@functools.cache
def kind(name: str) -> CircuitKind:
    """Raises UnknownKind."""
    found = BUILT_IN.get(name)
    if found is None:
        point = next((point for point in entry_points(group=ENTRY_POINTS) if point.name == name), None)
        if point is None:
            raise UnknownKind(f"{name!r} is none of {', '.join(names())}")
        found = point.load()
        assert isinstance(found, CircuitKind), f"{point.value} is no CircuitKind"
    return found


def named(place: str) -> Any:
    """What a kind names as module:name."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
