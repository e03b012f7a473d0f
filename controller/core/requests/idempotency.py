"""Idempotency keys: a request that is repeated, because its answer got lost, makes no second path. They survive a
restart of the manager, so that it does not matter whether it was the answer or the manager that got lost.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rostrum.controller.core.persistence.persistence import Json
    from rostrum.controller.core.state import Core

KEYS_MAX = 10_000  # the oldest is forgotten first
KEY_AGE_NS = 24 * 3600 * 1_000_000_000


class Misused(Exception):
    """The key was used for something else."""


@dataclass(frozen=True)
class Made:
    """`body`: a digest of the request. `at`: ns of the manager's clock."""

    body: str
    path_id: str
    at: int


class Repeats:
    """Which path was made under which caller's key. Names are digests of both: keys are whatever callers choose."""

    def __init__(self, limit: int = KEYS_MAX, age_ns: int = KEY_AGE_NS) -> None:
        self._limit, self._age_ns = limit, age_ns
        self._made: OrderedDict[str, Made] = OrderedDict()  # in the order of `at`

    def __len__(self) -> int:
        return len(self._made)

    def get(self, name: str) -> Made | None:
        return self._made.get(name)

    def find(self, name: str, body: str, now: int) -> str | None:
        """The path that this request made before. Raises Misused if the key belongs to another body."""
        made = self._made.get(name)
        if made is None or self._old(made, now):
            return None
        if made.body != digest(body):
            raise Misused(f"this Idempotency-Key made {made.path_id}, by another request; take a new key")
        return made.path_id

    def keep(self, name: str, body: str, path_id: str, now: int) -> list[str]:
        """Returns whose records changed: its own, and those that are forgotten for it."""
        return self.put(name, Made(digest(body), path_id, now), now)

    def put(self, name: str, made: Made, now: int) -> list[str]:
        self._made.pop(name, None)
        self._made[name] = made
        changed = [name]
        while self._made:
            oldest = next(iter(self._made))
            if len(self._made) <= self._limit and not self._old(self._made[oldest], now):
                break
            del self._made[oldest]
            changed.append(oldest)
        return changed

    def _old(self, made: Made, now: int) -> bool:
        return now - made.at > self._age_ns


def name_of(caller: str, key: str) -> str:
    return digest(f"{caller}\n{key}")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Keys:
    """Key: the digest of caller and idempotency key."""

    name = "repeat"

    def dump(self, core: Core, key: str) -> Json | None:
        made = core.repeats.get(key)
        return None if made is None else {"body": made.body, "path": made.path_id, "at": core.persistence.wall(made.at)}

    def restore(self, core: Core, records: Mapping[str, Json], now: int) -> None:
        rows: list[tuple[str, Any]] = sorted(records.items(), key=lambda one: (one[1]["at"], one[0]))
        for key, record in rows:
            made = Made(record["body"], record["path"], min(core.persistence.monotonic(record["at"]), now))
            for changed in core.repeats.put(key, made, now):
                if core.repeats.get(changed) is None:
                    core.persistence.mark(self.name, changed)
