"""The Python client against agents that misbehave, and odd places for sockets."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from rostrum.client import Agent, RostrumError, TimedOut, Unavailable, agent, connection, wire
from rostrum.client.cli import main
from rostrum.client.objects import copy_file
from rostrum.client.values import Code

from tests.client.conftest import APP, Server

REGISTERED = wire.HEADER.pack(wire.MAGIC, 1, wire.REGISTERED, 0, 1) + wire.text("h9") + wire.text("9") + bytes(8)


@pytest.fixture
def impostor(tmp_path: Path) -> Iterator[Callable[[list[bytes]], Path]]:
    """Starts an agent that answers register as it should, and the next request with the messages given."""
    threads: list[threading.Thread] = []

    def start(messages: list[bytes]) -> Path:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = tmp_path / f"impostor{len(threads)}"
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            with listener, listener.accept()[0] as client:
                client.recv(65536)
                client.send(REGISTERED)
                if client.recv(65536):
                    for message in messages:
                        client.send(message)
                    client.recv(65536)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return path

    yield start
    for thread in threads:
        thread.join(60)


def header(kind: int, tag: int = 2) -> bytes:
    return wire.HEADER.pack(wire.MAGIC, 1, kind, 0, tag)


@pytest.mark.parametrize(
    "messages",
    [
        [b"x"],
        [os.urandom(100)],
        [header(wire.DONE) + b"extra"],
        [header(wire.ERROR)],
        [header(wire.ERROR) + b"\x01\x00\xffshort"],
        [header(wire.RECEIVERS) + b"\xff\xff"],
        [header(200)],
        [wire.HEADER.pack(wire.MAGIC, 2, wire.DONE, 0, 2)],
        [wire.HEADER.pack(wire.MAGIC, 1, wire.ERROR, 0, 0) + b"\x0a\x00" + wire.text("the agent is full")],
    ],
)
def test_malformed_answers_end_the_connection_with_a_reason(
    impostor: Callable[[list[bytes]], Path], messages: list[bytes]
) -> None:
    with Agent(impostor(messages), APP) as agent:
        assert agent.server == "h9"
        with pytest.raises(RostrumError, match=r"malformed|version|too many|the agent is full"):
            agent.delete(1)
        with pytest.raises(RostrumError):
            agent.delete(1)


def test_why_an_agent_hung_up_is_heard_though_it_read_nothing(tmp_path: Path) -> None:
    """The kernel tells of the reset before it gives out what was sent before it."""
    path = tmp_path / "impostor"
    text = wire.HEADER.pack(wire.MAGIC, 1, wire.ERROR, 0, 0) + b"\x0a\x00" + wire.text("the agent is full")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            client = listener.accept()[0]
            client.recv(10, socket.MSG_PEEK)  # its request is there, and stays
            client.send(text)
            client.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(RostrumError, match="the agent is full"):
            Agent(path, APP)
        thread.join(60)


def test_a_bound_of_the_agents_is_told_as_the_agent_tells_it(impostor: Callable[[list[bytes]], Path]) -> None:
    """As where no path came in time: that the send "goes on" was said, or, without a bound here, a TypeError raised."""
    passed = header(wire.ERROR) + struct.pack("<H", Code.TIMEOUT) + wire.text("no path within the bound")
    for bound in (None, 60):
        with Agent(impostor([passed]), APP) as one, pytest.raises(TimedOut) as told:
            one.send(1, ["h3"]).wait(bound)
        assert str(told.value) == "no path within the bound"
    with Agent(impostor([passed]), APP) as one, pytest.raises(TimedOut) as told:
        one.read(1)
    assert str(told.value) == "no path within the bound"


def test_answers_nobody_asked_for_are_skipped(impostor: Callable[[list[bytes]], Path]) -> None:
    strangers = [header(wire.DONE, 99), header(wire.EVENT, 98) + bytes(67 + 2), header(wire.DONE)]
    with Agent(impostor(strangers), APP) as agent:
        agent.delete(1)


def test_a_descriptor_that_did_not_arrive_is_told(impostor: Callable[[list[bytes]], Path]) -> None:
    answer = header(wire.OBJECT) + (5).to_bytes(8, "little") + b"\0\0"
    with Agent(impostor([answer]), APP) as agent, pytest.raises(RostrumError, match="descriptor did not arrive"):
        agent.read(1)


def test_long_socket_paths(start: Callable[..., Server], tmp_path: Path) -> None:
    server = start()
    folder = server.socket.parent / ("a-long-name-" * 15)
    folder.mkdir()
    os.rename(server.socket, folder / "agent.sock")
    assert len(str(folder)) > 108
    with Agent(folder / "agent.sock", APP) as agent:
        assert agent.server == "h1"
    with pytest.raises(Unavailable):
        Agent(folder / "nobody", APP)


def test_an_agent_can_listen_at_a_long_path(start: Callable[..., Server]) -> None:
    folder = start().socket.parent / ("another-long-name-" * 10)
    folder.mkdir()
    server = start(folder=folder)
    with server.agent() as agent:
        assert agent.server == "h1"


def test_copying_a_file_that_is_too_short_is_told(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"abc")
    with (
        (tmp_path / "short").open("rb") as source,
        (tmp_path / "out").open("wb") as target,
        pytest.raises(RostrumError, match="7 bytes are missing"),
    ):
        copy_file(source.fileno(), target.fileno(), 10)


STANDS_STILL = """
import os, signal, socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[1])
listener.listen(int(sys.argv[2]))
print("listens", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize("full", [False, True])
def test_status__at_an_agent_that_stands_still_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """Nothing was said for a minute; where as many connections as may waited for it, nothing at all."""
    path = tmp_path / "agent.sock"
    for module in (connection, agent):
        monkeypatch.setattr(module, "CONNECT_BOUND_S" if module is connection else "ANSWER_BOUND_S", 0.4)
    monkeypatch.setattr(connection, "SILENT_S", 0.1)
    argv = [sys.executable, "-c", STANDS_STILL, str(path), "0" if full else "9"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as stopped, contextlib.ExitStack() as stack:
        try:
            assert stopped.stdout and stopped.stdout.readline()
            assert os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
            if full:
                stack.enter_context(connection.connect(path))
            result = CliRunner().invoke(main, ["status", "--socket", str(path)])
        finally:
            stopped.kill()
    first, *_, last = result.stderr.splitlines()
    text = "many wait: is its process stopped?" if full else f"process {stopped.pid} is stopped (kill -CONT"
    assert result.exit_code == 1 and last.startswith("Error: ") and text in first and text in last


def test_nothing_is_left_open(start: Callable[..., Server]) -> None:
    server = start()
    before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        with server.agent() as agent:
            agent.add(number, b"x" * 100)
            with agent.read(number) as data:
                data.bytes()
            agent.create(10).close()
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(RostrumError):
        agent.status()
