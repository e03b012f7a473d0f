"""Ricochet, Fig. 15: lateral error correction against the size of groups."""

from __future__ import annotations

from rostrum.sim.ricochet import Setting
from rostrum.sim.studies import Points, Study


def points(quick: bool) -> Points:
    return {(str(size),): Setting(size=size) for size in ((16, 48) if quick else (16, 24, 32, 40, 48))}


command = Study(
    "ricochet-size",
    """Recovery with groups of 16 to 48 of the 64 nodes (Ricochet, figure 15).

    128 groups per node; 1 % lost, (r, c) = (8, 5), no NAKs.
    """,
    "nodes in a group",
    points,
).command()
