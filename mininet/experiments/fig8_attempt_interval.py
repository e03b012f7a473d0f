"""Fig. 8 of the paper (Sec. VI-C): what the attempt interval, and the moment of going to high rate, do to a transfer.

Every configuration gets a lab of its own, several times (rounds), in shuffled order, so that a busy minute of the
machine does not fall on one configuration alone. In a lab, senders of each rack in turn send an object to servers in
all other racks; two racks cannot have such circuits at once (their downlinks are the same), so each transfer makes the
manager take the last circuit down and have a new one made. Some are repeated over the circuit that is then live. The
emulated OCS draws the same reconfiguration times for every configuration.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rostrum.client import Agent, NotFound, RostrumError, SendResult
from rostrum.lab import figures
from rostrum.lab.experiments import fig8_plot
from rostrum.lab.experiments.demo import choose, path_of
from rostrum.lab.experiments.fig8_summary import (
    BUSY,
    Configuration,
    Run,
    as_row,
    columns,
    interval_text,
    read_rows,
    shape,
    summaries,
)
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.ocs import timing
from rostrum.lab.results import save
from rostrum.topologies import TopologyError, load
from rostrum.topologies.kinds import KINDS
from rostrum.topologies.loader import builtin_file
from rostrum.topologies.model import Reconfiguration, Topology
from rostrum.topologies.tables import whole
from rostrum.topologies.units import Size, size_text

INTERVALS = "70us,200us,700us,1.4ms,2ms,7ms,20ms,70ms"
QUICK_INTERVALS = "70us,700us,2ms,7ms,70ms"
POLICIES = ("last", "first", "switches")
INTERVAL_MIN_S, INTERVAL_MAX_S = 1e-6, 10.0  # what rostrumd takes
REPEATS, QUICK_REPEATS = 32, 6
ROUND_REPEATS = 16  # at most so many in one lab
REUSED_EVERY = 2  # each so many transfers over a new circuit, one is repeated over the live one
SEND_BOUND_S = 60.0
QUIET_S = 0.06  # a moment
OUT = Console(highlight=False, width=None if sys.stdout.isatty() else 130)
ERR = Console(stderr=True, highlight=False)


class Durations(click.ParamType[tuple[float, ...]]):
    """Durations with commas between: seconds, ascending."""

    name = "durations"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        try:
            found = value if isinstance(value, tuple) else {timing.duration_s(one) for one in str(value).split(",")}
            if not all(INTERVAL_MIN_S <= one <= INTERVAL_MAX_S for one in found):
                raise ValueError(f"{value!r}: an attempt interval is from 1us to 10s")
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return tuple(sorted(found))


class Checked(click.ParamType[str]):
    """Text that `check` takes without a ValueError."""

    name = "text"

    def __init__(self, check: Callable[[str], Any]) -> None:
        self.check = check

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            self.check(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    intervals: tuple[float, ...]
    repeats: int
    size: int
    receivers: int
    reconfiguration: str
    ringing: str
    defaults: bool
    wait_quiet_s: float
    seed: int
    topology: str
    name: str | None
    switch: str | None = None
    policies: tuple[str, ...] = ("last", "first")

    def configurations(self) -> list[Configuration]:
        found = [Configuration(one, policy) for policy in self.policies for one in self.intervals]
        return [*found, Configuration(None, "last")] if self.defaults else found

    def rounds(self) -> list[int]:
        """How many transfers over new circuits a lab makes, for each lab of a configuration."""
        count = -(-self.repeats // ROUND_REPEATS)
        return [self.repeats // count + (one < self.repeats % count) for one in range(count)]

    def parameters(self) -> dict[str, Any]:
        """For the manifest."""
        return {**asdict(self), "size": size_text(self.size), "reused_every": REUSED_EVERY, "light_confirm": 1}


@click.command()
@click.option("--intervals", type=Durations(), help=f"Between attempt packets. [{INTERVALS}]")
@click.option("--repeats", type=click.IntRange(1, 10_000), help=f"Transfers over new circuits with each. [{REPEATS}]")
@click.option("--size", type=Size(), default="16M", show_default=True, help="Of the object: random data.")
@click.option("--receivers", type=click.IntRange(1), default=3, show_default=True, help="In other racks, in turn.")
@click.option("--reconfiguration", type=Checked(timing.reconfiguration), default="uniform:50ms:70ms", show_default=True,
              help="Drawn for each cross-connect: fixed:T, uniform:LEAST:MOST or normal:MEAN:DEVIATION.")  # fmt: skip
@click.option("--ringing", type=Checked(timing.ringing), default="1ms:0.5", show_default=True,
              help="At its end: how long, and the share of frames lost.")  # fmt: skip
@click.option("--defaults/--no-defaults", default=True, show_default=True, help="Also run rostrumd as it comes.")
@click.option("--wait-quiet", "wait_quiet_s", type=click.FloatRange(0), default=120.0, show_default=True,
              help="Seconds, in all, to wait for quiet moments of the machine before transfers.")  # fmt: skip
@click.option("--quick", is_flag=True, help=f"{QUICK_INTERVALS}, {QUICK_REPEATS} repeats: under two minutes.")
@click.option("--seed", type=click.IntRange(1, 2**32 - 1), help="Of all that is drawn [a new one, printed].")
@click.option("--topology", default="hybrid-4x2", show_default=True, help="A topology file, or a built-in one's name.")
@click.option(
    "--switch", type=click.Choice(KINDS), help="Kind of the switches; P4 ones tell of first light. [openflow]"
)
@click.option("--start-on", "policies", type=click.Choice(POLICIES), multiple=True,
              help="When to go to high rate [last and first; over P4 switches all three]")  # fmt: skip
@click.option("--name", help="Of the labs: logs of the last are in build/lab/NAME [fig8, or fig8-2 ... if that runs].")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), default="build/fig8.json",
              show_default=True, help="Where the numbers go.")  # fmt: skip
@click.option("--png", "png_file", type=click.Path(dir_okay=False, path_type=Path), default="build/fig8.png",
              show_default=True, help="Where the picture goes.")  # fmt: skip
@click.option("--from", "from_file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Run nothing: table and picture of the numbers in this file.")  # fmt: skip
def command(json_file: Path, png_file: Path, from_file: Path | None, quick: bool, **given: Any) -> None:
    """Attempt interval against losses, redundancy, attempt time and extra time (the paper's figure 8).

    Sends the same object again and again over circuits that are just being made, with attempt packets from every 70 us
    to every 70 ms, and high rate starting on the last or on the first receiver's light, or when P4 switches have seen
    light at every rack. Some ten minutes. docs/reproducing.md tells what came out.
    """
    report = earlier(from_file) if from_file else fresh(quick, json_file, **given)
    found = read_rows(report)
    if found.runs:
        png_file.parent.mkdir(parents=True, exist_ok=True)
        fig8_plot.draw(png_file, found.configurations, found.runs, fig8_plot.title_of(report["manifest"]))
    show(report)
    OUT.print(f"\nnumbers in {from_file or json_file}, picture in {png_file}")
    sys.exit(1 if report["failed"] else 0)


def earlier(file: Path) -> dict[str, Any]:
    """The report in a file; what follows from its transfers is computed again."""
    try:
        report = json.loads(file.read_text())
        found = read_rows(report)
        return {**report, **computed(found.configurations, found.runs, report["manifest"]["parameters"])}
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise click.ClickException(f"{file} is not a result of this experiment: {error!r}") from error


def computed(configurations: list[Configuration], runs: list[Run], parameters: dict[str, Any]) -> dict[str, Any]:
    """The parts of a report that follow from its transfers: the shape from those that began in a quiet moment."""
    quiet = summaries(configurations, [one for one in runs if one.quiet])
    mean_ms = timing.reconfiguration(parameters["reconfiguration"]).mean_s * 1e3
    return {
        "busy": sum(not one.quiet for one in runs),
        "shape": shape(quiet, mean_ms),
        "configurations": summaries(configurations, runs),
    }


def fresh(quick: bool, json_file: Path, **given: Any) -> dict[str, Any]:
    """The report of a run with these options, written to the file too."""
    given["intervals"] = given["intervals"] or Durations().convert(QUICK_INTERVALS if quick else INTERVALS, None, None)
    given["repeats"] = given["repeats"] or (QUICK_REPEATS if quick else REPEATS)
    given["policies"] = given["policies"] or (POLICIES if given["switch"] in ("p4", "mixed") else POLICIES[:2])
    given["seed"] = given["seed"] or random.SystemRandom().randrange(1, 2**32)
    plan = Plan(**given)
    try:
        report = run(plan)
    except (LabError, RostrumError, TopologyError) as error:
        raise click.ClickException(f"{error} (seed {plan.seed})") from error
    save(report, json_file)
    return report


class Quiet:
    """Waits for a moment in which the machine does nothing else, for at most `bound_s`."""

    def __init__(self, wait_quiet_s: float) -> None:
        self.bound_s, self.waited_s = wait_quiet_s, 0.0

    def wait(self) -> float:
        """Share of the CPU time (0 to 1) in use during the last QUIET_S."""
        while (busy := self._busy()) > BUSY and self.waited_s < self.bound_s:
            self.waited_s += QUIET_S
        return round(busy, 2)

    def _busy(self) -> float:
        before = _cpu_times()
        time.sleep(QUIET_S)
        idle, total = (now - then for now, then in zip(_cpu_times(), before, strict=True))
        return 1 - idle / total if total else 0.0


def _cpu_times() -> tuple[int, int]:
    """(idle, all) time of all CPUs, in clock ticks."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def run(plan: Plan) -> dict[str, Any]:
    """The report of all configurations. Raises LabError, RostrumError, TopologyError."""
    configurations, began = plan.configurations(), time.monotonic()
    topology = load(builtin_file(plan.topology))
    for sender in one_of_each_rack(topology):
        choose(topology, sender, plan.receivers)
    chance = random.Random(plan.seed)
    runs: list[Run] = []
    excluded: list[dict[str, Any]] = []
    quiet = Quiet(plan.wait_quiet_s)
    per_round = [count + count // REUSED_EVERY for count in plan.rounds()]
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                  console=ERR) as progress:  # fmt: skip
        task = progress.add_task(f"seed {plan.seed}", total=sum(per_round) * len(configurations))
        for number, count in enumerate(plan.rounds()):
            order = list(range(len(configurations)))
            chance.shuffle(order)
            for index in order:
                one = configurations[index]
                what = f"round {number + 1} of {len(per_round)}: {one.label}"
                progress.update(task, description=f"{what}: starting the lab")
                if not ERR.is_terminal:
                    ERR.print(f"{what}; {progress.tasks[0].percentage:.0f} % done")
                with start_lab(plan, one, number) as lab:
                    progress.update(task, description=what)
                    for made in transfers(lab, plan, quiet, index, number, count):
                        (runs if isinstance(made, Run) else excluded).append(made)  # type: ignore[arg-type]
                        progress.advance(task)
    return {
        "experiment": "fig8-attempt-interval",
        "manifest": manifest(plan.seed, plan.parameters()),
        "duration_s": round(time.monotonic() - began, 1),
        "waited_for_quiet_s": round(quiet.waited_s, 1),
        "failed": sum(not row["ok"] for row in excluded),
        **computed(configurations, runs, plan.parameters()),
        "excluded": excluded,
        "columns": columns(),
        "runs": [as_row(one) for one in runs],
    }


def emulated(reconfiguration: str, ringing: str) -> dict[str, Any]:
    """What of a topology an OCS with these is."""
    drawn: Reconfiguration = timing.reconfiguration(reconfiguration)
    ringing_s, loss = timing.ringing(ringing)
    return {
        "emulation.reconfiguration": {
            "distribution": drawn.distribution, "mean_ms": drawn.mean_s * 1e3, "spread_ms": drawn.spread_s * 1e3,
        },
        "emulation.ringing": {"duration_ms": ringing_s * 1e3, "loss": loss},
        "ocs.ocs.reconfiguration_ms": drawn.mean_s * 1e3,
    }  # fmt: skip


def start_lab(plan: Plan, one: Configuration, number: int) -> Lab:
    """A lab whose agents run as `one` says. The OCS draws by seed and round: the same for all configurations."""
    changes = emulated(plan.reconfiguration, plan.ringing) | {"emulation.seed": plan.seed % 2**31 + number}
    options: tuple[str, ...] = ()
    if one.interval_s is not None:
        interval = f"{round(one.interval_s * 1e9)}ns"
        options = ("--attempt-interval", interval, "--start-on", one.start_on, "--light-confirm", "1")
    return Lab.start(
        plan.topology, name=plan.name or "fig8", or_another=plan.name is None, switch=plan.switch, changes=changes,
        agent_options=options, manager_options=() if one.interval_s is None else ("--light-confirm", "1"),
        seed=plan.seed + number,
    )  # fmt: skip


def transfers(
    lab: Lab, plan: Plan, quiet: Quiet, index: int, number: int, count: int
) -> Iterator[Run | dict[str, Any]]:
    """A lab's transfers, one after the other: `count` over new circuits, some repeated over the live one. What cannot
    be counted (it failed, or did not go as it should) comes as text: {"configuration", "sender", "ok", "why"}."""
    senders = one_of_each_rack(lab.topology)
    with ExitStack() as stack:
        agents = {name: stack.enter_context(Agent(lab.agent_socket(name))) for name in lab.topology.servers}
        data = numpy.random.default_rng(plan.seed).bytes(plan.size)
        for data_id, sender in enumerate(senders):  # senders receive from one another, so each has an object of its own
            agents[sender].add(data_id, data)
        for turn in range(count):
            data_id = turn % len(senders)
            sender = senders[data_id]
            wanted = choose(lab.topology, sender, plan.receivers)
            for reused in (False, True) if turn % REUSED_EVERY == REUSED_EVERY - 1 else (False,):
                busy = quiet.wait()
                result = agents[sender].send(data_id, wanted).wait(SEND_BOUND_S)
                path = path_of(lab, result.response_id)
                made = account(lab.topology, result, path, Run(index, number, reused, sender, busy))
                yield made
                for name in wanted:
                    drop(agents[name], data_id)


def drop(agent: Agent, data_id: int) -> None:
    """Makes a receiver forget the object, if it has it, so that the next transfer brings it again."""
    with suppress(NotFound):
        agent.delete(data_id)


def one_of_each_rack(topology: Topology) -> list[str]:
    """The first server of each rack that has servers."""
    racks = [topology.servers_of(tor) for tor in topology.switches]
    return [rack[0].name for rack in racks if rack]


def account(topology: Topology, result: SendResult, path: dict[str, Any] | None, run: Run) -> Run | dict[str, Any]:
    """`run` with its numbers, or why it cannot be counted."""
    text = None
    if not result.ok:
        text = result.cause or "; ".join(f"{row.name}: {row.cause}" for row in result.receivers if row.cause)
    elif result.path != "circuit":
        text = f"went over a {result.path} path: {result.reason}"
    elif (result.reconfiguration_ns == 0) != run.reused:
        text = "the circuit was live already" if result.reconfiguration_ns == 0 else "the circuit was not kept"
    if text is not None:
        return {"configuration": run.configuration, "sender": run.sender, "ok": result.ok, "why": text}
    began = result.accepted_ns
    steady_ns = path["timeline"]["cross_connects_steady_ns"] if path else None
    ideal_ms = figures.ideal(result.size, result.fragment_size, topology.servers[run.sender].rate_bps)
    total_ms = (result.done_ns - began) / 1e6
    return replace(
        run,
        steady_ms=max(0.0, (steady_ns - began) / 1e6) if steady_ns else 0.0,
        # An object that is through before high rate was all attempt.
        attempt_ms=((result.high_rate_ns or result.data_done_ns) - began) / 1e6,
        total_ms=total_ms,
        extra_ms=total_ms - ideal_ms,
        attempt_packets=result.packets_attempt,
        redundant_bytes=result.packets_redundant * result.fragment_size,
        lost=tuple(row.patched_fragments for row in result.receivers),
        light_ms=tuple((row.first_light_ns - began) / 1e6 for row in result.receivers),
    )


def show(report: dict[str, Any]) -> None:
    """The table at the end, and the paper's findings looked for."""
    table = Table("interval", "start on", "circuits", "transfers", "redundant kB", "lost", "with loss", "attempt ms",
                  "ahead ms", "extra ms", box=None, title="median / p99 (over new and over reused circuits)",
                  title_justify="left")  # fmt: skip
    for row in report["configurations"]:
        for kind in ("new", "reused"):
            one = row[kind]
            if not one["transfers"]:
                continue
            interval = None if row["interval_us"] is None else row["interval_us"] / 1e6
            redundant = {key: value / 1e3 for key, value in one["redundant_bytes"].items()}
            table.add_row(
                interval_text(interval), row["start_on"], kind, str(one["transfers"]), _pair(redundant, 0),
                _pair(one["lost_packets"], 0), f"{one['cases_with_loss']:.1%}", _pair(one["attempt_ms"], 1),
                _pair(one["ahead_ms"], 1) if one["ahead_ms"] else "-",
                _pair(one["extra_ms"], 1),
            )  # fmt: skip
    OUT.print(whole(table))
    for row in report["shape"].values():
        OUT.print(f"{'[green]found[/green]    ' if row['holds'] else '[red]not found[/red]'} {row['claim']}")
    if report["busy"]:
        OUT.print(f"{report['busy']} of {len(report['runs'])} transfers began while other work used the machine;")
        OUT.print("the findings leave them out, the table does not")
    for row in report["excluded"]:
        OUT.print(f"not counted: {row['sender']}, configuration {row['configuration']}: {row['why']}")


def _pair(values: dict[str, float], digits: int) -> str:
    return f"{values['p50']:.{digits}f} / {values['p99']:.{digits}f}"
