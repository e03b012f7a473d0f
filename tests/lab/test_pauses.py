"""Programs of a lab that are stopped and continued; longer pauses: rostrum lab run pauses --seconds 10 --seconds 60."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rostrum.lab.experiments import pauses
from rostrum.lab.lab import Lab

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.start("hybrid-4x2", name="t-pauses", changes=pauses.QUICK, seed=1, manager_options=pauses.OPTIONS) as made:
        yield made


@pytest.mark.parametrize("phase", pauses.PHASES)
@pytest.mark.parametrize("program", pauses.PROGRAMS)
def test_program_stopped_for_a_second__nothing_fails_and_nothing_is_granted_twice(
    lab: Lab, program: str, phase: str, seed: int
) -> None:
    assert pauses.trial(lab, program, phase, 1, seed)["wrong"] == []


@pytest.mark.parametrize("program", pauses.PROGRAMS)
def test_program_stopped_for_longer_than_a_lease__nothing_fails_and_nothing_is_granted_twice(
    lab: Lab, program: str, seed: int
) -> None:
    assert pauses.trial(lab, program, "high-rate", 4, seed)["wrong"] == []


def test_receiver_stopped_for_longer_than_its_bound__fails_alone(lab: Lab, seed: int) -> None:
    assert pauses.trial(lab, "receiver", "high-rate", 7, seed)["wrong"] == []
