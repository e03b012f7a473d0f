"""The reference target's controls: tables, actions, conditionals, and what becomes of a packet after them."""

from __future__ import annotations

import pytest
from rostrum.lab.p4target.tables import CACHE_ENTRIES_MAX, TableError

from tests.p4.target_json import (
    Builder,
    Node,
    assign,
    byte_header,
    call,
    field,
    header,
    number,
    op,
    parameter,
    to_port,
)


def forwarding(kind: str, *more: tuple[str, str], **options: object) -> Builder:
    """A table on h.a (and more) whose action sends to a port; without an entry the packet is dropped."""
    built = byte_header()
    drop = built.action("drop", [call("mark_to_drop", header("standard_metadata"))])
    send = built.action("send", [call("assign", field("s.egress_spec"), parameter(0))], ("port", 9))
    built.table("ingress", "t", [("h.a", kind), *more], [drop, send], **options)
    return built


def test_exact__forwards_what_an_entry_matches_and_drops_the_rest() -> None:
    switch = forwarding("exact").switch()
    switch.pipeline.table("t").add([7], 1, [3])
    assert switch.inject(1, bytes((7, 1, 2, 3, 4))) == [(3, bytes((7, 1, 2, 3, 4)))]
    assert switch.inject(1, bytes((8, 1, 2, 3, 4))) == []
    assert switch.drops == {"ingress": 1}


def test_exact__key_of_several_fields() -> None:
    switch = forwarding("exact", ("h.b", "exact")).switch()
    table = switch.pipeline.table("t")
    table.add([7, 1], 1, [3])
    table.add([7, 2], 1, [4])
    assert [switch.inject(1, bytes((7, b, 0, 0)))[:1] for b in (1, 2, 3)] == [
        [(3, bytes((7, 1, 0, 0)))],
        [(4, bytes((7, 2, 0, 0)))],
        [],
    ]


def test_lpm__the_longest_prefix_wins_whatever_the_order() -> None:
    switch = forwarding("lpm").switch()
    table = switch.pipeline.table("t")
    table.add([(0, 0)], 1, [1])
    table.add([(0b11000000, 4)], 1, [3])
    table.add([(0b11000000, 2)], 1, [2])
    ports = [switch.inject(9, bytes((a, 0, 0, 0)))[0][0] for a in (0b11001111, 0b11010000, 0b01000000)]
    assert ports == [3, 2, 1]


def test_ternary__the_highest_priority_wins() -> None:
    switch = forwarding("ternary").switch()
    table = switch.pipeline.table("t")
    table.add([(0x10, 0xF0)], 1, [1], priority=1)
    table.add([(0x11, 0xFF)], 1, [2], priority=2)
    table.add([(0x11, 0xFF)], 1, [3], priority=3)
    assert switch.inject(9, b"\x11\0\0\0")[0][0] == 3
    table.delete([(0x11, 0xFF)], priority=3)
    assert switch.inject(9, b"\x11\0\0\0")[0][0] == 2
    assert switch.inject(9, b"\x12\0\0\0")[0][0] == 1


def test_range__both_ends_belong_to_it() -> None:
    switch = forwarding("range").switch()
    switch.pipeline.table("t").add([(10, 20)], 1, [1], priority=1)
    assert [len(switch.inject(9, bytes((a, 0, 0, 0)))) for a in (9, 10, 20, 21)] == [0, 1, 1, 0]


def test_cache__is_emptied_when_entries_change_and_never_grows_beyond_its_bound() -> None:
    switch = forwarding("ternary", ("h.b", "ternary"), ("h.c", "ternary")).switch()
    table = switch.pipeline.table("t")
    assert switch.inject(1, b"\1\0\0\0") == []
    table.add([(1, 0xFF), (0, 0), (0, 0)], 1, [3], priority=1)
    assert switch.inject(1, b"\1\0\0\0") != []
    table.set_default(1, [9])
    assert switch.inject(1, b"\2\0\0\0")[0][0] == 9
    for key in range(CACHE_ENTRIES_MAX + 10):
        table.look_up((key & 255, key >> 8 & 255, key >> 16))
    assert len(table.find) <= CACHE_ENTRIES_MAX


def test_entries__are_refused_with_a_reason() -> None:
    table = forwarding("exact", size=1).switch().pipeline.table("t")
    table.add([1], 1, [3])
    with pytest.raises(TableError, match="has this entry already") as exists:
        table.add([1], 1, [4])
    with pytest.raises(TableError, match="is full: 1 entries") as full:
        table.add([2], 1, [4])
    with pytest.raises(TableError, match="no such entry") as missing:
        table.delete([2])
    with pytest.raises(TableError, match=r"parameter port has more than 9 bits") as wide:
        table.modify([1], 1, [512])
    with pytest.raises(TableError, match=r"send has 1 parameters, not 0"):
        table.modify([1], 1, [])
    with pytest.raises(TableError, match=r"h.a has more than 8 bits"):
        table.get([256])
    assert [error.value.kind for error in (exists, full, missing, wide)] == ["exists", "full", "missing", "invalid"]


def test_modify__keeps_the_counter() -> None:
    switch = forwarding("exact", counted=True).switch()
    table = switch.pipeline.table("t")
    table.add([1], 1, [3])
    switch.inject(1, b"\1" + bytes(99))
    table.modify([1], 1, [4])
    assert switch.inject(1, b"\1" + bytes(49))[0][0] == 4
    entry = table.get([1])
    assert (entry.packets, entry.octets) == (2, 150)


def test_default__can_be_changed_and_reset() -> None:
    switch = forwarding("exact").switch()
    table = switch.pipeline.table("t")
    table.set_default(1, [5])
    assert switch.inject(1, bytes(4)) == [(5, bytes(4))]
    table.reset_default()
    assert switch.inject(1, bytes(4)) == []


def test_constant_entries__are_there_and_the_first_wins() -> None:
    def entry(value: int, mask: int, port: int, priority: int) -> Node:
        return {
            "match_key": [{"match_type": "ternary", "key": hex(value), "mask": hex(mask)}],
            "action_entry": {"action_id": 1, "action_data": [hex(port)]},
            "priority": priority,
        }

    switch = forwarding("ternary", entries=[entry(1, 0xFF, 4, 1), entry(0, 0, 5, 2)]).switch()
    assert [switch.inject(1, bytes((a, 0, 0, 0)))[0][0] for a in (1, 2)] == [4, 5]
    assert all(each.constant for each in switch.pipeline.table("t").entries.values())


def test_next_tables__follow_the_action_and_hit_or_miss() -> None:
    built = byte_header()
    one, other = built.action("one", []), built.action("other", [])
    built.table("ingress", "t", [("h.a", "exact")], [one, other], next={"one": "p1", "other": "u"})
    built.table("ingress", "u", [("h.b", "exact")], [one], next={"__HIT__": "p2", "__MISS__": "p3"})
    for port in (1, 2, 3):
        built.statements("ingress", [to_port(port)], f"p{port}")
    switch = built.switch()
    switch.pipeline.table("t").add([1], 1, [])
    switch.pipeline.table("u").add([1], 0, [])
    assert [switch.inject(9, bytes(frame))[0][0] for frame in ((0, 0, 0, 0), (1, 1, 0, 0), (1, 0, 0, 0))] == [1, 2, 3]


def test_conditionals__join_again() -> None:
    built = byte_header().metadata(("x", 8))
    built.conditional("ingress", "c", op(">", field("h.a"), number(5)), "yes", "no")
    built.statements("ingress", [assign("h.b", number(1))], "yes", "last")
    built.statements("ingress", [assign("h.b", number(2))], "no", "last")
    built.statements("ingress", [assign("h.c", field("h.b")), to_port(1)], "last")
    switch = built.switch()
    assert [switch.inject(9, bytes((a, 0, 0, 0)))[0][1][1:3] for a in (5, 6)] == [b"\2\2", b"\1\1"]


def test_exit__skips_the_rest_of_the_control_only() -> None:
    built = byte_header()
    leave = built.action("leave", [to_port(1), call("exit")])
    built.table("ingress", "t", [], [leave], constant=True, next="rest")
    built.statements("ingress", [assign("h.b", number(9))], "rest")
    built.statements("egress", [assign("h.c", number(8))])
    assert built.switch().inject(1, bytes(4)) == [(1, b"\0\0\x08\0")]


def test_jumps__are_what_p4c_makes_of_if_in_an_action() -> None:
    built = byte_header()
    zero = op("d2b", None, field("h.a"))
    statements = [
        call("_jump_if_zero", zero, number(3)),
        assign("h.b", number(1)),
        call("_jump", number(4)),
        assign("h.b", number(2)),
        to_port(1),
    ]
    switch = built.statements("ingress", statements).switch()
    assert [switch.inject(1, bytes((a, 0, 0, 0)))[0][1][1] for a in (0, 5)] == [2, 1]


def test_counters_and_registers__ignore_an_index_beyond_the_end() -> None:
    built = byte_header().metadata(("x", 16))
    built.add("counter_arrays", name="c", size=3, is_direct=False)
    built.add("register_arrays", name="r", size=3, bitwidth=12)
    counter, register = {"type": "counter_array", "value": "c"}, {"type": "register_array", "value": "r"}
    statements = [
        call("count", counter, field("h.a")),
        call("register_read", field("m.x"), register, field("h.a")),
        assign("m.x", op("+", field("m.x"), number(0xFFF))),
        call("register_write", register, field("h.a"), field("m.x")),
        to_port(1),
    ]
    switch = built.statements("ingress", statements).switch()
    for frame in (b"\1" + bytes(9), b"\1" + bytes(19), b"\3" + bytes(9)):
        assert len(switch.inject(1, frame)) == 1
    assert switch.pipeline.counters["c"] == ([0, 2, 0], [0, 30, 0])
    assert switch.pipeline.registers["r"] == [0, 0xFFE, 0]


def test_meter__colours_by_rate_and_burst() -> None:
    built = byte_header().add("meter_arrays", name="m", size=2, is_direct=False, type="packets", rate_count=2)
    meter = {"type": "meter_array", "value": "m"}
    switch = built.statements("ingress", [call("execute_meter", meter, number(1), field("h.b")), to_port(1)]).switch()
    now_us = [0]
    meters = switch.pipeline.meters["m"]
    meters._clock_us = lambda: now_us[0]
    meters.at(1).set([(1000, 2), (1000, 4)])
    colours = [switch.inject(1, bytes(4))[0][1][1] for _ in range(6)]
    assert colours == [0, 0, 1, 1, 2, 2]
    now_us[0] = 1000  # a token for each rate
    assert [switch.inject(1, bytes(4))[0][1][1] for _ in range(2)] == [0, 2]


def test_direct_meter_and_counter() -> None:
    built = forwarding("exact", counted=True)
    built.add("meter_arrays", name="m", size=0, is_direct=True, binding="t", type="bytes", rate_count=2,
              result_target=["h", "b"])  # fmt: skip
    switch = built.switch()
    entry = switch.pipeline.table("t").add([1], 1, [3])
    assert switch.inject(1, b"\1\7\0\0")[0][1] == b"\1\0\0\0"
    entry.meter = switch.pipeline.meters["m"].new()
    entry.meter.set([(1, 5), (1, 5)])
    assert [switch.inject(1, b"\1\7\0\0")[0][1][1] for _ in range(2)] == [0, 2]
    assert (entry.packets, entry.octets) == (3, 12)


def test_digest__carries_the_fields_of_the_last_call() -> None:
    built = byte_header().add("learn_lists", name="one", elements=[field("h.a"), field("s.ingress_port")])
    built.add("learn_lists", name="two", elements=[field("h.b")])
    built.statements("ingress", [call("generate_digest", number(1), number(1)), to_port(1)])
    learned: list[tuple[int, tuple[int, ...]]] = []
    switch = built.switch(on_digest=lambda number, values: learned.append((number, values)))
    switch.inject(6, b"\7\0\0\0")
    assert learned == [(1, (7, 6))]


def test_headers__are_added_removed_and_copied() -> None:
    built = byte_header().header("g", ("a", 16)).header("i", ("a", 16))
    statements = [
        call("add_header", header("g")),
        assign("g.a", number(0x1234)),
        call("assign_header", header("i"), header("g")),
        call("remove_header", header("h")),
        assign("h.a", number(5)),  # a header that is not there takes nothing
        to_port(1),
    ]
    switch = built.statements("ingress", statements).switch()
    assert switch.inject(1, bytes(4) + b"rest") == [(1, b"\x12\x34\x12\x34rest")]


def test_key__of_a_header_that_is_not_there_is_zero() -> None:
    built = byte_header().header("g", ("a", 16))
    drop = built.action("drop", [call("mark_to_drop", header("standard_metadata"))])
    send = built.action("send", [to_port(4)])
    built.table("ingress", "t", [("g.a", "exact"), ("g.$valid$", "exact")], [drop, send])
    switch = built.switch()
    switch.pipeline.table("t").add([0, 0], 1, [])
    assert switch.inject(1, bytes(4)) == [(4, bytes(4))]


def test_packet_length__follows_added_headers_into_egress() -> None:
    built = byte_header().header("g", ("a", 16)).metadata(("unused", 8))
    built.statements("ingress", [call("add_header", header("g")), to_port(1)])
    built.statements("egress", [assign("h.d", field("s.packet_length"))])
    assert built.switch().inject(1, bytes(10))[0][1][3] == 12


def test_parser_without_states__forwards_everything_as_payload() -> None:
    built = Builder().statements("ingress", [to_port(1)])
    assert built.switch().inject(1, b"anything") == [(1, b"anything")]
    assert built.switch().inject(1, b"") == [(1, b"")]
