"""Message groups end to end: real agents and manager, programs with the Python client and the commands."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from rostrum.client import Agent, Group, RostrumError, TimedOut, Unavailable
from rostrum.lab.lab import Lab

from tests.lab.metrics import scrape

pytestmark = pytest.mark.lab

BOUND_S = 60.0


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Agents lose 5 % of what comes by multicast."""
    options = ["--loss", "uniform:0.05"]
    with Lab.start("hybrid-4x2", name="t-messages", switch="openflow", agent_options=options) as lab:
        yield lab


def agent(lab: Lab, server: str) -> Agent:
    return Agent(lab.agent_socket(server))


def version(agent: Agent, group: str) -> int:
    return next(row.version for row in agent.status().groups if row.name == group)


def take(group: Group, wanted: int, bound_s: float = BOUND_S) -> tuple[list[bytes], int]:
    """What came, in its order, and how many packets were lost: at most `wanted` together."""
    got: list[bytes] = []
    lost = 0
    deadline = time.monotonic() + bound_s
    while len(got) + lost < wanted and time.monotonic() < deadline:
        try:
            message = group.next(max(0.01, deadline - time.monotonic()))
        except TimedOut:
            break
        if message.lost is None:
            got.append(message.data)
        else:
            lost += message.lost
    return got, lost


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_every_subscriber_gets_every_message_in_its_senders_order_despite_losses(lab: Lab) -> None:
    with agent(lab, "h1") as one, agent(lab, "h3") as three, agent(lab, "h5") as five:
        options = {"protocol": "ricochet", "order": "fifo", "options": "r=8,c=2"}
        with three.join("all", **options) as a, five.join("all", **options) as b, one.publisher("all") as out:
            wanted = [b"%d " % number + b"x" * (number % 3000) for number in range(2000)]
            assert out.publish_all(wanted) == len(wanted)
            for receiver in (a, b):
                assert take(receiver, len(wanted)) == (wanted, 0)
            row = next(row for row in three.status().groups if row.name == "all")
            assert (row.joined, row.members, row.subscribers, row.protocol) == (True, 2, 1, "ricochet")
            assert row.delivered == len(wanted)


@pytest.mark.parametrize("mean", [1500, 6500])
def test_a_flood_that_is_read_only_at_its_end(lab: Lab, mean: int) -> None:
    """8 MiB wait for a program that does not read. What is beyond is lost to it alone, and it is told of each.

    Who reads has all, though it had no time to for a while.
    """
    count = 4000
    wanted = [b"%d:" % number + bytes(mean - 1500 + number % 7 * 500) for number in range(count)]
    name, options = f"flood{mean}", {"protocol": "ricochet", "order": "fifo"}
    with (
        agent(lab, "h1") as one,
        agent(lab, "h3") as three,
        agent(lab, "h5") as five,
        three.join(name, **options) as late,
        five.join(name, **options) as reader,
        one.publisher(name) as out,
    ):
        published: list[int] = []
        flood = threading.Thread(target=lambda: published.append(out.publish_all(wanted)))
        flood.start()
        first = []
        for _ in range(2):  # it does other things, too
            first += take(reader, 1)[0]
            time.sleep(0.2)
        rest, lost = take(reader, count - len(first))
        assert ([*first, *rest], lost) == (wanted, 0)
        flood.join()
        assert published == [count]
        until(lambda: sum(taken_in(three, name)) >= count)
        got, lost = take(late, count)
        numbers = [int(message.split(b":", 1)[0]) for message in got]
        assert numbers == sorted(set(numbers)) and got == [wanted[number] for number in numbers]
        assert len(got) + lost == count
        assert lost == (0 if mean * count < 8 << 20 else taken_in(three, name)[1]) and (lost > 0) == (mean > 2000)


def taken_in(agent: Agent, group: str) -> tuple[int, int]:
    """Messages that were delivered in time, and those a program had no room for, or that the network lost."""
    row = next(row for row in agent.status().groups if row.name == group)
    return row.delivered - row.lost_slow, row.lost_slow + row.lost


def refused_reports(lab: Lab, server: str) -> float:
    return scrape(lab, server)["rostrum_agent_group_datagrams_refused_total", 'reason="report"']


def test_reports_of_any_packet_of_a_large_message_are_believed(lab: Lab) -> None:
    """Of each message only the first packet counted as published: who told of another one was taken for a liar, and
    held the flood for 100 ms that it had held back for a moment."""
    wanted = [b"%d" % number + bytes(1_000_000) for number in range(8)]
    with agent(lab, "h1") as one, agent(lab, "h3") as three, three.join("large", "ricochet") as receiver:
        before = refused_reports(lab, "h1")
        with one.publisher("large") as out:
            for message in wanted:
                out.publish(message)
                assert take(receiver, 1) == ([message], 0)
        assert refused_reports(lab, "h1") == before


def resident_kb(lab: Lab, server: str) -> int:
    pid = lab.status()["programs"][server]["pid"]
    text = lab.execute("manager", ["cat", f"/proc/{pid}/status"])
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS"))


def test_members_and_publishers_have_memory_for_messages_before_any_come(lab: Lab) -> None:
    """The pages of 32 MB took a fourth of the time of the first 100,000 messages; who is in no group has none."""
    before = {server: resident_kb(lab, server) for server in ("h6", "h7", "h8")}
    with (
        agent(lab, "h6") as publishing,
        agent(lab, "h7") as receiving,
        receiving.join("pages"),
        publishing.publisher("pages"),
    ):
        until(lambda: all(resident_kb(lab, server) - before[server] > 31 << 10 for server in ("h6", "h7")))
    assert resident_kb(lab, "h8") - before["h8"] < 8 << 10


def test_what_waits_to_be_read_is_not_taken_for_lost(lab: Lab) -> None:
    """A member that is behind finds repairs of others beside the packets they were made of."""
    with agent(lab, "h1") as one, agent(lab, "h3") as three, agent(lab, "h5") as five:
        options = {"protocol": "ricochet", "options": "r=16,c=2"}
        with three.join("behind", **options) as quick, five.join("behind", **options) as slow:
            with one.publisher("behind") as out:
                before, count = late(lab, "h5"), 800
                lab.signal("h5", signal.SIGSTOP)
                try:
                    assert out.publish_all([bytes(5000)] * count) == count
                    assert len(take(quick, count)[0]) == count
                finally:
                    lab.signal("h5", signal.SIGCONT)
                assert len(take(slow, count)[0]) == count
            assert late(lab, "h5") - before < count / 20


def late(lab: Lab, server: str) -> float:
    """Packets that an agent took for lost but had only to read."""
    return scrape(lab, server)["rostrum_agent_group_packets_recovered_total", 'via="late"']


def test_plain_groups_say_what_was_lost(lab: Lab) -> None:
    with (
        agent(lab, "h1") as one,
        agent(lab, "h3") as three,
        three.join("plain", protocol="plain") as receiver,
        one.publisher("plain") as out,
    ):
        for number in range(1000):  # one in each packet: the MTU is 9000
            out.publish(b"%d" % number + b"x" * 5000)
        got, lost = take(receiver, 1000, 20.0)
        assert lost > 0
        assert len(got) + lost >= 990  # the last ones are not missed by what comes after them


def test_large_messages_neighbours_and_self(lab: Lab) -> None:
    """Another program of the publisher's server hears it; the publisher does not hear itself."""
    large = bytes(range(256)) * 4000
    with (
        agent(lab, "h1") as one,
        agent(lab, "h1") as neighbour,
        agent(lab, "h4") as four,
        one.join("large", protocol="ricochet") as out,
        neighbour.join("large") as near,
        four.join("large") as far,
    ):
        out.publish(large)
        out.publish(b"")
        for receiver in (near, far):
            assert sorted(take(receiver, 2)[0]) == sorted([large, b""])
        with pytest.raises(TimedOut):
            out.next(0.1)
        with pytest.raises(RostrumError, match="too long"):
            out.publish(bytes(out.message_bytes + 1))


@pytest.mark.parametrize(("protocol", "server"), [("plain", "h1"), ("qsm", "h1"), ("qsm", "h3")])
def test_a_program_that_reads_slowly_loses_nothing(lab: Lab, protocol: str, server: str) -> None:
    """A publisher waits for programs that read, those of its own server too: 60 MB, of which 32 may be unread."""
    wanted = [b"%d:" % number + bytes(10_000) for number in range(6000)]
    name = f"slow-{protocol}-{server}"
    with (
        agent(lab, "h1") as one,
        agent(lab, server) as other,
        other.join(name, protocol=protocol, order="fifo") as reader,
        one.publisher(name) as out,
    ):
        flood = threading.Thread(target=lambda: out.publish_all(wanted))
        flood.start()
        first = []
        for _ in range(10):  # it does other things, too
            first += take(reader, 1)[0]
            time.sleep(0.1)
        rest, lost = take(reader, len(wanted) - len(first))
        flood.join()
        assert ([*first, *rest], lost) == (wanted, 0)


def test_what_the_manager_refuses_is_said_at_the_join(lab: Lab) -> None:
    with agent(lab, "h1") as one, agent(lab, "h2") as two:
        with pytest.raises(RostrumError, match="isis"):
            one.join("future", protocol="isis")
        with one.join("settled", protocol="plain"):
            with pytest.raises(RostrumError, match="plain"):
                two.join("settled", protocol="ricochet")
            with pytest.raises(RostrumError, match="plain"):
                one.publisher("settled", protocol="ricochet")
        with pytest.raises(RostrumError, match="1 to 128 characters"):
            one.join("no spaces")


def test_a_deleted_group_ends_with_a_reason(lab: Lab) -> None:
    with agent(lab, "h2") as two, two.join("short-lived") as receiver:
        lab.rest.call("DELETE", "/v1/groups/short-lived?force=true")
        with pytest.raises(RostrumError, match="deleted"):
            receiver.next(BOUND_S)


def test_a_deleted_group_ends_with_a_reason_behind_all_that_is_unread(lab: Lab) -> None:
    """More than its socket takes: it was told that the agent went away, and went on to wait for that."""
    wanted = [b"%d:" % number + bytes(1000) for number in range(6000)]
    with (
        agent(lab, "h1") as one,
        agent(lab, "h2") as two,
        two.join("unread", protocol="ricochet", order="fifo") as receiver,
        one.publisher("unread") as out,
    ):
        out.publish_all(wanted)
        until(lambda: sum(taken_in(two, "unread")) >= len(wanted))
        lab.rest.call("DELETE", "/v1/groups/unread?force=true")
        assert take(receiver, len(wanted)) == (wanted, 0)
        with pytest.raises(RostrumError, match="deleted"):
            receiver.next(BOUND_S)


def test_a_slow_program_is_told_what_it_lost(lab: Lab) -> None:
    with (
        agent(lab, "h1") as one,
        agent(lab, "h1") as slow,
        slow.join("slow") as receiver,
        one.publisher("slow") as out,
    ):
        count = 40_000  # more than may wait for any program
        assert out.publish_all([b"%06d" % number + b"x" * 1000 for number in range(count)]) == count
        got, lost = take(receiver, count)
        assert lost > 0
        assert len(got) + lost == count


def test_the_commands(lab: Lab) -> None:
    command = [sys.executable, "-m", "rostrum.client.cli"]
    where = ["--lab", "t-messages"]
    text_of_h3 = ["sub", "words", "--protocol", "ricochet", "--server", "h3", "--count", "3", "--wait", "60s"]
    listening = subprocess.Popen(
        [*command, *text_of_h3, *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert listening.stderr and "is in words" in listening.stderr.readline()
    subprocess.run([*command, "pub", "words", "one", "two", "--server", "h1", *where], check=True, timeout=BOUND_S)
    shown = subprocess.run([*command, "status", "--server", "h3", *where], capture_output=True, text=True, check=True)
    assert "words" in shown.stdout
    subprocess.run([*command, "pub", "words", "--server", "h2", *where], input=b"three\n", check=True, timeout=BOUND_S)
    text, _ = listening.communicate(timeout=BOUND_S)
    assert sorted(text.split()) == ["one", "three", "two"]
    assert listening.returncode == 0


def test_members_stay_when_the_manager_restarts(lab: Lab) -> None:
    with (
        agent(lab, "h1") as one,
        agent(lab, "h3") as three,
        agent(lab, "h5") as five,
        three.join("lasting", protocol="ricochet") as receiver,
        one.publisher("lasting") as out,
    ):
        out.publish(b"before")
        assert take(receiver, 1)[0] == [b"before"]
        lab.kill("manager")
        out.publish(b"meanwhile")
        assert take(receiver, 1)[0] == [b"meanwhile"]
        lab.start_program("manager")
        until(lambda: all(each.status().manager_up for each in (one, three, five)))
        out.publish(b"after")
        assert take(receiver, 1)[0] == [b"after"]
        with five.join("lasting") as late:
            # What a sender publishes before it has heard of a member is not repaired for it.
            until(lambda: version(one, "lasting") == version(five, "lasting"))
            out.publish(b"to all")
            assert take(late, 1)[0] == [b"to all"]
            assert take(receiver, 1)[0] == [b"to all"]


def test_an_agent_that_restarts_is_in_no_group_and_may_join_again(lab: Lab) -> None:
    with agent(lab, "h1") as one:
        three = agent(lab, "h3")
        with one.publisher("again", protocol="ricochet") as out, three.join("again") as receiver:
            until(lambda: version(one, "again") == version(three, "again"))
            out.publish(b"before")
            assert take(receiver, 1)[0] == [b"before"]
            lab.kill("h3")
            with pytest.raises(Unavailable):
                receiver.next(BOUND_S)
            three.close()
            lab.start_program("h3")
            deadline = time.monotonic() + BOUND_S
            while True:
                try:
                    three = agent(lab, "h3")
                    again = three.join("again")
                    break
                except RostrumError:
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
            with three, again:
                until(lambda: version(one, "again") == version(three, "again"))
                out.publish(b"after")
                assert take(again, 1)[0] == [b"after"]
