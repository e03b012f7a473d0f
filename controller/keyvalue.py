"""Log lines as `event key=value ...`, one line each whatever the values hold."""

from __future__ import annotations

import json


def line(event: str, /, **facts: object) -> str:
    """Facts that are empty are left out; texts with spaces or odd characters are quoted."""
    parts = [event]
    for key, value in facts.items():
        if value is None or value == "":
            continue
        parts.append(f"{key}={_shown(value)}")
    return " ".join(parts)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    if text.isascii() and text.isprintable() and not any(letter in text for letter in ' "=\\'):
        return text
    return json.dumps(text)
