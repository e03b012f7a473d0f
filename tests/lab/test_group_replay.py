"""What groups keep, end to end: who comes later gets it from any member, then what is published, each message once; it
is there after crashes, and no more of it than is said.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rostrum.client import Agent, Group, Message, RostrumError, TimedOut
from rostrum.lab.lab import Lab

from tests.lab.metrics import scrape
from tests.lab.objects import connected, until

pytestmark = pytest.mark.lab

BOUND_S = 60.0
ORDER = "total,keep=32M"
ON_DISK = "total,keep=32M,keep-on=disk"
NAME = "t-replay"


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("disk")


@pytest.fixture(scope="module")
def lab(disk: Path) -> Iterator[Lab]:
    """Agents lose 1 % of what comes by multicast."""
    options = ["--loss", "uniform:0.01"]
    with Lab.start("hybrid-4x2", name=NAME, switch="openflow", agent_options=options, to_disk=str(disk)) as lab:
        yield lab


def agent(lab: Lab, server: str) -> Agent:
    return until(lambda: connected(lab, server), f"agent of {server}")


def until_view(group: Group, servers: list[str]) -> None:
    deadline = time.monotonic() + BOUND_S
    while True:
        message = group.next(deadline - time.monotonic())
        if message.view and sorted(message.view.members) == servers:
            return


def take(group: Group, last: int) -> list[Message]:
    """What comes until the message with that number, or the loss of it."""
    deadline, seen = time.monotonic() + BOUND_S, list[Message]()
    number = 0
    while number < last:
        message = group.next(deadline - time.monotonic())
        if message.view is None and message.primary is None:
            seen.append(message)
            number = message.sn + (message.lost or 1) - 1
    return seen


def numbers(seen: list[Message]) -> list[int]:
    return [one.sn for one in seen if one.lost is None]


def published(group: Group, texts: list[str]) -> int:
    """Publishes, and takes its own back: the number of the last."""
    group.publish_all(one.encode() for one in texts)
    while True:
        message = group.next(BOUND_S)
        if message.data == texts[-1].encode():
            return message.sn


class Publisher:
    """Publishes numbered messages on a server until it is told to end."""

    def __init__(self, lab: Lab, server: str, group: str) -> None:
        self.agent = agent(lab, server)
        self.group = self.agent.join(group, "plain", ORDER)
        self.ended, self.count = threading.Event(), 0
        self.threads = [threading.Thread(target=self._publish), threading.Thread(target=self._take, daemon=True)]
        for one in self.threads:
            one.start()

    def _publish(self) -> None:
        for number in itertools.count():
            if self.ended.is_set():
                return
            try:
                self.group.publish(b"%d" % number)
            except TimedOut:
                continue  # it goes with the next
            self.count = number + 1
            time.sleep(0.0005)

    def _take(self) -> None:
        try:
            while True:
                self.group.next()
        except (RostrumError, OSError, ValueError):
            return

    def end(self) -> None:
        self.ended.set()
        self.threads[0].join(BOUND_S)
        assert not self.threads[0].is_alive()
        self.group.close()
        self.agent.close()


def test_who_comes_under_way__gets_all_from_the_first_on_and_each_once(lab: Lab) -> None:
    writer = Publisher(lab, "h1", "under-way")
    until(lambda: writer.count > 1500, "messages")
    with agent(lab, "h3") as three, three.join("under-way", start=1) as first:
        early = take(first, writer.count + 500)
        with agent(lab, "h5") as five, five.join("under-way", start=700) as second:
            late = take(second, writer.count + 500)
            # and one more program on a server that is a member already
            with five.join("under-way", start=0) as third:
                local = take(third, writer.count)
    writer.end()
    for seen, start in ((early, 1), (late, 700), (local, 1)):
        assert numbers(seen) == list(range(start, start + len(seen)))
        assert [one.data for one in seen] == [b"%d" % (one.sn - 1) for one in seen]
        assert {one.sender for one in seen} == {"h1"}
        assert seen[0].via == "kept" and seen[-1].via == "multicast"


def test_from_a_time_on(lab: Lab) -> None:
    with agent(lab, "h1") as one, one.join("times", "plain", ORDER) as group:
        until_view(group, ["h1"])
        before = published(group, [f"before {k}" for k in range(50)])
        then = datetime.now(UTC)
        last = published(group, [f"after {k}" for k in range(50)])
        with agent(lab, "h3") as three, three.join("times", start=then) as late:
            seen = take(late, last)
        assert numbers(seen) == list(range(before + 1, last + 1))


def test_members_with_disks_that_all_crash__have_it_again_and_numbers_go_on(lab: Lab, disk: Path) -> None:
    group, texts = "on-disk", [f"{k} " + "x" * 500 for k in range(400)]
    with (
        agent(lab, "h1") as one,
        agent(lab, "h3") as three,
        one.join(group, "plain", ON_DISK) as writer,
        three.join(group) as other,
    ):
        until_view(writer, ["h1", "h3"])
        last = published(writer, texts)
        take(other, last)
        for server in ("h1", "h3"):
            lab.kill(server)
    kept = sorted((disk / "h3" / "groups" / f"g.{group}").iterdir())
    assert kept
    torn = kept[-1].read_bytes()
    at = torn.rindex(b"x" * 500)  # as if the last page had not been written
    kept[-1].write_bytes(torn[:at] + b"\0" * (len(torn) - at))
    for server in ("h1", "h3"):
        lab.start_program(server)
    with (
        agent(lab, "h3") as three,
        three.join(group, "plain", ON_DISK, start=1) as reader,
        agent(lab, "h1") as one,
        one.join(group) as writer,
    ):
        until_view(writer, ["h1", "h3"])
        seen = take(reader, published(writer, ["again"]))
    # The torn one is there if h1, which has it, was there when the group began again; else it is nobody's.
    found = [one.data.decode() for one in seen]
    assert found in ([*texts, "again"], [*texts[:-1], "again"])
    assert numbers(seen) == list(range(1, len(seen) + 1))


def test_one_that_was_away__has_what_the_others_kept_meanwhile(lab: Lab) -> None:
    group = "away"
    with agent(lab, "h1") as one, one.join(group, "plain", ON_DISK) as writer:
        with agent(lab, "h3") as three, three.join(group) as other:
            until_view(writer, ["h1", "h3"])
            take(other, published(writer, [f"{k}" for k in range(100)]))
            lab.kill("h3")
        until_view(writer, ["h1"])
        last = published(writer, [f"{k}" for k in range(100, 300)])
        lab.start_program("h3")
        with agent(lab, "h3") as three, three.join(group, start=1) as reader:
            seen = take(reader, last)
    assert [one.data for one in seen] == [b"%d" % k for k in range(300)]


def test_no_more_is_kept_than_is_said__and_what_is_not_is_told(lab: Lab) -> None:
    with agent(lab, "h1") as one, one.join("little", "plain", "total,keep=1M") as writer:
        until_view(writer, ["h1"])
        last = published(writer, [f"{k} " + "y" * 1000 for k in range(3000)])
        with agent(lab, "h3") as three, three.join("little", start=1) as reader:
            seen = take(reader, last)
        told = scrape(lab, "h1")
    assert seen[0].lost and seen[0].why == "no member keeps it any more"
    assert numbers(seen) == list(range(seen[0].lost + 1, last + 1))
    assert 500 < len(seen) <= 1000
    assert 512 << 10 < told["rostrum_agent_group_kept_bytes", 'group="little"'] <= 2 << 20
    assert 500 < told["rostrum_agent_group_kept_messages", 'group="little"'] <= 2000
    assert told["rostrum_agent_groups_kept_bytes", ""] >= told["rostrum_agent_group_kept_bytes", 'group="little"']


def test_groups_that_keep_nothing__say_so(lab: Lab) -> None:
    with agent(lab, "h1") as one, one.join("keeps-nothing", "plain", "total"):
        with pytest.raises(RostrumError, match="keeps no messages"):
            one.join("keeps-nothing", start=1)
        with pytest.raises(RostrumError, match="order"):
            one.join("no-order", "plain", "fifo,keep=1M")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rostrum.client.cli", *words, "--lab", NAME]
    return subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=True)


def test_the_commands(lab: Lab) -> None:
    body: dict[str, Any] = {"name": "typed", "order": "total", "keep": "1M", "keep_on": "disk"}
    status, made = lab.rest.call("POST", "/v1/groups", body)
    assert status == 201, made
    assert (made["keep"], made["keep_on"]) == ("1M", "disk")
    run("pub", "typed", "one", "two", "three", "--server", "h1")
    shown = run("sub", "typed", "--from", "first", "--count", "3", "--wait", "30s", "--server", "h1")
    assert shown.stdout.split() == ["one", "two", "three"]
    rows = run("sub", "typed", "--from", "2", "--count", "2", "--wait", "30s", "--json", "--server", "h3").stdout
    assert [json.loads(row)["sn"] for row in rows.splitlines()] == [2, 3]
