"""Replicas end to end: who joins gets the state as an object, at one point of the stream, from whoever lives."""

from __future__ import annotations

import runpy
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rostrum.client import Agent, RostrumError
from rostrum.lab.lab import Lab

from tests.lab.objects import connected, until

pytestmark = pytest.mark.lab

BOUND_S = 90.0
EXAMPLE = Path(__file__).resolve().parents[2] / "agent" / "client" / "examples" / "shared_dict.py"
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
