"""Channels: many message groups by one socket, and feeds that messages are pulled from.

with Agent() as agent, agent.channels() as channels:
    for name in names:
        channels.open(name)                                  # all of them are joined together
    channels.open("ticks", subscribe=False, feed=prices())   # an iterator: None says that there is nothing now
    for channel, message in channels:                        # of all groups
        use(channel.group, message)

A feed that said None is not asked again before its channel's `signal`: groups that nothing happens in cost nothing.
Channels of one socket wait together: a program that must not let one group wait for another's slow members opens
several.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator

from . import wire
from .groups import (
    END,
    HEAD,
    JOIN,
    JOINED,
    KEPT,
    LEAVE,
    PUBLISH,
    READ,
    SEND_BOUND_S,
    SENDER,
    Message,
    end_of,
    message_of,
    send_some,
)
from .objects import Buffer, flat
from .values import Code, RostrumError, TimedOut, Unavailable

MOST = 65_535
GROUP_NAME = re.compile(r"[A-Za-z0-9._:-]{1,128}")
TURN = 256  # messages taken, and then feeds are pulled from


class Channel:
    """A group of a Channels. `protocol`, `order`: as the group is, once a message said that it is joined."""

    def __init__(self, channels: Channels, number: int, group: str, feed: Iterator[Buffer | None] | None) -> None:
        self.group, self.protocol, self.order = group, "", ""
        self.published = 0  # messages, to which Message.complete compares
        self.is_joined = self.is_ended = False
        self._channels, self._number, self._feed = channels, number, feed

    def publish(self, data: Buffer) -> None:
        """Publishes one message instead of a feed. Waits while the agent takes no more.

        Raises:
            RostrumError: too long, not joined (INVALID); no room for 10 s (TIMEOUT); the agent is gone.
        """
        self._channels._publish(self, data)

    def signal(self) -> None:
        """Its feed has something (again). Any thread may say so."""
        self._channels._signal(self)

    def close(self) -> None:
        """Leaves the group. What was published still goes out."""
        self._channels._close(self)


class Channels:
    """Groups of one socket. One thread uses it, and calls `next` again and again (or iterates)."""

    def __init__(self, fd: int, message_bytes: int) -> None:
        self.message_bytes = message_bytes
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._signalled: set[Channel] = set()
        self._by_number: dict[int, Channel] = {}
        self._next_number = 1
        self._turns: deque[Channel] = deque()  # whose feeds may have something, each once
        self._active: set[Channel] = set()
        self._in, self._at, self._out = bytearray(), 0, bytearray()
        self._senders: dict[int, str] = {}
        self._taken = 0
        self._closed = False

    def open(
        self,
        group: str,
        subscribe: bool = True,
        feed: Iterator[Buffer | None] | None = None,
        completion: bool = False,
        protocol: str | None = None,
        order: str = "none",
        options: str = "",
    ) -> Channel:
        """Asks for a group; `next` tells when it is joined (Message.joined) or why it is not (Message.ended).

        Args:
            subscribe: To receive; without it, only to publish.
            feed: Gives messages as the agent takes them; None: nothing now. Its end is the end of publishing.
            completion: Message.complete tells how many of the channel's messages all members have (QSM).
            protocol: As of Agent.join; so are `order` and `options`.

        Raises:
            RostrumError: the name or options cannot be (INVALID), or there are 65,535 channels (LIMIT).
        """
        if not GROUP_NAME.fullmatch(group):
            raise RostrumError("a group's name has 1 to 128 characters of A-Z a-z 0-9 . _ : -", Code.INVALID)
        number = self._free_number()
        body = wire.join_body(group, subscribe, protocol or "", order, options, None, completion)
        request = wire.HEADER.pack(wire.MAGIC, wire.VERSION, wire.JOIN, 0, 0) + body
        channel = Channel(self, number, group, feed)
        self._by_number[number] = channel
        self._next_number = number % MOST + 1
        self._put(JOIN, number, request)
        self._send_some()
        return channel

    def next(self, timeout: float | None = None) -> tuple[Channel, Message]:
        """The next message of any channel, or that one was joined or ended. Pulls from feeds before it waits.

        Raises:
            TimedOut: none came within `timeout` seconds (None: waits as long as it takes).
            RostrumError: there will be no more; the text says why.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            while self._taken < TURN and (found := self._take()) is not None:
                if found[1] is not None and found[0] is not None:
                    return found[0], found[1]
            more = self._taken >= TURN
            self._taken = 0
            self._take_signals()
            self._pull()
            self._send_some()
            if more or self._read():
                continue
            self._wait(deadline)

    def flush(self, timeout: float = SEND_BOUND_S) -> None:
        """Sends all that was published. Raises TimedOut."""
        deadline = time.monotonic() + timeout
        while self._out:
            self._send_some()
            if self._out and not self._ready(selectors.EVENT_WRITE, deadline - time.monotonic()):
                raise TimedOut("the agent had no room for 10 s: the network or receivers take no more")

    def __iter__(self) -> Iterator[tuple[Channel, Message]]:
        """Messages until the agent ends, or it is closed."""
        while True:
            try:
                yield self.next()
            except Unavailable:
                return

    def close(self) -> None:
        """Leaves all groups. What was published still goes out."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(RostrumError):
            self.flush()
        self._socket.close()
        os.close(self._wake)

    def __enter__(self) -> Channels:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _free_number(self) -> int:
        """One that no channel has, in turn: what is under way of one that was closed belongs to nobody."""
        if len(self._by_number) == MOST:
            raise RostrumError("a socket has 65,535 channels at most", Code.LIMIT)
        number = self._next_number
        while number in self._by_number:
            number = number % MOST + 1
        return number

    # -- publishing ----------------------------------------------------------------------------------------------

    def _put(self, kind: int, number: int, body: Buffer) -> None:
        view = flat(body)
        self._out += HEAD.pack(len(view), kind, 0, number)
        self._out += view

    def _publish(self, channel: Channel, data: Buffer) -> None:
        if not channel.is_joined or channel.is_ended:
            raise RostrumError(f"{channel.group} is not joined (yet, or any more)", Code.INVALID)
        self._check(channel, data)
        self._put(PUBLISH, channel._number, data)
        channel.published += 1
        if len(self._out) >= KEPT:
            self.flush()
        else:
            self._send_some()

    def _check(self, channel: Channel, data: Buffer) -> None:
        if len(flat(data)) > self.message_bytes:
            text = f"{len(flat(data))} bytes are too long; {channel.group} takes {self.message_bytes}"
            raise RostrumError(text, Code.INVALID)

    def _signal(self, channel: Channel) -> None:
        with self._lock:
            wakes = not self._signalled
            self._signalled.add(channel)
            if wakes and not self._closed:
                os.eventfd_write(self._wake, 1)

    def _take_signals(self) -> None:
        with self._lock:
            signalled, self._signalled = self._signalled, set()
            if signalled:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
        for channel in signalled:
            self._activate(channel)

    def _activate(self, channel: Channel) -> None:
        if channel.is_joined and not channel.is_ended and channel._feed is not None and channel not in self._active:
            self._active.add(channel)
            self._turns.append(channel)

    def _pull(self) -> None:
        """From all feeds in turn, while the socket has taken what was pulled before."""
        while self._turns and len(self._out) < KEPT:
            channel = self._turns.popleft()
            if channel not in self._active or channel._feed is None:
                continue
            self._active.discard(channel)
            try:
                data = next(channel._feed)
            except StopIteration:
                channel._feed = None
                continue
            if data is None:
                continue
            self._check(channel, data)
            self._put(PUBLISH, channel._number, data)
            channel.published += 1
            self._activate(channel)

    def _send_some(self) -> None:
        try:
            send_some(self._socket, self._out)
        except OSError as error:
            raise Unavailable(f"the agent takes no more messages: {error.strerror or error}") from error

    def _close(self, channel: Channel) -> None:
        if self._by_number.pop(channel._number, None) is None:
            return
        self._active.discard(channel)
        if not channel.is_ended:
            channel.is_ended = True
            self._put(LEAVE, channel._number, b"")
            self._send_some()

    # -- taking --------------------------------------------------------------------------------------------------

    def _take(self) -> tuple[Channel | None, Message | None] | None:
        """What one frame says; None if there is none whole."""
        left = len(self._in) - self._at
        if left < HEAD.size or left < HEAD.size + HEAD.unpack_from(self._in, self._at)[0]:
            return None
        length, kind, flags, number = HEAD.unpack_from(self._in, self._at)
        start = self._at + HEAD.size
        self._at = start + length
        self._taken += 1
        channel = self._by_number.get(number)
        if channel is None and kind != SENDER:
            return None, None  # it was closed
        try:
            return channel, self._message(channel, start, length, kind, flags)
        except (struct.error, IndexError):
            raise RostrumError("the agent sent a malformed frame", Code.PROTOCOL) from None

    def _message(self, channel: Channel | None, start: int, length: int, kind: int, flags: int) -> Message | None:
        if channel and kind == END:
            channel.is_ended = True
            return Message("", 0, ended=end_of(self._in, start, length))
        if channel and kind == JOINED:
            channel.is_joined = True
            body, at, texts = self._in[start : start + length], 4, []
            for _ in range(2):
                size = body[at]
                texts.append(body[at + 1 : at + 1 + size].decode("utf-8", "replace"))
                at += 1 + size
            channel.protocol, channel.order = texts
            self._activate(channel)
            return Message("", 0, joined=True)
        return message_of(self._in, start, length, kind, flags, self._senders)

    def _read(self) -> bool:
        """Whether something came."""
        if self._at:
            del self._in[: self._at]
            self._at = 0
        if len(self._in) >= HEAD.size and HEAD.unpack_from(self._in)[0] > self.message_bytes + READ:
            raise RostrumError("the agent sent a malformed frame", Code.PROTOCOL)
        try:
            data = self._socket.recv(READ)
        except BlockingIOError:
            return False
        except OSError as error:
            raise Unavailable(f"channels: {error.strerror or error}") from error
        if not data:
            raise Unavailable("the agent went away")
        self._in += data
        return True

    def _wait(self, deadline: float | None) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out or self._turns else 0)
        if not self._ready(events, None if deadline is None else deadline - time.monotonic()):
            raise TimedOut("no message came in time")

    def _ready(self, events: int, timeout: float | None) -> bool:
        if timeout is not None and timeout <= 0:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, events)
            selector.register(self._wake, selectors.EVENT_READ)
            return bool(selector.select(timeout))
