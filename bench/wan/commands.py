"""The command of the study, which `rostrum lab run wan` is."""

from __future__ import annotations

import json
import random
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rostrum.bench.install import install
from rostrum.bench.session import OUT, alone, in_namespaces, note_others
from rostrum.bench.wan.points import BESIDE_TCP, FULL, QUICK, Point, grid
from rostrum.bench.wan.tools import BESIDE, NEEDS, TOOLS
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.processes import bench_programs
from rostrum.topologies.places import build_folder, short
from rostrum.topologies.units import Size

SECONDS = {True: 20.0, False: 30.0}  # of data at the link's rate, quick or not


def _numbers(text: str | None, usual: tuple[float, ...]) -> tuple[float, ...]:
    if not text:
        return usual
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: numbers, separated by commas") from error


def _sizes(text: str | None) -> tuple[int, ...]:
    """Of marks; 0: none."""
    size = Size(least=10_000)
    return tuple(0 if word.strip() == "0" else size.convert(word, None, None) for word in (text or "0").split(","))


@click.command()
@click.option("--quick", is_flag=True, help="Round trips of 0 and 50 ms, losses of 0 and 0.3 %: some 15 minutes.")
@click.option("--rtt", "rtts", metavar="MS,...", help="Round trips in milliseconds [0,10,50,100,200].")
@click.option("--loss", "losses", metavar="PERCENT,...", help="Lost packets in percent [0,0.1,0.3,1,5].")
@click.option("--burst", "bursts", metavar="N,...", help="Packets lost in a row, in the mean [1,10].")
@click.option("--common", is_flag=True, help="Packets get lost on the sender's link, for all [on each receiver's].")
@click.option("--tools", default=",".join(TOOLS), show_default=True, help="Which take part.")
@click.option(
    "--with-tcp",
    is_flag=True,
    help="Ours beside a TCP connection, by congestion=friendly, instead of tools; that TCP alone, and beside another."
    " A share is of all that was carried. Losses of 0 unless given.",
)
@click.option("--rate", type=float, default=200.0, show_default=True, help="Of the sender's link, in Mbit/s.")
@click.option("--queue", type=Size(least=10_000), default="1M", show_default=True, help="Before that link.")
@click.option("--mark", "marks", metavar="SIZE,...", help="Mark packets (ECN) behind so much of that queue [0: never].")
@click.option("--receivers", type=click.IntRange(1, 10), default=3, show_default=True)
@click.option("--mtu", type=click.IntRange(576, 9000), default=1500, show_default=True)
@click.option("--seconds", type=click.FloatRange(1, 60), help="Of data in a run, at the link's rate [30; quick: 20].")
@click.option("--seed", type=click.IntRange(1, 2**31), help="Of data and losses [a new one, printed].")
@click.option("--resume", is_flag=True, help="Go on with the file: what was run is not run again.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              default=build_folder() / "wan.json", help="For the figures; a picture beside it.")  # fmt: skip
def command(
    quick: bool,
    rtts: str | None,
    losses: str | None,
    bursts: str | None,
    common: bool,
    tools: str,
    with_tcp: bool,
    rate: float,
    queue: int,
    marks: str | None,
    receivers: int,
    mtu: int,
    seconds: float | None,
    seed: int | None,
    resume: bool,
    json_file: Path,
) -> None:
    """One object to several receivers over an emulated wide area, by rostrum and by what people use.

    rostrum is never told the link's rate. The others are told it and tuned, and as NAME-untold find it by their own
    congestion control. Goodput counts until every receiver has all, copies are compared. Tools that are not there are
    installed. A share is of what the link could carry: every packet once, and lost ones again.
    """
    names = list(BESIDE) if with_tcp else [name for name in tools.split(",") if name]
    if unknown := [name for name in names if name not in (*TOOLS, *BESIDE)]:
        raise click.BadParameter(f"no such tool: {', '.join(unknown)}; there are {', '.join(TOOLS)}")
    usual = BESIDE_TCP if with_tcp else QUICK if quick else FULL
    base = Point(mtu, False, round(rate * 1e6), 0.0, receivers, 0, common=common, queue=queue)
    chosen = {"rtts": _numbers(rtts, usual["rtts"]), "losses": _numbers(losses, usual["losses"]),
              "bursts": _numbers(bursts, usual["bursts"])}  # fmt: skip
    sizes = _sizes(marks)
    points = list(grid(**chosen, base=base, marks=sizes))
    before = _before(json_file) if resume and json_file.exists() else {}
    seed = seed or (before["manifest"]["seed"] if before else random.SystemRandom().randrange(1, 2**31))
    parameters = {**chosen, "marks": sizes, "rate": rate, "queue": queue, "receivers": receivers, "mtu": mtu,
                  "common": common, "seconds": seconds or SECONDS[quick]}  # fmt: skip
    try:
        _run(points, names, before, json_file, manifest(seed, parameters), seed)
    except LabError as error:
        raise click.ClickException(str(error)) from error


def _before(file: Path) -> dict[str, Any]:
    """What an earlier call has written."""
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError) as error:  # of the latter JSONDecodeError and UnicodeDecodeError are some
        raise click.ClickException(f"--resume: {file} cannot be read as JSON: {error}; delete it to begin") from error
    whole = isinstance(found, dict) and isinstance(found.get("runs"), list) and isinstance(found.get("probes"), list)
    if not whole or not isinstance((found.get("manifest") or {}).get("seed"), int):
        raise click.ClickException(f"--resume: {file} holds no figures of lab run wan; delete it to begin")
    return dict(found)


def _run(
    points: list[Point], names: list[str], before: dict[str, Any], json_file: Path, about: dict[str, Any], seed: int
) -> None:
    from rostrum.bench.wan.picture import draw  # matplotlib takes its time to load

    folder = build_folder() / "wan"
    folder.mkdir(parents=True, exist_ok=True)
    json_file.parent.mkdir(parents=True, exist_ok=True)
    programs = bench_programs()
    families = {name.removesuffix("-untold") for name in names}
    needs = {NEEDS[name] for name in families if name in NEEDS}
    why = install(needs, build_folder() / "bench-tools", OUT.print)
    missing = {name: why[need] for name in names if (need := NEEDS.get(name.removesuffix("-untold"), "")) in why}
    job = {
        "points": [asdict(point) for point in points],
        "tools": names,
        "seed": seed,
        "seconds": about["parameters"]["seconds"],
        "done": before.get("runs", []),
        "probes": before.get("probes", []),
        "folder": str(folder.resolve()),
        "programs": str(programs),
        "missing": missing,
        "results": str(json_file.resolve()),
        "manifest": about,
    }
    note_others()
    OUT.print(f"seed {seed}")
    began = time.monotonic()
    with alone(folder):
        in_namespaces(folder, "rostrum.bench.wan.inside", job)
    report = json.loads(json_file.read_text())
    draw(report, json_file.with_suffix(".svg"))
    for one in report["verdicts"]:
        number = "never" if one["found"] is None else f"{one['found']:.3f}"
        says = f"; {one['says']}" if "says" in one else ""
        OUT.print(f"{'holds ' if one['holds'] else 'MISSED'} {one['name']}: {number} ({one['goal']}){says}")
    OUT.print(f"{(time.monotonic() - began) / 60:.1f} min; figures: {short(json_file)}; logs: {short(folder / 'logs')}")
