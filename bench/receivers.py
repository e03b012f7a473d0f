"""`rostrum bench receivers`: what one more receiver costs a sender, with receivers that a program plays."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rostrum.bench.session import OUT, alone, note_others
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError, PrivateNamespace
from rostrum.lab.processes import bench_programs
from rostrum.lab.results import rounded, save
from rostrum.topologies.places import build_folder, short
from rostrum.topologies.tables import whole

COUNTS = (10, 100, 1000, 10_000)
AGENT_COUNTS = (10, 10_000)
BOUND_S = 600


@click.command()
@click.option("--receivers", "-n", "counts", multiple=True, type=click.IntRange(1, 16_384),
              help="How many; may be repeated. Ratios are against the fewest. [10, 100, 1000, 10000; with --agent 10, "
                   "10000]")  # fmt: skip
@click.option("--size", "mib", type=click.IntRange(8, 65_536), help="MiB of the object. [1024]")
@click.option("--repeat", type=click.IntRange(1, 1000), help="Rounds; the best counts. [10; with --agent 3]")
@click.option("--agent", is_flag=True, help="A whole rostrumd over sockets, and a manager; needs root.")
@click.option("--quick", is_flag=True, help="A smaller object, fewer rounds: seconds.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              default=build_folder() / "bench-receivers.json", help="Where the figures go.")  # fmt: skip
def receivers(
    counts: tuple[int, ...], mib: int | None, repeat: int | None, agent: bool, quick: bool, json_file: Path
) -> None:
    """Processor time and memory of a sender with up to 16,384 receivers, which a program plays.

    Of its protocol core alone: no root, no sockets; time is virtual, only the core's own calls are measured. With
    --agent of a whole agent over sockets, which has a connection to each: what a MB costs is spent when all have light,
    what a receiver costs before and after that.
    """
    most = sorted(set(counts or (AGENT_COUNTS if agent else COUNTS)))
    mib = mib or (256 if quick else 1024)
    repeat = repeat or ((1 if quick else 3) if agent else 5 if quick else 10)
    try:
        if agent:
            note_others()
        rows = (play_agent if agent else play)(bench_programs(), most, mib, repeat)
    except LabError as error:
        raise click.ClickException(str(error)) from error
    save(rounded({"runs": rows, "manifest": manifest(0, {"size": mib << 20, "repeat": repeat})}), json_file)
    shown = agent_table(rows) if agent else table(rows)
    OUT.print(whole(shown))
    OUT.print(f"figures in {short(json_file)}")


def table(rows: list[dict[str, Any]]) -> Table:
    shown = Table("receivers", "CPU us / MB", "ratio", "reports", "opening, us each", "end, us each", "bytes each")
    for row in rows:
        shown.add_row(
            str(row["receivers"]),
            f"{row['cpu_us_per_mb']:.1f}",
            f"{row['cpu_ratio']:.3f}",
            str(row["reports"]),
            f"{row['setup_us_per_receiver']:.2f}",
            f"{row['end_us_per_receiver']:.2f}",
            f"{row['bytes_per_receiver']:.0f}",
        )
    return shown


def agent_table(rows: list[dict[str, Any]]) -> Table:
    shown = Table("receivers", "CPU us / MB", "ratio", "reports", "once, us each", "s", "of them opening", "bytes each")
    for row in rows:
        shown.add_row(
            str(row["receivers"]),
            f"{row['cpu_us_per_mb']:.1f}",
            f"{row['cpu_ratio']:.3f}",
            str(row["reports"]),
            f"{row['fixed_us_per_receiver']:.1f}",
            f"{row['seconds']:.3f}",
            f"{row['opening_s']:.3f}",
            f"{row['bytes_per_receiver']:.0f}",
        )
    return shown


def play_agent(programs: Path, counts: list[int], mib: int, repeat: int) -> list[dict[str, Any]]:
    """One row for each number of receivers of a whole agent. Raises LabError."""
    folder = build_folder() / "bench-receivers"
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "rows.json"
    results.unlink(missing_ok=True)
    file = folder / "job.json"
    about = {"counts": counts, "mib": mib, "repeat": repeat, "folder": str(folder), "programs": str(programs)}
    file.write_text(json.dumps({**about, "results": str(results)}))
    inside = [sys.executable, "-m", "rostrum.bench.receivers_inside", str(file)]
    with alone(folder), PrivateNamespace(switches=False, command=inside) as namespace:
        if status := namespace.wait():
            raise LabError(f"the bench ended with status {status}; logs are in {short(folder)}")
    rows: list[dict[str, Any]] = json.loads(results.read_text())
    return rows


def play(programs: Path, counts: list[int], mib: int, repeat: int) -> list[dict[str, Any]]:
    """One row for each number of receivers. Raises LabError."""
    argv = [str(programs / "many_receivers"), str(mib), str(repeat), *map(str, counts)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=BOUND_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise LabError(f"{short(Path(argv[0]))} did not end well: {error}; make build builds it") from error
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows
