"""Multicast of high priority against unicast that overloads a receiver's port: with and without the mark."""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rostrum.lab import p4switches
from rostrum.lab.experiments import priority_plot
from rostrum.lab.experiments.fig8_summary import percentile
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import Entered, LabError
from rostrum.lab.results import save
from rostrum.lab.traffic import line_of, start
from rostrum.topologies import TopologyError, rate_bps
from rostrum.topologies.generate import Hybrid, hybrid
from rostrum.topologies.kinds import KINDS
from rostrum.topologies.tables import whole
from rostrum.topologies.units import rate_text

SENDER, VICTIM, WITNESS = "h1", "h4", "h7"  # in racks of three; the victim's port is overloaded, the witness's is not
RIVALS = ("h5", "h6")  # send unicast to the victim, in its rack: only its port is overloaded
MULTICAST_SHARE, RIVAL_SHARE = 0.5, 0.9  # of the link's rate
GROUP_PORT, RIVAL_PORT = 7070, 7777
SIZE = 8900
LEAD_S = 1.0  # unicast sends so much longer, at either end
BACKLOG = 50  # frames
BACKLOG_WAIT_S = 3.0
QUIET_S = 1.5
BOUND_S = 60.0
LEVELS = {"tagged": 5, "untagged": 0}
OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Run:
    """One measurement. Loss: share of the multicast datagrams sent that did not arrive."""

    kind: str  # of switches: openflow | p4 | mixed
    switch: str  # what forwarded
    tagging: str  # tagged | untagged
    rivals: int  # servers that sent unicast to the victim's port
    round: int
    sent: int
    victim_loss: float
    victim_goodput_bps: float
    witness_loss: float
    unicast_goodput_bps: float  # at the victim
    queue_drops: int  # frames dropped at the victim's port, all classes


@click.command()
@click.option("--switch", "kinds", type=click.Choice(KINDS), multiple=True, help="[openflow and p4]")
@click.option("--p4-target", "targets", type=click.Choice([*p4switches.TARGETS]), multiple=True,
              help="What plays P4 switches [BMv2 if it is installed, else the reference target]")  # fmt: skip
@click.option("--rate", default="50M", show_default=True, help="Of every link: what the slowest switch here can fill.")
@click.option("--seconds", type=click.FloatRange(0.5, 120), default=4.0, show_default=True, help="Of each measurement.")
@click.option("--repeats", type=click.IntRange(1, 100), default=5, show_default=True, help="Of each case, in turn.")
@click.option("--rounds", type=click.IntRange(1, 20), default=2, show_default=True, help="Labs for each case.")
@click.option("--seed", type=click.IntRange(1, 2**32 - 1), help="Of the order of the cases [a new one, printed].")
@click.option("--name", help="Of the labs: logs of the last are in build/lab/NAME [priority].")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), default="build/priority.json",
              show_default=True, help="Where the numbers go.")  # fmt: skip
@click.option("--png", "png_file", type=click.Path(dir_okay=False, path_type=Path), default="build/priority.png",
              show_default=True, help="Where the picture goes.")  # fmt: skip
@click.option("--from", "from_file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Run nothing: table and picture of the numbers in this file.")  # fmt: skip
def command(json_file: Path, png_file: Path, from_file: Path | None, seed: int | None, **given: Any) -> None:
    """Loss and goodput of multicast while unicast overloads a receiver's port, with and without priority marks.

    h1 sends to h4 and h7 over a path of the manager's at half the links' rate; h5 and h6 send unicast to h4 at 0.9 of
    it each. The port to h4 has its rate at the egress queueing discipline, where DSCP 46 goes first. "Untagged" is the
    same with a manager that marks nothing (--priority 0). docs/reproducing.md tells what came out.
    """
    if from_file:
        report = json.loads(from_file.read_text())
    else:
        given["kinds"] = given["kinds"] or ("openflow", "p4")
        try:
            report = run(seed=seed or random.SystemRandom().randrange(1, 2**32), **given)
        except (LabError, TopologyError, ValueError) as error:
            raise click.ClickException(str(error)) from error
        save(report, json_file)
    png_file.parent.mkdir(parents=True, exist_ok=True)
    priority_plot.draw(png_file, report)
    show(report)
    OUT.print(f"\nnumbers in {from_file or json_file}, picture in {png_file}")


def run(
    kinds: tuple[str, ...],
    targets: tuple[str, ...],
    rate: str,
    seconds: float,
    repeats: int,
    rounds: int,
    seed: int,
    name: str | None,
) -> dict[str, Any]:
    """The report. Raises LabError, TopologyError."""
    bps = rate_bps(rate)
    runs: list[Run] = []
    cases = [
        (kind, target, tagging)
        for kind in kinds
        for target in (("",) if kind == "openflow" else targets or (p4switches.choose(),))
        for tagging in LEVELS
    ]
    chance = random.Random(seed)
    with Progress(console=ERR) as progress:
        task = progress.add_task(f"seed {seed}", total=len(cases) * rounds * (repeats + 1))
        for number in range(rounds):
            order = list(cases)
            chance.shuffle(order)
            for kind, target, tagging in order:
                progress.update(task, description=f"round {number + 1} of {rounds}: {kind} {target}, {tagging}")
                with start_lab(kind, target, tagging, rate, name or "priority") as lab:
                    group = path(lab)
                    for turn in range(repeats + 1):
                        rivals = RIVALS if turn else ()  # first alone
                        runs.append(measure(lab, kind, tagging, group, rivals, bps, seconds, number))
                        progress.advance(task)
    parameters = {
        "kinds": kinds, "targets": targets, "rate": rate, "seconds": seconds, "repeats": repeats, "rounds": rounds,
        "size": SIZE, "multicast_share": MULTICAST_SHARE, "rival_share": RIVAL_SHARE, "levels": LEVELS,
    }  # fmt: skip
    return {
        "experiment": "priority-protection",
        "manifest": manifest(seed, parameters),
        "cases": summaries(runs),
        "runs": [asdict(one) for one in runs],
    }


def start_lab(kind: str, target: str, tagging: str, rate: str, name: str) -> Lab:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "racks.yaml"
        file.write_text(hybrid(Hybrid(racks=3, servers=3, rate=rate, name="priority")))
        return Lab.start(
            file, name=name, or_another=True, switch=kind, p4_target=target, parts=("ocs", "manager"),
            core_links="veth", manager_options=("--priority", str(LEVELS[tagging])),
        )  # fmt: skip


def path(lab: Lab) -> str:
    """The group of a packet path from the sender to victim and witness. Raises LabError."""
    wanted = {"sender": SENDER, "receivers": [VICTIM, WITNESS], "kind": "packet"}
    status, made = lab.rest.call("POST", "/v1/paths", wanted)
    if status != 201:
        raise LabError(f"no path: {made}")
    made = lab.rest.get(f"/v1/paths/{made['id']}?wait=active&timeout_ms=8000")
    if made["state"] != "active":
        raise LabError(f"the path is {made['state']}: {made['cause'] or made['reason']}")
    return str(made["group"])


def measure(
    lab: Lab, kind: str, tagging: str, group: str, rivals: tuple[str, ...], bps: int, seconds: float, number: int
) -> Run:
    address = str(lab.topology.servers[VICTIM].address)
    before = drops(lab)
    with ExitStack() as stack:
        victim = stack.enter_context(_listen(lab, VICTIM, GROUP_PORT, group))
        witness = stack.enter_context(_listen(lab, WITNESS, GROUP_PORT, group))
        unicast = stack.enter_context(_listen(lab, VICTIM, RIVAL_PORT)) if rivals else None
        floods = [
            stack.enter_context(_send(lab, rival, address, RIVAL_PORT, RIVAL_SHARE * bps, seconds + 2 * LEAD_S))
            for rival in rivals
        ]
        if rivals:
            _wait_for_backlog(lab)
        sent = _answer(stack.enter_context(_send(lab, SENDER, group, GROUP_PORT, MULTICAST_SHARE * bps, seconds)))
        for flood in floods:
            _answer(flood)
        at_victim, at_witness = _answer(victim), _answer(witness)
        beside = _answer(unicast) if unicast else {"bytes": 0, "seconds": 0.0}
    return Run(
        kind, lab.switch, tagging, len(rivals), number, sent["sent"],
        1 - at_victim["distinct"] / sent["sent"], _goodput(at_victim),
        1 - at_witness["distinct"] / sent["sent"], _goodput(beside), drops(lab) - before,
    )  # fmt: skip


def queues(lab: Lab) -> list[dict[str, Any]]:
    """What tc says of the two queues of the victim's port."""
    server = lab.topology.servers[VICTIM]
    argv = ["tc", "-s", "-j", "qdisc", "show", "dev", f"{server.tor}-p{server.tor_port}"]
    return [row for row in json.loads(lab.execute("manager", argv)) if row["handle"] in ("10:", "20:")]


def drops(lab: Lab) -> int:
    """Frames dropped so far by the queues of the victim's port."""
    return sum(row["drops"] for row in queues(lab))


def _wait_for_backlog(lab: Lab) -> None:
    """Until unicast fills the victim's port: its queue is longer than bursts make it. At most BACKLOG_WAIT_S."""
    deadline = time.monotonic() + BACKLOG_WAIT_S
    while time.monotonic() < deadline and not any(row["qlen"] > BACKLOG for row in queues(lab)):
        time.sleep(0.05)


def _listen(lab: Lab, server: str, port: int, group: str = "") -> Entered:
    program = start(
        lab, server, "receive", port, QUIET_S, lab.topology.servers[server].address, *([group] if group else [])
    )
    if line_of(program) != "listening\n":
        raise LabError(f"{server}: the receiver on port {port} did not start")
    return program


def _send(lab: Lab, server: str, address: str, port: int, bps: float, seconds: float) -> Entered:
    return start(lab, server, "send", address, port, SIZE, bps, seconds, lab.topology.servers[server].address)


def _answer(program: Entered) -> dict[str, Any]:
    line = line_of(program)
    if program.wait(BOUND_S) or not line:
        raise LabError(f"a traffic program ended with status {program.returncode}")
    return dict(json.loads(line))


def _goodput(found: dict[str, Any]) -> float:
    return found["bytes"] * 8 / found["seconds"] if found["seconds"] else 0.0


def summaries(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Each case: median, least and most of its runs."""
    found: dict[tuple[str, str, str, int], list[Run]] = {}
    for one in runs:
        found.setdefault((one.kind, one.switch, one.tagging, one.rivals), []).append(one)
    return [
        {
            "kind": kind, "switch": switch, "tagging": tagging, "rivals": rivals, "runs": len(rows),
            "victim_loss": _three(row.victim_loss for row in rows),
            "victim_goodput_bps": _three(row.victim_goodput_bps for row in rows),
            "witness_loss": _three(row.witness_loss for row in rows),
            "unicast_goodput_bps": _three(row.unicast_goodput_bps for row in rows),
        }
        for (kind, switch, tagging, rivals), rows in sorted(found.items())
    ]  # fmt: skip


def _three(values: Iterable[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"p50": percentile(ordered, 50), "least": ordered[0], "most": ordered[-1]}


def show(report: dict[str, Any]) -> None:
    """The table, for a person."""
    table = Table("switches", "forwarded by", "multicast", "unicast", "loss at h4", "goodput at h4", "loss at h7",
                  "unicast at h4", "runs", box=None)  # fmt: skip
    for case in report["cases"]:
        loss, witness = case["victim_loss"], case["witness_loss"]
        table.add_row(
            case["kind"], case["switch"], case["tagging"], f"{case['rivals']} senders",
            f"{loss['p50']:.2%} ({loss['least']:.2%} to {loss['most']:.2%})",
            rate_text(case["victim_goodput_bps"]["p50"]), f"{witness['p50']:.2%}",
            rate_text(case["unicast_goodput_bps"]["p50"]), str(case["runs"]),
        )  # fmt: skip
    OUT.print(whole(table))
