"""The load generator, a process of its own: `python -m rostrum.bench.manager.load JOB`, figures on stdout.

One thread, one epoll, requests made beforehand: what it costs per request is in the figures, and the case `echo` says
how many it can do. In open loops a request's time counts from when it was due, not from when it was sent.
"""

from __future__ import annotations

import json
import os
import random
import select
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rostrum.bench.manager import rest, thrift

POOL = 4096  # different requests, made before the clock starts
AGENTS_MAX = 256  # connections
KEEPALIVE_S = 0.8
WARM_S = 0.5
DRAIN_S = 5.0
OBJECT_BYTES = 504_000_000


class Talk(Protocol):
    """One connection. `ask` and what follows from `hear` are written at once."""

    sock: socket.socket
    releases: bool  # whether it sends them

    def ask(self, number: int) -> None:
        """Sends request `number` of the pool (modulo its size)."""

    def hear(self, data: bytes) -> list[tuple[int, str]]:
        """What came of requests: (number, "accepted" | "denied" | "queued"). With `accepted` the release is sent."""

    def keepalive(self) -> None: ...


@dataclass
class Window:
    """What is counted. Times in s of `time.perf_counter`."""

    begin: float = 0.0
    end: float = 0.0
    due: dict[int, float] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    outcomes: dict[str, int] = field(default_factory=lambda: {"accepted": 0, "denied": 0, "queued": 0})

    def heard(self, number: int, outcome: str) -> None:
        now = time.perf_counter()
        if self.begin <= now < self.end:
            self.outcomes[outcome] += 1
        if outcome == "queued":
            return
        due = self.due.pop(number, None)
        if due is not None and self.begin <= due < self.end and outcome == "accepted":
            self.waits.append(now - due)


class Load:
    """Asks by a job's case."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job, self.case = job, job["case"]
        self.rng = random.Random(job["seed"])
        self.window = Window()
        self.talks: list[Talk] = []
        self.by_fd: dict[int, Talk] = {}
        self.epoll = select.epoll()
        self.number = 0
        self.receivers = 0

    def connect(self) -> None:
        names = self.job["servers"]
        self.rng.shuffle(names)
        case = self.case
        agents = min(len(names), AGENTS_MAX) if case["rate_per_s"] or case["live"] else min(case["clients"], len(names))
        senders = names[:agents]
        wanted = [self._draw(senders[number % agents], names) for number in range(POOL // agents * agents)]
        self.receivers = sum(len(one) for one in wanted)
        self.pool = len(wanted)
        connect = rest.Talk.connect if case["door"] == "rest" else thrift.Talk.connect
        for index, sender in enumerate(senders):
            talk = connect(self.job["port"], sender, wanted[index::agents], OBJECT_BYTES)
            self.talks.append(talk)
            self.by_fd[talk.sock.fileno()] = talk
            self.epoll.register(talk.sock.fileno(), select.EPOLLIN)

    def _draw(self, sender: str, names: list[str]) -> list[str]:
        least, most = self.case["receivers"]
        found = self.rng.sample(names, min(self.rng.randint(least, most), len(names) - 1) + 1)
        return [name for name in found if name != sender][: max(1, len(found) - 1)]

    def hold(self, live: int) -> None:
        """Paths that stay."""
        held, asked = 0, 0
        for talk in self.talks:
            talk.releases = False
        while held < live:
            while asked < live and asked - held < 64:
                self._ask(self.talks[asked % len(self.talks)])
                asked += 1
            held += sum(1 for _, _, outcome in self._listen(1.0) if outcome == "accepted")
        for talk in self.talks:
            talk.releases = True

    def run(self) -> dict[str, Any]:
        case, window = self.case, self.window
        self.connect()
        if case["live"]:
            self.hold(case["live"])
        cpu = ProcessTime(self.job["pid"])
        window.begin = time.perf_counter() + WARM_S
        window.end = window.begin + case["seconds"]
        drive = self._open if case["rate_per_s"] else self._closed
        marks = drive()
        next(marks)
        before = cpu.read()
        next(marks)
        after = cpu.read()
        for _ in marks:
            pass
        waits = sorted(window.waits)
        done = window.outcomes["accepted"]
        return {
            "requests_per_s": done / case["seconds"],
            "p50_ms": _percentile(waits, 50),
            "p99_ms": _percentile(waits, 99),
            "max_ms": waits[-1] * 1e3 if waits else None,
            "servers": case["servers"],
            "receivers_mean": self.receivers / self.pool,
            "manager_cpu_us": (after[0] - before[0]) / max(1, done) * 1e6,
            "generator_cpu_us": (after[1] - before[1]) / max(1, done) * 1e6,
            **window.outcomes,
            "unanswered": len(window.due),
        }

    def _closed(self) -> Iterator[None]:
        """Yields when the window begins and when it ends."""
        clients = self.case["clients"]
        for index in range(clients):
            self._ask(self.talks[index % len(self.talks)])
        for mark in (self.window.begin, self.window.end):
            while time.perf_counter() < mark:
                for talk, _, outcome in self._listen(mark - time.perf_counter()):
                    if outcome != "queued":
                        self._ask(talk)
            yield
        self._drain()

    def _open(self) -> Iterator[None]:
        rate, window = self.case["rate_per_s"], self.window
        due = time.perf_counter()
        turn = 0
        for mark in (window.begin, window.end):
            while (now := time.perf_counter()) < mark:
                while due <= now:
                    self._ask(self.talks[turn % len(self.talks)], due)
                    turn += 1
                    due += self.rng.expovariate(rate)
                self._listen(min(due, mark) - now)
            yield
        self._drain()

    def _drain(self) -> None:
        until = time.perf_counter() + DRAIN_S
        while self.window.due and time.perf_counter() < until:
            self._listen(0.05)

    def _ask(self, talk: Talk, due: float | None = None) -> None:
        self.number += 1
        self.window.due[self.number] = time.perf_counter() if due is None else due
        talk.ask(self.number)

    _kept = 0.0

    def _listen(self, timeout_s: float) -> list[tuple[Talk, int, str]]:
        now = time.perf_counter()
        if now - self._kept > KEEPALIVE_S:
            self._kept = now
            for talk in self.talks:
                talk.keepalive()
        heard = []
        for fd, _ in self.epoll.poll(max(0.0, min(timeout_s, KEEPALIVE_S))):
            talk = self.by_fd[fd]
            data = talk.sock.recv(1 << 18)
            if not data:
                raise SystemExit("the manager closed a connection")
            for number, outcome in talk.hear(data):
                self.window.heard(number, outcome)
                heard.append((talk, number, outcome))
        return heard


class ProcessTime:
    """Processor time of the manager and of this process, s."""

    def __init__(self, pid: int) -> None:
        self._files = [Path(f"/proc/{one}/schedstat") for one in (pid, os.getpid())]

    def read(self) -> tuple[float, float]:
        manager, own = (int(file.read_text().split()[0]) / 1e9 for file in self._files)
        return manager, own


def _percentile(ordered: list[float], percent: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1e3 if ordered else None


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps(Load(job).run()))


if __name__ == "__main__":
    main()
