"""Programs that the reference target cannot run are refused by name, and never loaded half."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rostrum.lab.p4target.program import ProgramError, load_program, read_program
from rostrum.lab.p4target.switch import Switch

from tests.p4.target_json import Builder, assign, byte_header, call, field, header, number, op, state, to_port


def small() -> Builder:
    built = byte_header().metadata(("x", 8))
    built.conditional("ingress", "c", op("==", field("h.a"), number(1)), "t", None)
    send = built.action("send", [call("assign", field("s.egress_spec"), number(1)), assign("m.x", number(1))])
    built.table("ingress", "t", [("h.b", "ternary")], [send])
    built.add("calculations", name="calc", algo="csum16", input=[field("h.a"), field("h.b")])
    built.add("checksums", name="check", target=["h", "c"], type="generic", calculation="calc", if_cond=None)
    return built


def refused(built: Builder) -> str:
    switch = Switch()
    with pytest.raises(ProgramError) as caught:
        switch.load(built.program())
    assert switch.pipeline is None
    return str(caught.value)


def test_small__loads() -> None:
    assert small().switch().inject(1, b"\1\0\0\0")


def change(**parts: Any) -> Callable[[Builder], None]:
    return lambda built: built.root.update(parts)


def primitive(item: dict[str, Any]) -> Callable[[Builder], None]:
    return lambda built: built.root["actions"][0]["primitives"].append(item)


def in_table(**parts: Any) -> Callable[[Builder], None]:
    return lambda built: built.pipeline("ingress")["tables"][0].update(parts)


def loop(built: Builder) -> None:
    built.pipeline("ingress")["tables"][0]["next_tables"] = {"send": "c"}


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (change(header_unions=[{"name": "u"}]), "header unions are not supported"),
        (change(header_stacks=[{"name": "s"}]), "header_stacks: not supported"),
        (change(parse_vsets=[{"name": "v"}]), "parse_vsets: not supported"),
        (change(extern_instances=[{"name": "x"}]), "externs beyond v1model"),
        (change(__meta__={"version": [3, 0]}), "reads version 2"),
        (change(parsers=[]), "parsers: v1model has exactly one"),
        (primitive(call("resubmit", number(1))), "primitive resubmit: not supported"),
        (primitive(call("frobnicate")), "ingress: t: action send: primitive frobnicate: not supported"),
        (primitive(assign("h.q", number(1))), "primitive assign: header 'h' has no field 'q'"),
        (primitive(assign("q.a", number(1))), "primitive assign: no header 'q'"),
        (primitive(call("assign", field("h.a"))), "action send: primitive assign: not of the expected form"),
        (primitive(assign("h.a", op("**", number(1), number(2)))), "operation '**': not supported"),
        (primitive(call("count", {"value": "c"}, number(1))), "primitive count: 'c' is missing"),
        (in_table(type="indirect", action_profile="ap"), "table t: implementation 'indirect' (action profile)"),
        (in_table(action_ids=[9]), "table t: 9 is missing or names nothing"),
        (in_table(key=[{"match_type": "fuzzy", "target": ["h", "a"]}]), "match kind 'fuzzy' is not supported"),
        (in_table(next_tables={"send": "nowhere"}), "no table or conditional 'nowhere'"),
        (loop, "'c' follows itself"),
        (change(calculations=[]), "checksum check: 'calc' is missing"),
        (change(calculations=[{"name": "calc", "algo": "md5", "input": []}]), "algorithm 'md5' is not supported"),
        (lambda built: built.header("g", ("a", 7)), "headers: g: 7 bits are no whole number of bytes"),
        (lambda built: built.header("g", ("a", "*")), "header_types: g_t: fields of variable length (varbit)"),
        (lambda built: built.parser(state("start", [call("guess")])), "parser state start: operation 0 (guess)"),
        (lambda built: built.parser(state("start", [], default="x")), "parser: no parser state 'x'"),
        (lambda built: built.add("register_arrays", name="r", size=1 << 40, bitwidth=8), "keeps at most"),
        (change(__meta__=True, pipelines=None), "not of the expected form"),
        (primitive(assign("h.a", {"type": "runtime_data", "value": -1})), "the action has no parameter -1"),
        (lambda built: built.root["actions"][0].update(runtime_data=[{"name": "p", "bitwidth": "9"}]), "bitwidth"),
    ],
)  # fmt: skip
def test_unsupported_or_broken__is_named(edit: Callable[[Builder], None], text: str) -> None:
    built = small()
    edit(built)
    assert text in refused(built)


def test_files(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="No such file"):
        read_program(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ProgramError, match=r"bad.json: not JSON"):
        read_program(tmp_path / "bad.json")
    with pytest.raises(ProgramError, match="not a program for BMv2"):
        load_program("[]")


def paths(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    found = [path] if path else []
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        found += paths(value, (*path, key))
    return found


ROOT = small().statements("egress", [call("add_header", header("h")), to_port(1)]).root
PLACES = paths(ROOT)
WRONG = st.sampled_from([None, True, -1, 1 << 70, "", "x", [], {}, [[]], {"type": "field"}, {"op": "+"}])


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PLACES), WRONG, st.binary(max_size=12))
def test_any_damage__is_a_program_error_or_harmless(place: tuple[Any, ...], wrong: Any, frame: bytes) -> None:
    """One value anywhere replaced: the program is refused with a reason, or it runs."""
    root = json.loads(json.dumps(ROOT))
    parent = root
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = wrong
    switch = Switch()
    try:
        switch.load(load_program(json.dumps(root)))
    except ProgramError as error:
        assert str(error)
        return
    switch.inject(1, frame)
