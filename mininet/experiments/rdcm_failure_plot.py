"""The picture of experiment rdcm-failure: everybody's speed over time, and the two events."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

BIN_S = 0.5


def draw(png: Path, report: dict[str, Any]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panel = plt.subplots(figsize=(9, 4.2), layout="constrained")
    sender, *receivers = report["samples"].items()
    panel.plot(*_speeds(sender[1]), color="black", linewidth=2.2, label=f"{sender[0]} sends")
    for name, rows in receivers:
        panel.plot(*_speeds(rows), linewidth=1.0, label=name)
    for one in report["events"]:
        panel.axvline(one["at_s"], color="grey", linestyle=":")
        panel.annotate(one["what"], (one["at_s"], 0.98), xycoords=("data", "axes fraction"), rotation=90, va="top",
                       ha="right", fontsize=8)  # fmt: skip
    panel.set_xlabel("s")
    panel.set_ylabel("Mbit/s")
    panel.set_title("RDCM over fat-tree(4): a link of the tree is cut, a receiver is killed", fontsize=10)
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.3)
    panel.legend(fontsize=7, ncols=3)
    figure.savefig(png, dpi=130)
    plt.close(figure)


def _speeds(rows: list[list[float]]) -> tuple[list[float], list[float]]:
    """Of [s, bytes] rows: ends of bins, and Mbit/s in them."""
    ends: list[list[float]] = []
    for row in rows:
        if not ends or row[0] - ends[-1][0] >= BIN_S:
            ends.append(row)
    steps = list(pairwise(ends))
    return [b[0] for _, b in steps], [(b[1] - a[1]) * 8e-6 / (b[0] - a[0]) for a, b in steps]
