"""p4info joined with the program it describes: ids of the controllers' world to objects of the pipeline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from finsy.proto import p4i
from rostrum.lab.p4target.pipeline import Pipeline
from rostrum.lab.p4target.program import ProgramError
from rostrum.lab.p4target.status import invalid
from rostrum.lab.p4target.tables import Table

MatchType = p4i.MatchField.MatchType
Scope = p4i.ActionRef.Scope
KINDS = {
    MatchType.EXACT: "exact",
    MatchType.LPM: "lpm",
    MatchType.TERNARY: "ternary",
    MatchType.OPTIONAL: "ternary",
    MatchType.RANGE: "range",
}
T = TypeVar("T")


@dataclass(frozen=True)
class ActionBinding:
    """`index`: of the action in its table; `parameters`: ids in the order of the program."""

    id: int
    index: int
    parameters: tuple[int, ...]
    names: tuple[str, ...]
    widths_bits: tuple[int, ...]
    scope: int


@dataclass(frozen=True)
class MatchBinding:
    id: int
    name: str
    kind: str
    optional: bool
    width_bits: int


@dataclass
class TableBinding:
    """`counter`, `meter`: ids of the direct ones, 0 for none."""

    id: int
    table: Table
    fields: tuple[MatchBinding, ...]
    actions: dict[int, ActionBinding]
    constant: bool
    constant_default: bool
    prioritized: bool
    counter: int = 0
    meter: int = 0
    by_index: dict[int, ActionBinding] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.table.info.name


class Info:
    """Everything a controller can name, by id."""

    def __init__(self, p4info: Any, pipeline: Pipeline) -> None:
        """Raises ProgramError if the p4info is of another program."""
        self.p4info, self.pipeline, program = p4info, pipeline, pipeline.program
        self.tables = {item.preamble.id: self._table(item) for item in p4info.tables}
        self.counters = self._named(p4info.counters, pipeline.counters, "counter")
        self.meters = self._named(p4info.meters, pipeline.meters, "meter")
        self.registers = self._named(p4info.registers, pipeline.registers, "register")
        learned = {learn.name: learn.id for learn in program.learn_lists.values()}
        self.digests = self._named(p4info.digests, learned, "digest")
        self.digest_by_learn = {learned[item.preamble.name]: number for number, item in self.digests.items()}
        self.direct_counters = {item.preamble.id: item for item in p4info.direct_counters}
        self.direct_meters = {item.preamble.id: item for item in p4info.direct_meters}
        for item in p4info.direct_counters:
            self._direct(item, "counter")
        for item in p4info.direct_meters:
            self._direct(item, "meter")
        headers = {item.preamble.name: item for item in p4info.controller_packet_metadata}
        self.packet_in, self.packet_out = headers.get("packet_in"), headers.get("packet_out")
        if p4info.action_profiles:
            raise ProgramError("p4info: action profiles are not supported")

    @staticmethod
    def _named(items: Iterable[Any], known: dict[str, T], kind: str) -> dict[int, Any]:
        found = {}
        for item in items:
            if item.preamble.name not in known:
                raise ProgramError(f"p4info: {kind} {item.preamble.name!r} is not in the program")
            found[item.preamble.id] = item
        return found

    def _direct(self, item: Any, kind: str) -> None:
        if item.direct_table_id not in self.tables:
            raise ProgramError(f"p4info: direct {kind} {item.preamble.name!r} is of no table")
        setattr(self.tables[item.direct_table_id], kind, item.preamble.id)

    def _table(self, item: Any) -> TableBinding:
        name = item.preamble.name
        if name not in self.pipeline.tables:
            raise ProgramError(f"p4info: table {name!r} is not in the program")
        table = self.pipeline.tables[name]
        if len(item.match_fields) != len(table.info.keys):
            raise ProgramError(f"p4info: table {name!r} has {len(item.match_fields)} match fields, "
                               f"the program {len(table.info.keys)}")  # fmt: skip
        fields = self._fields(item, table)
        actions = {ref.id: self._action(ref, table) for ref in item.action_refs}
        binding = TableBinding(
            id=item.preamble.id,
            table=table,
            fields=fields,
            actions=actions,
            constant=item.is_const_table,
            constant_default=bool(item.const_default_action_id) or table.info.default_constant,
            prioritized=any(each.kind in ("ternary", "range") for each in fields),
        )
        # Several refs may be one action of the program; a constant default's ref comes last.
        binding.by_index = {action.index: action for action in actions.values()}
        return binding

    def _fields(self, item: Any, table: Table) -> tuple[MatchBinding, ...]:
        """In the order of the program's key, which is p4info's unless names say otherwise."""
        by_name = {each.name: each for each in item.match_fields}
        names = [key.name for key in table.info.keys]
        ordered = [by_name[name] for name in names] if set(names) == set(by_name) else list(item.match_fields)
        fields = []
        for key, each in zip(table.info.keys, ordered, strict=True):
            kind = KINDS.get(each.match_type)
            if kind != key.kind or (each.bitwidth and each.bitwidth != key.width_bits):
                raise ProgramError(
                    f"p4info: table {table.info.name!r}: match field {each.name!r} is {each.bitwidth} bits, "
                    f"{kind or 'of an unknown kind'}; in the program {key.width_bits} bits, {key.kind}"
                )
            optional = each.match_type == MatchType.OPTIONAL
            fields.append(MatchBinding(each.id, each.name, kind, optional, key.width_bits))
        return tuple(fields)

    def _action(self, ref: Any, table: Table) -> ActionBinding:
        found = [action for action in self.p4info.actions if action.preamble.id == ref.id]
        name = found[0].preamble.name if found else None
        for index, action in enumerate(table.info.actions):
            if action.name == name:
                by_name = {each.name: each.id for each in found[0].params}
                if set(by_name) != set(action.parameter_names):
                    raise ProgramError(f"p4info: action {name!r} has other parameters than in the program")
                ids = tuple(by_name[each] for each in action.parameter_names)
                return ActionBinding(
                    ref.id, index, ids, action.parameter_names, action.parameter_widths_bits, ref.scope
                )
        raise ProgramError(f"p4info: table {table.info.name!r}: the program does not have its action {name or ref.id}")

    def action_name(self, number: int) -> str:
        return next((each.preamble.name for each in self.p4info.actions if each.preamble.id == number), str(number))

    def table(self, number: int) -> TableBinding:
        if number not in self.tables:
            raise invalid(f"table_id {number:#010x}: the program has no such table")
        return self.tables[number]


def of(items: dict[int, Any], number: int, kind: str) -> Any:
    """The p4info of a counter, meter, ... with an id."""
    if number not in items:
        raise invalid(f"{kind}_id {number:#010x}: the program has no such {kind}")
    return items[number]
