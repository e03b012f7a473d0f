"""rostrumd short of everything: descriptors, memory, room for objects, somebody who reads its log. Then there is enough
again, and all is well."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rostrum.client import RostrumError, wire

from tests.agent_e2e.agents import ROSTRUMD, WAIT_S, Agent, App, World, content, wait_until
from tests.agent_e2e.network import Network, network
from tests.agent_e2e.test_strangers import CONTROL_PORT, inside

SIZE = 300_000


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(3) as it:
        yield it


def descriptors(agent: Agent) -> set[int]:
    return {int(name) for name in os.listdir(f"/proc/{agent.process.pid}/fd")}


@contextlib.contextmanager
def limited(agent: Agent, kind: int, value: int) -> Iterator[None]:
    """The running agent under a limit."""
    before = resource.prlimit(agent.process.pid, kind)
    resource.prlimit(agent.process.pid, kind, (value, before[1]))
    try:
        yield
    finally:
        resource.prlimit(agent.process.pid, kind, before)


def is_well(lab: World, data_id: int) -> None:
    """A transfer to the agents of h2 and h3, and their answers."""
    data = content(SIZE, data_id)
    with App(lab.agents["h1"]) as sender:
        sender.add(data_id, data)
        result = sender.send(data_id, ["h2", "h3"])
        assert result.ok, result
        sender.delete(data_id)
    for name in ("h2", "h3"):
        with App(lab.agents[name]) as app:
            assert app.read(data_id) == data
            app.delete(data_id)


def waits(agent: Agent) -> int:
    """How often it has waited for something."""
    text = Path(f"/proc/{agent.process.pid}/status").read_text()
    return int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0])


def test_table_of_descriptors_is_large_from_the_start(lab: World) -> None:
    """The kernel makes a process with threads wait for all processors when it makes it larger."""
    agent = lab.start("h1")
    status = Path(f"/proc/{agent.process.pid}/status").read_text().splitlines()
    sizes = dict(line.split(":", 1) for line in status)
    most = resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE)[1]
    assert int(sizes["FDSize"]) >= min(8192, most) // 2


def test_out_of_descriptors(lab: World) -> None:
    """No door spins, each says once what to do, transfers under way are not hurt, and all doors open again."""
    metrics = lab.folder / "metrics.sock"
    lab.start("h1")
    lab.start("h3")
    agent = lab.start("h2", "--metrics", str(metrics))
    is_well(lab, 1)
    at_rest = len(descriptors(agent))
    assert {0, 1, 2} <= descriptors(agent)  # no other number is below the limit, whichever the agent closes meanwhile
    address = lab.net.hosts["h2"].address
    with limited(agent, resource.RLIMIT_NOFILE, 3), contextlib.ExitStack() as callers:
        for kind, where in ((socket.SOCK_SEQPACKET, str(agent.socket)), (socket.SOCK_STREAM, str(metrics))):
            caller = callers.enter_context(socket.socket(socket.AF_UNIX, kind))
            caller.connect(where)
        callers.enter_context(
            inside(lab.net.hosts["h3"].namespace, lambda: socket.create_connection((address, CONTROL_PORT)))
        )
        doors = ("the socket of applications", "the page of metrics", "the control channel")
        for door in doors:
            assert "Raise LimitNOFILE=" in agent.wait_log(f"nobody can be accepted at {door}")
        used = agent.cpu_s()
        before = waits(agent)
        wait_until(lambda: waits(agent) > before + 2, "the loop to wait for events")  # one that spins never does
        assert agent.cpu_s() - used < 1.0
        for door in doors:
            assert sum(f"nobody can be accepted at {door}" in line for line in agent.log) == 1
    is_well(lab, 2)
    wait_until(lambda: len(descriptors(agent)) <= at_rest, "as many descriptors as before")


def test_out_of_memory(lab: World) -> None:
    """What needs memory that is not there fails with a cause; the agent and what it has go on."""
    lab.start_all()
    is_well(lab, 1)
    agent = lab.agents["h2"]
    pages = int(Path(f"/proc/{agent.process.pid}/statm").read_text().split()[0])
    data = content(64_000_000, 3)
    with App(lab.agents["h1"]) as sender:
        sender.add(3, data)
        with limited(agent, resource.RLIMIT_AS, pages * resource.getpagesize() + (1 << 20)):
            result = sender.send(3, ["h2", "h3"])
            states = {receiver.name: receiver.state for receiver in result.receivers}
            assert states == {"h2": "failed", "h3": "done"}, result
            cause = next(receiver.cause for receiver in result.receivers if receiver.name == "h2")
            assert "memory" in cause or "room" in cause, cause
            assert agent.process.poll() is None
        assert sender.send(3, ["h2"]).ok
    is_well(lab, 4)


def test_the_tmpfs_of_the_store_is_full(lab: World) -> None:
    """Somebody else has filled it: objects that come in are refused with the cause, until there is room again."""
    folder = lab.folder / "h2"
    folder.mkdir()
    (folder / "objects").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=0710", "none", folder / "objects"], check=True)
    try:
        lab.start_all()
        is_well(lab, 1)
        ballast = folder / "objects" / ".ballast"
        with ballast.open("wb") as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        data = content(4_000_000, 2)
        with App(lab.agents["h1"]) as sender:
            sender.add(2, data)
            result = sender.send(2, ["h2", "h3"])
            states = {receiver.name: receiver.state for receiver in result.receivers}
            assert states == {"h2": "failed", "h3": "done"}, result
            cause = next(receiver.cause for receiver in result.receivers if receiver.name == "h2")
            assert "room" in cause or "full" in cause, cause
            with App(lab.agents["h2"]) as app, pytest.raises(RostrumError, match="do not fit"):  # they are told too
                app.call(wire.CREATE, struct.pack("<Q", 4_000_000))
            ballast.unlink()
            assert sender.send(2, ["h2"]).ok
        is_well(lab, 3)
    finally:
        for agent in lab.agents.values():
            agent.stop()
        subprocess.run(["umount", "-l", folder / "objects"], check=True)


def test_the_tmpfs_has_no_room_for_the_reserve(lab: World) -> None:
    """The agent says so when it starts, once, and has what there is."""
    folder = lab.folder / "h2"
    (folder / "objects").mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=0710", "none", folder / "objects"], check=True)
    try:
        agent = lab.start("h2", "--reserve", "64M")
        told = [line for line in agent.log if "of 67108864 bytes of --reserve are ready" in line]
        assert len(told) == 1 and f"{folder / 'objects'} has no room for more" in told[0], agent.log
    finally:
        for agent in lab.agents.values():
            agent.stop()
        subprocess.run(["umount", "-l", folder / "objects"], check=True)


def wait_for_line(log: int, text: bytes) -> None:
    """In what a pipe has. An agent that says it no more fails the test, and does not keep it."""
    seen, until = b"", time.monotonic() + WAIT_S
    while text not in seen:
        assert select.select([log], [], [], max(0.0, until - time.monotonic()))[0], f"no {text!r}: {seen[-2000:]!r}"
        more = os.read(log, 1 << 16)
        assert more, f"it ended without {text!r}: {seen[-2000:]!r}"
        seen = (seen + more)[-(1 << 20) :]


def test_nobody_reads_its_log(lab: World) -> None:
    """stderr is a pipe that is full: transfers go on. When somebody reads again, lines come again."""
    lab.start("h1")
    lab.start("h3")
    host, folder = lab.net.hosts["h2"], lab.folder / "h2"
    folder.mkdir()
    (folder / "objects").mkdir()
    command = [
        *host.namespace.prefix(), str(ROSTRUMD), "--server", "h2", "--interface", host.interface, "--address",
        host.address, "--socket", str(folder / "agent.sock"), "--store", str(folder / "objects"), "--nic-rate", "1G",
        "--log-level", "debug",
    ]  # fmt: skip
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x\n" * 2048)
    os.set_blocking(writing, True)
    with subprocess.Popen(command, stderr=writing) as process, os.fdopen(reading, "rb", buffering=0) as log:
        os.close(writing)
        try:
            wait_until((folder / "agent.sock").exists, "its socket")
            data = content(SIZE, 1)
            with App(lab.agents["h1"]) as sender:
                sender.add(1, data)
                assert sender.send(1, ["h2", "h3"]).ok
                for _ in range(5):
                    assert sender.send(1, ["h2"]).ok
            wait_for_line(log.fileno(), b"agent started")
            process.terminate()
            wait_for_line(log.fileno(), b"agent ended")
            assert process.wait(60) == 0
        finally:
            process.kill()
