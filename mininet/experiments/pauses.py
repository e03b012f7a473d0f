"""Pauses: each program of a lab is stopped for a while and continued, at several phases of a transfer."""

from __future__ import annotations

import itertools
import random
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rostrum.client import Agent, NotFound, RostrumError, SendHandle, SendResult
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.ocs import witness
from rostrum.lab.results import save
from rostrum.topologies import TopologyError

OUT = Console(highlight=False, soft_wrap=True)
PROGRAMS = {"sender": "h1", "receiver": "h5", "manager": "manager", "ocs": "ocs"}
PHASES = ("requested", "attempt", "high-rate", "patching")
FAR = ("h3", "h5", "h7")
UPLINK = 1  # the OCS's port at the sender's rack
RIVAL = "h2"  # of the sender's rack: it wants the same uplink, to the same racks
SIZE = 40_000_000
SILENCE_S = 5.0  # the agents' bound on a receiver's silence
RESULT_S = 90.0
QUIET_S = 60.0
OPTIONS = ("--circuit-wait", "1s", "--wait", "90s", "--quarantine", "1s")
QUICK = {
    "emulation.reconfiguration.mean_ms": 20,
    "emulation.ringing.duration_ms": 2,
    "ocs.ocs.reconfiguration_ms": 20,
}
_numbers = itertools.count(7000)
Spans = list[tuple[int, int]]


@click.command()
@click.option("--seconds", type=click.FloatRange(0.1, 600), multiple=True, default=(1.0, 4.0), show_default=True,
              help="How long a program is stopped (repeatable).")  # fmt: skip
@click.option("--program", "programs", type=click.Choice(list(PROGRAMS)), multiple=True, default=tuple(PROGRAMS),
              help="Which ones (repeatable). [all]")  # fmt: skip
@click.option("--phase", "phases", type=click.Choice(PHASES), multiple=True, default=PHASES,
              help="Of the transfer, when a program is stopped (repeatable). [all]")  # fmt: skip
@click.option("--protocol", type=click.Choice(["auto", "republic", "rdcm"]), default="auto", show_default=True,
              help="Of the transfers.")  # fmt: skip
@click.option("--seed", default=1, show_default=True, help="Of the data.")
@click.option("--name", default="pauses", show_default=True, help="Of the lab.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), default="build/pauses.json",
              show_default=True, help="Where the outcome goes.")  # fmt: skip
def command(
    seconds: tuple[float, ...], programs: tuple[str, ...], phases: tuple[str, ...], protocol: str, seed: int,
    name: str, json_file: Path,
) -> None:  # fmt: skip
    """Stop programs with SIGSTOP in the middle of a transfer, continue them, and see that nothing fails.

    A second server of the same rack asks for the same optics meanwhile. Only a receiver that is stopped for longer
    than its bound may fail. No two senders hold one circuit at a time. Afterwards no path is left, and the OCS has
    what the manager says. The exit status is 0 only if all of this holds.

    \b
      rostrum lab run pauses --seconds 10 --seconds 60
      rostrum lab run pauses --program manager --phase attempt --seconds 4
    """
    try:
        with Lab.start("hybrid-4x2", name=name, or_another=True, seed=seed, changes=QUICK, manager_options=OPTIONS,
                       progress=lambda _: None) as lab:  # fmt: skip
            rows = [
                trial(lab, program, phase, length, seed, protocol)
                for length in seconds for program in programs for phase in phases
            ]  # fmt: skip
    except (LabError, RostrumError, TopologyError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    parameters = {"seconds": list(seconds), "programs": list(programs), "phases": list(phases),
                  "protocol": protocol}  # fmt: skip
    json_file.parent.mkdir(parents=True, exist_ok=True)
    report = {"experiment": "pauses", "manifest": manifest(seed, parameters), "trials": rows}
    save(report, json_file)
    wrong = sum(bool(row["wrong"]) for row in rows)
    OUT.print(f"{len(rows)} pauses, {wrong} with something wrong; numbers in {json_file}")
    if wrong:
        raise SystemExit(1)


def trial(
    lab: Lab, program: str, phase: str, seconds: float, seed: int, protocol: str = "auto"
) -> dict[str, Any]:  # fmt: skip
    """One pause; `wrong` says what should not be. Raises LabError, RostrumError."""
    row: dict[str, Any] = {"program": program, "phase": phase, "seconds": seconds, "wrong": []}
    log = OcsLog(lab)
    data = random.Random(seed).randbytes(SIZE)
    first, second = next(_numbers), next(_numbers)
    with Agent(lab.agent_socket("h1")) as sender, Agent(lab.agent_socket(RIVAL)) as rival:
        sender.add(first, data)
        rival.add(second, data)
        began = time.monotonic()
        handle = sender.send(first, FAR, wait=RESULT_S, protocol=protocol)
        if phase != "requested":
            until_phase(handle, phase)
        paused = _Pause(lab, PROGRAMS[program], seconds)
        waiting = rival.send(second, FAR, wait=RESULT_S, protocol=protocol)
        results = [one.wait(RESULT_S) for one in (handle, waiting)]
        paused.join()
        away_s = max(seconds, paused.length_s)
        for what, number, result in zip(("the transfer", "the rival's"), (first, second), results, strict=True):
            row["wrong"] += _outcome(what, result, program, away_s)
            row["wrong"] += _content(lab, number, data, program, away_s)
        sends = [_on_circuit(result) for result in results]
        row["took_s"] = round(time.monotonic() - began, 2)
    if program == "sender":
        sends[0] = [span for one in sends[0] for span in _without(one, paused.stopped)]
    row["wrong"] += quiet(lab) + log.wrong(sends)
    for name, number in itertools.product(("h1", RIVAL, *FAR), (first, second)):
        _delete(lab, name, number)
    OUT.print(f"{program:9} stopped for {seconds:g} s at {phase:10} {row['took_s']:6.2f} s  "
              + ("; ".join(row["wrong"]) or "all well"))  # fmt: skip
    return row


def until_phase(handle: SendHandle, phase: str) -> None:
    for event in handle.events(timeout=RESULT_S):
        if event.kind == "phase" and event.subject in (phase, "done"):
            return


class _Pause(threading.Thread):
    """Stops a program when it is made, and continues it. `length_s`: how long it stood still, on this machine;
    `stopped`: from when to when it surely did, on the wall clock (ns).
    """

    def __init__(self, lab: Lab, program: str, seconds: float) -> None:
        super().__init__(daemon=True)
        self.length_s = 0.0
        self._lab, self._program, self._seconds = lab, program, seconds
        self._began = time.monotonic()
        lab.signal(program, signal.SIGSTOP)
        self.stopped = (time.time_ns(), time.time_ns())
        self.start()

    def run(self) -> None:
        time.sleep(self._seconds)
        self.stopped = (self.stopped[0], time.time_ns())
        self._lab.signal(self._program, signal.SIGCONT)
        self.length_s = time.monotonic() - self._began


def _may_fail(program: str, seconds: float) -> set[str]:
    """A receiver that is away for about its bound, or longer. Margin: it was silent a little before it was stopped."""
    return {PROGRAMS["receiver"]} if program == "receiver" and seconds > SILENCE_S - 0.5 else set()


def _outcome(what: str, result: SendResult, program: str, seconds: float) -> list[str]:
    failed = {row.name: row.cause for row in result.receivers if row.state != "done"}
    bad = {name: cause for name, cause in failed.items() if name not in _may_fail(program, seconds)}
    return [f"{what} failed at {name}: {cause}" for name, cause in bad.items()]


def _content(lab: Lab, number: int, data: bytes, program: str, seconds: float) -> list[str]:
    wrong = []
    for name in sorted(set(FAR) - _may_fail(program, seconds)):
        with Agent(lab.agent_socket(name)) as agent, agent.read(number, wait=10) as copy:
            if copy.bytes() != data:
                wrong.append(f"{name} has other bytes")
    return wrong


def _delete(lab: Lab, name: str, number: int) -> None:
    with Agent(lab.agent_socket(name)) as agent:
        try:
            agent.delete(number)
        except NotFound:
            return


def quiet(lab: Lab) -> list[str]:
    """Waits until nothing is held any more and the OCS has what the manager says; what is left, as text."""
    deadline = time.monotonic() + QUIET_S
    left: list[str] = ["the manager did not answer"]
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        try:
            left = _left(lab)
        except LabError as error:
            left = [str(error)]
    return left


def _left(lab: Lab) -> list[str]:
    states = ("queued", "configuring", "active")
    left = [f"{one['id']} is {state}" for state in states for one in lab.rest.get(f"/v1/paths?state={state}")["paths"]]
    told = {(row["input"], row["output"]) for row in lab.rest.get("/v1/circuits")["cross_connects"]}
    there = _crossed(lab)
    left += [f"cross-connect {a}>{b}: the manager says one thing, the OCS another" for a, b in told ^ there]
    left += [
        f"{row['server']} is {'silent' if row['connected'] else 'not connected'}"
        for row in lab.rest.get("/v1/agents")["agents"] if not row["connected"]
    ]  # fmt: skip
    return left


def _on_circuit(result: SendResult) -> Spans:
    """When it sent by a circuit, by its agent's account."""
    if result.path != "circuit" or result.sessions != 1 or not result.attempt_ns:
        return []
    return [(result.attempt_ns, result.data_done_ns or result.done_ns)]


def _without(span: tuple[int, int], out: tuple[int, int]) -> Spans:
    return [one for one in ((span[0], min(span[1], out[0])), (max(span[0], out[1]), span[1])) if one[0] < one[1]]


class OcsLog:
    """The emulated OCS's command log since this was made: what the manager ordered, whatever it says of itself."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._since = lab.ask_ocs("ocs", {"op": "log"})["now_ns"]
        self._before = _crossed(lab)

    def wrong(self, sends: Sequence[Spans]) -> list[str]:
        """Fibres ordered for two, and what two senders of the one rack with `UPLINK` did on it at a time, or was taken
        from one of them. `sends`: when each of them sent there (wall clock, ns); not while it was stopped.
        """
        log = self._lab.ask_ocs("ocs", {"op": "log"})["commands"]
        rows = [row for row in log if row["at_ns"] >= self._since]
        found = witness.wrong_orders(rows, self._before)
        if witness.crossed(rows, self._before) != _crossed(self._lab):
            found.append("the OCS's log does not explain its cross-connects")
        offset = time.time_ns() - time.monotonic_ns()
        taken = [row["at_ns"] + offset for row in rows if UPLINK in [pair[0] for pair in row["removed"]]]
        for begin, end in itertools.chain(*sends):
            found += ["the OCS was told to take down a circuit in use" for at in taken if begin < at < end]
        for one, other in itertools.combinations(sends, 2):
            if any(a[0] < b[1] and b[0] < a[1] for a in one for b in other):
                found.append("two senders of one rack sent by its uplink to the OCS at a time")
        return found


def _crossed(lab: Lab) -> witness.Crossed:
    return frozenset((row["input"], row["output"]) for row in lab.ocs_state()["cross_connects"])
