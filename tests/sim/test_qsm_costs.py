"""What processors need: costs that explain what agents used, and files of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rostrum.lab.experiments.qsm_costs import Counts, calibrate, fit
from rostrum.sim.qsm import GUESSED, CostsError, stored_costs


def row(received: float, delivered: float, tokens: float, cold_ns: float = 0.0) -> Counts:
    """Of an agent that needs 5 us a datagram, 2 us a message, 100 us a token."""
    spent = received * 5e3 + delivered * (2e3 + cold_ns) + tokens * 1e5
    return {"received": received, "delivered": delivered, "tokens": tokens, "cpu_s": spent / 1e9}


def test_fit__finds_what_each_costs_and_nothing_below_nothing() -> None:
    rows = [row(1e5, 1e5, 100), row(1e4, 2e5, 100), row(1e5, 1e5, 5000)]
    assert fit(rows) == pytest.approx({"receive_ns": 5e3, "message_ns": 2e3, "token_ns": 1e5})
    free = [{**one, "cpu_s": one["received"] * 5e-6} for one in rows]
    found = fit([free[0], free[1], {**free[2], "cpu_s": free[2]["cpu_s"] * 0.99}])
    assert all(cost >= 0 for cost in found.values())


@pytest.mark.parametrize(("some", "warm"), [(20, 256), (290, 1)])
def test_calibrate__what_many_groups_need_more_is_cold_state(some: float, warm: int) -> None:
    receivers = {
        "packets": [row(1e5, 1e5, 100)] * 2,
        "messages": [row(1e4, 2e5, 100)] * 2,
        "tokens": [row(1e5, 1e5, 5000)] * 2,
        "some": [row(1e5, 1e5, 100, cold_ns=some)] * 2,
        "groups": [row(1e5, 1e5, 100, cold_ns=300)] * 2,
    }
    sender = {"cpu_s": 1e5 * 9e-6, "published": 1e5, "tokens": 0.0, "sent": 1e5}
    costs = calibrate(receivers, {"packets": sender})
    assert costs == {"receive_ns": 5000, "message_ns": 2000, "token_ns": 100_000, "send_ns": 7000, "cold_ns": 300,
                     "warm_groups": warm}  # fmt: skip


def test_stored_costs__are_read_with_whom_they_are_of(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    file.write_text(json.dumps({"costs": {"receive_ns": 7}, "manifest": {"commit": "abc"}}))
    found = stored_costs(file)
    assert (found.calibrated, found.commit, found.host.receive_ns) == (True, "abc", 7)
    assert found.host.buffer_bytes == GUESSED.buffer_bytes


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"costs": {"a": 1}, "manifest": {"commit": ""}}',
                                  '{"costs": {"receive_ns": -1}, "manifest": {"commit": ""}}'])  # fmt: skip
def test_stored_costs__others_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "costs.json"
    file.write_text(text)
    with pytest.raises(CostsError, match="is no calibration"):
        stored_costs(file)
    with pytest.raises(CostsError):
        stored_costs(tmp_path / "missing.json")
