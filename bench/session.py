"""What the commands of all benches do: the process in private namespaces, a word about who else is at work."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rostrum.bench.account import machine_busy_s
from rostrum.bench.limits import large_socket_buffers
from rostrum.lab.namespace import LabError, PrivateNamespace
from rostrum.topologies.places import short

OUT = Console(highlight=False, soft_wrap=True)
LOOK_S = 0.5
QUIET = 0.05  # share of the machine's processor time that others may use


def in_namespaces(folder: Path, module: str, job: dict[str, Any]) -> None:
    """Runs a module with a job's file inside private namespaces, until it ends. Raises LabError."""
    file = folder / "job.json"
    file.write_text(json.dumps(job, indent=1) + "\n")
    inside = [sys.executable, "-m", module, str(file.resolve())]
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    with large_socket_buffers(), PrivateNamespace(log=folder.resolve() / "logs" / "switches", command=inside) as ns:
        status = ns.wait()
    if status:
        raise LabError(f"the bench ended with status {status}; logs are in {short(folder / 'logs')}")


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Holds a folder of results: two benches at a time would spoil each other's figures, and write over them. Raises
    LabError.
    """
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LabError(f"another bench is running and writes to {short(folder)}") from error
        yield


def note_others() -> None:
    """Says so if this machine is not quiet enough for figures."""
    if (busy := busy_share()) > QUIET:
        OUT.print(
            f"note: {busy:.0%} of this machine's processor time is used by others; good for a try, not for figures"
        )


def busy_share() -> float:
    """What others use of this machine's processor time just now."""
    began, before = time.monotonic(), machine_busy_s()
    time.sleep(LOOK_S)
    return (machine_busy_s() - before) / (time.monotonic() - began) / (os.cpu_count() or 1)
