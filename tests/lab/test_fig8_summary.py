"""Fig. 8's numbers, from transfers made up by hand so that each is known beforehand."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rostrum.lab.experiments import fig8_attempt_interval as fig8
from rostrum.lab.experiments import fig8_plot
from rostrum.lab.experiments.fig8_summary import (
    Configuration,
    Rows,
    Run,
    as_row,
    cdf,
    columns,
    interval_text,
    percentile,
    read_rows,
    shape,
    spread,
    summaries,
)
from rostrum.lab.results import text
from rostrum.topologies import load
from rostrum.topologies.loader import builtin_file

VALUES = st.lists(st.floats(0, 1e6), min_size=1, max_size=60)


def made(configuration: int = 0, **values: Any) -> Run:
    known = {
        "round": 0, "reused": False, "sender": "h1", "busy": 0.0, "attempt_ms": 60.0, "extra_ms": 66.0,
        "redundant_bytes": 8896, "lost": (0, 0),
    }  # fmt: skip
    return Run(configuration=configuration, **{**known, **values})


@given(VALUES)
def test_cdf_rises_to_one(values: list[float]) -> None:
    at, share = cdf(values)
    assert at == sorted(set(values)) and share[-1] == 1
    assert all(low < high for low, high in itertools.pairwise(share))
    assert all(s == pytest.approx(sum(v <= a for v in values) / len(values)) for a, s in zip(at, share, strict=True))


@given(VALUES, st.sampled_from([0.5, 10, 50, 90, 99, 100]))
def test_percentile_is_the_least_value_that_so_many_do_not_exceed(values: list[float], percent: float) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(v <= found for v in values) >= percent / 100 * len(values) - 1e-9
    lower = [v for v in values if v < found]
    assert not lower or len(lower) < percent / 100 * len(values)


def test_percentiles_of_few_values() -> None:
    assert [percentile([1, 2, 3, 4], p) for p in (25, 50, 75, 90, 99)] == [1, 2, 3, 4, 4]
    assert spread([]) == {}
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_summary_counts_receivings_and_tells_reused_circuits_apart() -> None:
    runs = [
        made(lost=(0, 3), redundant_bytes=90_000, attempt_ms=61.0),
        made(lost=(0, 0), redundant_bytes=10_000, attempt_ms=59.0),
        made(lost=(1, 0), reused=True, redundant_bytes=0, attempt_ms=1.0),
        made(1, lost=(7, 7)),
    ]
    row = summaries([Configuration(0.0007, "last"), Configuration(None, "last")], runs)[0]
    assert (row["interval_us"], row["start_on"]) == (700, "last")
    assert [(row[k]["transfers"], row[k]["receivings"]) for k in ("all", "new", "reused")] == [(3, 6), (2, 4), (1, 2)]
    assert row["new"]["cases_with_loss"] == 0.25 and row["all"]["cases_with_loss"] == pytest.approx(0.3333)
    assert row["new"]["lost_packets"] == {"p50": 0, "p90": 3, "p99": 3, "max": 3, "mean": 0.75}
    assert row["reused"]["attempt_ms"]["p99"] == 1.0
    assert row["new"]["redundant_bytes"]["p50"] == 10_000


def test_the_shape_rests_on_transfers_in_quiet_moments() -> None:
    configurations, runs = paper("last", 0, 0, 0, 0)
    noise = [made(place, extra_ms=900.0 * (2 - place % 2), attempt_ms=500.0, busy=0.9) for place in range(5)] * 9
    found = fig8.computed(configurations, [*runs, *noise], {"reconfiguration": "uniform:50ms:70ms"})
    assert found["busy"] == 45 and found["shape"]["extra_least"]["holds"] and found["shape"]["attempt_flat"]["holds"]
    assert found["configurations"][0]["new"]["transfers"] == 10  # the table tells of all


def test_nothing_run_is_said_as_nothing() -> None:
    row = summaries([Configuration(0.0007, "last")], [])[0]
    assert row["all"]["transfers"] == 0 and row["all"]["cases_with_loss"] is None and row["all"]["extra_ms"] == {}
    assert shape([row], 60) == {}


PAPERS = [(0.00007, 55, 70), (0.0007, 55, 60), (0.0014, 56, 60), (0.007, 62, 66), (0.07, 95, 100)]


def paper(policy: str, base: int, attempt_less: float, lost_more: int, extra_more: float) -> tuple[list, list]:
    """Transfers as the paper describes them."""
    configurations, runs = [], []
    for place, (interval_s, attempt_ms, extra_ms) in enumerate(PAPERS):
        configurations.append(Configuration(interval_s, policy))
        lost = (40 >> 2 * place) + lost_more
        runs += [
            made(base + place, attempt_ms=attempt_ms - attempt_less, extra_ms=extra_ms + extra_more,
                 lost=(lost, 0), redundant_bytes=10**7 >> 3 * place),
            made(base + place, reused=True, attempt_ms=3, extra_ms=4),
        ]  # fmt: skip
    return configurations, runs


def test_the_papers_shape_is_recognized() -> None:
    last, of_last = paper("last", 0, 0, 0, 0)
    first, of_first = paper("first", len(last), 5, 30, 2)
    found = shape(summaries(last + first, of_last + of_first), 60)
    assert {name for name, row in found.items() if row["holds"]} == {
        "redundancy_falls", "loss_falls", "attempt_flat", "extra_least", "reused_skip", "first_no_gain",
    }  # fmt: skip
    assert found["attempt_flat"]["flat_up_to_percent"] == pytest.approx(2.333)
    assert found["extra_least"]["least_at_percent"] == [pytest.approx(1.167), pytest.approx(2.333)]


def test_another_shape_is_not_taken_for_it() -> None:
    configurations = [Configuration(one, policy) for policy in ("last", "first") for one in (0.00007, 0.007, 0.07)]
    runs = [
        made(index, attempt_ms=60 + 20 * (index % 3), extra_ms=60 + 20 * (index % 3), redundant_bytes=1000 * index)
        for index in range(6)
    ]
    assert not [name for name, row in shape(summaries(configurations, runs), 60).items() if row["holds"]]


def test_rows_are_in_the_order_of_the_columns() -> None:
    row = dict(zip(columns(), as_row(made(3, lost=(1, 2), attempt_ms=1.23456)), strict=True))
    assert (row["configuration"], row["lost"], row["attempt_ms"]) == (3, [1, 2], 1.235)


def test_intervals_with_a_reason() -> None:
    assert [interval_text(one) for one in (70e-6, 7e-4, 1.4e-3, 0.07, None)] == [
        "70 us",
        "700 us",
        "1.4 ms",
        "70 ms",
        "auto",
    ]


def test_report_is_json_with_a_line_for_each_run() -> None:
    report = {"columns": columns(), "runs": [as_row(made()), as_row(made(1))], "failed": 0}
    written = text(report)
    assert json.loads(written) == report
    assert len([line for line in written.splitlines() if line.startswith("[") and line != "["]) == 2


def test_an_earlier_result_is_shown_and_drawn_again(tmp_path: Path) -> None:
    configurations, runs = paper("last", 0, 0, 0, 0)
    found = summaries(configurations, runs)
    parameters = {"size": "16 MiB", "receivers": 3, "reconfiguration": "fixed:60ms", "ringing": "1ms:0.5", "seed": 4}
    report = {
        "manifest": {"commit": "f" * 40, "parameters": parameters}, "configurations": found, "columns": columns(),
        "shape": shape(found, 60), "excluded": [], "failed": 0, "busy": 0, "runs": [as_row(run) for run in runs],
    }  # fmt: skip
    (tmp_path / "old.json").write_text(text(report))
    assert read_rows(report) == Rows(configurations, runs)
    options = ["--from", str(tmp_path / "old.json"), "--png", str(tmp_path / "new.png")]
    done = CliRunner().invoke(fig8.command, options)
    assert done.exit_code == 0 and "1.4 ms" in done.output and "found     redundant bytes" in done.output, done.output
    assert (tmp_path / "new.png").read_bytes()[:4] == b"\x89PNG"
    (tmp_path / "old.json").write_text('{"runs": 3}')
    done = CliRunner().invoke(fig8.command, options)
    assert done.exit_code == 1 and "not a result of this experiment" in done.output


def test_picture_is_drawn(tmp_path: Path) -> None:
    configurations, runs = paper("last", 0, 0, 0, 0)
    fig8_plot.draw(tmp_path / "a.png", [*configurations, Configuration(None, "last")], runs, "made up")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


START = 1_700_000_000_000_000_000


def result(**changes: Any) -> Any:
    """1000 fragments at 1 Gbit/s: 72.08 ms on the wire; done 140 ms after the acceptance."""

    def at(ms: float) -> int:
        return START + round(ms * 1e6)

    receivers = [SimpleNamespace(name=name, patched_fragments=lost, first_light_ns=at(60 + lost), cause="lost")
                 for name, lost in (("h3", 0), ("h5", 4))]  # fmt: skip
    row = {
        "ok": True, "cause": "", "path": "circuit", "reason": "", "reconfiguration_ns": 60_000_000,
        "accepted_ns": at(0), "high_rate_ns": at(64), "data_done_ns": at(138), "done_ns": at(140), "size": 8896 * 1000,
        "fragment_size": 8896, "packets_attempt": 90, "packets_redundant": 80, "receivers": receivers,
    }  # fmt: skip
    return SimpleNamespace(**{**row, **changes})


def test_account_of_a_transfer() -> None:
    path = {"timeline": {"cross_connects_steady_ns": START + 61_000_000}}
    topology = load(builtin_file("hybrid-4x2"))
    run = fig8.account(topology, result(), path, Run(2, 0, False, "h1", 0.0))
    assert isinstance(run, Run)
    assert (run.steady_ms, run.attempt_ms, run.total_ms) == (61, 64, 140)
    assert run.extra_ms == pytest.approx(140 - 72.08)
    assert (run.redundant_bytes, run.lost, run.light_ms) == (80 * 8896, (0, 4), (60, 64))
    through = fig8.account(topology, result(high_rate_ns=0), path, Run(2, 0, False, "h1", 0.0))
    assert isinstance(through, Run) and through.attempt_ms == 138


@pytest.mark.parametrize(
    ("changes", "reused", "text"),
    [
        ({"ok": False}, False, "h3: lost"),
        ({"path": "packet", "reason": "no splitter"}, False, "packet path: no splitter"),
        ({"reconfiguration_ns": 0}, False, "live already"),
        ({}, True, "not kept"),
    ],
)
def test_what_cannot_be_counted_is_said(changes: dict[str, Any], reused: bool, text: str) -> None:
    topology = load(builtin_file("hybrid-4x2"))
    row = fig8.account(topology, result(**changes), None, Run(2, 0, reused, "h1", 0.0))
    assert isinstance(row, dict) and text in row["why"] and row["ok"] == changes.get("ok", True)


def test_rounds_make_all_repeats() -> None:
    for repeats in (1, 6, 16, 17, 40):
        plan = fig8.Plan((0.001,), repeats, 1, 3, "fixed:1ms", "1ms:0.5", True, 0.0, 1, "hybrid-4x2", "x")
        assert sum(plan.rounds()) == repeats and max(plan.rounds()) <= fig8.ROUND_REPEATS
    assert [one.label for one in plan.configurations()] == ["1 ms, last", "1 ms, first", "auto, last"]
