"""How an emulated cross-connect takes its time, as written on a command line: fixed:70ms, uniform:60ms:80ms,
normal:70ms:5ms; ringing as 5ms:0.5."""

from __future__ import annotations

import re

from rostrum.topologies.model import Reconfiguration

MAX_S = 600.0
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def duration_s(text: str) -> float:
    """`70ms`, `1.5s`, `200us` -> seconds. Raises ValueError."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(us|ms|s)", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no duration: write a number and us, ms or s, such as 70ms")
    value = float(match[1]) * _UNITS[match[2]]
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
