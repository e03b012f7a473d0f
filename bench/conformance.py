"""`rostrum conformance`: the same topology, group and lost packets through real agents and through the simulator.

Each receiver loses the first copies of the same fragments there and here (core/base/loss_pattern.h), in runs of three;
of group messages (conformance_groups.py) the same packets.
docs/sim.md, "Conformance", says what may differ by how much, and why.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import httpx
from rich.console import Console
from rich.table import Table
from rostrum.bench import conformance_groups as messages
from rostrum.client import Agent, NotFound, RostrumError, SendResult
from rostrum.controller.core.rdcm.overlay import BackupOverlay
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.results import rounded, save
from rostrum.sim import views
from rostrum.sim.fabric import Fabric
from rostrum.sim.network import HostParams, LinkParams, PathParams, RdcmParams, SimError
from rostrum.topologies import TopologyError, load
from rostrum.topologies.places import build_folder, short
from rostrum.topologies.tables import whole

OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False)
TOPOLOGY, SENDER = "fat-tree-4", "h0-0-0"
RECEIVERS = ("h0-0-1", "h0-1-0", "h1-0-0", "h1-1-1", "h2-0-0", "h3-1-0")
LOSS, RUN = 0.01, 3  # share of fragments, in runs of so many
SIZE, QUICK_SIZE = 48_000_000, 12_000_000
OBJECTS = ("republic", "rdcm", "wan")
PROTOCOLS = (*OBJECTS, *messages.PROTOCOLS)
GROUP, FIRST_OBJECT = 7, 1 << 21
BOUND_S = 60.0
METRICS = {
    "lost": ("data_packets_intercepted_total", ""),
    "dropped": ("data_socket_drops_total", ""),
    "patched": ("patches_received_total", ""),
    "received": ("peer_repairs_total", 'kind="received"'),
    "old": ("peer_repairs_total", 'kind="old"'),
    "repairs": ("peer_repairs_total", 'kind="sent"'),
    "acks": ("acks_total", 'direction="sent"'),
}


@dataclass(frozen=True)
class Counts:
    """Of one object: at the sender, and of all receivers together."""

    fragments: int
    fragment_size: int
    data: int  # packets that the sender multicast
    patches: int  # fragments that it sent again to single receivers
    lost: int  # by the pattern
    patched: int  # fragments that receivers got so
    repaired: int  # and from each other, for the first time
    repairs: int  # packets that they sent to each other
    acks: int  # packets that they sent
    dropped: int = 0  # by full sockets of receivers: not part of the pattern
    began: int = 0  # the highest of the receivers' first fragments
    order: tuple[str, ...] = ()  # of what happened: granted, at high rate, data done, whole at the last receiver, ended

    @property
    def again(self) -> int:
        """Data packets beyond one for each fragment."""
        return self.data - self.fragments

    @property
    def acks_each(self) -> float:
        """For each fragment and receiver."""
        return self.acks / self.fragments / len(RECEIVERS)


@dataclass(frozen=True)
class Check:
    """Something that must hold of a run: `low` <= `value` <= `high`."""

    name: str
    run: str  # lab | simulator
    low: float
    value: float
    high: float

    @property
    def ok(self) -> bool:
        return self.low <= self.value <= self.high


def start_lab(name: str, seed: int) -> Lab:
    """A lab whose agents lose by the pattern; repairs are patches, as the simulator's. Raises LabError."""
    options = ("--loss", f"pattern:{LOSS}:{RUN}", "--repairs", "patches")
    return Lab.start(TOPOLOGY, name=name, seed=seed, reserve="64M", quota="512M", agent_options=options)


def in_lab(lab: Lab, protocol: str, size: int, number: int, seed: int) -> Counts:
    """Sends an object of random bytes, which is gone afterwards. Raises LabError if a receiver has other bytes."""
    data = random.Random(seed).randbytes(size)
    before = _counted(lab)
    with Agent(lab.agent_socket(SENDER)) as agent:
        agent.add(number, data)
        result = agent.send(number, RECEIVERS, protocol=protocol).wait(BOUND_S)
    result.raise_for_failure()
    if (result.path, result.protocol) != ("packet", protocol):
        raise LabError(f"it went by {result.protocol} on a path of kind {result.path}: {result.reason}")
    for name in RECEIVERS:
        with Agent(lab.agent_socket(name)) as agent, agent.read(number, wait=BOUND_S) as copy:
            if copy.bytes() != data:
                raise LabError(f"{name} has other bytes")
    more = {key: value - before[key] for key, value in _counted(lab).items()}
    _forget(lab, number)
    return Counts(
        -(-size // result.fragment_size), result.fragment_size, result.packets_sent, result.packets_patched,
        more["lost"], more["patched"], more["received"] - more["old"], more["repairs"], more["acks"],
        more["dropped"], max(row.initial_sn or 0 for row in result.receivers), _order(_times_of(result)),
    )  # fmt: skip


def simulated(protocol: str, size: int, fragment_size: int, seed: int) -> Counts:
    """The same here. Raises SimError."""
    topology = load(TOPOLOGY)
    params = HostParams(fragment_size=fragment_size, patches_only=True, rdcm=RdcmParams.of_agents())
    fabric = Fabric.of_topology(topology, seed, LinkParams(delay_ns=20_000), lambda name: params)
    net, nodes = fabric.network, fabric.nodes
    fabric.tree(GROUP, SENDER, RECEIVERS)
    for name in RECEIVERS:
        net.loss_pattern(nodes[name], name, seed, LOSS, RUN)
    if protocol == "rdcm":
        overlay = BackupOverlay.build(SENDER, {a: list(b) for a, b in fabric.copies(GROUP).items()}, RECEIVERS)
        for name, view in views.of_overlay(overlay, nodes, 1):
            net.view(nodes[name], 1, view)
    net.path(nodes[SENDER], PathParams(GROUP, protocol, rate_bps=fabric.rate(SENDER)))
    number = net.send(nodes[SENDER], 1, size, [nodes[name] for name in RECEIVERS])
    net.run_until_sent(60 * 10**9)
    ended = net.now_ns
    net.run_until_noted("receive_done", len(RECEIVERS), 60 * 10**9)
    stats = net.transfer(nodes[SENDER], number)
    each = [net.transfer(nodes[name], net.receiving(nodes[name], 1)) for name in RECEIVERS]
    whole = [int(note["at"]) for note in net.notes_of("complete")]
    times = {"granted": stats["granted_at"], "at high rate": stats["high_rate_at"], "data done": stats["data_done_at"],
             "whole": max(whole, default=0), "ended": ended}  # fmt: skip

    def total(key: str) -> int:
        return sum(one[key] for one in each)

    return Counts(
        stats["fragments"], fragment_size, stats["packets_sent"], stats["patches_sent"],
        sum(net.losses(nodes[name]) for name in RECEIVERS), total("patches_received"),
        total("peer_repairs_received") - total("peer_repairs_old"), total("peer_repairs_sent"), total("acks_sent"),
        order=_order(times),
    )  # fmt: skip


def checks(protocol: str, real: Counts, model: Counts) -> list[Check]:
    """What must hold of both runs; of counts that the clock decides about, against the other."""
    found = [Check("fragments", "lab", model.fragments, real.fragments, model.fragments)]
    receivers = len(RECEIVERS)
    for name, run in (("lab", real), ("simulator", model)):
        # Nothing is lost that the pattern does not have. What a receiver misses before its first packet cannot be lost
        # in its turn; that is as much as the sender says again at most.
        least = model.lost - 2 * LOSS * run.again * receivers - RUN * 2
        found.append(Check("lost by the pattern", name, least, run.lost, model.lost))
        # Each loss is mended once, by the protocol's own way or by what the sender multicasts again.
        slack = 0.1 * run.lost + run.dropped
        least = run.lost - run.again * receivers - slack
        found.append(Check("mended", name, least, run.patched + run.repaired, run.lost + slack))
        if protocol == "wan":
            # What several miss goes to all again, what few miss to these; again if the clock says that it was lost.
            least = (run.lost - run.repaired) / receivers
            found.append(Check("data packets sent again", name, least, run.again - run.began, 3 * run.lost))
            found.append(Check("patches and peers' repairs", name, 0, run.patches + run.repairs, 0))
        elif protocol == "republic":
            # Once each, and a round up to where the last receiver came in.
            found.append(Check("data packets sent again", name, 0, run.again - run.began, 0.02 * run.fragments))
            found.append(Check("patches", name, run.patched, run.patches, 1.1 * run.patched))
            found.append(Check("peers' packets", name, 0, run.repairs + run.acks, 0))
        else:
            # Peers mend nearly everything: the sender repeats next to nothing, to all or to one.
            found.append(Check("data packets sent again", name, 0, run.again, 0.1 * run.fragments))
            found.append(Check("patches", name, 0, run.patches, 4 * run.fragments / 1349))
            # Repairs that were not needed, of all packets that were due.
            most = run.repaired + 0.1 * run.fragments * receivers
            found.append(Check("repairs", name, run.repaired, run.repairs, most))
    if protocol == "rdcm":
        # A quarter of the window, which follows round trips, those of a lab's processors too; one in so many at least.
        least = 1 / RdcmParams.of_agents().ack_every
        found.append(Check("ACKs a packet", "lab", least, real.acks_each, 3 * model.acks_each))
    found.append(Check("order of events", "lab", 1, float(real.order == model.order), 1))
    return found


def compare(lab: Lab, protocol: str, quick: bool, seed: int, number: int) -> dict[str, Any]:
    """One object, or a group's messages, both ways, and whether they agree: JSON."""
    real: Counts | messages.Counts
    model: Counts | messages.Counts
    if protocol in OBJECTS:
        size = QUICK_SIZE if quick else SIZE
        real = in_lab(lab, protocol, size, number, seed)
        model = simulated(protocol, size, real.fragment_size, seed)
        found = checks(protocol, real, model)
    else:
        count = messages.QUICK_MESSAGES if quick else messages.MESSAGES
        model = messages.simulated(TOPOLOGY, protocol, count, SENDER, RECEIVERS, (LOSS, RUN), seed)
        real = messages.in_lab(lab, protocol, model.published, SENDER, RECEIVERS, lambda name: _scrape(lab, name))
        found = messages.checks(protocol, real, model, len(RECEIVERS), Check)
    return {
        "protocol": protocol, "lab": asdict(real), "simulator": asdict(model),
        "checks": [asdict(one) | {"ok": one.ok} for one in found], "ok": all(one.ok for one in found),
    }  # fmt: skip


@click.command()
@click.option("--quick", is_flag=True, help="A quarter of the bytes and messages: a minute.")
@click.option("--protocol", "protocols", multiple=True, type=click.Choice(PROTOCOLS), help="[all]")
@click.option("--seed", default=1, show_default=True, help="Of the pattern of losses and of the data.")
@click.option("--name", default="conformance", show_default=True, help="Of the lab.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              default=build_folder() / "conformance.json", show_default=True, help="Where the counts go.")  # fmt: skip
def conformance(quick: bool, protocols: Sequence[str], seed: int, name: str, json_file: Path) -> None:
    """Compare real agents with the simulator: same topology, group and lost packets (needs root).

    One server of a fat-tree sends an object to six, by Republic, RDCM and the WAN engine, and messages, plain, by
    Ricochet and by QSM; each receiver loses the same fragments, or packets of messages, in the lab and in virtual time.
    Packets, repairs and the order of events must agree within the bounds that are shown; times are not compared. Ends
    with 1 if something does not.
    """
    try:
        with start_lab(name, seed) as lab:
            rows = [compare(lab, protocol, quick, seed, FIRST_OBJECT + number)
                    for number, protocol in enumerate(protocols or PROTOCOLS)]  # fmt: skip
    except (LabError, RostrumError, SimError, TopologyError) as error:
        raise click.ClickException(str(error)) from error
    ok = all(row["ok"] for row in rows)
    report = {"instrument": "lab and sim", "experiment": "conformance", "summary": {"ok": ok}, "runs": rows,
              "manifest": manifest(seed, {"quick": quick, "loss": LOSS, "run": RUN})}  # fmt: skip
    save(rounded(report), json_file)
    OUT.print(whole(_table(rows)))
    OUT.print(f"{'they agree' if ok else 'they do not agree'}; counts in {short(json_file)}")
    if not ok:
        raise SystemExit(1)


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    shown = Table("protocol", "what", "run", "at least", "is", "at most", "", box=None, pad_edge=False)
    for row in rows:
        for one in row["checks"]:
            cells = [f"{one[key]:.4g}" for key in ("low", "value", "high")]
            shown.add_row(row["protocol"], one["name"], one["run"], *cells, "ok" if one["ok"] else "[red]drift[/red]")
    return shown


def _times_of(result: SendResult) -> dict[str, int]:
    whole = max(row.complete_ns for row in result.receivers)
    return {"granted": result.accepted_ns, "at high rate": result.high_rate_ns, "data done": result.data_done_ns,
            "whole": whole, "ended": result.done_ns}  # fmt: skip


def _order(times: dict[str, int]) -> tuple[str, ...]:
    """What happened, the earliest first. Receivers may be whole while the sender still waits for the last answer: data
    done and whole are one, told in that order.
    """
    merged = dict(times)
    merged["whole"] = max(merged["whole"], merged["data done"])
    return tuple(sorted(merged, key=lambda name: merged[name]))


def _counted(lab: Lab) -> dict[str, int]:
    """What all receivers counted so far, once none has a transfer under way: receivers that are whole repair others."""
    bound = time.monotonic() + BOUND_S
    while True:
        pages = [_scrape(lab, name) for name in RECEIVERS]
        if not any(page["rostrum_agent_transfers_under_way", 'direction="receive"'] for page in pages):
            break
        if time.monotonic() > bound:
            raise LabError(f"receivers still had transfers under way after {BOUND_S:g} s")
        time.sleep(0.05)
    return {key: sum(int(page[f"rostrum_agent_{name}", labels]) for page in pages)
            for key, (name, labels) in METRICS.items()}  # fmt: skip


def _scrape(lab: Lab, server: str) -> dict[tuple[str, str], float]:
    transport = httpx.HTTPTransport(uds=str(lab.run / server / "metrics.sock"))
    with httpx.Client(transport=transport, base_url="http://agent") as http:
        lines = [line for line in http.get("/metrics").text.splitlines() if not line.startswith("#")]
    matches = filter(None, (re.fullmatch(r"([a-z_]+)(?:\{(.*)\})? (\S+)", line) for line in lines))
    return {(one[1], one[2] or ""): float(one[3]) for one in matches}


def _forget(lab: Lab, number: int) -> None:
    for name in (SENDER, *RECEIVERS):
        with Agent(lab.agent_socket(name)) as agent:
            try:
                agent.delete(number)
            except NotFound:
                continue
