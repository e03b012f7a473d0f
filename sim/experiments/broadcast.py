"""One object to many servers over a packet network: how delivery holds up with receivers and losses."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rostrum.lab.manifest import manifest
from rostrum.lab.results import rounded, save
from rostrum.sim.fabric import Fabric
from rostrum.sim.network import HostParams, LinkParams, PathParams, SimError
from rostrum.topologies import load_text, rate_bps
from rostrum.topologies.families import named
from rostrum.topologies.generate import Hybrid, hybrid
from rostrum.topologies.tables import whole
from rostrum.topologies.units import Duration, Size

OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False)
PER_RACK, PER_RACK_MANY, RACKS_MOST = 20, 100, 200
GROUP = 7
FRAGMENT_BYTES = 8896  # MTU 9000
QUICK_RECEIVERS, QUICK_BYTES = (3, 30, 100), 32 << 20


@click.command()
@click.option("--receivers", "-n", multiple=True, type=click.IntRange(1, 10000), default=(3, 10, 30, 100, 300, 500),
              show_default=True, help="How many; may be repeated.")  # fmt: skip
@click.option("--loss", "losses", multiple=True, type=click.FloatRange(0, 50), default=(0.0, 0.01, 0.1, 1.0),
              show_default=True, help="Percent lost on each link that --loss-on names; may be repeated.")  # fmt: skip
@click.option("--loss-on", "where", default="edge", show_default=True, type=click.Choice(["edge", "core", "all"]),
              help="Links that lose: those to receivers, the others of the tree, or all of the tree.")  # fmt: skip
@click.option("--burst", default=1.0, show_default=True, type=click.FloatRange(1, 1000),
              help="Mean run of lost packets (Gilbert); 1 = each by itself.")  # fmt: skip
@click.option("--size", type=Size(least=1), default="256M", show_default=True, help="Bytes of the object.")
@click.option("--network", "family", default="racks", show_default=True,
              help="racks (of 20 or 100, and a core), or a family: fat-tree:16, vl2:8,8, bcube:8,3.")  # fmt: skip
@click.option("--rate", default="10G", show_default=True, help="Of servers' links.")
@click.option("--delay", type=Duration(bare="us"), default="2us", show_default=True, help="Of each link.")
@click.option("--engine", default="republic", show_default=True, help="By which protocol the object goes.")
@click.option("--carry/--no-carry", default=True, show_default=True,
              help="Of many receivers some carry control messages for the others.")  # fmt: skip
@click.option("--seed", default=1, show_default=True)
@click.option("--quick", is_flag=True, help="A few receivers, a small object: seconds.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              default="build/broadcast.json", show_default=True, help="Where the figures go.")  # fmt: skip
def command(
    receivers: tuple[int, ...],
    losses: tuple[float, ...],
    where: str,
    burst: float,
    size: int,
    family: str,
    rate: str,
    delay: float,
    engine: str,
    carry: bool,
    seed: int,
    quick: bool,
    json_file: Path,
) -> None:
    """Time, repairs and control traffic of one object to many servers, with losses at every receiver.

    The agent's engine, the manager's trees; no processors and no NICs.
    """
    if quick:
        receivers, size = QUICK_RECEIVERS, QUICK_BYTES
    runs = [(count, loss) for count in sorted(set(receivers)) for loss in sorted(set(losses))]
    try:
        rows = [
            one(
                count,
                loss,
                where,
                burst,
                size,
                fabric_of(family, count, rate_bps(rate), round(delay * 1e9), seed, carry),
                seed,
                engine,
            )
            for count, loss in track(runs, "simulating", console=ERR, transient=True)
        ]
    except (SimError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    parameters = {
        "size": size,
        "loss_on": where,
        "network": family,
        "rate": rate,
        "delay_s": delay,
        "burst": burst,
        "engine": engine,
        "carry": carry,
    }
    report = {"instrument": "sim", "summary": summary(rows), "runs": rows, "manifest": manifest(seed, parameters)}
    save(rounded(report), json_file)
    OUT.print(whole(table(rows)))
    OUT.print(f"figures in {json_file}")


def fabric_of(family: str, count: int, rate: int, delay_ns: int, seed: int, carry: bool = True) -> Fabric:
    """A network with room for a sender and `count` receivers. Raises ValueError."""
    link, host = LinkParams(delay_ns=delay_ns), HostParams(fragment_size=FRAGMENT_BYTES, carries=carry)
    if family == "racks":
        each = PER_RACK if count < PER_RACK * (RACKS_MOST - 1) else PER_RACK_MANY
        racks = -(-(count + 1) // each) + 1
        text = hybrid(Hybrid(racks, each, ocs_ports=racks, splitters=0, rate=f"{rate // 10**6}M"))
        return Fabric.of_topology(load_text(text), seed, link, lambda name: host)
    graph = named(family)
    if len(graph.servers) <= count:
        raise ValueError(f"{graph.name} has {len(graph.servers)} servers, too few for a sender and {count} receivers")
    scale = rate / min(graph.links.values())
    graph.links = {ends: round(each * scale) for ends, each in graph.links.items()}
    return Fabric.of_graph(graph, seed, link, lambda name: host)


def one(
    count: int, loss: float, where: str, burst: float, size: int, fabric: Fabric, seed: int, engine: str
) -> dict[str, Any]:
    """One transfer to `count` receivers. Raises SimError if it does not end within an hour of virtual time."""
    net = fabric.network
    sender, *members = random.Random(seed).sample(fabric.servers, count + 1)
    links = fabric.tree(GROUP, sender, members)
    rate = fabric.rate(sender)
    edge = {fabric.last_link(GROUP, name) for name in members}
    lossy = {"edge": edge, "core": set(links) - edge, "all": set(links)}[where]
    for link in sorted(lossy) if loss else ():
        net.loss(link, "gilbert" if burst > 1 else "bernoulli", loss / 100, burst)
    net.path(fabric.nodes[sender], PathParams(GROUP, engine, rate_bps=rate))
    xfer = net.send(fabric.nodes[sender], 1, size, [fabric.nodes[name] for name in members])
    began = time.process_time()
    net.run_until_sent(3600 * 10**9)
    took = time.process_time() - began
    stats, run = net.transfer(fabric.nodes[sender], xfer), net.run_stats()
    if stats["receivers_done"] != count:
        raise SimError(f"{count} receivers, {loss} % loss: {stats['receivers_done']} are done after {run['now']} ns")
    first = fabric.copies(GROUP)[sender]
    back = net.link_stats(net.link_between(fabric.nodes[next(iter(first))], fabric.nodes[sender]))
    granted_s = (net.now_ns - stats["granted_at"]) / 1e9
    return {
        "receivers": count,
        "loss_percent": loss,
        "seconds": granted_s,
        "over_ideal": granted_s / (size * 8 / rate),
        "packets_over_fragments": stats["packets_sent"] / stats["fragments"],
        "patches": stats["patches_sent"],
        "uplink_over_object": net.link_stats(links[0])["bytes"] / size,
        "control_packets": run["control_packets"],
        "sender_control_received": back["packets"] - back["data_packets"],
        "sender_control_received_per_s": (back["packets"] - back["data_packets"]) / granted_s,
        "events": run["events"],
        "cpu_s": took,
        "events_per_s": run["events"] / max(took, 1e-9),
        "memory_bytes": run["bytes"] + run["engine_bytes"],
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """over_ideal[loss percent][receivers]"""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        found.setdefault(f"{row['loss_percent']:g}", {})[str(row["receivers"])] = row["over_ideal"]
    return found


def table(rows: list[dict[str, Any]]) -> Table:
    shown = Table("receivers", "loss %", "s", "over ideal", "data packets / fragments", "patches", "uplink / object")
    for row in rows:
        shown.add_row(
            str(row["receivers"]),
            f"{row['loss_percent']:g}",
            f"{row['seconds']:.3f}",
            f"{row['over_ideal']:.3f}",
            f"{row['packets_over_fragments']:.3f}",
            str(row["patches"]),
            f"{row['uplink_over_object']:.3f}",
        )
    return shown
