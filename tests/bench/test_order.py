"""What `rostrum bench order` makes of its rounds."""

from __future__ import annotations

from typing import Any

from rostrum.bench.order import summarize


def rounds(*figures: tuple[float, float, bool]) -> list[dict[str, Any]]:
    def phase(rate: float, p99: float, agree: bool) -> dict[str, Any]:
        return {"messages": 10, "rate_per_s": rate, "p50_ms": p99 / 2, "p99_ms": p99, "one_order": agree}

    return [{"flood": phase(rate, 9 * p99, agree), "paced": phase(50, p99, agree)} for rate, p99, agree in figures]


def test_best_rounds_are_compared() -> None:
    found = {"rostrum": rounds((800.0, 2.0, True), (1000.0, 3.0, True)), "corosync": rounds((400.0, 4.0, True))}
    summary = summarize(found)
    assert (summary["vs_corosync"], summary["p99_vs_corosync"]) == (2.5, 0.5)
    assert summary["tools"]["rostrum"]["flood_p99_ms"] == 18.0
    assert "vs_jgroups" not in summary


def test_an_order_that_differs_once_is_told() -> None:
    summary = summarize({"rostrum": rounds((1.0, 1.0, True), (1.0, 1.0, False))})
    assert not summary["tools"]["rostrum"]["one_order"]
