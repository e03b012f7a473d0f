"""What a study says: a row for each run, shares of what a link could carry, and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rostrum.bench.wan.beside import FAIR, alone_name, pair_name
from rostrum.bench.wan.points import Point
from rostrum.bench.wan.tools import MULTICAST, OUR

Row = dict[str, Any]


def compact(record: dict[str, Any], counters: Callable[[], dict[str, Any]], point: Point) -> Row:
    """Of a run's record. `share`: of what the link could carry; `at_most`: it was given up, and the share is that of
    a tool that had ended at that moment."""
    row: Row = {"point": point.name, "tool": record["tool"], "outcome": record["outcome"]}
    if record["outcome"] == "missing":
        return {**row, "text": f"missing: {record['text']}"}
    seen = counters()
    sender = seen["ports"].get("port1", {})
    case = record["case"]
    seconds = record.get("time_s", case["give_up_s"])
    goodput = case["size"] * 8 / seconds
    row |= {
        "at_most": record["outcome"] != "ok",
        "seconds": seconds,
        "mb": case["size"] >> 20,
        "goodput_bps": goodput,
        "share": goodput / point.ideal_bps,
        "queue_drops": sender.get("full_up", 0),
        "marked": sender.get("marked", 0),
        "late_p99_us": seen["late"]["p99_us"],
        "late_p99.9_us": seen["late"]["p99.9_us"],
        "overrun": seen["overrun"],
        "load": record.get("load"),
    }
    if record["outcome"] == "ok":
        row |= {
            "sent_ratio": record["sent_bytes"] / case["size"],
            "cpu_s": record["sender_s"] + record["receivers_s"],
            "overflows": record["socket_overflows"],
        }
    if record["tool"] == OUR:
        row["ms"] = record["facts"].get("ms", {})
    if beside := record.get("facts", {}).get("beside"):
        row |= {"share": beside["ours_bps"] / (beside["ours_bps"] + beside["tcp_bps"]), "beside": beside}
    if without := record.get("facts", {}).get("without"):
        goodput, second = without["tcp_bps"], without.get("second_bps")
        share = goodput / point.ideal_bps if second is None else second / (second + goodput)
        row |= {"goodput_bps": goodput, "share": share, "without": without}
        for unknown in ("mb", "sent_ratio"):
            row.pop(unknown, None)
    text = f"{goodput / 1e6:7.1f} Mbit/s, share {row['share']:.3f}"
    if "second_bps" in row.get("without", {}):
        text = f"{goodput / 1e6:7.1f} Mbit/s beside {row['without']['second_bps'] / 1e6:.1f}, share {row['share']:.3f}"
    if record["outcome"] == "timeout":
        text = f"less than {text.strip()}: given up after {seconds:.0f} s"
    elif record["outcome"] != "ok":
        row |= {"share": 0.0, "goodput_bps": 0.0}
        text = f"{record['outcome']}: {record.get('text', '')[:200]}"
    row["text"] = text
    return row


def report(rows: Sequence[Row], points: Iterable[Point], probes: list[Row], manifest: dict[str, Any]) -> dict[str, Any]:
    points = list(points)
    shares: dict[str, dict[str, float]] = {}
    for row in rows:
        if "share" in row:
            shares.setdefault(row["point"], {})[row["tool"]] = row["share"]
    given_up = [f"{row['point']} {row['tool']}" for row in rows if row.get("at_most")]
    verdicts = [*goals(shares, points), *figures(rows), *beside_tcp(rows)]
    return {
        "experiment": "wan",
        "manifest": manifest,
        "summary": {
            "share": shares,
            "at_most": given_up,
            "delay_error_us": {f"{row['delay_ms']:g}ms": [row[f"p{n}_us"] for n in (1, 50, 99)] for row in probes},
            "held": sum(one["holds"] is True for one in verdicts),
            "missed": sum(one["holds"] is False for one in verdicts),
        },
        "verdicts": verdicts,
        "points": [
            {
                "point": point.name, "rtt_ms": point.rtt_ms, "loss_percent": point.loss_percent, "burst": point.burst,
                "lost": "on the sender's link" if point.common else "on each receiver's link, both ways",
                "mtu": point.mtu, "rate_bps": point.rate_bps, "queue": point.queue, "mark": point.mark,
                "receivers": point.receivers, "ideal_bps": point.ideal_bps,
            }
            for point in points
        ],
        "probes": probes,
        "runs": list(rows),
    }  # fmt: skip


def _verdict(name: str, goal: str, found: float | None, holds: bool | None) -> Row:
    return {"name": name, "goal": goal, "found": found, "holds": holds}


def goals(shares: dict[str, dict[str, float]], points: Iterable[Point]) -> list[Row]:
    """What is asked of ours at each point that was run."""
    found = []
    for point in points:
        here = shares.get(point.name, {})
        ours = here.get(OUR)
        if ours is None:
            continue
        bound = 0.95 if point.loss_percent <= 1 else 0.88
        found.append(_verdict(f"{point.name} share", f">= {bound}", ours, ours >= bound))
        others = {tool: share for tool, share in here.items() if tool != OUR}
        if others:
            best = max(others, key=lambda tool: others[tool])
            over = ours / others[best] if others[best] else None
            found.append(_verdict(f"{point.name} over {best}", "> 1", over, over is None or over > 1))
        untold = [here[f"{tool}-untold"] for tool in MULTICAST if f"{tool}-untold" in here]
        if untold and point.rtt_ms >= 50 and point.loss_percent >= 0.3:
            over = ours / max(untold) if max(untold) else None
            found.append(
                _verdict(f"{point.name} over the best multicast tool untold", ">= 3", over, over is None or over >= 3)
            )
    return found


def beside_tcp(rows: Sequence[Row]) -> list[Row]:
    """Ours has at least half of what TCP has; and TCP half of what ours has, or of what it has there alone, as more it
    does not use. Beside that, what it has beside another of its kind in place of ours."""
    without = {(row["point"], row["tool"]): row["without"] for row in rows if "without" in row}
    found = []
    for row in rows:
        if not (beside := row.get("beside")):
            continue
        kind, ratio, had = beside["tcp"], beside["ratio"], beside["tcp_bps"]
        alone, pair = (without.get((row["point"], name(kind))) for name in (alone_name, pair_name))
        of_alone = had / alone["tcp_bps"] if alone and alone["tcp_bps"] else None
        holds = ratio is not None and ratio >= 1 / FAIR and (ratio <= FAIR or (of_alone or 0.0) >= 1 / FAIR)
        goal = f"{1 / FAIR:g} to {FAIR:g}, or more and TCP has {1 / FAIR:g} of what it has alone"
        says = [f"TCP has {had / 1e6:.1f} Mbit/s"]
        more: Row = {"tcp_of_alone": of_alone}
        if alone and of_alone is not None:
            says.append(f"{of_alone:.2f} of its {alone['tcp_bps'] / 1e6:.1f} alone")
        if pair:
            more |= {"tcp_beside_its_kind_bps": pair["tcp_bps"], "second_bps": pair["second_bps"]}
            says.append(f"{pair['tcp_bps'] / 1e6:.1f} beside a second, which has {pair['second_bps'] / 1e6:.1f}")
        name = f"{row['point']} beside TCP {kind}: ours over TCP"
        found.append({**_verdict(name, goal, ratio, holds), **more, "says": ", ".join(says)})
    return found


def figures(rows: Sequence[Row]) -> list[Row]:
    """What the paper's Figs 2 and 3 say of NORM and UFTP, by our runs of the told tools: a rate falls with the round
    trip and with loss."""
    rates = {(row["tool"], row["point"]): row["goodput_bps"] for row in rows if "goodput_bps" in row}
    found = []
    for figure, tool in ((2, "norm"), (3, "uftp")):
        for what, near, far, goal in (
            ("round trip", "0ms/0.3", "50ms/0.3", "< 0.95 of that at 0 ms, at 0.3 % loss"),
            ("loss", "50ms/0", "50ms/0.3", "< 0.95 of that without loss, at 50 ms"),
        ):
            before, after = rates.get((tool, near)), rates.get((tool, far))
            if before and after is not None:
                ratio = after / before
                found.append(_verdict(f"Fig. {figure}: {tool} falls with {what}", goal, ratio, ratio < 0.95))
    return found
