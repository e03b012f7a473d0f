"""Processor time of programs of a lab (user and kernel, all threads that live).

`python -m rostrum.lab.processor PID...` prints a line `USED_NS` of each; `--every PERIOD_S PID` a line
`TIME_NS USED_NS` (wall clock) each period, until its standard input ends or the program does. Runs where the lab's PIDs
mean something: in its namespaces.
"""

from __future__ import annotations

import contextlib
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rostrum.lab.lab import Lab

BOUND_S = 30.0


def used_ns(pid: int) -> int:
    """So far. Raises OSError if there is no such program."""
    files = list(Path(f"/proc/{pid}/task").iterdir())
    return sum(int((one / "schedstat").read_text().split()[0]) for one in files)


def used_s(lab: Lab, programs: Mapping[str, int]) -> dict[str, float]:
    """Of programs so far, by what they are called here. `programs`: their PIDs. Raises LabError."""
    argv = [sys.executable, "-m", "rostrum.lab.processor", *map(str, programs.values())]
    rows = lab.execute("manager", argv).splitlines()
    return {name: int(row) / 1e9 for name, row in zip(programs, rows, strict=True)}


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
            print(used_ns(int(pid)))


if __name__ == "__main__":
    main(sys.argv[1:])
