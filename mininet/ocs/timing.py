"""How an emulated cross-connect takes its time, as written on a command line: fixed:70ms, uniform:60ms:80ms,
normal:70ms:5ms; ringing as 5ms:0.5."""

from __future__ import annotations

from rostrum.topologies import units
from rostrum.topologies.model import Reconfiguration

MAX_S = 600.0


def duration_s(text: str) -> float:
    """`70ms`, `1.5s`, `200us` -> seconds, as many as an emulated switch may take. Raises ValueError."""
    value = units.duration_s(text)
    if value > MAX_S:
        raise ValueError(f"{text} is longer than {MAX_S:g} s")
    return value


def reconfiguration(text: str) -> Reconfiguration:
    """Raises ValueError."""
    kind, *values = text.split(":")
    times = [duration_s(v) for v in values]
    if kind == "fixed" and len(times) == 1:
        return Reconfiguration("fixed", times[0], 0.0)
    if kind == "uniform" and len(times) == 2 and times[0] <= times[1]:
        return Reconfiguration("uniform", (times[0] + times[1]) / 2, (times[1] - times[0]) / 2)
    if kind == "normal" and len(times) == 2:
        return Reconfiguration("normal", times[0], times[1])
    raise ValueError(
        f"{text!r} is no reconfiguration time: write fixed:MEAN, uniform:LEAST:MOST or normal:MEAN:DEVIATION, "
        f"such as uniform:60ms:80ms"
    )


def ringing(text: str) -> tuple[float, float]:
    """-> (seconds, share of frames lost). Raises ValueError."""
    time, _, share = text.partition(":")
    try:
        loss = float(share)
    except ValueError:
        loss = -1.0
    if not 0.0 <= loss <= 1.0:
        raise ValueError(f"{text!r} is no ringing: write DURATION:LOSS with a loss from 0 to 1, such as 5ms:0.5")
    return duration_s(time), loss
