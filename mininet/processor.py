"""Processor time (user and kernel, all threads that live) and memory of programs of a lab.

`python -m rostrum.lab.processor PID...` prints a line `USED_NS RESIDENT_BYTES` of each; `--every PERIOD_S PID` a line
`TIME_NS USED_NS` (wall clock) each period, until its standard input ends or the program does. Runs where the lab's PIDs
mean something: in its namespaces.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rostrum.lab.lab import Lab

BOUND_S = 30.0


class Used(NamedTuple):
    seconds: float  # of processor time, so far
    resident_bytes: int  # now


def used_ns(pid: int) -> int:
    """So far. Raises OSError if there is no such program."""
    files = list(Path(f"/proc/{pid}/task").iterdir())
    return sum(int((one / "schedstat").read_text().split()[0]) for one in files)


def resident_bytes(pid: int) -> int:
    """Raises OSError if there is no such program."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def used(lab: Lab, programs: Mapping[str, int]) -> dict[str, Used]:
    """By what programs are called here. `programs`: their PIDs. Raises LabError."""
    argv = [sys.executable, "-m", "rostrum.lab.processor", *map(str, programs.values())]
    rows = [line.split() for line in lab.execute("manager", argv).splitlines()]
    return {name: Used(int(time_ns) / 1e9, int(held)) for name, (time_ns, held) in zip(programs, rows, strict=True)}


def used_s(lab: Lab, programs: Mapping[str, int]) -> dict[str, float]:
    """Processor time so far, as `used`."""
    return {name: one.seconds for name, one in used(lab, programs).items()}


@contextlib.contextmanager
def watched(lab: Lab, program: str, period_s: float) -> Iterator[list[tuple[int, int]]]:
    """Samples of a program while the body runs, there when it has ended: (time, processor time used), ns."""
    samples: list[tuple[int, int]] = []
    pid = str(lab.status()["programs"][program]["pid"])
    argv = [sys.executable, "-m", "rostrum.lab.processor", "--every", str(period_s), pid]
    process = lab.popen("manager", argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield samples
        text, _ = process.communicate(timeout=BOUND_S)  # closes its input
        samples += [(int(first), int(second)) for first, second in (line.split() for line in text.splitlines())]
    finally:
        process.kill()


def _sample(pid: int, period_s: float) -> None:
    with contextlib.suppress(OSError):
        while not select.select([sys.stdin], [], [], period_s)[0]:
            print(time.time_ns(), used_ns(pid), flush=True)


def main(arguments: Sequence[str]) -> None:
    if arguments[0] == "--every":
        _sample(int(arguments[2]), float(arguments[1]))
    else:
        for pid in arguments:
            print(used_ns(int(pid)), resident_bytes(int(pid)))


if __name__ == "__main__":
    main(sys.argv[1:])
