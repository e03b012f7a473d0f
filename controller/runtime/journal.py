"""The manager's records in a file of its own: SQLite, in WAL mode.

A transaction is complete in the operating system's hands when `write` returns, so a manager that is killed at any
moment loses nothing. What a power cut may cost, `sync` says: "normal" (the default) the last moments, since the file
was last synced, and never the file's consistency; "full" nothing, for one fsync per transaction, carried out in a
thread.

A transaction is one row of the table `turn`: all that it changes, as JSON. It costs a fraction of a row for each
record, most of which are gone soon. Whenever the turns have 128 KiB they are folded: what they leave goes into the
table `record`, and they are deleted, in one more transaction. Readers take the records, then the turns in order.

The file is moved from the log (`-wal`) into the database by another thread, on a connection of its own, whenever 4 MiB
are in the log, so that answers do not wait for the disk; only a log of 64 MiB makes them wait. Its size is that of the
records there are at most at one time, plus turns and log.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import queue
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_json
from rostrum.controller.core.persistence.persistence import Change, Json
from rostrum.controller.runtime.store import StoreError, encode_each

SCHEMA = 3  # raised, with a step in `Journal._open`, when files of before cannot be read as they are
READABLE = (1, 2, SCHEMA)
TURNS_BYTES = 128 << 10  # not folded yet
APPLICATION_ID = 0x72737472
PAGE_BYTES = 4096
LOG_BYTES = 4 << 20  # in the log: then the other thread moves it
LOG_BYTES_MAX = 64 << 20  # in the log: then writing waits for that
SUFFIXES = ("", "-wal", "-shm", ".lock")
MODE = 0o640  # ids of applications are in it
MACHINE = Path("/proc/sys/kernel/random/boot_id")  # differs after each start of the machine

_TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE record (
    part TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (part, key)
) WITHOUT ROWID;
"""
_TURNS = "CREATE TABLE turn (number INTEGER PRIMARY KEY, changes BLOB NOT NULL, crc INTEGER NOT NULL);"
Records = dict[str, dict[str, Json]]
Rows = list[tuple[str, str, Json | None]]  # part, key, value; None = gone


class Journal:
    """One file, opened by one manager at a time. `records`: what it held when it was opened. `complete`: they are all
    that the manager before remembered; not so of a new file, nor after a power cut.
    """

    def __init__(self, path: Path, topology: str, sync: str = "normal") -> None:
        """Opens, or makes, the journal of a topology's manager. Raises StoreError."""
        self.path, self.sync = path, sync
        self._lock = _lock(path)
        self._files: list[sqlite3.Connection] = []
        self._until_look = LOG_BYTES
        self._writer: ThreadPoolExecutor | None = None
        try:
            self._file = self._open()
            about = _about(self._file)
            machine = _machine()
            here = about.get("clean") == "1" or about.get("machine") == machine or about.get("sync") == "full"
            self.complete = bool(about) and about.get("whole") == "1" and here
            self.records = _records(self._file, path)
            self._folded = set(self._file.execute("SELECT part, key FROM record").fetchall())
            self._since: dict[tuple[str, str], Json | None] = {}  # what the turns leave
            self._turns_bytes = 0
            self._take_turns()
            if about and about["topology"] != topology:
                if any(self.records.values()):
                    raise StoreError(
                        f"{path} is the journal of topology {about['topology']}, this manager's is {topology}: start "
                        f"it with another --journal, or `rostrum manager journal reset {path}`"
                    )
                self.complete = False  # nothing was done by the other topology yet
            now = datetime.now(UTC).isoformat(timespec="seconds")
            whole = "1" if self.complete else "0"
            self._note(
                topology=topology, machine=machine, opened=now, clean="0", sync=sync, whole=whole,
                created=about.get("created", now),
            )  # fmt: skip
        except sqlite3.Error as error:
            self._give_up()
            raise _damaged(path, error) from error
        except StoreError:
            self._give_up()
            raise
        self._log = Path(f"{path}-wal")
        if sync == "full":
            self._writer = ThreadPoolExecutor(1, "journal")
        self._wanted: queue.Queue[bool] = queue.Queue(1)
        self._mover = threading.Thread(target=self._move, name="journal-checkpoint", daemon=True)
        self._mover.start()

    @property
    def way_out(self) -> str:
        return _way_out(self.path)

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None] | None:
        """As `store.Store`."""
        rows = [(one.part, one.key, one.value) for one in changes]
        try:
            text = _encode(rows)
        except (TypeError, ValueError, RecursionError):
            encode_each(changes, _encode)
            raise
        if self._writer is None:
            self._commit(rows, text)
            return None
        return asyncio.wrap_future(self._writer.submit(self._commit, rows, text))

    def whole(self) -> None:
        """From now on the records explain everything of ours that is on the devices: what an earlier manager without a
        journal left there was claimed or removed.
        """
        if not self.complete:
            self.complete = True
            self._call(lambda: self._note(whole="1"))

    def close(self) -> None:
        """All is synced; the file says that nothing is missing."""
        if self._writer:
            self._writer.shutdown()  # after what is under way
        self._wanted.put(False)
        self._mover.join()
        with contextlib.suppress(sqlite3.Error):
            self._file.execute("PRAGMA synchronous=FULL")
            self._fold()
            self._note(clean="1")
            self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._give_up()

    def _open(self) -> sqlite3.Connection:
        with contextlib.suppress(OSError):  # SQLite says why it cannot; its other files get this one's mode
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
            with open(descriptor, "rb"):
                os.fchmod(descriptor, os.fstat(descriptor).st_mode & MODE)  # of one that an older release made, too
        file = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5.0)
        self._files.append(file)
        file.execute("PRAGMA journal_mode=WAL")
        file.execute(f"PRAGMA synchronous={'FULL' if self.sync == 'full' else 'NORMAL'}")
        file.execute("PRAGMA wal_autocheckpoint=0")
        file.execute(f"PRAGMA journal_size_limit={LOG_BYTES_MAX}")
        if file.execute("PRAGMA application_id").fetchone()[0] == 0 and not _tables(file):
            marks = f"PRAGMA application_id={APPLICATION_ID};PRAGMA user_version={SCHEMA};"
            file.executescript(f"BEGIN;{_TABLES}{_TURNS}{marks}COMMIT")
        _checked(file, self.path)
        if _schema(file) == 1:  # it had no turns
            file.executescript(f"BEGIN;{_TURNS}PRAGMA user_version=2;COMMIT")
        if _schema(file) == 2:  # sums were of the values alone
            rows = file.execute("SELECT part, key, value, crc FROM record").fetchall()
            for part, key, text, crc in rows:
                _check_sum(self.path, 2, part, key, text, crc)
            file.execute("BEGIN")
            new = [(_sum(SCHEMA, part, key, text), part, key) for part, key, text, _ in rows]
            file.executemany("UPDATE record SET crc = ? WHERE part = ? AND key = ?", new)
            file.execute(f"PRAGMA user_version={SCHEMA}")
            file.execute("COMMIT")
        return file

    def _take_turns(self) -> None:
        """Folds what an earlier manager left."""
        for changes in _turns(self._file, self.path):
            self._track(changes)
        self._fold()

    def _commit(self, rows: Rows, text: bytes) -> None:
        try:
            self._file.execute("INSERT INTO turn (changes, crc) VALUES (?, ?)", (text, zlib.crc32(text)))
            self._track(rows)
            self._turns_bytes += len(text)
            if self._turns_bytes >= TURNS_BYTES:
                self._fold()
            self._look_after_log(len(text))
        except sqlite3.Error as error:
            raise StoreError(f"the journal {self.path} takes nothing any more: {error}") from error

    def _track(self, rows: Rows) -> None:
        since, folded = self._since, self._folded
        for part, key, value in rows:
            name = (part, key)
            if value is not None or name in folded:
                since[name] = value
            else:
                since.pop(name, None)

    def _fold(self) -> None:
        """What the turns leave becomes records. Raises sqlite3.Error, and then nothing has changed."""
        file, rows, gone = self._file, [], []
        for name, value in self._since.items():
            if value is None:
                gone.append(name)
            else:
                text = _encode(value).decode()
                rows.append((*name, text, _sum(SCHEMA, *name, text)))
        file.execute("BEGIN")
        try:
            file.executemany("INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?)", rows)
            file.executemany("DELETE FROM record WHERE part = ? AND key = ?", gone)
            file.execute("DELETE FROM turn")
            file.execute("COMMIT")
        except sqlite3.Error:
            with contextlib.suppress(sqlite3.Error):
                file.execute("ROLLBACK")
            raise
        self._folded.difference_update(gone)
        self._folded.update((part, key) for part, key, _, _ in rows)
        self._since.clear()
        self._turns_bytes = 0
        self._until_look -= PAGE_BYTES * (len(rows) + len(gone))

    def _look_after_log(self, written: int) -> None:
        self._until_look -= written + 3 * PAGE_BYTES  # every transaction writes whole pages
        if self._until_look > 0:
            return
        size = _size(self._log)
        self._until_look = LOG_BYTES
        if size >= LOG_BYTES_MAX:
            self._file.execute("PRAGMA wal_checkpoint(RESTART)")
        elif size >= LOG_BYTES:
            with contextlib.suppress(queue.Full):
                self._wanted.put_nowait(True)

    def _move(self) -> None:
        """The other thread: from the log into the database, without being in the way of whoever writes."""
        file = sqlite3.connect(self.path, isolation_level=None, timeout=5.0)
        try:
            while self._wanted.get():
                with contextlib.suppress(sqlite3.Error):
                    file.execute("PRAGMA wal_checkpoint(PASSIVE)")
        finally:
            file.close()

    def _note(self, **facts: str) -> None:
        self._file.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", list(facts.items()))

    def _call(self, work: Callable[[], None]) -> None:
        if self._writer is None:
            work()
        else:
            self._writer.submit(work)

    def _give_up(self) -> None:
        if self._writer:
            self._writer.shutdown()
        for file in self._files:
            file.close()
        os.close(self._lock)


def show(path: Path) -> dict[str, Any]:
    """What is in a journal, also while a manager uses it. Raises StoreError."""
    with _reading(path) as file:
        return {"about": {**_about(file), "schema": str(_schema(file))}, "records": _records(file, path)}


def check(path: Path) -> dict[str, int]:
    """Looks at every page and every record; the number of records of each part. Raises StoreError."""
    with _reading(path) as file:
        found = [row[0] for row in file.execute("PRAGMA integrity_check(10)")]
        if found != ["ok"]:
            raise _damaged(path, "; ".join(found))
        return {part: len(records) for part, records in _records(file, path).items()}


def reset(path: Path) -> list[Path]:
    """Puts a journal aside, whatever is wrong with it; returns where its files are now. Raises StoreError."""
    lock = _lock(path)
    try:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        moved = []
        for suffix in SUFFIXES[:-1]:
            old = Path(f"{path}{suffix}")
            if old.exists():
                moved.append(old.rename(f"{path}.{stamp}{suffix}"))
        return moved
    except OSError as error:
        raise StoreError(f"{path} cannot be put aside: {error.strerror}") from error
    finally:
        os.close(lock)


def _encode(value: Json) -> bytes:
    try:
        return to_json(value)  # a third of the standard library's time
    except PydanticSerializationError:  # half a surrogate pair in somebody's text: JSON escapes it
        return json.dumps(value, separators=(",", ":")).encode()


def _records(file: sqlite3.Connection, path: Path) -> Records:
    """Of one moment when the connection is in a transaction."""
    records: Records = {}
    schema = _schema(file)
    for part, key, text, crc in file.execute("SELECT part, key, value, crc FROM record"):
        _check_sum(path, schema, part, key, text, crc)
        records.setdefault(part, {})[key] = json.loads(text)
    for changes in _turns(file, path):
        for part, key, value in changes:
            there = records.setdefault(part, {})
            if value is None:
                there.pop(key, None)
            else:
                there[key] = value
    return {part: there for part, there in records.items() if there}


def _sum(schema: int, part: str, key: str, text: str) -> int:
    """Of a record. A name that is another one is damage too."""
    return zlib.crc32((text if schema < 3 else f"{part}\0{key}\0{text}").encode())


def _check_sum(path: Path, schema: int, part: object, key: object, text: object, crc: object) -> None:
    whole = isinstance(part, str) and isinstance(key, str) and isinstance(text, str)
    if not whole or _sum(schema, str(part), str(key), str(text)) != crc:
        raise _damaged(path, f"record {part} {key} is not what was written")


def _turns(file: sqlite3.Connection, path: Path) -> Iterator[Rows]:
    """In order. There are none in a file of schema 1."""
    if _schema(file) == 1:
        return
    for number, changes, crc in file.execute("SELECT number, changes, crc FROM turn ORDER BY number"):
        if not isinstance(changes, bytes) or zlib.crc32(changes) != crc:
            raise _damaged(path, f"turn {number} is not what was written")
        yield json.loads(changes)


def _about(file: sqlite3.Connection) -> dict[str, str]:
    return dict(file.execute("SELECT name, value FROM about").fetchall())


def _tables(file: sqlite3.Connection) -> int:
    return int(file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _schema(file: sqlite3.Connection) -> int:
    return int(file.execute("PRAGMA user_version").fetchone()[0])


def _checked(file: sqlite3.Connection, path: Path) -> None:
    """It is a journal, of a schema known here, and its pages hang together. Raises StoreError."""
    if file.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StoreError(f"{path} is no journal of a manager: start it with another --journal")
    if _schema(file) not in READABLE:
        raise StoreError(
            f"{path} was written by another release (schema {_schema(file)}, this one knows {SCHEMA}): start that one, "
            f"or `rostrum manager journal reset {path}`"
        )
    found = [row[0] for row in file.execute("PRAGMA quick_check(3)")]
    if found != ["ok"]:
        raise _damaged(path, "; ".join(found))


@contextlib.contextmanager
def _reading(path: Path) -> Any:
    if not path.is_file():
        raise StoreError(f"there is no journal {path}")
    file = None
    try:
        file = sqlite3.connect(path, isolation_level=None)
        _checked(file, path)
        file.execute("BEGIN")  # records and turns of one moment
        yield file
    except sqlite3.Error as error:
        raise _damaged(path, error) from error
    finally:
        if file:
            file.close()


def _damaged(path: Path, cause: object) -> StoreError:
    if getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return StoreError(f"there is no room for the journal {path}: {cause}")
    return StoreError(f"the journal {path} cannot be read: {' '.join(str(cause).split())}. {_way_out(path)}")


def _way_out(path: Path) -> str:
    return (
        f"`rostrum manager journal check {path}` looks closer; `rostrum manager journal reset {path}` puts it aside, "
        "and the manager then takes over what agents and devices tell"
    )


def _lock(path: Path) -> int:
    """Held by one process at a time, and by nobody once it is dead. Raises StoreError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"the journal {path} cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise StoreError(f"the journal {path} is in use by another manager") from None
    return lock


def _machine() -> str:
    try:
        return MACHINE.read_text().strip()
    except OSError:
        return ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
