"""RDCM's Fig. 12: the sender's rate while flows in the background take a share of links of the tree."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rostrum.lab.manifest import manifest
from rostrum.lab.results import rounded, save
from rostrum.sim import views
from rostrum.sim.fabric import Fabric
from rostrum.sim.multicast import CONSTANTS, GROUP, Group, rdcm_of
from rostrum.sim.network import HostParams, LinkParams, PathParams, RdcmParams, SimError
from rostrum.topologies.families import named
from rostrum.topologies.places import build_folder
from rostrum.topologies.tables import whole

OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False)
S, MS = 10**9, 10**6
RATE = 10**9
SAMPLES = 250
UDP_BYTES = 1538  # on the wire
# Parts of the run: (name, from, to, bit/s in the background), the tree's links in turn.
PARTS = (
    ("nothing", 0.0, 0.2, 0),
    ("200 Mbit/s", 0.2, 0.45, 200 * 10**6),
    ("nothing again", 0.45, 0.65, 0),
    ("400 Mbit/s", 0.65, 1.0, 400 * 10**6),
)


@dataclass(frozen=True)
class Setting:
    """`queue_packets`: that a switch's port holds besides the one on the wire. The paper's has none, but its packets
    are a fluid; here two flows that fit into a link together still meet, and a sender hands out 4 packets at a time.
    """

    network: str = "bcube:8,3"
    receivers: int = 8
    packet_bytes: int = 8192
    seconds: float = 1000.0
    queue_packets: int = 4
    delays_ms: tuple[float, ...] = (0.0, 2.0, 4.0)
    seed: int = 1
    constants: str = "paper"


QUICK_S = 20.0


@click.command()
@click.option("--seconds", type=click.FloatRange(1, 10_000), help=f"Of the session [{Setting.seconds:g}].")
@click.option("--receivers", "-n", type=click.IntRange(2, 1000), default=Setting.receivers, show_default=True)
@click.option("--packet", "packet_bytes", type=click.IntRange(256, 8896), default=Setting.packet_bytes,
              show_default=True, help="Payload bytes.")  # fmt: skip
@click.option("--queue", "queue_packets", type=click.IntRange(0, 10_000), default=Setting.queue_packets,
              show_default=True, help="Packets that wait at a switch's port.")  # fmt: skip
@click.option("--constants", type=click.Choice(CONSTANTS), default="paper", show_default=True,
              help="RDCM's: the core's small ones, as the paper names none here, or as rostrumd has them.")  # fmt: skip
@click.option("--seed", default=1, show_default=True)
@click.option("--quick", is_flag=True, help=f"{QUICK_S:g} s: under a minute.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              default=build_folder() / "rdcm-congestion.json", show_default=True)  # fmt: skip
@click.option("--png", type=click.Path(dir_okay=False, path_type=Path),
              default=build_folder() / "rdcm-congestion.png", show_default=True)  # fmt: skip
def command(
    seconds: float | None,
    receivers: int,
    packet_bytes: int,
    queue_packets: int,
    constants: str,
    seed: int,
    quick: bool,
    json_file: Path,
    png: Path,
) -> None:
    """RDCM's congestion control beside UDP flows of 200, then 400 Mbit/s (figure 12 of its paper).

    Losses are known to receivers at once, or after 2 or 4 ms; switches have next to no buffers.
    """
    setting = Setting(
        receivers=receivers,
        packet_bytes=packet_bytes,
        seconds=seconds or (QUICK_S if quick else Setting.seconds),
        queue_packets=queue_packets,
        seed=seed,
        constants=constants,
    )
    runs = {}
    try:
        with Progress(console=ERR, transient=True) as bar:
            for delay in setting.delays_ms:
                task = bar.add_task(f"losses known after {delay:g} ms", total=SAMPLES)
                runs[f"{delay:g}"] = one(setting, delay, lambda task=task: bar.advance(task))
    except (SimError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    figures = summary(runs)
    report = {"instrument": "sim", "summary": figures, "runs": runs, "manifest": manifest(seed, asdict(setting))}
    save(rounded(report), json_file)
    png.parent.mkdir(parents=True, exist_ok=True)
    plot(runs, png)
    OUT.print(whole(table(figures)))
    OUT.print(f"figures in {json_file}, picture in {png}")


def one(setting: Setting, delay_ms: float, shown: Any = lambda: None) -> dict[str, Any]:
    """A continuing stream. `mbps`: what the sender puts out, payload, of each sample."""
    group = Group.drawn(named(setting.network), setting.receivers, setting.seed)
    packet = setting.packet_bytes + 200
    down = LinkParams(delay_ns=1_000, queue_bytes=setting.queue_packets * packet)
    fabric = Fabric.of_graph(group.graph, setting.seed, down, None, up=LinkParams(delay_ns=1_000, queue_bytes=1 << 20))
    net, nodes = fabric.network, fabric.nodes
    links = fabric.lay(GROUP, group.sender, group.receivers, group.tree.children)
    rdcm = rdcm_of(setting.constants, RdcmParams(loss_delay_ns=max(1, round(delay_ms * MS))))
    for name in [group.sender, *group.receivers]:
        fabric.use_node(name, HostParams(fragment_size=setting.packet_bytes, rdcm=rdcm))
    for name, view in views.of_overlay(group.overlay, nodes, 1):
        net.view(nodes[name], 1, view)
    net.path(nodes[group.sender], PathParams(GROUP, "rdcm", rate_bps=RATE, manager_delay_ns=0))
    for (a, b), (_, begin, end, rate_bps) in zip(busy_links(group), PARTS[1::2], strict=True):
        times = [round(part * setting.seconds * S) for part in (begin, end)]
        net.flow(nodes[a], nodes[b], rate_bps, UDP_BYTES, *times)
    net.stream(nodes[group.sender], 1, [nodes[name] for name in group.receivers])
    at, mbps, before = [], [], 0
    step = setting.seconds / SAMPLES
    for sample in range(1, SAMPLES + 1):
        net.run(round(sample * step * S))
        packets = net.link_stats(links[0])["group_packets"]
        at.append(sample * step)
        mbps.append((packets - before) * setting.packet_bytes * 8 / step / 1e6)
        before = packets
        shown()
    totals = [net.transfer(nodes[name], net.receiving(nodes[name], 1)) for name in group.receivers]
    stats = net.run_stats()
    return {
        "delay_ms": delay_ms,
        "at_s": at,
        "mbps": mbps,
        "losses": sum(one["losses"] for one in totals),
        "repairs": sum(one["peer_repairs_received"] for one in totals),
        "events": stats["events"],
    }


def busy_links(group: Group) -> list[tuple[str, str]]:
    """Two links of the tree that end at receivers below different switches, if there are."""
    ends = sorted((parent, child) for child, parent in group.tree.parents.items() if child in group.receivers)
    return [ends[0], next((link for link in ends if link[0] != ends[0][0]), ends[-1])]


def summary(runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Of each part of each run, without its first tenth: mean and 5th percentile of the rate, Mbit/s payload."""
    found: dict[str, Any] = {"mean_mbps": {}, "p5_mbps": {}, "share_of_what_is_left": {}}
    for delay, run in runs.items():
        whole = run["at_s"][-1]
        for name, begin, end, rate_bps in PARTS:
            begin += (end - begin) / 10
            rates = [rate for at, rate in zip(run["at_s"], run["mbps"], strict=True) if begin < at / whole <= end]
            found["mean_mbps"].setdefault(delay, {})[name] = fmean(rates)
            found["p5_mbps"].setdefault(delay, {})[name] = quantiles(rates, n=20)[0]
            left = (RATE - rate_bps) / 1e6
            found["share_of_what_is_left"].setdefault(delay, {})[name] = fmean(rates) / left
    return found


def table(figures: dict[str, Any]) -> Table:
    shown = Table("mean rate, Mbit/s", *(name for name, *_ in PARTS))
    for delay, row in figures["mean_mbps"].items():
        shown.add_row(f"losses known after {delay} ms", *(f"{row[name]:.0f}" for name, *_ in PARTS))
    return shown


def plot(runs: dict[str, dict[str, Any]], png: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 4), layout="constrained")
    for delay, run in runs.items():
        axes.plot(run["at_s"], np.array(run["mbps"]), linewidth=0.9, label=f"losses known after {delay} ms")
    whole = next(iter(runs.values()))["at_s"][-1]
    for _, begin, end, rate_bps in PARTS:
        left = (RATE - rate_bps) / 1e6
        axes.plot([begin * whole, end * whole], [left, left], "k--", linewidth=0.8)
    axes.set(xlabel="time (s)", ylabel="sender's rate (Mbit/s of payload)", ylim=(0, 1050))
    axes.set_title("RDCM beside UDP flows; dashed: what they leave (simulated)")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left")
    figure.savefig(png, dpi=110)
    pyplot.close(figure)
