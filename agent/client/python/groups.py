"""Message groups: publish to many servers, and get what others publish.

with Agent() as agent, agent.join("ticks") as ticks:        # subscribes; publishing is possible too
    for message in ticks:
        if message.lost is not None:                         # 0: nobody knows how many
            print(f"{message.lost} lost: {message.why}")
        else:
            use(message.sender, message.data)

with Agent() as agent, agent.publisher("ticks") as ticks:
    ticks.publish(b"hello")
    ticks.publish_all(lines)                                 # many at once: much faster
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .objects import Buffer, flat
from .values import Code, RostrumError, TimedOut, Unavailable, error_of

HEAD = struct.Struct("<IBBH")  # length, kind, flags, channel
_MESSAGE = struct.Struct("<IIQ")
_LOST = struct.Struct("<IIQQ")
_VIEW = struct.Struct("<QQIII")
_COMPLETE = struct.Struct("<QQ")
PUBLISH, _MESSAGE_KIND, SENDER, _LOST_KIND, END, _VIEW_KIND, _PRIMARY = range(1, 8)
JOIN, LEAVE, JOINED, _COMPLETE_KIND = range(8, 12)
_LEAST = {
    _MESSAGE_KIND: _MESSAGE.size,
    _LOST_KIND: _LOST.size,
    _VIEW_KIND: _VIEW.size,
    _COMPLETE_KIND: _COMPLETE.size,
}
READ = 1 << 18
KEPT = 1 << 16
SEND_BOUND_S = 10.0
VIAS = ("multicast", "repair", "retransmit", "kept")
REASONS = (
    "lost in the network and not recovered in time",
    "lost in the network, and too much came after it",
    "this subscriber was too slow",
    "parts of a large message were lost",
    "its sender was restarted",
    "no member keeps it any more",
)


@dataclass(frozen=True)
class View:
    """Who is in a group with guarantees, by servers' names, from here on in its stream of messages.

    `id`: rises from view to view, the same everywhere. `number`: messages before it (of order `total`). `anew`: this
    server joined with it, or this program came while it held: what was before is not known here.
    """

    id: int
    number: int
    members: tuple[str, ...]
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    anew: bool = False


@dataclass(frozen=True)
class Message:
    """A message, or word of losses, or (of groups with guarantees) a view, or that it is `primary` or not any more.

    `sender`: its server's name. `sn`: the packet's number, from 1 of each sender; `part`: the place of a small message
    in it; with order total `sn` is its number for all. `via` "kept": it was given out before this program came.
    `lost`: None of a message; else how many packets of `sender` from `sn` on (of any sender: messages, which
    this program did not take in time) are lost, 0 if that is not known, and `why`.

    `complete`: so many of the messages that this program published here (Group.published) are with all members, as far
    as is known; of `lost` more it is not. `joined`, `ended`: of a channel (channels.py).
    """

    sender: str
    sn: int
    data: bytes = b""
    part: int = 0
    via: str = "multicast"
    lost: int | None = None
    why: str = ""
    view: View | None = None
    primary: bool | None = None
    complete: int | None = None
    joined: bool = False
    ended: RostrumError | None = None


def message_of(
    frames: bytearray, start: int, length: int, kind: int, flags: int, senders: dict[int, str]
) -> Message | None:
    """What a frame's `length` bytes at `start` say; None: only who a sender is. Raises struct.error: malformed."""
    if length < _LEAST.get(kind, 0):
        raise struct.error
    if kind == _MESSAGE_KIND:
        sender, part, sn = _MESSAGE.unpack_from(frames, start)
        data = bytes(memoryview(frames)[start + _MESSAGE.size : start + length])
        return Message(senders.get(sender, ""), sn, data, part, VIAS[min(flags, len(VIAS) - 1)])
    if kind == _LOST_KIND:
        sender, _, sn, count = _LOST.unpack_from(frames, start)
        why = REASONS[flags] if flags < len(REASONS) else "lost"
        return Message(senders.get(sender, ""), sn, lost=count, why=why)
    if kind == _VIEW_KIND:
        return Message("", 0, view=_view(frames, start, length, bool(flags & 1), senders))
    if kind == _PRIMARY:
        return Message("", 0, primary=bool(flags & 1))
    if kind == _COMPLETE_KIND:
        number, given_up = _COMPLETE.unpack_from(frames, start)
        return Message("", 0, complete=number, lost=given_up or None)
    if kind != SENDER:
        raise struct.error
    body = bytes(memoryview(frames)[start : start + length])
    senders[struct.unpack_from("<I", body)[0]] = body[4:].decode("utf-8", "replace")
    return None


def _view(frames: bytearray, start: int, length: int, anew: bool, senders: dict[int, str]) -> View:
    view, number, *counts = _VIEW.unpack_from(frames, start)
    if length != _VIEW.size + 4 * sum(counts):
        raise struct.error
    numbers = struct.unpack_from(f"<{sum(counts)}I", frames, start + _VIEW.size)
    names = [senders.get(one, "") for one in numbers]
    members, joined = counts[0], counts[0] + counts[1]
    return View(view, number, tuple(names[:members]), tuple(names[members:joined]), tuple(names[joined:]), anew)


def end_of(frames: bytearray, start: int, length: int) -> RostrumError:
    """Why nothing follows. Raises struct.error: malformed."""
    body = bytes(memoryview(frames)[start : start + length])
    code, text = struct.unpack_from("<H", body)[0], body[2:].decode("utf-8", "replace")
    # TIMEOUT would look as if messages could still come.
    return error_of(Code.UNAVAILABLE if code in (0, Code.TIMEOUT) else code, text)


def send_some(agent: socket.socket, out: bytearray) -> None:
    """Sends what there is room for, and takes that off `out`. Raises OSError."""
    sent = 0
    try:
        with memoryview(out) as view:
            while sent < len(view):
                sent += agent.send(view[sent:])
    except BlockingIOError:
        pass
    finally:
        del out[:sent]


class Group:
    """A group this program is in. One thread may publish while another takes messages."""

    def __init__(self, name: str, protocol: str, order: str, message_bytes: int, fd: int) -> None:
        self.name, self.protocol, self.order = name, protocol, order
        self.message_bytes = message_bytes
        self.published = 0  # messages, to which Message.complete compares
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)
        self._in = bytearray()
        self._at = 0
        self._senders: dict[int, str] = {}
        self._ended: RostrumError | None = None
        self._sending = threading.Lock()
        self._out = bytearray()

    # -- publishing ----------------------------------------------------------------------------------------------

    def publish(self, data: Buffer) -> None:
        """Publishes one message. Waits while the network or receivers take no more.

        Raises:
            RostrumError: too long (INVALID); no room for 10 s (TIMEOUT: a later call sends it); the agent is gone.
        """
        self.publish_all((data,))

    def publish_all(self, messages: Iterable[Buffer]) -> int:
        """Publishes many; returns how many. Raises as `publish` does; what is before a message that is too long, or
        before an error of `messages`, goes out, or (where there is no room) with the next call.
        """
        count = 0
        with self._sending:
            for so_far in self.put(messages):
                self._flush()
                count = so_far
        return count

    def try_publish(self, data: Buffer) -> bool:
        """Publishes one message if that needs no waiting, for the agent or for other threads; whether it did.
        What the agent has no room for yet goes with the next call of this, or of `publish`.
        """
        if not self._sending.acquire(blocking=False):
            return False
        try:
            if not self.flush_some():
                return False
            self.append(data)
            self.flush_some()
            return True
        finally:
            self._sending.release()

    def put(self, messages: Iterable[Buffer]) -> Iterator[int]:
        """Puts messages to those that a flush sends: each time that one is due, and at the end, yields how many so far.
        Before an error of `messages`, or of one of them, sends what goes without waiting: the cause is told now.
        """
        count, due = 0, False
        try:
            for data in messages:
                due = True
                full = self.append(data)
                count += 1
                if full:
                    due = False
                    yield count
        except BaseException:
            if due:
                with contextlib.suppress(RostrumError):
                    self.flush_some()
            raise
        if due:
            yield count

    def append(self, data: Buffer) -> bool:
        """Puts one message to those that a flush sends; whether that is due."""
        view = flat(data)
        if len(view) > self.message_bytes:
            text = f"{len(view)} bytes are too long; {self.name} takes {self.message_bytes}"
            raise RostrumError(text, Code.INVALID)
        self._out += HEAD.pack(len(view), PUBLISH, 0, 0)
        self._out += view
        self.published += 1
        return len(self._out) >= KEPT

    def _flush(self) -> None:
        deadline, left = time.monotonic() + SEND_BOUND_S, len(self._out)
        while not self.flush_some():
            if len(self._out) < left:
                deadline, left = time.monotonic() + SEND_BOUND_S, len(self._out)
            if not self._ready(selectors.EVENT_WRITE, deadline - time.monotonic()):
                raise TimedOut("the agent had no room for 10 s: the network or receivers take no more")

    def flush_some(self) -> bool:
        """Sends what the agent has room for; whether that was all."""
        try:
            send_some(self._socket, self._out)
        except OSError as error:
            raise Unavailable(f"the agent takes no more messages of {self.name} (it ended, or the group was deleted): "
                              f"{error.strerror or error}") from error  # fmt: skip
        return not self._out

    # -- taking --------------------------------------------------------------------------------------------------

    def next(self, timeout: float | None = None) -> Message:
        """The next message, or word of losses.

        Raises:
            TimedOut: none came within `timeout` seconds (None: waits as long as it takes).
            RostrumError: there will be no more; the text says why.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (message := self.poll()) is None:
            if not self._ready(selectors.EVENT_READ, None if deadline is None else deadline - time.monotonic()):
                raise TimedOut(f"no message of {self.name} came in time")
        return message

    def poll(self) -> Message | None:
        """The next message if it is here already. Raises RostrumError: there will be no more."""
        while True:
            while (message := self._take()) is None and not self._ended and self._has_frame():
                pass
            if message is not None:
                return message
            if self._ended:
                raise self._ended
            if not self._read():
                return None

    def dispatch(
        self,
        deliver: Callable[[Message], object],
        confchg: Callable[[View], object] | None = None,
        primary: Callable[[bool], object] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Takes one message and what is before it, as CPG's dispatch does: views go to `confchg`. Raises as `next`."""
        while True:
            message = self.next(timeout)
            if message.view is not None:
                if confchg:
                    confchg(message.view)
            elif message.primary is not None:
                if primary:
                    primary(message.primary)
            else:
                deliver(message)
                return

    def __iter__(self) -> Iterator[Message]:
        """Messages until the group or the agent ends, or it is closed."""
        while True:
            try:
                yield self.next()
            except RostrumError as error:
                if error.code in (Code.UNAVAILABLE, Code.DENIED, Code.CANCELLED):
                    return
                raise

    def _has_frame(self) -> bool:
        left = len(self._in) - self._at
        return left >= HEAD.size and left >= HEAD.size + HEAD.unpack_from(self._in, self._at)[0]

    def _take(self) -> Message | None:
        """One frame; None if there is none whole, or it is no message."""
        if not self._has_frame():
            return None
        length, kind, flags, _ = HEAD.unpack_from(self._in, self._at)
        start = self._at + HEAD.size
        self._at = start + length
        try:
            if kind != END:
                return message_of(self._in, start, length, kind, flags, self._senders)
            self._ended = end_of(self._in, start, length)
        except struct.error:
            self._ended = RostrumError("the agent sent a malformed frame", Code.PROTOCOL)
        return None

    def _read(self) -> bool:
        """Whether something came, or is known to be the end."""
        if self._at:
            del self._in[: self._at]
            self._at = 0
        if len(self._in) >= HEAD.size and HEAD.unpack_from(self._in)[0] > self.message_bytes + READ:
            self._ended = RostrumError("the agent sent a malformed frame", Code.PROTOCOL)
            return True
        try:
            data = self._socket.recv(READ)
        except BlockingIOError:
            return False
        except OSError as error:
            self._ended = Unavailable(f"{self.name}: {error.strerror or error}")
            return True
        if not data:
            self._ended = Unavailable("the agent went away")
        self._in += data
        return True

    def _ready(self, event: int, timeout: float | None) -> bool:
        if timeout is not None and timeout <= 0:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, event)
            return bool(selector.select(None if timeout is None else max(0.0, timeout)))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """Leaves the group. What was published still goes out."""
        self._socket.close()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
