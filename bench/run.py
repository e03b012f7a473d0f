"""One run: one tool carries one object through the network of a case. What a tool gets, and what it must do."""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rostrum.bench.account import Side
from rostrum.bench.cases import Case
from rostrum.bench.fabric import Fabric, Host

READY_BOUND_S = 15.0
TIMEOUT_MAX_S = 7200.0
LOG_TAIL = 1500


class ToolFailed(Exception):
    """The tool did not do it; the text says what it said."""


class TimedOut(ToolFailed):
    """The tool was not done within its bound."""


@dataclass
class Program:
    """A program on a host; both its outputs are in `log`."""

    host: Host
    argv: list[str]
    log: Path
    process: subprocess.Popen[bytes]

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def tail(self) -> str:
        return " | ".join(line.strip() for line in self.text()[-LOG_TAIL:].splitlines() if line.strip())


@dataclass
class Run:
    """What a tool works with. `sides`: "sender" and "receivers", whose processes are accounted and ended."""

    case: Case
    round: int
    fabric: Fabric
    programs_folder: Path  # of the programs built from `native`
    source: Path  # the object, on the sender's disk
    logs: Path
    sides: dict[str, Side]
    seed: int
    deadline: float = 0.0  # by time.monotonic(); set when the transfer begins
    facts: dict[str, Any] = field(default_factory=dict)  # what a tool tells of itself
    programs: list[Program] = field(default_factory=list)

    @property
    def sender(self) -> Host:
        return self.fabric.sender

    @property
    def receivers(self) -> list[Host]:
        return self.fabric.receivers(self.case)

    def target(self, host: Host) -> Path:
        """Where a receiver puts the object."""
        return host.folder / "received" / "object"

    def start(self, side: str, host: Host, argv: Sequence[str], *, env: dict[str, str] | None = None) -> Program:
        """Starts a program on a host, as one of a side's."""
        log = self.logs / f"{len(self.programs):02}-{host.name}.log"
        # The shell puts itself into the side's control group before it becomes the program.
        enter = ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(self.sides[side].procs)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*enter, *host.argv(*argv)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=host.folder,
                env={**_environment(), **(env or {})},
                start_new_session=True,
            )
        program = Program(host, list(argv), log, process)
        self.programs.append(program)
        return program

    def ready(self, programs: Sequence[Program], pattern: str) -> None:
        """Waits until each program has written the pattern. Raises ToolFailed."""
        until = time.monotonic() + READY_BOUND_S
        for program in programs:
            while not re.search(pattern, program.text(), re.MULTILINE):
                if program.process.poll() is not None:
                    raise ToolFailed(f"{program.argv[0]} on {program.host.name} ended at its start: {program.tail()}")
                if time.monotonic() > until:
                    raise ToolFailed(f"{program.argv[0]} on {program.host.name} is not ready: {program.tail()}")
                time.sleep(0.005)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for something, within the run's bound. Raises TimedOut."""
        while not condition():
            if time.monotonic() > self.deadline:
                raise TimedOut(f"{what}: not within {self.case.bound_s:.0f} s")
            time.sleep(0.001)

    def wait(self, program: Program, *, status: Sequence[int] = (0,)) -> str:
        """Waits for a program's end; its output. Raises ToolFailed, TimedOut."""
        name = f"{Path(program.argv[0]).name} on {program.host.name}"
        if not ended(program.process, self.deadline):
            raise TimedOut(f"{name}: not done within {self.case.bound_s:.0f} s: {program.tail()}")
        code = program.process.wait()
        if code not in status:
            raise ToolFailed(f"{name}: exit status {code}: {program.tail()}")
        return program.text()

    def stop(self) -> None:
        """Ends what still runs of both sides."""
        for side in self.sides.values():
            side.kill()
        for program in self.programs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.process.wait(10)


class Tool(Protocol):
    """A way to carry an object to many.

    What is timed is `send`: from the command to send until the last receiver has the object complete and checked in
    the tool's own way. Receivers, and servers that would be running anyway, are started before.
    """

    name: str
    timed: str  # what the time covers, as text

    def unfit(self, case: Case) -> str:
        """Why this tool cannot run this case on this machine; "" if it can."""

    def version(self) -> str: ...

    def prepare(self, run: Run) -> None:
        """Starts receivers; returns when they are ready. Raises ToolFailed."""

    def send(self, run: Run) -> None:
        """Carries the object. Raises ToolFailed, TimedOut."""

    def finish(self, run: Run) -> None:
        """After the time was taken, with programs still running: facts, such as what was repaired."""

    def received(self, run: Run, host: Host) -> Path | None:
        """The file that must be equal to the source; None if this tool leaves none."""


class Plain:
    """What most tools have in common."""

    name = ""
    timed = "start of the sending program to its end, which comes when all receivers have confirmed"

    def unfit(self, case: Case) -> str:
        return ""

    def version(self) -> str:
        return ""

    def finish(self, run: Run) -> None:
        pass

    def received(self, run: Run, host: Host) -> Path | None:
        return run.target(host)


def ended(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Waits until the process ends (True) or the time has come. At once when it ends: `Popen.wait` with a bound looks
    every 50 ms only."""
    if process.poll() is not None:
        return True
    fd = os.pidfd_open(process.pid)
    try:
        timeout_s = min(max(0.0, deadline - time.monotonic()), TIMEOUT_MAX_S)
        return bool(select.select([fd], [], [], timeout_s)[0])
    finally:
        os.close(fd)


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
