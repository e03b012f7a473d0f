"""The benches' figures by commit: what is kept, what counts as a drop, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rostrum.bench import history
from rostrum.bench.commands import bench, tell_drops
from rostrum.bench.history import HistoryError, Row

NAME = "vs_tcp3_offload"  # higher is better
CPU = "cpu_ratio_tcp3"  # lower is


def summary(commit: str = "abc", **figures: Any) -> dict[str, Any]:
    return {NAME: 1.0, **figures, "manifest": {"commit": commit, "time": "t", "parameters": {"quick": True}}}


def row(value: float, commit: str = "x", name: str = NAME) -> Row:
    return Row(commit, "t", "datapath", True, {name: value})


def test_drop__more_than_a_tenth_worse_than_before() -> None:
    assert [one.figure for one in history.drops(row(0.85), [row(1.0)])] == [NAME]
    assert not history.drops(row(0.95), [row(1.0)])
    assert not history.drops(row(2.0), [row(1.0)])
    assert history.drops(row(1.2, name=CPU), [row(1.0, name=CPU)])[0].by == pytest.approx(0.2)
    assert not history.drops(row(0.5, name=CPU), [row(1.0, name=CPU)])


def test_drop__a_figure_that_scatters_has_to_fall_further() -> None:
    scattered = [row(value) for value in (1.0, 0.8, 1.0, 0.8, 1.0)]
    assert not history.drops(row(0.75), scattered)
    assert history.drops(row(0.6), scattered)


def test_drop__quick_runs_are_not_held_against_whole_ones() -> None:
    whole = Row("y", "t", "datapath", False, {NAME: 1.0})
    assert not history.drops(row(0.1), [whole])
    assert not history.drops(row(0.1), [row(0.0)])


def test_row__of_a_bench_that_is_there_and_of_one_commit_only() -> None:
    assert history.row_of(summary(max_rss_mb=9.0)).figures == {NAME: 1.0}
    assert history.row_of({"flood_loss1_ratio": 0.6, "manifest": {"commit": "a"}}).bench == "messages"
    for wrong in ({}, {"manifest": {}}, {"manifest": {"commit": "a"}}, summary("a+changes"), summary("a, b"),
                  summary("unknown"), summary(**{NAME: "fast"}), summary(**{NAME: float("nan")})):  # fmt: skip
        with pytest.raises(HistoryError):
            history.row_of(wrong)


def test_file__a_commit_has_one_row_and_rows_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "history.json"
    assert (
        history.add(row(1.0, "a"), file) and not history.add(row(0.9, "a"), file) and history.add(row(1.1, "b"), file)
    )
    assert [(one.commit, one.figures[NAME]) for one in history.load(file)] == [("a", 0.9), ("b", 1.1)]
    monkeypatch.setattr(history, "ROWS_MOST", 2)
    history.add(row(1.0, "c"), file)
    assert [one.commit for one in history.load(file)] == ["b", "c"]


SPOILT = (
    "",
    "[]",
    "{}",
    '{"rows": 3}',
    '{"rows": [{}]}',
    '{"rows": [{"figures": {"a": "b"}}]}',
    '{"rows": [{"commit": "a", "time": "", "bench": "x", "quick": 1, "figures": {}}]}',
)


@pytest.mark.parametrize("text", SPOILT)
def test_file__a_spoilt_one_is_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "history.json"
    file.write_text(text)
    with pytest.raises(HistoryError, match=r"history\.json"):
        history.load(file)


def test_command__keeps_shows_draws_and_bench_tells_drops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, source = tmp_path / "history.json", tmp_path / "summary.json"
    monkeypatch.setattr(history, "FILE", file)
    source.write_text(json.dumps(summary()))
    done = CliRunner().invoke(bench, ["history", "--add", str(source), "--png", str(tmp_path / "t.png")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "t.png").stat().st_size > 1000
    source.write_text(json.dumps(summary("abd", **{NAME: 0.5})))
    done = CliRunner().invoke(bench, ["history", "--add", str(source)])
    assert done.exit_code == 0 and "dropped" in done.output, done.output
    tell_drops(summary("abc+changes", **{NAME: 0.2}))
    assert f"{NAME} dropped by 60%" in capsys.readouterr().out.replace("\n", " ")
    source.write_text("{")
    assert CliRunner().invoke(bench, ["history", "--add", str(source)]).exit_code == 1
