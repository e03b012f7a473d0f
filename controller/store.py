"""Where the manager's records are kept: what a store can do, whichever it is (journal.py, shared.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from rostrum.controller.core.durable import Change


class StoreError(Exception):
    """The store cannot be used, or did not take what was written; the text says which, and what to do."""


class Store(Protocol):
    """`way_out`: what a person can do when the records cannot be used."""

    @property
    def way_out(self) -> str: ...

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None] | None:
        """All of the changes or none, after those written before. None = they are in; else the future's end says so.
        One write at a time. Raises StoreError, or ends the future with it.
        """
