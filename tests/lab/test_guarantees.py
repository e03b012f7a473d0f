"""Guarantees of groups end to end: views in the stream, one order for all."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from rostrum.client import Agent, Group, Message, RostrumError, TimedOut
from rostrum.lab import links
from rostrum.lab.lab import Lab

from tests.lab.objects import connected, until

pytestmark = pytest.mark.lab

BOUND_S = 60.0
TOTAL = {"protocol": "plain", "order": "total"}
SERVERS = ["h1", "h3", "h5"]
MEMORY_KB = 96 << 10  # unread messages of a program, of the group, and of its sockets


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Agents lose 2 % of what comes by multicast."""
    options = ["--loss", "uniform:0.02"]
    with Lab.start("hybrid-4x2", name="t-guarantees", switch="openflow", agent_options=options) as lab:
        yield lab


def until_view(group: Group, servers: list[str], seen: list[Message]) -> None:
    """Takes what comes until those are the members."""
    deadline = time.monotonic() + BOUND_S
    while not (seen and seen[-1].view and sorted(seen[-1].view.members) == servers):
        seen.append(group.next(deadline - time.monotonic()))


def take(group: Group, count: int, seen: list[Message]) -> None:
    deadline = time.monotonic() + BOUND_S
    while sum(one.view is None and one.primary is None for one in seen) < count:
        seen.append(group.next(deadline - time.monotonic()))


def told(seen: list[Message]) -> list[tuple[int, str, bytes]]:
    return [(one.sn, one.sender, one.data) for one in seen if one.view is None and one.primary is None]


def test_all_get_the_same_in_one_order_and_views_between(lab: Lab) -> None:
    servers = ["h1", "h3", "h5"]
    agents = {name: Agent(lab.agent_socket(name)) for name in servers}
    groups = {name: agents[name].join("one-order", **TOTAL) for name in servers}
    seen: dict[str, list[Message]] = {name: [] for name in servers}
    for name in servers:
        until_view(groups[name], servers, seen[name])
    each = 400
    for name in servers:
        threading.Thread(
            target=lambda name=name: groups[name].publish_all(b"%s %d" % (name.encode(), n) for n in range(each))
        ).start()
    for name in servers:
        take(groups[name], each * len(servers), seen[name])
    first = told(seen["h1"])
    assert [number for number, _, _ in first] == list(range(1, 3 * each + 1))
    assert told(seen["h3"]) == told(seen["h5"]) == first
    for name in servers:  # a sender hears its own, and each in its order
        mine = [data for _, sender, data in first if sender == name]
        assert mine == [b"%s %d" % (name.encode(), n) for n in range(each)]
    groups.pop("h5").close()
    agents.pop("h5").close()
    for name in ("h1", "h3"):
        until_view(groups[name], ["h1", "h3"], seen[name])
        assert seen[name][-1].view is not None and seen[name][-1].view.left == ("h5",)
    for name in agents:
        groups[name].close()
        agents[name].close()


class Slow:
    """h1 publishes to all while the program on h5 reads nothing."""

    def __init__(self, lab: Lab, name: str, slow: str, count: int) -> None:
        self.lab, self.name, self.count = lab, name, count
        self.agents = {server: Agent(lab.agent_socket(server), process=f"reader of {server}") for server in SERVERS}
        options = TOTAL | {"order": f"total{slow}"}
        self.groups = {server: agent.join(name, **options) for server, agent in self.agents.items()}
        for server in SERVERS:
            until_view(self.groups[server], SERVERS, [])
        self.before_kb = self.memory_kb()
        self.thread = threading.Thread(target=self._publish)
        self.thread.start()

    def _publish(self) -> None:
        data = b"x" * 1016
        messages = iter([b"%7d " % number + data for number in range(self.count)])
        while True:
            try:
                self.groups["h1"].publish_all(messages)
                return
            except TimedOut:
                continue  # it goes with the next

    def memory_kb(self) -> int:
        """What the agent of h5 has needed at most."""
        pid = self.lab.status()["programs"]["h5"]["pid"]
        text = self.lab.execute("h5", ["cat", f"/proc/{pid}/status"])
        return int(text.split("VmHWM:")[1].split()[0])

    def shown(self) -> list[dict]:
        return self.lab.rest.get(f"/v1/groups/{self.name}")["slow_programs"]

    def wait_shown(self, state: str) -> None:
        """Until h5's reader is so shown, and no other: on a busy machine others are slow for a moment, too."""
        slow = [("h5", "reader of h5")]
        until(
            lambda: [(one["server"], one["program"]) for one in self.shown() if one["state"] == state] == slow,
            f"{state} of {slow} alone at REST",
        )

    def take(self, server: str) -> int:
        """Messages until the last one that was published; each is the next one."""
        number = 0
        while number < self.count:
            message = self.groups[server].next(BOUND_S)
            if message.view is None and message.primary is None:
                assert message.lost is None and int(message.data[:7]) == number
                number += 1
        return number

    def end(self) -> None:
        self.thread.join(BOUND_S)
        assert not self.thread.is_alive()
        assert self.memory_kb() - self.before_kb < MEMORY_KB
        for group in self.groups.values():
            group.close()
        for agent in self.agents.values():
            agent.close()


def test_slow_program_that_the_group_waits_for__is_named_and_nothing_is_lost(lab: Lab) -> None:
    slow = Slow(lab, "waits", "", 16_000)
    readers = [threading.Thread(target=slow.take, args=(one,), daemon=True) for one in ("h1", "h3")]
    for reader in readers:
        reader.start()
    slow.wait_shown("waited-for")
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(lab.rest.path)), base_url="http://manager") as http:
        text = http.get("/metrics").text
    assert 'rostrum_group_slow_program{group="waits",program="reader of h5",server="h5",state="waited-for"}' in text
    assert slow.take("h5") == 16_000
    for reader in readers:
        reader.join(BOUND_S)
    slow.end()
    until(lambda: not slow.shown(), "nobody named any more")


def test_slow_program_that_loses__is_named_and_the_others_get_all(lab: Lab) -> None:
    slow = Slow(lab, "drops", ",slow=drop", 48_000)
    other = threading.Thread(target=slow.take, args=("h1",), daemon=True)
    other.start()
    assert slow.take("h3") == 48_000
    other.join(BOUND_S)
    slow.wait_shown("loses")
    seen = lost = 0
    while seen + lost < 48_000:
        message = slow.groups["h5"].next(BOUND_S)
        lost += message.lost or 0
        seen += message.lost is None and message.view is None and message.primary is None
    assert lost > 0
    slow.end()


def test_slow_program_that_has_no_room_for_a_view__is_told_what_holds_behind_its_losses(lab: Lab) -> None:
    slow = Slow(lab, "misses", ",slow=drop", 48_000)
    other = threading.Thread(target=slow.take, args=("h1",), daemon=True)
    other.start()
    assert slow.take("h3") == 48_000
    other.join(BOUND_S)
    slow.wait_shown("loses")
    slow.groups["h3"].close()
    until_view(slow.groups["h1"], ["h1", "h5"], [])
    lost, views = 0, []
    while not views or set(views[-1].members) != {"h1", "h5"}:
        message = slow.groups["h5"].next(BOUND_S)
        lost += message.lost or 0
        views += [message.view] if message.view else []
    assert lost > 0 and len(views) == 1
    slow.groups["h1"].publish(b"next")
    assert slow.groups["h5"].next(BOUND_S).data == b"next"
    slow.end()


def test_slow_program_that_is_put_out__is_named_and_the_others_get_all(lab: Lab) -> None:
    slow = Slow(lab, "disconnects", ",slow=disconnect", 48_000)
    other = threading.Thread(target=slow.take, args=("h1",), daemon=True)
    other.start()
    assert slow.take("h3") == 48_000
    other.join(BOUND_S)
    slow.wait_shown("put-out")
    with pytest.raises(RostrumError, match=r"too slow|went away"):
        while True:
            assert slow.groups["h5"].next(BOUND_S).lost is None
    slow.end()


class Members:
    """Programs that publish without a pause and keep what they are given."""

    def __init__(self, lab: Lab, name: str, servers: list[str]) -> None:
        self.servers, self.ended = servers, threading.Event()
        self.agents = {server: Agent(lab.agent_socket(server)) for server in servers}
        self.groups = {server: agent.join(name, **TOTAL) for server, agent in self.agents.items()}
        self.seen: dict[str, list[Message]] = {server: [] for server in servers}
        for server in servers:
            until_view(self.groups[server], servers, self.seen[server])
        self.threads = [
            threading.Thread(target=run, args=(one,)) for one in servers for run in (self._publish, self._take)
        ]
        for thread in self.threads:
            thread.start()

    def _publish(self, server: str) -> None:
        with contextlib.suppress(RostrumError):
            for number in itertools.count():
                if self.ended.is_set():
                    break
                with contextlib.suppress(TimedOut):
                    self.groups[server].publish(b"%s %d" % (server.encode(), number))
            self.groups[server].publish(b"end")

    def _take(self, server: str) -> None:
        ends = 0
        with contextlib.suppress(RostrumError):
            while ends < len(self.servers):
                self.seen[server].append(message := self.groups[server].next(BOUND_S))
                ends += message.data == b"end"

    def views(self, server: str) -> list[tuple[str, ...]]:
        return [tuple(sorted(one.view.members)) for one in self.seen[server] if one.view]

    def count(self, server: str) -> int:
        return len(told(self.seen[server]))

    def end(self, survivors: list[str], *crashed: str) -> None:
        """All survivors got the same in the same order, and nobody who crashed anything else."""
        self.servers = survivors
        self.ended.set()
        for thread in self.threads:
            thread.join(BOUND_S)
            assert not thread.is_alive()
        first = told(self.seen[survivors[0]])
        assert [number for number, _, _ in first] == list(range(1, len(first) + 1))
        assert all(told(self.seen[server]) == first for server in survivors)
        for server in crashed:
            assert told(self.seen[server]) == first[: self.count(server)], server
        for server in self.groups:
            self.groups[server].close()
            self.agents[server].close()


def test_order_survives_a_member_and_the_manager_that_crash(lab: Lab) -> None:
    members = Members(lab, "crashes", ["h1", "h3", "h5", "h7"])
    until(lambda: all(members.count(one) > 2000 for one in members.servers), "messages")
    lab.kill("manager")
    lab.kill("h1")  # it coordinates
    counts = {one: members.count(one) for one in members.servers}
    lab.start_program("manager")
    rest = ["h3", "h5", "h7"]
    until(lambda: all(members.views(one)[-1] == tuple(rest) for one in rest), "the view without h1")
    until(lambda: all(members.count(one) > counts[one] + 2000 for one in rest), "messages after it")
    members.end(rest, "h1")
    lab.start_program("h1")


def test_member_that_the_manager_reaches_and_the_others_do_not__is_put_out(lab: Lab) -> None:
    until(lambda: connected(lab, "h1"), "the agent of h1").close()
    members = Members(lab, "cut-off", ["h1", "h3", "h5"])
    until(lambda: all(members.count(one) > 1000 for one in members.servers), "messages")
    links.cut(lab, "core", "tor3")
    rest = ["h1", "h3"]
    until(lambda: all(members.views(one)[-1] == tuple(rest) for one in rest), "the view without h5")
    counts = {one: members.count(one) for one in rest}
    until(lambda: all(members.count(one) > counts[one] + 1000 for one in rest), "messages after it")
    members.end(rest)
    links.up(lab, "core", "tor3")
