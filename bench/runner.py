"""Runs the plan by turns and writes down every run, as it happens. Inside the private namespaces of a bench."""

from __future__ import annotations

import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy
from rostrum.bench.account import Groups, Peak, Softirq, machine_busy_s, must
from rostrum.bench.cases import Case, Entry
from rostrum.bench.fabric import Fabric
from rostrum.bench.memory import Feeding, Pool, rehearse
from rostrum.bench.run import Run, TimedOut, Tool, ToolFailed
from rostrum.lab.namespace import LabError

SPARE = 64 << 20  # for buffers of sockets and programs
FILL_STEP = 64 << 20
Record = dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """One run of the plan."""

    case: Case
    tool: str
    round: int

    @property
    def key(self) -> tuple[str, str, int]:
        return self.case.name, self.tool, self.round


def turns(entries: list[Entry], seed: int) -> Iterator[Turn]:
    """Case by case; in each, round by round, all tools once in a new order: slow changes of the machine meet all."""
    draw = random.Random(seed)
    for entry in entries:
        for number in range(entry.repeat):
            order = list(entry.tools)
            draw.shuffle(order)
            for tool in order:
                yield Turn(entry.case, tool, number)


class Runner:
    """`folder`: for logs. `programs`: what was built from `native`. `missing`: why tools are not on this machine.
    `commit`: which program runs are of; a bench may be gone on with after a change.
    """

    def __init__(
        self,
        folder: Path,
        programs: Path,
        tools: dict[str, Tool],
        missing: dict[str, str],
        seed: int,
        commit: str,
        network: type[Fabric] = Fabric,
    ) -> None:
        self.folder, self.programs, self.tools, self.missing, self.seed = folder, programs, tools, missing, seed
        self.groups = Groups(Path("/run/rostrum-bench/cgroup"))
        self.softirq = Softirq(folder / "cache")
        self.fabric = network(folder, Path("/run/rostrum-bench/disk"), folder / "cache")
        self.pool = Pool()
        self._digests: dict[int, str] = {}
        self._commit = commit

    def close(self) -> None:
        self.fabric.stop_manager()
        self.softirq.close()
        self.groups.close()

    def run(self, turn: Turn) -> Record:
        """One run; its record, whatever became of it. Raises LabError if the bench itself fails."""
        case = {**asdict(turn.case), "name": turn.case.name}
        record: Record = {"case": case, "tool": turn.tool, "round": turn.round, "commit": self._commit}
        tool = self.tools.get(turn.tool)
        why = self.missing.get(turn.tool) or (tool.unfit(turn.case) if tool else "no such tool")
        if why or tool is None:
            return {**record, "outcome": "missing", "text": why}
        fresh = turn.case != self.fabric.case
        self.fabric.configure(turn.case)
        source = self._source(turn.case.size)
        logs = self.folder / "logs" / turn.case.name / f"{turn.tool}-{turn.round}"
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir(parents=True)
        sides = {name: self.groups.side(name) for name in ("sender", "receivers")}
        run = Run(turn.case, turn.round, self.fabric, self.programs, source, logs, sides, self.seed + turn.round)
        for host in self.fabric.hosts[1:]:
            shutil.rmtree(host.folder / "received", ignore_errors=True)
            (host.folder / "received").mkdir()
        try:
            self._ready_memory(turn.case, fresh)
            record.update(self._measure(tool, run))
            if record["outcome"] == "ok":
                record.update(self._check(tool, run))
        finally:
            run.stop()
            for side in sides.values():
                side.remove()
            self._tidy()
            # What the copies took is free now, and backed still.
            self.pool.hold(turn.case.size * turn.case.receivers + SPARE)
        return record

    def _ready_memory(self, case: Case, fresh: bool) -> None:
        if fresh:
            folders = [host.folder for host in self.fabric.receivers(case)]
            with Feeding(self.pool, folders):
                rehearse(folders, case.size)
        self.pool.hold(case.size * case.receivers + SPARE)

    def _measure(self, tool: Tool, run: Run) -> Record:
        """Prepares and sends; outcome, time and costs."""
        record: Record = {"outcome": "ok", "load": round(os.getloadavg()[0], 2)}
        try:
            tool.prepare(run)
            apart = self._cores_ns()
            began = self._costs(run)
            with Peak(run.sides) as peak, Feeding(self.pool, [host.folder for host in run.receivers]):
                start = time.monotonic()
                run.deadline = start + run.case.bound_s
                try:
                    tool.send(run)
                finally:
                    seconds = time.monotonic() - start
                    ended = self._costs(run)
                    tool.finish(run)
            record.update({name: _difference(ended[name], began[name]) for name in began})
            record["cores_ns"] = [apart, self._cores_ns()]
            record["others_s"] = record["machine_s"] - record["sender_s"] - record["receivers_s"]
            record.update(time_s=seconds, goodput_bps=run.case.size * 8 / seconds, resident_mb=peak.mb)
        except TimedOut as error:
            record.update(outcome="timeout", text=str(error))
        except ToolFailed as error:
            record.update(outcome="failed", text=str(error))
        commands = {program.host.name: program.argv for program in run.programs[:2] + run.programs[-1:]}
        return {**record, "facts": run.facts, "commands": commands if not run.round else {}}

    def _cores_ns(self) -> int:
        """What a line of memory takes from the first processor to the second and back just now; 0: there is one."""
        return int(must(str(self.programs / "cores")))

    def _costs(self, run: Run) -> dict[str, float | None]:
        """Counters that only grow."""
        softirq = self.softirq.by_namespace()
        inodes = [host.inode for host in run.receivers]
        passed, dropped = self.fabric.lost_frames()
        return {
            "sender_s": run.sides["sender"].cpu_s(),
            "receivers_s": run.sides["receivers"].cpu_s(),
            "machine_s": machine_busy_s(),
            "sender_softirq_s": None if softirq is None else softirq.get(run.sender.inode, 0.0),
            "receivers_softirq_s": None if softirq is None else sum(softirq.get(inode, 0.0) for inode in inodes),
            "frames_passed": passed,
            "frames_dropped": dropped,
            "sent_bytes": self.fabric.sent_bytes(),
            "socket_overflows": self.fabric.overflows(run.case),
        }

    def _check(self, tool: Tool, run: Run) -> Record:
        """The copies against the source."""
        files = [(host, tool.received(run, host)) for host in run.receivers]
        names = [str(path) for _, path in files if path is not None]
        if not names:
            return {"digests": "none kept"}
        bad = [host.name for host, path in files if path is not None and not path.is_file()]
        if bad:
            return {"outcome": "failed", "text": f"no file at {', '.join(bad)}"}
        found = must(str(self.programs / "digests"), *names).split()
        wrong = [host.name for (host, _), digest in zip(files, found, strict=True) if digest != self._digest(run.case)]
        if wrong:
            return {"outcome": "corrupt", "text": f"other bytes than were sent at {', '.join(wrong)}"}
        return {"digests": "equal"}

    def _digest(self, case: Case) -> str:
        return self._digests[case.size]

    def _source(self, size: int) -> Path:
        """Random data of this size on the sender's disk; that of another size goes."""
        path = self.fabric.sender.folder / "objects" / str(size)
        if not path.exists():
            shutil.rmtree(path.parent, ignore_errors=True)
            path.parent.mkdir()
            draw = numpy.random.default_rng(self.seed)
            with path.open("wb") as file:
                for at in range(0, size, FILL_STEP):
                    file.write(draw.bytes(min(FILL_STEP, size - at)))
            self._digests[size] = must(str(self.programs / "digests"), str(path)).strip()
        return path

    def _tidy(self) -> None:
        for host in self.fabric.hosts:
            for name in ("received", "store"):
                shutil.rmtree(host.folder / name, ignore_errors=True)
            (host.folder / "agent.sock").unlink(missing_ok=True)


def run_all(
    runner: Runner,
    plan: list[Turn],
    done: list[Record],
    write: Callable[[list[Record]], None],
    say: Callable[[str], None],
) -> list[Record]:
    """Runs what is not in `done`; all records. `write` gets them after each run."""
    have = {(record["case"]["name"], record["tool"], record["round"]) for record in done}
    left = [turn for turn in plan if turn.key not in have]
    records = list(done)
    spent: dict[tuple[str, str], list[float]] = {}
    began = time.monotonic()
    for number, turn in enumerate(left, 1):
        start = time.monotonic()
        record = runner.run(turn)
        spent.setdefault((turn.case.name, turn.tool), []).append(time.monotonic() - start)
        records.append(record)
        write(records)
        say(f"[{number:{len(str(len(left)))}}/{len(left)}] {turn.case.name:28} {turn.tool:16} {outcome(record):52} "
            f"{_remaining(left[number:], spent, time.monotonic() - began, number)}")  # fmt: skip
    return records


def outcome(record: Record) -> str:
    """A run in a few words."""
    if record["outcome"] != "ok":
        return f"{record['outcome']}: {record.get('text', '')[:160]}"
    cpu = record["sender_s"] + record["receivers_s"]
    apart = ", cores {}, {} ns".format(*record["cores_ns"]) if any(record.get("cores_ns", [])) else ""
    return f"{record['time_s']:7.3f} s {record['goodput_bps'] / 1e9:7.3f} Gbit/s, CPU {cpu:6.2f} s{apart}"


def _remaining(left: list[Turn], spent: dict[tuple[str, str], list[float]], passed: float, number: int) -> str:
    """How long the rest takes: as the same tool took in the same case before, else as all took in the mean."""
    mean = passed / number
    seconds = sum(statistics.fmean(spent.get((turn.case.name, turn.tool), [mean])) for turn in left)
    return f"{seconds / 60:.0f} min left" if seconds > 90 else f"{seconds:.0f} s left"


def _difference(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


__all__ = ["LabError", "Record", "Runner", "Turn", "outcome", "run_all", "turns"]
