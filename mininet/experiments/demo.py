"""The whole of rostrum on one object: to servers in other racks, over an optical circuit made for it."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table
from rostrum.client import Agent, CreatedFile, Event, RostrumError
from rostrum.lab import figures, p4switches
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.results import save
from rostrum.topologies import TopologyError, load
from rostrum.topologies.kinds import KINDS
from rostrum.topologies.loader import MANAGEMENT_PORTS
from rostrum.topologies.model import Topology
from rostrum.topologies.places import short
from rostrum.topologies.tables import whole
from rostrum.topologies.units import Duration, Size, rate_text, size_text

CHUNK_BYTES = 8 << 20
READ_BOUND_S = 10.0
SIZE, P4_SIZE = 64 << 20, 16 << 20
OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Plan:
    """What the demo was asked to do."""

    size: int
    switch: str | None
    ocs: str | None
    sender: str
    receivers: int
    ocs_delay_s: float
    ringing_s: float
    seed: int
    topology: str
    name: str | None
    again: bool
    secure: bool


@click.command()
@click.option("--size", type=Size(), help="Of the object: random data. [64M; 16M over P4 switches]")
@click.option("--switch", type=click.Choice(KINDS), help="Kind of the switches; mixed: P4 ones at the top of racks, an "
              "OpenFlow core. [openflow]")  # fmt: skip
@click.option("--ocs", type=click.Choice(list(MANAGEMENT_PORTS)), help="How the optical circuit switch is "
              "driven: a dialect of TL1, or gNMI. [as the topology says]")  # fmt: skip
@click.option("--receivers", default=6, show_default=True, help="Servers that get it, in other racks than the sender.")
@click.option("--sender", default="h1", show_default=True, help="The server that has it.")
@click.option("--ocs-delay", "ocs_delay_s", type=Duration(), default="70ms", show_default=True,
              help="Reconfiguration time of the emulated OCS; light rings at its end.")  # fmt: skip
@click.option("--ringing", "ringing_s", type=Duration(), help="How long it rings [5ms, or a fourteenth of the delay].")
@click.option("--seed", type=int, help="Of the data and of all random choices [a new one, printed].")
@click.option("--topology", default="hybrid-4x2", show_default=True, help="A topology file, or a built-in one's name.")
@click.option("--name", help="Of the lab: its logs are in build/lab/NAME [demo, or demo-2 ... if that runs].")
@click.option("--again/--once", default=True, show_default=True, help="Send a second object over the live circuit.")
@click.option("--secure", is_flag=True, help="Every link is TLS or sealed (`security: required`).")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), is_flag=False, flag_value="-",
              metavar="[FILE]", help="Where figures go [build/demo.json]; no FILE: to standard output.")  # fmt: skip
def command(
    json_file: Path | None,
    size: int | None,
    switch: str | None,
    ocs_delay_s: float,
    ringing_s: float | None,
    seed: int | None,
    **given: Any,
) -> None:
    """Send one object to many servers over an optical circuit, and account for every millisecond.

    Starts a lab of its own. Ends with status 0 only if every receiver has every byte: each copy is read back through
    the receiver's agent and compared by SHA-256 with what was sent.
    """
    p4 = switch in ("p4", "mixed")
    plan = Plan(
        size=size if size is not None else P4_SIZE if p4 else SIZE,
        switch=switch,
        ocs_delay_s=ocs_delay_s,
        ringing_s=min(0.005, ocs_delay_s / 14) if ringing_s is None else ringing_s,
        seed=int.from_bytes(os.urandom(4)) if seed is None else seed,
        **given,
    )
    to_output, json_file = json_file == Path("-"), json_file or Path("build/demo.json")
    OUT.stderr = to_output  # what is for people goes there
    try:
        if p4:
            announce(plan, shrunk=size is None)
        report = run(plan)
    except (LabError, RostrumError, TopologyError) as error:
        raise click.ClickException(str(error)) from error
    if to_output:
        print(json.dumps(report, indent=1))
    else:
        save(report, json_file)
        OUT.print(f"\nfigures in {json_file}; logs in {short(report['logs'])}")
    sys.exit(0 if report["ok"] else 1)


def run(plan: Plan) -> dict[str, Any]:
    """Starts the lab, sends, checks, stops it; the report. Raises LabError, RostrumError."""
    delay_ms = plan.ocs_delay_s * 1000
    changes: dict[str, Any] = {
        "emulation.reconfiguration": {"distribution": "fixed", "mean_ms": delay_ms, "spread_ms": 0},
        "emulation.ringing.duration_ms": plan.ringing_s * 1000,
        "emulation.seed": plan.seed,
        "ocs.ocs.reconfiguration_ms": delay_ms,
    }
    if plan.ocs:
        changes |= {"ocs.ocs.dialect": plan.ocs, "ocs.ocs.management_port": MANAGEMENT_PORTS[plan.ocs]}
    receivers = choose(load(plan.topology), plan.sender, plan.receivers)
    with ERR.status("starting the lab") as status:
        lab = Lab.start(
            plan.topology, name=plan.name or "demo", or_another=plan.name is None, switch=plan.switch, changes=changes,
            seed=plan.seed, secure=plan.secure,
            reserve=str(plan.size + (2 << 20)), progress=lambda text: status.update(f"lab: waiting for {text}"),
        )  # fmt: skip
    with lab:
        OUT.print(
            f"{size_text(plan.size)} of random data (seed {plan.seed}) from {plan.sender} to {', '.join(receivers)}; "
            f"OCS {delay_ms:g} ms, ringing {plan.ringing_s * 1000:g} ms"
        )
        first = transfer(lab, plan, receivers, data_id=1, emulated_ms=delay_ms)
        show(first)
        report = {**first, "switch": lab.switch, "logs": str(lab.run), "manifest": manifest(plan.seed, asdict(plan))}
        if plan.again and first["ok"]:
            OUT.print("\nagain, over the circuit that is there")
            second = transfer(lab, plan, receivers, data_id=2, emulated_ms=delay_ms)
            show(second)
            report["reused"] = second
            report["ok"] = second["ok"]
        report["manager"] = lab.rest.get("/v1/stats")["thrift_response"]
    return report


def announce(plan: Plan, shrunk: bool) -> None:
    """Says what P4 switches on one machine cost: nothing here is slower in silence."""
    target = p4switches.choose()
    smaller = f", and the object has {size_text(plan.size)} instead of {size_text(SIZE)}" if shrunk else ""
    OUT.print(
        f"P4 switches: {target} ({p4switches.TARGETS[target]}); links carry {p4switches.RATE_MAX[target]}bit/s{smaller}"
    )


def choose(topology: Topology, sender: str, count: int) -> list[str]:
    """`count` servers of other racks than the sender's, from each rack in turn. Raises LabError."""
    if sender not in topology.servers:
        raise LabError(f"no server {sender} in {topology.name}; there are {', '.join(topology.servers)}")
    own = topology.servers[sender].tor
    racks = [topology.servers_of(tor) for tor in topology.switches if tor != own]
    deepest = max((len(rack) for rack in racks), default=0)
    found = [rack[slot].name for slot in range(deepest) for rack in racks if slot < len(rack)]
    if not 1 <= count <= len(found):
        raise LabError(f"{count} receivers: {topology.name} has 1 to {len(found)} servers outside the rack of {sender}")
    return sorted(found[:count], key=list(topology.servers).index)


def transfer(lab: Lab, plan: Plan, receivers: list[str], data_id: int, emulated_ms: float) -> dict[str, Any]:
    """One object: added at the sender, sent, read back at each receiver, deleted everywhere; what came of it."""
    with Agent(lab.agent_socket(plan.sender)) as agent:
        with agent.create(plan.size) as file:
            wanted = fill(file, plan.seed + data_id)
            agent.add(data_id, file)
        with Watch(plan.size, len(receivers)) as watch:
            result = agent.send(data_id, receivers, on_event=watch.event).wait()
        path = path_of(lab, result.response_id)
        with ERR.status("reading back") as status:
            digests = {}
            for name in receivers:
                status.update(f"reading back at {name}")
                digests[name] = read_back(lab, name, data_id) == wanted
        agent.delete(data_id)
    rows = figures.receivers(result, digests)
    found = figures.transfer(result, path, emulated_ms)
    return {**found, "ok": found["ok"] and all(row["digest_ok"] for row in rows), "receivers": rows, "sha256": wanted}


def fill(file: CreatedFile, seed: int) -> str:
    """Fills a file with random bytes; their SHA-256."""
    digest, generator = hashlib.sha256(), numpy.random.default_rng(seed)
    for start in range(0, file.size, CHUNK_BYTES):
        chunk = generator.bytes(min(CHUNK_BYTES, file.size - start))
        file.write(chunk, start)
        digest.update(chunk)
    return digest.hexdigest()


def read_back(lab: Lab, server: str, data_id: int) -> str:
    """SHA-256 of the object as read on that server (and then deleted there), or why it cannot be read."""
    digest = hashlib.sha256()
    try:
        with Agent(lab.agent_socket(server)) as agent:
            with agent.read(data_id, wait=READ_BOUND_S) as copy:
                for chunk in copy.chunks(CHUNK_BYTES):
                    digest.update(chunk)
            agent.delete(data_id)
    except RostrumError as error:
        return f"not readable: {error}"
    return digest.hexdigest()


def path_of(lab: Lab, path_id: str) -> dict[str, Any] | None:
    """The manager's account of a path, once it is over; None if it has forgotten it."""
    status, path = lab.rest.call("GET", f"/v1/paths/{path_id}?wait=ended&timeout_ms=2000")
    return dict(path) if status == 200 else None


class Watch:
    """Progress of a transfer for a person: a bar on a terminal, a line at each phase elsewhere."""

    def __init__(self, size: int, receivers: int) -> None:
        self.progress = Progress(
            TextColumn("{task.description:28}"), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(),
            console=ERR, transient=True,
        )  # fmt: skip
        self.task = self.progress.add_task("asking for a path", total=max(1, size))
        self.receivers, self.done, self.phase = receivers, 0, ""

    def __enter__(self) -> Watch:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def event(self, event: Event) -> None:
        if event.kind == "phase":
            self.phase = event.subject
            if not ERR.is_terminal:
                ERR.print(f"  {event.subject}{': ' + event.text if event.text else ''}")
        self.done = max(self.done, event.receivers_done)
        text = f"{self.phase}, {self.done} of {self.receivers} done"
        self.progress.update(self.task, description=text, completed=event.bytes if event.bytes else None)


def show(found: dict[str, Any]) -> None:
    """Timeline, receivers and sums, for a person."""
    table = Table("ms", "", title="timeline", title_justify="left", box=None, show_header=False)
    for row in found["timeline"]:
        table.add_row(f"{row['ms']:10.2f}", row["what"])
    OUT.print(whole(table))
    table = Table("receiver", "first light", "first fragment", "patched", "complete", "digest", box=None)
    for row in found["receivers"]:
        table.add_row(
            row["host"],
            f"{row['first_light_ms']:.2f} ms" if row["first_light_ms"] is not None else "-",
            str(row["initial_sn"]) if row["initial_sn"] is not None else "-",
            str(row["patched_fragments"]),
            f"{row['complete_ms']:.2f} ms" if row["complete_ms"] is not None else "-",
            "right" if row["digest_ok"] else f"WRONG {row['cause']}",
        )
    OUT.print(whole(table))
    OUT.print(
        f"{found['path']} path, {found['cross_connects']} cross-connects, {found['rules']} rules"
        + (f"; {found['reason']}" if found["reason"] else "")
    )
    OUT.print(
        f"goodput {rate_text(found['goodput_bps'])} in all, {rate_text(found['data_channel_goodput_bps'])} at high "
        f"rate (paced to {rate_text(found['rate_bps'])} on the wire)"
    )
    OUT.print(
        f"total {found['total_ms']:.2f} ms = {found['reconfiguration_ms']:g} reconfiguration + {found['ideal_ms']:.2f} "
        f"transfer at the rate reached + [bold]{found['extra_ms']:.2f} extra[/bold] "
        f"({found['extra_at_line_rate_ms']:.2f} beyond {rate_text(found['rate_bps'])})"
    )
    OUT.print(
        f"{found['packets_redundant']} packets redundant, {found['packets_patched']} patched; "
        f"{found['loss_ratio']:.2%} of what was owed had to be"
    )
    if not found["ok"]:
        OUT.print(f"[red]failed[/red]: {found['cause'] or 'a digest is wrong'}")
