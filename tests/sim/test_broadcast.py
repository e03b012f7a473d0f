"""Small objects to many over a network that loses packets: all have them soon."""

from __future__ import annotations

import pytest
from rostrum.sim.experiments import broadcast
from rostrum.sim.experiments.broadcast import FRAGMENT_BYTES

MANY = 60  # others carry messages to most of them


@pytest.mark.parametrize("loss_percent", [1.0, 5.0])
@pytest.mark.parametrize("size", [1, FRAGMENT_BYTES + 1, 3 * FRAGMENT_BYTES])
def test_a_receiver_that_is_complete_before_its_answer_is_heard_does_not_fail(size: int, loss_percent: float) -> None:
    for seed in range(1, 9):
        print(f"seed {seed}")
        fabric = broadcast.fabric_of("racks", MANY, 10**10, 2000, seed)
        found = broadcast.one(MANY, loss_percent, "edge", 1.0, size, fabric, seed, "republic")
        assert found["seconds"] < 1  # of virtual time; it was given up after 60
