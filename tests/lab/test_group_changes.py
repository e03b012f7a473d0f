"""Groups that change while messages flow: members come, go and die, and the group moves to another address.

Agents lose 2 % of what comes by multicast. `.ci/test` runs this with agents that have ASan and UBSan.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rostrum.client import Agent, Group, RostrumError, TimedOut, Unavailable
from rostrum.lab.lab import Lab

pytestmark = pytest.mark.lab

BOUND_S = 60.0
EVERY_S = 0.004
OPTIONS: dict[str, Any] = {"protocol": "ricochet", "order": "fifo", "options": "r=4,c=2"}
SANITIZERS = re.compile(r"AddressSanitizer|LeakSanitizer|runtime error")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    options: dict[str, Any] = {"agent_options": ["--loss", "uniform:0.02"], "manager_options": ["--group-rules", "8"]}
    with Lab.start("hybrid-4x2", name="t-changes", switch="openflow", **options) as lab:
        yield lab


@pytest.fixture(autouse=True)
def agents_are_well(lab: Lab) -> Iterator[None]:
    yield
    for name, program in lab.status()["programs"].items():
        text = Path(program["log"]).read_text(errors="replace")
        assert not SANITIZERS.search(text), f"{name}: see {program['log']}"


def agent(lab: Lab, server: str) -> Agent:
    return Agent(lab.agent_socket(server))


def row(agent: Agent, group: str) -> Any:
    return next((row for row in agent.status().groups if row.name == group), None)


def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Traffic:
    """Numbers, as text of various lengths, published to a group from h1 one by one, until it is ended."""

    def __init__(self, lab: Lab, group: str) -> None:
        self.sent = 0
        self._ending = threading.Event()
        self._lab, self._group = lab, group
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def end(self) -> int:
        self.__exit__()
        return self.sent

    def more(self, count: int) -> None:
        """Waits until so many more were published."""
        wanted = self.sent + count
        until(lambda: self.sent >= wanted)

    def _work(self) -> None:
        with agent(self._lab, "h1") as one, one.publisher(self._group) as out:
            while not self._ending.wait(EVERY_S):
                out.publish(b"%d " % self.sent + b"x" * (self.sent * 37 % 1500))
                self.sent += 1


class Taken:
    """What a subscriber gets, taken as it comes."""

    def __init__(self, group: Group) -> None:
        self.numbers: list[int] = []
        self.lost = 0
        self._ending = threading.Event()
        self._group = group
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Taken:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def expect(self, first: int, count: int) -> None:
        """All numbers from `first` to `count` come, in order, and nothing twice."""
        until(lambda: self.numbers and self.numbers[-1] == count - 1)
        assert self.numbers[self.numbers.index(first) :] == list(range(first, count))
        assert self.lost == 0

    def _work(self) -> None:
        while not self._ending.is_set():
            with contextlib.suppress(TimedOut):
                message = self._group.next(0.05)
                if message.lost is not None:
                    self.lost += message.lost
                elif message.view is None and message.primary is None:
                    self.numbers.append(int(message.data.split()[0]))


def test_members_that_come_and_go_take_nothing_from_those_that_stay(lab: Lab) -> None:
    with (
        agent(lab, "h3") as three,
        agent(lab, "h5") as five,
        three.join("busy", **OPTIONS) as stays,
        Taken(stays) as all_of_it,
        Traffic(lab, "busy") as traffic,
    ):
        traffic.more(50)
        for _ in range(4):
            with five.join("busy") as comes, Taken(comes) as part:
                # What a sender publishes before it has heard of a member is not repaired for it.
                with agent(lab, "h1") as one:
                    until(lambda one=one: row(one, "busy").version >= row(five, "busy").version > 0)
                begin = traffic.sent + 1
                traffic.more(100)
                until(lambda part=part, begin=begin: part.numbers and part.numbers[-1] > begin + 80)
                got = part.numbers[part.numbers.index(begin) :]
                assert got == list(range(begin, begin + len(got)))
        all_of_it.expect(0, traffic.end())
        assert row(three, "busy").by_repair + row(three, "busy").by_request > 0


def test_a_member_that_dies_is_out_and_the_others_go_on(lab: Lab) -> None:
    with (
        agent(lab, "h3") as three,
        agent(lab, "h4") as four,
        three.join("mortal", **OPTIONS) as stays,
        four.join("mortal") as too,
        Taken(stays) as one_part,
        Taken(too) as other_part,
    ):
        five = agent(lab, "h5")
        dies = five.join("mortal")
        until(lambda: row(three, "mortal").members == 3)
        with Traffic(lab, "mortal") as traffic:
            traffic.more(100)
            lab.kill("h5")
            with pytest.raises(Unavailable):
                while True:
                    dies.next(BOUND_S)
            five.close()
            until(lambda: row(three, "mortal").members == 2)
            traffic.more(50)
            lab.start_program("h5")
            with _joined_again(lab, "h5", "mortal") as (_, again), Taken(again) as heard:
                until(lambda: row(three, "mortal").members == 3)
                until(lambda: heard.numbers)
                traffic.more(100)
                count = traffic.end()
                until(lambda: heard.numbers[-1] == count - 1)
            one_part.expect(0, count)
            other_part.expect(0, count)


@contextlib.contextmanager
def _joined_again(lab: Lab, server: str, group: str) -> Iterator[tuple[Agent, Group]]:
    deadline = time.monotonic() + BOUND_S
    while True:
        try:
            with agent(lab, server) as one, one.join(group) as joined:
                yield one, joined
            return
        except RostrumError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_member_that_stands_still_for_less_than_its_lease_stays_in_its_groups(lab: Lab) -> None:
    """Its agent's clock leaves the pause out, and so its next keepalive came up to 1.25 s after it had gone on."""

    def heard_ms_ago() -> float:
        return next(row["heard_ms_ago"] for row in lab.rest.get("/v1/agents")["agents"] if row["server"] == "h5")

    def version() -> int:
        return int(lab.rest.get("/v1/groups/still")["version"])

    with (
        agent(lab, "h3") as three,
        agent(lab, "h5") as five,
        three.join("still", **OPTIONS),
        five.join("still", **OPTIONS),
    ):
        before = version()
        until(lambda: heard_ms_ago() < 200)
        with lab.pause("h5"):
            until(lambda: heard_ms_ago() > 2500)  # of 3 s
        until(lambda: heard_ms_ago() < 200)
        assert version() == before


@pytest.mark.parametrize(("protocol", "order"), [("qsm", "fifo"), ("plain", "total"), ("qsm", "agreed")])
def test_what_a_program_publishes_while_its_agent_stands_still_comes(lab: Lab, protocol: str, order: str) -> None:
    """Its agent was put out of the group meanwhile, and published it before it knew: nobody heard it."""
    name, options = f"stood-{protocol}-{order}", {"protocol": protocol, "order": order}

    def in_it() -> int:
        group = lab.rest.get(f"/v1/groups/{name}")
        return len(group["members"]) + len(group["senders"])

    with (
        agent(lab, "h3") as three,
        agent(lab, "h5") as five,
        three.join(name, **options) as one_reader,
        five.join(name, **options) as other_reader,
        Taken(one_reader) as one_part,
        Taken(other_reader) as other_part,
        Traffic(lab, name) as traffic,
    ):
        until(lambda: in_it() == 3)
        until(lambda: one_part.numbers and other_part.numbers)
        with lab.pause("h1"):
            until(lambda: in_it() == 2)
        traffic.more(100)
        count = traffic.end()
        one_part.expect(one_part.numbers[0], count)
        other_part.expect(other_part.numbers[0], count)


def test_a_group_that_moves_to_another_address_loses_nothing(lab: Lab) -> None:
    """There are too few rules for all groups: it shares an address, until others have gone."""
    with (
        agent(lab, "h3") as three,
        agent(lab, "h5") as five,
        agent(lab, "h7") as seven,
        contextlib.ExitStack() as stack,
    ):
        fillers = [
            (f"filler{number}", stack.enter_context(one.join(f"filler{number}", **OPTIONS)))
            for number in range(12)
            for one in (three, five, seven)
        ]
        with three.join("moving", **OPTIONS) as a, five.join("moving") as b, Taken(a) as first, Taken(b) as second:
            until(lambda: shared(lab, "moving") > 0)
            before = row(three, "moving").address
            with Traffic(lab, "moving") as traffic:
                traffic.more(100)
                for name, filler in fillers:
                    if row(seven, name).address != before:
                        filler.close()
                until(lambda: row(three, "moving").address != before)
                traffic.more(200)
                count = traffic.end()
            first.expect(0, count)
            second.expect(0, count)


def test_a_program_that_keeps_to_no_format_ends_its_own_socket_only(lab: Lab) -> None:
    draw = random.Random(5)
    with agent(lab, "h3") as three, three.join("garbage", **OPTIONS) as receiver, agent(lab, "h1") as one:
        for _ in range(20):
            with one.publisher("garbage") as out:
                head = draw.choice([b"", b"\x05\0\0\0\1\0\0\0hello", b"\xff\xff\xff\xff\1\0\0\0"])
                with contextlib.suppress(OSError):
                    os.write(out.fileno(), head + draw.randbytes(draw.randrange(8, 5000)))
        with one.publisher("garbage") as out:
            out.publish(b"good")
            until(lambda: receiver.next(BOUND_S).data == b"good")


def shared(lab: Lab, group: str) -> int:
    """Other groups at its address; -1: it has none yet."""
    _, found = lab.rest.call("GET", f"/v1/groups/{group}")
    return int(found["shares_with"]) if found.get("address") else -1
