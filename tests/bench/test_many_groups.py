"""What a receiver of many_groups counts, by an agent that is played here."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rostrum.client import wire
from rostrum.client.groups import HEAD, JOIN, JOINED
from rostrum.lab.processes import bench_programs

MESSAGE, SENDER, LOST = 2, 3, 4
CALL = b"call\0"
GROUPS = 2


def frame(kind: int, channel: int, body: bytes) -> bytes:
    return HEAD.pack(len(body), kind, 0, channel) + body


def message(channel: int, payload: bytes) -> bytes:
    return frame(MESSAGE, channel, struct.pack("<IIQ", 1, 0, 1) + payload)


def lost(channel: int, count: int) -> bytes:
    return frame(LOST, channel, struct.pack("<IIQQ", 1, 0, 1, count))


@dataclass
class Receiver:
    """`frames`: to it, from its agent."""

    process: subprocess.Popen[str]
    frames: socket.socket

    def says(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def counts(self) -> dict[str, int]:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        counted: dict[str, int] = json.loads(self.says())
        return counted


def answered(agent: socket.socket, kind: int, body: bytes, fds: list[int]) -> None:
    tag = wire.HEADER.unpack_from(agent.recv(wire.MESSAGE_MAX))[4]
    socket.send_fds(agent, [wire.HEADER.pack(wire.MAGIC, wire.VERSION, kind, 0, tag) + body], fds)


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    """It joined all its groups, and waits."""
    frames, theirs = socket.socketpair()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening, frames, theirs:
        listening.settimeout(30)
        frames.settimeout(30)
        listening.bind(str(tmp_path / "agent"))
        listening.listen()
        process = subprocess.Popen(
            [bench_programs() / "many_groups", "receive", tmp_path / "agent", "g", "qsm", str(GROUPS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        agent, _ = listening.accept()
        with agent, process:
            answered(agent, wire.REGISTERED, wire.text("h1") + wire.text("x") + struct.pack("<Q", 0), [])
            answered(agent, wire.GROUP, b"\0\0" + struct.pack("<I", 65536), [theirs.fileno()])
            for _ in range(GROUPS):
                length, kind, _, channel = HEAD.unpack(frames.recv(HEAD.size, socket.MSG_WAITALL))
                frames.recv(length, socket.MSG_WAITALL)
                assert kind == JOIN
                frames.send(frame(JOINED, channel, struct.pack("<I", 1000) + b"\x03qsm\x04fifo"))
            frames.send(frame(SENDER, 1, struct.pack("<I", 1) + b"h2"))
            one = Receiver(process, frames)
            assert one.says() == "ready"
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
            yield one
            process.kill()


def test_calls_that_are_lost_are_no_messages(receiver: Receiver) -> None:
    """The sender calls until all have heard, however many calls do not come."""
    receiver.frames.send(lost(1, 7) + message(1, CALL) + message(2, CALL) + lost(2, 4))
    assert receiver.says() == "heard"
    receiver.frames.send(lost(1, 2) + message(1, struct.pack("<I", 0) + bytes(60)) + lost(1, 3))
    receiver.frames.send(lost(2, 9) + message(2, struct.pack("<I", 5) + bytes(60)))
    receiver.frames.send(message(1, struct.pack("<I", 4) + bytes(60)))
    counted: dict[str, int] = {}
    while counted.get("messages", 0) < 3:
        counted = receiver.counts()
    assert counted["messages"] == 3
    assert counted["lost"] == 3 + 5, "what was told after a group's first message, and what was before that"
