"""Results that are kept for those who ask again."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Cache(Generic[V]):
    """By key, from the second time on that a key is asked for: what is asked for only once would fill memory, and
    Python's collector of cycles would look through it again and again. At most `most`; then it starts over.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[Hashable, V] = {}
        self._asked: set[int] = set()  # hashes of keys that were asked for once

    def get(self, key: Hashable) -> V | None:
        return self._found.get(key)

    def put(self, key: Hashable, value: V) -> None:
        """What was worked out because `get` had nothing."""
        number = hash(key)
        if number in self._asked:
            if len(self._found) >= self._most:
                self._found.clear()
            self._found[key] = value
        else:
            if len(self._asked) >= 4 * self._most:
                self._asked.clear()
            self._asked.add(number)
