"""RDCM, Fig. 15, for real: a link of the tree is cut during a session over a fat-tree, later a receiver is killed."""

from __future__ import annotations

import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rostrum.client import Agent, RostrumError
from rostrum.lab import links
from rostrum.lab.experiments import rdcm_failure_plot
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.results import save
from rostrum.topologies import TopologyError
from rostrum.topologies.fabrics import Options, fabric
from rostrum.topologies.families import fat_tree
from rostrum.topologies.loader import rate_bps
from rostrum.topologies.units import Size, size_text

OUT = Console(highlight=False, soft_wrap=True)
SENDER = "h0-0-0"
RECEIVERS = ("h0-1-0", "h1-0-0", "h1-0-1", "h1-1-0", "h2-0-0", "h2-1-0", "h3-0-0", "h3-1-1")
KILLED = "h1-1-0"
SAMPLE_S = 0.1
START_BOUND_S, END_BOUND_S = 20.0, 180.0
AFTER_S = 1.0  # speeds before and after an event are of this long
NUMBER = 1


@dataclass
class Watched:
    """Bytes that each server had sent or received, sampled: server -> [(s since the start, bytes)]."""

    samples: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)

    def follow(self, lab: Lab, server: str, began: float) -> None:
        """Until told to stop, or the agent is gone."""
        rows = self.samples.setdefault(server, [])
        try:
            with Agent(lab.agent_socket(server)) as agent:
                while not self.stop.wait(SAMPLE_S):
                    found = [one for one in agent.status().transfers if one.data_id == NUMBER]
                    if found:
                        rows.append((time.monotonic() - began, found[0].bytes))
        except (RostrumError, OSError):
            return

    def at(self, server: str, when: float) -> float:
        """Bytes at a time, between samples."""
        rows = self.samples.get(server, [])
        before = next((row for row in reversed(rows) if row[0] <= when), (0.0, 0))
        after = next((row for row in rows if row[0] > when), before)
        if after[0] == before[0]:
            return float(before[1])
        return before[1] + (after[1] - before[1]) * (when - before[0]) / (after[0] - before[0])

    def mbps(self, server: str, begin: float, end: float) -> float:
        return (self.at(server, end) - self.at(server, begin)) * 8e-6 / (end - begin)


@dataclass
class Event:
    """What was done at `at_s`, and what came of it. Speeds in Mbit/s, of the second before and the second after."""

    what: str
    at_s: float
    detected_ms: float | None  # until the manager acted on the first report
    tree_ms: float | None  # from then until all switches had the new tree
    sender_before: float = 0.0
    sender_after: float = 0.0
    alive_least_after: float = 0.0  # of receivers that have nothing to do with it
    affected_after: float | None = None  # of those that are fed by the overlay
    fed_bytes: float | None = None  # that they got from the event to the new tree


@click.command()
@click.option("--rate", default="50M", show_default=True, help="Of every server's link.")
@click.option("--size", type=Size(least=1 << 20), default="64M", show_default=True, help="Of the object.")
@click.option("--cut", "how", type=click.Choice(["multicast", "all", "port"]), default="multicast", show_default=True,
              help="What the link loses: a switch without its groups, a dead transceiver, or one whose ports go down, "
                   "which switches tell the manager.")  # fmt: skip
@click.option("--seed", default=1, show_default=True, help="Of the agents' random choices.")
@click.option("--name", default="rdcm-failure", show_default=True, help="Of the lab.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), default="build/rdcm-failure.json",
              show_default=True, help="Where the numbers go.")  # fmt: skip
@click.option("--png", "png_file", type=click.Path(dir_okay=False, path_type=Path), default="build/rdcm-failure.png",
              show_default=True, help="Where the picture goes.")  # fmt: skip
def command(json_file: Path, png_file: Path, **given: Any) -> None:
    """Cut a link of the tree, then kill a receiver, during an RDCM session over a fat-tree (figure 15).

    One sender, eight receivers in four pods of fat-tree(4). The agents and the manager find out by themselves; shown is
    how long that takes, and what everybody's speed is meanwhile.
    """
    try:
        report = run(**given)
    except (LabError, RostrumError, TopologyError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    save(report, json_file)
    png_file.parent.mkdir(parents=True, exist_ok=True)
    rdcm_failure_plot.draw(png_file, report)
    show(report)
    OUT.print(f"numbers in {json_file}, picture in {png_file}")


def run(rate: str, size: int, how: str, seed: int, name: str) -> dict[str, Any]:
    """The report of one session. Raises LabError, RostrumError, ValueError."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fabric.yaml"
        file.write_text(fabric(fat_tree(4, rate_bps(rate)), Options(name="fat-tree")))
        reserve = size_text(size).replace(" ", "").replace("iB", "")
        core_links = "veth" if how == "port" else "patch"  # ports that can go down
        with Lab.start(
            file, name=name, or_another=True, seed=seed, reserve=reserve, quota="1G", core_links=core_links
        ) as lab:
            report = _session(lab, size, how)
    parameters = {"rate": rate, "size": size, "cut": how}
    return {"experiment": "rdcm-failure", "manifest": manifest(seed, parameters), **report}


def _session(lab: Lab, size: int, how: str) -> dict[str, Any]:
    watched, began = Watched(), time.monotonic()
    threads = [
        threading.Thread(target=watched.follow, args=(lab, server, began), daemon=True)
        for server in (SENDER, *RECEIVERS)
    ]
    try:
        with Agent(lab.agent_socket(SENDER)) as agent:
            agent.add(NUMBER, bytes(size))
            sending = agent.send(NUMBER, RECEIVERS, protocol="rdcm")
            for thread in threads:
                thread.start()
            _reach(watched, size * 0.3)
            path = lab.rest.get("/v1/paths")["paths"][0]["id"]
            tree = _overlay(lab, path)["tree"]
            link = next(one for one in tree if one[1].startswith("agg2"))
            cut_off = _below(tree, link[1])
            done = [(f"link {'-'.join(link)} cut ({how})", *_now(began))]
            if how == "port":
                links.down(lab, link[0], link[1])
            else:
                links.cut(lab, link[0], link[1], only_multicast=how == "multicast")
            _reach(watched, size * 0.6)
            done.append((f"{KILLED} killed", *_now(began)))
            lab.kill(KILLED)
            result = sending.wait(END_BOUND_S)
    finally:
        watched.stop.set()
        for thread in threads:
            if thread.ident:
                thread.join(5.0)
    changes = _overlay(lab, path)["changes"]
    failed = [sorted(one["link"]) for one in lab.rest.get("/v1/failed-links")["failed_links"]]
    events = [_event(watched, changes, cut_off, *one) for one in done]
    ends = {row.name: row.state for row in result.receivers}
    alive = [name for name in RECEIVERS if name != KILLED]
    summary = {
        "alive_done": sum(ends[name] == "done" for name in alive),
        "alive": len(alive),
        "detected_ms": events[0].detected_ms,
        "tree_ms": events[0].tree_ms,
        "killed_out_ms": events[1].detected_ms,
        "speed_kept": [round(one.alive_least_after / max(one.sender_after, 1e-9), 3) for one in events],
        "tree_changes": sum(one["links_added"] > 0 for one in changes),
        "cut_link_left_alone": sorted(link) in failed,
        "receivers_taken_out": [name for name in RECEIVERS if any(f"{name} failed" in one["cause"] for one in changes)],
    }
    samples = {name: [[round(at, 3), count] for at, count in rows] for name, rows in watched.samples.items()}
    return {
        "summary": summary,
        "events": [asdict(one) for one in events],
        "receivers": ends,
        "cut_off": cut_off,
        "changes": changes,
        "goodput_bps": size * 8e9 / max(result.done_ns - result.accepted_ns, 1),
        "samples": samples,
    }


def _below(tree: list[list[str]], node: str) -> list[str]:
    """The receivers that a node of the tree leads to."""
    if node in RECEIVERS:
        return [node]
    return [name for a, b in tree if a == node for name in _below(tree, b)]


def _reach(watched: Watched, sent: float) -> None:
    """Waits until the sender has sent so much."""
    deadline = time.monotonic() + END_BOUND_S
    while not (rows := watched.samples.get(SENDER)) or rows[-1][1] < sent:
        if time.monotonic() > deadline or (not rows and time.monotonic() > deadline - END_BOUND_S + START_BOUND_S):
            raise LabError(f"the session stands still: {rows[-1][1] if rows else 0} bytes sent")
        time.sleep(0.02)


def _now(began: float) -> tuple[float, int]:
    return time.monotonic() - began, time.time_ns()


def _overlay(lab: Lab, path: str) -> dict[str, Any]:
    return dict(lab.rest.get(f"/v1/paths/{path}/overlay"))


def _event(
    watched: Watched, changes: list[dict[str, Any]], cut_off: list[str], what: str, at_s: float, at_ns: int
) -> Event:
    killed = what.startswith(KILLED)
    mine = [
        one
        for one in changes
        if one["at_ns"] > at_ns
        and (KILLED in one["cause"] and "failed" in one["cause"] if killed else one["links_added"])
    ]
    first = mine[0] if mine else None
    detected_ms = (first["at_ns"] - at_ns) / 1e6 if first else None
    tree_ms = first["rules_ms"] if first else None
    event = Event(what, at_s, detected_ms, tree_ms)
    event.sender_before = watched.mbps(SENDER, at_s - AFTER_S, at_s)
    event.sender_after = watched.mbps(SENDER, at_s, at_s + AFTER_S)
    others = [name for name in RECEIVERS if name != KILLED and (killed or name not in cut_off)]
    event.alive_least_after = min(watched.mbps(name, at_s, at_s + AFTER_S) for name in others)
    if not killed:
        event.affected_after = min(watched.mbps(name, at_s, at_s + AFTER_S) for name in cut_off)
        if detected_ms is not None:
            until = at_s + (detected_ms + (tree_ms or 0.0)) / 1e3
            event.fed_bytes = min(watched.at(name, until) - watched.at(name, at_s) for name in cut_off)
    return event


def show(report: dict[str, Any]) -> None:
    for one in report["events"]:
        found = "not told" if one["detected_ms"] is None else f"{one['detected_ms']:.0f} ms until the manager acted"
        tree = "" if one["tree_ms"] is None else f", {one['tree_ms']:.0f} ms more until the switches had the new tree"
        OUT.print(f"{one['what']} at {one['at_s']:.1f} s: {found}{tree}")
        OUT.print(
            f"  Mbit/s: sender {one['sender_before']:.1f} before, {one['sender_after']:.1f} after; slowest of "
            f"the others {one['alive_least_after']:.1f}"
            + ("" if one["affected_after"] is None else f"; cut off {one['affected_after']:.1f}, by repairs")
        )
    summary = report["summary"]
    OUT.print(
        f"{summary['alive_done']} of {summary['alive']} living receivers have the object; the tree changed "
        f"{summary['tree_changes']} times; taken out: {', '.join(summary['receivers_taken_out']) or 'nobody'}"
    )
