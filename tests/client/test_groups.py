"""A group's own socket as the Python client reads it: frames whole and in pieces, and what no agent should send."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Iterator

import pytest
from rostrum.client import Group, Message, RostrumError, TimedOut, aio, wire

SENDER = struct.pack("<I", 7) + b"h3"
MESSAGE = struct.pack("<IIQ", 7, 2, 9) + b"hello"
LOST = struct.pack("<IIQQ", 7, 0, 10, 3)


def frame(kind: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack("<IBBH", len(body), kind, flags, 0) + body


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, Group]]:
    agent, program = socket.socketpair()
    with agent, Group("ticks", "ricochet", "none", 1000, program.detach()) as group:
        yield agent, group


def test_frames_in_pieces(ends: tuple[socket.socket, Group]) -> None:
    agent, group = ends
    for byte in frame(3, SENDER) + frame(2, MESSAGE, 1):
        with pytest.raises(TimedOut):
            group.next(0)
        agent.send(bytes([byte]))
    assert group.next(0) == Message("h3", 9, b"hello", 2, "repair")
    agent.send(frame(4, LOST, 2))
    assert group.next(0) == Message("h3", 10, lost=3, why="this subscriber was too slow")


@pytest.mark.parametrize("code", [0, 7, 999])
def test_an_end_is_an_end_whatever_its_code(ends: tuple[socket.socket, Group], code: int) -> None:
    """7 is TIMEOUT: a program would wait on for what cannot come."""
    agent, group = ends
    agent.send(frame(5, struct.pack("<H", code) + b"deleted by someone"))
    for _ in range(2):
        with pytest.raises(RostrumError, match="deleted by someone") as error:
            group.next(0)
        assert not isinstance(error.value, TimedOut)


@pytest.mark.parametrize("bad", [frame(2, b"short"), frame(4, LOST[:-1]), frame(5, b""), frame(9, b""), b"\xff" * 8])
def test_a_malformed_frame_ends_the_group(ends: tuple[socket.socket, Group], bad: bytes) -> None:
    agent, group = ends
    agent.send(bad + frame(2, MESSAGE))
    with pytest.raises(RostrumError, match="malformed"):
        group.next(0)


def test_join__an_order_goes_with_its_protocol() -> None:
    """As the group is, without a word, was less than what was asked for."""
    for order in ("total", "fifo", "x"):
        with pytest.raises(RostrumError, match="go with its protocol"):
            wire.join_body("ticks", True, "", order, "")
    for protocol, order in (("", "none"), ("plain", "total")):
        assert order.encode() in wire.join_body("ticks", True, protocol, order, "") or not protocol


def test_any_bytes_end_with_a_reason() -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    draw = random.Random(seed)
    good = [frame(3, SENDER), frame(2, MESSAGE), frame(4, LOST), frame(5, struct.pack("<H", 7) + b"words")]
    for _ in range(300):
        data = bytearray(b"".join(draw.choices(good, k=draw.randrange(1, 6))))
        for _ in range(draw.randrange(4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        agent, program = socket.socketpair()
        with Group("ticks", "plain", "none", 1000, program.detach()) as group:
            with agent:
                agent.send(data)
            with pytest.raises(RostrumError) as error:
                while True:
                    group.next(0)
            assert not isinstance(error.value, TimedOut)


def published(agent: socket.socket) -> list[bytes]:
    """What a program has written until it closes its end."""
    data, found = b"".join(iter(lambda: agent.recv(1 << 20), b"")), []
    while data:
        length, kind = struct.unpack_from("<IB", data)
        assert kind == 1
        found.append(data[8 : 8 + length])
        data = data[8 + length :]
    return found


def with_error() -> Iterator[bytes]:
    yield b"before"
    raise ValueError("the source failed")


def test_what_is_before_a_message_that_cannot_be_goes_out(ends: tuple[socket.socket, Group]) -> None:
    agent, group = ends
    with pytest.raises(RostrumError, match="too long"):
        group.publish_all([b"one", b"two", bytes(1001), b"three"])
    with pytest.raises(ValueError, match="the source failed"):
        group.publish_all(with_error())
    group.close()
    assert published(agent) == [b"one", b"two", b"before"]


async def test_tasks_that_publish_at_one_time_take_turns() -> None:
    """The agent takes nothing at first, so that several wait."""
    agent, program = socket.socketpair()
    with agent:
        async with aio.Group(Group("ticks", "plain", "none", 1 << 20, program.detach())) as group:
            wanted = [bytes([number]) * 100_000 for number in range(20)]
            tasks = [asyncio.create_task(group.publish(one)) for one in wanted]
            await asyncio.sleep(0)
            assert not all(task.done() for task in tasks)
            reader = asyncio.create_task(asyncio.to_thread(published, agent))
            await asyncio.gather(*tasks)
        assert await reader == wanted


async def test_tasks_that_take_at_one_time_have_a_message_each() -> None:
    agent, program = socket.socketpair()
    with agent:
        async with aio.Group(Group("ticks", "plain", "none", 1000, program.detach())) as group:
            tasks = [asyncio.create_task(group.next(10)) for _ in range(5)]
            await asyncio.sleep(0)
            agent.send(frame(3, SENDER) + frame(2, MESSAGE) * 5)
            assert [one.data for one in await asyncio.gather(*tasks)] == [b"hello"] * 5
