"""`rostrum bench receivers`: what one more receiver costs a sender, with receivers that a program plays."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rostrum.bench.session import OUT
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.processes import bench_programs
from rostrum.lab.results import rounded, save
from rostrum.topologies.places import build_folder, short

COUNTS = (10, 100, 1000, 10_000)
BOUND_S = 600


@click.command()
@click.option("--receivers", "-n", "counts", multiple=True, type=click.IntRange(1, 16_384), default=COUNTS,
              show_default=True, help="How many; may be repeated. Ratios are against the fewest.")  # fmt: skip
@click.option("--size", "mib", default=1024, show_default=True, type=click.IntRange(1, 65_536),
              help="MiB of the object.")  # fmt: skip
@click.option("--repeat", default=10, show_default=True, type=click.IntRange(1, 1000), help="Rounds; the best counts.")
@click.option("--quick", is_flag=True, help="A smaller object, fewer rounds: seconds.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              default=build_folder() / "bench-receivers.json", help="Where the figures go.")  # fmt: skip
def receivers(counts: tuple[int, ...], mib: int, repeat: int, quick: bool, json_file: Path) -> None:
    """Processor time and memory of a sender's protocol core with up to 16,384 receivers, which a program plays.

    No root, no sockets; time is virtual, only the core's own calls are measured.
    """
    if quick:
        mib, repeat = 256, 5
    try:
        rows = play(bench_programs(), sorted(set(counts)), mib, repeat)
    except LabError as error:
        raise click.ClickException(str(error)) from error
    save(rounded({"runs": rows, "manifest": manifest(0, {"size": mib << 20, "repeat": repeat})}), json_file)
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
    OUT.print(shown)
    OUT.print(f"figures in {short(json_file)}")


def play(programs: Path, counts: list[int], mib: int, repeat: int) -> list[dict[str, Any]]:
    """One row for each number of receivers. Raises LabError."""
    argv = [str(programs / "many_receivers"), str(mib), str(repeat), *map(str, counts)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=BOUND_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise LabError(f"{short(Path(argv[0]))} did not end well: {error}; make build builds it") from error
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows
