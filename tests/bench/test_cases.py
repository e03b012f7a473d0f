"""What benches measure: names, plans, choices."""

from __future__ import annotations

import itertools

import pytest
from rostrum.bench import cases
from rostrum.bench.cases import MB, Case, Entry
from rostrum.bench.runner import turns


def test_a_case_is_found_again_by_its_name() -> None:
    for entry in [*cases.full(5), *cases.quick()]:
        assert cases.parse(entry.case.name) == entry.case


def test_names_say_what_a_case_is() -> None:
    case = Case(1500, True, 300_000_000, 0.1, 7, 4 << 30)
    assert case.name == "1500-on-300mbit-loss0.1-r7-4G"
    assert case.ideal_s == pytest.approx(114.53, abs=0.01)


@pytest.mark.parametrize(
    "name", ["", "9000", "9000-off-free-loss1-r8-1M", "100-off-free-loss1-r3-1M", "9000-off-free-loss60-r3-1M"]
)
def test_a_wrong_name_is_refused_with_a_reason(name: str) -> None:
    with pytest.raises(ValueError, match=r"no case; write one like|MTU 576 to 9000"):
        cases.parse(name)


def test_the_full_plan_has_every_axis_of_the_issue() -> None:
    planned = [entry.case for entry in cases.full(5)]
    assert len(set(planned)) == len(planned)
    assert {case.mtu for case in planned} == {1500, 9000}
    assert {case.loss_percent for case in planned} == {0, 0.1, 1, 5}
    assert {case.receivers for case in planned} == {1, 3, 7}
    assert {case.size for case in planned} >= {64 * MB, 512 * MB, 4096 * MB}
    assert {case.offload for case in planned} == {False, True}
    assert {case.rate_bps for case in planned} == {0, 300_000_000, 1_000_000_000}
    in_other_plans = {cases.SECURE, cases.SIGNED, cases.PARTS}  # bench security
    assert {tool for entry in cases.full(5) for tool in entry.tools} == set(cases.EVERY) - in_other_plans


def test_goals_are_measured_in_the_plan_where_all_tools_take_part() -> None:
    compared = next(entry for entry in cases.full(5) if entry.case == cases.base(9000))
    assert set(compared.tools) >= {*cases.OURS, *cases.MULTICAST, *cases.TCP, *cases.RAW, "http"}


def test_patterns_choose_cases_and_names_choose_tools() -> None:
    entries = cases.chosen(
        cases.full(5), only=["9000,free,loss1", "1500,300mbit,loss5"], tools=["uftp", "rostrum"], repeat=2
    )
    assert {entry.case.name for entry in entries} == {
        "9000-off-free-loss1-r3-512M",
        "9000-off-free-loss1-r7-512M",
        "1500-off-300mbit-loss5-r3-128M",
    }
    assert all(set(entry.tools) == {"uftp", "rostrum"} and entry.repeat == 2 for entry in entries)


def test_cases_of_one_network_come_one_after_another() -> None:
    networks = [(entry.case.rate_bps, entry.case.mtu, entry.case.offload) for entry in cases.ordered(cases.full(5))]
    changes = sum(before != after for before, after in itertools.pairwise(networks))
    assert changes == len(set(networks)) - 1


def test_tools_take_turns_in_every_round() -> None:
    tools = ("a", "b", "c")
    order = list(turns([Entry(cases.base(9000), tools, 4)], seed=3))
    rounds = [[turn.tool for turn in order if turn.round == number] for number in range(4)]
    assert [turn.round for turn in order] == sorted(turn.round for turn in order)
    assert all(sorted(one) == list(tools) for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1, "always in the same order"
    assert order == list(turns([Entry(cases.base(9000), tools, 4)], seed=3))
