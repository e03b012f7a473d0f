"""`rostrum bench manager`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rostrum.bench.manager import cases
from rostrum.bench.manager.run import measure
from rostrum.bench.table import markdown
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.results import save
from rostrum.topologies.places import build_folder, short

OUT = Console(highlight=False, soft_wrap=True)
FIGURES = (
    "requests_per_s", "p50_ms", "p99_ms", "servers", "receivers_mean", "manager_cpu_us", "generator_cpu_us",
    "manager_resident_mb",
)  # fmt: skip
HEAD = ("case", "loop", "servers", "receivers", "live", "requests/s", "p50 ms", "p99 ms", "CPU us each", "generator",
        "per core and s", "queued", "denied", "memory MB")  # fmt: skip


@click.command()
@click.option("--quick", is_flag=True, help="Under a minute: fewer cases, once each.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              default=build_folder() / "bench-manager" / "results.json", help="Where the figures go.")  # fmt: skip
@click.option("--only", multiple=True, metavar="NAME", help="Only this case; * stands for anything; may be repeated.")
@click.option("--repeat", type=click.IntRange(1, 99), help="Rounds; in each, every case has a turn [3; quick 1].")
@click.option("--seconds", type=click.FloatRange(0.2, 600), help="Of each case's window [4; quick 2].")
@click.option("--seed", default=1, show_default=True)
@click.option("--list", "list_", is_flag=True, help="Show the cases, and run nothing.")
def manager(
    quick: bool,
    json_file: Path,
    only: tuple[str, ...],
    repeat: int | None,
    seconds: float | None,
    seed: int,
    list_: bool,
) -> None:
    """Requests for paths that the manager answers and takes back, per second, and how soon it answers.

    The manager is the one people run, in a process of its own, over switches and an OCS in memory that do at once what
    they are told. It has one thread: `per core and s` is what one processor would do. Echo is no manager: it shows what
    the load generator can do at most.
    """
    found = cases.chosen(cases.quick() if quick else cases.full(), only)
    if seconds:
        found = [replace(case, seconds=seconds) for case in found]
    if not found:
        raise click.BadParameter("no case is left; see --list", param_hint="--only")
    if list_:
        for case in found:
            OUT.print(f"{case.name:28} {case.loop:14} {case.servers:6} servers, {case.live} live paths")
        return
    folder = json_file.resolve().parent
    folder.mkdir(parents=True, exist_ok=True)
    for kept in folder.glob("hybrid-*.pickle"):
        kept.unlink()  # of another version perhaps
    rounds = repeat or (1 if quick else cases.REPEATS)
    runs: list[dict[str, Any]] = []
    try:
        for round_ in range(rounds):
            for case in found:
                runs.append({"round": round_, **measure(case, seed + round_, folder)})
                row = runs[-1]
                OUT.print(f"{case.name:28} {row['requests_per_s']:7.0f}/s  {row['manager_cpu_us']:6.0f} us each")
    except LabError as error:
        raise click.ClickException(str(error)) from error
    rows = [middle(case, [run for run in runs if run["case"] == case.name]) for case in found]
    parameters = {"quick": quick, "only": only, "rounds": rounds, "cases": [case.facts() for case in found]}
    report = {"instrument": "bench", "cases": rows, "runs": runs, "manifest": manifest(seed, parameters)}
    save(report, json_file)
    text = table(rows)
    json_file.with_suffix(".md").write_text(text + "\n")
    click.echo(text)
    OUT.print(f"figures of every run: {short(json_file.resolve())}")


def middle(case: cases.Case, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A case's medians."""
    row = {"case": case.name, "door": case.door, "loop": case.loop, "live": case.live, "runs": len(runs)}
    for key in FIGURES:
        values = [run[key] for run in runs if run[key] is not None]
        row[key] = statistics.median(values) if values else None
    for key in ("accepted", "denied", "queued", "unanswered"):
        row[key] = sum(run[key] for run in runs)
    return row


def table(rows: Sequence[dict[str, Any]]) -> str:
    return markdown(HEAD, [_row(row) for row in rows])


def _row(row: dict[str, Any]) -> list[str]:
    cpu = row["manager_cpu_us"]
    return [
        row["case"],
        row["loop"],
        str(row["servers"]),
        f"{row['receivers_mean']:.1f}",
        str(row["live"]),
        f"{row['requests_per_s']:.0f}",
        *("" if row[key] is None else f"{row[key]:.2f}" for key in ("p50_ms", "p99_ms")),
        f"{cpu:.0f}",
        f"{row['generator_cpu_us']:.0f}",
        f"{1e6 / cpu:.0f}" if cpu else "",
        f"{row['queued'] / max(1, row['accepted']):.0%}",
        str(row["denied"]),
        f"{row['manager_resident_mb']:.0f}",
    ]
