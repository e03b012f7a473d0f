"""RDCM's receivers "dynamically join and leave" (Sec. 4.1 of its paper): what that does to those who stay."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
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
from rostrum.sim.multicast import CONSTANTS, GROUP, LINK, PAPERS, STEP_NS, Group, rdcm_of
from rostrum.sim.network import HostParams, PathParams, RdcmParams, SimError
from rostrum.topologies.families import Graph, named
from rostrum.topologies.places import build_folder
from rostrum.topologies.tables import whole

OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False)
S, MS = 10**9, 10**6
LONGEST_NS = 60 * S
CHANGES = ("none", "leaves", "joins", "both")
CONTROLS = {"without congestion control": True, "with congestion control": False}


@dataclass(frozen=True)
class Setting:
    """`share`: of the receivers, leave under way; as many others join. `manager_ms`: from there to new rules and views.
    `loss`: of each link, in runs of `burst` in the mean.
    """

    network: str = "bcube:8,3"
    receivers: int = 100
    packets: int = 4096
    packet_bytes: int = 1024
    share: float = 0.05
    manager_ms: float = 1.0
    loss: float = 0.002
    burst: float = 2.0
    seeds: int = 3
    seed: int = 1
    constants: str = "paper"


QUICK = Setting(network="bcube:4,3", receivers=60, packets=4096, seeds=1)


@click.command()
@click.option("--network", help=f"A family of data centers [{Setting.network}].")
@click.option("--receivers", "-n", type=click.IntRange(4, 1000), help=f"At the beginning [{Setting.receivers}].")
@click.option("--packets", type=click.IntRange(64, 10**6), help=f"Of 1 KB [{Setting.packets}].")
@click.option("--share", type=click.FloatRange(0.01, 0.5), help=f"That leaves, and that joins [{Setting.share:g}].")
@click.option("--loss", type=click.FloatRange(0, 0.2), help=f"Of each link's packets [{Setting.loss:g}].")
@click.option("--manager-delay", "manager_ms", type=click.FloatRange(0, 1000),
              help=f"From a change to new rules and views, in ms [{Setting.manager_ms:g}].")  # fmt: skip
@click.option("--seeds", type=click.IntRange(1, 100), help=f"Groups to draw [{Setting.seeds}].")
@click.option("--seed", default=1, show_default=True, help="The first one.")
@click.option("--constants", type=click.Choice(CONSTANTS), default="paper", show_default=True,
              help="RDCM's: of rdcm-goodput, with congestion control rdcm-congestion; or rostrumd's.")  # fmt: skip
@click.option("--quick", is_flag=True, help=f"{QUICK.receivers} receivers in {QUICK.network}: under a minute.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              default=build_folder() / "rdcm-joins.json", show_default=True)  # fmt: skip
def command(quick: bool, json_file: Path, **given: Any) -> None:
    """Receivers join and leave under way, 5 % each: what those who stay get, over a session without (RDCM, 4.1).

    All at once until all is there, with losses on every link, with congestion control and without.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    setting = replace(QUICK if quick else Setting(), **chosen)
    rows = []
    try:
        graph = named(setting.network)
        with Progress(console=ERR, transient=True) as bar:
            task = bar.add_task("", total=setting.seeds * len(CONTROLS) * len(CHANGES))
            for seed in range(setting.seed, setting.seed + setting.seeds):
                for control in CONTROLS:
                    for changes in CHANGES:
                        bar.update(task, description=f"seed {seed}, {control}, changes: {changes}")
                        rows.append(Session(graph, setting, seed, control, changes).run())
                        bar.advance(task)
    except (SimError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    figures = summary(rows)
    report = {
        "instrument": "sim",
        "summary": figures,
        "runs": rows,
        "manifest": manifest(setting.seed, asdict(setting)),
    }
    save(rounded(report), json_file)
    OUT.print(whole(table(figures)))
    OUT.print(f"figures in {json_file}")


class Session:
    """An object to a group that changes, with the manager's part played by its own tree and overlay code. Who joins is
    named to the sender from the beginning, as the API has it, but nobody there wants the object before, and neither
    tree nor overlay has it.
    """

    def __init__(self, graph: Graph, setting: Setting, seed: int, control: str, changes: str) -> None:
        self.setting, self.seed, self.control, self.changes = setting, seed, control, changes
        count = round(setting.share * setting.receivers)
        drawn = Group.drawn(graph, setting.receivers + count, seed)
        self.group = Group(graph, drawn.sender, drawn.receivers[: setting.receivers])
        self.joiners = drawn.receivers[setting.receivers :] if changes in ("joins", "both") else []
        luck = random.Random(f"leavers of {seed}")
        self.leavers = luck.sample(self.group.receivers, count) if changes in ("leaves", "both") else []
        self.stay = sorted(set(self.group.receivers) - set(self.leavers))
        self.fabric = Fabric.of_graph(graph, seed, LINK, None)
        self.net, self.nodes = self.fabric.network, self.fabric.nodes
        for link in range(self.net.link_count()):
            self.net.loss(link, "gilbert", setting.loss, setting.burst)
        papers = PAPERS if CONTROLS[control] else RdcmParams()
        rdcm = replace(rdcm_of(setting.constants, papers), no_congestion_control=CONTROLS[control])
        for name in [self.group.sender, *self.group.receivers, *self.joiners]:
            self.fabric.use_node(name, HostParams(fragment_size=setting.packet_bytes, rdcm=rdcm))
        for name in self.joiners:
            self.net.absent(self.nodes[name], 1, True)
        self.members = set(self.group.receivers)
        self.views = views.Views(self.net, self.nodes, 1)

    def run(self) -> dict[str, Any]:
        setting, net = self.setting, self.net
        self._lay()
        sender = self.nodes[self.group.sender]
        net.path(sender, PathParams(GROUP, "rdcm", rate_bps=LINK.rate_bps, manager_delay_ns=0))
        named_ = [self.nodes[name] for name in [*self.group.receivers, *self.joiners]]
        net.send(sender, 1, setting.packets * setting.packet_bytes, named_)
        while net.link_stats(self.first_link)["data_packets"] == 0:
            net.run(net.now_ns + STEP_NS)
        link = net.link_stats(self.first_link)
        first, packet = link["first_data_at"], link["data_bytes"] / link["data_packets"]
        wire_ns = setting.packets * packet * 8e9 / LINK.rate_bps
        joined = self._change(first, wire_ns)
        done = self._until_done()
        if missing := [name for name in [*self.stay, *joined] if name not in done]:
            raise SimError(f"{missing[0]} and {len(missing) - 1} others have not all after {net.now_ns} ns")
        shares = np.array([wire_ns / (done[name] - first) for name in self.stay])
        late = [(done[name] - max(at, 0)) / MS for name, at in joined.items()]
        return {
            "seed": self.seed,
            "control": self.control,
            "changes": self.changes,
            "completion": float(shares.mean()),
            "slowest": float(shares.min()),
            "joiners_ms": {"mean": fmean(late), "most": max(late)} if late else {},
            "requests": sum(self._stats(name)["requests_sent"] for name in self.stay),
            "suspected": len(net.notes_of("link_suspected")) + len(net.notes_of("receiver_failed")),
        }

    # what happens

    def _change(self, first: float, wire_ns: float) -> dict[str, float]:
        """Joins and leaves in turn, evenly over the middle of the session. When each joiner came."""
        marks = sorted(
            [(_at(number, self.leavers), "leave", name) for number, name in enumerate(self.leavers)]
            + [(_at(number + 0.5, self.joiners), "join", name) for number, name in enumerate(self.joiners)]
        )
        due: list[tuple[float, str, str]] = []
        for part, kind, name in marks:
            at = first + part * wire_ns
            due += [(at, kind, name), (at + self.setting.manager_ms * MS, f"{kind} seen", name)]
        joined: dict[str, float] = {}
        for at, kind, name in sorted(due):
            self.net.run(round(at))
            getattr(self, f"_{kind.replace(' ', '_')}")(name)
            if kind == "join":
                joined[name] = at
        return joined

    def _join(self, name: str) -> None:
        self.net.absent(self.nodes[name], 1, False)

    def _join_seen(self, name: str) -> None:
        self.group.tree.join(name)
        self.group.overlay.join(name, self.group.tree.way(name))
        self.members.add(name)
        self._lay()

    def _leave(self, name: str) -> None:
        self.net.leave(self.nodes[name], 1)

    def _leave_seen(self, name: str) -> None:
        self.group.tree.leave(name)
        self.group.overlay.leave(name)
        self.members.discard(name)
        self._lay()

    def _lay(self) -> None:
        links = self.fabric.lay(GROUP, self.group.sender, sorted(self.members), self.group.tree.children)
        self.first_link = links[0]
        self.views.tell(self.group.overlay)

    def _until_done(self) -> dict[str, int]:
        """When each had all."""
        names = {node: name for name, node in self.nodes.items()}
        wanted = len(self.stay) + len(self.joiners)
        while True:
            notes = self.net.notes_of("complete")
            done = {names[int(note["host"])]: int(note["at"]) for note in notes}
            lacking = wanted - len({*self.stay, *self.joiners} & done.keys())
            if lacking == 0 or self.net.now_ns >= LONGEST_NS:
                return done
            self.net.run_until_noted("complete", len(notes) + lacking, LONGEST_NS)

    def _stats(self, name: str) -> dict[str, int]:
        return self.net.transfer(self.nodes[name], self.net.receiving(self.nodes[name], 1))


def _at(number: float, names: list[str]) -> float:
    return 0.1 + 0.8 * number / len(names)


def summary(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds, by congestion control and kind of changes; `over_none`: over the same group's without any."""
    found: dict[str, Any] = {}
    rows = list(rows)
    for figure in ("completion", "slowest"):
        of = {(row["seed"], row["control"], row["changes"]): row[figure] for row in rows}
        for (seed, control, changes), value in of.items():
            found.setdefault(figure, {}).setdefault(control, {}).setdefault(changes, []).append(value)
            over = found.setdefault(f"{figure}_over_none", {}).setdefault(control, {}).setdefault(changes, [])
            over.append(value / of[seed, control, "none"])
    return {
        figure: {control: {changes: fmean(values) for changes, values in row.items()} for control, row in part.items()}
        for figure, part in found.items()
    }


def table(figures: dict[str, Any]) -> Table:
    shown = Table("until all is there", *CHANGES)
    for figure in ("completion", "completion_over_none", "slowest", "slowest_over_none"):
        for control, row in figures[figure].items():
            shown.add_row(f"{figure.replace('_', ' ')}, {control}", *(f"{row[name]:.3f}" for name in CHANGES))
    return shown
