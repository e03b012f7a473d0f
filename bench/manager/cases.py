"""What is measured: a data center, who asks for what, and how often."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from rostrum.topologies.generate import Hybrid

PAPER_REQUESTS_PER_S = 735  # Republic, Sec. VI-D: 1.36 ms each, on 40 servers, 16 receivers in the mean
RACKS = {40: (8, 64, 8), 200: (20, 96, 16), 1_000: (50, 128, 16), 10_000: (200, 320, 16)}  # racks, OCS ports, splitters
REPEATS = 3


@dataclass(frozen=True)
class Case:
    """`clients`: requests under way at any time (closed loop); `rate_per_s`: of a Poisson process (open loop).
    Receivers are drawn again for each request: their number evenly from `receivers`, who they are from all servers.
    `live`: paths that are there already and stay. `wait_s`: how long a request waits for a circuit; 0 = it takes the
    packet network at once if none is free.
    """

    name: str
    door: str = "thrift"  # "thrift" | "rest" | "echo"
    servers: int = 40
    receivers: tuple[int, int] = (1, 31)
    clients: int = 8
    rate_per_s: int = 0
    live: int = 0
    wait_s: float = 2.0
    seconds: float = 4.0
    journal: bool = True  # what is granted is written before it is told, as people run it

    @property
    def loop(self) -> str:
        return f"open {self.rate_per_s}/s" if self.rate_per_s else f"closed {self.clients}"

    @property
    def hybrid(self) -> Hybrid:
        racks, ports, splitters = RACKS[self.servers]
        return Hybrid(racks, self.servers // racks, ports, splitters, fanout=4, rate="10G")

    def facts(self) -> dict[str, Any]:
        return asdict(self)


PAPER = Case("thrift-40")
_BY_SIZE = (
    PAPER,
    replace(PAPER, name="thrift-1000", servers=1_000),
    replace(PAPER, name="thrift-10000", servers=10_000),
)
_PACKET = replace(PAPER, name="thrift-40-packet", wait_s=0.0)


def full() -> list[Case]:
    cases = [replace(PAPER, name="echo", door="echo"), *_BY_SIZE, replace(PAPER, name="thrift-200", servers=200)]
    cases += [replace(_PACKET, name=f"thrift-{n}-packet", servers=n) for n in (40, 10_000)]
    cases += [replace(_PACKET, name=f"thrift-40-packet-clients-{n}", clients=n) for n in (16, 24)]
    cases += [replace(PAPER, name="thrift-40-alone", clients=1)]
    cases += [replace(case, name=f"{case.name}-no-journal", journal=False) for case in (PAPER, _PACKET)]
    cases += [replace(_PACKET, name=f"thrift-1000-receivers-{n}", servers=1_000, receivers=(n, n)) for n in (1, 4, 64)]
    cases.append(
        replace(_PACKET, name="thrift-10000-receivers-1000", servers=10_000, receivers=(1_000, 1_000), clients=1)
    )
    cases += [
        replace(_PACKET, name=f"thrift-{servers}-live-{live}", servers=servers, live=live)
        for servers in (40, 10_000)
        for live in (1_000, 10_000)
    ]
    cases += [replace(PAPER, name=f"thrift-40-open-{rate}", rate_per_s=rate) for rate in (PAPER_REQUESTS_PER_S, 4_000)]
    cases += [replace(_PACKET, name="thrift-40-packet-open-4000", rate_per_s=4_000)]
    cases += [replace(PAPER, name=f"rest-{n}", door="rest", servers=n) for n in (40, 10_000)]
    cases += [replace(PAPER, name="rest-40-open-100", door="rest", rate_per_s=100)]
    return cases


def quick() -> list[Case]:
    """Under a minute."""
    cases = [replace(PAPER, name="echo", door="echo"), *_BY_SIZE, _PACKET]
    cases += [replace(_PACKET, name="thrift-40-packet-no-journal", journal=False)]
    cases += [replace(_PACKET, name="thrift-40-live-1000", live=1_000)]
    cases += [replace(PAPER, name="thrift-40-open-735", rate_per_s=PAPER_REQUESTS_PER_S)]
    cases += [replace(PAPER, name="rest-40", door="rest")]
    return [replace(case, seconds=2.0) for case in cases]


def chosen(cases: list[Case], patterns: tuple[str, ...]) -> list[Case]:
    """Those whose name fits one of the patterns, as of file names."""
    return [case for case in cases if not patterns or any(fnmatchcase(case.name, one) for one in patterns)]
