"""Figures of a transfer, from accounts made up by hand so that each number is known beforehand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rostrum.lab import figures

START = 1_700_000_000_000_000_000
MS = 1_000_000


def account(**changes: Any) -> SimpleNamespace:
    """A send of 1000 fragments of 8896 bytes at 1 Gbit/s (72.08 ms on the wire) to two receivers over a new circuit."""

    def at(ms: float) -> int:
        return START + int(ms * MS)

    receivers = [
        SimpleNamespace(name="h3", state="done", digest_ok=True, initial_sn=37, patched_fragments=0,
                        first_light_ns=at(73), complete_ns=at(150), cause=""),
        SimpleNamespace(name="h5", state="done", digest_ok=True, initial_sn=38, patched_fragments=4,
                        first_light_ns=at(75), complete_ns=at(151), cause=""),
    ]  # fmt: skip
    row = {
        "ok": True, "cause": "", "size": 8896 * 1000, "fragment_size": 8896, "path": "circuit", "reason": "",
        "sessions": 1, "requested_ns": at(0), "accepted_ns": at(1), "attempt_ns": at(1), "high_rate_ns": at(75.5),
        "data_done_ns": at(148), "released_ns": at(148.5), "done_ns": at(151),
        "reconfiguration_ns": 70 * MS, "rate_bps": 10**9,
        "packets_sent": 1040, "packets_attempt": 38, "packets_redundant": 36, "packets_patched": 4,
        "receivers": receivers,
    }  # fmt: skip
    return SimpleNamespace(**{**row, **changes})


def path(**changes: Any) -> dict[str, Any]:
    stamps = {
        "requested_ns": START, "accepted_ns": START + MS, "cross_connects_steady_ns": START + 74 * MS,
        "rules_in_ns": START + 3 * MS, "active_ns": START + 74 * MS, "moved_ns": None, "released_ns": None,
        "failed_ns": None,
    }  # fmt: skip
    row = {"rate_bps": 10**9, "timeline": stamps, "rules": [{}] * 3, "circuit": {"cross_connects": [{}] * 4}}
    return {**row, **changes}


def test_extra_time_is_what_neither_light_nor_the_wire_took() -> None:
    found = figures.transfer(account(), path(), emulated_ms=70)
    assert found["total_ms"] == 150 and found["reconfiguration_ms"] == 70
    ideal_ms = 72.5 * 1000 / (1040 - 38)  # high rate from 75.5 to 148 ms; two of its packets were sent twice
    assert round(found["ideal_ms"], 3) == round(ideal_ms, 3)
    assert round(found["extra_ms"], 3) == round(150 - 70 - ideal_ms, 3)
    assert round(found["ideal_at_line_rate_ms"], 3) == round((8896 + 114) * 8 * 1000 / 1e6, 3) == 72.08
    assert round(found["extra_at_line_rate_ms"], 3) == round(150 - 70 - 72.08, 3)
    assert found["setup_ms"] == 74.5 and found["response_ms"] == 1
    assert found["loss_ratio"] == 4 / 2000
    assert (found["cross_connects"], found["rules"], found["path"]) == (4, 3, "circuit")
    assert round(found["goodput_bps"]) == round(8896 * 1000 * 8 / 0.150)


def test_a_drawn_reconfiguration_counts_as_measured() -> None:
    assert figures.transfer(account(), path(), emulated_ms=None)["reconfiguration_ms"] == 73
    assert figures.transfer(account(), None, emulated_ms=None)["reconfiguration_ms"] == 70


def test_a_live_circuit_has_no_reconfiguration() -> None:
    assert figures.transfer(account(reconfiguration_ns=0), path(), emulated_ms=70)["reconfiguration_ms"] == 0


def test_the_rate_reached_is_not_beyond_the_path() -> None:
    found = figures.transfer(account(rate_bps=4 * 10**9), path(), emulated_ms=70)
    assert found["rate_bps"] == 10**9


def test_timeline_is_in_order_and_leaves_out_what_did_not_happen() -> None:
    rows = figures.timeline(account(released_ns=0), path())
    assert [row["what"] for row in rows][:4] == ["requested", "accepted", "rules in", "first light at h3, fragment 37"]
    assert [row["ms"] for row in rows] == sorted(row["ms"] for row in rows)
    assert not any("released" in row["what"] or "moved" in row["what"] for row in rows)


def test_an_independent_digest_decides() -> None:
    rows = figures.receivers(account(), {"h3": True})
    assert [(row["host"], row["digest_ok"]) for row in rows] == [("h3", True), ("h5", False)]
    assert rows[0]["complete_ms"] == 149 and rows[1]["patched_fragments"] == 4


def test_an_empty_object_has_figures_too() -> None:
    found = figures.transfer(account(size=0, packets_sent=38, high_rate_ns=0), path(), emulated_ms=70)
    assert found["ideal_ms"] < 0.001 and found["loss_ratio"] == 2 and found["goodput_bps"] == 0
