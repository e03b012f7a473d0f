"""Data packets that are changed, doubled or late on their way: no wrong byte reaches a program, and only wrong pieces
are fetched again."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import struct
from collections.abc import Iterator

import pytest
from rostrum.client import Agent, wire

from tests.agent_e2e.agents import APP, World, content
from tests.agent_e2e.fake_manager import Answer
from tests.agent_e2e.network import Network, network

RECEIVERS = ["h2", "h3"]
SIZE = 12_000_001
SPOILT = "corrupt:0.03"


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(3) as it:
        yield it


def fetched(lab: World, name: str) -> list[str]:
    return [line for line in lab.agents[name].log if "fetched again" in line]


@pytest.mark.parametrize("digest", ["xxh3", "sha256"])
@pytest.mark.parametrize(
    "answer",
    [Answer(), Answer(kind="packet"), Answer(kind="packet", protocol="rdcm"), Answer(kind="packet", protocol="wan")],
    ids=["circuit", "packet", "rdcm", "wan"],
)
def test_changed_bytes_are_fetched_again(lab: World, answer: Answer, digest: str) -> None:
    lab.manager.answer = lambda request: answer
    for number, name in enumerate(["h1", *RECEIVERS], 1):
        lab.start(name, "--digest", digest, "--seed", str(number), *(["--loss", SPOILT] if number > 1 else []))
    data = content(SIZE, 3)
    sender = lab.app("h1")
    sender.add(1, data)
    result = sender.send(1, RECEIVERS)
    assert result.ok, result
    for name in RECEIVERS:
        assert lab.app(name).read(1) == data
        assert fetched(lab, name), lab.agents[name].log


def test_objects_of_one_piece_and_of_one_packet(lab: World) -> None:
    """Again and again: some packet of these is spoilt."""
    for number, name in enumerate(["h1", *RECEIVERS], 1):
        lab.start(name, "--seed", str(number), *(["--loss", "corrupt:0.5"] if number > 1 else []))
    sender = lab.app("h1")
    for number in range(1, 9):
        data = content(0 if number == 8 else 5000 + 100_000 * (number % 3), number)
        sender.add(number, data)
        assert sender.send(number, RECEIVERS).ok
        for name in RECEIVERS:
            assert lab.app(name).read(number) == data
    assert any(fetched(lab, name) for name in RECEIVERS)


def test_a_program_that_writes_to_the_object_that_it_sends_is_told(lab: World) -> None:
    lab.start_all()
    sender = lab.app("h1")
    fd = os.memfd_create("object")
    os.write(fd, content(SIZE, 4))
    sender.call(wire.ADD, struct.pack("<Q", 1), [fd])
    os.pwrite(fd, b"other bytes", 5_000_000)
    result = sender.send(1, RECEIVERS)
    os.close(fd)
    assert not result.ok
    for receiver in result.receivers:
        assert "changed at the sender after their digest was taken, in piece 4" in receiver.cause, result
    for name in RECEIVERS:
        lab.agents[name].wait_log("changed at the sender")


def test_changed_bytes_of_a_stream_are_dropped_as_they_come_and_asked_for_again(lab: World) -> None:
    """Its programs get the right ones, and nobody's stream ends for it."""
    lab.manager.answer = lambda request: Answer(kind="packet", protocol="rdcm")
    for number, name in enumerate(["h1", *RECEIVERS], 1):
        lab.start(name, "--seed", str(number), *(["--loss", SPOILT] if number > 1 else []))
    data = content(SIZE, 5)
    with contextlib.ExitStack() as stack:
        sender, *readers = (stack.enter_context(Agent(lab.agents[name].socket, APP)) for name in ["h1", *RECEIVERS])
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(len(readers)))
        came = [pool.submit(lambda agent: b"".join(agent.stream_receive(1, wait=20)), agent) for agent in readers]
        with sender.stream_send(1, RECEIVERS) as out:
            out.write(data)
            result = out.finish()
        assert result.ok, result
        assert all(one.result(20) == data for one in came)
    for name in RECEIVERS:
        lab.agents[name].wait_log("are not those that were sent")
