"""A clock that counts only time in which this process ran.

A program that was stopped (SIGSTOP, a debugger, a virtual machine that was paused or moved, a disk that hung) learned
nothing meanwhile: what others said waits in its sockets. By the machine's clock all of them were silent for that long,
and the first look at the bounds would take everybody's paths back. By this clock nobody was: it stands still while the
process does, so every bound goes on where it was, and what was queued is read before any of them can be over.

That the process did not run is seen by a heartbeat on its loop: when nobody could read the clock for `PAUSE_NS`, though
the heartbeat should have five times, the time since the last reading is left out. A loop that was busy with one thing
for so long is the same case. Without a heartbeat (`watch`) it is the machine's clock.

Not for what others measure by their own clocks, as the lease of a leader at etcd: that goes on while this stands still.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Callable
from types import TracebackType

HEARTBEAT_S = 0.1
PAUSE_NS = 500_000_000
PAUSES_MAX = 256  # remembered by themselves, for wall-clock times; older ones count as one

OnPause = Callable[[int], None]


class RunClock:
    """Readings never go back. `pauses`, `paused_ns`: how often and how long the process did not run so far."""

    def __init__(self, machine: Callable[[], int] = time.monotonic_ns) -> None:
        self._machine = machine
        self._last = machine()
        self._watchers = 0
        self.pauses = self.paused_ns = 0
        self._at: list[int] = []  # when each pause was, by this clock
        self._lost: list[int] = []  # all that was left out up to then, that pause included
        self.on_pause: list[OnPause] = []  # called by the heartbeat, with what was left out since it was last (ns)

    def ns(self) -> int:
        """ns since some moment, without those in which the process did not run."""
        machine = self._machine()
        if self._watchers and machine - self._last > PAUSE_NS:
            self._leave_out(machine - self._last)
        self._last = machine
        return machine - self.paused_ns

    def s(self) -> float:
        return self.ns() / 1e9

    def lost_before(self, at: int) -> int:
        """How much was left out before a reading: with it, it is the machine's clock again."""
        index = bisect_right(self._at, at)
        return self._lost[index - 1] if index else 0

    def watch(self) -> Callable[[], None]:
        """Keeps a heartbeat on the running loop; returns how to end it."""
        loop = asyncio.get_running_loop()
        told = self.paused_ns
        timer: asyncio.TimerHandle

        def beat() -> None:
            nonlocal told, timer
            timer = loop.call_later(HEARTBEAT_S, beat)
            self.ns()
            lost, told = self.paused_ns - told, self.paused_ns
            for tell in self.on_pause if lost else ():
                tell(lost)

        def end() -> None:
            timer.cancel()
            self._watchers -= 1

        self.ns()
        self._watchers += 1
        timer = loop.call_later(HEARTBEAT_S, beat)
        return end

    def _leave_out(self, lost: int) -> None:
        self._at.append(self._last - self.paused_ns)
        self.pauses += 1
        self.paused_ns += lost
        self._lost.append(self.paused_ns)
        if len(self._at) > PAUSES_MAX:
            del self._at[0], self._lost[0]


CLOCK = RunClock()
"""Of this process."""


class Within:
    """`async with Within(s)`: as `asyncio.timeout`, for `s` seconds in which this process ran. An answer that came
    while it did not is read before the time is over.
    """

    def __init__(self, bound_s: float, clock: RunClock = CLOCK) -> None:
        self._clock = clock
        self._until = clock.ns() + round(bound_s * 1e9)
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._look()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer:
            self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        left = self._until - self._clock.ns()
        self._timer = loop.call_later(left / 1e9, self._look) if left > 0 else None
        if self._timer is None:
            self._timeout.reschedule(loop.time())
