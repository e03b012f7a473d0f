"""The bench's picture: what each tool needs where the link is limited, and what it reaches where it is not."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from rostrum.bench import cases
from rostrum.bench.summary import Record, Runs, cpu_per_gb, goodput, seconds

LOSSES = ((0.0, "#1b5e8c"), (0.1, "#4f9bc9"), (1.0, "#e2a13a"), (5.0, "#c0392b"))
SHOWN = (*cases.OURS, *cases.PEERS)


def draw(records: list[Record], path: Path) -> None:
    """Writes a PNG."""
    runs = Runs(records)
    figure, panels = pyplot.subplots(3, 2, figsize=(14, 16), constrained_layout=True)
    for column, mtu in enumerate((9000, 1500)):
        rate = cases.LIMITED_BPS[mtu] / 1e6
        title = f"link of {rate:.0f} Mbit/s, MTU {mtu}: time over the payload-only ideal"
        _bars(panels[0][column], runs, mtu, title, _over_ideal, limited=True)
        title = f"link not limited, MTU {mtu}, offload off: Gbit/s to each of three"
        _bars(panels[1][column], runs, mtu, title, _gbps)
    title = "link not limited, MTU 9000, offload on: Gbit/s to each of three"
    _bars(panels[2][0], runs, 9000, title, _gbps, offload=True, ceilings=True)
    title = "link not limited, MTU 9000, offload off: CPU seconds per GB delivered"
    _bars(panels[2][1], runs, 9000, title, cpu_per_gb)
    figure.suptitle("One object from one sender to three receivers: medians, least and most")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def _over_ideal(record: Record) -> float:
    return seconds(record) * float(record["case"]["rate_bps"]) / float(record["case"]["size"]) / 8


def _gbps(record: Record) -> float:
    return goodput(record) / 1e9


def _bars(
    panel: Any,
    runs: Runs,
    mtu: int,
    title: str,
    value: Callable[[Record], float],
    *,
    limited: bool = False,
    offload: bool = False,
    ceilings: bool = False,
) -> None:
    """A group of bars for each tool, one for each loss."""
    panel.set_title(title, fontsize=10)
    found = [(loss, colour, runs.case(mtu, loss, offload=offload, limited=limited)) for loss, colour in LOSSES]
    there = [(loss, colour, case) for loss, colour, case in found if case]
    names = [
        name
        for name in ((*cases.RAW, *SHOWN) if ceilings else SHOWN)
        if any(runs.of(case, name) for _, _, case in there)
    ]
    if not names:
        panel.text(0.5, 0.5, "not measured", ha="center")
        panel.set_axis_off()
        return
    height = 0.8 / len(there)
    for index, (loss, colour, case) in enumerate(there):
        for row, name in enumerate(names):
            numbers = [value(record) for record in runs.of(case, name)]
            if not numbers:
                continue
            middle = statistics.median(numbers)
            errors = [[middle - min(numbers)], [max(numbers) - middle]]
            panel.barh(row + index * height, middle, height, color=colour, xerr=errors,
                       error_kw={"lw": 0.8}, label=f"{loss:g} % loss" if row == 0 else None)  # fmt: skip
    panel.set_yticks([row + 0.4 - height / 2 for row in range(len(names))], names, fontsize=8)
    panel.invert_yaxis()
    panel.grid(axis="x", lw=0.3)
    if limited:
        panel.set_xlim(left=1.0)
    handles, labels = panel.get_legend_handles_labels()
    if len(labels) > 1:
        panel.legend(handles, labels, fontsize=8)
