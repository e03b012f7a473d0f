"""What `rostrum bench security` makes of what it measured."""

from __future__ import annotations

from typing import Any

import pytest
from rostrum.bench import cases
from rostrum.bench.security import PLAIN, SECURE, extra_s, plan, summarize

PARTS = {"seals": {9000: {"seal_ns": 2000.0, "open_ns": 3000.0}, 1500: {"seal_ns": 500.0, "open_ns": 500.0}},
         "sha256_ns_per_byte": 0.5}  # fmt: skip


def run(case: cases.Case, tool: str, time_s: float, cpu_s: float) -> dict[str, Any]:
    described = {name: getattr(case, name) for name in case.__dataclass_fields__} | {"name": case.name}
    return {"case": described, "tool": tool, "time_s": time_s, "sender_s": cpu_s / 2, "receivers_s": cpu_s / 2,
            "sender_softirq_s": None, "receivers_softirq_s": 0.0}  # fmt: skip


def test_arithmetic__counts_every_end() -> None:
    case = cases.base(9000, size=8896 * 1000)
    assert extra_s(case, PARTS) == pytest.approx(1000 * (2e-6 + 3 * 3e-6) + 8896 * 1000 * 4 * 0.5e-9)


def test_summary__says_what_the_issue_is_about() -> None:
    entries = plan(quick=True, rounds=3)
    assert all(entry.tools == (PLAIN, SECURE) and entry.repeat == 3 for entry in entries)
    runs = []
    for entry in entries:
        slower = 1.25 if entry.case.rate_bps and entry.case.mtu == 9000 else 2.0
        runs += [run(entry.case, PLAIN, 1.0, 1.0), run(entry.case, SECURE, slower, 3.0)]
    found = summarize(runs, PARTS)
    assert found["limited_ratio_9000"] == pytest.approx(0.8) and found["limited_ratio"] == pytest.approx(0.5)
    for mtu in (9000, 1500):
        assert found[f"share_of_arithmetic_{mtu}"] == pytest.approx(0.5 / found[f"arithmetic_{mtu}"])
        assert 0 < found[f"arithmetic_{mtu}"] < 1
        assert found[f"share_of_arithmetic_cpu_{mtu}"] == pytest.approx(1 / found[f"arithmetic_{mtu}"] / 3)
