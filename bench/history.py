"""The benches' headline figures by commit, in one small file: ratios only, which another machine gives too.

A row is one bench of one commit. A figure has dropped when it is worse than in the row before by more than 10 % and by
more than it scatters from row to row where nothing had changed for the worse (the median of its changes).
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rostrum.bench.summary import GOALS
from rostrum.lab.results import save
from rostrum.topologies.places import TREE

FILE = TREE / "results" / "history.json"
DROP = 0.10
ROWS_MOST = 500
MESSAGES = {"flood_loss1_ratio": "higher", "vs_best_tool_flood_loss0": "higher", "vs_best_tool_flood_loss1": "higher"}
ORDER = {"vs_corosync": "higher", "p99_vs_corosync": "lower", "vs_jgroups": "higher", "p99_vs_jgroups": "lower",
         "view_leases": "lower"}  # fmt: skip
SECURITY = dict.fromkeys(
    ("limited_ratio_9000", "limited_ratio_1500", "share_of_arithmetic_9000", "share_of_arithmetic_1500",
     "messages_ratio", "messages_signed_ratio"), "higher",
)  # fmt: skip
# What of each bench is kept, and which way is better: ratios to what the same run measured.
FIGURES = {
    "datapath": {name: goal.better for name, goal in GOALS.items() if name != "max_rss_mb"},
    "messages": MESSAGES,
    "order": ORDER,
    "security": SECURITY,
}


class HistoryError(Exception):
    """The file, or what is to go into it, is not as it has to be."""


@dataclass(frozen=True)
class Row:
    commit: str
    time: str  # ISO 8601
    bench: str
    quick: bool
    figures: dict[str, float]


@dataclass(frozen=True)
class Drop:
    """A figure that is worse than it was. `by`: its share, 0.2 = a fifth."""

    figure: str
    was: float
    now: float
    by: float

    def text(self) -> str:
        return f"{self.figure} dropped by {self.by:.0%}: {self.was:.3g} before, {self.now:.3g} now"


def load(file: Path | None = None) -> list[Row]:
    """Raises HistoryError. Without a file there are no rows."""
    file = file or FILE
    if not file.exists():
        return []
    try:
        rows = [Row(**{**one, "figures": _numbers(one["figures"])}) for one in json.loads(file.read_text())["rows"]]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise HistoryError(f"{file} is no history: {type(error).__name__}: {error}") from None
    for row in rows:
        if row.bench not in FIGURES:
            raise HistoryError(f"{file}: there is no bench {row.bench!r}")
    return rows


def _numbers(given: dict[str, Any]) -> dict[str, float]:
    found = {name: float(value) for name, value in given.items()}
    if not all(map(math.isfinite, found.values())):
        raise ValueError("a figure is no number")
    return found


def row_of(summary: dict[str, Any]) -> Row:
    """Of what a bench wrote: its summary.json, or its JSON with a summary. Raises HistoryError, also for one of a tree
    with changes."""
    manifest = summary.get("manifest")
    if not isinstance(manifest, dict) or not isinstance(manifest.get("commit"), str):
        raise HistoryError("it has no manifest: no summary.json of a bench")
    commit = str(manifest["commit"])
    if "+changes" in commit or "unknown" in commit or "," in commit:
        raise HistoryError(f"it is of {commit}: only figures of one commit without changes are kept")
    inner = summary.get("summary", summary)
    inner = inner if isinstance(inner, dict) else {}
    bench = max(FIGURES, key=lambda one: sum(name in inner for name in FIGURES[one]))
    try:
        given = {name: inner[name] for name in FIGURES[bench] if inner.get(name) is not None}
        figures = {name: round(value, 4) for name, value in _numbers(given).items()}
    except (ValueError, TypeError) as error:
        raise HistoryError(f"a figure is no number: {error}") from None
    if not figures:
        raise HistoryError("it has none of the figures that are kept: no summary.json of a bench")
    quick = bool((manifest.get("parameters") or {}).get("quick"))
    return Row(commit, str(manifest.get("time", "")), bench, quick, figures)


def add(row: Row, file: Path | None = None) -> bool:
    """Into the file; a second row of the same bench and commit replaces the first, and then it is False."""
    file = file or FILE
    rows = load(file)
    kept = [one for one in rows if (one.commit, one.bench, one.quick) != (row.commit, row.bench, row.quick)]
    save({"rows": [vars(one) for one in [*kept, row][-ROWS_MOST:]]}, file)
    return len(kept) == len(rows)


def of_kind(rows: Iterable[Row], bench: str, quick: bool) -> list[Row]:
    return [one for one in rows if (one.bench, one.quick) == (bench, quick)]


def drops(row: Row, before: Iterable[Row]) -> list[Drop]:
    """What is worse than in the newest of the rows before that has the figure."""
    known, found = of_kind(before, row.bench, row.quick), []
    for name, now in row.figures.items():
        values = [one.figures[name] for one in known if name in one.figures]
        if not values or values[-1] <= 0 or name not in FIGURES[row.bench]:
            continue
        better = FIGURES[row.bench][name]
        by = (values[-1] - now if better == "higher" else now - values[-1]) / values[-1]
        if by > DROP + noise(values):
            found.append(Drop(name, values[-1], now, by))
    return found


def told(summary: dict[str, Any]) -> list[str]:
    """For the end of a bench: what is worse than the history's last row has it; nothing where that cannot be told."""
    try:
        row = row_of({**summary, "manifest": {**summary["manifest"], "commit": "this"}})
        return [f"{one.text()} (rostrum bench history --bench {row.bench})" for one in drops(row, load())]
    except HistoryError:
        return []


def noise(values: list[float]) -> float:
    """The usual change from row to row, as a share; of fewer than three changes nobody can tell."""
    changes = [abs(b - a) / a for a, b in pairwise(values) if a > 0]
    return statistics.median(changes) if len(changes) >= 3 else 0.0


def draw(rows: list[Row], bench: str, path: Path) -> None:
    """A PNG: each figure over its first value, by commit. Raises HistoryError without rows."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    mine = [one for one in rows if one.bench == bench]
    if not mine:
        raise HistoryError(f"the history has no row of {bench}: rostrum bench history --add SUMMARY.json")
    chart, panel = pyplot.subplots(figsize=(11, 6), constrained_layout=True)
    for name in FIGURES[bench]:
        points = [(at, one.figures[name]) for at, one in enumerate(mine) if name in one.figures]
        if points and points[0][1] > 0:
            panel.plot([at for at, _ in points], [value / points[0][1] for _, value in points], "o-", label=name)
    panel.set_xticks(range(len(mine)), [one.commit[:8] + (" quick" if one.quick else "") for one in mine], rotation=60)
    panel.set_ylabel("over its first value")
    panel.set_title(f"rostrum bench {bench}")
    panel.legend(fontsize=7, ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.savefig(path, dpi=80)
    pyplot.close(chart)
