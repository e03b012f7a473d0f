"""Where the manager's log goes: stderr, a line for each thing said, in words or as JSON.

A request says half a dozen lines. So they are made with as little as each of them takes, and written once per turn of
the event loop; a warning is written at once, with all that was said before it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Sequence
from typing import TextIO

from rostrum.controller.keyvalue import Facts, JsonFormatter, Line, noted, stamp

LINES_MAX = 1_000  # not written yet
Said = tuple[int, str, Facts]  # level, event, facts
Noted = tuple[float, str, str, str, Facts]  # when (s), level, logger, event, facts
CHATTY = ("uvicorn", "httpx", "httpcore")


def to_stderr(verbose: bool = False, form: str = "text") -> None:
    """Of the whole process. `form`: "text" or "json"."""
    global _only
    handler = TurnHandler(sys.stderr)
    _only = handler if form == "text" else None
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    # Not asked for in any line, and looked up for each one otherwise (Python's logging HOWTO, "Optimization").
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if verbose else logging.INFO)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


def say(logger: logging.Logger, level: int, event: str, facts: Facts) -> None:
    """As `logger.log` of a line."""
    say_all(logger, ((level, event, facts),))


def say_all(logger: logging.Logger, said: Sequence[Said]) -> None:
    """Several lines, in order. When all lines of the process are written by one handler as text, it gets what is not a
    warning without a record being made of it.
    """
    handler = _only if logging.root.handlers == [_only] and not logger.handlers else None
    created, name = time.time(), logger.name
    lines: list[Noted] = []
    for level, event, facts in said:
        if not logger.isEnabledFor(level):
            continue
        if handler is not None and level < logging.WARNING:
            lines.append((created, logging.getLevelName(level), name, event, facts))
            continue
        if handler is not None and lines:
            handler.note(lines)
            lines = []
        logger.log(level, Line(event, facts))
    if handler is not None and lines:
        handler.note(lines)


_only: TurnHandler | None = None  # the handler of the whole process, if it writes text


class TurnHandler(logging.Handler):
    """Lines below WARNING are written at the end of the turn of the loop in which they are said."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: list[str | Noted] = []
        self._planned_on: asyncio.AbstractEventLoop | None = None
        self._thread = 0  # that loop's

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.append(self.format(record))
            if record.levelno >= logging.WARNING or len(self._lines) >= LINES_MAX or not self._plan():
                self.flush()
        except Exception:
            # As in the standard library: a line that cannot be written takes nothing down.
            self.handleError(record)

    def note(self, lines: Sequence[Noted]) -> None:
        """Lines below WARNING that are made into text when they are written."""
        self._lines += lines
        if len(self._lines) >= LINES_MAX or not self._plan():
            self.flush()

    def flush(self) -> None:
        self.acquire()
        try:
            lines, self._lines = self._lines, []
            if lines:
                texts = [one if isinstance(one, str) else noted(*one) for one in lines]
                self._stream.write("\n".join(texts) + "\n")
                self._stream.flush()
        finally:
            self.release()

    def _plan(self) -> bool:
        """False without a loop: in other threads, before it runs and after."""
        planned = self._planned_on
        if planned is not None and self._thread == threading.get_ident() and not planned.is_closed():
            return True  # asking which loop runs costs a system call
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        if self._planned_on is not loop:
            self._planned_on, self._thread = loop, threading.get_ident()
            loop.call_soon(self._turn_over)
        return True

    def _turn_over(self) -> None:
        self._planned_on = None
        self.flush()


class TextFormatter(logging.Formatter):
    """`2024-05-04T10:11:12.345 INFO rostrum.manager accepted path=...`, in local time."""

    def format(self, record: logging.LogRecord) -> str:
        words = f"{stamp(record.created)} {record.levelname} {record.name} {record.getMessage()}"
        return f"{words}\n{self.formatException(record.exc_info)}" if record.exc_info else words
