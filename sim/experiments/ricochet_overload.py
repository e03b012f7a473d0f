"""Ours: groups on links that are too narrow for them. What requests (NAKs) add to it, and what comes all the same."""

from __future__ import annotations

from rostrum.sim.ricochet import Setting
from rostrum.sim.studies import LATENCY, SHARE, Figure, Points, Study

WHOLE = Figure("recovered, %", "recovered_share", scale=100)
REQUESTS = Figure("requests per missing packet", "naks_per_missing")
ANSWERS = Figure("answers per missing packet", "answers_per_missing")
LOST = Figure("lost on the way, of what is expected, %", "lost_share", scale=100)


def points(quick: bool) -> Points:
    rates = (3, 6, 12) if quick else (2, 3, 4, 5, 6, 7, 8, 10, 12)
    return {
        (f"{loss} % lost besides", str(mbps)): Setting(
            nodes=16, rate=450.0, loss_percent=loss, naks=True, link_bps=mbps * 10**6, queue_bytes=256 << 10
        )
        for loss in (0, 20)
        for mbps in rates
    }


command = Study(
    "ricochet-overload",
    """Requests where links are too narrow: 2 to 12 Mbit/s for messages of 3.7 Mbit/s, and what mends them.

    16 nodes, 128 groups each, of 10, 450 messages of 1 KB a second at each node; (r, c) = (8, 5), with NAKs.
    """,
    "Mbit/s of each link",
    points,
    figures=(LOST, WHOLE, SHARE, LATENCY, REQUESTS, ANSWERS),
    drawn=(REQUESTS, WHOLE),
    seconds=(4.0, 10.0),
    runs=1,
).command()
