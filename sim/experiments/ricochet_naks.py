"""Ours: how soon the rest comes that repairs do not bring, on busy and on quiet groups, and what that costs."""

from __future__ import annotations

from dataclasses import replace

from rostrum.sim.experiments.ricochet_histogram import HEARTBEATS, LATER, LATEST, P99, REQUESTS, WHOLE
from rostrum.sim.ricochet import Setting
from rostrum.sim.studies import SHARE, Points, Study

BASE = Setting(nodes=16, loss_percent=20, naks=True, settle_s=10.0)


def points(quick: bool) -> Points:
    rates = (90, 1000) if quick else (20, 90, 450, 1000)
    return {
        (f"{degree} groups", str(rate)): replace(BASE, degree=degree, rate=float(rate))
        for degree in (2, 128)
        for rate in rates
    }


command = Study(
    "ricochet-naks",
    """What comes late at 20 % loss, with 20 to 1,000 messages a second at each node: repairs and NAKs together.

    16 nodes in 2 or 128 groups of 10; (r, c) = (8, 5). Requests, answers and heartbeats are lost like all else.
    """,
    "messages a second",
    points,
    figures=(SHARE, WHOLE, P99, LATER, LATEST, REQUESTS, HEARTBEATS),
    drawn=(LATER, P99),
    seconds=(10.0, 60.0),
    runs=1,
    logarithmic=True,
).command()
