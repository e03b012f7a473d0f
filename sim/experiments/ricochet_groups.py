"""Ricochet, Fig. 10: lateral error correction against the number of groups per node."""

from __future__ import annotations

from rostrum.sim.ricochet import Setting
from rostrum.sim.studies import Points, Study

DEGREES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
QUICK = (2, 16, 128, 1024)


def points(quick: bool) -> Points:
    return {(str(degree),): Setting(degree=degree) for degree in (QUICK if quick else DEGREES)}


command = Study(
    "ricochet-groups",
    """Recovery by lateral error correction, with 2 to 1,024 groups per node (Ricochet, figure 10).

    64 nodes, groups of 10, each node receives 1,000 messages of 1 KB a second and loses 1 %; (r, c) = (8, 5), no NAKs.
    """,
    "groups per node",
    points,
    logarithmic=True,
).command()
