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
