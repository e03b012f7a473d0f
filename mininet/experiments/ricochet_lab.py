"""Fig. 8 of Ricochet in the lab: how soon lost messages come after all, with real agents, switches and packets.

Servers are in many groups each, of `size` servers drawn at random; every server publishes at a steady rate to its
groups in turn; each agent loses a share of the multicast data that it receives. A message carries the time it was
published at. What is counted is the delay of those that came by a repair (lateral error correction) or were asked for,
from publishing to this program, which reads for all servers: its own delay is in it.

A message costs far more than itself: two to four heartbeats (its stream is quiet after it), each to all members, and
the repairs. Two cores that run 16 agents and their switches carry about 10 messages a second of each server in 128
groups; beyond that the switches lose packets too, and what is measured is the machine: look at `processor_idle_share`,
and at `untold`, what neither came nor was told as lost.
"""

from __future__ import annotations

import random
import resource
import selectors
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import numpy
from rostrum.client import Agent, Group, RostrumError, TimedOut
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.results import save

BYTES = 256
VIEWS_BOUND_S = 30.0  # for all agents to know all members
SETTLE_S = 1.5  # for what is still being recovered: NAKs come after 100 ms
EDGES_MS = [float(edge) for edge in range(0, 260, 10)]
Record = dict[str, Any]


def draw_groups(servers: Sequence[str], per_server: int, size: int, seed: int) -> list[list[str]]:
    """Groups of `size` distinct servers, so that each server is in about `per_server`."""
    draw = random.Random(seed)
    left = dict.fromkeys(servers, per_server)
    found = []
    for _ in range(len(servers) * per_server // size):
        order = sorted(servers, key=lambda name: (-left[name], draw.random()))
        found.append(order[:size])
        for name in order[:size]:
            left[name] -= 1
    return found


class Member:
    """One server: its agent, and the groups it is in."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.agent = Agent(lab.agent_socket(name), process="ricochet-lab")
        self.groups: list[Group] = []
        self.next = 0

    def join(self, names: Sequence[str]) -> None:
        self.groups = [self.agent.join(name, protocol="ricochet", options="r=8,c=5") for name in names]

    def knows(self, size: int) -> bool:
        """The views of all its groups are complete."""
        groups = self.agent.status().groups
        return len(groups) == len(self.groups) and all(group.members == size for group in groups)

    def publish(self) -> None:
        group = self.groups[self.next % len(self.groups)]
        self.next += 1
        group.publish(struct.pack("<q", time.monotonic_ns()) + bytes(BYTES - 8))

    def close(self) -> None:
        for group in self.groups:
            group.close()
        self.agent.close()


def wait_for_views(members: Sequence[Member], size: int) -> None:
    bound = time.monotonic() + VIEWS_BOUND_S
    while not all(member.knows(size) for member in members):
        if time.monotonic() > bound:
            raise LabError(f"after {VIEWS_BOUND_S:g} s some agents still do not know all members of their groups")
        time.sleep(0.1)


def processor_ticks() -> tuple[int, int]:
    """Of the whole machine since its start: idle, all (proc(5), /proc/stat)."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def take(group: Group, delays_ms: dict[str, list[float]], counts: dict[str, int]) -> None:
    """All that is there."""
    while True:
        try:
            message = group.next(0)
        except TimedOut:
            return
        if message.lost is not None:
            counts["lost"] += message.lost
            continue
        counts["delivered"] += 1
        if message.via != "multicast":
            sent_ns = struct.unpack_from("<q", message.data)[0]
            delays_ms[message.via].append((time.monotonic_ns() - sent_ns) / 1e6)


def traffic(members: Sequence[Member], size: int, rate: float, seconds: float) -> Record:
    """Publishes and reads; the figures."""
    idle_before, ticks_before = processor_ticks()
    delays_ms: dict[str, list[float]] = {"repair": [], "retransmit": []}
    counts = {"delivered": 0, "lost": 0, "published": 0}
    with selectors.DefaultSelector() as selector:
        for group in (group for member in members for group in member.groups):
            selector.register(group, selectors.EVENT_READ)
        began = time.monotonic()
        total = int(rate * seconds) * len(members)
        while (now := time.monotonic()) < began + seconds + SETTLE_S:
            due = min(total, int((now - began) * rate * len(members)))
            for place in range(counts["published"], due):
                members[place % len(members)].publish()
            counts["published"] = due
            for key, _ in selector.select(0.001):
                take(key.fileobj, delays_ms, counts)  # type: ignore[arg-type]
    idle, ticks = processor_ticks()
    counts["expected"] = counts["published"] * (size - 1)
    found = summary(delays_ms, counts)
    return {**found, "processor_idle_share": (idle - idle_before) / max(1, ticks - ticks_before)}


def summary(delays_ms: dict[str, list[float]], counts: dict[str, int]) -> Record:
    both = delays_ms["repair"] + delays_ms["retransmit"]
    missed = len(both) + counts["lost"]
    counts["untold"] = counts["expected"] - counts["delivered"] - counts["lost"]
    missed += max(0, counts["untold"])
    found: Record = {**counts, "recovered": {via: len(values) for via, values in delays_ms.items()}}
    if both:
        found["lec_recovery_share"] = len(delays_ms["repair"]) / missed
        found["within_250ms_share"] = sum(value <= 250 for value in both) / missed
        found["lec_delay_ms_mean"] = float(numpy.mean(delays_ms["repair"] or [0.0]))
        found["delay_ms"] = {f"p{share}": float(numpy.percentile(both, share)) for share in (50, 90, 99)}
        found["histogram"] = {"edges_ms": EDGES_MS, "counts": numpy.histogram(both, EDGES_MS)[0].tolist()}
    return found


def one_lab(topology: str, loss: float, groups: int, size: int, rate: float, seconds: float, seed: int) -> Record:
    options = ["--loss", f"uniform:{loss / 100:g}", "--seed", str(seed)]
    with ExitStack() as stack:
        lab = stack.enter_context(Lab.start(topology, name="ricochet", or_another=True, agent_options=options))
        servers = list(lab.topology.servers)
        drawn = draw_groups(servers, groups, min(size, len(servers)), seed)
        members = []
        for name in servers:
            members.append(Member(lab, name))
            stack.callback(members[-1].close)
        wanted = [[f"g{place}" for place, group in enumerate(drawn) if name in group] for name in servers]
        with ThreadPoolExecutor(len(servers)) as pool:
            list(pool.map(Member.join, members, wanted))
        size = min(size, len(servers))
        wait_for_views(members, size)
        found = traffic(members, size, rate, seconds)
        return {"loss_percent": loss, "servers": len(servers), "groups": len(drawn), **found}


def draw_picture(runs: Sequence[Record], file: Path) -> None:
    from matplotlib.figure import Figure  # takes long to import

    figure = Figure(figsize=(4 * len(runs), 3))
    axes = figure.subplots(1, len(runs), squeeze=False, sharey=True)
    for axis, run in zip(axes[0], runs, strict=True):
        histogram = run.get("histogram", {"edges_ms": EDGES_MS, "counts": [0] * (len(EDGES_MS) - 1)})
        axis.bar(histogram["edges_ms"][:-1], histogram["counts"], width=10, align="edge")
        axis.set(title=f"{run['loss_percent']:g} % loss", xlabel="delay of recovered messages, ms", yscale="symlog")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


@click.command()
@click.option("--topology", default="fat-tree-4", show_default=True, help="A topology file, or a built-in one.")
@click.option("--loss", default="10,15,20", show_default=True, help="Per cent of the data packets each server loses.")
@click.option("--groups", default=128, show_default=True, help="Groups of each server.")
@click.option("--size", default=10, show_default=True, help="Servers of each group.")
@click.option("--rate", default=10.0, show_default=True, help="Messages a second of each server.")
@click.option("--seconds", default=20.0, show_default=True, help="Of traffic, for each loss.")
@click.option("--seed", default=1, show_default=True)
@click.option("--quick", is_flag=True, help="16 groups of each server, 4 s.")
@click.option("--json", "output", type=click.Path(dir_okay=False, path_type=Path), help="Figures here.")
@click.option("--png", "picture", type=click.Path(dir_okay=False, path_type=Path), help="The histograms here.")
def command(quick: bool, output: Path | None, picture: Path | None, loss: str, seed: int, **given: Any) -> None:
    """Delays of messages that were lost and recovered (Ricochet, figure 8), in many groups at once.

    \b
      rostrum lab run ricochet-lab --quick
      rostrum lab run ricochet-lab --json ricochet.json --png ricochet.png
    """
    if quick:
        given.update(groups=16, seconds=4.0)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        runs = []
        for share in (float(one) for one in loss.split(",")):
            runs.append(one_lab(loss=share, seed=seed, **given))
            click.echo(text(runs[-1]))
    except (LabError, RostrumError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    if output:
        facts = manifest(seed, {**given, "loss": loss, "quick": quick})
        save({"summary": runs, "manifest": facts}, output)
    if picture:
        draw_picture(runs, picture)


def counts_text(run: Record) -> str:
    return (
        f"{run['delivered']} of {run['expected']} delivered, {run['lost']} told as lost, {run['untold']} not told; "
        f"processors {run['processor_idle_share']:.0%} idle"
    )


def text(run: Record) -> str:
    if "delay_ms" not in run:
        return f"{run['loss_percent']:g} % loss: nothing was recovered, {counts_text(run)}"
    delay = run["delay_ms"]
    return (
        f"{run['loss_percent']:g} % loss, {run['groups']} groups on {run['servers']} servers: "
        f"{run['lec_recovery_share']:.1%} recovered by repairs, {run['within_250ms_share']:.1%} within 250 ms, "
        f"{counts_text(run)}; delay p50 {delay['p50']:.1f}, p90 {delay['p90']:.1f}, p99 {delay['p99']:.1f} ms"
    )
