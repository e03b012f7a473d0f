"""Processor time of a program of a lab, sample by sample: `python -m rostrum.lab.processor PID PERIOD_S`.

Prints a line `TIME_NS USED_NS` (wall clock; user and kernel, all threads that live) each period, until its standard
input ends or the program does. Runs where the lab's PIDs mean something: in its namespaces.
"""

from __future__ import annotations

import contextlib
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rostrum.lab.lab import Lab

BOUND_S = 30.0


def used_ns(pid: int) -> int:
    """So far. Raises OSError if there is no such program."""
    files = list(Path(f"/proc/{pid}/task").iterdir())
    return sum(int((one / "schedstat").read_text().split()[0]) for one in files)


@contextlib.contextmanager
def watched(lab: Lab, program: str, period_s: float) -> Iterator[list[tuple[int, int]]]:
    """Samples of a program while the body runs, there when it has ended: (time, processor time used), ns."""
    samples: list[tuple[int, int]] = []
    argv = [sys.executable, "-m", "rostrum.lab.processor", str(lab.status()["programs"][program]["pid"]), str(period_s)]
    process = lab.popen("manager", argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield samples
        text, _ = process.communicate(timeout=BOUND_S)  # closes its input
        samples += [(int(first), int(second)) for first, second in (line.split() for line in text.splitlines())]
    finally:
        process.kill()


def main(pid: int, period_s: float) -> None:
    with contextlib.suppress(OSError):
        while not select.select([sys.stdin], [], [], period_s)[0]:
            print(time.time_ns(), used_ns(pid), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
