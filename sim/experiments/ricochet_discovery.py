"""Ricochet, Fig. 2: how long a gap takes to show itself, against the number of groups per node."""

from __future__ import annotations

from rostrum.sim.ricochet import Setting
from rostrum.sim.studies import Figure, Points, Study

DISCOVERY = Figure("mean discovery, s", "discovery_ms", "mean", scale=1e-3)
LATEST = Figure("latest, s", "discovery_ms", "max", scale=1e-3)


def points(quick: bool) -> Points:
    degrees = (2, 16, 64) if quick else (2, 4, 8, 16, 32, 64, 128)
    return {(str(degree),): Setting(degree=degree, protocol="plain", settle_s=0.1) for degree in degrees}


command = Study(
    "ricochet-discovery",
    """Time from a loss until a later packet of the same sender and group shows it (figure 2: SRM's discovery).

    64 nodes, groups of 10, each node receives 1,000 messages a second of all its groups; 1 % lost. Session messages of
    SRM are not sent. Only what is published in the first half of a run counts.
    """,
    "groups per node",
    points,
    figures=(DISCOVERY, LATEST),
    drawn=(DISCOVERY,),
    seconds=(10.0, 120.0),
    runs=1,
    logarithmic=True,
).command()
