"""Ricochet, Fig. 8: when what was lost is recovered, by repairs and by NAKs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rostrum.sim.ricochet import Row, Setting
from rostrum.sim.studies import LATENCY, SHARE, Figure, Key, Points, Study

WHOLE = Figure("recovered, %", "recovered_share", scale=100)
LATER = Figure("later than 250 ms, %", "later_share", scale=100)
REQUESTS = Figure("requests per missing packet", "naks_per_missing")
HEARTBEATS = Figure("heartbeats per message", "heartbeats_per_data")
LATEST = Figure("latest, ms", "latency_ms", "max")
P99 = Figure("99th percentile, ms", "latency_ms", "p99")


def points(quick: bool) -> Points:
    return {(str(rate),): Setting(nodes=16, loss_percent=rate, naks=True) for rate in (10, 15, 20)}


def draw(whole: Any, rows: Mapping[Key, Sequence[Row]]) -> None:
    for axis, (key, found) in zip(whole.subplots(1, len(rows), sharey=True), rows.items(), strict=True):
        bottom = [0.0] * 30
        total = sum(sum(sum(counts) for counts in row["recoveries_ms"].values()) for row in found)
        for via, label in (("repair", "repairs (LEC)"), ("retransmit", "NAKs")):
            counts = [sum(row["recoveries_ms"][via][place] for row in found) for place in range(30)]
            heights = [100 * count / max(1, total) for count in counts]
            axis.bar([10 * place + 5 for place in range(30)], heights, 10, bottom, label=label)
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
        axis.set(title=f"{key[0]} % lost", xlabel="recovery latency, ms", ylabel="of what was lost, %")
        axis.legend()


command = Study(
    "ricochet-histogram",
    """Distribution of recovery latencies at 10, 15 and 20 % loss, with NAKs (figure 8).

    16 nodes, 128 groups each, of 10; (r, c) = (8, 5).
    """,
    "loss, %",
    points,
    figures=(SHARE, LATENCY, WHOLE, P99, LATER, LATEST, REQUESTS, HEARTBEATS),
    draw=draw,
    runs=1,
).command()
