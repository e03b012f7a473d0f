"""Continuing streams of the Python client, through the agent's application interface with a fake daemon behind it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable

import pytest
from rostrum.client import Agent, Code, RostrumError, wire

from .conftest import Server

Start = Callable[..., Server]


def collect(agent: Agent, name: str, into: list[object]) -> threading.Thread:
    """Reads a stream to its end, or its failure."""

    def run() -> None:
        got = bytearray()
        try:
            with agent.stream_receive(name, wait=10) as reader:
                for piece in reader:
                    got += piece
            into.append(bytes(got))
        except RostrumError as error:
            into.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_all_bytes_come_and_the_end_is_told(start: Start, seed: int) -> None:
    data = bytes((seed + i * 7) % 251 for i in range(1_000_003))
    got: list[object] = []
    with start().agent() as agent:
        thread = collect(agent, "log", got)
        with agent.stream_send("log", ["h3"]) as out:
            for at in range(0, len(data), 77_777):
                out.write(data[at : at + 77_777])
            result = out.finish(20)
        thread.join(60)
    assert got == [data]
    assert result.ok and result.size == len(data) and [row.state for row in result.receivers] == ["done"]


def test_a_writer_that_does_not_finish_fails_the_stream(start: Start) -> None:
    got: list[object] = []
    with start().agent() as agent:
        thread = collect(agent, "log", got)
        with agent.stream_send("log", ["h3"]) as out:
            out.write(b"not all")
        thread.join(60)
    assert isinstance(got[0], RostrumError) and "went away" in str(got[0])


def test_a_writer_hears_why_nothing_more_is_taken(start: Start) -> None:
    got: list[object] = []
    with start().agent() as agent:
        thread = collect(agent, "log", got)
        with agent.stream_send("log", ["bad"]) as out, pytest.raises(RostrumError, match="the cable was pulled"):
            for _ in range(10_000):
                out.write(bytes(10_000))
        thread.join(60)
        assert "the cable was pulled" in str(got[0])
        with agent.stream_send("other", ["refuse"]) as out, pytest.raises(RostrumError, match="grants no path"):
            out.finish(20)


def test_a_reader_that_goes_away_is_told_to_the_writer(start: Start) -> None:
    with start().agent() as agent, agent.stream_send("log", ["h3"]) as out:
        with agent.stream_receive("log", wait=10) as reader:
            out.write(b"x")
            assert reader.read() == b"x"
        with pytest.raises(RostrumError, match="went away"):
            for _ in range(10_000):
                out.write(bytes(10_000))


def test_requests_that_are_not_right_are_refused_with_a_reason(start: Start) -> None:
    with start().agent() as agent:
        connection = agent._connection
        body = wire.send_body(7, ["h3"], wire.SEND_PROTOCOLS["rdcm"], 0, 0)
        with pytest.raises(RostrumError, match="unix stream sockets"):
            connection.ask(wire.STREAM_SEND, body, "a stream", 10)  # no descriptor
        with open("/dev/null", "rb") as file, pytest.raises(RostrumError, match="unix stream sockets"):
            connection.ask(wire.STREAM_SEND, body, "a stream", 10, fd=file.fileno())
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs, pytest.raises(RostrumError, match="unix stream sockets"):
            connection.ask(wire.STREAM_RECEIVE, struct.pack("<QI", 7, 0), "a stream", 10, fd=theirs.fileno())
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        republic = wire.send_body(7, ["h3"], wire.SEND_PROTOCOLS["republic"], 0, 0)
        with ours, theirs, pytest.raises(RostrumError, match="rdcm over a packet tree"):
            connection.ask(wire.STREAM_SEND, republic, "a stream", 10, fd=theirs.fileno())
        with pytest.raises(RostrumError, match="not being sent") as error:
            connection.ask(wire.STREAM_END, struct.pack("<QQ", 9, 1), "the end", 10)
        assert error.value.code == Code.UNKNOWN
        for garbage in (b"", b"\0" * 7, struct.pack("<QQQ", 1, 2, 3)):
            with pytest.raises(RostrumError, match="malformed"):
                connection.ask(wire.STREAM_END, garbage, "garbage", 10)
        assert agent.status().server == "h1"  # it lives
