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
