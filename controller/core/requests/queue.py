"""Requests that wait, in the order they came, and when each is worth another look.

Most that wait, wait for something that somebody else has: a fibre, a server's port. Until it is free, or a time of
their own has come, a look at them changes nothing. So they sleep until then, and a thousand that wait cost little.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator

Key = tuple[
    str, str, int
]  # what can be in the way: (OCS, "input" | "output", port), (server, "sending" | "receiving", 0)


class Queue:
    """Path ids. What is not asleep is looked at in every run."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._next = 0
        self._awake: set[str] = set()
        self._blockers: dict[str, tuple[Key, ...]] = {}
        self._blocked: dict[Key, set[str]] = {}  # by what is in the way
        self._due: dict[str, int] = {}
        self._dues: list[tuple[int, str]] = []  # heap; entries that are not in _due any more are void

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __contains__(self, path_id: object) -> bool:
        return path_id in self._places

    @property
    def first(self) -> str:
        """Who waits longest. Raises StopIteration if nobody waits."""
        return next(iter(self._places))

    def append(self, path_id: str) -> None:
        self._places[path_id] = self._next
        self._next += 1
        self._awake.add(path_id)

    def remove(self, path_id: str) -> None:
        """Raises KeyError."""
        del self._places[path_id]
        self._awake.discard(path_id)
        self._due.pop(path_id, None)
        self._unblock(path_id)

    def sleep(self, path_id: str, blockers: Collection[Key], due: int) -> None:
        """Not worth a look before one of `blockers` is free, or the time has come."""
        self.look_by(path_id, due)
        if not blockers:
            return
        self._awake.discard(path_id)
        kept = tuple(blockers)
        if self._blockers.get(path_id) == kept:
            return
        self._unblock(path_id)
        self._blockers[path_id] = kept
        for key in kept:
            self._blocked.setdefault(key, set()).add(path_id)

    def back(self, path_id: str) -> None:
        """What it was woken for is taken again: it sleeps on as before."""
        self._awake.discard(path_id)

    def look_by(self, path_id: str, due: int) -> None:
        if self._due.get(path_id) != due:
            self._due[path_id] = due
            heapq.heappush(self._dues, (due, path_id))

    def blockers(self, path_id: str) -> tuple[Key, ...]:
        """What was in its way at the last look."""
        return self._blockers.get(path_id, ())

    def wake(self, freed: Iterable[Key]) -> None:
        for key in freed:
            self._awake |= self._blocked.get(key, set())

    def wake_all(self) -> None:
        self._awake = set(self._places)
        self._blockers.clear()
        self._blocked.clear()

    def wake_due(self, now: int) -> int | None:
        """Returns when the next is due."""
        while self._dues and (self._dues[0][0] <= now or self._due.get(self._dues[0][1]) != self._dues[0][0]):
            due, path_id = heapq.heappop(self._dues)
            if self._due.get(path_id) == due:
                del self._due[path_id]
                self._awake.add(path_id)
                self._unblock(path_id)
        return self._dues[0][0] if self._dues else None

    def awake(self) -> list[str]:
        """Those worth a look, in the order they came."""
        return sorted(self._awake, key=self._places.__getitem__)

    def _unblock(self, path_id: str) -> None:
        for key in self._blockers.pop(path_id, ()):
            there = self._blocked[key]
            there.discard(path_id)
            if not there:
                del self._blocked[key]
