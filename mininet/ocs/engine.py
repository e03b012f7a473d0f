"""The model on a real clock: drives its state changes, its light, and those who want to hear of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from rostrum.controller.core.model import CrossConnect, CrossConnectState, Pair
from rostrum.lab.ocs.faults import Fault
from rostrum.lab.ocs.light import Light
from rostrum.lab.ocs.model import Model

Listener = Callable[[list[CrossConnect]], None]


@dataclass
class Effects:
    """What a command did to cross-connects: those that it made, whether light comes or not, and those it took down."""

    made: list[Pair] = field(default_factory=list)
    removed: list[Pair] = field(default_factory=list)


EFFECTS: ContextVar[Effects | None] = ContextVar("effects", default=None)  # of the command that is carried out now
SETTLED = (CrossConnectState.STEADY, CrossConnectState.FAULT)


class Engine:
    """One emulated OCS, live. All on one asyncio loop; `clock` is CLOCK_MONOTONIC, as the kernel's program reads it."""

    def __init__(self, model: Model, light: Light, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.model = model
        self.ocs = model.ocs
        self._light = light
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._listeners: set[Listener] = set()
        self._watchers: set[Callable[[], None]] = set()
        self._waiting: dict[asyncio.Future[None], set[Pair]] = {}

    def connect(self, pairs: Sequence[Pair]) -> list[CrossConnect]:
        results = self.model.connect(self._clock(), pairs)
        if effects := EFFECTS.get():
            effects.made += _changed_by(results)
        self._changed()
        return results

    def disconnect(self, pairs: Iterable[Pair]) -> list[CrossConnect]:
        results = self.model.disconnect(self._clock(), pairs)
        if effects := EFFECTS.get():
            effects.removed += _changed_by(results)
        self._changed()
        return results

    def cross_connects(self) -> list[CrossConnect]:
        return self.model.cross_connects(self._clock())

    def find(self, pair: Pair) -> CrossConnect | None:
        return self.model.find(self._clock(), pair)

    def powers(self) -> tuple[dict[int, float | None], dict[int, float | None]]:
        """dBm at every input, and at every output; None = dark."""
        now, ports = self._clock(), range(1, self.ocs.ports + 1)
        return {p: self.model.input_dbm(now, p) for p in ports}, {p: self.model.output_dbm(now, p) for p in ports}

    def add_fault(self, fault: Fault) -> str:
        name = self.model.add_fault(self._clock(), fault)
        self._changed()
        return name

    def clear_fault(self, name: str) -> None:
        self.model.clear_fault(name)
        self._changed()

    def counters(self) -> dict[int, dict[str, int]]:
        return self._light.counters()

    def now(self) -> int:
        return self._clock()

    async def settled(self, pairs: Iterable[Pair]) -> None:
        """Returns when each of these cross-connects is STEADY, in FAULT or gone."""
        moving = {p for p in pairs if self._moving(p)}
        if not moving:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[done] = moving
        try:
            await done
        finally:
            del self._waiting[done]

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Hear of cross-connects that become STEADY or go to FAULT; call the result to stop."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def watch(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Hear that something may have changed, whatever it is; call the result to stop."""
        self._watchers.add(watcher)
        return lambda: self._watchers.discard(watcher)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._light.close()

    def _moving(self, pair: Pair) -> bool:
        found = self.find(pair)
        return found is not None and found.state not in SETTLED

    def _changed(self) -> None:
        """After anything that may move light or time: tell the kernel, the listeners and the waiting; set the timer."""
        now = self._clock()
        news = self.model.poll(now)
        self._light.apply(self.model.paths(now))
        if news:
            for listener in tuple(self._listeners):
                listener(news)
        for done, pairs in self._waiting.items():
            pairs -= {p for p in pairs if not self._moving(p)}
            if not pairs and not done.done():
                done.set_result(None)
        for watcher in tuple(self._watchers):
            watcher()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.model.deadline()
        if deadline is not None:
            delay = max(0, deadline - self._clock()) / 1e9
            self._timer = asyncio.get_running_loop().call_later(delay, self._changed)


def _changed_by(results: Iterable[CrossConnect]) -> list[Pair]:
    return [one.pair for one in results if one.state is not CrossConnectState.INVALID]
