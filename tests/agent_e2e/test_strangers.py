"""Agents among strangers, who know names and speak the protocol: what they send is well-formed, but not theirs."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from rostrum.client import wire

from tests.agent_e2e.agents import APP, WAIT_S, Agent, World, content, wait_until
from tests.agent_e2e.network import Namespace, Network, network

Made = TypeVar("Made")
CONTROL_PORT = 7071
BOOT, NAME = 24, 34  # where they are in a HELLO (docs/protocol.md)


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(4) as it:
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


def frame(message: bytes, text: bytes = b"") -> bytes:
    return struct.pack("<II", len(message), len(text)) + message + text


def framed(agent: Agent) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(WAIT_S)
    link.connect(f"{agent.socket}.framed")
    return link


def framed_answer(link: socket.socket) -> tuple[wire.Answer, str]:
    head = link.recv(8, socket.MSG_WAITALL)
    message, text = struct.unpack("<II", head)
    return wire.parse(link.recv(message, socket.MSG_WAITALL)), link.recv(text, socket.MSG_WAITALL).decode()


def test_garbage_on_the_framed_socket_ends_only_its_own_connection(lab: World) -> None:
    agent = lab.start("h1", manager=False)
    seed = random.randrange(1 << 30)
    print("seed", seed)
    numbers = random.Random(seed)
    register = wire.request(wire.REGISTER, 1, APP.bytes + b"\x04test")
    with framed(agent) as good, framed(agent) as other:
        for link in (good, other):
            for byte in frame(register):  # however it is cut
                link.sendall(bytes([byte]))
            assert framed_answer(link)[0].type == wire.REGISTERED
        good.sendall(frame(wire.request(wire.CREATE, 2, struct.pack("<Q", 5000))))
        created, place = framed_answer(good)
        handle = created.value[0]
        for text in (f"file {handle}", "file 77", "file", "socket " + "0" * 32, "socket", "x" * 300):
            other.sendall(frame(wire.request(wire.ADD, 3, struct.pack("<Q", 1)), text.encode()))
            answer, _ = framed_answer(other)
            assert answer.type == wire.ERROR and answer.tag == 3 and len(answer.value[1]) > 20, text
        for _ in range(100):
            kind = numbers.randrange(4)
            with framed(agent) as bad:
                bad.sendall(
                    [
                        numbers.randbytes(numbers.randrange(1, 400)),
                        frame(numbers.randbytes(numbers.randrange(60)), numbers.randbytes(numbers.randrange(60))),
                        frame(b"", b"attach " + numbers.randbytes(numbers.randrange(40))),
                        frame(register)[: numbers.randrange(1, 20)],
                    ][kind]
                )
        with framed(agent) as bad:
            bad.sendall(struct.pack("<II", 1 << 30, 0))
            assert bad.recv(1) == b""
        good.sendall(frame(wire.request(wire.ADD, 4, struct.pack("<Q", 1)), f"file {handle}".encode()))
        assert framed_answer(good)[0].type == wire.ADDED
        good.sendall(frame(wire.request(wire.READ, 5, struct.pack("<QI", 1, 0))))
        answer, where = framed_answer(good)
        assert answer.value[0] == 5000
        assert where == str(agent.store / str(APP) / "1") != place
        assert agent.objects() == [f"{APP}/1"]
        good.sendall(frame(wire.request(wire.CREATE, 6, struct.pack("<Q", 5000))))
        assert framed_answer(good)[0].type == wire.CREATED
    wait_until(lambda: agent.objects() == [f"{APP}/1"], "end of what a program that is gone had created")
