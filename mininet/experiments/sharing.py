"""How multicast and unicast of one server share its NIC (Republic, III-A2: fairly, in a best-effort manner)."""

from __future__ import annotations

import json
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rostrum.client import Agent, RostrumError, SendResult
from rostrum.lab.experiments.fig8_attempt_interval import drop
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.results import save
from rostrum.lab.traffic import line_of, start
from rostrum.topologies import TopologyError, rate_bps
from rostrum.topologies.generate import Hybrid, hybrid
from rostrum.topologies.units import Size

SENDER, RECEIVERS = "h1", ("h5", "h9", "h13")  # in racks of four
UNICAST = ("h2", "h3", "h4")  # in the sender's rack: only its NIC is shared
PORT = 7800
LEAD_S = 1.0  # unicast begins so much earlier
EDGE_S = 0.5  # of a transfer, at either end, is left out
BOUND_S = 120.0
NS = 1e9
OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False)


@click.command()
@click.option("--flows", type=click.IntRange(1, len(UNICAST)), multiple=True, default=(1, 3), show_default=True,
              help="TCP connections beside the transfer; a case each.")  # fmt: skip
@click.option("--rate", default="100M", show_default=True, help="Of every link.")
@click.option("--size", type=Size(least=1 << 20), default="48M", show_default=True, help="Of the object.")
@click.option("--repeats", type=click.IntRange(1, 100), default=4, show_default=True, help="Of each case, by turns.")
@click.option("--protocol", type=click.Choice(["republic", "rdcm", "wan"]), default="republic", show_default=True,
              help="That sends the object.")  # fmt: skip
@click.option("--name", default="sharing", show_default=True, help="Of the lab.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), default="build/sharing.json",
              show_default=True, help="Where the figures go.")  # fmt: skip
def command(json_file: Path, **given: Any) -> None:
    """Measure what multicast and TCP of one server get of its NIC, alone and at once.

    h1 sends an object to three racks while it sends by TCP to servers of its own rack, so that its NIC is all they
    share. A fair share is the link's rate by the number of flows, the multicast being one.
    """
    try:
        report = run(**given)
    except (LabError, RostrumError, TopologyError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    save(report, json_file)
    for flows, one in report["summary"].items():
        OUT.print(f"beside {flows} TCP: multicast {one['multicast']:.1%} of the link, TCP {one['unicast']:.1%}")
        OUT.print(f"multicast has {one['over_fair']:.2f} of a fair share")
    OUT.print(f"figures in {json_file}")


def run(flows: tuple[int, ...], rate: str, size: int, repeats: int, protocol: str, name: str) -> dict[str, Any]:
    """Every run, and medians. Raises LabError, RostrumError, TopologyError."""
    bps = rate_bps(rate)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "racks.yaml"
        file.write_text(hybrid(Hybrid(racks=4, servers=4, rate=rate, name="sharing")))
        lab = Lab.start(file, name=name, or_another=True, seed=1)
    runs = []
    with lab, ExitStack() as stack:
        agents = {one: stack.enter_context(Agent(lab.agent_socket(one))) for one in (SENDER, *RECEIVERS)}
        cases = [count for _ in range(repeats) for count in (0, *flows)]
        for turn, count in enumerate(track(cases, "sending", console=ERR, transient=True)):
            agents[SENDER].add(turn, b"s" * size)
            runs.append(measure(lab, agents[SENDER], turn, count, bps, size, protocol))
            for agent in agents.values():
                drop(agent, turn)
    parameters = {
        "flows": list(flows), "rate": rate, "size": size, "repeats": repeats, "protocol": protocol
    }  # fmt: skip
    summary = {str(count): medians([one for one in runs if one["flows"] == count]) for count in (0, *flows)}
    return {"experiment": "sharing", "manifest": manifest(1, parameters), "summary": summary, "runs": runs}


def medians(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {one: statistics.median(row[one] for row in rows) for one in ("multicast", "unicast", "over_fair")}


def measure(lab: Lab, agent: Agent, data_id: int, flows: int, bps: int, size: int, protocol: str) -> dict[str, Any]:
    """Shares of the link while both go: the multicast's payload, what TCP delivers."""
    longest_s = LEAD_S + 2 * (flows + 1) * size * 8 / bps + 2 * EDGE_S
    with ExitStack() as stack:
        ends = []
        for number in range(flows):
            to = UNICAST[number]
            end = stack.enter_context(start(lab, to, "tcp-receive", PORT))
            if line_of(end) != "listening\n":
                raise LabError(f"{to}: the TCP receiver did not start")
            address = lab.topology.servers[to].address
            stack.enter_context(start(lab, SENDER, "tcp-send", address, PORT, longest_s))
            ends.append(end)
        if flows:
            lab.execute("manager", ["sleep", str(LEAD_S)])
        result = agent.send(data_id, list(RECEIVERS), protocol=protocol).wait(BOUND_S)
        if not result.ok:
            raise LabError(f"transfer {data_id + 1} failed: {result.cause}")
        progress = [json.loads(line_of(end))["progress"] for end in ends]
    return shares(result, progress, flows, bps, size)


def shares(result: SendResult, progress: list[list[list[int]]], flows: int, bps: int, size: int) -> dict[str, Any]:
    begin_ns, end_ns = result.high_rate_ns, result.data_done_ns
    multicast = size * 8 / ((end_ns - begin_ns) / NS) / bps
    unicast = sum(goodput(one, begin_ns + EDGE_S * NS, end_ns - EDGE_S * NS) for one in progress) / bps
    return {
        "flows": flows, "multicast": multicast, "unicast": unicast, "over_fair": multicast * (flows + 1),
        "sent_again": result.packets_redundant,
    }  # fmt: skip


def goodput(progress: list[list[int]], begin_ns: float, end_ns: float) -> float:
    """Bits a second between two moments. Raises LabError if there was none of it."""
    within = [one for one in progress if begin_ns <= one[0] <= end_ns]
    if len(within) < 2:
        raise LabError("TCP brought nothing while the multicast went: take a larger --size")
    return (within[-1][1] - within[0][1]) * 8 / ((within[-1][0] - within[0][0]) / NS)
