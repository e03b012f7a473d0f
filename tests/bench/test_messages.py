"""`rostrum bench messages`: what it plans, what it makes of what programs tell, what it says of failures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rostrum.bench.commands import bench
from rostrum.bench.messages import cases, runner, summary
from rostrum.bench.run import Program

HEAD = {"received": 0, "again": 0, "malformed": 0, "first_ns": 0, "last_ns": 0}


def book(received: int, took_ms: int, p99_us: float, first_ns: int = 10**9) -> dict[str, Any]:
    delays = {"p50_us": p99_us / 10, "p90_us": p99_us / 2, "p99_us": p99_us, "max_us": 2 * p99_us}
    return {**HEAD, "received": received, "first_ns": first_ns, "last_ns": first_ns + took_ms * 10**6, **delays}


def test_a_group_is_as_fast_as_its_slowest_and_as_late_as_its_latest() -> None:
    case = cases.MessageCase(0, 0.0, 1000)
    found = runner.figures(case, [book(1000, 100, 5000.0), book(1000, 200, 1000.0)])
    assert found["messages_per_s"] == pytest.approx(5000)
    assert found["p99_ms"] == 5.0
    assert found["received_share"] == 1.0


def test_who_misses_messages_is_not_called_fast() -> None:
    case = cases.MessageCase(0, 0.0, 1000)
    found = runner.figures(case, [book(1000, 100, 5000.0), book(500, 100, 5000.0)])
    assert found["messages_per_s"] == pytest.approx(5000), "those that all have"
    assert found["received_share"] == 0.5
    assert runner.figures(case, [book(1000, 100, 1.0), {}]) == {"received_share": 0.0}


def record(case: str, tool: str, rate: float, outcome: str = "ok") -> dict[str, Any]:
    delays = {"p50_ms": 1.0, "p99_ms": 2.0, "received_share": 1.0 if outcome == "ok" else 0.5}
    costs = {"sender_s": 1.0, "receivers_s": 2.0}
    return {"case": {"name": case}, "tool": tool, "outcome": outcome, "messages_per_s": rate, **delays, **costs}


def test_goals_compare_with_the_best_tool_that_lost_nothing() -> None:
    records = [
        record("flood-loss0", "rostrum", 300.0),
        record("flood-loss0", "norm", 500.0, "incomplete"),
        record("flood-loss0", "aeron", 100.0),
        record("flood-loss1", "rostrum", 240.0),
        record("flood-loss1", "aeron", 12.0),
        {"case": {"name": "flood-loss1"}, "tool": "jgroups", "outcome": "missing", "text": "no Java"},
    ]
    found = summary.summarize(records)
    assert found["vs_best_tool_flood_loss0"] == 3.0
    assert found["vs_best_tool_flood_loss1"] == 20.0
    assert found["flood_loss1_ratio"] == 0.8
    assert found["cases"]["flood-loss1"]["jgroups"]["complete"] == 0
    text = summary.table(records)
    assert "| norm    | 0/1" in text and "missing" in text


def test_a_case_of_another_size_is_named_by_it_and_a_flood_of_large_messages_is_as_many_bytes() -> None:
    small, usual, large = (cases.parse("flood-loss1", quick=True, size=size) for size in (100, cases.BYTES, 1 << 16))
    assert [case.name for case in (small, usual, large)] == ["flood-loss1-100B", "flood-loss1", "flood-loss1-65536B"]
    assert small.count == usual.count and usual.count // 64 == large.count
    assert cases.parse("flood-loss1", size=1 << 20).count >= cases.LEAST
    assert [case.name for case in cases.planned(quick=True, size=100)][-1] == "10000-loss1-100B"
    assert CliRunner().invoke(bench, ["messages", "--size", "3"]).exit_code == 2


@pytest.mark.parametrize(
    "name", ["", "flood", "0-loss1", "flood-loss90", "10-loss-1", "flood-loss1; x", "9" * 9 + "-loss0"]
)
def test_a_wrong_case_is_told_how_it_is_written(name: str) -> None:
    done = CliRunner().invoke(bench, ["messages", "--case", name])
    assert done.exit_code == 2
    assert "write one like flood-loss0" in done.output


def test_an_unknown_tool_is_told_which_there_are() -> None:
    done = CliRunner().invoke(bench, ["messages", "--tools", "carrier-pigeon"])
    assert done.exit_code == 2
    assert "no such tool: carrier-pigeon" in done.output and "aeron" in done.output


def test_every_round_has_every_tool_once() -> None:
    plan = list(runner.turns([cases.case(0, 0.0), cases.case(10, 1.0)], ["a", "b", "c"], 4, seed=3))
    assert len(plan) == 24
    for start in range(0, 24, 3):
        assert {tool for _, tool, _ in plan[start : start + 3]} == {"a", "b", "c"}


def test_a_receiver_that_misses_something_is_asked_for_what_it_has(tmp_path: Path) -> None:
    text = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # one that comes before it is waited for waits, too
print("ready", flush=True)
signal.sigwait([signal.SIGTERM])
print('{"received": 7}')
"""
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-c", text], stdout=output)
    try:
        program = Program(None, ["receiver"], log, process)  # type: ignore[arg-type]
        while "ready" not in program.text():
            assert process.poll() is None
        assert runner._final_counts(program) == {"received": 7}
    finally:
        process.kill()
        process.wait()
