"""Experiments that run one thing with many settings: on all cores, with several seeds, to JSON and a picture."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rostrum.lab.manifest import manifest
from rostrum.lab.results import rounded, save
from rostrum.sim.network import SimError
from rostrum.sim.ricochet import Row, Setting, run
from rostrum.topologies.places import build_folder
from rostrum.topologies.tables import whole

OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False)
Key = tuple[str, ...]  # of a point: of which line it is (if there are several), and its place on the axis
Points = Mapping[Key, Setting]


@dataclass(frozen=True)
class Figure:
    """A figure of the summary: of rows, `name`, or its `part` where it is a table. `scale`: for people."""

    label: str
    name: str
    part: str = ""
    scale: float = 1.0

    @property
    def key(self) -> str:
        return f"{self.name}_{self.part}" if self.part else self.name


SHARE = Figure("recovered by LEC, %", "lec_recovery_share", scale=100)
LATENCY = Figure("mean latency of these, ms", "lec_latency_ms", "mean")
SINCE_DISCOVERY = Figure("since discovery, ms", "lec_since_discovery_ms", "mean")
OVERHEAD = Figure("repairs of all packets, %", "overhead", scale=100)
XORS = Figure("XORs per packet", "xors_per_data")


@dataclass(frozen=True)
class Study:
    """`points`: of a quick run or not. `seconds`: of each run (quick, full). `drawn`: figures of the picture."""

    name: str
    text: str
    axis: str
    points: Callable[[bool], Points]
    figures: tuple[Figure, ...] = (SHARE, LATENCY, SINCE_DISCOVERY, OVERHEAD, XORS)
    drawn: tuple[Figure, ...] = (SHARE, LATENCY)
    seconds: tuple[float, float] = (4.0, 30.0)
    runs: int = 3
    logarithmic: bool = False
    draw: Callable[[Any, Mapping[Key, Sequence[Row]]], None] | None = None

    def command(self) -> click.Command:
        def work(seconds: float | None, runs: int | None, seed: int, quick: bool, json_file: Path) -> None:
            length = seconds or self.seconds[0 if quick else 1]
            times = runs or (1 if quick else self.runs)
            points = {key: replace(one, seconds=length, seed=seed) for key, one in self.points(quick).items()}
            try:
                rows = run_all(points, times)
            except SimError as error:
                raise click.ClickException(str(error)) from error
            report(self, rows, {"seconds": length, "runs": times, "quick": quick}, seed, json_file)

        quick, full = self.seconds
        file = build_folder() / f"{self.name}.json"
        options = [
            click.Option(["--seconds"], type=click.FloatRange(0.5, 3600), help=f"Of each run [{full:g}; {quick:g}]."),
            click.Option(["--runs"], type=click.IntRange(1, 50), help=f"Of each point, by seeds [{self.runs}; 1]."),
            click.Option(["--seed"], default=1, show_default=True),
            click.Option(["--quick"], is_flag=True, help="Fewer points, short runs: under a minute."),
            click.Option(["--json", "json_file"], type=click.Path(dir_okay=False, path_type=Path), default=file,
                         show_default=True, help="Where the figures go; the picture goes beside them."),
        ]  # fmt: skip
        return click.Command(self.name, callback=work, params=list(options), help=self.text)


def run_all(points: Points, runs: int) -> dict[Key, list[Row]]:
    """Each point with `runs` seeds, on all cores. Raises SimError."""
    jobs = [(key, replace(one, seed=one.seed + seed)) for key, one in points.items() for seed in range(runs)]
    rows: dict[Key, list[Row]] = {key: [] for key in points}
    with ProcessPoolExecutor(os.cpu_count()) as pool, Progress(console=ERR, transient=True) as progress:
        task = progress.add_task("simulating", total=len(jobs))
        # The longest first: they would be waited for alone at the end.
        order = sorted(jobs, key=lambda job: -job[1].nodes * job[1].seconds * (1 + job[1].degree / 256))
        waiting = {pool.submit(run, setting): key for key, setting in order}
        try:
            for done in as_completed(waiting):
                rows[waiting[done]].append(done.result())
                progress.advance(task)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return {key: sorted(found, key=lambda row: row["seed"]) for key, found in rows.items()}


def mean(rows: Sequence[Row], figure: Figure) -> float | None:
    """Over runs; None if there is none."""
    values = [row[figure.name] for row in rows]
    if figure.part:
        values = [value[figure.part] for value in values if figure.part in value]
    return statistics.fmean(values) if values else None


def summarize(study: Study, rows: Mapping[Key, Sequence[Row]]) -> dict[str, Any]:
    """{figure: {point: mean}}, or {figure: {line: {point: mean}}}"""
    summary: dict[str, Any] = {}
    for figure in study.figures:
        table: dict[str, Any] = {}
        for key, of_point in rows.items():
            place = table
            for word in key[:-1]:
                place = place.setdefault(word, {})
            place[key[-1]] = mean(of_point, figure)
        summary[figure.key] = table
    return summary


def report(
    study: Study, rows: Mapping[Key, Sequence[Row]], parameters: dict[str, Any], seed: int, json_file: Path
) -> None:
    """Writes figures and picture, and prints the table."""
    flat = [{name: value for name, value in row.items() if name != "recoveries_ms"} for each in rows.values()
            for row in each]  # fmt: skip
    result = {"instrument": "sim", "experiment": study.name, "summary": summarize(study, rows), "runs": flat,
              "manifest": manifest(seed, parameters)}  # fmt: skip
    save(rounded(result), json_file)
    picture = json_file.with_suffix(".png")
    _draw(study, rows, picture)
    table = Table(study.axis, *(figure.label for figure in study.figures))
    for key, of_point in rows.items():
        table.add_row(" ".join(key), *(_cell(mean(of_point, figure), figure) for figure in study.figures))
    OUT.print(whole(table))
    OUT.print(f"figures in {json_file}, picture in {picture}")


def _cell(value: float | None, figure: Figure) -> str:
    return "-" if value is None else f"{value * figure.scale:.2f}"


def _draw(study: Study, rows: Mapping[Key, Sequence[Row]], picture: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    whole = pyplot.figure(figsize=(11, 4))
    if study.draw:
        study.draw(whole, rows)
    else:
        for axis, figure in zip(whole.subplots(1, len(study.drawn), squeeze=False)[0], study.drawn, strict=True):
            for line in dict.fromkeys(key[:-1] for key in rows):
                keys = [key for key in rows if key[:-1] == line]
                values = [mean(rows[key], figure) for key in keys]
                heights = [float("nan") if value is None else value * figure.scale for value in values]
                axis.plot([float(key[-1]) for key in keys], heights, "o-", label=" ".join(line))
            if study.logarithmic:
                axis.set_xscale("log", base=2)
            axis.set(xlabel=study.axis, ylabel=figure.label)
            if any(len(key) > 1 for key in rows):
                axis.legend()
    whole.tight_layout()
    whole.savefig(picture, dpi=110)
    pyplot.close(whole)
