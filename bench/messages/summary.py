"""Figures, table and picture of a messages bench."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rostrum.bench.messages.runner import Record
from rostrum.bench.table import markdown

OURS = "rostrum"
FIGURES = ("messages_per_s", "p50_ms", "p99_ms", "received_share")
HEAD = ("tool", "runs", "messages/s", "p50 ms", "p99 ms", "received", "CPU s sender", "receivers")


def summarize(records: Sequence[Record]) -> dict[str, Any]:
    """`{case: {tool: medians of FIGURES}}`, and with our own runs the goals' figures: `flood_per_s`,
    `flood_loss1_ratio`, `p99_ms_10000_loss1`, `vs_best_tool_flood_loss0` and `..._loss1`.
    """
    cases: dict[str, dict[str, Any]] = {}
    for case, tool in dict.fromkeys((record["case"]["name"], record["tool"]) for record in records):
        mine = [record for record in records if record["case"]["name"] == case and record["tool"] == tool]
        found = {name: [record[name] for record in mine if name in record] for name in FIGURES}
        cases.setdefault(case, {})[tool] = {
            "runs": len(mine),
            "complete": sum(record["outcome"] == "ok" for record in mine),
            **{name: statistics.median(values) for name, values in found.items() if values},
        }
    return {"cases": cases, **_goals(cases)}


def _goals(cases: dict[str, dict[str, Any]]) -> dict[str, float]:
    goals: dict[str, float] = {}
    flood, lossy, paced = (cases.get(name, {}) for name in ("flood-loss0", "flood-loss1", "10000-loss1"))
    if rate := _rate(flood, OURS):
        goals["flood_per_s"] = rate
        if with_loss := _rate(lossy, OURS):
            goals["flood_loss1_ratio"] = with_loss / rate
    if paced.get(OURS, {}).get("p99_ms") is not None:
        goals["p99_ms_10000_loss1"] = paced[OURS]["p99_ms"]
    for name, case in (("loss0", flood), ("loss1", lossy)):
        others = [_rate(case, tool) for tool in case if not tool.startswith(OURS)]
        if _rate(case, OURS) and any(others):
            goals[f"vs_best_tool_flood_{name}"] = _rate(case, OURS) / max(others)
    return goals


def _rate(case: dict[str, Any], tool: str) -> float:
    """0 where a message stayed missing: those runs are no floods that came through."""
    found = case.get(tool, {})
    return float(found.get("messages_per_s", 0)) if found.get("complete") else 0.0


def table(records: Sequence[Record]) -> str:
    """A part for each case; medians, in brackets the least and the most."""
    parts = []
    for case in dict.fromkeys(record["case"]["name"] for record in records):
        of_case = [record for record in records if record["case"]["name"] == case]
        rows = []
        for tool in sorted({record["tool"] for record in of_case}):
            rows.append(_row(tool, [record for record in of_case if record["tool"] == tool]))
        parts.append(f"### {case}\n\n{markdown(HEAD, rows)}\n")
    return "\n".join(parts)


def _row(tool: str, records: list[Record]) -> list[str]:
    if all(record["outcome"] in ("missing", "failed") for record in records):
        return [tool, str(len(records)), *[records[0]["outcome"]] * (len(HEAD) - 2)]
    complete = sum(record["outcome"] == "ok" for record in records)
    cells = [tool, f"{complete}/{len(records)}"]
    for name, form in (("messages_per_s", ",.0f"), ("p50_ms", ".2f"), ("p99_ms", ".2f"), ("received_share", ".1%"),
                       ("sender_s", ".2f"), ("receivers_s", ".2f")):  # fmt: skip
        values = [record[name] for record in records if name in record]
        cells.append(_spread(values, form))
    return cells


def _spread(values: list[float], form: str) -> str:
    if not values:
        return "-"
    middle = format(statistics.median(values), form)
    return middle if len(values) == 1 else f"{middle} ({min(values):{form}}-{max(values):{form}})"


def draw(summary: dict[str, Any], file: Path) -> None:
    """Two bars' pictures: messages a second of the floods, p99 delay of the cases with a rate."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = summary["cases"]
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4))
    parts = (
        (axes[0], [case for case in cases if case.startswith("flood")], "messages_per_s", "messages of 1 KB a second"),
        (axes[1], [case for case in cases if not case.startswith("flood")], "p99_ms", "99th percentile of delay, ms"),
    )
    for axis, names, key, label in parts:
        tools = sorted({tool for name in names for tool in cases[name]})
        width = 0.8 / max(1, len(tools))
        for place, tool in enumerate(tools):
            heights = [cases[name].get(tool, {}).get(key, 0.0) for name in names]
            axis.bar([at + place * width for at in range(len(names))], heights, width, label=tool)
        axis.set_xticks([at + 0.4 - width / 2 for at in range(len(names))], names)
        axis.set_yscale("log")
        axis.set_ylabel(label)
        if tools:
            axis.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
