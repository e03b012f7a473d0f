"""The form of a result file: JSON, one line a run. `results/` at the root has those that documents name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DIGITS = 6  # of a figure: more than any of them is good for


def text(report: dict[str, Any]) -> str:
    """A line for each member, numbers and text side by side; for a list of records or rows, one for each of these."""
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
    if isinstance(value, list | tuple) and value and all(isinstance(row, dict | list | tuple) for row in value):
        return "[\n" + ",\n".join(_line(row) for row in value) + "\n]"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
