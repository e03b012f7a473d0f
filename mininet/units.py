"""Sizes and durations as people write them on the command line of an experiment."""

from __future__ import annotations

import re
from typing import Any

import click
from rostrum.lab.ocs import timing

BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size_bytes(text: str) -> int:
    """`64M`, `512K`, `4096`, `1.5G` (powers of 1024, as the agent reads them). Raises ValueError."""
    match = re.fullmatch(r"([0-9]{1,15})(\.[0-9]{1,6})?([KMGT]?)(?:i?B)?", text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a size; write a number with K, M or G, for example 64M")
    return int(float(match[1] + (match[2] or "")) * BYTES[match[3]])


def size_text(size: float) -> str:
    """64 MiB for 67108864."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024 or (unit == "MiB" and size < 10240):
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"


def rate_text(rate_bps: float) -> str:
    """940 Mbit/s for 9.4e8."""
    for unit in ("bit/s", "kbit/s", "Mbit/s"):
        if rate_bps < 1000:
            return f"{rate_bps:.3g} {unit}"
        rate_bps /= 1000
    return f"{rate_bps:.3g} Gbit/s"


class Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else size_bytes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Duration(click.ParamType[float]):
    """Seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return value if isinstance(value, float) else timing.duration_s(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
