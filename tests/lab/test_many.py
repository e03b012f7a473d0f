"""Many receivers, in small: more than may report directly do so by the tree, and some of them go meanwhile."""

from __future__ import annotations

import pytest
from rostrum.lab.experiments import many

pytestmark = pytest.mark.lab


def test_reports_by_the_tree__living_receivers_are_whole() -> None:
    """Who collects reports is killed, stopped, or behind a link that is cut; the sender reads reports all the same."""
    trials = many.run(12, 3, 50_000_000, 6_000_000, 1, True, 4, "", 1, "t-many")
    few, whole, killed = trials
    assert not [text for one in trials for text in one.wrong]
    assert (few.receivers, few.by_tree, few.reports) == (3, False, 0)
    assert whole.by_tree and whole.reports > 0
    assert killed.by_tree and killed.killed
