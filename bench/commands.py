"""`rostrum bench`: what rostrum reaches on this machine, beside the machine's ceilings and the tools people use."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rostrum.bench import cases
from rostrum.bench import history as trend
from rostrum.bench.cases import Entry
from rostrum.bench.install import install
from rostrum.bench.manager.commands import manager
from rostrum.bench.messages.commands import messages
from rostrum.bench.order import order
from rostrum.bench.receivers import receivers
from rostrum.bench.security import security
from rostrum.bench.session import OUT, alone, in_namespaces, note_others
from rostrum.bench.summary import summarize
from rostrum.bench.table import HEAD, cells, figures, table
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.processes import bench_programs
from rostrum.lab.results import save
from rostrum.topologies.places import build_folder, short
from rostrum.topologies.tables import whole

GROUPS = {"ours": cases.OURS, "raw": cases.RAW, "multicast": cases.MULTICAST, "tcp": cases.TCP, "peers": cases.PEERS,
          "lan": cases.LAN_TOOLS}  # fmt: skip


@dataclass(frozen=True)
class Wish:
    """What the command line asks for."""

    quick: bool
    only: tuple[str, ...]
    cases: tuple[str, ...]
    tools: str
    repeat: int | None
    seed: int
    tune: bool | None
    resume: bool
    folder: Path


@click.group()
def bench() -> None:
    """Measure speed, beside the machine's ceilings and the tools people use (needs root).

    \b
      rostrum bench datapath --quick           one object to many, in under five minutes
      rostrum bench messages --quick           messages to a group, in a few minutes
      rostrum bench order --quick              messages in one order for all, in a few minutes
      rostrum bench manager --quick            requests that the manager answers; needs no root
      rostrum bench receivers --quick          what one more receiver costs a sender; seconds, no root
      rostrum bench security --quick           what sealed packets and TLS cost
      rostrum bench history                    headline figures by commit, and what has dropped
      rostrum bench datapath --help
    """


bench.add_command(messages)
bench.add_command(order)
bench.add_command(manager)
bench.add_command(receivers)
bench.add_command(security)


@bench.command()
@click.option(
    "--quick", is_flag=True, help="Under five minutes: smaller objects, fewer rounds; fills the whole summary."
)
@click.option("--only", multiple=True, metavar="WORDS",
              help="Only cases whose name has all these parts, such as 9000,free,loss0; may be repeated.")  # fmt: skip
@click.option("--case", "cases", multiple=True, metavar="NAME", help="Just this case, planned or not; may be repeated.")
@click.option("--tools", default="", help="Only these, separated by commas; or groups: " + ", ".join(GROUPS) + ".")
@click.option("--repeat", type=click.IntRange(1, 99), help="Rounds of each case; in each, every tool has a turn [5].")
@click.option("--seed", default=1, show_default=True, help="Of the data and the order of turns.")
@click.option("--tune/--no-tune", default=None,
              help="Try some rates first for tools that must be told one [the full bench does].")  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on with the results that are there: what was run is not run again.")
@click.option("--list", "list_", is_flag=True, help="Show cases and tools, and run nothing.")
@click.option("--from", "source", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Make table, picture and summary of these results, and run nothing.")  # fmt: skip
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=build_folder() / "bench",
              help="For results, logs, table and picture [build/bench].")  # fmt: skip
def datapath(list_: bool, source: Path | None, **given: Any) -> None:
    """One object from a sender to many receivers: time, processor time, memory.

    In private namespaces joined by a bridge, tmpfs to tmpfs, every copy checked. The full bench takes some three
    hours and can be stopped and resumed. Tools that are not there are installed. Figures mean something only when
    nothing else uses the machine.

    \b
    A case is called MTU-OFFLOAD-LINK-LOSS-RECEIVERS-SIZE:
      9000-off-free-loss1-r3-512M     MTU 9000, offload off, link not limited, 1 % loss at each of 3 receivers
      1500-on-300mbit-loss0-r7-128M   MTU 1500, offload on, the sender's link carries 300 Mbit/s, 7 receivers

    \b
      rostrum bench datapath --list
      rostrum bench datapath --only 9000,free,loss1 --tools ours,uftp
      rostrum bench datapath --case 9000-on-free-loss0-r3-256M --tools rostrum-udp-gso,raw-udp-gso --repeat 3
    """
    wish = Wish(**given)
    try:
        if source:
            report(json.loads(source.read_text()), wish.folder)
        elif list_:
            for entry in plan(wish):
                OUT.print(f"{entry.case.name:30} {entry.repeat} x {', '.join(entry.tools)}")
        else:
            run(plan(wish), wish)
    except LabError as error:
        raise click.ClickException(str(error)) from error


def plan(wish: Wish) -> list[Entry]:
    """The entries that the options ask for. Raises click.BadParameter."""
    tools = [name for word in wish.tools.split(",") if word for name in GROUPS.get(word, (word,))]
    unknown = [name for name in tools if name not in cases.EVERY]
    if unknown:
        text = f"no such tool: {', '.join(unknown)}; there are {', '.join(cases.EVERY)}, and {', '.join(GROUPS)}"
        raise click.BadParameter(text, param_hint="--tools")
    if wish.cases:
        try:
            found = [Entry(cases.parse(name), tuple(tools) or cases.TOOLS, wish.repeat or 5) for name in wish.cases]
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--case") from error
    else:
        planned = cases.quick() if wish.quick else cases.full(wish.repeat or 5)
        found = cases.chosen(planned, only=wish.only, tools=tools, repeat=wish.repeat)
    if not found:
        raise click.BadParameter("no case is left; see --list", param_hint="--only")
    return cases.ordered(found)


def run(entries: list[Entry], wish: Wish) -> None:
    """Installs, runs, reports. Raises LabError."""
    wish.folder.mkdir(parents=True, exist_ok=True)
    with alone(wish.folder):
        _run(entries, wish)


def _run(entries: list[Entry], wish: Wish) -> None:
    programs, place, results = bench_programs(), build_folder() / "bench-tools", wish.folder / "results.json"
    missing = install({tool for entry in entries for tool in entry.tools}, place, OUT.print)
    for name, why in missing.items():
        OUT.print(f"{name} is missing: {why}")
    job = {
        "entries": [{"case": asdict(entry.case), "tools": entry.tools, "repeat": entry.repeat} for entry in entries],
        "seed": wish.seed,
        "folder": str(wish.folder.resolve()),
        "programs": str(programs),
        "place": str(place),
        "missing": missing,
        "tune": not (wish.quick or wish.cases) if wish.tune is None else wish.tune,
        "results": str(results.resolve()),
        "resume": wish.resume and results.exists(),
        "manifest": {**manifest(wish.seed, {**asdict(wish), "folder": str(wish.folder)}), "load": os.getloadavg()},
    }
    note_others()
    began = time.monotonic()
    in_namespaces(wish.folder, "rostrum.bench.inside", job)
    OUT.print(f"{(time.monotonic() - began) / 60:.1f} min\n")
    report(json.loads(results.read_text()), wish.folder)


def report(results: dict[str, Any], folder: Path) -> None:
    """Writes table, picture and summary of results into a folder, and prints the first and the last."""
    from rostrum.bench.picture import draw  # matplotlib takes its time to load

    runs = results["runs"]
    about = {name: results["manifest"][name] for name in ("commit", "time", "machine")}
    about["parameters"] = {"quick": bool((results["manifest"].get("parameters") or {}).get("quick"))}
    about["commit"] = ", ".join(dict.fromkeys(run.get("commit", about["commit"]) for run in runs)) or about["commit"]
    summary = {**summarize(runs), "manifest": about, "columns": HEAD, "cases": cells(runs)}
    text = f"{table(runs)}\n{figures(summary)}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text(text)
    save(summary, folder / "summary.json")
    draw(runs, folder / "bench.png")
    click.echo(text)
    for line in trend.told(summary):
        OUT.print(f"[red]{line}[/red]")
    OUT.print(f"every run: {short(folder / 'results.json')}; figures: {short(folder / 'summary.json')}; "
              f"picture: {short(folder / 'bench.png')}; logs: {short(folder / 'logs')}")  # fmt: skip


@bench.command()
@click.option("--add", "summary", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Keep the figures of this JSON of a bench; only of a commit without changes.")  # fmt: skip
@click.option("--bench", "which", type=click.Choice(list(trend.FIGURES)), default="datapath", show_default=True)
@click.option("--png", type=click.Path(dir_okay=False, path_type=Path), default=build_folder() / "history.png",
              show_default=True, help="Where the picture goes.")  # fmt: skip
def history(summary: Path | None, which: str, png: Path) -> None:
    """Headline figures by commit (results/history.json): ratios only, so that machines can be compared.

    A figure has dropped when it is more than 10 % worse than in the row before, beyond what it scatters; a bench says
    so at its end. Quick runs are compared with quick ones.

    \b
      rostrum bench datapath --quick && rostrum bench history --add build/bench/summary.json
      rostrum bench history
    """
    try:
        if summary:
            row = trend.row_of(json.loads(summary.read_text()))
            which = row.bench
            OUT.print("kept" if trend.add(row) else "kept, in the place of this commit's row")
        rows = trend.load()
        png.parent.mkdir(parents=True, exist_ok=True)
        trend.draw(rows, which, png)
    except (trend.HistoryError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    OUT.print(whole(_trend_table([one for one in rows if one.bench == which], which)))
    OUT.print(f"picture: {short(png)}")


def _trend_table(rows: list[trend.Row], which: str) -> Table:
    shown = rows[-6:]
    table = Table("figure", "better", *(one.commit[:8] + (" quick" if one.quick else "") for one in shown))
    fallen = [{drop.figure for drop in trend.drops(row, rows[: rows.index(row)])} for row in shown]
    for name, better in trend.FIGURES[which].items():
        cells = [f"{row.figures[name]:.3g}" if name in row.figures else "" for row in shown]
        if any(cells):
            marked = [
                f"[red]{cell} dropped[/red]" if name in bad else cell for cell, bad in zip(cells, fallen, strict=True)
            ]
            table.add_row(name, better, *marked)
    return table
