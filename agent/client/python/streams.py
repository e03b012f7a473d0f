"""Continuing streams: what one program writes, programs on many servers read, while it is being written.

with Agent() as agent, agent.stream_send("log", ["h3", "h5"]) as out:
    out.write(b"first\n")
    out.write(b"second\n")
    result = out.finish()                        # all receivers' programs have all of it

with Agent() as agent, agent.stream_receive("log") as log:     # on h3 and h5
    for piece in log:
        use(piece)                               # the end of the loop: it was all; else RostrumError
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

from . import wire
from .connection import Call, Connection
from .names import ObjectNames
from .objects import Buffer, flat
from .values import Code, Event, RostrumError, SendResult, Unavailable

ANSWER_BOUND_S = 60.0
FINAL_MESSAGE_BOUND_S = 10.0  # between the end of a stream's bytes and the agent's report on it
SOCKET_BYTES = 512 << 10
READ_BYTES = 256 << 10


def pair() -> tuple[socket.socket, socket.socket]:
    """Our end and the agent's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for one in (ours, theirs):
        with contextlib.suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
    return ours, theirs


@contextlib.contextmanager
def both_ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Ours and the one that the agent is handed with a request, which is closed here then; ours if that fails."""
    ours, theirs = pair()
    try:
        yield ours, theirs
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()


def _begin(
    connection: Connection, request: int, body: bytes, data_id: int, on_event: Callable[[Event], None] | None = None
) -> tuple[int, Call, socket.socket]:
    """The tag, the call, and our end."""
    what = f"stream {connection.names.name(data_id)}"
    with both_ends() as (ours, theirs):
        tag, call = connection.start(request, body, what, fd=theirs.fileno(), on_event=on_event)
    return tag, call, ours


class StreamWriter:
    """A stream that is being sent. Leaving the `with` block without `finish` fails it at all receivers.

    `data_id` is its number. One thread writes; `events` may be read by another.
    """

    def __init__(
        self,
        connection: Connection,
        data_id: int,
        body: bytes,
        with_receivers: Callable[[SendResult, list[object], ObjectNames], SendResult],
        on_event: Callable[[Event], None] | None,
    ) -> None:
        self.data_id, self.bytes_written = data_id, 0
        self._connection, self._with_receivers = connection, with_receivers
        self._tag, self._call, self._socket = _begin(connection, wire.STREAM_SEND, body, data_id, on_event)

    def write(self, data: Buffer) -> None:
        """Writes all of `data`. Waits while the slowest receiver, or the path, holds the stream back.

        Raises:
            RostrumError: it failed; the text says why.
        """
        view = flat(data)
        try:
            self._socket.sendall(view)
        except OSError as error:
            raise self._failure(error) from error
        self.bytes_written += len(view)

    def fileno(self) -> int:
        """What becomes readable when the stream is over, for select."""
        return self._socket.fileno()

    def events(self) -> Iterator[Event]:
        """What happens, until the stream is over."""
        while event := self._call.next_event(None):
            yield event

    def finish(self, timeout: float | None = None) -> SendResult:
        """This was all: waits until every receiver's program has it, or has failed.

        Raises:
            TimedOut: not within `timeout` seconds (None: as long as the agent lives).
            RostrumError: it could not be sent at all.
        """
        body = struct.pack("<QQ", self.data_id, self.bytes_written)
        try:
            self._connection.ask(wire.STREAM_END, body, f"the end of {self._call.what}", ANSWER_BOUND_S)
        except RostrumError:
            if not self._call.finished:
                raise  # else the stream itself says why
        return self.wait(timeout)

    def wait(self, timeout: float | None = None) -> SendResult:
        """What it came to. Raises as `finish` does."""
        answer = self._call.result(timeout)
        result: SendResult = answer.value
        return self._with_receivers(result, self._call.rows, self._connection.names)

    def cancel(self) -> None:
        """Stops it: it fails at all receivers."""
        what = f"cancel of {self._call.what}"
        self._connection.ask(wire.CANCEL, struct.pack("<Q", self.data_id), what, ANSWER_BOUND_S)

    def close(self) -> None:
        """Without `finish` before: the stream fails."""
        self._socket.close()
        self._connection.forget(self._tag)

    def _failure(self, error: OSError) -> RostrumError:
        """Why the agent takes no more."""
        try:
            result = self.wait(FINAL_MESSAGE_BOUND_S)
        except RostrumError as known:
            return known
        return RostrumError(f"{self._call.what}: {result.cause or error.strerror}", Code.FAILED)

    def __enter__(self) -> StreamWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class StreamReader:
    """A stream that comes to this server. Iterating gives its bytes in pieces of any size."""

    def __init__(self, connection: Connection, data_id: int, wait_ms: int, holders: Sequence[str] = ()) -> None:
        self.data_id, self.bytes_read = data_id, 0
        self._connection = connection
        self._ended = False
        body = wire.fetch_body(data_id, holders, wait_ms) if holders else struct.pack("<QI", data_id, wait_ms)
        kind = wire.STREAM_JOIN if holders else wire.STREAM_RECEIVE
        self._tag, self._call, self._socket = _begin(connection, kind, body, data_id)

    def read(self, size: int = READ_BYTES) -> bytes:
        """Up to `size` bytes, as soon as there are some; nothing at the end, which is whole then.

        Raises:
            RostrumError: there will be no more, and that is not all; the text says why.
        """
        if self._ended:
            return b""
        data = self._socket.recv(size)
        self.bytes_read += len(data)
        if not data:
            self._check_end(self._call)
            self._ended = True
        return data

    def _check_end(self, call: Call) -> None:
        answer = call.result(FINAL_MESSAGE_BOUND_S)
        if answer.value != self.bytes_read:
            raise Unavailable(f"{self._call.what}: {self.bytes_read} of {answer.value} bytes came")

    def __iter__(self) -> Iterator[bytes]:
        while data := self.read():
            yield data

    def leave(self) -> None:
        """It is wanted no more: the others go on, and this is no failure of the stream."""
        what = f"leaving {self._call.what}"
        self._connection.ask(wire.LEAVE, struct.pack("<Q", self.data_id), what, ANSWER_BOUND_S)
        self.close()

    def close(self) -> None:
        """Before the end: this receiver fails, the others go on (`leave` before: it is no failure)."""
        self._socket.close()
        self._connection.forget(self._tag)

    def __enter__(self) -> StreamReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
