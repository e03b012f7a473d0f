"""The client of the agent on this server: the paper's Table I, in Python.

with Agent() as agent:
    result = agent.send(7, ["h3", "h5"], source=b"model weights" * 1_000_000).wait()

with Agent() as agent, agent.read(7, wait=30) as data:     # on h3 and h5, same application id
    use(data.mmap())
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from uuid import UUID

from . import wire
from .channels import Channels
from .connection import Call, Connection
from .groups import Group
from .names import ObjectNames, agent_socket, app_id_of, data_id_of, has_name, servers_of
from .objects import Closing, CreatedFile, ReadObject, Source, content
from .streams import StreamReader, StreamWriter
from .values import Code, Event, GroupStatus, RostrumError, SendResult, Status, TimedOut

ANSWER_BOUND_S = 60.0  # for what the agent answers at once
READ_WAIT_S = 60.0
JOIN_BOUND_S = 75.0  # the agent waits for a manager that is away for 60 s

Result = TypeVar("Result")
Progress = Callable[[int, int], None]


class SendHandle:
    """A send under way. `file`: of `create`, its handle if it is handed over with the send."""

    def __init__(self, connection: Connection, tag: int, call: Call, data_id: int, file: int | None = None) -> None:
        self._connection, self._tag, self._call, self._file = connection, tag, call, file
        self.data_id = data_id

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """What happens, until the send is over. At most 4096 events are kept for a slow reader.

        Raises:
            TimedOut: nothing came within `timeout` seconds.
        """
        while event := self._call.next_event(None if timeout is None else time.monotonic() + timeout):
            yield event

    def wait(self, timeout: float | None = None) -> SendResult:
        """What the send came to; its `raise_for_failure()` makes a failed receiver an exception.

        Without `timeout` it waits as long as the agent lives: every phase of a transfer has its bound there.

        Raises:
            RostrumError: it could not be started at all, or TimedOut (it goes on; wait again or cancel it).
        """
        try:
            answer = self._call.result(timeout)
        except RostrumError:
            if not self._call.finished:
                text = f"{self._call.what} is not over after {timeout:g} s; it goes on: wait again, or cancel it"
                raise TimedOut(text) from None
            if self._file is not None:  # if it did not become the object
                with contextlib.suppress(RostrumError):
                    self._connection.ask(wire.DROP, struct.pack("<Q", self._file), "drop", ANSWER_BOUND_S)
            raise
        self._connection.forget(self._tag)
        result: SendResult = answer.value
        return with_receivers(result, self._call.rows, self._connection.names)

    @property
    def done(self) -> bool:
        """Whether it is over: `wait` would not wait."""
        return self._call.finished

    def cancel(self) -> None:
        """Stops it; `wait` then gives the result."""
        what = f"cancel of {self._connection.names.name(self.data_id)}"
        self._connection.ask(wire.CANCEL, struct.pack("<Q", self.data_id), what, ANSWER_BOUND_S)


class Subscription(Closing):
    """News of an object's transfers, here as sender or as receiver, whoever started them."""

    def __init__(self, connection: Connection, tag: int, call: Call) -> None:
        self._connection, self._tag, self._call = connection, tag, call

    def next(self, timeout: float) -> Event:
        """The next event.

        Raises:
            TimedOut: none came within `timeout` seconds.
            Unavailable: the agent went away.
        """
        deadline = time.monotonic() + timeout
        with self._call.changed:
            if not self._call.changed.wait_for(lambda: self._call.events or self._call.error, timeout):
                raise TimedOut(f"no news of {self._call.what} within {timeout:g} s")
            if not self._call.events and self._call.error:
                raise self._call.error
        event = self._call.next_event(deadline)
        assert event is not None
        return event

    def close(self) -> None:
        """No events come any more."""
        self._connection.forget(self._tag)
        self._connection.ask(wire.UNSUBSCRIBE, struct.pack("<Q", self._tag), "unsubscribe", ANSWER_BOUND_S)

    def __enter__(self) -> Subscription:
        return self


class Agent:
    """A registered connection to the agent of this server. Thread-safe.

    `socket_path` None: $ROSTRUM_SOCKET, the system's agent, or a lab's (names.agent_socket). `app_id` is what all
    processes of an application share; None: the one of the `rostrum` command. `process` names this process in the
    agent's log. `on_silence` is told, once, when the agent does not answer for 3 s: it is waited for.

    Raises:
        Unavailable: no agent answers there.
    """

    def __init__(
        self,
        socket_path: str | os.PathLike[str] | None = None,
        app_id: UUID | str | bytes | None = None,
        *,
        process: str | None = None,
        on_silence: Callable[[str], None] | None = None,
    ) -> None:
        self.app_id = app_id_of(app_id)
        self.socket_path = Path(socket_path) if socket_path is not None else agent_socket()
        self._connection = Connection(self.socket_path, on_silence)
        name = process or f"{Path(sys.argv[0] or 'python').name or 'python'}[{os.getpid()}]"
        try:
            body = self.app_id.bytes + wire.text(name)
            answer = self._connection.ask(wire.REGISTER, body, "register", ANSWER_BOUND_S, on_silence=on_silence)
        except BaseException:
            self._connection.close()
            raise
        self.server: str = answer.value[0]
        self.version: str = answer.value[1]
        self.boot_id: int = answer.value[2]

    @property
    def closed(self) -> bool:
        """Nothing can be asked any more: it was closed, or the agent went away."""
        return self._connection.closed

    def create(self, size: int) -> CreatedFile:
        """A writable file of `size` bytes in the agent's store: the way to hand an object over without a copy.

        Raises:
            NoRoom: quota or memory.
        """
        if not 0 <= size < 2**63:
            raise RostrumError(f"no object has {size} bytes", Code.INVALID)
        answer = self._connection.ask(wire.CREATE, struct.pack("<Q", size), f"create of {size} bytes", ANSWER_BOUND_S)
        handle, given = answer.value
        return CreatedFile(fd_of(answer), handle, given, self._drop)

    def _drop(self, handle: int) -> None:
        self._connection.ask(wire.DROP, struct.pack("<Q", handle), "drop", ANSWER_BOUND_S)

    def add(self, data_id: int | str, source: Source) -> None:
        """Makes `source` the object `data_id` of this application.

        Bytes, arrays and all that supports the buffer protocol, a path and a file object (from its position on) are
        copied into the store. A CreatedFile, or a
        descriptor of a tmpfs file or memfd, is handed over without a copy, and must not change as long as the object
        exists.

        Raises:
            AlreadyThere: that object exists here.
            NoRoom: quota or memory.
        """
        number = self._connection.names.number(data_id)

        def add(fd: int, _: int | None) -> None:
            # The digest is taken before the answer: a large object takes its time.
            bound = ANSWER_BOUND_S + os.fstat(fd).st_size / 50e6
            self._connection.ask(wire.ADD, struct.pack("<Q", number), f"add of {data_id}", bound, fd=fd)

        self._hand_over(source, add)
        self._name(data_id)

    def _name(self, data_id: int | str) -> None:
        """The manager lists the object by the name that it was given here; agents that know no names do without."""
        if has_name(data_id):
            with contextlib.suppress(RostrumError):
                body = wire.name_body(data_id_of(data_id), data_id)
                self._connection.ask(wire.NAME, body, f"name of {data_id}", ANSWER_BOUND_S)

    def pin(self, data_id: int | str, on: bool = True) -> None:
        """The object stays when the agent makes room (rostrumd --evict); or, not `on`, may go again."""
        number = self._connection.names.number(data_id)
        body = struct.pack("<QI", number, wire.PIN_ON if on else 0)
        self._connection.ask(wire.PIN, body, f"pin of {data_id}", ANSWER_BOUND_S)

    def _hand_over(self, source: Source, use: Callable[[int, int | None], Result]) -> Result:
        """What `use` makes of a descriptor that the agent can take over, and the handle of a created file: of a copy of
        `source`, if need be.
        """
        if isinstance(source, CreatedFile):
            result = use(source.fd, source.handle)
            source.added = True
            source.close()
            return result
        if isinstance(source, int):
            return use(source, None)
        with content(source) as (size, write), self.create(size) as created:
            write(created)
            return self._hand_over(created, use)

    def send(
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
        """Starts sending an object to servers, by their names. It goes on when this process ends.

        Args:
            source: what the object is to be, as of `add`, if it is none yet: it is sent while its digest is being
                taken. What cannot be begun leaves no object.
            wait: seconds to wait for a path; None = the manager's default.
            deadline: seconds until it should be done, a hint for the scheduler.
            on_event: called with each event, in a thread of the connection's for callbacks, before `wait` returns. What
                it raises goes to `threading.excepthook` and ends nothing else; while it is slow, at most 4096
                events wait for it.
            on_progress: called alike, with (bytes sent at least once, size).
            stragglers: what becomes of a receiver less than half as fast as half of the others: "wait" for it,
                "demote" it to unicast or "evict" it; None = as the agent was told.
            protocol: "rdcm" (receivers mend each other's losses), "republic" (the sender does), "wan" (the same, for
                long round trips), or "auto": the manager chooses.
            options: of that protocol's engine, such as "congestion=friendly,slow=wait" of "wan".

        Raises:
            ValueError: no such policy or protocol.
        """
        number = self._connection.names.number(data_id)
        tell = with_progress(on_event, on_progress)
        body = send_request(number, receivers, wait, deadline, stragglers, protocol, options)

        def start(fd: int | None, file: int | None) -> SendHandle:
            tag, call = self._connection.start(wire.SEND, body, f"send of {data_id}", fd, tell)
            return SendHandle(self._connection, tag, call, number, file)

        handle = start(None, None) if source is None else self._hand_over(source, start)
        self._name(data_id)  # now there is an object to have it
        return handle

    def stream_send(
        self,
        data_id: int | str,
        receivers: str | Iterable[str],
        wait: float | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> StreamWriter:
        """Begins a continuing stream to servers, by their names: write into what comes back, then `finish` it.

        It goes by RDCM over a packet tree, and ends with this process.

        Args:
            wait: seconds to wait for a path; None = the manager's default.
            on_event: called with each event, in a thread of the connection's for callbacks, before `wait` returns. What
                it raises goes to `threading.excepthook` and ends nothing else; while it is slow, at most 4096
                events wait for it.
        """
        number = self._connection.names.number(data_id)
        body = send_request(number, receivers, wait, None, None, "rdcm", "")
        return StreamWriter(self._connection, number, body, with_receivers, on_event)

    def stream_receive(self, data_id: int | str, wait: float | None = READ_WAIT_S) -> StreamReader:
        """A stream that comes to this server, or will begin within `wait` seconds (0 or None: it must have begun).

        Read without long pauses: a program that takes nothing for two of the agent's silence bounds (10 s) while
        something waits fails here, and the others go on.
        """
        return StreamReader(self._connection, self._connection.names.number(data_id), milliseconds(wait))

    def stream_join(
        self, data_id: int | str, holders: str | Iterable[str], wait: float | None = READ_WAIT_S
    ) -> StreamReader:
        """A stream under way that is not for this server, of servers that receive it or send it (as of `fetch`).

        It begins with the oldest bytes that these keep, some MB, and goes on to its end. Nobody waits for who has
        joined: a program that falls further behind fails. It may be joined within `wait` seconds.
        """
        names = servers_of(holders)
        if not names:
            raise RostrumError("say who receives or sends the stream", Code.INVALID)
        return StreamReader(self._connection, self._connection.names.number(data_id), milliseconds(wait), names)

    def read(
        self, data_id: int | str, wait: float | None = READ_WAIT_S, on_progress: Progress | None = None
    ) -> ReadObject:
        """The object, as soon as it is whole here. Waits at most `wait` seconds (0 or None: not at all). `on_progress`
        is called with (bytes that came, size), in a thread of the connection's for callbacks.

        Raises:
            NotFound, Busy: it is not here (whole), without waiting.
            TimedOut: it did not come in time; the text says how far it is.
        """
        number = self._connection.names.number(data_id)
        body = struct.pack("<QI", number, milliseconds(wait))
        with self._telling(number, on_progress):
            answer = self._connection.ask(wire.READ, body, f"read of {data_id}", (wait or 0) + ANSWER_BOUND_S)
        size, digest = answer.value
        return ReadObject(number, fd_of(answer), size, digest, data_id)

    def fetch(
        self,
        data_id: int | str,
        holders: str | Iterable[str] = (),
        wait: float | None = READ_WAIT_S,
        on_progress: Progress | None = None,
    ) -> ReadObject:
        """An object that other servers have, as soon as it is whole here: from all of them at once, piece by piece.

        Args:
            holders: who has it: "h1", or "h1@10.0.1.1" if this agent has had nothing to do with h1 yet. None: the
                manager is asked, and where the part of it came from that is on this server's disk.
            wait: seconds; then it goes on, and `read` waits for it.
            on_progress: as of `read`.

        Raises:
            RostrumError: FAILED, with what each holder said; UNKNOWN: where a holder is; INVALID.
            TimedOut: it did not come in time.
        """
        number = self._connection.names.number(data_id)
        body = wire.fetch_body(number, servers_of(holders), milliseconds(wait))
        bound = (wait or READ_WAIT_S) + ANSWER_BOUND_S
        with self._telling(number, on_progress):
            answer = self._connection.ask(wire.FETCH, body, f"fetch of {data_id}", bound)
        self._name(data_id)
        size, digest = answer.value
        return ReadObject(number, fd_of(answer), size, digest, data_id)

    @contextlib.contextmanager
    def _telling(self, number: int, on_progress: Progress | None) -> Iterator[None]:
        """Calls it with what comes of an object meanwhile."""
        if on_progress is None:
            yield
            return
        body, tell = struct.pack("<Q", number), with_progress(None, on_progress)
        tag, call = self._connection.start(wire.SUBSCRIBE, body, f"object {number}", on_event=tell)
        call.result(ANSWER_BOUND_S)
        try:
            yield
        finally:
            self._connection.forget(tag)
            with contextlib.suppress(RostrumError):
                self._connection.ask(wire.UNSUBSCRIBE, struct.pack("<Q", tag), "unsubscribe", ANSWER_BOUND_S)

    def delete(self, data_id: int | str) -> None:
        """Removes an object from this server. Readers that have it keep it.

        Raises:
            NotFound, Busy: it is not here, or a transfer is using it.
        """
        number = self._connection.names.number(data_id)
        self._connection.ask(wire.DELETE, struct.pack("<Q", number), f"delete of {data_id}", ANSWER_BOUND_S)

    def cancel(self, data_id: int | str) -> None:
        """Stops the sending of an object, whichever process of the application started it."""
        number = self._connection.names.number(data_id)
        self._connection.ask(wire.CANCEL, struct.pack("<Q", number), f"cancel of {data_id}", ANSWER_BOUND_S)

    def leave(self, data_id: int | str) -> None:
        """This server wants an object or stream no more that comes to it, sent or fetched.

        What is here of it goes, and its sender and the other receivers go on without it: the sender's result says
        `left`, which is no failure as long as somebody gets it. Whoever waits to read it goes on waiting.

        Raises:
            NotFound: it does not come in here.
        """
        number = self._connection.names.number(data_id)
        self._connection.ask(wire.LEAVE, struct.pack("<Q", number), f"leaving {data_id}", ANSWER_BOUND_S)

    def ephemeral(self) -> None:
        """The application's objects here go with the last of its processes that asked so, however it ends.

        A transfer that uses one ends first; what comes later goes, too.
        """
        self._connection.ask(wire.EPHEMERAL, b"", "ephemeral", ANSWER_BOUND_S)

    def subscribe(self, data_id: int | str) -> Subscription:
        """News of the object's transfers from now on."""
        number = self._connection.names.number(data_id)
        tag, call = self._connection.start(wire.SUBSCRIBE, struct.pack("<Q", number), f"object {data_id}")
        call.result(ANSWER_BOUND_S)
        return Subscription(self._connection, tag, call)

    def join(
        self,
        group: str,
        protocol: str | None = None,
        order: str = "none",
        options: str = "",
        start: int | datetime | None = None,
        completion: bool = False,
    ) -> Group:
        """Subscribes to a message group: what others publish from now on comes, and it may publish too.

        Args:
            protocol: "plain" (what is lost is lost) or "ricochet" (receivers mend each other's losses), with `order`
                ("none", or "fifo" of each sender). A group that is there must have them; None: as the group is, and
                then neither order nor options may be given.
            options: Of the protocol, such as "r=4,c=2"; what is not named is as the group has it, or as usual.
            start: Of a group with `keep`: first what it keeps comes, from that message's number (0: the first there
                is) or from that time on, then what is published, without a gap or a message twice.
            completion: Message.complete tells how many of this program's messages all members have; INVALID if the
                group's protocol cannot say ("qsm" can).

        Raises:
            RostrumError: DENIED with a reason, UNAVAILABLE with neither a manager (one that is away has 60 s)
                nor `standalone: true`, TIMEOUT, LIMIT.
        """
        return self._join(group, True, protocol, order, options, start, completion)

    def publisher(
        self,
        group: str,
        protocol: str | None = None,
        order: str = "none",
        options: str = "",
        completion: bool = False,
    ) -> Group:
        """The same to publish only: this server need not receive the group's messages."""
        return self._join(group, False, protocol, order, options, None, completion)

    def channels(self) -> Channels:
        """A socket for many groups, joined on it, and feeds (rostrum.client.channels). Raises RostrumError."""
        answer = self._connection.ask(wire.CHANNELS, b"", "channels", ANSWER_BOUND_S)
        return Channels(fd_of(answer), answer.value[2])

    def _join(
        self,
        group: str,
        subscribe: bool,
        protocol: str | None,
        order: str,
        options: str,
        start: int | datetime | None = None,
        completion: bool = False,
    ) -> Group:
        body = wire.join_body(group, subscribe, protocol or "", order, options, start, completion)
        answer = self._connection.ask(wire.JOIN, body, f"joining {group}", JOIN_BOUND_S)
        has_protocol, has_order, message_bytes = answer.value
        return Group(group, has_protocol, has_order, message_bytes, fd_of(answer))

    def status(self) -> Status:
        """The agent, its transfers and objects, now."""
        answer, rows = self._connection.collect(wire.STATUS, b"", "status", ANSWER_BOUND_S)
        names: list[Any] = []
        with contextlib.suppress(RostrumError):  # of an agent that tells none
            names = self._connection.collect(wire.NAMES, b"", "names", ANSWER_BOUND_S)[1]
        return with_rows(answer.value, rows, names)

    def close(self) -> None:
        """Unregisters. Sends go on; created files that were not added go back."""
        self._connection.close()

    def __enter__(self) -> Agent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def send_request(
    number: int,
    receivers: str | Iterable[str],
    wait: float | None,
    deadline: float | None,
    stragglers: str | None,
    protocol: str,
    options: str,
) -> bytes:
    """Fields of SEND. Raises ValueError: no such policy or protocol."""
    if protocol not in wire.SEND_PROTOCOLS:
        raise ValueError(f"no protocol {protocol!r}: it is one of auto, republic, rdcm, wan")
    if stragglers not in wire.SEND_STRAGGLERS:
        raise ValueError(f"no policy for stragglers {stragglers!r}: it is one of wait, demote, evict")
    flags = wire.SEND_EVENTS | wire.SEND_STRAGGLERS[stragglers] | wire.SEND_PROTOCOLS[protocol]
    return wire.send_body(number, servers_of(receivers), flags, milliseconds(wait), milliseconds(deadline), options)


def fd_of(answer: wire.Answer) -> int:
    if not answer.fds:
        raise RostrumError(
            "the agent's file descriptor did not arrive (is this process at its limit of open files?)", Code.IO
        )
    for extra in answer.fds[1:]:
        os.close(extra)
    return answer.fds[0]


def milliseconds(seconds: float | None) -> int:
    if seconds is None:
        return 0
    if not 0 <= seconds < 4_294_967:
        raise RostrumError(f"{seconds} s is not a time to wait", Code.INVALID)
    return max(1, round(seconds * 1000)) if seconds else 0


def with_receivers(result: SendResult, rows: list[Any], names: ObjectNames) -> SendResult:
    """The result with its receivers, and with the objects' names in their text."""
    told = tuple(dataclasses.replace(row, cause=names.text(row.cause)) for row in rows)
    return dataclasses.replace(result, receivers=told, cause=names.text(result.cause))


def with_progress(
    on_event: Callable[[Event], None] | None, on_progress: Progress | None
) -> Callable[[Event], None] | None:
    if on_progress is None:
        return on_event

    def tell(event: Event) -> None:
        if event.kind == "progress":
            on_progress(event.bytes, event.size)
        if on_event is not None:
            on_event(event)

    return tell


def with_rows(status: Status, rows: list[Any], names: list[Any]) -> Status:
    """The status with its rows; `names` are rows of NAMES."""
    known = {(app, data_id): name for app, data_id, name in names}

    def named(row: Any) -> Any:
        return dataclasses.replace(row, name=known.get((row.app, row.data_id), ""))

    transfers = tuple(named(row) for row in rows if hasattr(row, "phase"))
    objects = tuple(named(row) for row in rows if hasattr(row, "digest"))
    groups = tuple(row for row in rows if isinstance(row, GroupStatus))
    return Status(**{**status.__dict__, "transfers": transfers, "objects": objects, "groups": groups})
