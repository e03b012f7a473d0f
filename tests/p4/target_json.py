"""Small programs for BMv2, written down in Python: what p4c would make, without p4c."""

from __future__ import annotations

import json
from typing import Any

from rostrum.lab.p4target.program import Program, load_program
from rostrum.lab.p4target.switch import Switch

Node = dict[str, Any]

STANDARD = [
    *(("ingress_port", 9), ("egress_spec", 9), ("egress_port", 9), ("instance_type", 32), ("packet_length", 32)),
    *(("enq_timestamp", 32), ("enq_qdepth", 19), ("deq_timedelta", 32), ("deq_qdepth", 19)),
    *(("ingress_global_timestamp", 48), ("egress_global_timestamp", 48), ("mcast_grp", 16), ("egress_rid", 16)),
    *(("checksum_error", 1), ("parser_error", 32), ("priority", 3)),
]
ALIASES = {
    "queueing_metadata": ("enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth"),
    "intrinsic_metadata": (
        *("ingress_global_timestamp", "egress_global_timestamp", "mcast_grp", "egress_rid", "priority"),
    ),
}
ERRORS = ["NoError", "PacketTooShort", "NoMatch", "StackOutOfBounds", "HeaderTooShort"]
ERRORS += ["ParserTimeout", "ParserInvalidArgument"]


def field(name: str) -> Node:
    """`h.a`, or `s.x` for standard metadata, `m.x` for the program's own."""
    header, _, member = name.partition(".")
    return {"type": "field", "value": [{"s": "standard_metadata", "m": "scalars"}.get(header, header), member]}


def number(value: int) -> Node:
    return {"type": "hexstr", "value": hex(value)}


def parameter(index: int) -> Node:
    return {"type": "runtime_data", "value": index}


def header(name: str) -> Node:
    return {"type": "header", "value": name}


def stack(name: str) -> Node:
    return {"type": "header_stack", "value": name}


def op(name: str, left: Node | None, right: Node | int | None, cond: Node | None = None) -> Node:
    value: Node = {"op": name, "left": left, "right": right}
    if cond is not None:
        value["cond"] = cond
    return {"type": "expression", "value": value}


def call(name: str, *parameters: Node) -> Node:
    return {"op": name, "parameters": list(parameters)}


def assign(target: str, value: Node) -> Node:
    return call("assign", field(target), value)


def to_port(port: int) -> Node:
    return assign("s.egress_spec", number(port))


def extract(name: str) -> Node:
    return call("extract", {"type": "regular", "value": name})


def state(name: str, ops: list[Node], key: list[Node] | None = None, **transitions: Any) -> Node:
    """`transitions`: list of (value, mask or None, next state), and `default`."""
    width = sum((item.get("bytes", 1)) for item in key or [])
    rows = [
        {
            "type": "hexstr",
            "value": f"0x{value:0{2 * width}x}",
            "mask": None if mask is None else f"0x{mask:0{2 * width}x}",
            "next_state": follower,
        }
        for value, mask, follower in transitions.get("rows", [])
    ]
    rows.append({"type": "default", "value": None, "mask": None, "next_state": transitions.get("default")})
    keys = [{name: value for name, value in item.items() if name != "bytes"} for item in key or []]
    return {"name": name, "id": 0, "parser_ops": ops, "transition_key": keys, "transitions": rows}


class Builder:
    """Collects a program. Statements of a control are tables without keys, as p4c makes them."""

    def __init__(self) -> None:
        self.root: dict[str, Any] = {
            "__meta__": {"version": [2, 23]},
            "header_types": [{"name": "standard_metadata", "id": 0, "fields": [[*item, False] for item in STANDARD]}],
            "headers": [
                {"name": "standard_metadata", "id": 0, "header_type": "standard_metadata", "metadata": True},
            ],
            "header_stacks": [],
            "errors": [[name, value] for value, name in enumerate(ERRORS)],
            "field_aliases": [
                [f"{space}.{name}", ["standard_metadata", name]] for space, names in ALIASES.items() for name in names
            ],
            "parsers": [{"name": "parser", "id": 0, "init_state": None, "parse_states": []}],
            "deparsers": [{"name": "deparser", "id": 0, "order": []}],
            "actions": [],
            "pipelines": [self._control("ingress"), self._control("egress")],
            **{
                name: []
                for name in (
                    *("counter_arrays", "meter_arrays", "register_arrays", "calculations", "checksums"),
                    *("learn_lists", "field_lists", "parse_vsets"),
                )
            },
        }

    @staticmethod
    def _control(name: str) -> Node:
        return {"name": name, "id": 0, "init_table": None, "tables": [], "conditionals": []}

    def header(self, name: str, *fields: tuple[Any, ...], metadata: bool = False) -> Builder:
        """Fields: (name, bits[, signed[, saturating]])."""
        kind = f"{name}_t"
        self.root["header_types"].append({"name": kind, "id": 0, "fields": [list(item) for item in fields]})
        item = {"name": name, "id": len(self.root["headers"]), "header_type": kind, "metadata": metadata}
        self.root["headers"].append(item)
        if not metadata:
            self.root["deparsers"][0]["order"].append(name)
        return self

    def metadata(self, *fields: tuple[Any, ...]) -> Builder:
        return self.header("scalars", *fields, metadata=True)

    def parser(self, *states: Node) -> Builder:
        self.root["parsers"][0].update(init_state=states[0]["name"], parse_states=list(states))
        return self

    def action(self, name: str, primitives: list[Node], *parameters: tuple[str, int]) -> int:
        number = len(self.root["actions"])
        data = [{"name": each, "bitwidth": bits} for each, bits in parameters]
        self.root["actions"].append({"name": name, "id": number, "runtime_data": data, "primitives": primitives})
        return number

    def table(self, control: str, name: str, keys: list[tuple[str, str]], actions: list[int], **more: Any) -> Builder:
        """`keys`: (field, kind). `next`: the follower of all actions, or a dictionary. `default`: action, arguments."""
        kinds = {kind for _, kind in keys}
        kind = next((each for each in ("range", "ternary", "lpm") if each in kinds), "exact")
        follow = more.get("next")
        names = [self.root["actions"][number]["name"] for number in actions]
        default, arguments = more.get("default", (actions[0], []))
        item = {
            "name": name,
            "id": 0,
            "match_type": kind,
            "type": "simple",
            "max_size": more.get("size", 1024),
            "with_counters": more.get("counted", False),
            "action_ids": actions,
            "actions": names,
            "base_default_next": None if isinstance(follow, dict) else follow,
            "next_tables": follow if isinstance(follow, dict) else dict.fromkeys(names, follow),
            "default_entry": {
                "action_id": default,
                "action_const": more.get("constant", False),
                "action_data": [hex(value) for value in arguments],
                "action_entry_const": more.get("constant", False),
            },
            "key": [
                {"match_type": kind, "name": target, "target": field(target)["value"], "mask": None}
                for target, kind in keys
            ],
        }
        if "entries" in more:
            item["entries"] = more["entries"]
        pipeline = self.pipeline(control)
        pipeline["tables"].append(item)
        if more.get("first", len(pipeline["tables"]) == 1 and not pipeline["conditionals"]):
            pipeline["init_table"] = name
        return self

    def statements(self, control: str, primitives: list[Node], name: str = "", follower: str | None = None) -> Builder:
        """Statements of a control."""
        name = name or f"{control}_statements"
        number = self.action(f"{name}_action", primitives)
        return self.table(control, name, [], [number], constant=True, next=follower)

    def conditional(
        self, control: str, name: str, expression: Node, yes: str | None, no: str | None, first: bool = True
    ) -> Builder:
        item = {"name": name, "id": 0, "expression": expression, "true_next": yes, "false_next": no}
        self.pipeline(control)["conditionals"].append(item)
        if first:
            self.pipeline(control)["init_table"] = name
        return self

    def pipeline(self, name: str) -> Node:
        return next(item for item in self.root["pipelines"] if item["name"] == name)

    def add(self, kind: str, **item: Any) -> Builder:
        """An item of a list of the root: counter_arrays, calculations, ..."""
        self.root[kind].append({"id": len(self.root[kind]) + 1, **item})
        return self

    @property
    def text(self) -> str:
        return json.dumps(self.root)

    def program(self) -> Program:
        return load_program(self.text)

    def switch(self, **options: Any) -> Switch:
        made = Switch(**options)
        made.load(self.program())
        return made


def byte_header() -> Builder:
    """A header `h` of bytes a, b, c, d, parsed from every frame."""
    built = Builder().header("h", ("a", 8), ("b", 8), ("c", 8), ("d", 8))
    return built.parser(state("start", [extract("h")]))
