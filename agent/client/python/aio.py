"""The client for asyncio: the same calls as `rostrum.client`, awaited. It has no threads but for copying files.

async with aio.Agent() as agent:
    sending = await agent.send("model", ["h3", "h5"], source="model.bin")
    async for event in sending.events():
        print(event.kind, event.text)
    result = await sending                                # or: await sending.wait(timeout)

async with aio.Agent() as agent:
    with await agent.read("model", wait=30) as data:      # on h3 and h5
        use(data)

A task that is cancelled while it waits leaves a send or a fetch going on; `await sending.cancel()` stops it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from . import groups, wire
from .agent import (
    ANSWER_BOUND_S,
    JOIN_BOUND_S,
    READ_WAIT_S,
    Progress,
    fd_of,
    milliseconds,
    send_request,
    with_progress,
    with_receivers,
    with_rows,
)
from .connection import EVENTS_MAX, connect
from .groups import Message
from .names import ObjectNames, agent_socket, app_id_of, has_name, servers_of
from .objects import Buffer, CreatedFile, ReadObject, Source, content, flat
from .streams import FINAL_MESSAGE_BOUND_S, READ_BYTES, both_ends
from .values import Code, Event, RostrumError, SendResult, Status, TimedOut, Unavailable, error_of

__all__ = ["Agent", "Group", "SendHandle", "StreamReader", "StreamWriter", "Subscription"]
Result = TypeVar("Result")
TURN = 64  # messages taken before others of the loop have theirs


async def _within(awaited: Awaitable[Result], timeout: float | None, text: str) -> Result:
    """Its result. Raises TimedOut with the text."""
    try:
        async with asyncio.timeout(timeout):
            return await awaited
    except TimeoutError:
        raise TimedOut(text) from None


async def _ready(fd: int, *, to_write: bool = False) -> None:
    """Returns when the descriptor can be read, or written."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    add, remove = (loop.add_writer, loop.remove_writer) if to_write else (loop.add_reader, loop.remove_reader)
    add(fd, ready.set)
    try:
        await ready.wait()
    finally:
        remove(fd)


class _Call:
    """A request under way."""

    def __init__(self, what: str, on_event: Callable[[Event], None] | None) -> None:
        self.what, self.on_event = what, on_event
        self.rows: list[Any] = []
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.answer: asyncio.Future[wire.Answer] = asyncio.get_running_loop().create_future()
        self.answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())  # is no one's concern
        self.news = asyncio.Event()

    async def result(self, timeout: float | None) -> wire.Answer:
        text = f"{self.what}: no answer of the agent within {timeout} s"
        return await _within(asyncio.shield(self.answer), timeout, text)

    async def next_event(self) -> Event | None:
        """None: there will be no more."""
        while not self.events:
            if self.answer.done():
                return None
            self.news.clear()
            await self.news.wait()
        return self.events.popleft()


class _Connection:
    """Many requests at once; answers are sorted to whoever awaits them."""

    def __init__(self, path: Path, link: socket.socket) -> None:
        self.path, self._socket, self.names = path, link, ObjectNames()
        link.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, _Call] = {}
        self._next_tag = 0
        self._sending = asyncio.Lock()
        self._closed: RostrumError | None = None
        self._loop.add_reader(link.fileno(), self._receive)

    async def start(
        self, kind: int, body: bytes, what: str, fd: int | None = None, on_event: Callable[[Event], None] | None = None
    ) -> tuple[int, _Call]:
        """Sends a request; `fd` goes along, and stays the caller's."""
        if self._closed:
            raise self._closed
        self._next_tag += 1
        tag, call = self._next_tag, _Call(what, on_event)
        message = wire.request(kind, tag, body)
        self._calls[tag] = call
        try:
            async with self._sending:
                await self._send(message, fd)
        except BaseException as error:
            self.forget(tag)
            if isinstance(error, OSError):
                self._receive()  # the agent may have said why before it hung up
                raise self._closed or Unavailable(f"{what}: {error.strerror or error}") from error
            raise
        return tag, call

    async def _send(self, message: bytes, fd: int | None) -> None:
        while True:
            if self._closed:
                raise self._closed
            try:
                if fd is None:
                    self._socket.send(message)
                else:
                    socket.send_fds(self._socket, [message], [fd])
                return
            except BlockingIOError:
                await _ready(self._socket.fileno(), to_write=True)

    async def ask(self, kind: int, body: bytes, what: str, timeout: float | None, fd: int | None = None) -> wire.Answer:
        return (await self.collect(kind, body, what, timeout, fd))[0]

    async def collect(
        self, kind: int, body: bytes, what: str, timeout: float | None, fd: int | None = None
    ) -> tuple[wire.Answer, list[Any]]:
        tag, call = await self.start(kind, body, what, fd)
        try:
            return await call.result(timeout), call.rows
        finally:
            self.forget(tag)

    def tell(self, kind: int, body: bytes) -> None:
        """A request whose answer nobody awaits."""
        if not self._closed:
            self._next_tag += 1
            with contextlib.suppress(OSError):
                self._socket.send(wire.request(kind, self._next_tag, body))

    def forget(self, tag: int) -> None:
        self._calls.pop(tag, None)

    def close(self) -> None:
        self._end(Unavailable(f"the connection to the agent at {self.path} was closed"))

    @property
    def closed(self) -> bool:
        return self._closed is not None

    def _end(self, reason: RostrumError) -> None:
        if self._closed:
            return
        self._closed = reason
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            if not call.answer.done():
                call.answer.set_exception(reason)
            call.news.set()

    def _receive(self) -> None:
        reason: RostrumError | None = None
        for _ in range(TURN):
            if self._closed or reason:
                break
            try:
                data, fds, flags, _ = socket.recv_fds(self._socket, wire.MESSAGE_MAX, 8, socket.MSG_CMSG_CLOEXEC)
                if not data:
                    reason = Unavailable(f"the agent at {self.path} went away")
                elif flags & socket.MSG_TRUNC:
                    reason = RostrumError("the agent sent a message of more than 64 KiB", Code.PROTOCOL)
                else:
                    self._deliver(data, fds)
            except BlockingIOError:
                break
            except ConnectionResetError:  # is told first; what the agent had said before comes after it
                continue
            except OSError as error:
                reason = Unavailable(f"the agent at {self.path}: {error.strerror or error}")
            except RostrumError as error:
                reason = error
        if reason:
            self._end(reason)

    def _deliver(self, data: bytes, fds: list[int]) -> None:
        kept = False
        try:
            answer = wire.parse(data)
            if answer.type == wire.ERROR and answer.tag == 0:
                raise error_of(*answer.value)  # about the connection itself
            call = self._calls.get(answer.tag)
            if call is None or (call.answer.done() and answer.type != wire.EVENT):
                return  # whoever asked has given up
            if answer.type == wire.EVENT:
                self._report(call, answer.value)
            elif answer.type in wire.UNFINISHED:
                call.rows.extend(answer.value)
            elif answer.type == wire.ERROR:
                code, text = answer.value
                call.answer.set_exception(error_of(code, self.names.text(text)))
            else:
                answer.fds, kept = fds, True
                call.answer.set_result(answer)
            call.news.set()
        finally:
            for fd in () if kept else fds:
                os.close(fd)

    def _report(self, call: _Call, event: Event) -> None:
        call.events.append(event)
        if call.on_event is not None:
            try:
                call.on_event(event)
            except Exception as error:
                self._loop.call_exception_handler({"message": "on_event failed", "exception": error})


class SendHandle:
    """A send under way; awaiting it gives its result."""

    def __init__(self, connection: _Connection, tag: int, call: _Call, data_id: int, file: int | None) -> None:
        self._connection, self._tag, self._call, self._file = connection, tag, call, file
        self.data_id = data_id

    def __await__(self) -> Generator[Any, None, SendResult]:
        return self.wait().__await__()

    async def wait(self, timeout: float | None = None) -> SendResult:
        """What the send came to; its `raise_for_failure()` makes a failed receiver an exception.

        Raises:
            RostrumError: it could not be started at all, or TimedOut (it goes on; wait again or cancel it).
        """
        text = f"{self._call.what} is not over after {timeout} s; it goes on: wait again, or cancel it"
        try:
            answer = await _within(asyncio.shield(self._call.answer), timeout, text)
        except RostrumError:
            if self._file is not None and self._call.answer.done():  # if it did not become the object
                self._connection.tell(wire.DROP, struct.pack("<Q", self._file))
            raise
        self._connection.forget(self._tag)
        return with_receivers(answer.value, self._call.rows, self._connection.names)

    async def events(self) -> AsyncIterator[Event]:
        """What happens, until the send is over. At most 4096 events are kept for a slow reader."""
        while event := await self._call.next_event():
            yield event

    @property
    def done(self) -> bool:
        """Whether it is over: `wait` would not wait."""
        return self._call.answer.done()

    async def cancel(self) -> None:
        """Stops it; `wait` then gives the result."""
        what = f"cancel of {self._connection.names.name(self.data_id)}"
        await self._connection.ask(wire.CANCEL, struct.pack("<Q", self.data_id), what, ANSWER_BOUND_S)


class Subscription:
    """News of an object's transfers; iterating gives them until it is closed."""

    def __init__(self, connection: _Connection, tag: int, call: _Call) -> None:
        self._connection, self._tag, self._call = connection, tag, call

    async def next(self, timeout: float | None = None) -> Event:
        """The next event. Raises TimedOut, or Unavailable if the agent went away."""
        return await _within(self._next(), timeout, f"no news of {self._call.what} within {timeout} s")

    async def _next(self) -> Event:
        while not self._call.events:
            if self._connection.closed:
                raise Unavailable("the agent went away")
            self._call.news.clear()
            await self._call.news.wait()
        return self._call.events.popleft()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            yield await self._next()

    async def close(self) -> None:
        """No events come any more."""
        self._connection.forget(self._tag)
        if not self._connection.closed:
            body = struct.pack("<Q", self._tag)
            await self._connection.ask(wire.UNSUBSCRIBE, body, "unsubscribe", ANSWER_BOUND_S)

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Agent:
    """A registered connection to the agent of this server, for one event loop. Arguments are as of
    rostrum.client.Agent; it connects in `async with`, or by `await connect()`.
    """

    def __init__(
        self,
        socket_path: str | os.PathLike[str] | None = None,
        app_id: UUID | str | bytes | None = None,
        *,
        process: str | None = None,
    ) -> None:
        self.app_id = app_id_of(app_id)
        self.socket_path = Path(socket_path) if socket_path is not None else agent_socket()
        self._process = process or f"{Path(sys.argv[0] or 'python').name or 'python'}[{os.getpid()}]"
        self._link: _Connection | None = None
        self.server, self.version, self.boot_id = "", "", 0

    async def connect(self) -> Agent:
        """Registers. Raises Unavailable: no agent answers there."""
        if self._link is None:
            self._link = _Connection(self.socket_path, await asyncio.to_thread(connect, self.socket_path))
            try:
                body = self.app_id.bytes + wire.text(self._process)
                answer = await self._link.ask(wire.REGISTER, body, "register", ANSWER_BOUND_S)
            except BaseException:
                self._link.close()
                self._link = None
                raise
            self.server, self.version, self.boot_id = answer.value
        return self

    @property
    def _connection(self) -> _Connection:
        if self._link is None:
            raise RostrumError(
                "not connected: use async with aio.Agent() as agent, or await agent.connect()", Code.INVALID
            )
        return self._link

    async def create(self, size: int) -> CreatedFile:
        """As Agent.create: a file in the store to write into, memory too."""
        if not 0 <= size < 2**63:
            raise RostrumError(f"no object has {size} bytes", Code.INVALID)
        connection = self._connection
        answer = await connection.ask(wire.CREATE, struct.pack("<Q", size), f"create of {size} bytes", ANSWER_BOUND_S)
        handle, given = answer.value
        drop = lambda handle: connection.tell(wire.DROP, struct.pack("<Q", handle))  # noqa: E731
        return CreatedFile(fd_of(answer), handle, given, drop)

    async def add(self, data_id: int | str, source: Source) -> None:
        """As Agent.add."""
        number = self._connection.names.number(data_id)

        async def add(fd: int, _: int | None) -> None:
            bound = ANSWER_BOUND_S + os.fstat(fd).st_size / 50e6
            await self._connection.ask(wire.ADD, struct.pack("<Q", number), f"add of {data_id}", bound, fd=fd)

        await self._hand_over(source, add)
        self._name(data_id)

    def _name(self, data_id: int | str) -> None:
        """The manager lists the object by the name that it was given here."""
        if has_name(data_id):
            self._connection.tell(wire.NAME, wire.name_body(self._connection.names.number(data_id), data_id))

    async def pin(self, data_id: int | str, on: bool = True) -> None:
        """As Agent.pin."""
        number = self._connection.names.number(data_id)
        body = struct.pack("<QI", number, wire.PIN_ON if on else 0)
        await self._connection.ask(wire.PIN, body, f"pin of {data_id}", ANSWER_BOUND_S)

    async def _hand_over(self, source: Source, use: Callable[[int, int | None], Awaitable[Result]]) -> Result:
        if isinstance(source, CreatedFile):
            result = await use(source.fd, source.handle)
            source.added = True
            source.close()
            return result
        if isinstance(source, int):
            return await use(source, None)
        with contextlib.ExitStack() as stack:
            size, write = await asyncio.to_thread(stack.enter_context, content(source))
            created = stack.enter_context(await self.create(size))
            await asyncio.to_thread(write, created)
            return await self._hand_over(created, use)

    async def send(
        self,
        data_id: int | str,
        receivers: str | Iterable[str],
        wait: float | None = None,
        deadline: float | None = None,
        on_event: Callable[[Event], None] | None = None,
        on_progress: Progress | None = None,
        stragglers: str | None = None,
        protocol: str = "auto",
        source: Source | None = None,
        options: str = "",
    ) -> SendHandle:
        """As Agent.send; `on_event` and `on_progress` are called in the loop."""
        connection = self._connection
        number = connection.names.number(data_id)
        body = send_request(number, receivers, wait, deadline, stragglers, protocol, options)

        async def start(fd: int | None, file: int | None) -> SendHandle:
            tell = with_progress(on_event, on_progress)
            tag, call = await connection.start(wire.SEND, body, f"send of {data_id}", fd, tell)
            return SendHandle(connection, tag, call, number, file)

        handle = await (start(None, None) if source is None else self._hand_over(source, start))
        self._name(data_id)  # now there is an object to have it
        return handle

    async def read(
        self, data_id: int | str, wait: float | None = READ_WAIT_S, on_progress: Progress | None = None
    ) -> ReadObject:
        """As Agent.read; `with` closes what it gives."""
        number = self._connection.names.number(data_id)
        body = struct.pack("<QI", number, milliseconds(wait))
        return await self._object(wire.READ, body, f"read of {data_id}", data_id, (wait or 0), on_progress)

    async def fetch(
        self,
        data_id: int | str,
        holders: str | Iterable[str] = (),
        wait: float | None = READ_WAIT_S,
        on_progress: Progress | None = None,
    ) -> ReadObject:
        """As Agent.fetch."""
        number = self._connection.names.number(data_id)
        body = wire.fetch_body(number, servers_of(holders), milliseconds(wait))
        bound = wait or READ_WAIT_S
        found = await self._object(wire.FETCH, body, f"fetch of {data_id}", data_id, bound, on_progress)
        self._name(data_id)
        return found

    async def _object(
        self, kind: int, body: bytes, what: str, data_id: int | str, wait: float, on_progress: Progress | None
    ) -> ReadObject:
        number = self._connection.names.number(data_id)
        async with contextlib.AsyncExitStack() as stack:
            if on_progress is not None:
                await stack.enter_async_context(await self._subscribe(data_id, with_progress(None, on_progress)))
            answer = await self._connection.ask(kind, body, what, wait + ANSWER_BOUND_S)
        size, digest = answer.value
        return ReadObject(number, fd_of(answer), size, digest, data_id)

    async def delete(self, data_id: int | str) -> None:
        """As Agent.delete."""
        number = self._connection.names.number(data_id)
        await self._connection.ask(wire.DELETE, struct.pack("<Q", number), f"delete of {data_id}", ANSWER_BOUND_S)

    async def cancel(self, data_id: int | str) -> None:
        """As Agent.cancel."""
        number = self._connection.names.number(data_id)
        await self._connection.ask(wire.CANCEL, struct.pack("<Q", number), f"cancel of {data_id}", ANSWER_BOUND_S)

    async def leave(self, data_id: int | str) -> None:
        """As Agent.leave."""
        number = self._connection.names.number(data_id)
        await self._connection.ask(wire.LEAVE, struct.pack("<Q", number), f"leaving {data_id}", ANSWER_BOUND_S)

    async def ephemeral(self) -> None:
        """As Agent.ephemeral."""
        await self._connection.ask(wire.EPHEMERAL, b"", "ephemeral", ANSWER_BOUND_S)

    async def subscribe(self, data_id: int | str) -> Subscription:
        """News of the object's transfers from now on."""
        return await self._subscribe(data_id, None)

    async def _subscribe(self, data_id: int | str, tell: Callable[[Event], None] | None) -> Subscription:
        connection = self._connection
        number = connection.names.number(data_id)
        tag, call = await connection.start(wire.SUBSCRIBE, struct.pack("<Q", number), f"object {data_id}", None, tell)
        await call.result(ANSWER_BOUND_S)
        return Subscription(connection, tag, call)

    async def stream_send(
        self,
        data_id: int | str,
        receivers: str | Iterable[str],
        wait: float | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> StreamWriter:
        """As Agent.stream_send."""
        connection = self._connection
        number = connection.names.number(data_id)
        body = send_request(number, receivers, wait, None, None, "rdcm", "")
        tag, call, link = await _begin_stream(connection, wire.STREAM_SEND, body, f"stream {data_id}", on_event)
        return StreamWriter(connection, number, tag, call, link)

    async def stream_receive(self, data_id: int | str, wait: float | None = READ_WAIT_S) -> StreamReader:
        """As Agent.stream_receive."""
        connection = self._connection
        number = connection.names.number(data_id)
        body = struct.pack("<QI", number, milliseconds(wait))
        tag, call, link = await _begin_stream(connection, wire.STREAM_RECEIVE, body, f"stream {data_id}", None)
        return StreamReader(connection, number, tag, call, link)

    async def stream_join(
        self, data_id: int | str, holders: str | Iterable[str], wait: float | None = READ_WAIT_S
    ) -> StreamReader:
        """As Agent.stream_join."""
        connection, names = self._connection, servers_of(holders)
        if not names:
            raise RostrumError("say who receives or sends the stream", Code.INVALID)
        number = connection.names.number(data_id)
        body = wire.fetch_body(number, names, milliseconds(wait))
        tag, call, link = await _begin_stream(connection, wire.STREAM_JOIN, body, f"stream {data_id}", None)
        return StreamReader(connection, number, tag, call, link)

    async def join(
        self,
        group: str,
        protocol: str | None = None,
        order: str = "none",
        options: str = "",
        start: int | datetime | None = None,
    ) -> Group:
        """As Agent.join."""
        return await self._join(group, True, protocol, order, options, start)

    async def publisher(self, group: str, protocol: str | None = None, order: str = "none", options: str = "") -> Group:
        """As Agent.publisher."""
        return await self._join(group, False, protocol, order, options)

    async def _join(
        self,
        group: str,
        subscribe: bool,
        protocol: str | None,
        order: str,
        options: str,
        start: int | datetime | None = None,
    ) -> Group:
        body = wire.join_body(group, subscribe, protocol or "", order, options, start)
        answer = await self._connection.ask(wire.JOIN, body, f"joining {group}", JOIN_BOUND_S)
        has_protocol, has_order, message_bytes = answer.value
        return Group(groups.Group(group, has_protocol, has_order, message_bytes, fd_of(answer)))

    async def status(self) -> Status:
        """The agent, its transfers and objects, now."""
        answer, rows = await self._connection.collect(wire.STATUS, b"", "status", ANSWER_BOUND_S)
        names: list[Any] = []
        with contextlib.suppress(RostrumError):  # of an agent that tells none
            names = (await self._connection.collect(wire.NAMES, b"", "names", ANSWER_BOUND_S))[1]
        return with_rows(answer.value, rows, names)

    async def close(self) -> None:
        """Unregisters. Sends go on; created files that were not added go back."""
        if self._link is not None:
            self._link.close()

    async def __aenter__(self) -> Agent:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def _begin_stream(
    connection: _Connection, request: int, body: bytes, what: str, on_event: Callable[[Event], None] | None
) -> tuple[int, _Call, socket.socket]:
    with both_ends() as (ours, theirs):
        ours.setblocking(False)
        tag, call = await connection.start(request, body, what, theirs.fileno(), on_event)
    return tag, call, ours


class StreamWriter:
    """A stream that is being sent. Leaving the `async with` block without `finish` fails it at all receivers."""

    def __init__(self, connection: _Connection, data_id: int, tag: int, call: _Call, link: socket.socket) -> None:
        self.data_id, self.bytes_written = data_id, 0
        self._connection, self._tag, self._call, self._socket = connection, tag, call, link

    async def write(self, data: Buffer) -> None:
        """Writes all of `data`. Waits while the slowest receiver, or the path, holds the stream back."""
        view = flat(data)
        try:
            await asyncio.get_running_loop().sock_sendall(self._socket, view)
        except OSError as error:
            result = await self.wait(FINAL_MESSAGE_BOUND_S)  # raises what the agent says
            raise RostrumError(f"{self._call.what}: {result.cause or error.strerror}", Code.FAILED) from error
        self.bytes_written += len(view)

    async def finish(self, timeout: float | None = None) -> SendResult:
        """This was all: waits until every receiver's program has it, or has failed."""
        body = struct.pack("<QQ", self.data_id, self.bytes_written)
        try:
            await self._connection.ask(wire.STREAM_END, body, f"the end of {self._call.what}", ANSWER_BOUND_S)
        except RostrumError:
            if not self._call.answer.done():
                raise  # else the stream itself says why
        return await self.wait(timeout)

    async def wait(self, timeout: float | None = None) -> SendResult:
        answer = await self._call.result(timeout)
        return with_receivers(answer.value, self._call.rows, self._connection.names)

    async def events(self) -> AsyncIterator[Event]:
        while event := await self._call.next_event():
            yield event

    async def cancel(self) -> None:
        what = f"cancel of {self._call.what}"
        await self._connection.ask(wire.CANCEL, struct.pack("<Q", self.data_id), what, ANSWER_BOUND_S)

    async def close(self) -> None:
        """Before `finish`: the stream fails at all receivers."""
        self._socket.close()
        self._connection.forget(self._tag)

    async def __aenter__(self) -> StreamWriter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class StreamReader:
    """A stream that comes to this server. Iterating gives its bytes in pieces of any size."""

    def __init__(self, connection: _Connection, data_id: int, tag: int, call: _Call, link: socket.socket) -> None:
        self.data_id, self.bytes_read = data_id, 0
        self._connection, self._tag, self._call, self._socket = connection, tag, call, link
        self._ended = False

    async def read(self, size: int = READ_BYTES) -> bytes:
        """Up to `size` bytes, as soon as there are some; nothing at the end, which is whole then."""
        if self._ended:
            return b""
        data = await asyncio.get_running_loop().sock_recv(self._socket, size)
        self.bytes_read += len(data)
        if not data:
            whole = (await self._call.result(FINAL_MESSAGE_BOUND_S)).value
            if whole != self.bytes_read:
                raise Unavailable(f"{self._call.what}: {self.bytes_read} of {whole} bytes came")
            self._ended = True
        return data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read():
            yield data

    async def leave(self) -> None:
        """It is wanted no more: the others go on, and this is no failure of the stream."""
        what = f"leaving {self._call.what}"
        await self._connection.ask(wire.LEAVE, struct.pack("<Q", self.data_id), what, ANSWER_BOUND_S)
        await self.close()

    async def close(self) -> None:
        """Before the end: this receiver fails, the others go on (`leave` before: it is no failure)."""
        self._socket.close()
        self._connection.forget(self._tag)

    async def __aenter__(self) -> StreamReader:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Group:
    """A group this program is in. Tasks that publish at one time take turns, and so do those that take messages."""

    def __init__(self, group: groups.Group) -> None:
        self._group = group
        self._publishing, self._taking = asyncio.Lock(), asyncio.Lock()
        self.name, self.protocol, self.order = group.name, group.protocol, group.order
        self.message_bytes = group.message_bytes

    async def publish(self, data: Buffer) -> None:
        """Publishes one message. Waits while the network or receivers take no more. Raises as Group.publish."""
        await self.publish_all((data,))

    async def publish_all(self, messages: Iterable[Buffer]) -> int:
        """Publishes many; returns how many. Raises as Group.publish_all."""
        count = 0
        async with self._publishing:
            for so_far in self._group.put(messages):
                await self._flush()
                count = so_far
        return count

    async def _flush(self) -> None:
        text = f"the agent had no room for {groups.SEND_BOUND_S:g} s: the network or receivers take no more"
        while not self._group.flush_some():
            await _within(_ready(self._group.fileno(), to_write=True), groups.SEND_BOUND_S, text)

    async def next(self, timeout: float | None = None) -> Message:
        """The next message, or word of losses. Raises as Group.next."""
        return await _within(self._next(), timeout, f"no message of {self.name} came in time")

    async def _next(self) -> Message:
        async with self._taking:
            while (message := self._group.poll()) is None:
                await _ready(self._group.fileno())
            return message

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages until the group or the agent ends."""
        while True:
            try:
                message = await self._next()
            except RostrumError as error:
                if error.code in (Code.UNAVAILABLE, Code.DENIED, Code.CANCELLED):
                    return
                raise
            yield message

    async def close(self) -> None:
        """Leaves the group. What was published still goes out."""
        self._group.close()

    async def __aenter__(self) -> Group:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
