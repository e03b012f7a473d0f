"""`lab run qsm`: many groups and one are compared by turns."""

from __future__ import annotations

from rostrum.lab.experiments import qsm


def runs(*rounds: dict[int, float]) -> list[dict[str, float]]:
    return [
        {"round": turn, "groups": groups, "rate": rate}
        for turn, rates in enumerate(rounds)
        for groups, rate in rates.items()
    ]


def test_a_machine_that_is_slower_in_one_round_says_nothing_of_groups() -> None:
    measured = runs({1: 1000.0, 256: 980.0}, {256: 490.0, 1: 500.0}, {1: 4000.0, 256: 3960.0})
    (row,) = qsm.verdicts({"rostrum": {"runs": measured}})
    assert row["by_rounds"] == [0.98, 0.98, 0.99]
    assert (row["of_one_group"], row["asked"], row["verdict"]) == (0.98, 0.97, "holds")


def test_each_number_of_groups_has_what_is_asked_of_it() -> None:
    measured = runs({1: 100.0, 16: 96.0, 256: 97.0, 10_000: 90.0})
    rows = qsm.verdicts({"rostrum": {"runs": measured}, "jgroups": {"runs": runs({1: 100.0, 256: 40.0})}})
    assert [(row["groups"], row["verdict"]) for row in rows] == [
        (16, "does not hold"),
        (256, "holds"),
        (10_000, "holds"),
        (256, "found"),
    ]


def test_a_round_without_one_group_is_not_compared() -> None:
    assert qsm.verdicts({"rostrum": {"runs": runs({256: 100.0}, {1: 100.0})}}) == []


def test_one_group_is_first_as_often_as_last_whatever_drifts() -> None:
    cases = [qsm.Case(groups, 16, 1000, 1.0) for groups in (1, 16, 256)]
    turns = [[case.groups for case in qsm.in_turn(cases, turn, 1)] for turn in range(8)]
    assert all(sorted(turn) == [1, 16, 256] and turn[1] != 1 for turn in turns)
    assert [turn[0] == 1 for turn in turns] == [True, False, False, True] * 2
    for other in (16, 256):
        assert sum(abs(turn.index(other) - turn.index(1)) == 1 for turn in turns) == 4
    assert qsm.in_turn(cases[:1], 3, 1) == cases[:1]


def test_the_interval_says_how_far_rounds_tell() -> None:
    assert qsm.interval([1.0]) == [1.0, 1.0]
    assert qsm.interval([0.9, 1.1, 1.0]) == [0.9, 1.1]
    assert qsm.interval([float(i) for i in range(10, 0, -1)]) == [2.0, 9.0]  # 97.9 % of medians
    assert qsm.interval([float(i) for i in range(40)]) == [13.0, 26.0]


def test_what_silent_groups_cost_is_measured_before_traffic() -> None:
    def silent(groups: int, bytes_: float) -> dict[str, object]:
        return {"groups": groups, "ready_s": 1.0, "looks": [{"cpu_share": 0.01, "resident_bytes": bytes_}]}

    costs = qsm.idle_costs([silent(1, 1e6), silent(101, 2e6)])
    assert costs["101"]["agent_bytes_a_group"] == 1e4 and "agent_bytes_a_group" not in costs["1"]
