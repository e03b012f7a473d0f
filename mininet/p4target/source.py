"""Lines of generated Python with their indentation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

INDENT = "    "
VARIABLE = re.compile(r"\b(?:[hvx]\d+|m\d+_\d+|plen|trunc)\b")


class Source:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str) -> None:
        self._lines.append(INDENT * self._depth + text)

    def lines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.line(text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block; `pass` if nothing is put into it."""
        self.line(head)
        self._depth += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._depth -= 1

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def variables(self) -> set[str]:
        """The packet's variables that occur (expressions.py says how they are named)."""
        return set(VARIABLE.findall(self.text))
