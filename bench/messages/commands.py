"""The command `rostrum bench messages`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rostrum.bench import history
from rostrum.bench.install import install
from rostrum.bench.messages.cases import BYTES, MessageCase, parse, planned
from rostrum.bench.messages.summary import draw, summarize, table
from rostrum.bench.messages.tools import SECURITY, all_tools
from rostrum.bench.session import OUT, in_namespaces, note_others
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.processes import bench_programs
from rostrum.lab.results import save
from rostrum.topologies.places import build_folder, short

REPEAT, REPEAT_QUICK = 5, 2


@click.command()
@click.option("--quick", is_flag=True, help="Fewer messages and rounds.")
@click.option("--case", "names", multiple=True, metavar="NAME",
              help="Just this case, such as flood-loss1 or 10000-loss0.1; may be repeated.")  # fmt: skip
@click.option("--size", "sizes", type=click.IntRange(16, 1 << 20), multiple=True,
              help=f"Bytes of a message [{BYTES}]; may be repeated.")  # fmt: skip
@click.option("--tools", default="", help="Only these, separated by commas.")
@click.option("--repeat", type=click.IntRange(1, 99), help=f"Rounds of each case [{REPEAT}].")
@click.option("--seed", default=1, show_default=True, help="Of the order of turns.")
@click.option("--json", "output", type=click.Path(dir_okay=False, path_type=Path),
              help="The summary here too, with its manifest.")  # fmt: skip
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=build_folder() / "bench-messages",
              help="For results, logs, table and picture [build/bench-messages].")  # fmt: skip
def messages(
    quick: bool,
    names: tuple[str, ...],
    sizes: tuple[int, ...],
    tools: str,
    repeat: int | None,
    seed: int,
    output: Path | None,
    folder: Path,
) -> None:
    """Messages from a sender to a group of three: how many a second, and how late.

    In private namespaces joined by a bridge, MTU 1500. Delays count from when a message was due, in the sender's
    program, to when it is in the receiver's. Tools that are not there are installed.

    \b
      rostrum bench messages --quick
      rostrum bench messages --case flood-loss1 --tools rostrum,aeron --repeat 3
      rostrum bench messages --case flood-loss0 --size 100 --size 1400 --size 65536
    """
    try:
        cases = [
            case
            for size in sizes or (BYTES,)
            for case in [parse(n, quick, size) for n in names] or planned(quick, size)
        ]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--case") from error
    known = all_tools(build_folder() / "bench-tools")
    chosen = [name for name in tools.split(",") if name] or [name for name in known if not SECURITY.get(name)]
    if unknown := [name for name in chosen if name not in known]:
        text = f"no such tool: {', '.join(unknown)}; there are {', '.join(known)}"
        raise click.BadParameter(text, param_hint="--tools")
    given = {
        "quick": quick,
        "cases": names,
        "sizes": sizes,
        "tools": chosen,
        "repeat": repeat or (REPEAT_QUICK if quick else REPEAT),
    }
    try:
        results = run(cases, given, seed, folder)
    except LabError as error:
        raise click.ClickException(str(error)) from error
    report(results, folder, output)


def run(cases: list[MessageCase], given: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    """Installs and runs; what `results.json` has then. Raises LabError."""
    folder.mkdir(parents=True, exist_ok=True)
    programs, place, results = bench_programs(), build_folder() / "bench-tools", folder / "results.json"
    known = all_tools(place)
    needs = {name: known[name].needs for name in given["tools"] if known[name].needs}
    absent = install(needs.values(), place, OUT.print)
    missing = {name: absent[need] for name, need in needs.items() if need in absent}
    for name, why in missing.items():
        OUT.print(f"{name} is missing: {why}")
    job = {
        "cases": [asdict(case) for case in cases],
        "tools": given["tools"],
        "repeat": given["repeat"],
        "seed": seed,
        "folder": str(folder.resolve()),
        "programs": str(programs),
        "place": str(place),
        "missing": missing,
        "results": str(results.resolve()),
        "manifest": manifest(seed, given),
    }
    note_others()
    began = time.monotonic()
    in_namespaces(folder, "rostrum.bench.messages.inside", job)
    OUT.print(f"{(time.monotonic() - began) / 60:.1f} min\n")
    found: dict[str, Any] = json.loads(results.read_text())
    return found


def report(results: dict[str, Any], folder: Path, output: Path | None) -> None:
    """Writes table, picture and summary, and prints the table."""
    summary = {**summarize(results["runs"]), "manifest": results["manifest"]}
    text = table(results["runs"])
    (folder / "table.md").write_text(text)
    for file in filter(None, (folder / "summary.json", output)):
        save(summary, file)
    draw(summary, folder / "messages.png")
    click.echo(text)
    for line in history.told(summary):
        OUT.print(f"[red]{line}[/red]")
    OUT.print(f"every run: {short(folder / 'results.json')}; figures: {short(folder / 'summary.json')}; "
              f"picture: {short(folder / 'messages.png')}; logs: {short(folder / 'logs')}")  # fmt: skip
