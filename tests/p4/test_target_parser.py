"""The reference target's parser: states, select, errors, and frames of any kind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rostrum.lab.p4target.switch import Switch

from tests.p4.target_json import ERRORS, Builder, Node, assign, call, extract, field, header, number, op, state, to_port


def lookahead(offset_bits: int, width_bits: int) -> Node:
    return {"type": "lookahead", "value": [offset_bits, width_bits]}


def reporting(*states: Node, more: Builder | None = None) -> Switch:
    """Every frame leaves by port 1 with the parser's error in front."""
    built = more or Builder().header("h", ("a", 8), ("b", 8))
    built.header("e", ("error", 8))
    order = built.root["deparsers"][0]["order"]
    order.insert(0, order.pop())
    built.parser(*states)
    told = [call("add_header", header("e")), assign("e.error", field("s.parser_error")), to_port(1)]
    return built.statements("ingress", told).switch()


def outcome(switch: Switch, frame: bytes) -> tuple[str, bytes]:
    [(_, out)] = switch.inject(1, frame)
    return ERRORS[out[0]], out[1:]


def test_short_frame__is_an_error_and_stays_as_it_is() -> None:
    switch = reporting(state("start", [extract("h")]))
    assert outcome(switch, b"\1") == ("PacketTooShort", b"\1")
    assert outcome(switch, b"") == ("PacketTooShort", b"")
    assert outcome(switch, b"\1\2") == ("NoError", b"\1\2")


def test_select__by_value_mask_and_several_fields() -> None:
    built = Builder().header("h", ("a", 4), ("b", 12)).header("x", ("v", 8)).header("y", ("v", 8))
    built.header("end", ("v", 8))
    # Keys are filled up to whole bytes each: a takes one, b two.
    key = [field("h.a") | {"bytes": 1}, field("h.b") | {"bytes": 2}]
    rows = [(0x010002, None, "x"), (0x020100, 0xFF0F00, "y")]
    built.parser(
        state("start", [extract("h")], key, rows=rows, default=None), state("x", [extract("x")]),
        state("y", [extract("y")]),
    )  # fmt: skip
    built.conditional("ingress", "c", op("valid", None, header("x")), "is_x", "not_x")
    built.conditional("ingress", "not_x", op("valid", None, header("y")), "is_y", "is_none", first=False)
    for port, name in enumerate(("is_x", "is_y", "is_none"), 1):
        built.statements("ingress", [to_port(port)], name)
    switch = built.switch()
    ports = [switch.inject(9, frame)[0][0] for frame in (b"\x10\x02\0", b"\x21\x07\0", b"\x20\x07\0", b"\x11\x02\0")]
    assert ports == [1, 2, 3, 3]


def test_lookahead__does_not_move_on() -> None:
    built = Builder().header("h", ("a", 8), ("b", 8)).metadata(("x", 12))
    key = [lookahead(4, 4)]
    ahead = call("set", field("m.x"), lookahead(4, 12))
    switch = reporting(
        state("start", [ahead], [key[0] | {"bytes": 1}], rows=[(5, None, "h")]), state("h", [extract("h")]), more=built
    )
    assert outcome(switch, b"\x35\7") == ("NoError", b"\x35\7")
    assert outcome(switch, b"\x35") == ("PacketTooShort", b"\x35")


def test_advance__drops_what_it_skips_and_wants_whole_bytes() -> None:
    built = Builder().header("h", ("a", 8), ("b", 8))
    jump = call("advance", op("*", field("h.a"), number(4)))
    switch = reporting(state("start", [extract("h"), jump]), more=built)
    assert outcome(switch, b"\4\0abcd") == ("NoError", b"\4\0cd")
    assert outcome(switch, b"\3\0abcd") == ("ParserInvalidArgument", b"\3\0abcd")
    assert outcome(switch, b"\x20\0abcd") == ("PacketTooShort", b"\x20\0abcd")


def test_verify__gives_the_programs_error() -> None:
    check = call("verify", op("==", field("h.a"), number(1)), number(ERRORS.index("HeaderTooShort")))
    switch = reporting(state("start", [extract("h"), check]))
    assert outcome(switch, b"\1\0") == ("NoError", b"\1\0")
    assert outcome(switch, b"\2\0") == ("HeaderTooShort", b"\2\0")


def test_loop_without_end__is_a_timeout() -> None:
    switch = reporting(state("start", [], default="start"))
    assert outcome(switch, b"\1\2") == ("ParserTimeout", b"\1\2")


def test_primitive_in_a_state() -> None:
    built = Builder().header("h", ("a", 8), ("b", 8)).header("g", ("a", 8))
    added = {"op": "primitive", "parameters": [call("add_header", header("g"))]}
    put = call("set", field("g.a"), op("+", field("h.a"), number(255)))
    switch = reporting(state("start", [extract("h"), added, put]), more=built)
    assert outcome(switch, b"\2\0x") == ("NoError", b"\2\0\1x")


@pytest.fixture(scope="module")
def onion() -> Switch:
    """A header with a length, then others, then one that is chosen by looking ahead."""
    built = Builder().header("h", ("kind", 4), ("skip", 4)).header("r", ("more", 1), ("v", 15))
    built.header("t", ("v", 16)).header("g", ("x", 24))
    return reporting(
        state("start", [extract("h"), call("advance", op("*", field("h.skip"), number(8)))], [field("h.kind")],
              rows=[(1, None, "r"), (2, 0x0E, "g")]),
        state("r", [extract("r")], [field("r.more")], rows=[(1, None, "t")], default="g"),
        state("t", [extract("t")], default="g"),
        state("g", [], [lookahead(3, 9) | {"bytes": 2}], rows=[(0x0001, 0x0001, "last")]),
        state("last", [extract("g")]),
        more=built,
    )  # fmt: skip


@given(st.binary(max_size=80))
def test_any_frame__comes_out_with_nothing_but_skipped_bytes_missing(onion: Switch, frame: bytes) -> None:
    error, out = outcome(onion, frame)
    assert error in ("NoError", "PacketTooShort")
    skipped = min(frame[0] & 15, len(frame) - 1) if frame else 0
    assert len(out) in (len(frame), len(frame) - skipped)
    assert frame.startswith(out[:1])
    assert out[1:] == frame[len(frame) - len(out) + 1 :]
