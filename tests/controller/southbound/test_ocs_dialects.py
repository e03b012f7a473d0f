"""The dialects' rows and commands, without a connection."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from rostrum.controller.core.model import CrossConnect, CrossConnectState, Pair
from rostrum.controller.southbound.ocs import glimmerglass, polatis

PORTS = 640
PAIRS = st.builds(Pair, st.integers(1, PORTS), st.integers(1, PORTS))
POWERS = st.none() | st.integers(-8000, 3000).map(lambda n: n / 100)
CAUSES = st.text("abc xyz:'", max_size=20).map(str.strip)
CROSS_CONNECTS = st.builds(CrossConnect, PAIRS, st.sampled_from(CrossConnectState), POWERS, POWERS, CAUSES)


@given(CROSS_CONNECTS)
def test_glimmerglass_row__survives_the_wire(one: CrossConnect) -> None:
    assert glimmerglass.cross_connects([glimmerglass.format_cross_connect(one)]) == [one]


@given(st.lists(st.text(max_size=80) | st.text("0123456789,:= IPORTDONSA", max_size=80), max_size=5))
def test_rows_of_garbage__never_raise(rows: list[str]) -> None:
    for found in glimmerglass.cross_connects(rows):
        assert found.pair.input > 0
        assert found.pair.output > 0
    for pair in polatis.parse_patches(rows, PORTS):
        assert 1 <= pair.input <= PORTS
        assert 1 <= pair.output <= PORTS
    for power in polatis.parse_powers(rows).values():
        assert power is None or math.isfinite(power)


def test_glimmerglass_commands__as_the_switch_wants_them() -> None:
    pairs = [Pair(1, 1), Pair(2, 2)]
    command = replace(glimmerglass.connect(pairs, "ASYNC"), ctag="7")
    assert str(command) == "ENT-CRS-FIBER::10001&10002,20001&20002:7:::OPMODE=ASYNC;"
    assert str(glimmerglass.disconnect(pairs)) == "DLT-CRS-FIBER::10001&10002,20001&20002:;"
    assert str(glimmerglass.retrieve()) == "RTRV-CRS-FIBER::ALL:;"


def test_polatis_commands__outputs_are_numbered_behind_the_inputs() -> None:
    assert str(polatis.connect(Pair(1, 5), 32)) == "ENT-PATCH::1,37::;"
    assert str(polatis.disconnect(Pair(1, 5))) == "DLT-PATCH::1::;"
    assert str(polatis.retrieve()) == "RTRV-PATCH::::;"
    assert str(polatis.retrieve_power([1, 37])) == "RTRV-PORT-POWER::1&37::;"


def test_polatis_rows__either_end_first() -> None:
    assert polatis.parse_patches(["1,37", "38, 2", "1,2", "33,64", "x,y", "         5,          40"], 32) == [
        Pair(1, 5),
        Pair(2, 6),
        Pair(5, 8),
    ]
    assert polatis.parse_powers(["1:-3.25", "2:NONE", "37:-60.0,OK", "x:1", "3:nan", "4"]) == {
        1: -3.25,
        2: None,
        37: -60.0,
        3: None,
        4: None,
    }


def test_an_unknown_state__is_invalid() -> None:
    (found,) = glimmerglass.cross_connects(["IPORTID=10001,OPORTID=20001,CONNSTATE=confused"])
    assert found.state is CrossConnectState.INVALID
