"""How soon the manager answers a sender's request for a path (the paper's Sec. VI-D), in a whole lab."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rostrum.client import Agent, RostrumError
from rostrum.lab.experiments.demo import choose
from rostrum.lab.experiments.fig8_summary import spread
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.results import save
from rostrum.topologies import TopologyError, load

OBJECT = b"x" * 8192
MS = 1e6  # ns
OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False)


@click.command()
@click.option("--requests", default=300, show_default=True, type=click.IntRange(1, 4000), help="One after another.")
@click.option("--receivers", default=16, show_default=True, help="Servers each object goes to, in other racks.")
@click.option("--sender", default="h1", show_default=True, help="The server that asks.")
@click.option("--topology", default="testbed-20", show_default=True, help="A topology file, or a built-in one's name.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), default="build/response.json",
              show_default=True, help="Where the figures go.")  # fmt: skip
def command(requests: int, receivers: int, sender: str, topology: str, json_file: Path) -> None:
    """Measure the manager's response time: request to acceptance, as the agent sees it and in the manager itself.

    Sends small objects one by one; after the first the circuit is live. Starts a lab of its own.
    """
    parameters = {"requests": requests, "receivers": receivers, "sender": sender, "topology": topology}
    try:
        report = {**run(requests, receivers, sender, topology), "manifest": manifest(0, parameters)}
    except (LabError, RostrumError, TopologyError) as error:
        raise click.ClickException(str(error)) from error
    save(report, json_file)
    for where in ("agent", "manager"):
        OUT.print(f"in the {where}: p50 {report[where]['p50_ms']:.2f} ms, p99 {report[where]['p99_ms']:.2f} ms")
    OUT.print(f"figures in {json_file}")


def run(requests: int, receivers: int, sender: str, topology: str) -> dict[str, Any]:
    """The figures of one lab. Raises LabError if a send fails."""
    names = choose(load(topology), sender, receivers)
    times_ms = []
    with Lab.start(topology, name="response", or_another=True) as lab:
        with Agent(lab.agent_socket(sender)) as agent:
            for data_id in track(range(1, requests + 1), "asking for paths", console=ERR, transient=True):
                agent.add(data_id, OBJECT)
                result = agent.send(data_id, names).wait()
                if not result.ok:
                    raise LabError(f"send {data_id} of {requests} failed: {result.cause}")
                times_ms.append((result.accepted_ns - result.requested_ns) / MS)
                agent.delete(data_id)
        inside = lab.rest.get("/v1/stats")["thrift_response"]
    return {"agent": {f"{name}_ms": value for name, value in spread(times_ms).items()}, "manager": inside}
