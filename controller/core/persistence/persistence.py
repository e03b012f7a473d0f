"""What of the manager's state survives a crash, and how a part of the state says so.

The state that must come back is a set of *records*: (part, key) -> a JSON value, small. A part is whoever keeps one
kind of them, for example "path" (key: the path's id) or "circuit". It has

    name        its name in the journal; never reused for something else
    dump        (core, key) -> what is to be remembered under `key` now, or None: the record is gone
    restore     (core, records, now): at a start, all the part's records at once, before the first event

and is listed in `parts.PARTS`; parts are restored in that order, so a part may rely on those before it. Whenever
what `dump` would say of a key has changed, in whatever handler that was, the handler calls

    core.persistence.mark("path", path.id)

(or `mark_later`) and nothing more: marks are cheap, a key marked ten times in one turn of the loop is dumped once, and
none of the actions that the turn led to (answers, orders to devices) leaves the manager before its records are in the
journal (write-ahead). So after a crash the records explain everything that anybody was told and everything that was
done.

Rules for parts:
- JSON values only (str, int, float, bool, None, list or tuple, dict with str keys), which nobody changes after they
  were dumped: a journal may write them once more later. Leave out what can be worked out again, and
  what devices or agents tell again: a record that is written seldom is a fast one.
- Times are ns of the manager's monotonic clock, which means nothing to the next manager:
  `core.persistence.wall(ns)` for the journal, `core.persistence.monotonic(ns)` back.
- Later versions must read records of earlier ones: add fields with a default. When that cannot be, raise
  `journal.SCHEMA` and say there how old ones are turned into new ones.
- `restore` drops what no longer fits (a server that left the topology) with `core.warn`, and raises nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rostrum.controller.core.state import Core

Json = Any  # str | int | float | bool | None | list[Json] | dict[str, Json]


class Part(Protocol):
    """One kind of records; see above."""

    @property
    def name(self) -> str: ...

    def dump(self, core: Core, key: str) -> Json | None: ...

    def restore(self, core: Core, records: Mapping[str, Json], now: int) -> None: ...


@dataclass(frozen=True)
class Change:
    """A record to be written; `value` None = removed."""

    part: str
    key: str
    value: Json | None


class Persistence:
    """Which records changed since they were last written. `offset`: wall clock minus the manager's clock, in ns."""

    def __init__(self, offset: int = 0) -> None:
        self._offset = offset
        self._marked: dict[tuple[str, str], None] = {}
        self.urgent = False  # something has to be written before what was done about it gets out

    def __len__(self) -> int:
        return len(self._marked)

    def mark(self, part: str, key: str) -> None:
        """What is remembered under `key` has changed, or is gone."""
        self._marked[part, key] = None
        self.urgent = True

    def mark_later(self, part: str, key: str) -> None:
        """As `mark`, for what an older record does not get wrong: it is written with the next that is, or some time
        later.
        """
        self._marked[part, key] = None

    def take(self) -> list[tuple[str, str]]:
        """The marked keys, in the order they were first marked; they count as written from now on."""
        marked, self._marked, self.urgent = self._marked, {}, False
        return list(marked)

    def wall(self, at: int) -> int:
        return at + self._offset

    def later_by(self, lost: int) -> None:
        """The manager's clock stood still for so long (ns): what it says from now on is so much later."""
        self._offset += lost

    def monotonic(self, at: int) -> int:
        return at - self._offset
