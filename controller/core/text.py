"""Phrases that the reasons and causes are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address
from typing import Final


def listed(names: Iterable[str], limit: int = 12) -> str:
    """`s1..s4, tor2`: names in order, runs of numbered ones joined, cut after `limit` parts."""
    parts: list[str] = []
    run: list[tuple[str, int]] = []

    def flush() -> None:
        if len(run) > 2:
            parts.append(f"{run[0][0]}{run[0][1]}..{run[-1][0]}{run[-1][1]}")
        else:
            parts.extend(f"{stem}{number}" for stem, number in run)
        run.clear()

    for name in sorted(set(names), key=_natural):
        numbered = _numbered(name)
        if numbered:
            stem, number = numbered
            if run and (run[-1][0], run[-1][1] + 1) != (stem, number):
                flush()
            run.append((stem, number))
        else:
            flush()
            parts.append(name)
    flush()
    if len(parts) > limit:
        return f"{', '.join(parts[:limit])} and {len(parts) - limit} more"
    return ", ".join(parts)


@lru_cache(maxsize=1 << 15)
def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    parts = re.findall(r"[0-9]{1,9}|[^0-9]+", name)
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)


@lru_cache(maxsize=1 << 15)
def _numbered(name: str) -> tuple[str, int] | None:
    match = re.fullmatch(r"(.*?[^\d.-])(0|[1-9]\d{0,8})", name)
    return (match[1], int(match[2])) if match else None


def seconds(ns: int) -> str:
    """A span for people: `70 ms`, `2 s`, `1.5 s`."""
    if ns < 1_000_000_000:
        return f"{max(ns, 0) / 1e6:.4g} ms"
    return f"{ns / 1e9:.4g} s"


def shown(text: str, limit: int = 60) -> str:
    """Somebody's text made safe and short enough to repeat to them."""
    quoted = ascii(text) if not text.isprintable() else repr(text)
    return quoted if len(quoted) <= limit else quoted[: limit - 3] + "..."


_dotted: Final[dict[int, str]] = {}
DOTTED_MAX: Final = 1 << 16


def dotted(address: IPv4Address) -> str:
    """As `str`, which takes longer than looking it up: groups come again and again."""
    number = int(address)
    text = _dotted.get(number)
    if text is None:
        if len(_dotted) >= DOTTED_MAX:
            _dotted.clear()
        text = _dotted[number] = f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return text
