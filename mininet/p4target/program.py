"""A program as p4c's BMv2 back end writes it (JSON), read into objects and checked.

Format: behavioral-model, docs/JSON_format.md. What this target does not do is refused here or by the code generator,
by name: `ProgramError` says which construct.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ARRAY_SIZE_MAX = 1 << 22
WIDTH_MAX_BITS = 1 << 16


# What Python raises on values that are not of the form they should have.
MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError)


class ProgramError(Exception):
    """The JSON is broken, or uses something this target does not have. The text names the construct."""


@contextmanager
def construct(name: str) -> Iterator[None]:
    """Whatever goes wrong inside is an error of this construct."""
    try:
        yield
    except ProgramError as error:
        raise ProgramError(f"{name}: {error}") from error
    except KeyError as error:
        raise ProgramError(f"{name}: {error} is missing or names nothing") from error
    except MALFORMED as error:
        raise ProgramError(f"{name}: not of the expected form ({error})") from error


@dataclass(frozen=True)
class Field:
    """`shift_bits`: how far its last bit is from the header's last bit."""

    name: str
    width_bits: int
    signed: bool
    saturating: bool
    shift_bits: int

    @property
    def mask(self) -> int:
        return (1 << self.width_bits) - 1


@dataclass(frozen=True)
class Header:
    """A header or metadata instance."""

    name: str
    index: int
    type_name: str
    metadata: bool
    fields: dict[str, Field]
    width_bits: int

    @property
    def width_bytes(self) -> int:
        return self.width_bits // 8


@dataclass(frozen=True)
class Action:
    id: int
    name: str
    parameter_names: tuple[str, ...]
    parameter_widths_bits: tuple[int, ...]
    primitives: list[dict[str, Any]]


@dataclass(frozen=True)
class Key:
    """One element of a table's key. `target`: header and field, or (header, "$valid$")."""

    name: str
    kind: str
    target: tuple[str, str]
    width_bits: int
    mask: int | None


@dataclass(frozen=True)
class Table:
    name: str
    index: int
    kind: str
    keys: tuple[Key, ...]
    size: int
    actions: tuple[Action, ...]
    next_by_action: dict[int, str | None]
    next_hit: str | None
    next_miss: str | None
    by_hit: bool
    counted: bool
    meter: str | None
    default_action: int | None
    default_arguments: tuple[int, ...]
    default_constant: bool
    entries: list[dict[str, Any]]
    constant: bool

    def next_nodes(self) -> set[str | None]:
        return {self.next_hit, self.next_miss} if self.by_hit else set(self.next_by_action.values())


@dataclass(frozen=True)
class Conditional:
    name: str
    expression: dict[str, Any]
    next_true: str | None
    next_false: str | None

    def next_nodes(self) -> set[str | None]:
        return {self.next_true, self.next_false}


Node = Table | Conditional


@dataclass(frozen=True)
class Control:
    """The ingress or egress pipeline: its nodes by name, each before those that may follow it."""

    name: str
    first: str | None
    nodes: dict[str, Node]


@dataclass(frozen=True)
class Array:
    """A counter, meter or register array. `table`: whose entries it belongs to, if it is direct."""

    name: str
    index: int
    size: int
    table: str | None
    width_bits: int = 64
    unit: str = "packets"
    target: tuple[str, str] | None = None


@dataclass(frozen=True)
class Learn:
    """A digest: what `generate_digest` sends, as expressions."""

    id: int
    name: str
    elements: list[dict[str, Any]]


@dataclass
class Program:
    headers: dict[str, Header] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    aliases: dict[str, tuple[str, str]] = field(default_factory=dict)
    parser_first: str | None = None
    parser_states: dict[str, dict[str, Any]] = field(default_factory=dict)
    deparser_order: list[str] = field(default_factory=list)
    actions: dict[int, Action] = field(default_factory=dict)
    ingress: Control = Control("ingress", None, {})
    egress: Control = Control("egress", None, {})
    counters: dict[str, Array] = field(default_factory=dict)
    meters: dict[str, Array] = field(default_factory=dict)
    registers: dict[str, Array] = field(default_factory=dict)
    calculations: dict[str, dict[str, Any]] = field(default_factory=dict)
    checksums: list[dict[str, Any]] = field(default_factory=list)
    learn_lists: dict[int, Learn] = field(default_factory=dict)

    @property
    def tables(self) -> dict[str, Table]:
        nodes = {**self.ingress.nodes, **self.egress.nodes}
        return {name: node for name, node in nodes.items() if isinstance(node, Table)}

    def field_of(self, header: str, name: str) -> Field:
        if header not in self.headers:
            raise ProgramError(f"no header {header!r}")
        if name not in self.headers[header].fields:
            raise ProgramError(f"header {header!r} has no field {name!r}")
        return self.headers[header].fields[name]

    def standard(self, name: str) -> tuple[str, str] | None:
        """Where the program keeps a field the architecture knows, for instance `intrinsic_metadata.mcast_grp`."""
        if name in self.aliases:
            return self.aliases[name]
        header, _, member = name.partition(".")
        known = header in self.headers and member in self.headers[header].fields
        return (header, member) if known else None


def read_program(path: Path) -> Program:
    """The program of a file."""
    try:
        return load_program(path.read_text())
    except OSError as error:
        raise ProgramError(f"{path}: {error.strerror}") from error
    except ProgramError as error:
        raise ProgramError(f"{path}: {error}") from error


def load_program(text: str | bytes) -> Program:
    """The program of a JSON text."""
    try:
        root = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProgramError(f"not JSON: {error}") from error
    if not isinstance(root, dict) or "header_types" not in root or "pipelines" not in root:
        raise ProgramError("not a program for BMv2: it has no header_types or pipelines")
    meta = root.get("__meta__")
    version = meta.get("version") if isinstance(meta, dict) else None
    if version is not None and (not isinstance(version, list) or version[:1] != [2]):
        raise ProgramError(f"__meta__.version is {version}, this target reads version 2")
    try:
        return _Reader(root).program
    except RecursionError as error:
        raise ProgramError("nested too deeply") from error
    except MALFORMED as error:
        raise ProgramError(f"not of the expected form ({error})") from error


class _Reader:
    def __init__(self, root: dict[str, Any]) -> None:
        self.root, self.program = root, Program()
        for kind in ("header_union_types", "header_unions", "header_union_stacks"):
            if root.get(kind):
                raise ProgramError(f"{kind}: header unions are not supported")
        for kind in ("header_stacks", "parse_vsets"):
            if root.get(kind):
                raise ProgramError(f"{kind}: not supported")
        if root.get("extern_instances"):
            raise ProgramError("extern_instances: externs beyond v1model are not supported")
        self._types: dict[str, tuple[dict[str, Field], int]] = {}
        self._tables = 0
        self.each("header_types", self._header_type)
        self.each("headers", self._header)
        self._names()
        self.only("parsers", self._parser)
        self.only("deparsers", self._deparser)
        self.each("counter_arrays", self._counter)
        self.each("meter_arrays", self._meter)
        self.each("register_arrays", self._register)
        self.each("calculations", self._calculation)
        self.each("checksums", self._checksum)
        self.each("actions", self._action)
        self.each("pipelines", self._control)
        for name in ("ingress", "egress"):
            if all(item["name"] != name for item in root["pipelines"]):
                raise ProgramError(f"pipelines: there is no {name}")

    def each(self, kind: str, read: Callable[[dict[str, Any]], None]) -> None:
        """Reads the items of a list of the root; errors name the item."""
        items = self.root.get(kind) or []
        if not isinstance(items, list):
            raise ProgramError(f"{kind}: not a list")
        for position, item in enumerate(items):
            with construct(f"{kind}: {item.get('name', position) if isinstance(item, dict) else position}"):
                read(item)

    def only(self, kind: str, read: Callable[[dict[str, Any]], None]) -> None:
        items = self.root.get(kind)
        if not isinstance(items, list) or len(items) != 1:
            raise ProgramError(f"{kind}: v1model has exactly one")
        self.each(kind, read)

    def _header_type(self, item: dict[str, Any]) -> None:
        fields: dict[str, Field] = {}
        widths = [entry[1] for entry in item["fields"]]
        if "*" in widths:
            raise ProgramError("fields of variable length (varbit) are not supported")
        total = left = sum(widths)
        if any(width <= 0 for width in widths) or total > WIDTH_MAX_BITS:
            raise ProgramError(f"{total} bits in all, or a field without bits")
        for name, width, *flags in item["fields"]:
            left -= width
            signed, saturating = (*[bool(flag) for flag in flags], False, False)[:2]
            fields[name] = Field(name, width, signed, saturating, left)
        self._types[item["name"]] = (fields, total)

    def _header(self, item: dict[str, Any]) -> None:
        fields, total = self._types[item["header_type"]]
        metadata = bool(item.get("metadata"))
        if not metadata and total % 8:
            raise ProgramError(f"{total} bits are no whole number of bytes")
        name, index = item["name"], len(self.program.headers)
        self.program.headers[name] = Header(name, index, item["header_type"], metadata, fields, total)

    def _names(self) -> None:
        program = self.program
        with construct("errors"):
            program.errors = {name: int(value) for name, value in self.root.get("errors") or []}
        with construct("field_aliases"):
            program.aliases = {name: (target[0], target[1]) for name, target in self.root.get("field_aliases") or []}
            for target in program.aliases.values():
                program.field_of(*target)
        self.each("learn_lists", self._learn)

    def _learn(self, item: dict[str, Any]) -> None:
        self.program.learn_lists[item["id"]] = Learn(item["id"], item["name"], item["elements"])

    def _parser(self, item: dict[str, Any]) -> None:
        self.program.parser_first = item["init_state"]
        self.program.parser_states = {state["name"]: state for state in item["parse_states"]}
        if self.program.parser_first is not None:
            _ = self.program.parser_states[self.program.parser_first]

    def _deparser(self, item: dict[str, Any]) -> None:
        self.program.deparser_order = list(item["order"])
        for name in self.program.deparser_order:
            _ = self.program.headers[name]
        if item.get("primitives"):
            raise ProgramError("statements other than emit are not supported")

    def _counter(self, item: dict[str, Any]) -> None:
        table = item["binding"] if item.get("is_direct") else None
        self._array(self.program.counters, Array(item["name"], 0, item.get("size") or 0, table))

    def _meter(self, item: dict[str, Any]) -> None:
        direct = bool(item.get("is_direct"))
        target = (item["result_target"][0], item["result_target"][1]) if direct else None
        table = item["binding"] if direct else None
        if item["rate_count"] != 2 or item["type"] not in ("bytes", "packets"):
            raise ProgramError("only meters of two rates, of bytes or packets")
        array = Array(item["name"], 0, item.get("size") or 0, table, unit=item["type"], target=target)
        self._array(self.program.meters, array)

    def _register(self, item: dict[str, Any]) -> None:
        self._array(self.program.registers, Array(item["name"], 0, item["size"], None, width_bits=item["bitwidth"]))

    def _array(self, arrays: dict[str, Array], array: Array) -> None:
        if not 0 <= array.size <= ARRAY_SIZE_MAX:
            raise ProgramError(f"{array.size} elements; this target keeps at most {ARRAY_SIZE_MAX}")
        arrays[array.name] = replace(array, index=len(arrays))

    def _calculation(self, item: dict[str, Any]) -> None:
        self.program.calculations[item["name"]] = item

    def _checksum(self, item: dict[str, Any]) -> None:
        if item.get("type", "generic") != "generic":
            raise ProgramError(f"type {item['type']!r} is not supported")
        self.program.field_of(*item["target"])
        self.program.checksums.append(item)

    def _action(self, item: dict[str, Any]) -> None:
        data = item["runtime_data"]
        if not all(isinstance(each["bitwidth"], int) and 0 < each["bitwidth"] <= WIDTH_MAX_BITS for each in data):
            raise ProgramError("a parameter's bitwidth is no number of bits")
        self.program.actions[item["id"]] = Action(
            item["id"],
            item["name"],
            tuple(entry["name"] for entry in data),
            tuple(entry["bitwidth"] for entry in data),
            item["primitives"],
        )

    def _control(self, item: dict[str, Any]) -> None:
        if item["name"] not in ("ingress", "egress"):
            raise ProgramError("v1model's pipelines are ingress and egress")
        if item.get("action_profiles"):
            raise ProgramError("action profiles and selectors are not supported")
        if item.get("action_calls"):
            raise ProgramError("action_calls are not supported")
        nodes: dict[str, Node] = {}
        for table in item["tables"]:
            with construct(f"table {table.get('name')}"):
                nodes[table["name"]] = self._table(table, self._tables)
            self._tables += 1
        for node in item["conditionals"]:
            with construct(f"conditional {node.get('name')}"):
                nodes[node["name"]] = Conditional(
                    node["name"], node["expression"], node["true_next"], node["false_next"]
                )
        control = Control(item["name"], item["init_table"], in_order(item["init_table"], nodes))
        setattr(self.program, item["name"], control)

    def _key(self, item: dict[str, Any]) -> Key:
        kind = {"optional": "ternary"}.get(item["match_type"], item["match_type"])
        if kind not in ("exact", "lpm", "ternary", "range", "valid"):
            raise ProgramError(f"match kind {kind!r} is not supported")
        if kind == "valid":
            kind, target = "exact", (str(item["target"]), "$valid$")
        else:
            target = (item["target"][0], item["target"][1])
        if target[1] == "$valid$":
            width = 1
            _ = self.program.headers[target[0]]
        else:
            width = self.program.field_of(*target).width_bits
        mask = item.get("mask")
        return Key(
            item.get("name") or ".".join(target), kind, target, width, int(mask, 16) if mask is not None else None
        )

    def _actions_of(self, item: dict[str, Any]) -> Iterator[Action]:
        """Actions by id; by name in what old compilers wrote."""
        if "action_ids" in item:
            yield from (self.program.actions[number] for number in item["action_ids"])
            return
        by_name = {action.name: action for action in self.program.actions.values()}
        yield from (by_name[name] for name in item["actions"])

    def _table(self, item: dict[str, Any], index: int) -> Table:
        if item["type"] != "simple":
            raise ProgramError(f"implementation {item['type']!r} (action profile) is not supported")
        actions = tuple(self._actions_of(item))
        follow = item["next_tables"]
        by_hit = "__HIT__" in follow or "__MISS__" in follow
        by_name = {} if by_hit else {action.id: follow[action.name] for action in actions}
        keys = tuple(self._key(key) for key in item["key"])
        if sum(key.kind == "lpm" for key in keys) > 1 and item["match_type"] == "lpm":
            raise ProgramError("more than one lpm field")
        default = item.get("default_entry") or {}
        direct = [meter for meter in self.program.meters.values() if meter.table == item["name"]]
        base = item.get("base_default_next")
        return Table(
            name=item["name"],
            index=index,
            kind={"optional": "ternary"}.get(item["match_type"], item["match_type"]),
            keys=keys,
            size=item["max_size"],
            actions=actions,
            next_by_action=by_name,
            next_hit=follow.get("__HIT__", base) if by_hit else None,
            next_miss=follow.get("__MISS__", base) if by_hit else base,
            by_hit=by_hit,
            counted=bool(item.get("with_counters")),
            meter=direct[0].name if direct else None,
            default_action=default.get("action_id"),
            default_arguments=tuple(int(value, 16) for value in default.get("action_data", [])),
            default_constant=bool(default.get("action_const")),
            entries=list(item.get("entries") or []),
            constant="entries" in item,
        )


def in_order(first: str | None, nodes: dict[str, Node]) -> dict[str, Node]:
    """The nodes that can be reached, each before its followers."""
    done: list[str] = []
    state: dict[str, int] = {}
    walk: list[tuple[str, Iterator[str]]] = []

    def enter(name: str) -> None:
        if name not in nodes:
            raise ProgramError(f"no table or conditional {name!r}")
        state[name] = 1
        walk.append((name, iter(sorted(follower for follower in nodes[name].next_nodes() if follower is not None))))

    if first is not None:
        enter(first)
    while walk:
        name, followers = walk[-1]
        follower = next(followers, None)
        if follower is None:
            walk.pop()
            state[name] = 2
            done.append(name)
        elif state.get(follower) == 1:
            raise ProgramError(f"{follower!r} follows itself")
        elif follower not in state:
            enter(follower)
    return {name: nodes[name] for name in reversed(done)}
