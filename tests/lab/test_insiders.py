"""A certified agent that lies, where it has the keys: a receiver of the transfer, a member of the group. Streams and
messages are signed here (`--security signed`), objects are checked by the sender's digests.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from rostrum.client import Agent, Group, TimedOut
from rostrum.lab.experiments.adversary import SIGNED, Intruder, Stage, run, summarize, until
from rostrum.lab.intruder import another
from rostrum.lab.lab import Lab

from tests.lab.adversary import body, packet_id
from tests.lab.metrics import scrape
from tests.lab.objects import check, connected, data_of, send, stream_received
from tests.lab.test_group_messages import take

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    changes = {"emulation.reconfiguration.mean_ms": 20, "ocs.ocs.reconfiguration_ms": 20}
    with Lab.start("hybrid-4x2", name="t-insiders", changes=changes, seed=1, secure=True,
                   agent_options=SIGNED) as lab:  # fmt: skip
        yield lab


def forged(lab: Lab, server: str) -> float:
    return scrape(lab, server)["rostrum_agent_group_datagrams_refused_total", 'reason="forged"']


@pytest.mark.parametrize("protocol", ["plain", "ricochet", "qsm"])
def test_signed_messages_arrive_by_every_protocol(lab: Lab, protocol: str) -> None:
    messages = [b"%d:" % number + bytes([number % 251]) * (100 + number % 5 * 900) for number in range(300)]
    messages.append(data_of(200_000, 5))  # in parts
    with (
        Agent(lab.agent_socket("h1")) as one,
        Agent(lab.agent_socket("h3")) as three,
        three.join("signed-" + protocol, protocol=protocol, order="fifo") as receiver,
        one.publisher("signed-" + protocol) as out,
    ):
        assert out.publish_all(messages) == len(messages)
        got, lost = take(receiver, len(messages), 20.0)
    assert (got, lost) == (messages, 0) or protocol == "plain"
    assert set(got) <= set(messages) and got
    assert forged(lab, "h3") == 0


def test_a_signed_stream_arrives_and_is_joined_under_way(lab: Lab) -> None:
    parts = [data_of(100_000, seed) for seed in range(20)]
    begun = threading.Event()

    with (
        Agent(lab.agent_socket("h1")) as one,
        Agent(lab.agent_socket("h3")) as three,
        Agent(lab.agent_socket("h5")) as five,
        Agent(lab.agent_socket("h7")) as late,
        ThreadPoolExecutor(3) as pool,
        one.stream_send("signed", ["h3", "h5"]) as out,
    ):
        receivers = [pool.submit(stream_received, agent, "signed", begun) for agent in (three, five)]
        out.write(parts[0][:1000])
        out.write(parts[0][1000:])
        for part in parts[1:10]:
            out.write(part)
        assert begun.wait(20)
        with late.stream_join("signed", f"h1@{lab.topology.servers['h1'].address}", wait=20) as joined:
            first = joined.read()
            rest = pool.submit(lambda: first + b"".join(joined))
            for part in parts[10:]:
                out.write(part)
            assert out.finish(60).ok
            assert rest.result(60) == b"".join(parts)
            assert all(one.result(60) == b"".join(parts) for one in receivers)


def test_objects_arrive_as_without(lab: Lab) -> None:
    data = data_of(3_000_000, 3)
    check(lab, send(lab, "h2", ["h3", "h5", "h7"], data), ["h3", "h5", "h7"], data)


@pytest.mark.parametrize("protocol", ["plain", "ricochet", "qsm"])
def test_what_was_recorded_before_a_restart_is_not_delivered_after_it(lab: Lab, protocol: str) -> None:
    """The agent that comes again has the key in use, and no memory of what came. Whoever kept that sends it again, all
    the time, from before it is there."""
    group, stage = "recorded-" + protocol, Stage(lab, 1000, 1)
    old, fresh = list[bytes](), list[bytes]()
    new = [(b"new %d" % number).ljust(900, b".") for number in range(10)]
    with (
        Agent(lab.agent_socket("h1")) as one,
        Agent(lab.agent_socket("h5")) as five,
        five.join(group, protocol=protocol) as other,
        one.publisher(group) as out,
    ):

        def recording() -> list[dict[str, Any]]:
            """What is sent to all: the first messages may go to each alone."""
            words = [(b"old %d" % (len(old) + number)).ljust(900, b".") for number in range(10)]
            old.extend(words)
            with stage.heard("h3") as heard:
                out.publish_all(words)
                assert set(take(receiver, len(words), 20.0)[0]) <= set(old)
            return [one for one in heard if is_multicast(one) and len(one["bytes"]) > 2 * 900]

        def reached() -> list[bytes]:
            fresh.append(b"fresh %d" % len(fresh))
            out.publish_all(fresh[-1:])
            return delivered(receiver, 0.5, 1)

        with Agent(lab.agent_socket("h3")) as three, three.join(group, protocol=protocol) as receiver:
            recorded = [json.dumps(one) for one in until(recording, "packets to all members")]
            lab.kill("h3")  # it has not left the group: the key stays
        with thrown(lab, recorded):
            lab.start_program("h3")  # whatever fails later: tests after this one need it
            again = until(lambda: connected(lab, "h3"), "the agent that comes again")
            with again as three, three.join(group, protocol=protocol) as receiver:
                assert delivered(receiver, 1.0) == []
                got = until(reached, "a message to reach who came again")
                out.publish_all(new)
                ends = time.monotonic() + 20.0
                while not set(new) <= set(got) and time.monotonic() < ends:
                    got += delivered(receiver, 0.5)
                got += delivered(receiver, 1.0)
        assert len(got) == len(set(got)) and set(got) <= {*fresh, *new}
        assert set(new) <= set(got) or protocol == "plain"
        assert take(other, len(old), 20.0)[0]


@contextmanager
def thrown(lab: Lab, recorded: list[str]) -> Iterator[list[int]]:
    """What was heard goes out again from the sender's server, all the time: how often, so far."""
    thrower, enough, rounds = Intruder(lab, "h1", "throw", Stage(lab, 1000, 1).plan("h1")), threading.Event(), [0]

    def throw() -> None:
        while not enough.wait(0.001 * len(recorded)):
            thrower.tell(*recorded)
            rounds[0] += 1

    throwing = threading.Thread(target=throw, daemon=True)
    throwing.start()
    try:
        yield rounds
    finally:
        enough.set()
        throwing.join(20)
    assert thrower.end()[-1]["sent"] >= len(recorded)


def test_who_joins_a_stream_under_way_takes_nothing_of_it_that_was_recorded_before(lab: Lab) -> None:
    """One key for all of a transfer: whoever joins could open what was sent before it came. It begins where it joined,
    and others get nothing twice."""
    parts, stage = [data_of(100_000, seed) for seed in range(100, 112)], Stage(lab, 1000, 1)
    whole, begun = b"".join(parts), threading.Event()

    with (
        Agent(lab.agent_socket("h1")) as one,
        Agent(lab.agent_socket("h3")) as three,
        Agent(lab.agent_socket("h5")) as five,
        Agent(lab.agent_socket("h7")) as late,
        ThreadPoolExecutor(3) as pool,
        one.stream_send("recorded", ["h3", "h5"]) as out,
    ):
        receivers = [pool.submit(stream_received, agent, "recorded", begun, 300_000) for agent in (three, five)]
        with stage.heard("h3") as heard:
            for part in parts[:6]:
                out.write(part)
            assert begun.wait(20)
        recorded = [json.dumps(one) for one in heard if is_multicast(one) and len(one["bytes"]) > 2 * 1000]
        assert recorded
        with (
            thrown(lab, recorded) as rounds,
            late.stream_join("recorded", f"h1@{lab.topology.servers['h1'].address}", wait=20) as joined,
        ):
            rest = pool.submit(lambda: b"".join(joined))
            for part in parts[6:]:
                out.write(part)
                told = rounds[0]
                until(lambda told=told: rounds[0] > told, "what was recorded to be sent again")
            assert out.finish(60).ok
            got = rest.result(60)
        assert got and whole.endswith(got)
        assert all(one.result(60) == whole for one in receivers)


def delivered(receiver: Group, bound_s: float, most: int = 1000) -> list[bytes]:
    """Messages that come within a time: what is told as lost is none."""
    got, ends = list[bytes](), time.monotonic() + bound_s
    while len(got) < most and (left := ends - time.monotonic()) > 0:
        with suppress(TimedOut):
            message = receiver.next(left)
            got += [message.data] if message.lost is None else []
    return got


def is_multicast(datagram: dict[str, Any]) -> bool:
    return 224 <= int(datagram["to"].partition(".")[0]) < 240


def test_lies_of_the_adversary_have_the_right_check() -> None:
    """They are refused for their signature, not for a slip of the liar's."""
    head, ident = bytes.fromhex("47520301"), packet_id(9, 8, 7, 100)
    lie = another(head + ident + body(ident, b"what was published"), 3)
    expected = packet_id(9, 8, 7, 103)
    assert lie == head + expected + body(expected, b"what was publiLIES")


def test_adversary_counts_what_got_in() -> None:
    scenes = [{"tried": 10, "accepted": 0}, {"tried": 5, "accepted": 2}, {"quiet_s": 2.0, "attacked_s": 2.1}]
    summary = summarize(scenes)
    assert (summary["scenes"], summary["tried"], summary["accepted"]) == (2, 15, 2)
    assert summary["others_slowdown"] == pytest.approx(1.05)


@pytest.mark.timeout(400)  # 16 scenes, two labs; waits of 9 and 10 s for keys and for a relay's word
def test_nothing_of_the_adversary_gets_in(lab: Lab) -> None:
    """`rostrum lab run adversary`, briefly."""
    summary = summarize(scenes := run(lab, 1_000_000, 1, 200))
    assert summary["accepted"] == 0, scenes
    assert summary["scenes"] == 15 and summary["tried"] > 2000
