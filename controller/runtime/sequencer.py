"""Work in parallel, except that pieces with a key in common run in the order they were given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable
from typing import Any


class _Piece:
    """`ahead`: how many of the pieces given before it must be over first. `behind`: those that wait for it."""

    def __init__(self, keys: list[Hashable], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.keys, self.work = keys, work
        self.ahead = 0
        self.behind: list[_Piece] = []


class Sequencer:
    """Keys are OCS fibres: what touches the same one keeps its order."""

    def __init__(self) -> None:
        self._last: dict[Hashable, _Piece] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._closed = False

    def submit(self, keys: Iterable[Hashable], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs `work` after everything submitted earlier under any of `keys`. `work` must not raise."""
        piece = _Piece(list(keys), work)
        before = {id(one): one for key in piece.keys if (one := self._last.get(key))}
        for key in piece.keys:
            self._last[key] = piece
        for one in before.values():
            one.behind.append(piece)
        piece.ahead = len(before)
        self._waiting += 1
        if not before:
            self._start(piece)

    @property
    def busy(self) -> int:
        return len(self._tasks) + self._waiting

    async def close(self) -> None:
        """Gives up what is still under way, and what waits for it."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, piece: _Piece) -> None:
        self._waiting -= 1
        if self._closed:
            return
        task = asyncio.get_running_loop().create_task(piece.work())
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._over(done, piece))

    def _over(self, task: asyncio.Task[None], piece: _Piece) -> None:
        self._tasks.discard(task)
        for key in piece.keys:
            if self._last.get(key) is piece:
                del self._last[key]
        for one in piece.behind:
            one.ahead -= 1
            if not one.ahead:
                self._start(one)
