"""Ricochet, Fig. 13: lateral error correction against the length of bursts of loss."""

from __future__ import annotations

from rostrum.sim.ricochet import Setting
from rostrum.sim.studies import Points, Study


def points(quick: bool) -> Points:
    bursts = (5, 20, 40) if quick else (5, 10, 15, 20, 25, 30, 35, 40)
    return {(str(burst),): Setting(model="bursty", burst=burst) for burst in bursts}


command = Study(
    "ricochet-bursts",
    """Recovery of losses in bursts of 5 to 40 packets, without stagger (Ricochet, figure 13).

    64 nodes, 128 groups each, of 10; 1 % lost, (r, c) = (8, 5), no NAKs.
    """,
    "length of bursts",
    points,
).command()
