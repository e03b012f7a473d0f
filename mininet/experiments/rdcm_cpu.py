"""RDCM, Fig. 14: processor time of receivers by RDCM, against unreliable multicast, and against Republic."""

from __future__ import annotations

import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rostrum.client import Agent, RostrumError
from rostrum.lab.experiments import plain_multicast
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.processor import used_s
from rostrum.lab.results import save
from rostrum.topologies import TopologyError, load
from rostrum.topologies.fabrics import Options, fabric
from rostrum.topologies.families import fat_tree
from rostrum.topologies.loader import rate_bps
from rostrum.topologies.units import Size, size_text

OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False)
SENDER = "h0-0-0"
PLAIN, PLAIN_FILE = "plain", "plain-file"
PROTOCOLS = (PLAIN, PLAIN_FILE, "republic", "rdcm")
RATIOS = {
    "rdcm_over_plain": "rdcm over plain, run by run",
    "rdcm_without_digest_over_plain": "rdcm without its digest over plain",
    "rdcm_without_digest_over_plain_file": "rdcm without its digest over plain into a file",
    "rdcm_over_republic": "rdcm over republic",
}
BOUND_S = 120.0
GIB = 1 << 30


@click.command()
@click.option("--size", type=Size(least=1 << 20), default="64M", show_default=True, help="Of each object.")
@click.option("--receivers", type=click.IntRange(2, 15), default=8, show_default=True)
@click.option("--repeats", type=click.IntRange(1, 100), default=6, show_default=True, help="Of each protocol, in turn.")
@click.option("--rate", default="200M", show_default=True, help="Of every server's link.")
@click.option("--name", default="rdcm-cpu", show_default=True, help="Of the lab.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), default="build/rdcm-cpu.json",
              show_default=True, help="Where the numbers go.")  # fmt: skip
def command(json_file: Path, **given: Any) -> None:
    """Measure receivers' processor time by RDCM against unreliable multicast (figure 14).

    By turns the same bytes go over the same kind of tree: as plain numbered datagrams, without any protocol or check,
    into a little memory (plain) and into a file of the store (plain-file); with Republic, whose receivers say nothing
    while data comes; with RDCM. Packets have the same size, and sockets are looked at as often. The time is that of the
    receivers' programs, user and kernel. Agents take a digest besides, whose cost is measured too, and have the memory
    of their files ready before (--reserve), which plain-file has not.
    """
    try:
        report = run(**given)
    except (LabError, RostrumError, TopologyError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    save(report, json_file)
    summary = report["summary"]
    for protocol in PROTOCOLS:
        OUT.print(f"{protocol:10} {summary[protocol]:.2f} CPU-s per GiB received (median)")
    OUT.print(f"the digest, which plain does not take: {summary['digest']:.2f} CPU-s per GiB")
    for name, text in RATIOS.items():
        found = summary[name]
        OUT.print(f"{text}: {found['median']:.2f} ({found['least']:.2f} to {found['most']:.2f})")
    OUT.print(f"numbers in {json_file}")


def run(size: int, receivers: int, repeats: int, rate: str, name: str) -> dict[str, Any]:
    """Every run, and medians. Raises LabError, RostrumError if a send fails."""
    others = [server for server in load("fat-tree-4").servers if server != SENDER]
    step = len(others) / receivers
    names = [others[int(number * step)] for number in range(receivers)]
    reserve = size_text(size).replace(" ", "").replace("iB", "")
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fabric.yaml"
        file.write_text(fabric(fat_tree(4, rate_bps(rate)), Options(name="fat-tree")))
        lab = Lab.start(file, name=name, or_another=True, reserve=reserve, quota="1G", seed=1)
    with lab:
        source = lab.run / "source"
        source.write_bytes(random.Random(1).randbytes(size))
        pids = {server: lab.status()["programs"][server]["pid"] for server in names}
        turns = [protocol for _ in range(repeats + 1) for protocol in PROTOCOLS]
        for number, protocol in enumerate(track(turns, "sending", console=ERR, transient=True), 1):
            if protocol in (PLAIN, PLAIN_FILE):
                one = _plain(lab, protocol, source, names)
            else:
                one = _send(lab, protocol, number, source, names, pids)
            if number > len(PROTOCOLS):  # the first of each warms up
                runs.append(one)
        digest = plain_multicast.digest_cpu_s_per_gib(lab, names[0], source)
    parameters = {"size": size, "receivers": receivers, "repeats": repeats, "rate": rate}
    return {
        "experiment": "rdcm-cpu",
        "manifest": manifest(1, parameters),
        "summary": summary(runs, digest),
        "runs": runs,
    }


def summary(runs: list[dict[str, Any]], digest: float) -> dict[str, Any]:
    """Medians of CPU-s per GiB, and ratios of neighbouring runs."""
    found = {protocol: [one["cpu_s_per_gib"] for one in runs if one["protocol"] == protocol] for protocol in PROTOCOLS}
    undigested = [one - digest for one in found["rdcm"]]
    pairs = {
        "rdcm_over_plain": zip(found["rdcm"], found[PLAIN], strict=True),
        "rdcm_without_digest_over_plain": zip(undigested, found[PLAIN], strict=True),
        "rdcm_without_digest_over_plain_file": zip(undigested, found[PLAIN_FILE], strict=True),
        "rdcm_over_republic": zip(found["rdcm"], found["republic"], strict=True),
    }
    return {
        **{protocol: statistics.median(values) for protocol, values in found.items()},
        "digest": digest,
        **{name: _ratios([a / b for a, b in pair]) for name, pair in pairs.items()},
    }


def _ratios(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def _plain(lab: Lab, protocol: str, source: Path, receivers: list[str]) -> dict[str, Any]:
    found = plain_multicast.send(lab, SENDER, receivers, source, keep=protocol == PLAIN_FILE)
    size = source.stat().st_size
    return {
        "protocol": protocol,
        "cpu_s": found.cpu_s,
        "cpu_s_per_gib": found.cpu_s / (size * len(receivers) / GIB),
        "goodput_bps": size * 8 / found.seconds,
        "packets_sent": found.packets,
    }


def _send(
    lab: Lab, protocol: str, number: int, source: Path, receivers: list[str], pids: dict[str, int]
) -> dict[str, Any]:
    size = source.stat().st_size
    with Agent(lab.agent_socket(SENDER)) as agent:
        agent.add(number, source)
        before = used_s(lab, pids)
        result = agent.send(number, receivers, protocol=protocol).wait(BOUND_S)
        after = used_s(lab, pids)
        agent.delete(number)
    if not result.ok or result.protocol != protocol:
        raise LabError(f"run {number} by {protocol} (was {result.protocol}): {result.cause}")
    for server in receivers:
        with Agent(lab.agent_socket(server)) as agent:
            agent.delete(number)
    spent_s = sum(after[server] - before[server] for server in receivers)
    return {
        "protocol": protocol,
        "cpu_s": spent_s,
        "cpu_s_per_gib": spent_s / (size * len(receivers) / GIB),
        "goodput_bps": size * 8e9 / max(result.done_ns - result.accepted_ns, 1),
        "patched": sum(row.patched_fragments for row in result.receivers),
        "packets_sent": result.packets_sent,
    }
