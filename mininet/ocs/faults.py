"""Faults an experiment or a test can put into the emulated OCS. Values only.

dead-port      {"port": 7, "side": "input" | "output"}   nothing passes; a cross-connect through it goes to FAULT
stuck          {"input": 1, "output": 5}                 a cross-connect made from now on never gets STEADY; it goes to
                                                         FAULT. Without "output": any from that input
dim-splitter   {"splitter": "s1", "db": 6.0}             more loss than its data sheet says
noisy          {"port": 3, "loss": 0.01}                 output fibre that loses this share of frames
astray         {"input": 6, "output": 4}                 cross-connects at that input are reported as ordered, with
                                                         their power; their light goes out at that fibre to a ToR.
                                                         Without "output": nowhere
ghost          {"input": 9, "output": 3}                 listed as a cross-connect that nobody made, and nobody takes
                                                         down
slow           {"seconds": 2}                            commands are carried out that much later
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rostrum.topologies.model import Ocs


class FaultError(ValueError):
    """A fault that cannot be: the text says what is wrong with it."""


@dataclass(frozen=True)
class DeadPort:
    port: int
    side: str  # "input" | "output"


@dataclass(frozen=True)
class Stuck:
    input: int
    output: int | None  # None = any


@dataclass(frozen=True)
class DimSplitter:
    splitter: str
    db: float


@dataclass(frozen=True)
class Noisy:
    port: int
    loss: float


@dataclass(frozen=True)
class Astray:
    input: int
    output: int | None  # None = nowhere


@dataclass(frozen=True)
class Ghost:
    input: int
    output: int


@dataclass(frozen=True)
class Slow:
    seconds: float


Fault = DeadPort | Stuck | DimSplitter | Noisy | Astray | Ghost | Slow
KINDS = ("dead-port", "stuck", "dim-splitter", "noisy", "astray", "ghost", "slow")
SLOW_MAX_S = 60.0


def parse(request: dict[str, Any], ocs: Ocs) -> Fault:
    """A fault from its JSON form, checked against the switch. Raises FaultError."""
    kind = request.get("kind")
    if kind == "dead-port":
        side = request.get("side", "input")
        if side not in ("input", "output"):
            raise FaultError(f'side must be "input" or "output", not {side!r}')
        return DeadPort(_port(request, "port", ocs), side)
    if kind == "stuck":
        output = _port(request, "output", ocs) if request.get("output") is not None else None
        return Stuck(_port(request, "input", ocs), output)
    if kind == "dim-splitter":
        name = request.get("splitter")
        if not isinstance(name, str) or name not in ocs.splitters:
            known = ", ".join(sorted(ocs.splitters)) or "none"
            raise FaultError(f"no splitter {name!r}; there are: {known}")
        return DimSplitter(name, _number(request, "db", 0.0, 100.0))
    if kind == "noisy":
        return Noisy(_port(request, "port", ocs), _number(request, "loss", 0.0, 1.0))
    if kind == "astray":
        output = _port(request, "output", ocs) if request.get("output") is not None else None
        if output is not None and output not in ocs.attached:
            raise FaultError(f"output must be a fibre to a ToR, not {output}: light could run in a ring")
        return Astray(_port(request, "input", ocs), output)
    if kind == "ghost":
        return Ghost(_port(request, "input", ocs), _port(request, "output", ocs))
    if kind == "slow":
        return Slow(_number(request, "seconds", 0.0, SLOW_MAX_S))
    raise FaultError(f"no fault of kind {kind!r}; there are: {', '.join(KINDS)}")


def _port(request: dict[str, Any], key: str, ocs: Ocs) -> int:
    value = request.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= ocs.ports:
        raise FaultError(f"{key} must be a port of {ocs.name}, 1 ... {ocs.ports}, not {value!r}")
    return value


def _number(request: dict[str, Any], key: str, low: float, high: float) -> float:
    value = request.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise FaultError(f"{key} must be a number from {low:g} to {high:g}, not {value!r}")
    return float(value)
