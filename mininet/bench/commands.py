"""`rostrum bench`: what rostrum reaches on this machine, beside the machine's ceilings and the tools people use."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rostrum.lab.bench import cases
from rostrum.lab.bench.cases import Entry
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError, PrivateNamespace
from rostrum.lab.processes import agent_program
from rostrum.topologies.places import build_folder, short

OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False)
SOCKET_BYTES = 128 << 20  # what tools may ask for; ours needs no such setting
SOCKET_LIMITS = ("rmem_max", "wmem_max")


@click.group()
def bench() -> None:
    """Measure speed, beside the machine's ceilings and the tools people use (needs root).

    \b
      rostrum bench datapath --quick           one object to many, in under five minutes
      rostrum bench datapath --help
    """


@bench.command()
@click.option(
    "--quick", is_flag=True, help="Under five minutes: smaller objects, fewer cases, every figure of the summary."
)
@click.option("--only", multiple=True, metavar="WORDS",
              help="Only cases whose name has all these words, such as 9000,free,loss0; may be repeated.")  # fmt: skip
@click.option("--case", "names", multiple=True, metavar="NAME", help="Just this case, planned or not: see below.")
@click.option("--tools", help="Only these, separated by commas; `ours`, `raw`, `multicast`, `tcp` are groups.")
@click.option("--repeat", type=click.IntRange(1, 99), help="Rounds of each case [5].")
@click.option("--seed", default=1, show_default=True, help="Of data and order.")
@click.option("--resume", is_flag=True, help="Go on with the results that are there; what was run is not run again.")
@click.option("--list", "list_", is_flag=True, help="Show the cases and tools, and run nothing.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=build_folder() / "bench",
              help="For results, logs and pictures [build/bench].")  # fmt: skip
def datapath(
    quick: bool,
    only: tuple[str, ...],
    names: tuple[str, ...],
    tools: str | None,
    repeat: int | None,
    seed: int,
    resume: bool,
    list_: bool,
    folder: Path,
) -> None:
    """One object from a sender to many receivers: time, processor time, memory.

    In private namespaces joined by a bridge. A case is called MTU-OFFLOAD-LINK-LOSS-RECEIVERS-SIZE: for example
    9000-off-free-loss1-r3-512M is MTU 9000, offload off, a link that is not limited, 1 % loss at each of three
    receivers, 512 MB; 1500-off-300mbit-loss0-r3-128M has a link of 300 Mbit/s.

    \b
      rostrum bench datapath --list
      rostrum bench datapath --only 9000,free,loss1 --tools ours,uftp
      rostrum bench datapath --case 9000-on-free-loss0-r3-256M --tools rostrum-udp-gso,raw-udp-gso --repeat 5
    """
    try:
        entries = plan(quick, only, names, tools, repeat)
        if list_:
            show_plan(entries)
            return
        _run(
            entries,
            folder,
            seed,
            resume,
            {"quick": quick, "only": only, "case": names, "tools": tools, "repeat": repeat},
        )
    except LabError as error:
        raise click.ClickException(str(error)) from error


GROUPS = {"ours": cases.OURS, "raw": cases.RAW, "multicast": cases.MULTICAST, "tcp": cases.TCP}


def plan(
    quick: bool, only: tuple[str, ...], names: tuple[str, ...], tools: str | None, repeat: int | None
) -> list[Entry]:
    """The entries that options ask for. Raises click.BadParameter."""
    wanted = [name for word in (tools or "").split(",") if word for name in GROUPS.get(word, (word,))]
    unknown = [name for name in wanted if name not in cases.EVERY]
    if unknown:
        words = f"no such tool: {', '.join(unknown)}; there are {', '.join(cases.EVERY)}, and {', '.join(GROUPS)}"
        raise click.BadParameter(words, param_hint="--tools")
    if names:
        try:
            found = [Entry(cases.parse(name), tuple(wanted) or cases.TOOLS, repeat or 5) for name in names]
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--case") from error
    else:
        found = cases.chosen(
            cases.quick() if quick else cases.full(repeat or 5), only=only, tools=wanted, repeat=repeat
        )
    if not found:
        raise click.BadParameter("no case is left; see --list", param_hint="--only")
    return cases.ordered(found)


def show_plan(entries: list[Entry]) -> None:
    for entry in entries:
        OUT.print(f"{entry.case.name:30} {entry.repeat} x {', '.join(entry.tools)}")


def _run(entries: list[Entry], folder: Path, seed: int, resume: bool, parameters: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results.json"
    job = {
        "entries": [{"case": asdict(entry.case), "tools": entry.tools, "repeat": entry.repeat} for entry in entries],
        "seed": seed,
        "folder": str(folder),
        "programs": str(programs_folder()),
        "missing": {},
        "results": str(results),
        "resume": resume and results.exists(),
        "manifest": manifest(seed, parameters),
    }
    file = folder / "job.json"
    file.write_text(json.dumps(job, indent=1) + "\n")
    began = time.monotonic()
    with _large_socket_buffers(), PrivateNamespace(
        switches=True, log=folder / "logs" / "switches",
        command=[sys.executable, "-m", "rostrum.lab.bench.inside", str(file)],
    ) as inside:  # fmt: skip
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: sys.exit(1))
        status = inside.wait()
    if status:
        raise LabError(f"the bench ended with status {status}; logs are in {short(folder / 'logs')}")
    OUT.print(
        f"{(time.monotonic() - began) / 60:.1f} min; every run is in {short(results)}, logs in {short(folder / 'logs')}"
    )


def programs_folder() -> Path:
    """Where the programs of `native` were built: beside the agent that is measured. Raises LabError."""
    agent = agent_program()
    folder = agent.parents[2] / "mininet" / "bench" / "native"
    if not agent.exists() or not (folder / "raw").exists():
        raise LabError(f"{short(folder)} lacks the bench's programs, or there is no {short(agent)}: make build")
    return folder


@contextlib.contextmanager
def _large_socket_buffers() -> Iterator[None]:
    """Lets every tool have the socket buffers it asks for; the machine's setting comes back afterwards."""
    files = {Path("/proc/sys/net/core") / name: 0 for name in SOCKET_LIMITS}
    for path in files:
        files[path] = int(path.read_text())
        path.write_text(str(max(files[path], SOCKET_BYTES)))
    try:
        yield
    finally:
        for path, value in files.items():
            path.write_text(str(value))
