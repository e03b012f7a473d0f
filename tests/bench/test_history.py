"""The benches' figures by commit: what is kept, what counts as a drop, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rostrum.bench import history
from rostrum.bench.commands import bench, report
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


def test_command__keeps_shows_draws_and_tells_drops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, source = tmp_path / "history.json", tmp_path / "summary.json"
    monkeypatch.setattr(history, "FILE", file)
    source.write_text(json.dumps(summary()))
    done = CliRunner().invoke(bench, ["history", "--add", str(source), "--png", str(tmp_path / "t.png")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "t.png").stat().st_size > 1000
    source.write_text(json.dumps(summary("abd", **{NAME: 0.5})))
    keep = ["history", "--add", str(source), "--png", str(tmp_path / "t.png")]
    done = CliRunner().invoke(bench, keep)
    assert done.exit_code == 0 and "dropped" in done.output, done.output
    assert history.told(summary("abc+changes", **{NAME: 0.2}))[0].startswith(f"{NAME} dropped by 60%")
    source.write_text("{")
    assert CliRunner().invoke(bench, keep).exit_code == 1


def test_row__of_benches_that_nest_their_summary() -> None:
    given = {"summary": {"vs_corosync": 2.4, "p99_vs_corosync": 0.5, "skipped": {}}, "manifest": {"commit": "a"}}
    assert history.row_of(given) == Row("a", "", "order", False, {"vs_corosync": 2.4, "p99_vs_corosync": 0.5})
    assert history.row_of({"summary": {"messages_ratio": 1.0}, "manifest": {"commit": "a"}}).bench == "security"


def test_bench__a_quick_one_is_kept_as_quick_and_its_end_tells_what_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(history, "FILE", tmp_path / "history.json")
    runs = json.loads(Path(__file__).with_name("recorded.json").read_text())["runs"]
    runs = [{name: value for name, value in run.items() if name != "commit"} for run in runs]
    made = {"commit": "a" * 40, "time": "t", "machine": {}, "parameters": {"quick": True}}
    report({"runs": runs, "manifest": made}, tmp_path)
    kept = history.row_of(json.loads((tmp_path / "summary.json").read_text()))
    assert kept.quick
    better = {name: value * (2 if history.FIGURES["datapath"][name] == "higher" else 0.5)
              for name, value in kept.figures.items()}  # fmt: skip
    history.add(Row("b" * 40, "t", "datapath", True, better))
    capsys.readouterr()
    report({"runs": runs, "manifest": made}, tmp_path)
    assert "dropped by" in capsys.readouterr().out
