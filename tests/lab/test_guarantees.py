"""Guarantees of groups end to end: views in the stream, one order for all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from rostrum.client import Agent, Group, Message
from rostrum.lab.lab import Lab

pytestmark = pytest.mark.lab

BOUND_S = 60.0
TOTAL = {"protocol": "plain", "order": "total"}


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
