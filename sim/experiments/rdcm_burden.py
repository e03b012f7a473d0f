"""What RDCM's overlay asks of each member, against the size of the group: it should not grow (Sec. 3.3)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rostrum.lab.manifest import manifest
from rostrum.lab.results import rounded, save
from rostrum.sim.multicast import CONSTANTS, Group, Load, Session, rdcm_of
from rostrum.sim.network import SimError
from rostrum.topologies.families import Graph, named
from rostrum.topologies.places import build_folder
from rostrum.topologies.tables import whole

OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False)
NETWORK, SIZES = "bcube:8,3", (10, 30, 100, 300, 1000)
QUICK_NETWORK, QUICK_SIZES = "bcube:4,3", (10, 30, 100, 200)


@dataclass(frozen=True)
class Row:
    """Means and most over receivers, per packet of the object; `control_bytes`: what a receiver sends, on the wire."""

    receivers: int
    rings_most: int
    peers_mended_most: int
    acks_from_peers_most: int  # how many peers acknowledge to one
    acks_received: float
    acks_received_most: float
    acks_sent: float
    acks_at_sender: float
    repairs_sent: float
    repairs_sent_most: float
    lost: float
    control_over_data: float  # of bytes on all links


@click.command()
@click.option("--network", help=f"A family of data centers [{NETWORK}].")
@click.option("--receivers", "-n", multiple=True, type=click.IntRange(2, 1024),
              help=f"May be repeated [{' '.join(map(str, SIZES))}].")  # fmt: skip
@click.option("--packets", default=1024, show_default=True, type=click.IntRange(16, 65536))
@click.option("--loss", default=0.5, show_default=True, type=click.FloatRange(0, 20), help="Percent, of each link.")
@click.option("--constants", type=click.Choice(CONSTANTS), default="paper", show_default=True,
              help="RDCM's: of its measurements, or as rostrumd has them.")  # fmt: skip
@click.option("--seed", default=1, show_default=True)
@click.option("--quick", is_flag=True, help=f"Up to {QUICK_SIZES[-1]} receivers in {QUICK_NETWORK}.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              default=build_folder() / "rdcm-burden.json", show_default=True)  # fmt: skip
@click.option("--png", type=click.Path(dir_okay=False, path_type=Path),
              default=build_folder() / "rdcm-burden.png", show_default=True)  # fmt: skip
def command(
    network: str | None,
    receivers: tuple[int, ...],
    packets: int,
    loss: float,
    constants: str,
    seed: int,
    quick: bool,
    json_file: Path,
    png: Path,
) -> None:
    """Repairs and acknowledgements of each RDCM receiver against the size of the group."""
    family = network or (QUICK_NETWORK if quick else NETWORK)
    sizes = receivers or (QUICK_SIZES if quick else SIZES)
    load = Load(packets, loss=loss / 100)
    try:
        graph = named(family)
        rows = [
            one(graph, size, load, seed, constants) for size in track(sizes, "simulating", console=ERR, transient=True)
        ]
    except (SimError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    figures = {
        name: {str(row.receivers): getattr(row, name) for row in rows}
        for name in asdict(rows[0])
        if name != "receivers"
    }
    report = {
        "instrument": "sim",
        "summary": figures,
        "runs": [asdict(row) for row in rows],
        "manifest": manifest(seed, {"network": family, "constants": constants, **asdict(load)}),
    }
    save(rounded(report), json_file)
    png.parent.mkdir(parents=True, exist_ok=True)
    plot(rows, png)
    OUT.print(whole(table(rows)))
    OUT.print(f"figures in {json_file}, picture in {png}")


def one(graph: Graph, size: int, load: Load, seed: int, constants: str) -> Row:
    group = Group.drawn(graph, size, seed)
    overlay = group.overlay
    seen = {name: overlay.view(name) for name in group.receivers}
    session = Session(group, "rdcm", load, seed, rdcm_of(constants))
    outcome = session.run()
    stats = [session.stats(name) for name in group.receivers]
    peers = [
        {ring.successor(name) for ring in (view.leaf, view.proxy) if ring} | set(view.children)
        for name, view in seen.items()
    ]
    each = load.packets
    return Row(
        receivers=size,
        rings_most=max(bool(view.leaf) + bool(view.proxy) for view in seen.values()),
        peers_mended_most=max(
            len({ring.successor(name) for ring in (view.leaf, view.proxy) if ring}) for name, view in seen.items()
        ),
        acks_from_peers_most=max(len(one) for one in peers),
        acks_received=fmean(one["acks_received"] for one in stats) / each,
        acks_received_most=max(one["acks_received"] for one in stats) / each,
        acks_sent=fmean(one["acks_sent"] for one in stats) / each,
        acks_at_sender=session.stats(group.sender)["acks_received"] / each,
        repairs_sent=fmean(one["peer_repairs_sent"] for one in stats) / each,
        repairs_sent_most=max(one["peer_repairs_sent"] for one in stats) / each,
        lost=fmean(one["losses"] for one in stats) / each,
        control_over_data=outcome.control / outcome.footprint,
    )


def table(rows: list[Row]) -> Table:
    names = [name for name in asdict(rows[0]) if name != "receivers"]
    shown = Table("per packet, of a receiver", *(str(row.receivers) for row in rows))
    for name in names:
        shown.add_row(name.replace("_", " "), *(f"{getattr(row, name):.3g}" for row in rows))
    return shown


def plot(rows: list[Row], png: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
    sizes = [row.receivers for row in rows]
    curves: list[tuple[Any, str, str]] = [
        (left, "acks_received", "ACKs received, mean"),
        (left, "acks_received_most", "ACKs received, most"),
        (left, "acks_at_sender", "ACKs received by the sender"),
        (right, "repairs_sent", "repairs sent, mean"),
        (right, "repairs_sent_most", "repairs sent, most"),
        (right, "lost", "lost, mean"),
    ]
    for axes, name, label in curves:
        axes.plot(sizes, [getattr(row, name) for row in rows], marker="o", label=label)
    for axes in (left, right):
        axes.set(xscale="log", xlabel="receivers", ylabel="per packet of the object", ylim=(0, None))
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle("What RDCM asks of each receiver (simulated)")
    figure.savefig(png, dpi=110)
    pyplot.close(figure)
