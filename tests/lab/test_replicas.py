"""Replicas end to end: who joins gets the state as an object, at one point of the stream, from whoever lives."""

from __future__ import annotations

import contextlib
import os
import runpy
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rostrum.client import Agent, Message, Replica, RostrumError, TimedOut
from rostrum.client.names import COMMAND_APP_ID
from rostrum.lab.lab import Lab

from tests.lab.objects import connected, until

pytestmark = pytest.mark.lab

BOUND_S = 90.0
EXAMPLE = Path(__file__).resolve().parents[2] / "agent" / "client" / "examples" / "shared_dict.py"
BUILD = Path(os.environ.get("ROSTRUM_BUILD", EXAMPLE.parents[3] / "build" / "agent"))
EXAMPLE_IN_C = BUILD / "agent" / "client" / "rostrum-example-shared-dict"
SharedDict: Any = runpy.run_path(str(EXAMPLE))["SharedDict"]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Agents lose 1 % of what comes by multicast."""
    options = ["--loss", "uniform:0.01"]
    with Lab.start("hybrid-4x2", name="t-replicas", switch="openflow", agent_options=options) as lab:
        yield lab


class Member:
    """A program on a server with the example's dictionary; `asked` is called when another one wants the state."""

    def __init__(self, lab: Lab, server: str, group: str, asked: Callable[[], None] = lambda: None) -> None:
        class Asked(SharedDict):  # type: ignore[misc]
            def get_state(self) -> bytes:
                asked()
                return bytes(super().get_state())

        self.server = server
        self.agent: Agent = until(lambda: connected(lab, server), f"agent of {server}")
        self.dict: Any = Asked(self.agent, group)
        self.changed = threading.Condition()
        self.error: RostrumError | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Member:
        self.dict.wait_ready(BOUND_S)
        self.thread.start()
        return self

    def _run(self) -> None:
        try:
            while True:
                self.dict.dispatch()
                with self.changed:
                    self.changed.notify_all()
        except RostrumError as error:
            with self.changed:
                self.error = error
                self.changed.notify_all()

    def wait(self, what: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: bool(self.error) or what(), BOUND_S), (self.server, self.dict.writes)
        assert self.error is None, self.error

    def write(self, round_: str, count: int) -> None:
        for number in range(count):
            self.dict[f"key{number % 17}"] = f"{self.server} {round_} {number}"
        self.dict[f"{self.server} {round_}"] = "done"

    def close(self) -> None:
        self.dict.close()
        self.agent.close()


def all_equal(members: list[Member], marks: list[str]) -> None:
    for one in members:
        one.wait(lambda one=one: all(mark in one.dict.items for mark in marks))  # type: ignore[misc]
    writes = max(one.dict.writes for one in members)
    for one in members:
        one.wait(lambda one=one: one.dict.writes >= writes)  # type: ignore[misc]
    assert all(one.dict.items == members[0].dict.items for one in members)
    assert {one.dict.writes for one in members} == {writes}


def test_joins_writers_and_a_giver_that_crashes__all_have_the_same(lab: Lab) -> None:
    group, members = "dict", list[Member]()
    killed = threading.Event()

    def crash() -> None:
        if not killed.is_set():
            lab.kill("h1")
            killed.set()

    first = Member(lab, "h1", group, asked=lambda: None).start()
    first.dict["before"] = "all"
    members.append(first)
    writers = [threading.Thread(target=first.write, args=("one", 300))]
    writers[0].start()
    for server in ("h3", "h5"):  # they join while the others write
        members.append(Member(lab, server, group).start())
        assert members[-1].dict["before"] == "all"
        writers.append(threading.Thread(target=members[-1].write, args=("one", 300)))
        writers[-1].start()
    for writer in writers:
        writer.join(BOUND_S)
    all_equal(members, ["h1 one", "h3 one", "h5 one"])
    assert members[0].dict.writes == 904

    first.close()  # and again, now one that crashes when it is asked
    members[0] = Member(lab, "h1", group, asked=crash).start()
    writers = [threading.Thread(target=one.write, args=("two", 300)) for one in members[1:]]
    for writer in writers:
        writer.start()
    members.append(Member(lab, "h7", group).start())
    assert killed.is_set()
    for writer in writers:
        writer.join(BOUND_S)
    all_equal(members[1:], ["h3 two", "h5 two"])
    assert members[-1].dict.writes == 904 + 602

    lab.start_program("h1")
    members[0].close()
    members[0] = Member(lab, "h1", group).start()
    all_equal(members, ["h1 one", "h5 two"])
    for one in members:
        one.close()


class Lines(Replica):
    """The state of the example in C: lines such as key=value."""

    def __init__(self, agent: Agent, group: str) -> None:
        self.items: dict[str, str] = {}
        super().__init__(agent, group)

    def deliver(self, message: Message) -> None:
        key, _, value = message.data.decode().partition("=")
        self.items[key] = value

    def get_state(self) -> bytes:
        return "".join(f"{key}={value}\n" for key, value in self.items.items()).encode()

    def set_state(self, state: memoryview) -> None:
        self.items = dict(line.split("=", 1) for line in bytes(state).decode().splitlines())


class Example:
    """The example in C on a server; `items` is what it printed last."""

    def __init__(self, lab: Lab, server: str, group: str) -> None:
        with until(lambda: connected(lab, server), f"agent of {server}"):
            pass
        self.items: dict[str, str] | None = None
        self.changed = threading.Condition()
        self.program = subprocess.Popen(
            [EXAMPLE_IN_C, str(COMMAND_APP_ID), group],
            env={**os.environ, "ROSTRUM_SOCKET": str(lab.agent_socket(server))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        assert self.program.stdout
        for line in self.program.stdout:
            with self.changed:
                self.items = dict(word.split("=", 1) for word in line.split())
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    def wait(self, what: Callable[[dict[str, str]], bool]) -> None:
        """Until it has printed that."""
        with self.changed:
            found = self.changed.wait_for(lambda: self.items is not None and what(self.items), BOUND_S)
        assert found, (self.program.poll(), self.items)

    def write(self, *lines: str) -> None:
        assert self.program.stdin
        self.program.stdin.writelines(line + "\n" for line in lines)
        self.program.stdin.flush()

    def close(self) -> None:
        self.program.kill()
        self.program.wait()
        self.thread.join()
        assert self.program.stdin
        assert self.program.stdout
        with contextlib.suppress(BrokenPipeError):
            self.program.stdin.close()
        self.program.stdout.close()


def test_c_and_python_in_one_group__give_each_other_the_state(lab: Lab) -> None:
    with contextlib.ExitStack() as stack:
        first = Example(lab, "h1", "both")
        stack.callback(first.close)
        first.write("before=all")
        first.wait(lambda items: items == {"before": "all"})

        agent = stack.enter_context(until(lambda: connected(lab, "h3"), "agent of h3"))
        python = Lines(agent, "both")
        stack.callback(python.close)
        python.wait_ready(BOUND_S)
        assert python.items == {"before": "all"}  # from C

        first.close()
        third = Example(lab, "h5", "both")
        stack.callback(third.close)
        deadline = time.monotonic() + BOUND_S
        while third.items is None and time.monotonic() < deadline:
            with contextlib.suppress(TimedOut):
                python.dispatch(0.1)
        assert third.items == {"before": "all"}  # from Python

        third.write(*(f"key{number % 7}=h5-{number}" for number in range(200)), "h5=done")
        for number in range(200):
            python.publish(f"key{number % 7}=h3-{number}".encode())
        python.publish(b"h3=done")
        while not {"h3", "h5"} <= python.items.keys():
            python.dispatch(BOUND_S)
        third.wait(lambda items: items == python.items)
