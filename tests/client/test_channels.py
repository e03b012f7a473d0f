"""Channels of the Python client: what it asks for, when it pulls from feeds, and what no agent should send."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from rostrum.client import Channel, Channels, Message, RostrumError, TimedOut, Unavailable, wire
from rostrum.client.groups import END, HEAD, JOIN, JOINED, LEAVE, PUBLISH

JOINED_BODY = struct.pack("<I", 1000) + b"\x03qsm\x04fifo"


def frame(kind: int, channel: int, body: bytes = b"", flags: int = 0) -> bytes:
    return HEAD.pack(len(body), kind, flags, channel) + body


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, Channels]]:
    agent, program = socket.socketpair()
    agent.settimeout(10)
    with agent, Channels(program.detach(), 1000) as channels:
        yield agent, channels


def taken(agent: socket.socket, count: int) -> list[tuple[int, int, bytes]]:
    """Frames of the program: kind, channel, body."""
    found = []
    for _ in range(count):
        length, kind, _, channel = HEAD.unpack(agent.recv(HEAD.size, socket.MSG_WAITALL))
        found.append((kind, channel, agent.recv(length, socket.MSG_WAITALL) if length else b""))
    return found


def joined(agent: socket.socket, channels: Channels, channel: Channel) -> None:
    ((kind, number, _),) = taken(agent, 1)
    assert kind == JOIN
    agent.send(frame(JOINED, number, JOINED_BODY))
    assert channels.next(1) == (channel, Message("", 0, joined=True))
    assert (channel.protocol, channel.order) == ("qsm", "fifo")


def nothing(channels: Channels) -> None:
    with pytest.raises(TimedOut):
        channels.next(0)


def test_a_feed_is_asked_in_turn_and_not_while_it_has_nothing(ends: tuple[socket.socket, Channels]) -> None:
    agent, channels = ends
    asked: list[str] = []

    def feed(name: str, lots: list[bytes | None]) -> Iterator[bytes | None]:
        for one in lots:
            asked.append(name)
            yield one

    first = channels.open("a", feed=feed("a", [b"1", b"2", None, b"3"]))
    second = channels.open("b", feed=feed("b", [b"x", None]))
    idle = channels.open("c", feed=feed("c", [None]))
    assert asked == [], "nothing is pulled before the group is joined"
    for channel in (first, second, idle):
        joined(agent, channels, channel)
    nothing(channels)
    assert [(number, body) for kind, number, body in taken(agent, 3) if kind == PUBLISH] == [
        (1, b"1"),
        (1, b"2"),
        (2, b"x"),
    ]
    assert sorted(asked) == ["a", "a", "a", "b", "b", "c"]
    for _ in range(5):
        nothing(channels)
    assert len(asked) == 6, "what has nothing is not asked"
    threading.Thread(target=first.signal).start()
    while len(asked) < 7:
        with pytest.raises(TimedOut):
            channels.next(1)
    assert taken(agent, 1) == [(PUBLISH, 1, b"3")]
    assert (first.published, second.published, idle.published) == (3, 1, 0)


def test_feeds_wait_while_the_agent_takes_nothing(ends: tuple[socket.socket, Channels]) -> None:
    agent, channels = ends
    given = 0

    def feed() -> Iterator[bytes]:
        nonlocal given
        while True:
            given += 1
            yield bytes(1000)

    channel = channels.open("a", feed=feed())
    joined(agent, channels, channel)
    for _ in range(2000):
        with pytest.raises(TimedOut):
            channels.next(0)
    before = given
    assert before * 1000 < 8 << 20, "pulled only what the socket takes, and a little"
    for _ in range(100):
        with pytest.raises(TimedOut):
            channels.next(0)
    assert given == before


def test_joining_publishing_leaving(ends: tuple[socket.socket, Channels]) -> None:
    agent, channels = ends
    channel = channels.open("a", completion=True, protocol="qsm", order="fifo", options="token=20")
    with pytest.raises(RostrumError, match="not joined"):
        channel.publish(b"early")
    ((kind, number, body),) = taken(agent, 1)
    assert (kind, number, body[:4]) == (JOIN, 1, wire.HEADER.pack(wire.MAGIC, wire.VERSION, wire.JOIN, 0, 0)[:4])
    assert body[wire.HEADER.size :] == struct.pack("<I", 3) + b"\x01a\x03qsm\x04fifo\x08token=20"
    agent.send(frame(JOINED, number, JOINED_BODY))
    channels.next(1)
    channel.publish(b"hello")
    with pytest.raises(RostrumError, match="too long"):
        channel.publish(bytes(1001))
    assert taken(agent, 1) == [(PUBLISH, 1, b"hello")]
    agent.send(frame(11, 1, struct.pack("<QQ", 1, 0)) + frame(11, 1, struct.pack("<QQ", 9, 2)))
    assert channels.next(1) == (channel, Message("", 0, complete=1))
    assert channels.next(1) == (channel, Message("", 0, complete=9, lost=2))
    channel.close()
    assert taken(agent, 1) == [(LEAVE, 1, b"")]
    agent.send(frame(2, 1, bytes(16)))
    nothing(channels)  # of a channel that was closed
    other = channels.open("b")
    assert taken(agent, 1)[0][:2] == (JOIN, 2), "its number is not used again at once"
    agent.send(frame(END, 2, struct.pack("<H", 9) + b"not for you"))
    which, message = channels.next(1)
    assert which is other and message.ended and "not for you" in str(message.ended)
    agent.close()
    with pytest.raises(Unavailable, match="went away"):
        channels.next(1)


def test_any_bytes_end_with_a_reason() -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(200):
        agent, program = socket.socketpair()
        with agent, Channels(program.detach(), 1000) as channels:
            channels.open("a")
            for _ in range(5):
                body = chance.randbytes(chance.randrange(60))
                agent.send(frame(chance.randrange(13), chance.randrange(2), body, chance.randrange(3)))
            agent.close()
            with pytest.raises(RostrumError):
                for _ in range(100):
                    channels.next(1)
