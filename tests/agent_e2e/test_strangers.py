"""Agents among strangers, who know names and speak the protocol: what they send is well-formed, but not theirs."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.agent_e2e.agents import WAIT_S, World, content, wait_until, world
from tests.agent_e2e.network import Namespace, Network, network

Made = TypeVar("Made")
CONTROL_PORT = 7071
BOOT, NAME = 24, 34  # where they are in a HELLO (docs/protocol.md)


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(4) as it:
        yield it


@pytest.fixture
def lab(net: Network) -> Iterator[World]:
    with world(net) as it:
        yield it


def inside(namespace: Namespace, make: Callable[[], Made]) -> Made:
    """What `make` gives when it runs in the namespace: sockets it opens stay there."""
    made: list[Made] = []

    def run() -> None:
        namespace.enter_thread()
        made.append(make())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(WAIT_S)
    assert made
    return made[0]


def say_hello(address: str, name: str) -> socket.socket:
    """A connection to an agent that has said it is `name`: with the agent's own HELLO, but for name and boot id."""
    stranger = socket.create_connection((address, CONTROL_PORT), WAIT_S)
    try:
        theirs = stranger.recv(4096)
        length = struct.unpack_from("<H", theirs, NAME - 2)[0] if len(theirs) >= NAME else 0
        encoded = name.encode()
        body = theirs[4:BOOT] + struct.pack("<QH", 5, len(encoded)) + encoded + theirs[NAME + length :]
        stranger.sendall(struct.pack("<I", len(body)) + body)
    except OSError:  # it was turned away
        pass
    return stranger


def test_the_first_to_say_a_servers_name_does_not_keep_that_server_out(lab: World) -> None:
    lab.start("h1")
    lab.start("h2", "--log-level", "debug")
    impostor = inside(lab.net.hosts["h4"].namespace, lambda: say_hello(lab.net.hosts["h2"].address, "h1"))
    with impostor:
        lab.agents["h2"].wait_log('control up peer="h1"')
        data = content(300_000, 31)
        sender = lab.app("h1")
        sender.add(1, data)
        result = sender.send(1, ["h2"])
        assert result.ok, result
        assert lab.app("h2").read(1) == data


def test_a_thousand_hellos_do_not_block_a_transfer(lab: World) -> None:
    lab.start("h1")
    lab.start("h2", "--log-level", "debug")
    lab.start("h3")
    address = lab.net.hosts["h2"].address
    crowd = inside(lab.net.hosts["h4"].namespace, lambda: [say_hello(address, f"s{n}") for n in range(1100)])
    try:
        lab.agents["h2"].wait_log('control up peer="s1')
        data = content(300_000, 32)
        for here, there in (("h1", "h2"), ("h2", "h3")):  # to the one in the crowd, and from it
            sender = lab.app(here)
            if here == "h1":
                sender.add(1, data)
            result = sender.send(1, [there])
            assert result.ok, result
            assert lab.app(there).read(1) == data
        assert len(lab.agents["h2"].log) < 3000
    finally:
        for stranger in crowd:
            stranger.close()
    wait_until(lambda: lab.app("h2").status()[0].server == "h2", "an answer after that")
