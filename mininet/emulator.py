"""A wide-area network between network interfaces: delay, rate, queues, loss and marks, exact to 0.1 ms (wan_link.c).

    with Emulator(folder, [Port("port1", up_bps=200e6), Port("port2", delay_ms=25, lost_down=0.003)], seed=1) as net:
        ...
        net.counters()

In the network namespace of its caller. Whoever talks over it turns its offloads off: a frame of 64 kB is one packet to
it, and checksums that a network card would fill in stay empty.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import struct
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rostrum.lab.namespace import BUILD, FOLDER, LabError

START_BOUND_S = 10.0
PORTS, BUCKETS, BUCKET_US = 16, 500, 10
FIELDS = ("came", "lost_up", "full_up", "sent", "lost_down", "full_down", "marked", "refused")
HEAD = struct.Struct(f"={4 + BUCKETS}Q")
COUNTERS = struct.Struct(f"={len(FIELDS)}Q")


@dataclass(frozen=True)
class Port:
    """An interface, seen from the network: `up` comes in from it, `down` goes out to it.

    `delay_ms`: each way. Rates of 0 are no limit. `queue`: bytes that wait for a rate, at most. `lost_*`: shares, in
    bursts of `burst` packets in the mean. `mark`: bytes that wait before ECN marks are set; 0: never.
    """

    interface: str
    delay_ms: float = 0.0
    up_bps: float = 0.0
    down_bps: float = 0.0
    queue: int = 1 << 20
    lost_up: float = 0.0
    lost_down: float = 0.0
    burst: float = 1.0
    mark: int = 0

    def word(self) -> str:
        numbers = (self.delay_ms * 1e3, self.up_bps, self.down_bps, self.queue, self.lost_up * 1e6,
                   self.lost_down * 1e6, self.burst, self.mark)  # fmt: skip
        return ",".join((self.interface, *(f"{number:.0f}" for number in numbers)))


class Emulator:
    """Runs from `start` to `stop`. `folder`: for its counters and its log. `enter`: into other namespaces."""

    def __init__(
        self, folder: Path, ports: Sequence[Port], seed: int = 1, enter: Callable[[list[str]], list[str]] = list
    ) -> None:
        if not 2 <= len(ports) <= PORTS:
            raise LabError(f"a wide-area network has 2 to {PORTS} ports, not {len(ports)}")
        self.ports, self.seed, self._enter = list(ports), seed, enter
        self._file, self._log = folder / "wan_link.counters", folder / "wan_link.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Emulator:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when packets pass. Raises LabError."""
        argv = [str(program()), str(self._file), str(self.seed), *(port.word() for port in self.ports)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._enter(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], START_BOUND_S)[0] or not self._process.stdout.readline():
            self.stop()
            raise LabError(f"the wide-area network did not come up: {self._log.read_text()[-300:].strip()}")

    def stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            if self._process.stdout:
                self._process.stdout.close()
            self._process = None

    def counters(self) -> dict[str, Any]:
        """Since the start: packets by port, and how much later than due they went."""
        raw = self._file.read_bytes()
        ports, overrun, no_memory, most, *late = HEAD.unpack_from(raw)
        rows = {
            port.interface: dict(
                zip(FIELDS, COUNTERS.unpack_from(raw, HEAD.size + number * COUNTERS.size), strict=True)
            )
            for number, port in enumerate(self.ports[:ports])
        }
        shares = {f"p{share:g}_us": _percentile(late, share) for share in (50, 99, 99.9)}
        return {
            "ports": rows,
            "overrun": overrun + no_memory,
            "late": {**shares, "most_us": most / 1000, "packets": sum(late)},
        }


def _percentile(late: Sequence[int], percent: float) -> float:
    """The upper end of the bucket (the last one: of all that is later)."""
    wanted, seen = sum(late) * percent / 100, 0
    for number, count in enumerate(late):
        seen += count
        if seen >= wanted:
            return float((number + 1) * BUCKET_US) if seen else 0.0
    return 0.0


def program() -> Path:
    """The emulator, compiled when its source is new. Raises LabError."""
    source = FOLDER / "wan_link.c"
    made = BUILD / "lab-tools" / f"wan_link-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    if made.exists():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    scratch = made.with_suffix(f".{os.getpid()}")
    argv = ["cc", "-O2", "-Wall", "-Wextra", "-D_GNU_SOURCE", "-o", str(scratch), str(source)]
    with contextlib.suppress(OSError):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode == 0:
            scratch.rename(made)
            return made
        raise LabError(f"wan_link.c does not compile: {done.stderr[-500:]}")
    raise LabError("wan_link.c cannot be compiled: there is no cc; run .ci/setup")
