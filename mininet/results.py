"""The form of a result file: JSON, a line a run or a series of short rows. `results/` has those that documents name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

DIGITS = 6  # of a figure: more than any of them is good for
SERIES_MOST = 32  # rows on a line: some 2,500 characters of them


def text(report: dict[str, Any]) -> str:
    """A line for each member, numbers and text side by side; for a list of records, one for each of these; for a list
    of rows, one for those that follow each other with the same first cell (a series: runs of one configuration).
    """
    parts: list[str] = []
    was_plain = False
    for name, value in report.items():
        plain = not isinstance(value, dict | list | tuple)
        separator = ", " if parts and plain and was_plain else ",\n" if parts else ""
        parts.append(f"{separator}{json.dumps(name)}: {_member(value)}")
        was_plain = plain
    return "{\n" + "".join(parts) + "\n}\n"


def save(report: dict[str, Any], file: Path) -> None:
    """A reader sees the old file or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists() and not file.is_file():  # a device or a pipe
        file.write_text(text(report))
        return
    scratch = file.with_name(file.name + ".part")
    scratch.write_text(text(report))
    scratch.replace(file)


def rounded(value: Any) -> Any:
    """The same, its floats with six digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: rounded(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(member) for member in value]
    return value


def _member(value: Any) -> str:
    if isinstance(value, list | tuple) and value:
        if all(isinstance(row, list | tuple) for row in value):
            return "[\n" + ",\n".join(",".join(map(_line, rows)) for rows in _series(value)) + "\n]"
        if all(isinstance(row, dict | list | tuple) for row in value):
            return "[\n" + ",\n".join(map(_line, value)) + "\n]"
    return _line(value)


def _series(rows: Sequence[Sequence[Any]]) -> Iterator[Sequence[Sequence[Any]]]:
    for _, alike in groupby(rows, key=lambda row: _line(row[:1])):
        series = list(alike)
        yield from (series[at : at + SERIES_MOST] for at in range(0, len(series), SERIES_MOST))


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
