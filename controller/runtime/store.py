"""Where the manager's records are kept: what a store can do, whichever it is (journal.py, shared_store.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Protocol, TypeVar

from rostrum.controller.core.persistence.persistence import Change, Json

T = TypeVar("T", bound=Sized)


class StoreError(Exception):
    """The store cannot be used, or did not take what was written; the text says which, and what to do."""


class StoreRefused(StoreError):
    """Asking again does not help: the store, or who looks after it, has to change first."""


class Unencodable(Exception):
    """Some of the changes can be written by no means, and nothing of them was. `failed`: (part, key) -> as text."""

    def __init__(self, failed: Mapping[tuple[str, str], str]) -> None:
        super().__init__("; ".join(f"{part} {key}: {cause}" for (part, key), cause in failed.items()))
        self.failed = dict(failed)


def encode_each(changes: Sequence[Change], encode: Callable[[Json], T], bytes_max: int | None = None) -> list[T | None]:
    """The values, None where a record goes. Raises Unencodable with all that cannot be."""
    made: list[T | None] = []
    failed: dict[tuple[str, str], str] = {}
    for one in changes:
        try:
            value = None if one.value is None else encode(one.value)
        except (TypeError, ValueError, RecursionError) as error:
            failed[one.part, one.key] = f"{type(error).__name__}: {error}"
            continue
        if bytes_max is not None and value is not None and len(value) > bytes_max:
            failed[one.part, one.key] = f"it has {len(value)} bytes, {bytes_max} are possible"
        made.append(value)
    if failed:
        raise Unencodable(failed)
    return made


class Store(Protocol):
    """`way_out`: what a person can do when the records cannot be used."""

    @property
    def way_out(self) -> str: ...

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None] | None:
        """All of the changes or none, after those written before. None = they are in; else the future's end says so.
        One write at a time. Raises StoreError, or ends the future with it; raises Unencodable at once.
        """
