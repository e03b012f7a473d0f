"""The same topology, group and lost fragments in the lab and in the simulator: what protocols count agrees.

By `rostrum conformance` (bench/conformance.py). docs/sim.md, "Conformance", says what may differ by how much, and why.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from rostrum.bench.conformance import AGENTS, FIRST_OBJECT, QUICK_SIZE, checks, compare, simulated, start_lab
from rostrum.lab.lab import Lab

ROOT = Path(__file__).resolve().parents[2]
PATTERN_SEED = 1  # of the lab's agents
_ids = itertools.count(FIRST_OBJECT)


@pytest.fixture(scope="module")
def lab():
    with start_lab("t-conform", PATTERN_SEED) as lab:
        yield lab


@pytest.mark.lab
@pytest.mark.parametrize("protocol", ["republic", "rdcm"])
def test_agents_and_simulator__count_the_same(lab: Lab, protocol: str) -> None:
    row = compare(lab, protocol, QUICK_SIZE, PATTERN_SEED, next(_ids))
    assert row["ok"], (row["lab"], row["simulator"], [one for one in row["checks"] if not one["ok"]])


def test_simulated_agents__have_the_agents_own_parameters() -> None:
    text = (ROOT / "agent" / "daemon" / "agent.c").read_text()
    given = dict(re.findall(r"\.(ack_\w+) = (\d+)", text))
    assert given == {"ack_timeout_least": "4", "ack_every": "64", "ack_delay": "8"}, "change AGENTS, too"
    assert (AGENTS.ack_timeout_least_ns, AGENTS.ack_every, AGENTS.ack_delay_ns) == (4_000_000, 64, 8_000_000)


@pytest.mark.parametrize("protocol", ["republic", "rdcm"])
def test_a_run_that_drifts__is_told(protocol: str) -> None:
    """The simulator beside itself agrees; with other losses, lost repairs or another order it does not."""
    import dataclasses

    model = simulated(protocol, 1_000_000, 8896, PATTERN_SEED)
    assert all(one.ok for one in checks(protocol, model, model))
    drifts = {
        "lost by the pattern": dataclasses.replace(model, lost=model.lost + 1),
        "mended": dataclasses.replace(model, patched=0, repaired=0, data=model.fragments),
        "order of events": dataclasses.replace(model, order=model.order[::-1]),
    }
    for name, real in drifts.items():
        assert name in {one.name for one in checks(protocol, real, model) if not one.ok}, name
