"""Replicas on a stream that is the same for all, in any interleaving: crashes, joins, returns, transfers that fail."""

from __future__ import annotations

import contextlib
import json
import random
import struct
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from rostrum.client import Code, NotFound, Replica, RostrumError, TimedOut, replica
from rostrum.client.groups import Message, View

from .conftest import BUILD

STEPS = 400
PROGRAM = BUILD / "tests" / "agent" / "replica_testd"
SERVERS = [f"h{number}" for number in range(1, 6)]


class Network:
    """One order for all; views between. `at[server]`: how far its program has read, and its store."""

    def __init__(self, seed: int, in_c: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.in_c = in_c  # of so many programs
        self.members: list[str] = []
        self.at: dict[str, list[Message]] = {}
        self.number = self.views = self.published = 0
        self.objects: dict[tuple[str, str], bytes] = {}
        self.sends: list[Sending] = []
        self.programs: dict[str, Log | LogInC] = {}
        self.messages: list[int] = []
        self.returned = False

    def say(self, sender: str, data: bytes) -> None:
        self.number += 1
        if not data.startswith(b"\0"):
            self.messages.append(int(data))
        for queue in self.at.values():
            queue.append(Message(sender, self.number, data))

    def view(self, joined: tuple[str, ...], left: tuple[str, ...]) -> None:
        self.views += 1
        view = View(self.views, self.number, tuple(sorted(self.members)), joined, left)
        for server, queue in self.at.items():
            anew = View(view.id, view.number, view.members, joined, left, anew=True)
            queue.append(Message("", 0, view=anew if server in joined else view))

    def join(self, *servers: str) -> None:
        self.members += servers
        for server in servers:
            self.at[server] = []
            agent = FakeAgent(self, server)
            is_in_c = bool(self.in_c) and self.random.random() < self.in_c
            self.programs[server] = LogInC(agent, "log") if is_in_c else Log(agent, "log")
        self.view(servers, ())

    def crash(self, server: str) -> None:
        self.members.remove(server)
        self.programs.pop(server).close()
        del self.at[server]
        for one in self.sends:
            one.ended |= server in (one.sender, one.receiver)
        self.sends = [one for one in self.sends if not one.ended]
        self.objects = {key: value for key, value in self.objects.items() if key[0] != server}
        self.view((), (server,))

    def put_out_and_back(self, server: str) -> None:
        self.returned = True
        self.at[server] = []
        self.view((server,), (server,))

    def step(self, server: str) -> None:
        with contextlib.suppress(TimedOut):
            self.programs[server]._step(-1.0)

    def act(self) -> None:
        draw, absent = self.random.random(), [one for one in SERVERS if one not in self.members]
        if draw < 0.04 and absent:
            self.join(*self.random.sample(absent, self.random.randint(1, len(absent))))
        elif draw < 0.06 and len(self.members) > 1:
            self.crash(self.random.choice(self.members))
        elif draw < 0.07 and len(self.members) > 1:
            self.put_out_and_back(self.random.choice(self.members))
        elif draw < 0.12 and self.sends:
            self.random.choice(self.sends).end(self.random.random() < 0.8)
        elif draw < 0.3 and self.members:
            self.published += 1
            self.programs[self.random.choice(self.members)].publish(b"%d" % self.published)
        elif self.members:
            self.step(self.random.choice(self.members))


class Sending:
    def __init__(self, network: Network, sender: str, receiver: str, name: str, data: bytes) -> None:
        self.network, self.sender, self.receiver, self.name, self.data = network, sender, receiver, name, data
        self.ended = self.good = False

    def end(self, good: bool) -> None:
        self.ended, self.good = True, good
        self.network.sends.remove(self)
        if good:
            self.network.objects[self.receiver, self.name] = self.data

    @property
    def done(self) -> bool:
        return self.ended

    def wait(self, timeout: float) -> Sending:
        return self

    def raise_for_failure(self) -> None:
        if not self.good:
            raise RostrumError("it failed", Code.FAILED)


class Found(bytearray):
    def __enter__(self) -> Found:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class FakeAgent:
    def __init__(self, network: Network, server: str) -> None:
        self.network, self.server = network, server

    def join(self, name: str, *_: str) -> FakeGroup:
        return FakeGroup(self.network, self.server)

    def send(self, name: str, receivers: list[str], source: bytes) -> Sending:
        if self.network.random.random() < 0.1:
            raise RostrumError("there is no room", Code.NO_ROOM)
        self.network.sends.append(Sending(self.network, self.server, receivers[0], name, source))
        return self.network.sends[-1]

    def read(self, name: str, wait: float) -> Found:
        if (self.server, name) not in self.network.objects:
            raise NotFound("not here")
        return Found(self.network.objects[self.server, name])

    def delete(self, name: str) -> None:
        if self.network.objects.pop((self.server, name), None) is None:
            raise NotFound("not here")


class FakeGroup:
    name, order = "log", "total"

    def __init__(self, network: Network, server: str) -> None:
        self.network, self.server = network, server

    def next(self, timeout: float) -> Message:
        if not self.network.at[self.server]:
            raise TimedOut("nothing")
        return self.network.at[self.server].pop(0)

    def publish(self, data: Any) -> None:
        self.network.say(self.server, bytes(data))

    def try_publish(self, data: bytes) -> bool:
        if self.network.random.random() < 0.3:
            return False
        self.publish(data)
        return True

    def close(self) -> None:
        pass


class Log(Replica):
    """The state is all messages."""

    def __init__(self, agent: Any, group: str) -> None:
        self.seen: list[int] = []
        super().__init__(agent, group)

    def deliver(self, message: Message) -> None:
        self.seen.append(int(message.data))

    def get_state(self) -> bytes:
        return json.dumps(self.seen).encode()

    def set_state(self, state: memoryview) -> None:
        self.seen = json.loads(bytes(state))


class LogInC:
    """The same by librostrum's replica, a program whose world this is."""

    def __init__(self, agent: FakeAgent, group: str) -> None:
        self.agent, self.group = agent, agent.join(group)
        self.seen: list[int] = []
        self._holders: set[tuple[str, int]] = set()
        self._out: Any = False  # something waits to be said
        self.is_ready = False
        self._sends: list[Sending] = []
        self._program = subprocess.Popen([PROGRAM, agent.server, group], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def publish(self, data: bytes) -> None:
        self.group.publish(data)

    def _step(self, deadline: float) -> None:
        self._write(b"S")
        while (request := self._read())[:1] != b"K":
            self._write(self._answer(request[:1], request[1:]))
        told = json.loads(request[1:])
        self.is_ready, self._out, self.seen = bool(told["ready"]), bool(told["busy"]), told["seen"]
        self._holders = {(server, nonce) for server, nonce in told["holders"]}

    def _answer(self, kind: bytes, what: bytes) -> bytes:
        name = what.decode() if kind in (b"R", b"D") else ""
        if kind == b"T":
            return b"y" + struct.pack("<q", int(vars(replica)["time"].monotonic() * 1000))
        if kind == b"N":
            try:
                return _frame_of(self.group.next(-1.0))
            except TimedOut:
                return b"n" + bytes(8)
        try:
            if kind == b"U":
                return b"y" if self.group.try_publish(what) else b"n"
            if kind == b"R":
                return b"y" + bytes(self.agent.read(name, 0))
            if kind == b"D":
                self.agent.delete(name)
                return b"y"
            if kind == b"X":
                server, name_, state = what.split(b"\0", 2)
                self._sends.append(self.agent.send(name_.decode(), [server.decode()], state))
                return b"y" + struct.pack("<I", len(self._sends) - 1)
        except RostrumError:
            return b"n"
        assert kind == b"E"
        send = self._sends[struct.unpack("<I", what)[0]]
        return b"n" if not send.done else b"y" if send.good else b"f"

    def _write(self, data: bytes) -> None:
        assert self._program.stdin
        self._program.stdin.write(struct.pack("<I", len(data)) + data)
        self._program.stdin.flush()

    def _read(self) -> bytes:
        assert self._program.stdout
        head = self._program.stdout.read(4)
        assert len(head) == 4, f"the program ended with {self._program.wait()}"
        return self._program.stdout.read(struct.unpack("<I", head)[0])

    def close(self) -> None:
        assert self._program.stdin
        assert self._program.stdout
        self._program.kill()
        self._program.wait()
        self._program.stdin.close()
        self._program.stdout.close()


def _frame_of(message: Message) -> bytes:
    view = message.view
    if not view:
        return b"M" + struct.pack("<Q", message.sn) + message.sender.encode() + b"\0" + message.data
    names = [*view.members, *view.joined, *view.left]
    counts = bytes([len(view.members), len(view.joined), len(view.left), view.anew])
    return b"V" + struct.pack("<Q", view.number) + counts + b"".join(one.encode() + b"\0" for one in names)


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Time of its own; no bound on attempts, as one in four fails here."""
    clock = Clock()
    monkeypatch.setattr("rostrum.client.replica.ATTEMPTS", 1000)
    monkeypatch.setattr("rostrum.client.replica.time", clock)
    return clock


@pytest.fixture
def networks() -> Iterator[list[Network]]:
    """Those that are put here have their programs ended."""
    made: list[Network] = []
    yield made
    for network in made:
        for program in network.programs.values():
            program.close()


@pytest.mark.parametrize("which", range(300))
def test_any_interleaving__all_have_the_same_state_in_the_end(seed: int, which: int, clock: Clock) -> None:
    all_have_the_same_in_the_end(Network(seed * 1000 + which), clock)


@pytest.mark.parametrize("which", range(60))
def test_replicas_in_c_and_python_in_any_interleaving__all_have_the_same_state_in_the_end(
    seed: int, which: int, clock: Clock, networks: list[Network]
) -> None:
    networks.append(Network(seed * 1000 + which, in_c=0.9 if which % 3 == 0 else 0.5))
    all_have_the_same_in_the_end(networks[0], clock)


def all_have_the_same_in_the_end(network: Network, clock: Clock) -> None:
    network.join("h1", "h2")
    for _ in range(STEPS):
        network.act()
    for _ in range(20_000):
        clock.now += 0.01
        if network.sends:
            network.sends[0].end(True)
        for server in network.members:
            network.step(server)
        settled = all(one.is_ready and not one._out for one in network.programs.values())
        if settled and not any(network.at.values()):
            break
    states = {server: one.seen for server, one in network.programs.items()}
    assert all(one.is_ready for one in network.programs.values()), states
    first = next(iter(states.values()))
    assert all(one == first for one in states.values()), states
    holders = [one._holders for one in network.programs.values()]
    assert all(one == holders[0] and len(one) == len(states) for one in holders), holders
    if not network.returned:
        assert first == network.messages[len(network.messages) - len(first) :]


def test_malformed_state__the_next_holder_is_asked() -> None:
    network, givers = Network(1), list[str]()

    def go_on(until: str) -> bool:
        for _ in range(2000):
            for one in list(network.sends):
                if one.receiver == "h3" and not givers:
                    one.data = b"\x01" * 30
                givers.extend([one.sender] if one.receiver == "h3" else [])
                one.end(True)
            for server in network.members:
                network.step(server)
            if network.programs[until].is_ready:
                return True
        return False

    network.join("h1", "h2")
    assert go_on("h1") and go_on("h2")
    network.join("h3")
    assert go_on("h3")
    assert len(set(givers)) == 2
    program = network.programs["h3"]
    assert isinstance(program, Log)
    assert "malformed" in program._why


def test_garbage_as_a_state__is_an_error() -> None:
    network = Network(1)
    network.join("h1")
    draw = random.Random(1)
    for _ in range(2000):
        data = draw.randbytes(draw.randrange(80))
        try:
            program = network.programs["h1"]
            assert isinstance(program, Log)
            program._read_table(memoryview(data))
        except RostrumError as error:
            assert error.code == Code.PROTOCOL
