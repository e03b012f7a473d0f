"""Many groups of a program by one socket, with real agents: feeds, completion, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from rostrum.client import Agent, Channel, Channels, Message, RostrumError, TimedOut
from rostrum.lab.lab import Lab

pytestmark = pytest.mark.lab

BOUND_S = 60.0
GROUPS = 40
QSM = {"protocol": "qsm", "order": "fifo"}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Agents lose 2 % of what comes by multicast."""
    options = ["--loss", "uniform:0.02"]
    with Lab.start("hybrid-4x2", name="t-channels", switch="openflow", agent_options=options) as lab:
        yield lab


def agent(lab: Lab, server: str) -> Agent:
    return Agent(lab.agent_socket(server))


def join(channels: Channels, names: list[str], **options: str) -> list[Channel]:
    """Asks for all, then waits for all."""
    opened = [channels.open(name, **QSM, **options) for name in names]  # type: ignore[arg-type]
    while not all(one.is_joined for one in opened):
        _, message = channels.next(BOUND_S)
        assert message.ended is None, message
    return opened


def test_many_groups_by_one_socket__each_message_comes_once_and_is_complete(lab: Lab) -> None:
    """What is told to be complete is with all: a message to each of 40 groups, again and again, by feeds."""
    names = [f"many-{number}" for number in range(GROUPS)]
    with agent(lab, "h1") as one, agent(lab, "h3") as three, agent(lab, "h5") as five:
        out, a, b = one.channels(), three.channels(), five.channels()
        with out, a, b:
            readers: dict[Channels, dict[str, list[bytes]]] = {each: {name: [] for name in names} for each in (a, b)}
            for reader in readers:
                join(reader, names)
            lots = [b"%d" % number + b"." * (number % 700) for number in range(50)]
            feeds = [out.open(name, subscribe=False, feed=iter(lots), completion=True) for name in names]
            complete = dict.fromkeys(names, 0)
            deadline = time.monotonic() + BOUND_S
            while any(count < len(lots) for count in complete.values()):
                assert time.monotonic() < deadline, complete
                channel, message = out.next(BOUND_S)
                assert message.ended is None, message
                if message.complete is not None:
                    assert complete[channel.group] < message.complete <= channel.published
                    assert not message.lost
                    complete[channel.group] = message.complete
            assert all(feed.published == len(lots) for feed in feeds)
            for reader, got in readers.items():
                while sum(map(len, got.values())) < GROUPS * len(lots):
                    channel, message = reader.next(BOUND_S)
                    assert message.lost is None, message
                    got[channel.group].append(message.data)
                assert all(found == lots for found in got.values())


def test_a_group_that_nobody_publishes_to_is_silent(lab: Lab) -> None:
    with agent(lab, "h2") as two, two.channels() as channels:
        asked = 0

        def feed() -> Iterator[bytes | None]:
            nonlocal asked
            while True:
                asked += 1
                yield None

        channel = channels.open("silent", feed=feed(), **QSM)  # type: ignore[arg-type]
        assert channels.next(BOUND_S) == (channel, Message("", 0, joined=True))
        for _ in range(20):
            with pytest.raises(TimedOut):
                channels.next(0.01)
        assert asked == 1


def test_what_cannot_be_is_told_on_its_channel(lab: Lab) -> None:
    """Others go on: of a protocol that nobody has, of completion that cannot be told, of options that are wrong."""
    with agent(lab, "h4") as four, four.channels() as channels:
        bad = {
            channels.open("wrong-1", protocol="nothing"): "nothing",
            channels.open("wrong-2", protocol="plain", completion=True): "does not tell what is complete",
            channels.open("wrong-3", protocol="qsm", options="replicas=1000"): "replicas 1000 is out of range",
        }
        good = channels.open("right", **QSM)  # type: ignore[arg-type]
        while bad or not good.is_joined:
            channel, message = channels.next(BOUND_S)
            if message.ended:
                assert bad.pop(channel) in str(message.ended)
        good.publish(b"still here")
        with pytest.raises(RostrumError, match="group's name"):
            channels.open("a name with spaces")


def test_completion_of_a_group_with_a_socket_of_its_own(lab: Lab) -> None:
    with agent(lab, "h1") as one, agent(lab, "h6") as six:
        reader, out = six.join("own", **QSM), one.join("own", completion=True)  # type: ignore[arg-type]
        with reader, out:
            lots = [bytes([number]) * 3000 for number in range(100)]
            out.publish_all(lots)
            told = 0
            while told < len(lots):
                message = out.next(BOUND_S)
                assert message.complete is not None and message.complete > told
                told = message.complete
            assert told == out.published == len(lots)
            assert [reader.next(BOUND_S).data for _ in lots] == lots
        with pytest.raises(RostrumError, match="does not tell what is complete"):
            one.join("own-plain", protocol="plain", completion=True)


def test_a_member_that_stands_still_is_left_out_and_comes_back(lab: Lab) -> None:
    """Its agent lives, but says nothing for longer than its lease: what others publish is complete without it."""
    with agent(lab, "h1") as one, agent(lab, "h3") as three, agent(lab, "h5") as five:
        a, b = three.join("still", **QSM), five.join("still", **QSM)  # type: ignore[arg-type]
        with a, b, one.join("still", completion=True) as out:
            out.publish(b"before")
            assert [reader.next(BOUND_S).data for reader in (a, b)] == [b"before"] * 2
            with lab.pause("h5"):
                out.publish(b"meanwhile")
                told = 0
                while told < 2:
                    told = out.next(BOUND_S).complete or told
                assert a.next(BOUND_S).data == b"meanwhile"
            deadline = time.monotonic() + BOUND_S
            heard = b""
            while heard != b"again":
                assert time.monotonic() < deadline
                out.publish(b"again")
                try:
                    heard = b.next(0.2).data
                except TimedOut:
                    continue


def test_groups_that_follow_as_many_others_at_once__are_joined(lab: Lab) -> None:
    """An agent uses 1,024 addresses at most, and those of groups that nobody uses any more for 2 s."""
    with agent(lab, "h2") as two:
        for turn in range(3):
            with two.channels() as channels:
                opened = [channels.open(f"turn-{turn}-{number}", protocol="plain") for number in range(700)]
                while not all(one.is_joined for one in opened):
                    _, message = channels.next(BOUND_S)
                    assert message.ended is None, message
