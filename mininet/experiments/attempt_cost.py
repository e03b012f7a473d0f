"""What sending attempt packets costs the sender's processor, and how late it makes high rate (Republic, III-A1)."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rostrum.client import Agent, RostrumError
from rostrum.lab.experiments.demo import choose, path_of
from rostrum.lab.experiments.fig8_attempt_interval import Checked, Durations, drop, emulated, one_of_each_rack
from rostrum.lab.experiments.fig8_summary import interval_text
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.ocs import timing
from rostrum.lab.processor import watched
from rostrum.lab.results import save
from rostrum.topologies import TopologyError
from rostrum.topologies.units import Size

NO_RINGING = "0ms:0"
SAMPLE_S = 0.05
EDGE_S = 0.2  # of each phase, at either end, is left out
IDLE_S = 1.0
SEND_BOUND_S = 120.0
NS = 1e9
OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False)


@click.command()
@click.option("--intervals", type=Durations(), default="700us", show_default=True, help="Between attempt packets.")
@click.option("--reconfiguration", type=Checked(timing.reconfiguration), default="fixed:2s", show_default=True,
              help="Of the OCS: long, so that the phase can be measured.")  # fmt: skip
@click.option("--repeats", type=click.IntRange(1, 1000), default=6, show_default=True, help="With each interval.")
@click.option("--size", type=Size(), default="16M", show_default=True, help="Of the object.")
@click.option("--receivers", type=click.IntRange(1), default=3, show_default=True, help="In other racks.")
@click.option("--topology", default="hybrid-4x2", show_default=True, help="A topology file, or a built-in one's name.")
@click.option("--name", default="attempt", show_default=True, help="Of the labs.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), default="build/attempt-cost.json",
              show_default=True, help="Where the figures go.")  # fmt: skip
def command(json_file: Path, **given: Any) -> None:
    """Measure the processor time of attempt packets and the delay they cause.

    Each object goes over a circuit that is just being made: until it is there the sender's agent sends an attempt
    packet every --intervals. Its processor time (all threads, user and kernel) is read during that phase and while it
    has nothing to do. The delay is from the moment when the manager knew all cross-connects to be steady to high rate.
    """
    try:
        report = run(**given)
    except (LabError, RostrumError, TopologyError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    save(report, json_file)
    for label, one in report["summary"].items():
        OUT.print(f"every {label}: {one['cpu']:.1%} of a processor (idle {one['idle']:.1%})")
        OUT.print(f"high rate began {one['delay_ms']:.2f} ms after the manager knew of the circuit")
    OUT.print(f"figures in {json_file}")


def run(
    intervals: tuple[float, ...],
    reconfiguration: str,
    repeats: int,
    size: int,
    receivers: int,
    topology: str,
    name: str,
) -> dict[str, Any]:
    """Every transfer, and medians by interval. Raises LabError, RostrumError, TopologyError."""
    changes = emulated(reconfiguration, NO_RINGING)
    runs: list[dict[str, Any]] = []
    for interval_s in intervals:
        options = ("--attempt-interval", f"{round(interval_s * NS)}ns", "--light-confirm", "1")
        with Lab.start(topology, name=name, or_another=True, changes=changes, agent_options=options,
                       manager_options=("--light-confirm", "1"), seed=1) as lab:  # fmt: skip
            runs += transfers(lab, interval_text(interval_s), repeats, size, receivers)
    parameters = {
        "intervals_us": [one * 1e6 for one in intervals], "reconfiguration": reconfiguration, "repeats": repeats,
        "size": size, "receivers": receivers, "topology": topology,
    }  # fmt: skip
    summary = {
        label: medians([one for one in runs if one["interval"] == label]) for label in map(interval_text, intervals)
    }
    return {"experiment": "attempt-cost", "manifest": manifest(1, parameters), "summary": summary, "runs": runs}


def medians(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in rows) for name in ("cpu", "idle", "packets_per_s", "delay_ms")}


def transfers(lab: Lab, label: str, repeats: int, size: int, receivers: int) -> list[dict[str, Any]]:
    """By senders of each rack in turn: no circuit of the last transfer serves the next."""
    senders = one_of_each_rack(lab.topology)
    found = []
    with ExitStack() as stack:
        agents = {name: stack.enter_context(Agent(lab.agent_socket(name))) for name in lab.topology.servers}
        for turn in track(range(repeats), f"attempts every {label}", console=ERR, transient=True):
            sender = senders[turn % len(senders)]
            wanted = choose(lab.topology, sender, receivers)
            agents[sender].add(turn, b"a" * size)
            with watched(lab, sender, SAMPLE_S) as samples:
                time.sleep(IDLE_S)
                result = agents[sender].send(turn, wanted).wait(SEND_BOUND_S)
            if not result.ok or result.path != "circuit" or not result.high_rate_ns:
                raise LabError(f"transfer {turn + 1} went by {result.path}: {result.cause or result.reason}")
            path = path_of(lab, result.response_id)
            steady_ns = path["timeline"]["cross_connects_steady_ns"] if path else None
            if not steady_ns:
                raise LabError(f"the manager does not know when the circuit of transfer {turn + 1} was steady")
            phase_s = (result.high_rate_ns - result.attempt_ns) / NS
            found.append({
                "interval": label, "sender": sender,
                "idle": share(samples, 0, result.requested_ns),
                "cpu": share(samples, result.attempt_ns, result.high_rate_ns),
                "packets_per_s": result.packets_attempt / phase_s,
                "attempt_ms": (result.high_rate_ns - result.accepted_ns) / 1e6,
                "delay_ms": (result.high_rate_ns - steady_ns) / 1e6,
            })  # fmt: skip
            for server in (sender, *wanted):
                drop(agents[server], turn)
    return found


def share(samples: list[tuple[int, int]], begin_ns: int, end_ns: int) -> float:
    """Of one processor, between two moments. Raises LabError if the phase is too short to tell."""
    edge_ns = EDGE_S * NS
    within = [one for one in samples if begin_ns + edge_ns <= one[0] <= end_ns - edge_ns]
    if len(within) < 2:
        raise LabError("a phase is too short to measure: take a longer --reconfiguration")
    return (within[-1][1] - within[0][1]) / (within[-1][0] - within[0][0])
