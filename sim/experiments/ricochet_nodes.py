"""Ricochet, Sec. 5.6: lateral error correction against the number of nodes."""

from __future__ import annotations

from rostrum.sim.ricochet import Setting
from rostrum.sim.studies import Points, Study


def points(quick: bool) -> Points:
    return {(str(nodes),): Setting(nodes=nodes) for nodes in ((64, 256) if quick else (64, 256, 1024))}


command = Study(
    "ricochet-nodes",
    """Recovery with 64, 256 and 1,024 nodes (Ricochet, section 5.6, had 256).

    128 groups per node, of 10; 1 % lost, (r, c) = (8, 5), no NAKs. A full run takes minutes and gigabytes.
    """,
    "nodes",
    points,
    seconds=(3.0, 10.0),
    runs=1,
    logarithmic=True,
).command()
