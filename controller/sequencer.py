"""Work in parallel, except that pieces with a key in common run in the order they were given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable
from typing import Any


class Sequencer:
    """Keys are OCS fibres: what touches the same one keeps its order."""

    def __init__(self) -> None:
        self._last: dict[Hashable, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, keys: Iterable[Hashable], work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Runs `work` after everything submitted earlier under any of `keys`. `work` must not raise."""
        wanted = list(keys)
        before = {self._last[key] for key in wanted if key in self._last}
        task = asyncio.ensure_future(self._run(before, work))
        self._tasks.add(task)
        for key in wanted:
            self._last[key] = task
        task.add_done_callback(lambda done: self._forget(done, wanted))
        return task

    @property
    def busy(self) -> int:
        return len(self._tasks)

    async def close(self) -> None:
        """Gives up what is still under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, before: set[asyncio.Task[None]], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if before:
            await asyncio.wait(before)
        await work()

    def _forget(self, task: asyncio.Task[None], keys: list[Hashable]) -> None:
        self._tasks.discard(task)
        for key in keys:
            if self._last.get(key) is task:
                del self._last[key]
