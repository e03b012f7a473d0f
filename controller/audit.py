"""Who asked this manager for what: one JSON object a line, appended to a file of its own (`--audit FILE`).

`time` (UTC), `door` (agents, rest), `who` (as the certificate, the token or the door says), `peer`, `what`, and what
goes with it. Rotation: rename the file, send SIGHUP. Lines are written once a turn of the loop, in one piece.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import resource
import stat
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rostrum.controller.keyvalue import Sparing, line

log = logging.getLogger("rostrum.audit.file")

TEXT_MAX: Final = 300  # characters of one value
LIST_MAX: Final = 32  # of one list; `receiver_count` and its like say how many there were
PENDING_MAX: Final = 1 << 20  # bytes; more are written at once
FAILURES = (3, 60.0)  # lines of the log about lines that were not written, in so many seconds
PR_SET_DUMPABLE: Final = 4  # prctl(2)

Value = str | int | float | list[str] | None


class AuditError(Exception):
    """Why the file cannot be had, as text."""


class Audit:
    """Raises AuditError."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.lost = 0  # lines that could not be written
        self._lines = Sparing(*FAILURES)
        self._pending: list[bytes] = []
        self._size = 0
        self._handle = self._open()

    def note(self, door: str, who: str, peer: str, what: str, **facts: Value) -> None:
        """Facts that are None or empty are left out. What others say is cut to a bounded length."""
        row: dict[str, Value] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")}
        row |= {"door": door, "who": _cut(who), "peer": peer, "what": what}
        row |= {key: _cut(value) for key, value in facts.items() if value not in (None, "", [])}
        text = json.dumps(row, ensure_ascii=True).encode() + b"\n"
        if not self._pending:
            try:
                asyncio.get_running_loop().call_soon(self.flush)
            except RuntimeError:  # no loop: at once
                self._pending.append(text)
                self.flush()
                return
        self._pending.append(text)
        self._size += len(text)
        if self._size > PENDING_MAX:
            self.flush()

    def flush(self) -> None:
        rows, self._pending, self._size = self._pending, [], 0
        data = memoryview(b"".join(rows))
        try:
            while data:
                data = data[os.write(self._handle, data) :]
        except OSError as error:
            self.lost += len(rows)
            if self._lines.may(time.monotonic()) is not None:
                log.error(line("audit not written", file=self.file, lost=self.lost, cause=error))

    def reopen(self) -> None:
        """After a rotation. A file that cannot be had is told of, and the old one goes on."""
        self.flush()
        try:
            new = self._open()
        except AuditError as error:
            log.error(line("audit not opened again, the old file goes on", cause=error))
            return
        os.close(self._handle)
        self._handle = new

    def close(self) -> None:
        self.flush()
        os.close(self._handle)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            handle = os.open(self.file, flags, 0o640)
        except OSError as error:
            raise AuditError(f"--audit {self.file}: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise AuditError(f"--audit {self.file}: it is no regular file")
        return handle


def _cut(value: Value) -> Value:
    if isinstance(value, str):
        return value[:TEXT_MAX]
    if isinstance(value, list):
        return [one[:TEXT_MAX] for one in value[:LIST_MAX]]
    return value


def no_core_dumps() -> None:
    """This process's memory has keys and passwords: it goes into no core dump, nor to a debugger of the same user
    (prctl(2), PR_SET_DUMPABLE). Raises OSError.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_DUMPABLE")
