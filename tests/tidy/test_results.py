"""Stored results are small, of one form, and needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rostrum.lab.results import SERIES_MOST, save, text

from tests.tidy.tree import complaint, files
from tests.tidy.tree import text as text_of

LINES = 1500
RESULTS = files(".json", under="results/")


def test_results__are_few_lines() -> None:
    lines = {name: text_of(name).count("\n") for name in RESULTS}
    assert RESULTS and sum(lines.values()) <= LINES, complaint(f"more than {LINES} lines:", [str(lines)])


@pytest.mark.parametrize("name", RESULTS)
def test_results__have_a_line_a_run_or_series_and_say_what_they_came_from(name: str) -> None:
    report = json.loads(text_of(name))
    assert text_of(name) == text(report), f"{name}: write it with rostrum.lab.results.save"
    sources = report["rows"] if name == "results/history.json" else [report["manifest"]]
    assert all(one["commit"] != "unknown" for one in sources)


def test_results__are_named_in_documents() -> None:
    documents = "".join(text_of(name) for name in [*files(".md", under="docs/"), "README.md"])
    unknown = [
        name
        for name in files(under="results/")
        if name not in documents
        and not (Path(name).match("ricochet-*.json") and "results/ricochet-*.json" in documents)
    ]
    assert not unknown, complaint("results and pictures that no document names:", unknown)


def test_save__writes_what_a_reader_gets_back(tmp_path: Path) -> None:
    report = {"a": 1, "b": "x", "runs": [{"t": 1.5}, {"t": 2}], "rows": [[1, 2], [3]], "points": [1, 2], "none": []}
    file = tmp_path / "new" / "x.json"
    save(report, file)
    assert json.loads(file.read_text()) == report and list(file.parent.iterdir()) == [file]
    assert len(file.read_text().splitlines()) == 13
    save(report, Path("/dev/null"))
    assert not Path("/dev/null").is_file()


def test_text__has_a_line_a_series_of_rows_none_of_them_long() -> None:
    rows = [[0, 1.5], [0, 2], [1, 3], *([2, n] for n in range(SERIES_MOST + 1)), [[0], 1], [], [0, 4]]
    written = text({"columns": ["case", "t"], "runs": rows})
    assert json.loads(written)["runs"] == rows
    lines = written.splitlines()[3:-2]
    assert [len(json.loads(f"[{line.rstrip(',')}]")) for line in lines] == [2, 1, SERIES_MOST, 1, 1, 1, 1]
