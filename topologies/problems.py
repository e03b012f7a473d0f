"""What is wrong with a topology file, collected so that all of it is told at once."""

from __future__ import annotations

import difflib
from bisect import bisect
from collections.abc import Iterable
from dataclasses import dataclass

PROBLEMS_MAX = 1000  # of a file; a person mends a few, and looks again
NAMES_COMPARED = 500  # before and after a name in their order, where there are more

Place = tuple[str | int, ...]  # ("links", 3, "b"): the way from the file's root to the value


def place_text(place: Place) -> str:
    """`links[3].b` for ("links", 3, "b"); `the file` for the root."""
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text or "the file"


@dataclass(frozen=True)
class Problem:
    place: Place
    line: int  # from 1; 0 = no line is known
    text: str  # what is wrong, and what to do about it

    def __str__(self) -> str:
        line = f"line {self.line}, " if self.line else ""
        return f"{line}{place_text(self.place)}: {self.text}"


class TopologyError(Exception):
    """A topology file that cannot be used. `problems` lists all that was found, a line each in the text."""

    SHOWN = 50

    def __init__(self, source: str, problems: list[Problem]) -> None:
        self.source = source
        self.problems = sorted(problems, key=lambda problem: problem.line)
        lines = [f"{source}: {problem}" for problem in self.problems[: self.SHOWN]]
        if len(self.problems) > self.SHOWN:
            least = "at least " if len(self.problems) >= PROBLEMS_MAX else ""
            lines.append(f"{source}: and {least}{len(self.problems) - self.SHOWN} more problems")
        super().__init__("\n".join(lines))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """ "; did you mean h1?" or, with nothing close, the first few known names."""
    names = sorted(known)
    at = bisect(names, word)
    like = names[max(0, at - NAMES_COMPARED) : at + NAMES_COMPARED] if len(names) > 2 * NAMES_COMPARED else names
    close = difflib.get_close_matches(word[:64], like, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"; known are {shown}" if names else ""
