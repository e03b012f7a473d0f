"""Churn: a lab is used as programs use it while its parts are killed, paused, cut, and set to other times at random."""

from __future__ import annotations

import os
import stat
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rostrum.client import RostrumError
from rostrum.lab import processes
from rostrum.lab.churn import inventory
from rostrum.lab.churn.disruptions import Disruptor, set_clock
from rostrum.lab.churn.workload import Workload, judge, sweep
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.results import save
from rostrum.topologies import TopologyError

OUT = Console(highlight=False, soft_wrap=True)
LIBFAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
WARM_UP_S = 20.0  # of load without disruptions, before the first inventory: caches fill, pools grow
QUIET_BOUND_S = 90.0
TELL_EVERY_S = 60.0
OPTIONS = ("--circuit-wait", "1s", "--quarantine", "2s", "--link-retry", "2s")
QUICK = {
    "emulation.reconfiguration.mean_ms": 20,
    "emulation.ringing.duration_ms": 2,
    "ocs.ocs.reconfiguration_ms": 20,
}


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0.1, max=10_000), default=None, help="How long. [10]")
@click.option("--hours", type=click.FloatRange(min=0.01, max=1_000), default=None, help="The same in hours.")
@click.option("--pace", type=click.FloatRange(min=0.1, max=600), default=4.0, show_default=True,
              help="Mean seconds between one disruption's end and the next.")  # fmt: skip
@click.option("--topology", default="hybrid-4x2", show_default=True, help="Topology file or built-in name.")
@click.option("--switch", type=click.Choice(["openflow", "p4", "mixed"]), default=None,
              help="Kind of its switches; P4 ones are killed and paused, too. [as the topology file says]")  # fmt: skip
@click.option("--seed", default=1, show_default=True, help="Of all random choices.")
@click.option("--name", default="churn", show_default=True, help="Of the lab.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), default="build/churn.json",
              show_default=True, help="Where the numbers go.")  # fmt: skip
def command(minutes: float | None, hours: float | None, json_file: Path, **given: Any) -> None:
    """Use a lab while its parts are killed, paused and cut; then look for what leaked and what failed without cause.

    Objects by both protocols, streams, messages and REST paths run all the time. Agents, manager and OCS emulator are
    killed and stopped, links are cut, fibres and splitters fail, wall clocks of servers jump by seconds and by days.
    A line a minute says how it goes. At the end everything is mended, and descriptors, memory, the switches' flows,
    groups and meters, cross-connects, message groups and the journal are compared with the start. The exit status is 0
    only if nothing leaked and every failure has a disruption that excuses it.

    \b
      rostrum lab run churn --minutes 10 --json build/churn.json
      rostrum lab run churn --hours 8 --seed 7
    """
    if minutes is not None and hours is not None:
        raise click.UsageError("--minutes and --hours say the same: give one of them")
    seconds = hours * 3600.0 if hours is not None else 60.0 * (minutes if minutes is not None else 10.0)
    try:
        report = run(seconds, **given)
    except (LabError, RostrumError, TopologyError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    save(report, json_file)
    show(report)
    OUT.print(f"numbers in {json_file}, logs in build/lab/{given['name']}")
    summary = report["summary"]
    if summary["leaks"] or summary["failed_without_cause"]:
        raise SystemExit(1)


def run(seconds: float, pace: float, topology: str, seed: int, name: str, switch: str | None = None) -> dict[str, Any]:
    """The report of one run. Raises LabError, RostrumError."""
    with tempfile.TemporaryDirectory() as folder:
        clocks = _clocks(Path(folder))
        with Lab.start(
            topology, name=name, or_another=True, switch=switch, seed=seed, changes=QUICK, manager_options=OPTIONS,
            quota="256M", reserve="16M", progress=lambda _: None,
        ) as lab:  # fmt: skip
            OUT.print(f"lab {lab.name} for {seconds:g} s, seed {seed}" + ("" if clocks else "; no libfaketime: clocks "
                      "stay as they are (apt install libfaketime)"))  # fmt: skip
            report = _churn(lab, seconds, pace, seed, clocks)
    parameters = {"seconds": seconds, "pace": pace, "topology": topology, "switch": switch}
    return {"experiment": "churn", "manifest": manifest(seed, parameters), **report}


def _clocks(folder: Path) -> Path | None:
    """A folder of the servers' clock files, and agents that read them; None where libfaketime is not installed."""
    if not LIBFAKETIME.exists():
        return None
    agent = folder / "rostrumd"
    # The agent's second argument is its server's name (processes.agent).
    agent.write_text(
        f"#!/bin/sh\nexec env LD_PRELOAD={LIBFAKETIME} FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_CACHE_DURATION=1 \\\n"
        f'    FAKETIME_TIMESTAMP_FILE={folder}/"$2" {processes.agent_program()} "$@"\n'
    )
    agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
    os.environ["ROSTRUM_AGENT"] = str(agent)
    return folder


def _churn(lab: Lab, seconds: float, pace: float, seed: int, clocks: Path | None) -> dict[str, Any]:
    for server in lab.topology.servers:
        set_clock(clocks, server, 0)
    disruptor = Disruptor(lab, seed, pace, clocks)
    warm = Workload(lab, seed, disruptor.now)
    warm.start()
    time.sleep(WARM_UP_S)
    warm.finish()
    before = _quiet(lab)
    OUT.print(f"{disruptor.now():6.0f} s  warm: {_told(warm.counts)}")

    disruptor.began = time.monotonic()
    load = Workload(lab, seed + 1, disruptor.now)
    load.start()
    breaking = threading.Thread(target=disruptor.run, daemon=True)
    breaking.start()
    while (left := seconds - disruptor.now()) > 0:
        time.sleep(min(left, TELL_EVERY_S))
        OUT.print(f"{disruptor.now():6.0f} s  {len(disruptor.done)} disruptions, {len(load.failures)} failures; "
                  f"{_told(load.counts)}")  # fmt: skip
    disruptor.stop.set()
    breaking.join()
    load.finish()
    sweep(lab)
    after = _quiet(lab)
    return _report(lab, [warm, load], disruptor, before, after)


def _quiet(lab: Lab) -> inventory.Inventory:
    """The inventory once nothing is under way any more, or at the bound."""
    deadline = time.monotonic() + QUIET_BOUND_S
    while True:
        try:
            found = inventory.take(lab)
            if not found.busy:
                return found
        except (LabError, RostrumError):
            if time.monotonic() > deadline:
                raise
            time.sleep(1.0)
            continue
        if time.monotonic() > deadline:
            return found
        time.sleep(1.0)


def _report(
    lab: Lab, loads: list[Workload], disruptor: Disruptor, before: inventory.Inventory, after: inventory.Inventory
) -> dict[str, Any]:
    racks = {name: server.tor for name, server in lab.topology.servers.items()}
    quiet, load = loads
    failures = [
        *judge([*quiet.failures, *(row for one in quiet.messages.values() for row in one.silent_losses())], [], racks),
        *judge(
            [*load.failures, *(row for one in load.messages.values() for row in one.silent_losses())],
            disruptor.done,
            racks,
        ),
    ]
    counts = sum((one.counts for one in loads), Counter[str]())
    crashes = [
        f"{name}: {row['state']}" for name, row in lab.status()["programs"].items() if row["state"].startswith("ended")
    ]
    summary = {
        **{name: counts[name] for name in sorted(counts)},
        "disruptions": len(disruptor.done),
        "failures": len(failures),
        "failed_without_cause": sum(row["excused_by"] is None for row in failures),
        "leaks": inventory.leaks(before, after),
        "ended_by_themselves": crashes,
        "not_disrupted": disruptor.problems,
    }
    return {
        "summary": summary,
        "before": before.as_dict(),
        "after": after.as_dict(),
        "failures": failures,
        "disruptions": disruptor.rows(),
    }


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[name]} {name.replace('_', ' ')}" for name in sorted(counts))


def show(report: dict[str, Any]) -> None:
    summary = report["summary"]
    OUT.print(
        f"{summary['objects']} objects, {summary['streams']} streams, {summary['messages_delivered']} messages; "
        f"{summary['disruptions']} disruptions; {summary['failures']} failures, "
        f"{summary['failed_without_cause']} of them without a cause"
    )
    for row in report["failures"]:
        if row["excused_by"] is None:
            OUT.print(f"  {row['begin_s']:.1f}-{row['end_s']:.1f} s {row['what']} at {row['server']}: "
                      f"{row['cause'] or 'no cause told'}")  # fmt: skip
    for text in summary["leaks"] or ["nothing leaked"]:
        OUT.print(f"  {text}")
    for text in (*summary["ended_by_themselves"], *summary["not_disrupted"]):
        OUT.print(f"  {text}")
