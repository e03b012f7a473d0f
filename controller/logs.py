"""Where the manager's log goes: stderr, a line for each thing said, as text or as JSON.

A request says half a dozen lines. So they are made with as little as each of them takes, and written once per turn of
the event loop; a warning is written at once, with all that was said before it. Nobody waits for whoever reads the log:
what a full pipe or a hanging journald does not take is kept for a while, and then left out and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import socket
import stat
import sys
import threading
import time
from collections.abc import Sequence
from typing import TextIO

from rostrum.controller.keyvalue import Facts, JsonFormatter, Line, noted, stamp

LINES_MAX = 1_000  # not written yet
BACKLOG_MAX = 1 << 20  # bytes that whoever reads the log has not taken
RETRY_S = 0.1
FINAL_MESSAGE_S = 1.0  # for the reader to take the backlog when the process ends
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


class Outlet:
    """A stream that is written to without waiting for its reader. Not for several threads at a time."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._backlog = bytearray()
        self._lost = 0  # lines
        self._socket: socket.socket | None = None
        self._fd: int | None = None
        self._is_file = False
        with contextlib.suppress(OSError, ValueError):  # in tests it is no file
            fd = stream.fileno()
            kind = os.fstat(fd).st_mode
            if stat.S_ISSOCK(kind):  # journald's
                self._socket = socket.socket(fileno=os.dup(fd))
            else:
                self._fd, self._is_file = fd, stat.S_ISREG(kind)

    def write(self, text: str) -> bool:
        """False: something is left over; `write` of nothing tries again."""
        if self._fd is None and self._socket is None:
            self._stream.write(text)
            self._stream.flush()
            return True
        data = text.encode(errors="backslashreplace")
        if len(self._backlog) + len(data) > BACKLOG_MAX:
            self._lost += text.count("\n")
        else:
            self._backlog += data
        self._drain()
        if self._lost and not self._backlog:
            lost, self._lost = self._lost, 0
            said = f"log lines left out: {lost}; whoever reads the log did not take them"
            self._backlog += f"{stamp(time.time())} WARNING {__name__} {said}\n".encode()
            self._drain()
        return not self._backlog

    def write_dropped(self) -> None:
        """What is left over, as far as it is taken in a moment."""
        end = time.monotonic() + FINAL_MESSAGE_S
        while not self.write("") and (left_s := end - time.monotonic()) > 0:
            waits = self._fd if self._socket is None else self._socket
            if waits is not None:
                select.select([], [waits], [], left_s)

    def _drain(self) -> None:
        try:
            while self._backlog:
                part = bytes(self._backlog[: select.PIPE_BUF])  # for which a pipe that is ready has room
                if self._socket is not None:
                    taken = self._socket.send(part, socket.MSG_DONTWAIT)
                else:
                    assert self._fd is not None
                    if not self._is_file and not select.select([], [self._fd], [], 0)[1]:
                        return
                    taken = os.write(self._fd, part)
                del self._backlog[:taken]
        except BlockingIOError:
            return
        except OSError:  # nobody reads it any more, or the disk is full
            self._lost += self._backlog.count(b"\n")
            self._backlog.clear()


class TurnHandler(logging.Handler):
    """Lines below WARNING are written at the end of the turn of the loop in which they are said."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._outlet = Outlet(stream)
        self._retries_on: asyncio.AbstractEventLoop | None = None
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
                if not self._outlet.write("\n".join(texts) + "\n"):
                    self._try_again()
        finally:
            self.release()

    def close(self) -> None:
        self.flush()
        self.acquire()
        try:
            self._outlet.write_dropped()
        finally:
            self.release()
        super().close()

    def _try_again(self) -> None:
        """Without a loop: when there is something more to say."""
        with contextlib.suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            if self._retries_on is not loop:
                self._retries_on = loop
                loop.call_later(RETRY_S, self._write_left_over)

    def _write_left_over(self) -> None:
        self._retries_on = None
        self.acquire()
        try:
            if not self._outlet.write(""):
                self._try_again()
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
        text = f"{stamp(record.created)} {record.levelname} {record.name} {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text
