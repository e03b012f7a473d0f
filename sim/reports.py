"""What an experiment found, as a file: small enough to be kept, and to be read by a person."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DIGITS = 6  # of a figure: more than any of them is good for
NUMBERS = re.compile(r"\[[\s\d.,eE+-]+\]")


def save(report: dict[str, Any], file: Path) -> None:
    """JSON, a line for each member; a list of numbers is one line, and figures have six digits."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_rounded(report), indent=1)
    file.write_text(NUMBERS.sub(lambda found: f"[{' '.join(found[0][1:-1].split())}]", text) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: _rounded(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(member) for member in value]
    return value
