"""Ricochet's figures (Balakrishnan et al., NSDI 2007, Sec. 5) and two studies of ours: a row of STUDIES each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rostrum.sim.ricochet import Row, Setting
from rostrum.sim.studies import LATENCY, OVERHEAD, SHARE, Figure, Key, Points, Study

BURST = 10  # of bursty and, in the mean, of markov losses
COMPLETE = Figure("recovered, %", "recovered_share", scale=100)
LATER = Figure("later than 250 ms, %", "later_share", scale=100)
LATEST = Figure("latest, ms", "latency_ms", "max")
P99 = Figure("99th percentile, ms", "latency_ms", "p99")
REQUESTS = Figure("requests per missing packet", "naks_per_missing")
ANSWERS = Figure("answers per missing packet", "answers_per_missing")
HEARTBEATS = Figure("heartbeats per message", "heartbeats_per_data")
LOST = Figure("lost on the way, of what is expected, %", "lost_share", scale=100)
DISCOVERY = Figure("mean discovery, s", "discovery_ms", "mean", scale=1e-3)
ALL_LATENCY = Figure("mean latency, ms", "latency_ms", "mean")
ALL_SINCE_DISCOVERY = Figure("since discovery, ms", "since_discovery_ms", "mean")
BYTES = Figure("bytes on its link for a message to a node", "bytes_per_message")
LATEST_DISCOVERY = Figure("latest, s", "discovery_ms", "max", scale=1e-3)


def along(field: str, values: Iterable[Any], base: Setting | None = None) -> Points:
    """A point for each value of one field of a setting."""
    return {(str(value),): replace(base or Setting(), **{field: value}) for value in values}


def tuning(quick: bool) -> Points:
    by_c: dict[Key, Setting] = {("c, r = 8", str(c)): Setting(c=c) for c in ((1, 4, 7) if quick else range(1, 8))}
    by_r: dict[Key, Setting] = {
        ("r, c = r / 2", str(r)): Setting(r=r, c=r / 2) for r in ((4, 8, 16) if quick else range(4, 17, 2))
    }
    return {**by_c, **by_r}


def loss(quick: bool) -> Points:
    return {
        (model, str(rate)): Setting(loss_percent=rate, model=model, burst=burst)
        for model, burst in (("uniform", 1), ("bursty", BURST), ("markov", BURST))
        for rate in ((1, 5, 25) if quick else (1, 2, 5, 10, 15, 20, 25))
    }


def stagger(quick: bool) -> Points:
    return {
        (f"bursts of {burst}", str(stagger)): Setting(model="bursty", burst=burst, stagger=stagger)
        for burst in ((10, 100) if quick else (10, 50, 100))
        for stagger in ((1, 6) if quick else range(1, 11))
    }


def naks(quick: bool) -> Points:
    base = Setting(nodes=16, loss_percent=20, naks=True, settle_s=10.0)
    return {
        (f"{degree} groups", str(rate)): replace(base, degree=degree, rate=float(rate))
        for degree in (2, 128)
        for rate in ((90, 1000) if quick else (20, 90, 450, 1000))
    }


def overload(quick: bool) -> Points:
    base = Setting(nodes=16, rate=450.0, naks=True, queue_bytes=256 << 10)
    return {
        (f"{percent} % lost besides", str(mbps)): replace(base, loss_percent=percent, link_bps=mbps * 10**6)
        for percent in (0, 20)
        for mbps in ((3, 4, 12) if quick else (2, 3, 4, 5, 6, 7, 8, 10, 12))
    }


def srm(quick: bool) -> Points:
    """Ricochet beside SRM: with the paper's share of traffic for session messages, and with what repairs take."""
    kinds = {
        "ricochet": Setting(naks=True),
        "SRM, session messages 5 %": Setting(protocol="srm", session=0.05),
        "SRM, as much traffic": Setting(protocol="srm", session=0.9),
    }
    return {
        (name, str(degree)): replace(base, degree=degree)
        for name, base in kinds.items()
        for degree in ((2, 128) if quick else (2, 16, 128))
    }


def draw_histogram(whole: Any, rows: Mapping[Key, Sequence[Row]]) -> None:
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


STUDIES = (
    Study(
        "ricochet-groups",
        """Recovery by lateral error correction, with 2 to 1,024 groups per node (figure 10).

        64 nodes, groups of 10, each node receives 1,000 messages of 1 KB a second and loses 1 %; (r, c) = (8, 5), no
        NAKs.
        """,
        "groups per node",
        lambda quick: along("degree", (2, 64, 1024) if quick else (2**power for power in range(1, 11))),
        logarithmic=True,
    ),
    Study(
        "ricochet-histogram",
        """Distribution of recovery latencies at 10, 15 and 20 % loss, with NAKs (figure 8).

        16 nodes, 128 groups each, of 10; (r, c) = (8, 5).
        """,
        "loss, %",
        lambda quick: along("loss_percent", (10, 15, 20), Setting(nodes=16, naks=True)),
        figures=(SHARE, LATENCY, COMPLETE, P99, LATER, LATEST, REQUESTS, HEARTBEATS),
        draw=draw_histogram,
        runs=1,
    ),
    Study(
        "ricochet-tuning",
        """Recovery, latency and overhead against c and against r (figure 9).

        64 nodes, 128 groups each, of 10; 1 % lost. More c: more is recovered, sooner, for more repairs; more r at the
        same overhead: longer repairs, which are later.
        """,
        "c, or r",
        tuning,
        drawn=(SHARE, LATENCY, OVERHEAD),
    ),
    Study(
        "ricochet-loss",
        """Recovery at 1 to 25 % loss: uniform, in bursts of 10, and markov with runs of 10 on average (figure 12).

        64 nodes, 128 groups each, of 10; (r, c) = (8, 5), no NAKs.
        """,
        "loss, %",
        loss,
    ),
    Study(
        "ricochet-bursts",
        """Recovery of losses in bursts of 5 to 40 packets, without stagger (figure 13).

        64 nodes, 128 groups each, of 10; 1 % lost, (r, c) = (8, 5), no NAKs.
        """,
        "length of bursts",
        lambda quick: along("burst", (5, 10, 40) if quick else range(5, 41, 5), Setting(model="bursty")),
    ),
    Study(
        "ricochet-stagger",
        """Recovery of losses in bursts of 10, 50 and 100 packets with stagger 1 to 10 (figure 14).

        64 nodes, 128 groups each, of 10; 1 % lost, (r, c) = (8, 5), no NAKs.
        """,
        "stagger",
        stagger,
    ),
    Study(
        "ricochet-size",
        """Recovery with groups of 16 to 48 of the 64 nodes (figure 15).

        128 groups per node; 1 % lost, (r, c) = (8, 5), no NAKs.
        """,
        "nodes in a group",
        lambda quick: along("size", (16, 48) if quick else range(16, 49, 8)),
    ),
    Study(
        "ricochet-nodes",
        """Recovery with 64, 256 and 1,024 nodes (section 5.6 of the paper had 256).

        128 groups per node, of 10; 1 % lost, (r, c) = (8, 5), no NAKs. A full run takes minutes and gigabytes.
        """,
        "nodes",
        lambda quick: along("nodes", (64, 256) if quick else (64, 256, 1024)),
        seconds=(3.0, 10.0),
        runs=1,
        logarithmic=True,
    ),
    Study(
        "ricochet-discovery",
        """Time from a loss until a later packet of the same sender and group shows it (figure 2: SRM's discovery).

        64 nodes, groups of 10, each node receives 1,000 messages a second of all its groups; 1 % lost. Session messages
        of SRM are not sent. Only what is published in the first half of a run counts.
        """,
        "groups per node",
        lambda quick: along(
            "degree",
            (2, 16, 128) if quick else (2, 4, 8, 16, 32, 64, 128),
            Setting(protocol="plain", settle_s=0.1),
        ),
        figures=(DISCOVERY, LATEST_DISCOVERY),
        drawn=(DISCOVERY,),
        seconds=(10.0, 120.0),
        runs=1,
        logarithmic=True,
    ),
    Study(
        "ricochet-srm",
        """Latency of recovery beside SRM with session messages, with 2 to 128 groups per node (figure 2 against 10).

        64 nodes, groups of 10, 1,000 messages of 1 KB a second at each node; 1 % lost. Ricochet: (8, 5) and NAKs. SRM
        (Floyd et al., 1997): adaptive timers, distances of each pair by timestamps in session messages, which take the
        paper's 5 % of a group's traffic, or so much that both carry the same bytes. What is missing may be shown by a
        later message or by anybody's session message. Of SRM what is published in the first half counts.
        """,
        "groups per node",
        srm,
        figures=(COMPLETE, ALL_LATENCY, P99, DISCOVERY, ALL_SINCE_DISCOVERY, BYTES),
        drawn=(ALL_LATENCY, BYTES),
        seconds=(6.0, 40.0),
        runs=1,
        logarithmic=True,
    ),
    Study(
        "ricochet-naks",
        """What comes late at 20 % loss, with 20 to 1,000 messages a second at each node: repairs and NAKs together.

        16 nodes in 2 or 128 groups of 10; (r, c) = (8, 5). Requests, answers and heartbeats are lost like all else.
        """,
        "messages a second",
        naks,
        figures=(SHARE, COMPLETE, P99, LATER, LATEST, REQUESTS, HEARTBEATS),
        drawn=(LATER, P99),
        seconds=(10.0, 60.0),
        runs=1,
        logarithmic=True,
    ),
    Study(
        "ricochet-overload",
        """Requests where links are too narrow: 2 to 12 Mbit/s for messages of 3.7 Mbit/s, and what mends them.

        16 nodes, 128 groups each, of 10, 450 messages of 1 KB a second at each node; (r, c) = (8, 5), with NAKs.
        """,
        "Mbit/s of each link",
        overload,
        figures=(LOST, COMPLETE, SHARE, LATENCY, REQUESTS, ANSWERS),
        drawn=(REQUESTS, COMPLETE),
        seconds=(4.0, 10.0),
        runs=1,
    ),
)
commands = {study.name: study.command() for study in STUDIES}
