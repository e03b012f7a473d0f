"""Whole agents that lose different packets each: repairs by multicast over every packet I/O back end, the log of the
choice, and patches where they are cheaper or asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from rostrum.client import RostrumError
from rostrum.client.values import SendResult

from tests.agent_e2e.agents import World, content
from tests.agent_e2e.fake_manager import Answer
from tests.agent_e2e.network import Network, network

RECEIVERS = ["h2", "h3", "h4"]
SIZE = 12_000_001


@pytest.fixture(scope="module", params=[9000, 1500])
def net(request: pytest.FixtureRequest) -> Iterator[Network]:
    with network(4, request.param) as it:
        yield it


def start(lab: World, loss: str, *options: str, lossy: int = 3) -> None:
    """Starts the agents; the first `lossy` receivers lose each its own packets."""
    for name in lab.net.hosts:
        seed = ["--seed", name[1:]]
        agent = lab.start(name, *options, *seed, *(["--loss", loss] if name in RECEIVERS[:lossy] else []))
        refused = [line for line in agent.log if "does not work here" in line]
        if refused:
            pytest.skip(refused[0])


def transfer(lab: World) -> SendResult:
    data = content(SIZE, 1)
    sender = lab.app("h1")
    sender.add(1, data)
    result = sender.send(1, RECEIVERS)
    assert result.ok, result
    for name in RECEIVERS:
        assert lab.app(name).read(1) == data
    return result


def told(lab: World, text: str) -> list[str]:
    return [line for line in lab.agents["h1"].log if text in line]


@pytest.mark.parametrize("kind", ["packet", "circuit"])
@pytest.mark.parametrize("io", ["udp", "udp-gso", "packet", "xdp"])
def test_many_receivers_losses_are_repaired_by_multicast(lab: World, io: str, kind: str) -> None:
    lab.manager.answer = lambda request: Answer(kind=kind)
    # At a rate at which a busy machine drops little on its own: circuits are filled to the NIC's rate, come what may.
    start(lab, "uniform:0.05", "--io", io, "--nic-rate", "400M")
    result = transfer(lab)
    assert all(receiver.patched_fragments > 0 for receiver in result.receivers)
    assert told(lab, "repairs by multicast, coded")
    assert told(lab, "repair packets mended")
    # One by one it would be as many packets as they mended losses.
    assert result.losses_repaired > result.packets_repair > 0


@pytest.mark.parametrize("loss", ["gilbert:0.05:20", "uniform:0.25"])
def test_bursts_and_heavy_loss(lab: World, loss: str) -> None:
    lab.manager.answer = lambda request: Answer(kind="packet")
    start(lab, loss)
    transfer(lab)


def test_one_receivers_losses_are_patched(lab: World) -> None:
    start(lab, "uniform:0.05", lossy=1)
    result = transfer(lab)
    assert result.packets_repair == 0
    assert result.packets_patched >= result.receivers[0].patched_fragments > 0


def test_patches_only_where_asked_for(lab: World) -> None:
    start(lab, "uniform:0.05", "--repairs", "patches")
    result = transfer(lab)
    assert result.packets_repair == 0
    assert result.packets_patched >= sum(receiver.patched_fragments for receiver in result.receivers)


def test_over_a_wide_area_one_receivers_losses_come_to_it_alone(lab: World) -> None:
    """By unicast datagrams, which it takes from a sender that nobody named to it; not by the control connection."""
    lab.manager.answer = lambda request: Answer(kind="packet", protocol="wan")
    start(lab, "uniform:0.05", lossy=1)
    result = transfer(lab)
    lost = 0.05 * SIZE / 9000  # at least
    assert result.packets_patched < lost / 3, result


def test_options_of_a_send_are_its_protocols(lab: World) -> None:
    lab.manager.answer = lambda request: Answer(kind="packet", protocol="wan")
    start(lab, "uniform:0.01")
    sender = lab.app("h1")
    data = content(4_000_000, 2)
    sender.add(1, data)
    for protocol, options, text in (
        ("wan", "congestion=cubic", "own, friendly or fixed:RATE"),
        ("wan", "congestion=fixed:0M", "own, friendly or fixed:RATE"),
        ("wan", "coding=proactive:1", "proactive:N (2 to 21)"),
        ("wan", "speed=9", "there are congestion, coding and slow"),
        ("rdcm", "slow=wait", "rdcm takes no options"),
        ("auto", "slow=wait", "name one, such as wan"),
    ):
        with pytest.raises(RostrumError, match=re.escape(text)):
            sender.send(1, RECEIVERS, protocol=protocol, options=options)
    result = sender.send(1, RECEIVERS, protocol="wan", options="congestion=fixed:40M,coding=repairs,slow=wait")
    assert result.ok and result.rate_bps == 40_000_000, result
    assert all(lab.app(name).read(1) == data for name in RECEIVERS)
