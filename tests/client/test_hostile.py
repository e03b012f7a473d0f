"""Clients that die, send garbage, or do not read: the others do not notice."""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from rostrum.client import Agent, NotFound, RostrumError, Status, TimedOut, wire

from tests.client.conftest import APP, Server

WAIT_S = 60.0


def raw(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.settimeout(WAIT_S)
    client.connect(str(path))
    return client


def registered(path: Path) -> socket.socket:
    client = raw(path)
    client.send(wire.request(wire.REGISTER, 1, APP.bytes + wire.text("raw")))
    assert wire.parse(client.recv(wire.MESSAGE_MAX)).type == wire.REGISTERED
    return client


def wait_until(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until, f"no {what} in {WAIT_S} s"


def fds_of(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def test_what_is_no_message_ends_the_connection_with_a_reason(server: Server, agent: Agent) -> None:
    for garbage in (b"\0", b"GET / HTTP/1.1\r\n", os.urandom(4000), b"\xff" * 65536):
        client = raw(server.socket)
        client.send(garbage)
        answer = wire.parse(client.recv(wire.MESSAGE_MAX))
        assert (answer.type, answer.tag) == (wire.ERROR, 0)
        assert client.recv(10) == b""
        client.close()
    client = raw(server.socket)
    client.send(wire.HEADER.pack(wire.MAGIC, 9, wire.STATUS, 0, 5))
    assert "version 9" in wire.parse(client.recv(wire.MESSAGE_MAX)).value[1]
    client.close()
    agent.add(1, b"others go on")


def test_random_requests_are_answered_or_refused(server: Server, agent: Agent, rng: random.Random) -> None:
    """Good headers with random types and bodies, descriptors thrown in: the answers' tags fit, nothing leaks."""
    before = fds_of(server)
    for _ in range(20):
        client = registered(server.socket)
        for _ in range(25):
            kind = rng.choice([rng.randrange(1, 256), rng.randrange(1, 13), wire.ADD, wire.SEND])
            body = rng.randbytes(rng.choice([0, 4, 8, 12, 16, rng.randrange(100), rng.randrange(4000)]))
            if kind == wire.READ:
                body = rng.randbytes(8) + struct.pack("<I", 1)
            if kind == wire.CREATE:
                body = struct.pack("<Q", rng.choice([0, 1, 5000, 2**40, 2**64 - 1]))
            fd = os.memfd_create("x")
            extra = [fd] * rng.choice([0, 0, 1, 3])
            socket.send_fds(client, [wire.HEADER.pack(wire.MAGIC, 1, kind, 0, 7) + body], extra)
            os.close(fd)
            data, fds, _, _ = socket.recv_fds(client, wire.MESSAGE_MAX, 8)
            for got in fds:
                os.close(got)
            answer = wire.parse(data)
            while answer.type in wire.UNFINISHED:
                answer = wire.parse(client.recv(wire.MESSAGE_MAX))
            assert answer.tag in (0, 7)
            if kind == wire.UNREGISTER:
                break
        client.close()
    wait_until(lambda: agent.status().clients == 1, "end of the clients")
    for row in agent.status().objects:
        if row.complete:
            agent_of = Agent(server.socket, row.app, process="tidy")
            agent_of.delete(row.data_id)
            agent_of.close()
    wait_until(lambda: agent.status().store_used == 0, "empty store")
    wait_until(lambda: fds_of(server) == before, "closed descriptors")


def test_a_killed_client_loses_what_it_had_not_finished(server: Server, agent: Agent) -> None:
    child = os.fork()
    if child == 0:
        doomed = server.agent(process="doomed")
        doomed.create(1 << 20)
        doomed.add(1, b"an object is the application's")
        doomed.send(1, ["slow"])
        doomed._connection.start(wire.READ, struct.pack("<QI", 5, 60_000), "read")
        doomed.status()
        os._exit(0)
    os.waitpid(child, 0)
    wait_until(lambda: agent.status().clients == 1, "end of the client")
    now = agent.status()
    assert [row.data_id for row in now.objects] == [1] and now.store_used == 4096  # its created file went
    assert [row.data_id for row in now.transfers] == [1]  # its send goes on
    agent.cancel(1)
    agent.add(5, b"nobody waits for this any more")
    agent.delete(5)
    agent.delete(1)
    assert "doomed" in server.log.read_text()


def test_a_client_that_does_not_read_is_disconnected(start: Callable[..., Server]) -> None:
    server = start(max_queued=100_000)
    with server.agent() as agent:
        agent.add(1, b"x")
        lazy = registered(server.socket)
        lazy.setblocking(False)
        tag = 1
        until = time.monotonic() + WAIT_S
        while "does not read" not in server.log.read_text():
            tag += 1
            try:
                lazy.send(wire.request(wire.STATUS, tag))
            except BlockingIOError:
                time.sleep(
                    0.001
                )  # its requests wait in the socket: the agent is being slowed by nothing but its own pace
            except OSError:
                break
            assert time.monotonic() < until
            assert tag % 500 or agent.status().server == "h1"
        assert "does not read" in server.log.read_text()
        assert agent.status().server == "h1"
        lazy.close()


def test_tags_in_use_are_refused(server: Server) -> None:
    client = registered(server.socket)
    client.send(wire.request(wire.READ, 7, struct.pack("<QI", 5, 200)))
    client.send(wire.request(wire.READ, 7, struct.pack("<QI", 6, 200)))
    answers = [wire.parse(client.recv(wire.MESSAGE_MAX)).value for _ in range(2)]
    assert "in use" in answers[0][1] and "object 5" in answers[1][1]
    client.close()


def test_too_many_waiting_requests_are_refused(server: Server, agent: Agent) -> None:
    calls = [
        agent._connection.start(wire.READ, struct.pack("<QI", 1000 + number, 300), "read")[1] for number in range(80)
    ]
    fields = []
    for call in calls:
        with pytest.raises(RostrumError) as caught:
            call.result(WAIT_S)
        fields.append(str(caught.value))
    assert sum("waiting already" in line for line in fields) == 16
    with pytest.raises(TimedOut):
        agent.read(5, wait=0.001)


def test_too_many_clients_are_turned_away_with_a_reason(server: Server) -> None:
    clients = [raw(server.socket) for _ in range(16)]
    for client in clients:
        client.send(wire.request(wire.STATUS, 1))
        assert client.recv(10)
    with pytest.raises(RostrumError, match="maximum of clients"):
        server.agent()
    clients.pop().close()
    log_says_left = lambda: "left" in server.log.read_text()  # noqa: E731
    wait_until(log_says_left, "free place")
    with server.agent() as agent, pytest.raises(NotFound):
        agent.delete(1)
    for client in clients:
        client.close()


def test_requests_before_register(server: Server) -> None:
    client = raw(server.socket)
    client.send(wire.request(wire.DELETE, 3, bytes(8)))
    assert wire.parse(client.recv(wire.MESSAGE_MAX)).value == (2, "register with the application's id first")
    client.send(wire.request(wire.REGISTER, 4, bytes(16) + wire.text("x")))
    assert "all zero" in wire.parse(client.recv(wire.MESSAGE_MAX)).value[1]
    for name in (b"\x00", b"\x02\xff\xfe", b"\x01\n"):
        client.send(wire.HEADER.pack(wire.MAGIC, 1, wire.REGISTER, 0, 5) + APP.bytes + name)
        assert wire.parse(client.recv(wire.MESSAGE_MAX)).type == wire.ERROR
    client.close()


def test_a_file_that_is_shortened_behind_the_agents_back_harms_nobody(agent: Agent) -> None:
    fd = os.memfd_create("shrinking")
    os.truncate(fd, 4 << 20)
    agent.add(1, fd)
    os.truncate(fd, 0)
    with pytest.raises(RostrumError, match="shorter"), agent.read(1) as copy:
        copy.bytes()
    assert agent.send(1, ["h3"]).wait(WAIT_S).ok
    os.close(fd)
    agent.delete(1)


def status_as(server: Server, uid: int, app: UUID | None) -> Status:
    """STATUS of a program of that user, which is told by the moment of connecting."""
    os.seteuid(uid)
    try:
        agent = server.agent(app or UUID(int=77))
    finally:
        os.seteuid(0)
    with agent:
        return agent.status()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_status_tells_application_ids_to_those_who_may_know_them(server: Server, agent: Agent) -> None:
    agent.add(1, b"mine")
    server.socket.parent.chmod(0o711)
    server.socket.chmod(0o666)
    handle = agent.send(1, ["slow1"])
    assert next(handle.events(20)).subject == "requested"
    hidden, known = UUID(int=0), APP
    for uid, app, seen in ((0, None, known), (65534, None, hidden), (65534, APP, known)):
        now = status_as(server, uid, app)
        assert [row.app for row in now.objects] == [seen] and [row.app for row in now.transfers] == [seen], (uid, app)
    handle.cancel()
    handle.wait(60)


def test_nobody_else_can_list_or_read_the_store(server: Server, agent: Agent) -> None:
    agent.add(1, b"mine")
    [folder] = [path for path in server.store.iterdir() if path.is_dir()]
    [name] = folder.iterdir()
    modes = [path.stat().st_mode & 0o777 for path in (server.socket, server.store, folder, name)]
    assert modes == [0o660, 0o710, 0o710, 0o440]
