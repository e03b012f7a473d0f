"""Expressions, assignments and checksums of the reference target, against a plain evaluation of the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rostrum.lab.p4target.pipeline import csum16
from rostrum.lab.p4target.switch import Switch

from tests.p4.target_json import (
    Builder,
    Node,
    assign,
    byte_header,
    call,
    extract,
    field,
    header,
    number,
    op,
    state,
    to_port,
)

VALUES = {"h.a": 0x9C, "h.b": 0x03, "h.c": 0x80, "h.d": 0xFF}
FRAME = bytes(VALUES.values())
COMPARE = ("==", "!=", ">", ">=", "<", "<=")


def evaluate(node: Node) -> int | bool:
    """What the expression means, on unbounded integers."""
    if node["type"] == "field":
        return VALUES[".".join(node["value"])]
    if node["type"] == "hexstr":
        return int(node["value"], 16)
    value = node["value"]
    name = value["op"]
    right = evaluate(value["right"])
    if name in ("~", "not", "b2d", "d2b"):
        return {"~": lambda: ~right, "not": lambda: not right, "b2d": lambda: int(right), "d2b": lambda: right != 0}[
            name
        ]()
    left = evaluate(value["left"])
    if name == "?":
        return left if evaluate(value["cond"]) else right
    return operation(name, left, right)


def operation(name: str, left: int, right: int) -> int | bool:
    match name:
        case "<<":
            return left << right if 0 <= right <= 4096 else 0
        case ">>":
            return left >> right if right >= 0 else 0
        case "/" | "%" if right <= 0:
            return 0
        case "two_comp_mod":
            return (left + (1 << (right - 1))) % (1 << right) - (1 << (right - 1))
        case "usat_cast":
            return min(max(left, 0), (1 << right) - 1)
        case "sat_cast":
            return min(max(left, -(1 << (right - 1))), (1 << (right - 1)) - 1)
    return eval(f"({left}) {dict.fromkeys('/', '//').get(name, name)} ({right})")


def data(depth: int) -> st.SearchStrategy[Node]:
    leaves = st.sampled_from([field(name) for name in VALUES]) | st.integers(-300, 70000).map(number)
    if depth == 0:
        return leaves
    below = data(depth - 1)
    arithmetic = st.builds(op, st.sampled_from(("+", "-", "*", "&", "|", "^")), below, below)
    masked = st.builds(lambda node, bits: op("&", node, number((1 << bits) - 1)), below, st.integers(1, 40))
    shifts = st.builds(op, st.sampled_from(("<<", ">>")), below, st.integers(0, 70).map(number) | below)
    casts = st.builds(
        op, st.sampled_from(("two_comp_mod", "usat_cast", "sat_cast")), below, st.integers(2, 70).map(number)
    )
    divided = st.builds(op, st.sampled_from(("/", "%")), below, below)
    chosen = st.builds(lambda cond, yes, no: op("?", yes, no, cond), truth(depth - 1), below, below)
    as_data = truth(depth - 1).map(lambda node: op("b2d", None, node))
    inverted = below.map(lambda node: op("~", None, node))
    return st.one_of(leaves, arithmetic, masked, shifts, casts, divided, chosen, as_data, inverted)


def truth(depth: int) -> st.SearchStrategy[Node]:
    compared = st.builds(op, st.sampled_from(COMPARE), data(max(0, depth - 1)), data(max(0, depth - 1)))
    if depth <= 0:
        return compared
    below = truth(depth - 1)
    both = st.builds(op, st.sampled_from(("and", "or", "==", "!=")), below, below)
    turned = below.map(lambda node: op("not", None, node))
    made = data(depth - 1).map(lambda node: op("d2b", None, node))
    return st.one_of(compared, both, turned, made)


def result(expression: Node, *target: object) -> int:
    """The frame's added field `r.x` after the expression was assigned to it."""
    built = byte_header().header("r", ("pad", 3), ("x", *target), ("end", 5))
    built.statements("ingress", [call("add_header", header("r")), assign("r.x", expression), to_port(1)])
    [(_, frame)] = built.switch().inject(1, FRAME)
    added = int.from_bytes(frame[4:], "big")
    assert added >> (5 + target[0]) == 0, "bits before the field changed"
    assert added & 31 == 0, "bits after the field changed"
    return added >> 5 & ((1 << target[0]) - 1)


@settings(max_examples=250, deadline=None)
@given(data(3), st.sampled_from((8, 16, 40, 72)))
def test_expressions__are_exact_and_cut_to_the_target(expression: Node, width: int) -> None:
    assert result(expression, width) == int(evaluate(expression)) & ((1 << width) - 1)


@pytest.mark.parametrize(
    ("value", "signed", "expected"), [(300, False, 255), (-5, False, 0), (300, True, 127), (-300, True, -128)]
)
def test_saturating_field__holds_at_its_ends(value: int, signed: bool, expected: int) -> None:
    assert result(number(value), 8, signed, True) == expected & 255


def test_signed_fields__are_negative_when_read() -> None:
    built = Builder().header("h", ("a", 8, True), ("b", 8)).metadata(("x", 16, True))
    built.parser(state("start", [extract("h")]))
    built.conditional("ingress", "c", op("<", field("h.a"), number(0)), "below", "above")
    widen = [assign("m.x", field("h.a")), assign("h.b", op("&", op(">>", field("m.x"), number(4)), number(0xFF)))]
    built.statements("ingress", [*widen, to_port(1)], "below").statements("ingress", [to_port(2)], "above")
    switch = built.switch()
    assert switch.inject(1, b"\x90\0") == [(1, b"\x90\xf9")]
    assert switch.inject(1, b"\x10\0") == [(2, b"\x10\0")]


def test_shift_by_a_huge_amount__gives_zero_and_takes_no_memory() -> None:
    huge = op("<<", number(1), op("*", op("*", field("h.d"), number(1 << 30)), field("h.d")))
    assert result(huge, 40) == 0


def checksum_program(inputs: list[Node], algorithm: str = "csum16", **more: object) -> Switch:
    built = Builder().header("h", ("a", 16), ("b", 16), ("sum", 16), ("c", 16)).header("g", ("x", 8))
    known = state("start", [extract("h")], [field("h.a") | {"bytes": 2}], rows=[(0x4567, None, "g")])
    built.parser(known, state("g", [extract("g")]))
    built.add("calculations", name="calc", algo=algorithm, input=inputs)
    built.add("checksums", name="check", target=["h", "sum"], type="generic", calculation="calc", **more)
    built.conditional("ingress", "c", op("==", field("s.checksum_error"), number(0)), "right", "wrong")
    return built.statements("ingress", [to_port(1)], "right").statements("ingress", [to_port(2)], "wrong").switch()


def internet_checksum(data: bytes) -> int:
    """RFC 1071, word by word."""
    data += b"\0" * (len(data) % 2)
    total = sum(int.from_bytes(data[place : place + 2], "big") for place in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF ^ total


COVERED = [field("h.a"), field("h.b"), field("h.c"), field("g.x")]


@given(st.binary(min_size=8, max_size=40), st.booleans())
def test_checksum__is_verified_and_updated(frame: bytes, right: bool) -> None:
    switch = checksum_program(COVERED)
    with_g = frame[:2] == b"\x45\x67" and len(frame) > 8
    wanted = internet_checksum(frame[:4] + frame[6:8] + (frame[8:9] if with_g else b"")).to_bytes(2, "big")
    if right:
        frame = frame[:4] + wanted + frame[6:]
    right = frame[4:6] == wanted
    assert switch.inject(9, frame) == [(1 if right else 2, frame[:4] + wanted + frame[6:])]


@given(st.binary(min_size=9, max_size=40))
def test_checksum__of_payload_and_header(frame: bytes) -> None:
    switch = checksum_program([*COVERED[:3], {"type": "payload"}], verify=False)
    payload = frame[9:] if frame[:2] == b"\x45\x67" else frame[8:]
    [(_, out)] = switch.inject(9, frame)
    assert out[4:6] == internet_checksum(frame[:4] + frame[6:8] + payload).to_bytes(2, "big")


def test_checksum__only_under_its_condition() -> None:
    condition = op("==", field("h.a"), number(1))
    switch = checksum_program(COVERED, if_cond=condition)
    assert switch.inject(9, b"\0\2\0\0\7\7\0\0") == [(1, b"\0\2\0\0\7\7\0\0")]
    assert switch.inject(9, b"\0\1\0\0\7\7\0\0") == [(2, b"\0\1\0\0\xff\xfe\0\0")]


@given(st.binary(max_size=60))
def test_csum16__is_the_internet_checksum(data: bytes) -> None:
    assert csum16(data) == internet_checksum(data)
