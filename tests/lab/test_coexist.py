"""Beside another controller, Faucet: `rostrum lab run coexist`, small."""

from __future__ import annotations

import pytest
from rostrum.lab.experiments import coexist as experiment

pytestmark = pytest.mark.lab


def test_beside_faucet__both_are_killed_and_started_in_any_order() -> None:
    report = experiment.run(1 << 20)
    assert report["summary"]["ok"], report["steps"]
    assert report["summary"]["others_entries"] > 3 * len(experiment.CANARY_FLOWS), report["summary"]
