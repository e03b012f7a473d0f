"""Tools that send at the rate they are told: which rate is best for them on this machine."""

from __future__ import annotations

import subprocess
from typing import ClassVar

from rostrum.bench.cases import Case

Rates = dict[int, tuple[int, ...]]


class Rated:
    """`free_bps`: by MTU, rates to try where the link is not limited, the usual best first. `link_share`: of a limited
    link, so that its headers fit. `tuned`: what `Tuning` found best, by (MTU, offload)."""

    name = ""
    link_share = 0.97
    free_bps: ClassVar[Rates] = {}

    def __init__(self) -> None:
        self.tuned: dict[tuple[int, bool], int] = {}

    def candidates(self, case: Case) -> tuple[int, ...]:
        """Rates to try for this case; none if the link says it."""
        return () if case.rate_bps else self.free_bps[1500 if case.mtu < 9000 else 9000]

    def rate_bps(self, case: Case) -> int:
        if case.rate_bps:
            return int(case.rate_bps * self.link_share)
        return self.tuned.get((case.mtu, case.offload), self.candidates(case)[0])


def debian_version(package: str) -> str:
    """Of an installed package; "" if it is not."""
    done = subprocess.run(
        ["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True, timeout=10, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""
