"""No two survivors disagree on order or view: seeded runs of groups' guarantees with everything that fails."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rostrum.lab.manifest import manifest
from rostrum.lab.results import save
from rostrum.sim.network import SimError, library
from rostrum.topologies.places import build_folder

OUT = Console(highlight=False, soft_wrap=True)
COUNTED = ("published", "deliveries", "views", "crashes", "pauses", "partitions", "absences", "lost", "flushes",
           "relayed", "asked", "checks", "disagreements", "stuck")  # fmt: skip
SLICE = 50  # runs of one process at a time
ORDERS = {"seed": 0, "sender": 1, "total": 2, "agreed": 3}


def run(seed: int, protocol: str | None, order: str) -> dict[str, Any]:
    """One run. Raises SimError."""
    ffi, lib = library()
    name = ffi.new("char[]", protocol.encode()) if protocol else ffi.NULL
    params = ffi.new("sim_guarantees_params *", {"seed": seed, "protocol": name, "order": ORDERS[order]})
    out = ffi.new("sim_guarantees_result *")
    if not lib.sim_guarantees_run(params, out):
        raise SimError(f"seed {seed}: out of memory")
    found = {key: int(getattr(out, key)) for key in (*COUNTED, "members", "total", "agreed", "view_ns_worst")}
    return {"seed": seed, **found, "text": ffi.string(out.text).decode()}


def runs(first: int, count: int, protocol: str | None, order: str) -> list[dict[str, Any]]:
    return [run(seed, protocol, order) for seed in range(first, first + count)]


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    summary: dict[str, Any] = {key: sum(row[key] for row in rows) for key in COUNTED}
    failed = [row for row in rows if row["disagreements"] or row["stuck"]]
    return {"runs": len(rows), "total_order_runs": sum(row["total"] for row in rows),
            "agreed_runs": sum(row["agreed"] for row in rows), **summary,
            "failed_seeds": [row["seed"] for row in failed[:20]]}  # fmt: skip


@click.command()
@click.option("--runs", "count", default=1000, show_default=True, type=click.IntRange(1, 10_000_000))
@click.option("--seed", default=1, show_default=True, help="Of the first run; each next one has the next.")
@click.option("--protocol", type=click.Choice(["plain", "ricochet"]), help="The engine below. [by seed]")
@click.option("--order", type=click.Choice(sorted(ORDERS)), default="seed", show_default=True)
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              default=build_folder() / "group-guarantees.json", show_default=True,
              help="Where the figures go.")  # fmt: skip
def command(count: int, seed: int, protocol: str | None, order: str, json_file: Path) -> None:
    """Crashes, pauses, partitions, losses: do survivors agree on order and views?

    Each run is a group of 2 to 8 members above an engine, by its seed; --seed N --runs 1 repeats one. What crashed or
    cut-off members were given is compared, too, but for order agreed. It ends with 1 if any two disagree, or a member
    is stuck at the end.
    """
    try:
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            firsts = range(seed, seed + count, SLICE)
            jobs = [pool.submit(runs, at, min(SLICE, seed + count - at), protocol, order) for at in firsts]
            rows = [row for job in jobs for row in job.result()]
    except SimError as error:
        raise click.ClickException(str(error)) from error
    summary = summarize(rows)
    parameters = {"runs": count, "seed": seed, "protocol": protocol, "order": order}
    failed = [row for row in rows if row["disagreements"] or row["stuck"]]
    save({"instrument": "sim", "experiment": "group-guarantees", "summary": summary, "failed": failed[:100],
          "manifest": manifest(seed, parameters)}, json_file)  # fmt: skip
    for row in failed[:10]:
        OUT.print(f"seed {row['seed']}: {row['text']}")
    OUT.print(
        f"{count:,} runs, {summary['deliveries']:,} deliveries, {summary['views']:,} views, "
        f"{summary['crashes']:,} crashes, {summary['partitions']:,} partitions: "
        f"{summary['disagreements']:,} disagreements, {summary['stuck']:,} stuck"
    )
    OUT.print(f"Figures: {json_file}")
    if failed:
        raise SystemExit(1)
