"""A group's own socket as the Python client reads it: frames whole and in pieces, and what no agent should send."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator

import pytest
from rostrum.client import Group, Message, RostrumError, TimedOut

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
