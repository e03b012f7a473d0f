"""Idempotency keys: a request that is repeated, because its answer got lost, makes no second path."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

KEYS_MAX = 10_000  # the oldest is forgotten first
KEY_PATTERN = r"^[\x21-\x7e]{1,128}$"


class Misused(Exception):
    """The key was used for something else."""


@dataclass(frozen=True)
class _Made:
    fingerprint: bytes
    path_id: str


class Repeats:
    """Which path was made under which caller's key. In memory: a manager that starts anew knows no keys."""

    def __init__(self, limit: int = KEYS_MAX) -> None:
        self._limit = limit
        self._made: OrderedDict[tuple[str, str], _Made] = OrderedDict()

    def __len__(self) -> int:
        return len(self._made)

    def find(self, caller: str, key: str, body: str) -> str | None:
        """The path that this request made before. Raises Misused if the key belongs to another body."""
        made = self._made.get((caller, key))
        if made is None:
            return None
        if made.fingerprint != _fingerprint(body):
            raise Misused(f"this Idempotency-Key made {made.path_id}, by another request; take a new key")
        return made.path_id

    def keep(self, caller: str, key: str, body: str, path_id: str) -> None:
        self._made[caller, key] = _Made(_fingerprint(body), path_id)
        while len(self._made) > self._limit:
            self._made.popitem(last=False)


def _fingerprint(body: str) -> bytes:
    return hashlib.sha256(body.encode()).digest()
