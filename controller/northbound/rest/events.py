"""`GET /v1/events`: changes of paths, transfers and groups as server-sent events, while they happen."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rostrum.controller.core import actions as act
from rostrum.controller.core.requests.paths import Path, Transfer
from rostrum.controller.core.state import Core
from rostrum.controller.northbound.rest.groups import slow_programs
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

QUEUE_MAX = 256  # events that a reader may be behind
READERS_MAX = 64
GROUPS_MAX = 100  # named in one event
HEARTBEAT_S = 15.0
SEND_BOUND_S = 10.0  # a reader that takes nothing for so long is cut off
CUT = f"you are {QUEUE_MAX} events behind; connect again, read faster, and read GET /v1/paths for what you missed"
STOPS = "the manager stops; connect again when it is back"


class Reader:
    """One open stream; it ends when `ended` and nothing is left in the queue."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes] = asyncio.Queue()
        self.ended = False

    def put(self, text: bytes) -> None:
        if self.ended:
            return
        if self.queue.qsize() < QUEUE_MAX:
            self.queue.put_nowait(text)
        else:
            self.end(CUT)

    def end(self, detail: str) -> None:
        """The last event says why."""
        if not self.ended:
            self.ended = True
            self.queue.put_nowait(encode("end", {"detail": detail}))


class Events:
    """Hears every action of the core; hands each change to whoever reads."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._told: dict[str, tuple[object, ...]] = {}
        self.readers: set[Reader] = set()

    @property
    def full(self) -> bool:
        return len(self.readers) >= READERS_MAX

    @contextmanager
    def reader(self) -> Iterator[Reader]:
        made = Reader()
        made.put(encode("hello", {"boot_id": self._core.settings.boot_id}))
        self.readers.add(made)
        try:
            yield made
        finally:
            self.readers.discard(made)

    def close(self) -> None:
        for one in self.readers:
            one.end(STOPS)

    def hear(self, action: act.Action) -> None:
        if isinstance(action, act.GroupsChanged) and self.readers:
            self._tell("groups", _groups(self._core, action.groups))
        if not isinstance(action, act.PathChanged):
            return
        if not self.readers:
            self._told.clear()
            return
        path = self._core.paths.get(action.path_id)
        if path is None:
            return
        kind = path.kind.value if path.kind else None
        if self._news(path.id, (path.state, kind, path.reason, path.cause)):
            self._tell("path", _path(path, kind))
        transfer = self._core.transfers.get(path.transfer_id)
        phase = transfer.report.phase if transfer and transfer.report else "waiting for a path"
        if transfer and self._news(transfer.id, (phase,)):
            self._tell("transfer", _transfer(transfer, phase, path.id))

    def _news(self, key: str, now: tuple[object, ...]) -> bool:
        if self._told.get(key) == now:
            return False
        self._told[key] = now
        if len(self._told) > 2 * (len(self._core.paths) + len(self._core.transfers)) + 100:
            known = self._core.paths.keys() | self._core.transfers.keys()
            self._told = {key: said for key, said in self._told.items() if key in known}
        return True

    def _tell(self, event: str, facts: dict[str, object]) -> None:
        text = encode(event, facts)
        for one in self.readers:
            one.put(text)


class EventStream(Response):
    """The answer to one reader."""

    media_type = "text/event-stream"

    def __init__(self, events: Events, status_code: int = 200) -> None:  # FastAPI documents the default
        super().__init__(status_code=status_code, headers={"Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = asyncio.ensure_future(_gone(receive))
        try:
            with self._events.reader() as reader:
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                while not (reader.ended and reader.queue.empty()):
                    text = await _next(reader, left)
                    if text is None:
                        return
                    async with asyncio.timeout(SEND_BOUND_S):
                        await send({"type": "http.response.body", "body": text, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            return  # it takes nothing, not even why
        finally:
            left.cancel()


async def _next(reader: Reader, left: asyncio.Future[None]) -> bytes | None:
    """The next event, or a comment after a while without; None = the reader has left."""
    coming = asyncio.ensure_future(reader.queue.get())
    try:
        await asyncio.wait((coming, left), timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
        if left.done():
            return None
        return coming.result() if coming.done() else b": nothing new\n\n"
    finally:
        coming.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def encode(event: str, facts: dict[str, object]) -> bytes:
    return f"event: {event}\ndata: {json.dumps(facts)}\n\n".encode()


def _path(path: Path, kind: str | None) -> dict[str, object]:
    return {
        "id": path.id,
        "state": path.state.value,
        "reason": path.reason,
        "cause": path.cause,
        "kind": kind,
        "group": str(path.group) if path.group else None,
        "request_id": path.request.request_id,
        "origin": path.request.origin,
        "transfer": path.transfer_id or None,
        "at_ns": time.time_ns(),
    }


def _groups(core: Core, names: tuple[str, ...]) -> dict[str, object]:
    """The first of them; `count` are all that changed at once."""
    rows = []
    for name in names[:GROUPS_MAX]:
        group = core.members.groups.get(name)
        row: dict[str, object] = {}
        if group:
            row = {"version": group.version, "members": group.members.bit_count()}
            slow = [one.model_dump() for one in slow_programs(core, name)]
            row |= {"slow_programs": slow} if slow else {}
        rows.append({"name": name, "there": group is not None, **row})
    return {"groups": rows, "count": len(names), "at_ns": time.time_ns()}


def _transfer(transfer: Transfer, phase: str, path_id: str) -> dict[str, object]:
    return {
        "id": transfer.id,
        "phase": phase,
        "cause": transfer.report.cause if transfer.report else "",
        "bytes": transfer.report.bytes if transfer.report else 0,
        "sender": transfer.sender,
        "path": path_id,
        "at_ns": time.time_ns(),
    }
