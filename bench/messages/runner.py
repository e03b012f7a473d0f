"""Runs the plan by turns; one run is one tool in one case. Inside the private namespaces of a bench."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rostrum.bench.account import Groups, machine_busy_s
from rostrum.bench.fabric import Fabric
from rostrum.bench.messages.cases import MessageCase
from rostrum.bench.messages.tools import MessageTool
from rostrum.bench.run import Program, Run, ToolFailed, ended

PLACE = Path("/run/rostrum-bench")
FINAL_MESSAGE_S = 5.0
LOOK_S = 0.01
Record = dict[str, Any]


def turns(cases: list[MessageCase], tools: list[str], repeat: int, seed: int) -> Iterator[tuple[MessageCase, str, int]]:
    """Case by case, round by round, all tools once in a new order: slow changes of the machine meet all."""
    draw = random.Random(seed)
    for case in cases:
        for number in range(repeat):
            order = list(tools)
            draw.shuffle(order)
            for tool in order:
                yield case, tool, number


class MessageRunner:
    """`folder`: for logs. `programs`: what was built from `native`. `missing`: why tools are not on this machine."""

    def __init__(self, folder: Path, programs: Path, tools: dict[str, MessageTool], missing: dict[str, str]) -> None:
        self.folder, self.programs, self.tools, self.missing = folder, programs, tools, missing
        self.groups = Groups(PLACE / "cgroup")
        self.fabric = Fabric(folder, PLACE / "disk", folder / "cache")

    def close(self) -> None:
        self.fabric.stop_manager()
        self.groups.close()

    def run(self, case: MessageCase, name: str, number: int) -> Record:
        """One run; its record, whatever became of it."""
        record: Record = {"case": {**asdict(case), "name": case.name}, "tool": name, "round": number}
        if why := self.missing.get(name, ""):
            return {**record, "outcome": "missing", "text": why}
        self.fabric.configure(case.network)
        logs = self.folder / "logs" / case.name / f"{name}-{number}"
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir(parents=True)
        sides = {side: self.groups.side(side) for side in ("sender", "receivers")}
        run = Run(case.network, number, self.fabric, self.programs, logs, logs, sides, number)
        try:
            return {**record, **self._measure(self.tools[name], run, case)}
        except ToolFailed as error:
            return {**record, "outcome": "failed", "text": str(error)}
        finally:
            run.stop()
            for side in sides.values():
                side.remove()

    def _measure(self, tool: MessageTool, run: Run, case: MessageCase) -> Record:
        go = run.logs / "go"
        tool.prepare(run, case)
        receivers = []
        for place, host in enumerate(run.receivers):
            receivers.append(run.start("receivers", host, tool.receiver(run, case, host, place)))
        if tool.name != "jgroups":  # whose members wait for each other
            run.ready(receivers, "^ready")
        sender = run.start("sender", run.sender, tool.sender(run, case, go))
        run.ready([*receivers, sender], "^ready")
        before, busy = {side: group.cpu_s() for side, group in run.sides.items()}, machine_busy_s()
        go.touch()
        deadline = time.monotonic() + case.bound_s
        while time.monotonic() < deadline and not all(_told(one) for one in receivers):
            if any(one.process.poll() is not None for one in (*receivers, sender)):
                break
            time.sleep(LOOK_S)
        cost = {f"{side}_s": group.cpu_s() - before[side] for side, group in run.sides.items()}
        books = [_final_counts(one) for one in receivers]
        whole = all(book.get("received") == case.count for book in books)
        return {
            "outcome": "ok" if whole else "incomplete",
            "load": round(os.getloadavg()[0], 2),
            **cost,
            "machine_s": machine_busy_s() - busy,
            "sender": _told(sender),
            "receivers": books,
            **figures(case, books),
            "commands": {} if run.round else {one.host.name: one.argv for one in (receivers[0], sender)},
        }


def figures(case: MessageCase, books: list[Record]) -> Record:
    """Of the slowest receiver: messages a second, delays in ms; of the unluckiest, the share it received."""
    there = [book for book in books if book.get("received")]
    if len(there) < len(books):
        return {"received_share": 0.0}
    took_s = (max(book["last_ns"] for book in there) - min(book["first_ns"] for book in there)) / 1e9
    least = min(book["received"] for book in there)
    return {
        "received_share": least / case.count,
        "messages_per_s": least / max(took_s, 1e-9),
        **{f"{share}_ms": max(book[f"{share}_us"] for book in there) / 1e3 for share in ("p50", "p90", "p99", "max")},
    }


def _told(program: Program) -> Record:
    """The line of JSON that a program has written; {} if none."""
    for line in reversed(program.text().splitlines()):
        if line.startswith("{") and line.endswith("}"):
            found: Record = json.loads(line)
            return found
    return {}


def _final_counts(program: Program) -> Record:
    """What a receiver has; it is told to end if it has not said so."""
    if not _told(program) and program.process.poll() is None:
        program.process.send_signal(signal.SIGTERM)
        ended(program.process, time.monotonic() + FINAL_MESSAGE_S)
    return _told(program)


def run_all(
    runner: MessageRunner,
    plan: list[tuple[MessageCase, str, int]],
    write: Callable[[list[Record]], None],
    say: Callable[[str], None],
) -> None:
    records: list[Record] = []
    for place, (case, tool, number) in enumerate(plan, 1):
        record = runner.run(case, tool, number)
        records.append(record)
        write(records)
        say(f"{place}/{len(plan)} {case.name} {tool}: {text_of(record)}")


def text_of(record: Record) -> str:
    if record["outcome"] in ("missing", "failed"):
        return f"{record['outcome']}: {record['text']}"
    if "messages_per_s" not in record:
        return "a receiver got nothing"
    share = "" if record["outcome"] == "ok" else f", only {record['received_share']:.1%} received"
    delays = f"p50 {record['p50_ms']:.2f} ms, p99 {record['p99_ms']:.2f} ms"
    return f"{record['messages_per_s']:,.0f} messages/s, {delays}{share}"
