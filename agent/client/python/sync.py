"""A folder made alike on many servers: `rostrum sync DIR --to ...` here, `rostrum sync NAME --into DIR` on each.

They talk by objects. The sender offers the list of its folder to all. Each receiver answers what it lacks, and which
files it has another state of: of these, if they are large, the sender says of which chunks they consist, and the
receiver which of them it lacks. Then each byte that somebody lacks goes once, by multicast to those who lack it: what
the same receivers lack goes together in parts, and what is too little for a part of its own goes with the rest to all
who lack anything of it. At the end each receiver says how it went.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import functools
import json
import os
import secrets
import struct
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .agent import Agent, SendHandle
from .copies import Copies
from .objects import ReadObject
from .sync_messages import drop, forget_parts, message_id, parse, take_message
from .trees import (
    CHUNKED_FROM,
    FULL,
    SMALL,
    Chunk,
    Entry,
    Tree,
    boundary_for,
    checked,
    chunks_of,
    copy_bytes,
    data_ranges,
    digest_of,
    sample_of,
    scan,
)  # fmt: skip
from .values import Busy, Code, NotFound, RostrumError, TimedOut

PART = 8 << 20  # bytes of a part
OWN_PART_LEAST = 4 << 20
SMALL_TOGETHER = 1 << 20
HOLE = 1 << 63  # added to the offset of an item that is a hole: no bytes go with it
AHEAD = 8  # parts that a receiver may be behind in writing
FRESH_MOST = 1000  # files of a folder that is shown when they are there
ANSWER_WAIT_S = 30.0
ALIVE_EACH_S = 10.0  # to whom nothing was sent for so long, the sender says that it is there
LOOK_BYTES_PER_S = 20e6  # a server reads, or writes, at least so many
POLL_S = 0.5
ITEM = struct.Struct("<IQQ")
TAIL = struct.Struct("<II")

Report = Callable[[str], None]
Watch = Callable[[SendHandle], None]
Item = tuple[int, int, int]  # entry, offset, length


@dataclass
class SyncedReceiver:
    """How it went at one server."""

    name: str
    ok: bool = False
    cause: str = ""
    new: int = 0
    changed: int = 0
    deleted: int = 0
    received: int = 0  # bytes that it lacked
    refused: list[tuple[str, str]] = field(default_factory=list)
    would: list[str] = field(default_factory=list)  # a dry run: what would change there


@dataclass
class SyncResult:
    """How it went."""

    files: int
    size: int
    sent: int  # bytes of files, each counted once however many receivers took it
    took_s: float
    receivers: list[SyncedReceiver]
    left_out: list[tuple[str, str]]

    @property
    def ok(self) -> bool:
        return all(one.ok for one in self.receivers)

    def as_dict(self) -> dict[str, Any]:
        value = {**self.__dict__, "ok": self.ok}
        value["receivers"] = [one.__dict__ for one in self.receivers]
        return value


class SyncSender:
    """One run of the sender."""

    runs_there = "rostrum sync {name} --into DIR"  # what a receiver is to run
    part, ahead = PART, AHEAD  # those of its receivers too
    at_once = 2  # parts that are under way: the next one's path is set up meanwhile

    def __init__(self, agent: Agent, top: Path, receivers: Sequence[str], name: str, report: Report,
                 watch: Watch | None, wait: float, options: dict[str, Any]) -> None:  # fmt: skip
        self.began = time.monotonic()
        self.agent, self.top, self.name, self.report, self.watch, self.wait = agent, top, name, report, watch, wait
        self.options = options
        self.token = secrets.token_hex(8)
        self.rows = {receiver: SyncedReceiver(receiver) for receiver in receivers}
        self.alive = list(self.rows)
        self.entries, self.left_out = self.scan()
        self.given = dict.fromkeys(receivers, 0)  # parts for each
        self.said = dict.fromkeys(receivers, time.monotonic())  # something to each
        self.ended: set[str] = set()  # these wait for nothing more
        self.data: dict[int, list[tuple[int, int]] | None] = {}  # where sparse files have any; None: everywhere
        self.sent = 0

    def scan(self) -> tuple[list[Entry], list[tuple[str, str]]]:
        """What is offered; and what is left out, and why."""
        return scan(self.top, bool(self.options["checksum"]))

    def open(self, entry: Entry) -> int:
        """The file of an entry."""
        return os.open(f"{self.top}/{entry.path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def fail(self, receiver: str, cause: str) -> None:
        if receiver in self.alive:
            self.alive.remove(receiver)
            self.rows[receiver].cause = cause
            if self.alive:  # else the result, which says why, follows
                self.report(f"{receiver} failed: the others go on")

    # -- messages

    def start(self, what: str, content: bytes | int, receivers: Sequence[str]) -> tuple[str, SendHandle, Sequence[str]]:
        data_id = message_id(self.name, what)
        drop(self.agent, data_id, 0.0)
        self.said |= dict.fromkeys(receivers, time.monotonic())
        return data_id, self.agent.send(data_id, receivers, self.wait, source=content), receivers

    def end(self, started: tuple[str, SendHandle, Sequence[str]], cause: str = "") -> None:
        """Waits for it; those that did not get it fail."""
        data_id, handle, receivers = started
        try:
            if self.watch:
                self.watch(handle)
            result = handle.wait()
        except RostrumError as error:
            for receiver in receivers:
                self.fail(receiver, str(error))
            return
        finally:
            drop(self.agent, data_id)
        for one in result.receivers:
            if not one.digest_ok:
                self.fail(one.name, f"{cause}{one.cause or one.state or result.cause}")

    def tell(self, what: str, message: dict[str, Any], receivers: Sequence[str], cause: str = "") -> None:
        if receivers:
            self.end(self.start(what, json.dumps({"token": self.token, **message}).encode(), list(receivers)), cause)

    def answers(self, what: str, receivers: Sequence[str], wait: float, *keys: str) -> dict[str, dict[str, Any]]:
        """What each of these that are left says; those that do not fail."""
        until = time.monotonic() + wait
        found: dict[str, dict[str, Any]] = {}
        for receiver in [one for one in receivers if one in self.alive]:
            data_id = message_id(self.name, f"{what} of {receiver}")
            try:
                while receiver not in found:
                    with take_message(self.agent, data_id, max(0.1, until - time.monotonic())) as data:
                        answer = parse(data, "token", "cause")
                    if answer["token"] == self.token:
                        found[receiver] = answer
                        self.ended |= {receiver} if what == "end" else set()
                if found[receiver]["cause"] or not set(keys) <= set(found[receiver]):
                    self.fail(receiver, str(found.pop(receiver)["cause"] or "it answers in another version"))
            except TimedOut:
                self.fail(receiver, f"it does not answer: does {self.runs_there.format(name=self.name)} run there?")
            except RostrumError as error:
                self.fail(receiver, str(error))
        return found

    # -- the run

    def run(self) -> None:
        for receiver in self.rows:
            for what in ("answer", "chunks", "taken", "end"):
                drop(self.agent, message_id(self.name, f"{what} of {receiver}"), 0.0)
        offer = {"sender": self.agent.server, **self.options, "entries": self.entries}
        self.tell("offer", offer, list(self.rows), "it does not take the offer: ")
        size = sum(entry.size for entry in self.entries)
        look_s = len(self.entries) / 1000 + (size / LOOK_BYTES_PER_S if self.options["checksum"] else 0)
        answers = self.answers(
            "answer", list(self.rows), self.wait + look_s, "want", "changed", "alike", "new", "delete", "refused"
        )
        for receiver, answer in list(answers.items()):
            try:
                self._note(self.rows[receiver], answer)
            except (ValueError, TypeError, RostrumError):
                self.fail(receiver, "it asks for what was not offered")
                del answers[receiver]
        if not self.options["dry_run"]:
            try:
                self._send_all(self._wants(answers))
                bound = self.wait + look_s + self.sent / LOOK_BYTES_PER_S
                for receiver, answer in self.answers("end", list(self.rows), bound).items():
                    self.rows[receiver].refused += [(str(path), str(why)) for path, why in answer.get("failed", [])]
            finally:
                for receiver, count in self.given.items():  # the last of these nobody waited for
                    for batch in range(count // self.ahead):
                        drop(self.agent, message_id(self.name, f"taken {batch} of {receiver}"), 0.0)
        for receiver in self.alive:
            row = self.rows[receiver]
            row.ok = not row.refused
            row.cause = row.cause or (f"{len(row.refused)} names are refused" if row.refused else "")

    @contextlib.contextmanager
    def _alive(self) -> Iterator[None]:
        """Those that wait for others, or for what is looked for in files here, hear that this is so."""
        over = threading.Event()
        data_id, content = message_id(self.name, "alive"), json.dumps({"token": self.token}).encode()

        def has_ended(receiver: str) -> bool:
            if receiver in self.ended:
                return True
            with (
                contextlib.suppress(RostrumError),
                self.agent.read(message_id(self.name, f"end of {receiver}"), wait=0),
            ):
                return True
            return False

        def tell() -> None:
            while not over.wait(ALIVE_EACH_S / 10):
                late = time.monotonic() - ALIVE_EACH_S
                silent = [one for one in self.alive if self.said[one] < late and not has_ended(one)]
                with contextlib.suppress(RostrumError):
                    if silent:
                        self.said |= dict.fromkeys(silent, time.monotonic())
                        self.agent.send(data_id, silent, ALIVE_EACH_S, source=content).wait()
                    drop(self.agent, data_id, 0.0)

        thread = threading.Thread(target=tell, name="rostrum-sync-alive", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(self.wait)

    def result(self) -> SyncResult:
        """Runs it; what it came to."""
        with contextlib.nullcontext() if self.options["dry_run"] else self._alive():
            self.run()
        files = [entry for entry in self.entries if entry.kind == "f"]
        return SyncResult(len(files), sum(entry.size for entry in files), self.sent, time.monotonic() - self.began,
                          list(self.rows.values()), self.left_out)  # fmt: skip

    def _note(self, row: SyncedReceiver, answer: dict[str, Any]) -> None:
        lacks = [self._entry(index) for key in ("want", "changed", "alike") for index in answer[key]]
        row.new = int(answer["new"])
        row.changed = len(lacks) - row.new
        row.deleted = int(answer["delete"])
        row.refused = [(str(path), str(why)) for path, why in answer["refused"]]
        row.would = [str(line) for line in answer.get("would", [])]
        if self.options["dry_run"]:
            row.received = sum(entry.size for entry in lacks)
        self.report(f"{row.name}: {row.new} new, {row.changed} changed, {row.deleted} to delete")

    def _entry(self, index: object) -> Entry:
        if not isinstance(index, int) or not 0 <= index < len(self.entries):
            raise RostrumError("a receiver asks for what was not offered", Code.PROTOCOL)
        return self.entries[index]

    def _wants(self, answers: dict[str, dict[str, Any]]) -> dict[frozenset[str], list[Item]]:
        """What which receivers lack: whole files, or chunks of those that some have another state of."""
        chunks: dict[int, list[Chunk]] = {}
        specs: dict[int, str] = {}
        torn: set[int] = set()
        for index in sorted({index for answer in answers.values() for index in answer["changed"]}):
            entry = self._entry(index)
            try:
                file = self.open(entry)
                try:
                    specs[index] = boundary_for(sample_of(file, entry.size))
                    chunks[index] = chunks_of(file, entry.size, specs[index])
                finally:
                    os.close(file)
            except (OSError, ValueError) as error:
                torn.add(index)
                self.left_out.append((entry.path, str(error)))
        lists = {str(index): [specs[index], [[one.offset, one.length, one.digest] for one in found]]
                 for index, found in chunks.items()}  # fmt: skip
        digests = self._digests({index for answer in answers.values() for index in answer["alike"]})
        asked = [receiver for receiver, answer in answers.items()
                 if (answer["changed"] or answer["alike"]) and receiver in self.alive]  # fmt: skip
        self.tell("chunks", {"chunks": lists, "digests": digests}, asked)
        bound = self.wait + sum(self.entries[index].size for index in chunks.keys() | digests) / LOOK_BYTES_PER_S
        lacks = self.answers("chunks", asked, bound, "lacks")
        who: dict[Item, int] = {}
        alive = list(self.alive)
        for place, receiver in enumerate(alive):
            try:
                more = lacks.get(receiver, {})
                whole = [*answers[receiver]["want"], *more.get("want", [])]
                items = list(self._lacked(whole, more.get("lacks", {}), chunks))
            except (ValueError, TypeError, LookupError, AttributeError, RostrumError):
                self.fail(receiver, "it asks for what was not offered")
                continue
            for item in items:
                if item[0] not in torn:
                    who[item] = who.get(item, 0) | 1 << place
        wants: dict[int, list[Item]] = {}
        for item in sorted(who):
            wants.setdefault(who[item], []).extend(self._without_holes(item))
        return {frozenset(one for place, one in enumerate(alive) if mask >> place & 1): items
                for mask, items in wants.items()}  # fmt: skip

    def _digests(self, indexes: set[int]) -> dict[int, str]:
        """Of files that receivers may have under other names. One that cannot be read now is not among them."""
        found: dict[int, str] = {}
        for index in sorted(indexes):
            with contextlib.suppress(OSError):
                file = self.open(self.entries[index])
                try:
                    found[index] = self.entries[index].digest or digest_of(file)
                finally:
                    os.close(file)
        return found

    def _without_holes(self, item: Item) -> Iterator[Item]:
        """An item of a sparse file as those of data and those of holes."""
        index, offset, length = item
        if self.entries[index].size > SMALL and index not in self.data:
            self.data[index] = None
            with contextlib.suppress(OSError):
                file, size = self.open(self.entries[index]), self.entries[index].size
                try:
                    if os.lseek(file, 0, os.SEEK_HOLE) < size:
                        self.data[index] = list(data_ranges(file, 0, size))
                finally:
                    os.close(file)
        ranges = self.data.get(index)
        if ranges is None:
            yield item
            return
        end = offset + length
        for start, stop in ranges[max(0, bisect.bisect_right(ranges, (offset, HOLE)) - 1) :]:
            start, stop = max(start, offset), min(stop, end)
            if start >= end:
                break
            if start < stop:
                if offset < start:
                    yield index, HOLE | offset, start - offset
                yield index, start, stop - start
                offset = stop
        if offset < end:
            yield index, HOLE | offset, end - offset

    def _lacked(self, whole: Any, missing: Any, chunks: dict[int, list[Chunk]]) -> Iterator[Item]:
        """What a receiver lacks. Whole files in chunks, too, if others lack some of them."""
        for index in whole:
            size = self._entry(index).size
            if index in chunks:
                yield from ((index, one.offset, one.length) for one in chunks[index])
            elif size > 0:
                yield index, 0, size
        for text, numbers in missing.items():
            for number in numbers:
                one = chunks[int(text)][int(number)]
                yield int(text), one.offset, one.length

    def _plan(self, by_set: dict[frozenset[str], list[Item]]) -> list[tuple[list[str], list[Item]]]:
        """Parts, and for whom each is. The first is for all, and says which others are for whom."""
        everybody = frozenset().union(*by_set)
        together = [who for who, items in by_set.items()
                    if who == everybody or _size(items) < OWN_PART_LEAST]  # fmt: skip
        common = _cut_parts(sorted(item for who in together for item in by_set[who]), self.part)
        parts = [(sorted(everybody), part) for part in common]
        if not parts or everybody != frozenset(self.alive):
            parts.insert(0, (list(self.alive), []))
        for who, items in by_set.items():
            if who not in together:
                parts += [(sorted(who), part) for part in _cut_parts(items, self.part)]
        return parts

    def _send_all(self, wants: dict[frozenset[str], list[Item]]) -> None:
        """Everything that somebody lacks, part by part."""
        for who, items in wants.items():
            size = _size(items)
            self.sent += size
            for receiver in who:
                self.rows[receiver].received += size
        parts = self._plan(wants)
        mine = {
            receiver: [number for number, (who, _) in enumerate(parts) if receiver in who] for receiver in self.rows
        }
        given = self.given
        waiting: deque[tuple[str, SendHandle, Sequence[str]]] = deque()
        try:
            for number, (receivers, items) in enumerate(parts):
                plan = json.dumps({"mine": mine if number == 0 else {}}).encode()
                descriptor = self._pack(items, plan)
                try:
                    if len(waiting) >= self.at_once:
                        self.end(waiting.popleft())
                    self._let_them_write(receivers, given)
                    to = [receiver for receiver in receivers if receiver in self.alive]
                    if not to:
                        continue
                    self.report(f"part {number + 1} of {len(parts)} to {len(to)} server(s)")
                    waiting.append(self.start(f"part {number} of {self.token}", descriptor, to))
                finally:
                    os.close(descriptor)
            while waiting:
                self.end(waiting.popleft())
        finally:
            for data_id, handle, _ in waiting:  # interrupted
                with contextlib.suppress(RostrumError):
                    handle.cancel()
                drop(self.agent, data_id)

    def _let_them_write(self, receivers: Sequence[str], given: dict[str, int]) -> None:
        """No receiver is more than some parts behind."""
        due: dict[int, list[str]] = {}
        for receiver in receivers:
            batch, rest = divmod(given[receiver], self.ahead)
            given[receiver] += 1
            if batch >= 2 and rest == 0:
                due.setdefault(batch - 2, []).append(receiver)
        for batch, late in due.items():
            self.answers(f"taken {batch}", late, self.wait + self.ahead * self.part / LOOK_BYTES_PER_S)

    def _pack(self, items: Sequence[Item], plan: bytes) -> int:
        """A part, in memory: bytes of files, then which they are. Files that change meanwhile are left out of it."""
        descriptor = os.memfd_create("rostrum-sync")
        packed: list[Item] = []
        small = memoryview(bytearray(SMALL_TOGETHER))
        at = used = 0  # of the bytes up to `at`, the last `used` are in `small` yet
        try:
            for item in items:
                index, offset, length = item
                entry = self.entries[index]
                hole = offset >= HOLE
                if used and not hole and (length > SMALL or used + length > SMALL_TOGETHER):
                    used = _write_small(descriptor, small[:used], at - used)
                try:
                    file = self.open(entry)
                    try:
                        if hole:
                            pass
                        elif length > SMALL:
                            copy_bytes(file, descriptor, offset, at, length)
                        elif os.preadv(file, [small[used : used + length]], offset) != length:
                            raise OSError(errno.ESTALE, "it became shorter while it was read: sync again")
                        info = os.fstat(file)
                    finally:
                        os.close(file)
                    if max(0, info.st_mtime_ns) != entry.mtime_ns or info.st_size != entry.size:
                        raise OSError(errno.ESTALE, "it changed while it was read: sync again")
                except OSError as error:
                    if not self.left_out or self.left_out[-1][0] != entry.path:
                        self.left_out.append((entry.path, error.strerror or str(error)))
                    continue
                packed.append(item)
                if not hole:
                    at += length
                    used += length if length <= SMALL else 0
            _write_small(descriptor, small[:used], at - used)
            table = b"".join(ITEM.pack(*item) for item in packed)
            os.ftruncate(descriptor, at)
            os.pwrite(descriptor, table + plan + TAIL.pack(len(packed), len(plan)), at)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _write_small(descriptor: int, data: memoryview, at: int) -> int:
    """Contents that are collected go to their place. Returns how much is collected now: nothing."""
    if data and os.pwrite(descriptor, data, at) != len(data):
        raise OSError(errno.EIO, "a part could not be put together")
    return 0


def _size(items: Iterable[Item]) -> int:
    """Of what goes: holes do not."""
    return sum(length for _, offset, length in items if offset < HOLE)


def _cut_parts(items: Iterable[Item], most: int) -> list[list[Item]]:
    parts: list[list[Item]] = []
    room = 0
    for index, start, size in items:
        if start >= HOLE and parts:
            parts[-1].append((index, start, size))
            continue
        offset, left = start, size
        while left > 0:
            if room == 0:
                parts.append([])
                room = most
            some = left if start >= HOLE else min(left, room)
            parts[-1].append((index, offset, some))
            offset, left = offset + some, left - some
            room -= some if start < HOLE else 0
    return parts


def sync_folder(
    agent: Agent,
    folder: str | os.PathLike[str],
    receivers: Sequence[str],
    *,
    name: str | None = None,
    delete: bool = False,
    dry_run: bool = False,
    checksum: bool = False,
    whole: bool = False,
    wait: float = ANSWER_WAIT_S,
    report: Report = lambda text: None,
    watch: Watch | None = None,
) -> SyncResult:
    """Makes the folders of that name on other servers like this one; there `take_folder` runs.

    Args:
        name: what they call it; None: the folder's own name.
        delete: what is there and not here goes there.
        dry_run: says what would change; nothing does.
        checksum: compare contents, not only sizes and times.
        whole: changed files go whole. At 5 Gbit/s and more that is faster than finding what is the same in them.
        wait: seconds for a receiver's answer, beyond what its disk takes.
        report: told what happens; `watch`: given each send that is under way.

    Raises:
        RostrumError: it could not be begun. OSError: the folder cannot be read.
    """
    top = Path(folder).resolve(strict=True)
    options = {"delete": delete, "dry_run": dry_run, "checksum": checksum, "whole": whole}
    sender = SyncSender(agent, top, list(dict.fromkeys(receivers)), name or top.name, report, watch, wait, options)
    return sender.result()


class Abandoned(Exception):
    """Its sender is gone, or started over."""


@dataclass
class _Coming:
    """A file of which bytes come."""

    descriptor: int
    staged: str
    left: int
    lacks: list[Chunk] | None = None  # of what it was put together here, these are missing; None: all is

    def wants(self, offset: int) -> bool:
        if self.lacks is None:
            return True
        place = bisect.bisect_right(self.lacks, offset, key=lambda one: one.offset) - 1
        return place >= 0 and offset < self.lacks[place].offset + self.lacks[place].length


class SyncReceiver:
    """One run of a receiver."""

    ahead = AHEAD

    def __init__(self, agent: Agent, tree: Tree, name: str, offer: dict[str, Any], wait: float) -> None:
        self.agent, self.tree, self.name, self.wait = agent, tree, name, wait
        self.token, self.sender = str(offer["token"]), str(offer["sender"])
        self.delete, self.dry_run = bool(offer["delete"]), bool(offer["dry_run"])
        self.whole = bool(offer["whole"])
        self.entries, self.refused = checked(offer["entries"])
        self.want: set[int] = set()
        self.changed: set[int] = set()
        self.copies: Copies | None = None  # of what other files here have
        self.absent: set[int] = set()
        self.links: list[int] = []
        self.extra: list[str] = []
        self.coming: dict[int, _Coming] = {}
        self.done: set[int] = set()
        self.placed: set[int] = set()  # of these, in this run
        self.failed: list[tuple[str, str]] = []
        self.fresh: dict[str, int] = {}  # folders that are shown when so many files have come

    def say(self, what: str, **message: object) -> None:
        """To the sender; again while its agent still has an older one of that name."""
        data_id = message_id(self.name, f"{what} of {self.agent.server}")
        content = json.dumps({"token": self.token, "cause": "", **message}).encode()
        until = time.monotonic() + self.wait
        while True:
            drop(self.agent, data_id)
            result = self.agent.send(data_id, [self.sender], self.wait, source=content).wait()
            drop(self.agent, data_id)
            if result.ok:
                return
            if time.monotonic() >= until:
                raise Abandoned(result.cause)
            time.sleep(0.1)

    def hear(self, what: str, wait: float) -> ReadObject:
        """An object of this run. Its sender may start over instead, or be gone.

        Raises:
            Abandoned: so it is.
        """
        until = time.monotonic() + wait
        while True:
            try:
                return take_message(self.agent, message_id(self.name, what), POLL_S)
            except TimedOut:
                with contextlib.suppress(NotFound, Busy):
                    self.agent.read(message_id(self.name, "offer"), wait=0).close()
                    raise Abandoned("another one was begun") from None
                if self._hears():
                    until = time.monotonic() + wait
                if time.monotonic() > until and not self._under_way(what):
                    raise Abandoned(f"{self.sender} says nothing more") from None

    def _hears(self) -> bool:
        """The sender has said that it is there."""
        with contextlib.suppress(RostrumError), take_message(self.agent, message_id(self.name, "alive"), 0) as data:
            return bool(parse(data, "token")["token"] == self.token)
        return False

    def _under_way(self, what: str) -> bool:
        """Something comes here from the sender."""
        return any(not row.sending and row.peer == self.sender for row in self.agent.status().transfers)

    def compare(self) -> None:
        new_folders: set[str] = set()
        for index, entry in enumerate(self.entries):
            if entry is None:
                continue
            info = None if entry.path.rpartition("/")[0] in new_folders else self.tree.look(entry.path)
            if info is None:
                self.absent.add(index)
            elif self.tree.same(entry, info):
                self.done.add(index)
                continue
            if entry.kind == "d":
                new_folders.add(entry.path)
            if entry.kind in ("l", "h"):
                self.links.append(index)
            elif entry.kind == "f":
                old = info is not None and not self.whole and min(info.st_size, entry.size) >= CHUNKED_FROM
                (self.changed if old else self.want).add(index)
        self.extra = self.tree.extra(self.entries) if self.delete else []
        if not self.whole:
            self.copies = Copies(self.tree, self.entries, self.want | self.changed, self.changed)
            self.want -= self.copies.alike
            self.changed -= self.copies.alike

    @property
    def alike(self) -> set[int]:
        """What another file here may have."""
        return self.copies.alike if self.copies else set()

    def would(self) -> list[str]:
        lacks = self.want | self.changed | self.alike | set(self.links)
        lines = [f"new {entry.path}" if index in self.absent else f"changed {entry.path}"
                 for index, entry in enumerate(self.entries)
                 if entry and index in lacks]  # fmt: skip
        return lines + [f"delete {path}" for path in self.extra]

    def run(self, report: Report) -> None:
        self.compare()
        fields = {"would": self.would()} if self.dry_run else {}
        wanted = self.want | self.changed | self.alike
        self.say("answer", want=sorted(self.want), changed=sorted(self.changed), alike=sorted(self.alike),
                 new=len(self.absent & wanted), delete=len(self.extra), refused=self.refused, **fields)  # fmt: skip
        if self.dry_run:
            return
        self.tree.begin(self.token)
        try:
            self._take_all()
            self._finish()
        except OSError as error:
            raise RostrumError(f"{self.tree.top}: {error.strerror}: {error.filename or ''}", Code.IO) from error
        finally:
            for coming in self.coming.values():
                os.close(coming.descriptor)
        self.say("end", failed=self.failed)
        report(f"{len(self.done)} files are as {self.sender} has them, {len(self.extra)} deleted")

    def _take_all(self) -> None:
        self._make_folders()
        if self.changed or self.alike:
            self._use_what_is_here()
        for index in sorted(self.want):
            entry = self.entries[index]
            if entry and entry.size == 0:
                self._attempt(index, entry, functools.partial(self.tree.write_file, entry, memoryview(b"")))
        with self.hear(f"part 0 of {self.token}", self.wait) as part:
            numbers = self._take_part(part)
        for taken, number in enumerate(numbers, 2):
            with self.hear(f"part {number} of {self.token}", self.wait) as part:
                self._take_part(part)
            if taken % self.ahead == 0:
                self.say(f"taken {taken // self.ahead - 1}")

    def _make_folders(self) -> None:
        """New ones without others in them are shown when their files are there, if these are not many: a run that is
        killed leaves out what is not shown."""
        files = Counter(entry.path.rpartition("/")[0] for index in self.want | self.alike
                        if (entry := self.entries[index]))  # fmt: skip
        folders = {entry.path.rpartition("/")[0] for entry in self.entries if entry and entry.kind == "d"}
        for entry in self.entries:
            if entry and entry.kind == "d":
                fresh = 0 < files[entry.path] <= FRESH_MOST and entry.path not in folders
                self.tree.make_folder(entry, fresh)
                if fresh:
                    self.fresh[entry.path] = files[entry.path]

    def _use_what_is_here(self) -> None:
        """Other files' contents, and chunks of files that changed: they are copied."""
        with self.hear(
            "chunks", self.wait + sum(entry.size for entry in self.entries if entry) / LOOK_BYTES_PER_S
        ) as data:
            message = parse(data, "chunks", "digests")
        try:
            lists = dict(message["chunks"])
            digests = {int(index): str(digest) for index, digest in dict(message["digests"]).items()}
        except (ValueError, TypeError) as error:
            raise RostrumError(f"what came is no list of chunks ({error})", Code.PROTOCOL) from error
        missing: list[int] = []
        if self.copies:
            found, missing = self.copies.stage(digests, self.extra)
            self.want.update(missing)
            for index, name in found.items():
                entry = self.entries[index]
                assert entry
                self._attempt(index, entry, functools.partial(self.tree.place_staged, entry, name))
        self.say("chunks", lacks=self._compare_chunks(lists), want=missing)

    def _compare_chunks(self, lists: dict[str, Any]) -> dict[str, list[int]]:
        """Which chunks of each file that changed are not here; the others are copied."""
        lacks: dict[str, list[int]] = {}
        for index in sorted(self.changed):
            entry = self.entries[index]
            assert entry
            if str(index) not in lists:
                continue  # it changed at the sender
            try:
                spec, rows = lists[str(index)]
                chunks = [Chunk(int(offset), int(length), str(digest)) for offset, length, digest in rows]
                if sum(one.length for one in chunks) != entry.size or min(one.length for one in chunks) < 1:
                    raise ValueError("length")
                lacks[str(index)] = self._copy_chunks(index, entry, str(spec), chunks)
            except (ValueError, TypeError) as error:
                raise RostrumError(f"what came is no list of chunks ({error})", Code.PROTOCOL) from error
        return lacks

    def _copy_chunks(self, index: int, entry: Entry, spec: str, chunks: Sequence[Chunk]) -> list[int]:
        """The numbers of those that are not here."""
        old = self.tree.open(entry.path)
        lacks: list[int] = []
        try:
            coming = self._begin(index, entry)
            descriptor = coming.descriptor
            here = {one.digest: one for one in chunks_of(old, os.fstat(old).st_size, spec)}
            at = 0
            for number, one in enumerate(chunks):
                found = here.get(one.digest)
                if one.offset != at:
                    raise ValueError("offset")
                at += one.length
                if found and found.length == one.length:
                    for start, end in data_ranges(old, found.offset, found.offset + found.length):
                        copy_bytes(old, descriptor, start, one.offset + start - found.offset, end - start)
                    coming.left -= one.length
                else:
                    lacks.append(number)
        finally:
            os.close(old)
        coming.lacks = [chunks[number] for number in lacks]
        if coming.left == 0:
            self._complete(index, self.coming.pop(index))
        return lacks

    def _begin(self, index: int, entry: Entry) -> _Coming:
        """A file of which bytes are to come; zeros are where none do."""
        coming = self.coming[index] = _Coming(*self.tree.new_file(entry.mode), entry.size)
        os.ftruncate(coming.descriptor, entry.size)
        return coming

    def _take_part(self, part: ReadObject) -> list[int]:
        """Its bytes go into their files. Returns which parts are for this server, if it says so."""
        bad = RostrumError("what came is no part of a sync", Code.PROTOCOL)
        if part.size < TAIL.size:
            raise bad
        count, plan_length = TAIL.unpack(os.pread(part.fd, TAIL.size, part.size - TAIL.size))
        plan_at = part.size - TAIL.size - plan_length
        table_at = plan_at - count * ITEM.size
        if table_at < 0:
            raise bad
        table = os.pread(part.fd, count * ITEM.size, table_at)
        at = 0
        with contextlib.ExitStack() as until:
            data = memoryview(until.enter_context(part.mmap()))
            until.callback(data.release)
            whole: list[tuple[int, Entry, int]] = []  # small files of one folder, and where each begins
            folder = ""
            for index, offset, length in ITEM.iter_unpack(table):
                entry = self.entries[index] if index < len(self.entries) else None
                hole = offset >= HOLE
                some = 0 if hole else length  # bytes of it here
                if entry is None or length == 0 or offset % HOLE + length > entry.size or at + some > table_at:
                    raise bad
                parent = entry.path.rpartition("/")[0]
                if whole and (parent != folder or index <= whole[-1][0]):
                    self._write_files(folder, whole, data)
                    whole = []
                if index in self.want and index not in self.done and index not in self.coming:
                    if some == entry.size:
                        folder = parent
                        whole.append((index, entry, at))
                    else:
                        self._begin(index, entry)
                if index in self.coming:
                    self._write(index, entry, part.fd, at, offset, length)
                at += some
            self._write_files(folder, whole, data)
        try:
            mine = json.loads(os.pread(part.fd, plan_length, plan_at)).get("mine", {}).get(self.agent.server, [])
            return sorted({int(number) for number in mine} - {0})
        except (ValueError, TypeError, AttributeError) as error:
            raise bad from error

    def _write_files(self, folder: str, files: Sequence[tuple[int, Entry, int]], data: memoryview) -> None:
        """Files of one folder, each from its place in `data`."""
        failed = self.tree.write_files(folder, [(entry, at) for _, entry, at in files], data)
        self.failed += [(files[number][1].path, error.strerror or str(error)) for number, error in failed.items()]
        came = {index for number, (index, _, _) in enumerate(files) if number not in failed}
        self.done |= came
        self.placed |= came
        self._count_fresh(folder, len(files))

    def _write(self, index: int, entry: Entry, source: int, at: int, offset: int, length: int) -> None:
        coming = self.coming[index]
        if not coming.wants(offset % HOLE):
            return
        if offset < HOLE:
            copy_bytes(source, coming.descriptor, at, offset, length)
        coming.left -= length
        if coming.left <= 0:
            self._complete(index, self.coming.pop(index))

    def _complete(self, index: int, coming: _Coming) -> None:
        entry = self.entries[index]
        assert entry
        try:
            self._attempt(
                index, entry, functools.partial(self.tree.place_file, entry, coming.descriptor, coming.staged)
            )
        finally:
            os.close(coming.descriptor)

    def _attempt(self, index: int, entry: Entry, place: Callable[[], None]) -> None:
        """It gets its place, or is named as one that did not; a disk that is full ends it all."""
        try:
            place()
            self.done.add(index)
            self.placed.add(index)
        except OSError as error:
            if error.errno in FULL:
                raise
            self.failed.append((entry.path, error.strerror or str(error)))
        self._count_fresh(entry.path.rpartition("/")[0], 1)

    def _count_fresh(self, folder: str, files: int) -> None:
        """So many of its files have come, or never will."""
        if files and folder in self.fresh:
            self.fresh[folder] -= files
            if self.fresh[folder] == 0:
                self.tree.show(folder)

    def _finish(self) -> None:
        self.tree.show_all()
        for index in self.links:
            entry = self.entries[index]
            assert entry
            self._attempt(index, entry, functools.partial(self.tree.make_link, entry))
        for path in self.extra:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                self.tree.remove(path)
        self.failed += [(entry.path, "it did not come: it changed at the sender") for index, entry in
                        enumerate(self.entries) if entry and entry.kind == "f" and index not in self.done
                        and entry.path not in {path for path, _ in self.failed}]  # fmt: skip
        was_right = self.done - self.placed
        self.tree.settle([entry if entry and (entry.kind == "d" or index in was_right) else None
                          for index, entry in enumerate(self.entries)])  # fmt: skip


def take_folder(
    agent: Agent,
    name: str,
    into: str | os.PathLike[str],
    *,
    once: bool = True,
    wait: float | None = None,
    report: Report = lambda text: None,
) -> None:
    """Makes the folder `into` like the one that another server's `sync_folder` offers by that name.

    Args:
        once: return after one; otherwise it goes on, whatever becomes of each.
        wait: seconds for an offer; None: forever.

    Raises:
        RostrumError: it failed (with `once`); TimedOut: nobody offered anything.
    """

    @contextlib.contextmanager
    def receiver(offer: dict[str, Any]) -> Iterator[SyncReceiver]:
        with _tree(Path(into), offer) as tree:
            yield SyncReceiver(agent, tree, name, offer, ANSWER_WAIT_S)

    take_offers(agent, name, receiver, once=once, wait=wait, report=report)


def take_offers(
    agent: Agent,
    name: str,
    receiver: Callable[[dict[str, Any]], contextlib.AbstractContextManager[SyncReceiver]],
    *,
    once: bool,
    wait: float | None,
    report: Report,
) -> None:
    """Each offer of that name, by a receiver that is made for it. As of `take_folder`."""
    until = None if wait is None else time.monotonic() + wait
    while True:
        try:
            with take_message(
                agent, message_id(name, "offer"), 5.0 if until is None else min(5.0, max(0, until - time.monotonic()))
            ) as data:
                offer = parse(data, "token", "sender", "delete", "dry_run", "checksum", "whole", "entries")
        except TimedOut:
            if until is not None and time.monotonic() >= until:
                raise TimedOut(f"nobody offered {name} within {wait:g} s") from None
            continue
        except RostrumError as error:
            if once or agent.closed:
                raise
            report(str(error))
            continue
        try:
            with receiver(offer) as run:
                forget_parts(agent, name, run.tree.interrupted())
                drop(agent, message_id(name, "alive"))
                _take_one(run, report)
            if once:
                return
        except Abandoned as gone:
            report(f"a sync was given up: {gone}; what was complete stays")
        except (RostrumError, OSError) as error:
            if once:
                raise
            report(str(error))


@contextlib.contextmanager
def _tree(into: Path, offer: dict[str, Any]) -> Iterator[Tree]:
    """That of a dry run is an empty one elsewhere, if there is none."""
    with contextlib.ExitStack() as until:
        if offer["dry_run"] and not into.exists():
            into = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="rostrum-sync-")))
        yield until.enter_context(Tree(into, bool(offer["delete"])))


def _take_one(run: SyncReceiver, report: Report) -> None:
    """One run; the sender is told what goes wrong."""
    try:
        run.run(report)
    except (RostrumError, OSError) as error:
        run.wait = 0  # once each: one of them is waited for
        for what in ("answer", "chunks", "end"):
            with contextlib.suppress(RostrumError, Abandoned):
                run.say(what, cause=str(error))
        raise
    finally:
        forget_parts(run.agent, run.name, run.token)
        drop(run.agent, message_id(run.name, "alive"))
