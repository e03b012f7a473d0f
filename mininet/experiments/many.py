"""Many receivers: how much longer an object takes to 48 servers than to 6, and what is whole when some of them, those
who collect the others' reports and links go meanwhile.
"""

from __future__ import annotations

import random
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rostrum.client import Agent, NotFound, RostrumError, SendHandle, SendResult
from rostrum.lab import links
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.results import save
from rostrum.topologies import TopologyError
from rostrum.topologies.fabrics import Options, fabric
from rostrum.topologies.families import vl2
from rostrum.topologies.loader import rate_bps
from rostrum.topologies.units import Size

OUT = Console(highlight=False, soft_wrap=True)
RACKS = 6
RESULT_S = 240.0
PAUSE_S = 1.5  # of who is stopped, or behind a cut link, and goes on
DIRECT = 32  # more receivers report by the tree: the agents' default


@dataclass
class Scene:
    """What happens while the object is sent. `lost`: who cannot have it in the end."""

    name: str
    lost: tuple[str, ...]
    happens: Callable[[], object]
    ends: Callable[[], object] | None = None


@dataclass
class Trial:
    receivers: int
    killed: bool
    seconds: float
    over_ideal: float
    opening_s: float  # until high rate
    sending_s: float  # from then until all data packets were sent
    ending_s: float  # from then until all were whole
    reports: int  # that the sender read
    patched: int
    by_tree: bool
    wrong: list[str] = field(default_factory=list)


@click.command()
@click.option("--receivers", "-n", default=48, show_default=True, type=click.IntRange(6, 200), help="Of the many.")
@click.option("--few", default=6, show_default=True, type=click.IntRange(1, 32), help="Of the few.")
@click.option("--rate", default="20M", show_default=True,
              help="Of servers' links; low, so that this machine is not the limit.")  # fmt: skip
@click.option("--size", type=Size(least=100_000), default="10M", show_default=True, help="Of the object.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1, 100), help="Of each number, in turn.")
@click.option("--kill/--no-kill", default=True, show_default=True,
              help="One more transfer to the many, while some go.")  # fmt: skip
@click.option("--direct-receivers", "direct", default=DIRECT, show_default=True, type=click.IntRange(1, 10_000),
              help="Of agents: more receivers report by a tree.")  # fmt: skip
@click.option("--carry/--no-carry", default=True, show_default=True,
              help="Of agents: some receivers carry control messages for the others.")  # fmt: skip
@click.option("--loss", default="", help="Of agents, for example uniform:0.001.")
@click.option("--seed", default=1, show_default=True, help="Of the data, and of what is lost.")
@click.option("--name", default="many", show_default=True, help="Of the lab.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), default="build/many.json",
              show_default=True, help="Where the outcome goes.")  # fmt: skip
def command(
    receivers: int, few: int, rate: str, size: int, repeats: int, kill: bool, direct: int, carry: bool, loss: str,
    seed: int, name: str, json_file: Path,
) -> None:  # fmt: skip
    """Send an object to many servers and to a few: what do more receivers cost?

    Starts a lab of six racks of its own. With --kill (the default) one more transfer goes to the many while a server
    that collects reports is killed, another one is stopped and continued, a plain receiver is killed, one's link is cut
    for good and another rack's for a moment. The exit status is 0 only if all that live are whole.

    \b
      rostrum lab run many --receivers 48 --json many.json
      rostrum lab run many --receivers 12 --few 3 --direct-receivers 4 --repeats 1
    """
    if few >= receivers:
        raise click.UsageError(f"--few {few} is not fewer than --receivers {receivers}")
    parameters = {"receivers": receivers, "few": few, "rate": rate, "size": size, "repeats": repeats,
                  "kill": kill, "direct_receivers": direct, "carry": carry, "loss": loss}  # fmt: skip
    try:
        trials = run(receivers, few, rate_bps(rate), size, repeats, kill, direct, carry, loss, seed, name)
    except (LabError, RostrumError, TopologyError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    summary = summarize(trials, receivers, few)
    rows = [vars(one) for one in trials]
    save({"experiment": "many", "summary": summary, "manifest": manifest(seed, parameters), "trials": rows}, json_file)
    wrong = [text for one in trials for text in one.wrong]
    OUT.print(f"{receivers} receivers take {summary['ratio']:.3f} times as long as {few}; numbers in {json_file}")
    if wrong:
        raise click.ClickException("; ".join(wrong))


def summarize(trials: list[Trial], receivers: int, few: int) -> dict[str, Any]:
    """Medians of time over the ideal, and their ratio."""
    over = {
        count: statistics.median(one.over_ideal for one in trials if one.receivers == count and not one.killed)
        for count in (receivers, few)
    }
    return {
        "ratio": round(over[receivers] / over[few], 4),
        "many_over_ideal": round(over[receivers], 4),
        "few_over_ideal": round(over[few], 4),
        "living_complete": not any(one.wrong for one in trials),
    }


def run(
    receivers: int, few: int, rate: int, size: int, repeats: int, kill: bool, direct: int, carry: bool, loss: str,
    seed: int, name: str,
) -> list[Trial]:  # fmt: skip
    """All trials, in a lab of its own. Raises LabError, RostrumError."""
    data = random.Random(seed).randbytes(size)
    agents = ("--direct-receivers", str(direct), *(("--loss", loss) if loss else ()),
              "--carry", "true" if carry else "false")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "many.yaml"
        file.write_text(fabric(vl2(4, RACKS, -(-(receivers + 1) // RACKS), rate), Options(name="many")))
        room = str(4 * size + (16 << 20))
        OUT.print(f"starting a lab of {receivers + 1} agents")
        with Lab.start(file, name=name, or_another=True, seed=seed, quota=room, reserve="1M", bound_s=120.0,
                       agent_options=agents) as lab:  # fmt: skip
            servers = _by_rack(lab)
            sender, others = servers[0][0], [one for rack in servers for one in rack][1:]
            spread = [rack[at] for at in range(1, len(servers[0])) for rack in servers]
            trials = []
            for turn in range(repeats):
                for count, chosen in ((few, spread[:few]), (receivers, others[:receivers])):
                    trials.append(trial(lab, sender, chosen, data, rate, direct, 2 * turn + (count == receivers)))
            if kill:
                scenes = scenes_of(lab, servers)
                trials.append(trial(lab, sender, others[:receivers], data, rate, direct, 2 * repeats, scenes))
        return trials


def _by_rack(lab: Lab) -> list[list[str]]:
    racks: dict[str, list[str]] = {}
    for one in sorted(lab.topology.servers.values(), key=lambda server: server.address):
        racks.setdefault(one.tor, []).append(one.name)
    return list(racks.values())


def scenes_of(lab: Lab, racks: list[list[str]]) -> list[Scene]:
    """The first of a rack collects its reports (docs/feedback.md)."""

    def tor(server: str) -> str:
        return lab.topology.servers[server].tor

    killed, stopped, receiver, cut, away = racks[1][0], racks[2][0], racks[3][1], racks[4][0], racks[5][0]
    return [
        Scene(f"{killed}, which collects reports, is killed", (killed,), lambda: lab.kill(killed)),
        Scene(f"{stopped}, which collects reports, is stopped", (), lambda: lab.signal(stopped, signal.SIGSTOP),
              lambda: lab.signal(stopped, signal.SIGCONT)),
        Scene(f"{receiver}, a receiver, is killed", (receiver,), lambda: lab.kill(receiver)),
        Scene(f"the link of {cut}, which collects reports, is cut", (cut,), lambda: links.cut(lab, cut, tor(cut))),
        Scene(f"the link of {away}, which collects reports, is cut for a moment", (),
              lambda: links.cut(lab, away, tor(away)), lambda: links.up(lab, away, tor(away))),
    ]  # fmt: skip


def trial(
    lab: Lab, sender: str, receivers: list[str], data: bytes, rate: int, direct: int, number: int,
    scenes: list[Scene] | None = None,
) -> Trial:  # fmt: skip
    """One transfer; `wrong` says what should not be. Raises LabError, RostrumError."""
    ideal_s = len(data) * 8 / rate
    with Agent(lab.agent_socket(sender)) as agent:
        agent.add(number, data)
        handle = agent.send(number, receivers, protocol="republic", wait=RESULT_S)
        if scenes:
            _happen(handle, scenes, ideal_s)
        result = handle.wait(RESULT_S)
        agent.delete(number)
    lost = {name for one in scenes or () for name in one.lost}
    seconds = (result.done_ns - result.requested_ns) / 1e9
    steps = (result.requested_ns, result.high_rate_ns, result.data_done_ns, result.done_ns)
    opening, sending, ending = (round((b - a) / 1e9, 3) for a, b in pairwise(steps))
    done = Trial(len(receivers), bool(scenes), round(seconds, 3), round(seconds / ideal_s, 4), opening, sending, ending,
                 result.acks_received, result.packets_patched, len(receivers) > direct)  # fmt: skip
    done.wrong = _wrong(lab, result, number, data, lost)
    what = "by the tree" if done.by_tree else "directly"
    OUT.print(f"{len(receivers):4} receivers, reports {what}: {seconds:6.2f} s, {done.over_ideal:.3f} of the ideal"
              + ("; some went meanwhile" if scenes else "") + "".join(f"; {text}" for text in done.wrong))  # fmt: skip
    return done


def _happen(handle: SendHandle, scenes: list[Scene], ideal_s: float) -> None:
    """One after the other, over the first two thirds of the transfer; what ends does so in time for all to be whole."""
    for event in handle.events(timeout=RESULT_S):
        if event.kind == "phase" and event.subject in ("high-rate", "done"):
            break
    ending = []
    for scene in scenes:
        OUT.print(f"     {scene.name}")
        scene.happens()
        if scene.ends:
            ending.append(threading.Timer(PAUSE_S, scene.ends))
            ending[-1].start()
        time.sleep(ideal_s / 8)
    for one in ending:
        one.join()


def _wrong(lab: Lab, result: SendResult, number: int, data: bytes, lost: set[str]) -> list[str]:
    wrong = [f"{one.name}: {one.cause}" for one in result.receivers if one.state != "done" and one.name not in lost]
    for one in result.receivers:
        if one.name in lost or one.state != "done":
            continue
        with Agent(lab.agent_socket(one.name)) as agent:
            with agent.read(number, wait=10) as copy:
                if copy.bytes() != data:
                    wrong.append(f"{one.name} has other bytes")
            try:
                agent.delete(number)
            except NotFound:
                continue
    return wrong
