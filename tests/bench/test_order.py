"""What `rostrum bench order` makes of its rounds."""

from __future__ import annotations

from typing import Any

from rostrum.bench.order import summarize


def rounds(*figures: tuple[float, float, bool]) -> list[dict[str, Any]]:
    def phase(rate: float, p99: float, agree: bool) -> dict[str, Any]:
        return {"messages": 10, "rate_per_s": rate, "p50_ms": p99 / 2, "p99_ms": p99, "one_order": agree}

    return [{"flood": phase(rate, 9 * p99, agree), "paced": phase(50, p99, agree)} for rate, p99, agree in figures]


def test_medians_of_rounds_are_compared() -> None:
    ours = rounds((800.0, 2.0, True), (1000.0, 3.0, True), (5000.0, 90.0, True))
    summary = summarize({"rostrum": ours, "corosync": rounds((400.0, 4.0, True))})
    assert (summary["vs_corosync"], summary["p99_vs_corosync"]) == (2.5, 0.75)
    assert summary["tools"]["rostrum"]["flood_p99_ms"] == 27.0
    assert summary["tools"]["rostrum"]["p99_ms_of_rounds"] == [2.0, 3.0, 90.0]
    assert "vs_jgroups" not in summary


def test_an_order_that_differs_once_is_told() -> None:
    summary = summarize({"rostrum": rounds((1.0, 1.0, True), (1.0, 1.0, False))})
    assert not summary["tools"]["rostrum"]["one_order"]
