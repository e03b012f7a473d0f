"""The same topology, group and lost packets in the lab and in the simulator: what protocols count agrees.

By `rostrum conformance` (bench/conformance.py). docs/sim.md, "Conformance", says what may differ by how much, and why.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path

import pytest
from rostrum.bench import conformance_groups as messages
from rostrum.bench.conformance import (
    FIRST_OBJECT,
    LOSS,
    OBJECTS,
    PROTOCOLS,
    RECEIVERS,
    RUN,
    SENDER,
    TOPOLOGY,
    Check,
    checks,
    compare,
    simulated,
    start_lab,
)  # fmt: skip
from rostrum.lab.lab import Lab
from rostrum.sim.network import RdcmParams

ROOT = Path(__file__).resolve().parents[2]
PATTERN_SEED = 1  # of the lab's agents
_ids = itertools.count(FIRST_OBJECT)


@pytest.fixture(scope="module")
def lab():
    with start_lab("t-conform", PATTERN_SEED) as lab:
        yield lab


@pytest.mark.lab
@pytest.mark.timeout(300)  # the lab's start, and two waits of a minute at most, which say what they waited for
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_agents_and_simulator__count_the_same(lab: Lab, protocol: str) -> None:
    row = compare(lab, protocol, True, PATTERN_SEED, next(_ids))
    assert row["ok"], (row["lab"], row["simulator"], [one for one in row["checks"] if not one["ok"]])


def test_simulated_agents__have_the_agents_own_parameters() -> None:
    """Both take them from one function of the core; nothing beside it sets another."""
    text = (ROOT / "agent" / "daemon" / "agent.c").read_text()
    assert "rdcm = rs_rdcm_of_agents();" in text
    assert not re.findall(r"\back_\w+\s*=", text), "set it in agent/core/rdcm/options.h"
    assert RdcmParams.of_agents() != RdcmParams()


@pytest.mark.parametrize("protocol", OBJECTS)
def test_a_run_that_drifts__is_told(protocol: str) -> None:
    """The simulator beside itself agrees; with other losses, lost repairs or another order it does not."""
    model = simulated(protocol, 1_000_000, 8896, PATTERN_SEED)
    assert all(one.ok for one in checks(protocol, model, model))
    drifts = {
        "lost by the pattern": dataclasses.replace(model, lost=model.lost + 1),
        "mended": dataclasses.replace(model, patched=0, repaired=0, data=model.fragments),
        "order of events": dataclasses.replace(model, order=model.order[::-1]),
    }
    for name, real in drifts.items():
        assert name in {one.name for one in checks(protocol, real, model) if not one.ok}, name


@pytest.mark.parametrize("protocol", messages.PROTOCOLS)
def test_messages_that_drift__are_told(protocol: str) -> None:
    model = messages.simulated(TOPOLOGY, protocol, 500, SENDER, RECEIVERS, (LOSS, RUN), PATTERN_SEED)
    assert model.lost > 20
    assert all(one.ok for one in messages.checks(protocol, model, model, len(RECEIVERS), Check))
    drifts = {
        "lost by the pattern": dataclasses.replace(model, lost=2 * model.lost),
        "told as lost": dataclasses.replace(model, told=2 * model.told + 100),
        "mended": dataclasses.replace(model, by_repair=model.by_repair + 1000),
        "data packets": dataclasses.replace(model, packets=2 * model.packets),
        "order of events": dataclasses.replace(model, order=model.order[::-1]),
    }
    if protocol == "ricochet":
        drifts["repairs"] = dataclasses.replace(model, repairs=model.repairs // 2)
    for name, real in drifts.items():
        found = messages.checks(protocol, real, model, len(RECEIVERS), Check)
        assert name in {one.name for one in found if not one.ok}, name
