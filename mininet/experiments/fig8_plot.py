"""Fig. 8 drawn: the four CDFs as in the paper, and below them the same quantities against the attempt interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rostrum.lab.experiments.fig8_summary import Configuration, Run, cdf, percentile

LINES = {"last": "-", "first": "--", "switches": ":"}
COLOURS = {"last": "#1f4e8c", "first": "#c0561f", "switches": "#2d7d46"}

Values = Callable[[Sequence[Run]], list[float]]


def lost(runs: Sequence[Run]) -> list[float]:
    return [float(count) for run in runs for count in run.lost]


PANELS: tuple[tuple[str, str, Values], ...] = (
    ("redundant data", "kB", lambda runs: [run.redundant_bytes / 1e3 for run in runs]),
    ("lost packets in one receiving", "packets", lost),
    ("attempt time", "ms", lambda runs: [run.attempt_ms for run in runs]),
    ("total extra time", "ms", lambda runs: [run.extra_ms for run in runs]),
)
LOGARITHMIC = [values for _, _, values in PANELS[:2]]


def draw(png: Path, configurations: Sequence[Configuration], runs: Sequence[Run], title: str) -> None:
    """Writes the picture. Row 1: all transfers. Row 2: those over new circuits that began in
    a quiet moment."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, rows = plt.subplots(2, 4, figsize=(17, 9.2), layout="constrained")
    figure.suptitle(title, fontsize=11)
    for place, (panel, (name, unit, values)) in enumerate(zip(rows[0], PANELS, strict=True)):
        _cdfs(panel, configurations, runs, values)
        panel.set_title(f"({'abcd'[place]}) {name}", fontsize=10)
        panel.set_xlabel(f"{unit}; all transfers")
    rows[0][0].set_ylabel("CDF")
    figure.legend(
        *rows[0][0].get_legend_handles_labels(), fontsize=7.5, ncols=9, loc="outside lower center",
        title="first row: attempt interval, start of high rate on the last or the first INTL_SEQ", title_fontsize=8,
    )  # fmt: skip
    new = [run for run in runs if run.quiet and not run.reused]
    for panel, (name, unit, values) in zip(rows[1], PANELS, strict=True):
        if values is lost:
            _losses(panel, configurations, new)
        else:
            _trend(panel, configurations, new, values)
            panel.set_title(f"{name}, new circuits", fontsize=10)
            panel.set_ylabel(unit)
        panel.set_xlabel("attempt interval, ms")
        panel.set_xscale("log")
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
    if new:
        rows[1][0].legend(fontsize=7)
    figure.savefig(png, dpi=90)
    plt.close(figure)


def _cdfs(panel: Any, configurations: Sequence[Configuration], runs: Sequence[Run], values: Values) -> None:
    from matplotlib import colormaps

    intervals = sorted({one.interval_s for one in configurations if one.interval_s is not None})
    shown: list[float] = []
    for index, one in enumerate(configurations):
        found = values([run for run in runs if run.configuration == index])
        if not found:
            continue
        at, share = cdf(found)
        place = intervals.index(one.interval_s) / max(1, len(intervals) - 1) if one.interval_s is not None else 0.0
        colour = "black" if one.interval_s is None else colormaps["viridis"](place * 0.93)
        label = "rostrumd's defaults" if one.interval_s is None else one.label
        panel.step([at[0], *at], [0, *share], where="post", color=colour, ls=LINES[one.start_on], lw=1.3, label=label)
        shown += found
    panel.set_ylim(0, 1.01)
    panel.grid(alpha=0.3)
    if values in LOGARITHMIC:
        panel.set_xscale("symlog", linthresh=1)
        panel.set_xlim(left=0)
    elif shown:
        panel.set_xlim(0, 1.05 * percentile(shown, 99.5))  # a few stragglers would squeeze all the rest


def _series(
    configurations: Sequence[Configuration], runs: Sequence[Run], values: Values, start_on: str
) -> list[tuple[float, list[float]]]:
    """(interval in ms, values) of one policy, ascending."""
    found = []
    for index, one in enumerate(configurations):
        own = values([run for run in runs if run.configuration == index])
        if own and one.interval_s is not None and one.start_on == start_on:
            found.append((one.interval_s * 1e3, own))
    return sorted(found)


def _trend(panel: Any, configurations: Sequence[Configuration], runs: Sequence[Run], values: Values) -> None:
    for start_on, colour in COLOURS.items():
        series = _series(configurations, runs, values, start_on)
        if not series:
            continue
        at = [interval for interval, _ in series]
        label = f"start on {start_on}: "
        panel.plot(at, [percentile(own, 50) for _, own in series], "o-", ms=4, color=colour, label=f"{label}median")
        panel.plot(at, [sum(own) / len(own) for _, own in series], "s:", ms=3, color=colour, label=f"{label}mean")
        most = [percentile(own, 90) for _, own in series]
        panel.plot(at, most, "^--", ms=4, lw=1, alpha=0.6, color=colour, label=f"{label}p90")
    if values in LOGARITHMIC:
        panel.set_yscale("symlog", linthresh=1)


def _losses(panel: Any, configurations: Sequence[Configuration], runs: Sequence[Run]) -> None:
    for start_on, colour in COLOURS.items():
        series = _series(configurations, runs, lost, start_on)
        share = [100 * sum(count > 0 for count in own) / len(own) for _, own in series]
        panel.plot([interval for interval, _ in series], share, "o-", ms=4, color=colour)
    panel.set_title("receivings with losses, new circuits", fontsize=10)
    panel.set_ylabel("%")


def title_of(manifest: dict[str, Any]) -> str:
    """What was run, in one line above the picture."""
    parameters = manifest["parameters"]
    return (
        f"Attempt interval and start of high rate: {parameters['size']} to {parameters['receivers']} receivers, "
        f"OCS {parameters['reconfiguration']}, ringing {parameters['ringing']}, seed {parameters['seed']}, "
        f"commit {manifest['commit'][:12]}"
    )
