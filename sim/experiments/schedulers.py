"""The manager's schedulers side by side: the same trace of requests through each, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table
from rostrum.controller.core import schedulers
from rostrum.controller.core.values import Settings
from rostrum.lab.manifest import manifest
from rostrum.lab.results import rounded, save
from rostrum.sim import workload
from rostrum.sim.replay import YEAR_NS, Outcome, Replay, Result, Stalled
from rostrum.sim.workload import BadTrace, Demand
from rostrum.topologies import TopologyError, load, load_text
from rostrum.topologies.generate import Hybrid, hybrid
from rostrum.topologies.model import Topology
from rostrum.topologies.tables import whole
from rostrum.topologies.units import Size

OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False)
TESTBED = Hybrid(racks=8, servers=5, ocs_ports=64, splitters=8, fanout=4, rate="10G")  # 40 servers, as in the paper
QUICK = 150
QUANTA = ("quantum", "split")  # the schedulers that have one

COLUMNS = {
    "mean_s": "mean s",
    "p50_s": "p50 s",
    "p99_s": "p99 s",
    "slowdown_p50": "slowdown p50",
    "slowdown_p99": "p99",
    "wait_max_s": "longest wait s",
    "utilisation": "busy",
    "reused": "reused",
    "split": "split",
    "denied": "denied",
}


@click.command()
@click.option("--requests", default=600, show_default=True, type=click.IntRange(1, 20_000), help="How many to make up.")
@click.option("--load", default=0.5, show_default=True, type=click.FloatRange(0.01, 4.0),
              help="Share of the racks' circuit ports that the requests would keep busy.")  # fmt: skip
@click.option("--trace", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Replay this file of requests instead (rostrum manager trace makes one).")  # fmt: skip
@click.option("--topology", help="A topology file, or a built-in one's name  [default: 8 racks of 5 servers, 10G]")
@click.option("--scheduler", "names", multiple=True, help="Only this one; may be repeated.  [default: all known]")
@click.option("--quantum", type=Size(least=1), help="Bytes per grant of `quantum` and `split`.")
@click.option("--ocs-model", default="not-all-stop", show_default=True, type=click.Choice(["not-all-stop", "all-stop"]),
              help="What a reconfiguration darkens: the circuits it makes, or all of the circuit switch.")  # fmt: skip
@click.option("--seed", default=1, show_default=True)
@click.option("--quick", is_flag=True, help=f"{QUICK} requests.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              default="build/schedulers.json", show_default=True, help="Where the figures go.")  # fmt: skip
@click.option("--png", type=click.Path(dir_okay=False, path_type=Path), default="build/schedulers.png",
              show_default=True, help="Where the picture goes.")  # fmt: skip
def command(
    requests: int,
    load: float,
    trace: Path | None,
    topology: str | None,
    names: tuple[str, ...],
    quantum: int | None,
    ocs_model: str,
    seed: int,
    quick: bool,
    json_file: Path,
    png: Path,
) -> None:
    """Completion times, use of circuits and starvation under each scheduler, for one trace of requests.

    The trace is made up (Word2Vec 504 MB, LDA 735 MB, TPC-H 4 MB to 6.2 GB, to half of the servers in the mean) or read
    from a file. Every request waits for a circuit if one can ever carry it.
    """
    try:
        network = load_topology(topology)
        demands = (
            workload.read(trace, network)
            if trace
            else workload.generate(network, QUICK if quick else requests, load, seed)
        )
        results = run_all(network, demands, names or tuple(schedulers.names()), quantum, ocs_model == "all-stop")
    except (TopologyError, BadTrace, Stalled, schedulers.UnknownScheduler) as error:
        raise click.ClickException(str(error)) from error
    parameters = {"requests": len(demands), "load": None if trace else load, "trace": trace.name if trace else None}
    parameters |= {"topology": network.name, "quantum_bytes": quantum, "ocs_model": ocs_model}
    rows = {name: summary(result, network) for name, result in results.items()}
    times = {name: completion_s(result.outcomes) for name, result in results.items()}
    facts = manifest(seed, parameters)
    report = {"instrument": "sim", "summary": rows, "completion_s": times, "manifest": facts}
    save(rounded(report), json_file)
    png.parent.mkdir(parents=True, exist_ok=True)
    plot(times, png, ocs_model)
    OUT.print(whole(table(rows)))
    OUT.print(f"figures in {json_file}, picture in {png}")


def load_topology(name: str | None) -> Topology:
    return load(name) if name else load_text(hybrid(TESTBED))


def run_all(
    topology: Topology, demands: Sequence[Demand], names: Sequence[str], quantum: int | None, all_stop: bool = False
) -> dict[str, Result]:
    """The same demands through each scheduler, each in a world of its own."""
    always = Settings(
        lease_ns=100 * YEAR_NS,
        wait_ns=100 * YEAR_NS,
        wait_max_ns=100 * YEAR_NS,
        circuit_wait_ns=100 * YEAR_NS,
        history_max=1 << 30,
        queue_max=1 << 30,
    )
    results = {}
    with Progress(console=ERR, transient=True) as bar:
        for name in names:
            schedulers.create(name)  # an unknown name is told before anything runs
        for name in names:
            task = bar.add_task(name, total=len(demands))
            settings = replace(always, scheduler=name, session_bytes=quantum if name in QUANTA else None)
            results[name] = Replay(topology, settings, partial(_show, bar, task), all_stop).run(demands)
    return results


def _show(bar: Progress, task: TaskID, ended: int) -> None:
    bar.update(task, completed=ended)


def completion_s(outcomes: Sequence[Outcome]) -> list[float]:
    """Arrival to last byte of every demand served, sorted."""
    return sorted((one.done - one.demand.at) / 1e9 for one in outcomes if one.done >= 0)


def summary(result: Result, topology: Topology) -> dict[str, Any]:
    """Times in s; slowdown: completion over the time the object takes alone at its servers' rate; `utilisation`: share
    of what the racks' circuit ports could have received in the whole run; `reused`: share of sessions on a circuit that
    was live; `split`: of those to some of the receivers that were asked for.
    """
    outcomes = [one for one in result.outcomes if one.done >= 0]
    times = completion_s(result.outcomes) or [0.0]
    slowdowns = [_slowdown(one, topology) for one in outcomes] or [0.0]
    waits = [(one.first_grant - one.demand.at) / 1e9 for one in outcomes] or [0.0]
    sessions = sum(one.sessions for one in outcomes) or 1
    capacity_bps = sum(workload.uplink_rates(topology).values())
    return {
        "served": len(outcomes),
        "denied": len(result.outcomes) - len(outcomes),
        "mean_s": float(np.mean(times)),
        "p50_s": float(np.percentile(times, 50)),
        "p99_s": float(np.percentile(times, 99)),
        "slowdown_p50": float(np.percentile(slowdowns, 50)),
        "slowdown_p99": float(np.percentile(slowdowns, 99)),
        "wait_p50_s": float(np.percentile(waits, 50)),
        "wait_max_s": max(waits),
        "utilisation": _received(outcomes, topology) * 8e9 / (capacity_bps * result.end) if result.end else 0.0,
        "sessions": sessions,
        "reused": sum(one.reused for one in outcomes) / sessions,
        "split": sum(one.split for one in outcomes) / sessions,
        "packet": sum(one.packet for one in outcomes) / sessions,
        "makespan_s": result.end / 1e9,
    }


def _received(outcomes: Sequence[Outcome], topology: Topology) -> int:
    """Bytes that came in at racks' circuit ports."""
    demands = [one.demand for one in outcomes if not one.packet]
    return sum(d.size * len(workload.remote_racks(topology, d.sender, d.receivers)) for d in demands)


def _slowdown(one: Outcome, topology: Topology) -> float:
    demand = one.demand
    rate_bps = min(topology.servers[name].rate_bps for name in (demand.sender, *demand.receivers))
    return (one.done - demand.at) / max(1.0, demand.size * 8e9 / rate_bps)


def table(rows: dict[str, dict[str, Any]]) -> Table:
    shown = Table("scheduler", *COLUMNS.values(), box=None, pad_edge=False, padding=(0, 1, 0, 0))  # in 80 columns
    shown.columns[0].no_wrap = True
    for column in shown.columns:
        column.overflow = "fold"
    for name, row in rows.items():
        shown.add_row(name, *(_cell(key, row[key]) for key in COLUMNS))
    return shown


def _cell(key: str, value: float) -> str:
    if key in ("utilisation", "reused", "split"):
        return f"{value:.0%}"
    return f"{value:.0f}" if value >= 100 or key == "denied" else f"{value:.3g}"


def plot(times: dict[str, list[float]], png: Path, ocs_model: str) -> None:
    """CDFs of completion times."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for name, values in times.items():
        axes.step(values, np.arange(1, len(values) + 1) / max(1, len(values)), where="post", label=name)
    axes.set(xscale="log", xlabel="completion time (s)", ylabel="share of requests", ylim=(0, 1))
    axes.set_title(f"One trace through each scheduler (simulated, {ocs_model} circuit switch)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(png, dpi=110)
    pyplot.close(figure)
