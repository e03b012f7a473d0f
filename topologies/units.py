"""Sizes, rates and durations as people write and read them: the same in every command.

They are here because every other package may import this one. Sizes are powers of 1024, as rostrumd reads them too.
"""

from __future__ import annotations

import re
from typing import Any

import click

SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
DURATIONS_NS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
}
_NUMBER = r"([0-9]{1,16}(?:\.[0-9]{1,9})?)"


def size_bytes(text: str) -> int:
    """`64M`, `512K`, `4096`, `1.5G`, `64MiB` -> bytes. Raises ValueError with the remedy."""
    match = re.fullmatch(_NUMBER + r"\s*([KMGT]?)(?:i?B)?", text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a size; write a number with K, M, G or T, for example 64M")
    return int(float(match[1]) * SIZES[match[2]]) if "." in match[1] else int(match[1]) * SIZES[match[2]]


def duration_ns(text: str, *, bare: str = "") -> int:
    """`70ms`, `1.5 s`, `2min` -> ns. `bare`: the unit of a number that has none. Raises ValueError with the remedy."""
    match = re.fullmatch(_NUMBER + r"\s*([a-z]*)", text.strip())
    unit = (match[2] or bare) if match else ""
    if not match or unit not in DURATIONS_NS:
        raise ValueError(f"{text!r} is no duration; write a number and us, ms, s, min or h, for example 2s or 70ms")
    return round(float(match[1]) * DURATIONS_NS[unit])


def duration_s(text: str, *, bare: str = "") -> float:
    """As `duration_ns`, in seconds."""
    return duration_ns(text, bare=bare) / 1e9


def size_text(size: float) -> str:
    """64 MiB for 67108864."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"


def rate_text(rate_bps: float) -> str:
    """940 Mbit/s for 9.4e8."""
    for unit in ("bit/s", "kbit/s", "Mbit/s", "Gbit/s"):
        if rate_bps < 1000:
            return f"{rate_bps:.3g} {unit}"
        rate_bps /= 1000
    return f"{rate_bps:.3g} Tbit/s"


class Size(click.ParamType[int]):
    """An option's value in bytes."""

    name = "size"

    def __init__(self, least: int = 0) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            found = value if isinstance(value, int) else size_bytes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if found < self.least:
            self.fail(f"{value!r} is less than {self.least}", param, ctx)
        return found


class Duration(click.ParamType[float]):
    """An option's value in seconds. `bare`: the unit of a number that has none; without it a unit is needed."""

    name = "duration"

    def __init__(self, *, least_s: float = 0.0, bare: str = "") -> None:
        self.least_s, self.bare = least_s, bare

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            found = value if isinstance(value, float) else duration_s(str(value), bare=self.bare)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if found < self.least_s:
            self.fail(f"{value!r} is less than {self.least_s:g} s", param, ctx)
        return found
