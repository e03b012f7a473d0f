"""Sessions of RDCM and of what it is compared with, over loss ratios: run, summed up, drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rostrum.lab import results
from rostrum.lab.manifest import manifest
from rostrum.sim.multicast import CONSTANTS, PROTOCOLS, Group, Load, Outcome, Session, rdcm_of
from rostrum.sim.network import SimError
from rostrum.topologies.families import named
from rostrum.topologies.places import build_folder
from rostrum.topologies.tables import whole

OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False)
LOSSES = (0.2, 0.4, 0.6, 0.8, 1.0)  # percent, the paper's
COLOURS = {"rdcm": "C0", "rmtp": "C2", "lbrm": "C1", "tmtp": "C4", "srm": "C3"}


@dataclass(frozen=True)
class Plan:
    """What is run: every protocol at every loss (percent), with `runs` groups drawn at random.
    `constants`: RDCM's, the paper's (with proxies at random) or the agents' (with the nearest).
    """

    network: str
    receivers: int
    packets: int
    protocols: tuple[str, ...]
    losses: tuple[float, ...]
    burst: float
    runs: int
    seed: int
    constants: str


FULL = Plan("bcube:8,3", 1000, 1024, PROTOCOLS, LOSSES, 2.0, 1, 1, "paper")
QUICK = Plan("bcube:4,3", 100, 1024, PROTOCOLS, LOSSES, 2.0, 1, 1, "paper")


def options(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of an experiment that runs a plan."""
    folder = build_folder()
    file = click.Path(dir_okay=False, path_type=Path)
    chosen = [
        click.option("--network", help=f"A family of data centers [{FULL.network}]."),
        click.option("--receivers", "-n", type=click.IntRange(2, 1024), help=f"At random places [{FULL.receivers}]."),
        click.option("--packets", type=click.IntRange(16, 65536), help=f"Of 1 KB [{FULL.packets}]."),
        click.option("--protocol", "protocols", multiple=True, type=click.Choice(PROTOCOLS), help="[all]"),
        click.option("--loss", "losses", multiple=True, type=click.FloatRange(0, 20), help="Percent of each link's "
                     f"packets; may be repeated [{' '.join(f'{loss:g}' for loss in LOSSES)}]."),
        click.option("--burst", type=click.FloatRange(1, 100), help=f"Mean run of lost packets [{FULL.burst:g}]."),
        click.option("--runs", type=click.IntRange(1, 100), help="Groups to draw [1]."),
        click.option("--seed", default=1, show_default=True),
        click.option("--constants", type=click.Choice(CONSTANTS), default="paper", show_default=True,
                     help="RDCM's: of its measurements, with proxies at random, or as rostrumd and the manager have."),
        click.option("--quick", is_flag=True, help=f"{QUICK.receivers} receivers in {QUICK.network}: under a minute."),
        click.option("--json", "json_file", type=file, default=folder / f"{name}.json", show_default=True),
        click.option("--png", type=file, default=folder / f"{name}.png", show_default=True),
    ]  # fmt: skip

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(chosen):
            command = option(command)
        return command

    return add


def plan(quick: bool, **given: Any) -> Plan:
    """The full or the quick plan, with what was given in its place."""
    base = asdict(QUICK if quick else FULL)
    return Plan(**{name: given.get(name) or value for name, value in base.items()})


def run(chosen: Plan) -> list[Outcome]:
    """All sessions of a plan, with progress shown. Raises ClickException."""
    outcomes = []
    try:
        graph = named(chosen.network)
        with Progress(console=ERR, transient=True) as bar:
            task = bar.add_task("", total=chosen.runs * len(chosen.protocols) * len(chosen.losses))
            for number in range(chosen.runs):
                group = Group.drawn(graph, chosen.receivers, chosen.seed + number)
                group.random_proxies = chosen.constants == "paper"
                for protocol in chosen.protocols:
                    for loss in chosen.losses:
                        bar.update(task, description=f"{protocol} at {loss:g} %")
                        load = Load(chosen.packets, loss=loss / 100, burst=chosen.burst)
                        outcomes.append(
                            Session(group, protocol, load, chosen.seed + number, rdcm_of(chosen.constants)).run()
                        )
                        bar.advance(task)
    except (SimError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    return outcomes


def by_protocol(outcomes: Sequence[Outcome], figure: str) -> dict[str, dict[str, float]]:
    """figure[protocol][loss percent], the mean of the runs; loss as "0.2" ... "1.0"."""
    found: dict[str, dict[str, list[float]]] = {}
    for one in outcomes:
        found.setdefault(one.protocol, {}).setdefault(f"{one.loss * 100:.1f}", []).append(getattr(one, figure))
    return {name: {loss: fmean(values) for loss, values in row.items()} for name, row in found.items()}


def speed(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """How the simulator did, over all sessions."""
    cpu_s = sum(one.cpu_s for one in outcomes)
    return {
        "events": sum(one.events for one in outcomes),
        "cpu_s": cpu_s,
        "events_per_s": sum(one.events for one in outcomes) / max(cpu_s, 1e-9),
        "slowest_session_cpu_s": max(one.cpu_s for one in outcomes),
        "memory_bytes": max(one.memory_bytes for one in outcomes),
        "peak_bytes": max(one.peak_bytes for one in outcomes),
    }


def save(summary: dict[str, Any], outcomes: Sequence[Outcome], chosen: Plan, json_file: Path) -> None:
    report = {
        "instrument": "sim",
        "summary": summary | {"simulator": speed(outcomes)},
        "runs": [asdict(one) for one in outcomes],
        "manifest": manifest(chosen.seed, asdict(chosen)),
    }
    results.save(results.rounded(report), json_file)


def table(title: str, figures: dict[str, dict[str, float]]) -> Table:
    losses = list(next(iter(figures.values())))
    shown = Table(title, *(f"{loss} %" for loss in losses))
    for name, row in figures.items():
        shown.add_row(name.upper(), *(f"{row[loss]:.3f}" for loss in losses))
    return whole(shown)


def plot(figures: dict[str, dict[str, float]], title: str, label: str, png: Path, log: bool = False) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4), layout="constrained")
    for name, row in figures.items():
        losses = [float(loss) for loss in row]
        axes.plot(losses, list(row.values()), marker="o", color=COLOURS[name], label=name.upper())
    axes.set(xlabel="packets lost on each link (%)", ylabel=label, yscale="log" if log else "linear")
    if not log:
        axes.set_ylim(bottom=0)
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend()
    png.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(png, dpi=110)
    pyplot.close(figure)
