"""Traces of requests: made up from a seed after the paper's workloads, or read from a file.

A trace file has one JSON object a line: {"at_ms": 12.5, "sender": "h1", "receivers": ["h3", "h7"], "bytes": 528482304}.
`rostrum manager trace` writes such a file from what a running manager remembers.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rostrum.topologies.model import Topology

MB = 10**6
MS = 10**6  # ns

# Republic, Sec. VI: machine-learning models broadcast to workers, and tables of TPC-H joins.
WORD2VEC_BYTES = 504 * MB
LDA_BYTES = 735 * MB
TPCH_BYTES = (4 * MB, 6_200 * MB)


@dataclass(frozen=True)
class Demand:
    """One object to be sent. `at`: ns since the trace began."""

    at: int
    sender: str
    receivers: tuple[str, ...]
    size: int  # bytes


class BadTrace(Exception):
    """A trace cannot be used; the text says where and why."""


def size_of(kind: str, rng: random.Random) -> int:
    """An object of a workload: word2vec | lda | tpch (log-uniform between its least and largest table)."""
    if kind == "word2vec":
        return WORD2VEC_BYTES
    if kind == "lda":
        return LDA_BYTES
    low, high = (math.log(bound) for bound in TPCH_BYTES)
    return round(math.exp(rng.uniform(low, high)))


def generate(
    topology: Topology, count: int, load: float, seed: int, kinds: tuple[str, ...] = ("word2vec", "lda", "tpch")
) -> list[Demand]:
    """`count` demands with exponential gaps. `load`: share of the racks' circuit ports that they would keep busy with
    receiving. Each goes to a uniform number of servers, half of all in the mean, at least one of them in another rack.
    """
    rng = random.Random(seed)
    chosen = [_ends(topology, rng) for _ in range(count)]
    sizes = [size_of(rng.choice(kinds), rng) for _ in range(count)]
    owed = sum(size * len(remote_racks(topology, *ends)) for size, ends in zip(sizes, chosen, strict=True))
    gap_ns = owed / count * 8e9 / (load * sum(uplink_rates(topology).values()))
    at = itertools.accumulate(rng.expovariate(1 / gap_ns) for _ in range(count))
    return [
        Demand(round(when), sender, receivers, size)
        for when, (sender, receivers), size in zip(at, chosen, sizes, strict=True)
    ]


def _ends(topology: Topology, rng: random.Random) -> tuple[str, tuple[str, ...]]:
    servers = sorted(topology.servers)
    sender = rng.choice(servers)
    others = [name for name in servers if name != sender]
    receivers = set(rng.sample(others, rng.randint(1, len(others))))
    remote = [name for name in others if topology.servers[name].tor != topology.servers[sender].tor]
    if receivers.isdisjoint(remote):
        receivers.add(rng.choice(remote))
    return sender, tuple(sorted(receivers))


def remote_racks(topology: Topology, sender: str, receivers: Iterable[str]) -> set[str]:
    """The receivers' racks but the sender's."""
    return {topology.servers[name].tor for name in receivers} - {topology.servers[sender].tor}


def uplink_rates(topology: Topology) -> dict[tuple[str, int], int]:
    """(ToR, port) cabled to an optical circuit switch -> bit/s."""
    ends = [end for ocs in topology.ocs.values() for end in ocs.attached.values()]
    return {(end.node, end.port): topology.switches[end.node].rates[end.port] for end in ends}


def read(path: Path, topology: Topology) -> list[Demand]:
    """A trace file, in order of time. Raises BadTrace (with the line) and OSError."""
    demands = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            demands.append(_demand(json.loads(line), topology))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadTrace(f"{path}, line {number}: {error!r}; a line is {example()}") from error
    if not demands:
        raise BadTrace(f"{path} has no requests; a line is {example()}")
    return sorted(demands, key=lambda demand: demand.at)


def write(path: Path, demands: Iterable[Demand]) -> None:
    path.write_text("".join(json.dumps(as_json(demand)) + "\n" for demand in demands))


def as_json(demand: Demand) -> dict[str, object]:
    return {
        "at_ms": demand.at / MS,
        "sender": demand.sender,
        "receivers": list(demand.receivers),
        "bytes": demand.size,
    }


def example() -> str:
    return json.dumps(as_json(Demand(12_500_000, "h1", ("h3", "h7"), WORD2VEC_BYTES)))


def _demand(row: dict[str, object], topology: Topology) -> Demand:
    at_ms, size, sender, receivers = row["at_ms"], row["bytes"], row["sender"], row["receivers"]
    if not isinstance(at_ms, int | float) or not 0 <= at_ms < 1e12:
        raise ValueError("at_ms is a number of milliseconds from 0 on")
    if not isinstance(size, int) or not 0 <= size < 1 << 62:
        raise ValueError("bytes is a whole number")
    if not isinstance(receivers, list) or not receivers or sender in receivers:
        raise ValueError("receivers is a list of servers, without the sender")
    unknown = [str(name) for name in (sender, *receivers) if name not in topology.servers]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no such server in topology {topology.name}")
    return Demand(round(at_ms * MS), str(sender), tuple(sorted({str(name) for name in receivers})), size)
