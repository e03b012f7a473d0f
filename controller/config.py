"""What the manager is started with."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from rostrum.controller.core.values import Settings
from rostrum.topologies.model import Topology

_SPAN_NS = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "m": 60_000_000_000}
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Config:
    """Addresses to listen on default to the topology's. Port None = the topology's, 0 = any free one."""

    topology: Topology
    run: Path
    settings: Settings = field(default_factory=Settings)
    listen: tuple[str, ...] = ()
    thrift_port: int | None = None
    rest_port: int | None = None
    openflow_port: int | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        return self.listen or (str(self.topology.manager.address),)


def span_ns(text: str) -> int:
    """`2s`, `70 ms`, `500us`, `1m` in ns. Raises ValueError with the remedy."""
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,6})?)\s*(us|ms|s|m)\s*", text)
    if not match:
        raise ValueError(f"{text!r} is no span; write a number and us, ms, s or m, for example 2s or 70ms")
    return round(float(match[1]) * _SPAN_NS[match[2]])


def size_bytes(text: str) -> int:
    """`64M`, `8896` in bytes. Raises ValueError with the remedy."""
    match = re.fullmatch(r"\s*(\d{1,15})\s*([KMG]?)i?B?\s*", text)
    if not match or int(match[1]) == 0:
        raise ValueError(f"{text!r} is no size; write bytes with K, M or G, for example 64M")
    return int(match[1]) * _SIZES[match[2]]
