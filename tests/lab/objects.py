"""Objects through agents of a lab: made, sent, read back and compared, deleted."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from rostrum.client import Agent, NotFound, SendHandle, SendResult, TimedOut, Unavailable
from rostrum.lab.lab import Lab

Found = TypeVar("Found")

SEND_BOUND_S = 60.0
_ids = itertools.count(1)


def data_of(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


def stream_received(agent: Agent, name: int | str, begun: threading.Event, enough: int = 1) -> bytes:
    """All of a stream; `begun` is set when so many bytes came."""
    pieces = []
    for piece in agent.stream_receive(name, wait=20):
        pieces.append(piece)
        if sum(map(len, pieces)) >= enough:
            begun.set()
    return b"".join(pieces)


def send(lab: Lab, sender: str, receivers: Sequence[str], data: bytes, *, wait: float | None = None) -> SendResult:
    """Sends a new object and waits for what comes of it."""
    with Agent(lab.agent_socket(sender)) as agent:
        number = next(_ids)
        agent.add(number, data)
        return agent.send(number, receivers, wait=wait).wait(SEND_BOUND_S)


def under_way(
    lab: Lab,
    agent: Agent,
    receivers: Sequence[str],
    data: bytes,
    seen: Callable[[], Found | None],
    protocol: str = "auto",
) -> tuple[SendHandle, int, Found]:
    """A new object on its way from this agent, caught when `seen` gives something: the send, its number and that. Sent
    again if it was there too soon.
    """
    for _ in range(6):
        number = next(_ids)
        agent.add(number, data)
        handle = agent.send(number, receivers, protocol=protocol)
        while True:
            if found := seen():
                return handle, number, found
            try:
                handle.wait(0.001)
            except TimedOut:
                continue
            break
        forget(lab, [agent.server, *receivers], number)
    raise AssertionError("it was over before it was seen, six times")


def read(lab: Lab, server: str, data_id: int, wait: float = 60.0) -> bytes:
    with Agent(lab.agent_socket(server)) as agent, agent.read(data_id, wait=wait) as copy:
        return copy.bytes()


def check(lab: Lab, result: SendResult, receivers: Sequence[str], data: bytes) -> None:
    """Every receiver has exactly these bytes, by their own reading."""
    assert result.ok, (result.cause, [(row.name, row.state, row.cause) for row in result.receivers])
    assert {row.name for row in result.receivers} == set(receivers)
    for name in receivers:
        assert read(lab, name, result.data_id) == data, f"{name} has other bytes"


def forget(lab: Lab, servers: Sequence[str], data_id: int) -> None:
    """Deletes the object wherever it is."""
    for name in servers:
        with Agent(lab.agent_socket(name)) as agent:
            try:
                agent.delete(data_id)
            except NotFound:
                continue


def until(condition: Callable[[], Found | None], what: str, bound_s: float = 60.0) -> Found:
    """Waits for a condition, and fails naming it when the bound passes. What the condition gave at last."""
    deadline = time.monotonic() + bound_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {bound_s:g} s for {what}"
        time.sleep(0.02)
    return value


def connected(lab: Lab, server: str) -> Agent | None:
    """A connection to the agent there; None: it does not answer (yet)."""
    try:
        return Agent(lab.agent_socket(server))
    except Unavailable:
        return None


def released(lab: Lab, path_id: str, bound_s: float = 60.0) -> dict:
    """The manager's account of a path once it is over."""
    path = lab.rest.get(f"/v1/paths/{path_id}?wait=ended&timeout_ms={int(bound_s * 1000)}")
    assert path["state"] in ("released", "failed"), path
    return path
