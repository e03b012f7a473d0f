"""Match-action tables at run time.

`find` is what a packet looks into: for an exact table every entry by its key, else a cache of what was found before,
so that a flow's second packet costs one dictionary look-up whatever the kind of table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rostrum.lab.p4target.meters import Meter
from rostrum.lab.p4target.program import Action, ProgramError, construct
from rostrum.lab.p4target.program import Table as TableInfo

CACHE_ENTRIES_MAX = 65536

# One element of an entry's match: exact: value; lpm: (value, prefix length); ternary: (value, mask); range: (low, high)
MatchElement = int | tuple[int, int]
Match = tuple[MatchElement, ...]


class TableError(Exception):
    """An entry cannot be written. `kind`: exists, missing, full, or invalid."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(slots=True, eq=False)
class Entry:
    """`action`: index in the table's actions, -1 for none. `packets`, `octets`: its direct counter."""

    match: Match
    priority: int
    action: int
    arguments: tuple[int, ...]
    packets: int = 0
    octets: int = 0
    meter: Meter | None = None
    constant: bool = False
    metadata: bytes = b""
    controller_metadata: int = 0


class Table:
    def __init__(self, info: TableInfo) -> None:
        self.info = info
        self.single = len(info.keys) == 1
        self.exact = all(key.kind == "exact" for key in info.keys)
        self.entries: dict[tuple[Match, int], Entry] = {}
        self.find: dict[object, Entry] = {}
        self._ordered: list[Entry] = []
        self._lpm = next((place for place, key in enumerate(info.keys) if key.kind == "lpm"), None)
        self.prioritized = not self.exact and info.kind != "lpm"
        self.initial = self.miss = Entry((), 0, -1, ())
        if info.default_action is not None:
            self.initial = self.miss = self._entry((), 0, self.action_index(info.default_action), self._default())
        for position, entry in enumerate(info.entries):
            with construct(f"table {info.name}: entry {position}"):
                self._constant_entry(entry)

    def _default(self) -> tuple[int, ...]:
        return self.info.default_arguments

    def action_index(self, number: int) -> int:
        """Where the action with the program's id is among the table's."""
        for index, action in enumerate(self.info.actions):
            if action.id == number:
                return index
        raise ProgramError(f"table {self.info.name}: its default action {number} is none of its actions")

    def _constant_entry(self, entry: dict[str, Any]) -> None:
        match: list[MatchElement] = []
        for key, item in zip(self.info.keys, entry["match_key"], strict=True):
            if key.kind == "lpm":
                match.append((int(item["key"], 16), item["prefix_length"]))
            elif key.kind == "ternary":
                match.append((int(item["key"], 16), int(item["mask"], 16)))
            elif key.kind == "range":
                match.append((int(item["start"], 16), int(item["end"], 16)))
            else:
                match.append(int(item["key"]) if isinstance(item["key"], bool) else int(item["key"], 16))
        action = self.action_index(entry["action_entry"]["action_id"])
        arguments = tuple(int(value, 16) for value in entry["action_entry"]["action_data"])
        # BMv2 keeps the entry with the lowest number on top; here, as in P4Runtime, the highest is.
        priority = (1 << 24) - int(entry["priority"]) if self.prioritized else 0
        added = self.add(match, action, arguments, priority)
        added.constant = True

    # -- what packets do ----------------------------------------------------------------------------------------

    def look_up(self, key: object) -> Entry:
        """The entry for a key (a tuple, or the value alone if the table has one key) not in `find`; `miss` if none."""
        if self.exact:
            return self.miss
        values = (key,) if self.single else key
        assert isinstance(values, tuple)
        found = next((entry for entry in self._ordered if self._matches(entry, values)), self.miss)
        if len(self.find) >= CACHE_ENTRIES_MAX:
            self.find.clear()
        self.find[key] = found
        return found

    def _matches(self, entry: Entry, values: tuple[int, ...]) -> bool:
        for key, wanted, value in zip(self.info.keys, entry.match, values, strict=True):
            if isinstance(wanted, int):
                if value != wanted:
                    return False
            elif key.kind == "range":
                if not wanted[0] <= value <= wanted[1]:
                    return False
            elif key.kind == "lpm":
                if (value ^ wanted[0]) >> (key.width_bits - wanted[1]):
                    return False
            elif value & wanted[1] != wanted[0]:
                return False
        return True

    # -- what controllers do ------------------------------------------------------------------------------------

    def canonical(self, match: Iterable[MatchElement]) -> Match:
        """Checks a match and clears the bits it does not look at."""
        elements: list[MatchElement] = list(match)
        result: list[MatchElement] = []
        if len(elements) != len(self.info.keys):
            raise TableError("invalid", f"{len(elements)} match fields for {len(self.info.keys)} keys")
        for key, element in zip(self.info.keys, elements, strict=True):
            top = (1 << key.width_bits) - 1
            parts = (element,) if isinstance(element, int) else element
            if not all(0 <= part <= top for part in parts) and key.kind != "lpm":
                raise TableError("invalid", f"match field {key.name} has more than {key.width_bits} bits")
            if isinstance(element, int):
                result.append(element)
            elif key.kind == "lpm":
                value, length = element
                if not (0 <= value <= top and 0 <= length <= key.width_bits):
                    raise TableError("invalid", f"match field {key.name}: {value:#x}/{length} is no prefix")
                result.append((value & (top ^ (top >> length)), length))
            elif key.kind == "ternary":
                result.append((element[0] & element[1], element[1]))
            elif element[0] > element[1]:
                raise TableError("invalid", f"match field {key.name}: {element[0]} is above {element[1]}")
            else:
                result.append(element)
        return tuple(result)

    def _entry(self, match: Match, priority: int, action: int, arguments: Sequence[int]) -> Entry:
        info = self.action(action)
        if len(arguments) != len(info.parameter_widths_bits):
            raise TableError(
                "invalid", f"action {info.name} has {len(info.parameter_names)} parameters, not {len(arguments)}"
            )
        for name, width, value in zip(info.parameter_names, info.parameter_widths_bits, arguments, strict=True):
            if not 0 <= value < 1 << width:
                raise TableError("invalid", f"action {info.name}: parameter {name} has more than {width} bits")
        return Entry(match, priority, action, tuple(arguments))

    def action(self, index: int) -> Action:
        return self.info.actions[index]

    def get(self, match: Iterable[MatchElement], priority: int = 0) -> Entry | None:
        return self.entries.get((self.canonical(match), priority))

    def add(self, match: Iterable[MatchElement], action: int, arguments: Sequence[int], priority: int = 0) -> Entry:
        canonical = self.canonical(match)
        if (canonical, priority) in self.entries:
            raise TableError("exists", f"table {self.info.name} has this entry already")
        if len(self.entries) >= self.info.size:
            raise TableError("full", f"table {self.info.name} is full: {self.info.size} entries")
        entry = self._entry(canonical, priority, action, arguments)
        self.entries[canonical, priority] = entry
        self._changed(entry)
        return entry

    def modify(self, match: Iterable[MatchElement], action: int, arguments: Sequence[int], priority: int = 0) -> Entry:
        """Another action for an entry. Its counter goes on."""
        old = self._existing(match, priority)
        new = self._entry(old.match, priority, action, arguments)
        # One assignment, so that no packet sees the new action with the old arguments.
        new.packets, new.octets, new.meter = old.packets, old.octets, old.meter
        self.entries[old.match, priority] = new
        self._changed(new)
        return new

    def delete(self, match: Iterable[MatchElement], priority: int = 0) -> None:
        entry = self._existing(match, priority)
        del self.entries[entry.match, priority]
        if self.exact:
            del self.find[self._key(entry)]
        self._changed(None)

    def _existing(self, match: Iterable[MatchElement], priority: int) -> Entry:
        entry = self.entries.get((self.canonical(match), priority))
        if entry is None:
            raise TableError("missing", f"table {self.info.name} has no such entry")
        return entry

    def set_default(self, action: int, arguments: Sequence[int]) -> Entry:
        old, self.miss = self.miss, self._entry((), 0, action, arguments)
        self.miss.packets, self.miss.octets = old.packets, old.octets
        if not self.exact:
            self.find.clear()
        return self.miss

    def reset_default(self) -> None:
        self.miss = Entry((), 0, self.initial.action, self.initial.arguments)
        if not self.exact:
            self.find.clear()

    def _key(self, entry: Entry) -> object:
        return entry.match[0] if self.single else entry.match

    def _changed(self, entry: Entry | None) -> None:
        if self.exact:
            if entry is not None:
                self.find[self._key(entry)] = entry
            return
        lpm = self._lpm
        if self.prioritized or lpm is None:
            self._ordered = sorted(self.entries.values(), key=lambda entry: -entry.priority)
        else:
            self._ordered = sorted(self.entries.values(), key=lambda entry: -_length(entry.match[lpm]))
        self.find.clear()


def _length(element: MatchElement) -> int:
    """A prefix's length."""
    return 0 if isinstance(element, int) else element[1]
