"""The picture of experiment priority-protection: loss and goodput of multicast, case by case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COLOURS = {"tagged": "#1f4e8c", "untagged": "#c0561f"}


def draw(png: Path, report: dict[str, Any]) -> None:
    """Bars are medians, lines reach from the least to the most of the runs."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    cases = [case for case in report["cases"] if case["rivals"]]
    kinds = list(dict.fromkeys((case["kind"], case["switch"]) for case in cases))
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    parameters = report["manifest"]["parameters"]
    figure.suptitle(
        f"Multicast at {parameters['multicast_share']:g} of a {parameters['rate']}bit/s port that unicast offers "
        f"{2 * parameters['rival_share']:g} times as much as it carries",
        fontsize=10,
    )
    for panel, key, scale, title in (
        (left, "victim_loss", 100.0, "multicast lost at the overloaded port, %"),
        (right, "victim_goodput_bps", 1e-6, "multicast goodput there, Mbit/s"),
    ):
        for offset, tagging in ((-0.2, "tagged"), (0.2, "untagged")):
            rows = [
                next((c for c in cases if (c["kind"], c["switch"], c["tagging"]) == (*kind, tagging)), None)
                for kind in kinds
            ]
            places = [place + offset for place, row in enumerate(rows) if row]
            found = [row[key] for row in rows if row]
            middle = [one["p50"] * scale for one in found]
            low = [(one["p50"] - one["least"]) * scale for one in found]
            high = [(one["most"] - one["p50"]) * scale for one in found]
            panel.bar(places, middle, 0.36, yerr=(low, high), capsize=4, color=COLOURS[tagging], label=tagging)
        panel.set_xticks(range(len(kinds)), [f"{kind}\n({switch})" for kind, switch in kinds])
        panel.set_title(title, fontsize=10)
        panel.set_ylim(bottom=0)
        panel.grid(axis="y", alpha=0.3)
        panel.legend()
    figure.savefig(png, dpi=130)
    plt.close(figure)
