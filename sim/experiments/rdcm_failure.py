"""RDCM's Fig. 15 in simulation: a link of the tree fails, then a receiver dies, while data flows at a steady rate."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress
from rostrum.lab.manifest import manifest
from rostrum.lab.results import rounded, save
from rostrum.sim import views
from rostrum.sim.fabric import Fabric
from rostrum.sim.multicast import CONSTANTS, GROUP, Group, rdcm_of
from rostrum.sim.network import LINK_STATS, HostParams, LinkParams, PathParams, RdcmParams, SimError
from rostrum.topologies.families import named
from rostrum.topologies.places import build_folder

OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False)
S, MS = 10**9, 10**6
STEP_NS = MS


@dataclass(frozen=True)
class Setting:
    """`manager_ms`: from a report's arrival to new rules and views in place."""

    network: str = "bcube:4,1"
    receivers: int = 9
    packet_bytes: int = 1408
    rate_bps: int = 500 * 10**6
    seconds: float = 6.0
    loss: float = 0.0005  # of each link, in runs of 20: light congestion, as in the paper's testbed
    burst: float = 20.0
    manager_ms: float = 5.0
    sample_ms: int = 5
    seed: int = 1
    constants: str = "paper"

    @property
    def link_down_ms(self) -> int:
        return round(self.seconds * 1000 / 3)

    @property
    def crash_ms(self) -> int:
        return round(self.seconds * 2000 / 3)


@dataclass
class Record:
    """`rates`: Mbit/s of payload by curve; times in ms of the run."""

    at_ms: list[int] = field(default_factory=list)
    rates: dict[str, list[float]] = field(default_factory=dict)
    marks: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, count: float, setting: Setting) -> None:
        mbps = count * setting.packet_bytes * 8 / (setting.sample_ms / 1000) / 1e6
        self.rates.setdefault(name, []).append(mbps)


@click.command()
@click.option("--seconds", default=Setting.seconds, show_default=True, type=click.FloatRange(1, 1000))
@click.option("--network", default=Setting.network, show_default=True)
@click.option("--receivers", "-n", default=Setting.receivers, show_default=True, type=click.IntRange(3, 1000))
@click.option("--manager-delay", "manager_ms", default=Setting.manager_ms, show_default=True,
              type=click.FloatRange(0, 1000), help="From a report to new rules and views, in ms.")  # fmt: skip
@click.option("--constants", type=click.Choice(CONSTANTS), default="paper", show_default=True,
              help="RDCM's: the core's small ones, as the paper names none here, or as rostrumd has them.")  # fmt: skip
@click.option("--seed", default=1, show_default=True)
@click.option("--quick", is_flag=True, help="3 s instead of 6.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              default=build_folder() / "rdcm-failure.json", show_default=True)  # fmt: skip
@click.option("--png", type=click.Path(dir_okay=False, path_type=Path),
              default=build_folder() / "rdcm-failure.png", show_default=True)  # fmt: skip
def command(
    seconds: float,
    network: str,
    receivers: int,
    manager_ms: float,
    constants: str,
    seed: int,
    quick: bool,
    json_file: Path,
    png: Path,
) -> None:
    """A link fails and a receiver dies during an RDCM session of 500 Mbit/s (figure 15 of its paper, simulated).

    The engines find out, the manager's code makes the new tree and overlay.
    """
    setting = Setting(
        network=network,
        receivers=receivers,
        seconds=3.0 if quick else seconds,
        manager_ms=manager_ms,
        seed=seed,
        constants=constants,
    )
    try:
        with Progress(console=ERR, transient=True) as bar:
            task = bar.add_task("simulating", total=round(setting.seconds * 1000))
            session = Session(setting)
            record = session.run(lambda done: bar.update(task, completed=done))
    except (SimError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    figures = summary(record, setting)
    report = {
        "instrument": "sim",
        "summary": figures,
        "at_ms": record.at_ms,
        "mbps": record.rates,
        "manifest": manifest(seed, asdict(setting)),
    }
    save(rounded(report), json_file)
    png.parent.mkdir(parents=True, exist_ok=True)
    plot(record, setting, session.affected, png)
    for name, value in figures.items():
        OUT.print(f"{name:42} {value:.3f}")
    OUT.print(f"figures in {json_file}, picture in {png}")


class Session:
    """A stream to a group, with the manager's part played by its own tree and overlay code."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.group = group = Group.drawn(named(setting.network), setting.receivers, setting.seed)
        link = LinkParams(delay_ns=1_000, queue_bytes=1 << 20)
        self.fabric = Fabric.of_graph(group.graph, setting.seed, link, None)
        self.net, self.nodes = self.fabric.network, self.fabric.nodes
        self.links = self.fabric.lay(GROUP, group.sender, group.receivers, group.tree.children)
        for number in range(self.net.link_count()):
            self.net.loss(number, "gilbert", setting.loss, setting.burst)
        rdcm = rdcm_of(setting.constants, RdcmParams(no_congestion_control=True))
        for name in [group.sender, *group.receivers]:
            self.fabric.use_node(name, HostParams(fragment_size=setting.packet_bytes, rdcm=rdcm))
        self.names = {node: name for name, node in self.nodes.items()}
        self.overlay, self.alive = group.overlay, list(group.receivers)
        self._views = views.Views(self.net, self.nodes, 1)
        self._waiting: list[tuple[int, str, str, int]] = []  # (when it is done, kind, successor, ring)
        self._seen = 0
        self.affected = self._leaf()
        self.victim = next(name for name in self._neighbours(self.affected) if not group.tree.children[name])
        self.record = Record()

    def run(self, shown: Any) -> Record:
        setting, net = self.setting, self.net
        self._views.tell(self.overlay, set(self.group.receivers) - set(self.alive))
        path = PathParams(GROUP, "rdcm", rate_bps=setting.rate_bps, manager_delay_ns=0)
        net.path(self.nodes[self.group.sender], path)
        net.stream(self.nodes[self.group.sender], 1, [self.nodes[name] for name in self.group.receivers])
        before = self._counts()
        for ms in range(1, round(setting.seconds * 1000) + 1):
            if ms == setting.link_down_ms:
                parent = self.group.tree.parents[self.affected]
                for a, b in ((parent, self.affected), (self.affected, parent)):
                    net.up(net.link_between(self.nodes[a], self.nodes[b]), False)
            if ms == setting.crash_ms:
                net.crash(self.nodes[self.victim])
                self.alive.remove(self.victim)
            net.run(ms * STEP_NS)
            self._look(ms)
            if ms % setting.sample_ms == 0:
                counts = self._counts()
                self._sample(ms, before, counts)
                before = counts
                shown(ms)
        return self.record

    # the manager

    def _look(self, ms: int) -> None:
        notes = self.net.notes()
        for note in notes[self._seen :]:
            for kind in ("link_suspected", "receiver_failed"):
                if note["kind"] == self.net.kind(kind):
                    self.record.marks.setdefault(f"{kind}_ms", float(note["at"]) / MS)
                    done = ms + round(self.setting.manager_ms)
                    self._waiting.append((done, kind, self.names[int(note["peer"])], int(note["value"])))
        self._seen = len(notes)
        for one in [one for one in self._waiting if one[0] <= ms]:
            self._waiting.remove(one)
            self._react(ms, *one[1:])

    def _react(self, ms: int, kind: str, successor: str, ring: int) -> None:
        tree = self.group.tree
        if successor not in tree.receivers:
            return
        if kind == "receiver_failed":
            tree.leave(successor)
        else:
            view = self.overlay.view(successor)
            place = view.proxy if ring else view.leaf
            if place is None:  # reported of an overlay that has changed since
                return
            tree.fail(self.overlay.suspects(place.node, successor))
        self.overlay = self.overlay.follow(tree.children)
        self.fabric.lay(GROUP, self.group.sender, sorted(tree.receivers), tree.children)
        self._views.tell(self.overlay, set(self.group.receivers) - set(self.alive))
        self.record.marks.setdefault("new_tree_ms" if kind == "link_suspected" else "left_ms", float(ms))

    # what happens

    def _leaf(self) -> str:
        """A receiver that forwards to nobody and has such a neighbour in its leaf ring."""
        tree = self.group.tree
        for name in self.group.receivers:
            if not tree.children[name] and any(not tree.children[one] for one in self._neighbours(name)):
                return name
        raise SimError("no two neighbours in a ring are leaves of the tree; take another seed")

    def _neighbours(self, name: str) -> list[str]:
        ring = self.overlay.view(name).leaf
        return [one for one in ring.members if one != name] if ring else []

    def _counts(self) -> dict[str, tuple[int, int]]:
        """(by the tree, from peers) so far; the sender: (sent, 0)."""
        sent = self.net.link_totals(self.links[:1])
        counts = {self.group.sender: (int(sent[0, LINK_STATS.index("group_packets")]), 0)}
        for name in self.alive:
            number = self.net.receiving(self.nodes[name], 1)
            stats = self.net.transfer(self.nodes[name], number) if number else {}
            repairs = stats.get("peer_repairs_received", 0) - stats.get("peer_repairs_old", 0)
            counts[name] = (stats.get("packets_received", 0), repairs)
        return counts

    def _sample(self, ms: int, before: dict[str, tuple[int, int]], now: dict[str, tuple[int, int]]) -> None:
        record, setting, sender = self.record, self.setting, self.group.sender
        record.at_ms.append(ms)
        gained = {name: (now[name][0] - before[name][0], now[name][1] - before[name][1]) for name in now}
        record.add("sender", gained[sender][0], setting)
        record.add("receivers, mean", fmean(sum(gained[name]) for name in self.alive), setting)
        record.add("affected, by the tree", gained[self.affected][0], setting)
        record.add("affected, from peers", gained[self.affected][1], setting)


def summary(record: Record, setting: Setting) -> dict[str, float]:
    """Times in ms; rates over the sender's. `during`: from the failure to the new tree, in whole samples."""
    marks, sample = record.marks, setting.sample_ms
    rows = list(zip(record.at_ms, zip(*record.rates.values(), strict=True), strict=True))

    def mean(curve: str, begin: float, end: float) -> float:
        index = list(record.rates).index(curve)
        found = [rates[index] / rates[0] for at, rates in rows if begin < at - sample and at <= end and rates[0]]
        return fmean(found) if found else float("nan")

    down, crash, whole = setting.link_down_ms, setting.crash_ms, setting.seconds * 1000
    tree = marks.get("new_tree_ms", whole)
    figures = {
        "link_detection_ms": marks.get("link_suspected_ms", float("nan")) - down,
        "link_down_to_new_tree_ms": marks.get("new_tree_ms", float("nan")) - down,
        "detection_to_new_tree_ms": marks.get("new_tree_ms", float("nan"))
        - marks.get("link_suspected_ms", float("nan")),
        "receiver_detection_ms": marks.get("receiver_failed_ms", float("nan")) - crash,
        "alive_over_sender": mean("receivers, mean", 2 * sample, whole),
        "alive_over_sender_link_down": mean("receivers, mean", down, crash),
        "alive_over_sender_receiver_dead": mean("receivers, mean", crash, whole),
        "affected_from_peers_before": mean("affected, from peers", 2 * sample, down),
        "affected_from_peers_during": mean("affected, from peers", down, tree),
        "affected_by_tree_during": mean("affected, by the tree", down, tree),
        "affected_by_tree_after": mean("affected, by the tree", tree, crash),
    }
    return {name: value for name, value in figures.items() if value == value}


def plot(record: Record, setting: Setting, affected: str, png: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 1, figsize=(7.5, 6), sharex=True, layout="constrained")
    at = [ms / 1000 for ms in record.at_ms]
    for axis, curves in zip(axes, (("sender", "receivers, mean"), tuple(record.rates)[2:]), strict=True):
        for curve in curves:
            axis.plot(at, record.rates[curve], linewidth=1, label=curve.replace("affected", affected))
        axis.axvline(setting.link_down_ms / 1000, color="k", linestyle=":", linewidth=0.8)
        axis.axvline(setting.crash_ms / 1000, color="k", linestyle="--", linewidth=0.8)
        axis.set(ylabel="Mbit/s of payload", ylim=(0, None))
        axis.grid(alpha=0.3)
        axis.legend(loc="center left")
    axes[0].set_title("A link fails (dotted), a receiver dies (dashed); simulated")
    axes[1].set_xlabel("time (s)")
    figure.savefig(png, dpi=110)
    pyplot.close(figure)
