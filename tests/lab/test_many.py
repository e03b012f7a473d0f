"""Many receivers and many groups, in small."""

from __future__ import annotations

from pathlib import Path

import pytest
from rostrum.lab.experiments import many, qsm
from rostrum.lab.lab import Lab

pytestmark = pytest.mark.lab


@pytest.mark.parametrize("carry", [False, True])
def test_reports_by_the_tree__living_receivers_are_whole(carry: bool) -> None:
    """Who collects reports is killed, stopped, or behind a link that is cut; the sender reads reports all the same."""
    trials = many.run(12, 3, 50_000_000, 6_000_000, 1, True, 4, carry, "", 1, "t-many")
    few, whole, killed = trials
    assert not [text for one in trials for text in one.wrong]
    assert (few.receivers, few.by_tree, few.reports) == (3, False, 0)
    assert whole.by_tree and whole.reports > 0
    assert killed.by_tree and killed.killed


def test_groups_that_overlap__all_messages_of_all_come(tmp_path: Path) -> None:
    """The study of many groups in small: its sender and its receivers count the same."""
    file = tmp_path / "racks.yaml"
    file.write_text(qsm.network(4))
    with Lab.start(file, name="t-many", or_another=True) as lab:
        found = qsm.run_tool("rostrum", lab, [qsm.Case(n, 4, 1000, 0.5) for n in (1, 8)], 1, lambda: qsm.ours(lab, "r"))
    assert not found["skipped"] and set(found["rate_by_groups"]) == {"1", "8"}
    wrong = [run for run in found["runs"] if not run["complete"] or run["told_lost"] or not run["sent"]]
    for run in wrong:
        print(run)
    assert not wrong


def test_many_groups_that_are_flooded_at_once__nothing_is_lost(tmp_path: Path) -> None:
    """Of all of them together no more is under way than receivers, and what is between, have room for."""
    file = tmp_path / "racks.yaml"
    file.write_text(qsm.network(3))
    with Lab.start(file, name="t-flood", or_another=True) as lab:
        found = qsm.measure(lab, qsm.Case(40, 3, 1000, 1.0), qsm.ours(lab, "f", "ricochet"), calls=True)
    print(found)
    assert found["sent"] and found["complete"] and not found["told_lost"]
