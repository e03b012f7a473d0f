"""Whole agents over every packet I/O back end: the object arrives, with and without losses, also between agents that do
not use the same one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.agent_e2e.agents import World, content
from tests.agent_e2e.network import Network, network

BACKENDS = ["udp", "udp-gso", "packet", "xdp"]
RECEIVERS = ["h2", "h3"]


@pytest.fixture(scope="module", params=[1500, 9000])
def net(request: pytest.FixtureRequest) -> Iterator[Network]:
    with network(3, request.param) as it:
        yield it


def start(lab: World, name: str, backend: str, *options: str) -> None:
    """Starts an agent; skips the test where the kernel does not let the back end work."""
    agent = lab.start(name, "--io", backend, *options)
    for line in agent.log:
        if f"{backend} does not work here" in line:
            pytest.skip(line)


def transfer(lab: World, data: bytes) -> list[int]:
    """Sends to both receivers and compares; how many fragments were patched at each."""
    sender = lab.app("h1")
    sender.add(1, data)
    result = sender.send(1, RECEIVERS)
    assert result.ok, result
    assert all(receiver.digest_ok for receiver in result.receivers)
    for name in RECEIVERS:
        assert lab.app(name).read(1) == data
    return [receiver.patched_fragments for receiver in result.receivers]


@pytest.mark.parametrize("loss", [None, "uniform:0.01:seed=7"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_object_arrives(lab: World, backend: str, loss: str | None) -> None:
    start(lab, "h1", backend)
    for name in RECEIVERS:
        start(lab, name, backend, *(["--loss", loss] if loss else []))
    patched = transfer(lab, content(8_000_001, 1))
    assert loss is None or all(patched)


@pytest.mark.parametrize(("sending", "receiving"), list(itertools.permutations(BACKENDS, 2)))
def test_backends_understand_each_other(lab: World, sending: str, receiving: str) -> None:
    start(lab, "h1", sending)
    start(lab, "h2", receiving, "--loss", "gilbert:0.02:4:seed=9")
    start(lab, "h3", receiving)
    transfer(lab, content(3_000_001, 2))
