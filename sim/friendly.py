"""congestion=friendly of `wan` beside CUBIC and BBR at narrow places of many kinds, and CUBIC beside both there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from rich.table import Table
from rostrum.sim.narrow import Place, share

RATES = (200e6, 1e9)
TRIPS_MS = (10, 20, 50, 100, 200)
QUEUES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)  # of rate x round trip
MARK = 0.5  # of the queue
SECONDS = 120  # a CUBIC is back after 23 s at 1 Gbit/s and 200 ms: K of RFC 9438, 4.2
PAIRS = (("friendly", "cubic"), ("friendly", "bbr"), ("cubic", "cubic"), ("bbr", "cubic"))
PAIR_NAMES = [f"{a} beside {b}" for a, b in PAIRS]
FACTOR = 2.0


def is_fair(ratio: float) -> bool:
    return 1 / FACTOR <= ratio <= FACTOR


def is_worse(row: dict[str, Any]) -> bool:
    """Beside CUBIC: outside the factor, and further from an equal share than a CUBIC would be there."""
    found: dict[str, float] = row["ratio"]
    ours, cubic = (max(found[name], 1 / max(found[name], 1e-9)) for name in PAIR_NAMES[::2])
    return ours > max(FACTOR, cubic)


def points(quick: bool) -> Iterator[tuple[Place, float, bool]]:
    """Places, with the queue as part of rate x round trip, and whether the first of a pair leads."""
    trips, queues = (TRIPS_MS[1::2], QUEUES[::2]) if quick else (TRIPS_MS, QUEUES)
    rates = RATES[:1] if quick else RATES
    for rate, trip, part, marks, leads in product(rates, trips, queues, (False, True), (False, True)):
        queue = part * rate / 8 * trip / 1000
        yield Place(rate, trip, queue, MARK * queue if marks else 0.0), part, leads


def study(quick: bool = False, seconds: int = SECONDS) -> dict[str, Any]:
    """Of each pair the points where one has more than twice the other's; `alone`: where CUBIC beside CUBIC has not."""
    rows: list[dict[str, Any]] = []
    for place, part, leads in points(quick):
        found = {f"{a} beside {b}": share(place, (a, b), leads, seconds) for a, b in PAIRS}
        rows.append(
            {
                "rate_bps": place.link_bps, "rtt_ms": place.rtt_ms, "queue": part, "marks": place.mark > 0,
                "first_leads": leads, "ratio": {name: one.ratio for name, one in found.items()},
                "events": {name: one.events[1] for name, one in found.items()},
            }
        )  # fmt: skip
    summary: dict[str, Any] = {}
    for marks in (False, True):
        here = [row for row in rows if row["marks"] == marks]
        outside = {name: [row for row in here if not is_fair(row["ratio"][name])] for name in here[0]["ratio"]}
        summary["marks" if marks else "losses"] = {
            "points": len(here),
            "outside": {name: len(bad) for name, bad in outside.items()},
            "alone": sum(is_fair(row["ratio"]["cubic beside cubic"]) for row in outside["friendly beside cubic"]),
            "worse": sum(is_worse(row) for row in here),
        }
    verdicts = [
        {"claim": f"{what}: points {which}", "got": got, "goal": 0, "found": got == 0}
        for what, one in summary.items()
        for which, got in (
            ("beside CUBIC outside a factor of two, and further than CUBIC beside CUBIC", one["worse"]),
            ("beside BBR outside a factor of two", one["outside"]["friendly beside bbr"]),
        )
    ]
    return {"instrument": "sim", "seconds": seconds, "summary": summary, "verdicts": verdicts, "points": rows}


def table(report: dict[str, Any]) -> Table:
    """Points outside the factor of two."""
    found = Table("place", "points", *PAIR_NAMES, "worse than CUBIC", box=None, pad_edge=False)
    for what, one in report["summary"].items():
        outside = (str(one["outside"][name]) for name in PAIR_NAMES)
        found.add_row(what, str(one["points"]), *outside, str(one["worse"]))
    return found
