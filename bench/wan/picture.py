"""Figs 2 and 3 again, with ours in them: goodput over the round trip, a panel for each loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rostrum.bench.wan.tools import OUR, TOOLS

COLOURS = {OUR: "#c0392b", "uftp": "#1b5e8c", "norm": "#2c8c5a", "openpgm": "#8e5ea2", "tcp-cubic": "#999999",
           "tcp-bbr": "#444444"}  # fmt: skip


def draw(report: dict[str, Any], path: Path) -> None:
    """Writes an SVG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    points = {point["point"]: point for point in report["points"]}
    kinds = sorted({(point["loss_percent"], point["burst"]) for point in points.values()})
    figure, panels = pyplot.subplots(1, len(kinds), figsize=(4 + 4 * len(kinds), 5), squeeze=False, sharey=True,
                                     constrained_layout=True)  # fmt: skip
    for panel, (loss, burst) in zip(panels[0], kinds, strict=True):
        for tool in TOOLS:
            rows = [
                (points[row["point"]]["rtt_ms"], row["goodput_bps"] / 1e6)
                for row in report["runs"]
                if row["tool"] == tool
                and "goodput_bps" in row
                and row["point"] in points  # others were run before, of another grid
                and (points[row["point"]]["loss_percent"], points[row["point"]]["burst"]) == (loss, burst)
            ]
            if rows:
                told = not tool.endswith("-untold")
                style = {"linestyle": "-" if told else ":", "color": COLOURS[tool.removesuffix("-untold")]}
                panel.plot(*zip(*sorted(rows), strict=True), marker="o" if told else "x", label=tool, **style)
        text = f", bursts of {burst:g}" if burst > 1 else ""
        panel.set_title(f"{loss:g} % lost{text}")
        panel.set_xlabel("round trip, ms")
        panel.grid(alpha=0.3)
        panel.set_ylim(bottom=0)
    panels[0][0].set_ylabel("goodput to each receiver, Mbit/s")
    if panels[0][-1].lines:
        panels[0][-1].legend(fontsize=7)
    first = report["points"][0]
    figure.suptitle(f"One to {first['receivers']}, link of {first['rate_bps'] / 1e6:g} Mbit/s, MTU {first['mtu']}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)
