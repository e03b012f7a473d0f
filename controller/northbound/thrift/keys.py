"""Keys with which agents seal what they send each other (docs/security.md): one an epoch, for all who are admitted, and
with it numbers that are each agent's alone.

A key lives in this process's memory only: a manager that starts draws another one, and agents go on with the one they
have until they have heard of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rostrum.controller.northbound.thrift.codec import idl

EPOCHS = 1 << 16
KEY_BYTES = 32
NUMBERS = 256  # of each agent: it goes on to the next one when a key has sealed enough
NUMBERS_END = 1 << 32
REKEY_S = 900.0
HEAD_START_S = 2.0  # in which all have heard of a key, before anybody seals with it


@dataclass
class Epoch:
    number: int
    key: bytes = field(repr=False)
    from_s: float
    next_number: int = NUMBERS


class Keys:
    """`now`: seconds of a clock that does not go back. `rekey_s`: how old a key becomes."""

    def __init__(self, now: Callable[[], float], rekey_s: float = REKEY_S) -> None:
        self._now, self._rekey_s = now, rekey_s
        self._current = Epoch(1 + secrets.randbelow(EPOCHS - 1), secrets.token_bytes(KEY_BYTES), now())
        self._before: Epoch | None = None

    def rekey(self) -> None:
        """Whoever is not told of the next key can neither read nor make what is sealed with it."""
        self._before = self._current
        number = self._current.number % (EPOCHS - 1) + 1
        self._current = Epoch(number, secrets.token_bytes(KEY_BYTES), self._now() + HEAD_START_S)

    def due(self) -> bool:
        old = self._now() - self._current.from_s >= self._rekey_s
        return old or self._current.next_number >= NUMBERS_END - NUMBERS

    def for_agent(self) -> list[Any]:
        """Those that are in use now or soon, as rostrum.thrift has them; each time with other numbers."""
        now = self._now()
        if self._before and now >= self._current.from_s:
            self._before = None
        return [self._told(epoch, now) for epoch in (self._before, self._current) if epoch]

    def _told(self, epoch: Epoch, now: float) -> Any:
        number, epoch.next_number = epoch.next_number, epoch.next_number + NUMBERS
        wait_ms = max(0, round((epoch.from_s - now) * 1000))
        return idl.SealKey(epoch=epoch.number, key=epoch.key, transmitter=number, in_ms=wait_ms)
