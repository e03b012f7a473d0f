"""Whole agents with back end xdp: objects beside the control channel's TCP, ARP and pings on the same interface."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agent_e2e.agents import World, content, wait_until, world
from tests.agent_e2e.network import network

ALL = ["h2", "h3"]


@pytest.fixture(scope="module", params=[9000, 1500])
def mtu(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def lab(mtu: int) -> Iterator[World]:
    with network(3, mtu) as net, world(net) as it:
        yield it


def start(lab: World, name: str, *options: str) -> None:
    """Starts an agent with xdp; skips the test where the kernel has none."""
    agent = lab.start(name, "--io", "xdp", *options)
    refused = [line for line in agent.log if "xdp does not work here" in line]
    if refused:
        pytest.skip(refused[0])


def has_program(lab: World, name: str) -> bool:
    return "xdp" in lab.net.hosts[name].namespace.run("ip", "link", "show", "dev", "eth0")


def test_object_reaches_all_and_the_kernel_keeps_its_traffic(lab: World) -> None:
    for name in lab.net.hosts:
        start(lab, name)
        assert has_program(lab, name)
    data = content(5_000_003, 1)
    sender = lab.app("h1")
    sender.add(7, data)
    result = sender.send(7, ALL)
    assert result.ok, result
    assert [receiver.digest_ok for receiver in result.receivers] == [True] * 2
    for name in ALL:
        assert lab.app(name).read(7) == data
    for name, host in lab.net.hosts.items():
        host.namespace.ip("neighbour", "flush", "dev", "eth0")
        host.namespace.run("ping", "-c", "1", "-W", "5", lab.net.hosts["h2" if name == "h1" else "h1"].address)
    for name, agent in lab.agents.items():
        assert agent.stop() == 0
        assert not has_program(lab, name)


def test_killed_agent_leaves_no_program(lab: World) -> None:
    start(lab, "h1")
    lab.agents["h1"].kill()
    wait_until(lambda: not has_program(lab, "h1"), "end of the program")
    start(lab, "h1")
    assert has_program(lab, "h1")
