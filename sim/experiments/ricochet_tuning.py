"""Ricochet, Fig. 9: what the rate of fire (r, c) buys, and what it costs."""

from __future__ import annotations

from rostrum.sim.ricochet import Setting
from rostrum.sim.studies import LATENCY, OVERHEAD, SHARE, Key, Points, Study


def points(quick: bool) -> Points:
    found: dict[Key, Setting] = {
        ("c, r = 8", str(c)): Setting(c=c) for c in ((1, 3, 5) if quick else (1, 2, 3, 4, 5, 6, 7))
    }
    for r in (4, 8, 16) if quick else (4, 6, 8, 10, 12, 14, 16):
        found["r, c = r / 2", str(r)] = Setting(r=r, c=r / 2)
    return found


command = Study(
    "ricochet-tuning",
    """Recovery, latency and overhead against c and against r (Ricochet, figure 9).

    64 nodes, 128 groups each, of 10; 1 % lost. More c: more is recovered, sooner, for more repairs; more r at the same
    overhead: longer repairs, which are later.
    """,
    "c, or r",
    points,
    drawn=(SHARE, LATENCY, OVERHEAD),
).command()
