"""Whole agents against each other: objects over a real multicast network, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agent_e2e.agents import World, content, world
from tests.agent_e2e.network import Network, network


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(4) as it:
        yield it


@pytest.fixture
def lab(net: Network) -> Iterator[World]:
    with world(net) as it:
        yield it


def test_object_reaches_three_receivers(lab: World) -> None:
    lab.start_all()
    data = content(3_000_000, 1)
    sender = lab.app("h1")
    sender.add(7, data)
    result = sender.send(7, ["h2", "h3", "h4"], events=True)
    assert result.ok, result
    assert [receiver.digest_ok for receiver in result.receivers] == [True] * 3
    for name in ("h2", "h3", "h4"):
        assert lab.app(name).read(7) == data
