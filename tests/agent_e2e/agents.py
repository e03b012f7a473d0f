"""rostrumd under test, and an application that speaks to it."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rostrum.client import wire
from rostrum.client.values import Event, RostrumError, SendResult, Status, error_of

from tests.agent_e2e.fake_manager import FakeManager, running
from tests.agent_e2e.network import Host, Namespace, Network

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ROSTRUM_BUILD", ROOT / "build" / "agent"))
ROSTRUMD = BUILD / "agent" / "daemon" / "rostrumd"
WAIT_S = 60.0
APP = uuid.UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff")


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = WAIT_S) -> Any:
    """Waits for a condition that nothing signals."""
    until = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < until, f"no {what} in {timeout_s} s"
        time.sleep(0.01)
    return value


def content(size: int, seed: int) -> bytes:
    """Random bytes, the same for the same seed."""
    return random.Random(seed).randbytes(size)


class Agent:
    """One rostrumd on one host of the network."""

    def __init__(self, host: Host, folder: Path, *options: str, manager: str | None = None) -> None:
        self.host = host
        self.folder = folder
        self.socket = folder / "agent.sock"
        self.store = folder / "objects"
        self.store.mkdir(exist_ok=True)
        self.log: list[str] = []
        self._changed = threading.Condition()
        command = [
            *host.namespace.prefix(), str(ROSTRUMD), "--server", host.name, "--interface", host.interface,
            "--address", host.address, "--socket", str(self.socket), "--store", str(self.store),
            "--quota", "256M", "--nic-rate", "1G",
        ]  # fmt: skip
        command += ["--manager", manager] if manager else []
        self.process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, bufsize=1)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait_log("agent started")

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.log.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait_log(self, text: str, timeout_s: float = WAIT_S) -> str:
        """The first line of the log that has the text."""
        until = time.monotonic() + timeout_s
        with self._changed:
            while True:
                for line in self.log:
                    if text in line:
                        return line
                left = until - time.monotonic()
                gone = self.process.poll() is not None and not self._reader.is_alive()
                assert left > 0 and not gone, f"no {text!r} in the log of {self.host.name}:\n" + "\n".join(
                    self.log[-30:]
                )
                self._changed.wait(min(left, 0.2))

    def kill(self) -> None:
        """As a power failure would."""
        self.process.kill()
        self.process.wait(WAIT_S)

    def pause(self, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Its process stands still for so long, as in a virtual machine that is moved."""
        until = time.monotonic() + seconds
        self.process.send_signal(signal.SIGSTOP)
        try:
            meanwhile()
            while time.monotonic() < until:
                time.sleep(0.01)
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """Orderly; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        return status

    def objects(self) -> list[str]:
        """What other processes can see in its store."""
        return sorted(str(path.relative_to(self.store)) for path in self.store.rglob("*") if path.is_file())

    def cpu_s(self) -> float:
        """Processor time it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_file(data: bytes) -> int:
    """A descriptor, which the caller closes."""
    fd = os.memfd_create("object")
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    return fd


class App:
    """An application process, registered with an agent. Not thread-safe; other calls' answers are kept."""

    def __init__(self, agent: Agent, app: uuid.UUID = APP, process: str = "test") -> None:
        self.agent = agent
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(str(agent.socket))
        self._tags = itertools.count(1)
        self._kept: dict[int, list[wire.Answer]] = {}
        name = process.encode()
        self.call(wire.REGISTER, app.bytes + bytes([len(name)]) + name)

    def __enter__(self) -> App:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for answers in self._kept.values():
            for fd in itertools.chain.from_iterable(answer.fds for answer in answers):
                os.close(fd)
        self._kept.clear()
        self.socket.close()

    def start(self, kind: int, body: bytes = b"", fds: list[int] | None = None) -> int:
        """Sends a request; its tag."""
        tag = next(self._tags)
        socket.send_fds(self.socket, [wire.request(kind, tag, body)], fds or [])
        return tag

    def next(self, tag: int, timeout_s: float = WAIT_S) -> wire.Answer:
        """The next answer to a request.

        Raises:
            RostrumError: the agent says it failed.
        """
        self.socket.settimeout(timeout_s)
        while not self._kept.get(tag):
            data, fds, _, _ = socket.recv_fds(self.socket, wire.MESSAGE_MAX, 4)
            assert data, f"the agent of {self.agent.host.name} closed the connection"
            answer = wire.parse(data)
            answer.fds = list(fds)
            self._kept.setdefault(answer.tag, []).append(answer)
        answer = self._kept[tag].pop(0)
        if answer.type == wire.ERROR:
            raise error_of(*answer.value)
        return answer

    def call(self, kind: int, body: bytes = b"", fds: list[int] | None = None) -> wire.Answer:
        """One request, one answer."""
        return self.next(self.start(kind, body, fds))

    def add(self, data_id: int, data: bytes) -> None:
        """Makes an object known to the agent."""
        fd = memory_file(data)
        try:
            self.call(wire.ADD, struct.pack("<Q", data_id), [fd])
        finally:
            os.close(fd)

    def start_send(
        self,
        data_id: int,
        receivers: list[str],
        *,
        events: bool = False,
        wait_ms: int = 0,
        deadline_ms: int = 0,
        fd: int | None = None,
        protocol: str = "auto",
        options: str = "",
    ) -> int:
        """Begins a send, of an object or of a file that is none yet; the tag for finish_send."""
        flags = (wire.SEND_EVENTS if events else 0) | wire.SEND_PROTOCOLS[protocol]
        body = wire.send_body(data_id, receivers, flags, wait_ms, deadline_ms, options)
        return self.start(wire.SEND, body, None if fd is None else [fd])

    def finish_send(self, tag: int, timeout_s: float = WAIT_S) -> tuple[SendResult, list[Event]]:
        """Waits for the end of a send: its result with the receivers, and its events."""
        events, receivers = [], []
        while True:
            answer = self.next(tag, timeout_s)
            if answer.type == wire.EVENT:
                events.append(answer.value)
            elif answer.type == wire.RECEIVERS:
                receivers += answer.value
            else:
                assert answer.type == wire.SENT
                result = answer.value
                object.__setattr__(result, "receivers", receivers)
                return result, events

    def send(self, data_id: int, receivers: list[str], **options: Any) -> SendResult:
        """Sends and waits."""
        return self.finish_send(self.start_send(data_id, receivers, **options))[0]

    def read(self, data_id: int, wait_ms: int = 10000) -> bytes:
        """The object, once it is here."""
        return self.finish_read(self.start_read(data_id, wait_ms))

    def start_read(self, data_id: int, wait_ms: int = 10000) -> int:
        return self.start(wire.READ, struct.pack("<QI", data_id, wait_ms))

    def finish_read(self, tag: int) -> bytes:
        answer = self.next(tag)
        with open(answer.fds[0], "rb") as file:
            return file.read()

    def cancel(self, data_id: int) -> None:
        self.call(wire.CANCEL, struct.pack("<Q", data_id))

    def leave(self, data_id: int) -> None:
        self.call(wire.LEAVE, struct.pack("<Q", data_id))

    def delete(self, data_id: int) -> None:
        self.call(wire.DELETE, struct.pack("<Q", data_id))

    def status(self) -> tuple[Status, list[Any], list[Any]]:
        """The agent's state, its transfers, its objects."""
        tag = self.start(wire.STATUS)
        transfers: list[Any] = []
        objects: list[Any] = []
        while True:
            answer = self.next(tag)
            if answer.type == wire.STATE:
                return answer.value, transfers, objects
            (transfers if answer.type == wire.TRANSFERS else objects).extend(answer.value)


class InsideManager(FakeManager):
    """A fake manager whose sockets are in a namespace."""

    def __init__(self, namespace: Namespace, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.namespace = namespace

    async def start(self) -> None:
        self.namespace.enter_thread()  # this thread runs nothing but the manager's loop
        await super().start()


class World:
    """A network with its manager and agents, and a folder for them on a tmpfs."""

    def __init__(self, net: Network, manager: InsideManager, folder: Path) -> None:
        self.net = net
        self.manager = manager
        self.folder = folder
        self.agents: dict[str, Agent] = {}
        self._apps: list[App] = []

    @property
    def endpoint(self) -> str:
        return f"{self.manager.listen[0]}:{self.manager.listen[1]}"

    def start(self, name: str, *options: str, manager: bool = True) -> Agent:
        """Starts the agent of a host."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        agent = Agent(self.net.hosts[name], folder, *options, manager=self.endpoint if manager else None)
        self.agents[name] = agent
        if manager:
            agent.wait_log("manager up=1")
        return agent

    def start_all(self, *options: str) -> None:
        for name in self.net.hosts:
            self.start(name, *options)

    def app(self, name: str, process: str = "test") -> App:
        """A new application process on a host."""
        app = App(self.agents[name], process=process)
        self._apps.append(app)
        return app

    def close(self) -> None:
        for app in self._apps:
            app.close()
        for agent in self.agents.values():
            if agent.process.poll() is None:
                agent.kill()
            agent._reader.join(WAIT_S)
            assert agent.process.stderr is not None
            if not agent._reader.is_alive():  # or closing waits for it, and no signal ends that
                agent.process.stderr.close()
            print(f"-- {agent.host.name} said:", *agent.log[-60:], sep="\n")  # shown with a test that failed


@contextlib.contextmanager
def world(net: Network) -> Iterator[World]:
    """Manager and room for agents on a network; all of it gone afterwards, every log checked for sanitizers' text."""
    folder = Path(tempfile.mkdtemp(prefix="rostrum-e2e-", dir="/dev/shm"))
    servers = {name: (host.address, 7071) for name, host in net.hosts.items()}
    manager = InsideManager(net.middle, servers, (Network.MANAGER, 0))
    try:
        with running(manager):
            it = World(net, manager, folder)
            try:
                yield it
            finally:
                it.close()
        for agent in it.agents.values():
            bad = [line for line in agent.log if "Sanitizer" in line or "runtime error" in line]
            assert not bad, "\n".join(agent.log)
    finally:
        shutil.rmtree(folder)


def readable(descriptor: socket.socket, timeout_s: float = WAIT_S) -> bool:
    """Something came, or the other side closed."""
    return bool(select.select([descriptor], [], [], timeout_s)[0])


__all__ = ["APP", "Agent", "App", "RostrumError", "World", "content", "readable", "wait_until", "world"]


def with_metrics(lab: World, name: str) -> tuple[str, str]:
    return ("--metrics", str(lab.folder / f"{name}.metrics"))


def metrics(lab: World, name: str) -> list[str]:
    """The lines of an agent's page that was started with_metrics."""
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(WAIT_S)
        one.connect(str(lab.folder / f"{name}.metrics"))
        one.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        page = b"".join(iter(lambda: one.recv(1 << 16), b"")).decode()
    return page.partition("\r\n\r\n")[2].splitlines()


def counter(lab: World, name: str, what: str) -> int:
    return next(int(float(line.split()[-1])) for line in metrics(lab, name) if what in line.split(" ")[0])
