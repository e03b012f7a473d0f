"""The agent's application interface, real, with a fake daemon behind it (tests/agent/daemon/api/api_testd.c)."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from rostrum.client import Agent

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ROSTRUM_BUILD", ROOT / "build" / "agent"))
PROGRAM = BUILD / "tests" / "agent" / "api_testd"
APP = UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")
OTHER_APP = UUID("0c0ffee0-7dec-11d0-a765-00a0c91e6bf6")
QUOTA = 32 << 20


@dataclass
class Server:
    """A running test server and its log."""

    socket: Path
    store: Path
    process: subprocess.Popen[str]
    log: Path

    def agent(self, app: UUID = APP, process: str = "test") -> Agent:
        return Agent(self.socket, app, process=process)

    def close(self) -> int:
        """Asks it to end; its exit status, which is not 0 if a sanitizer found something."""
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
        if self.process.stdout:
            self.process.stdout.close()
        return self.process.wait(60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)


@pytest.fixture
def start() -> Iterator[Callable[..., Server]]:
    """Starts servers, each in a folder of its own on tmpfs."""
    running: list[Server] = []

    def start_one(quota: int = QUOTA, max_queued: int = 0, folder: Path | None = None) -> Server:
        if not PROGRAM.exists():
            pytest.fail(f"{PROGRAM} is not built: run make build")
        folder = folder or Path(tempfile.mkdtemp(prefix="rostrum-client-", dir="/dev/shm"))
        (folder / "objects").mkdir(exist_ok=True)
        log = folder / "log"
        with log.open("a") as output:
            process = subprocess.Popen(
                [PROGRAM, folder / "agent.sock", folder / "objects", str(quota), str(max_queued)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True,
            )  # fmt: skip
        server = Server(folder / "agent.sock", folder / "objects", process, log)
        assert process.stdout
        if process.stdout.readline() != "ready\n":
            server.close()
            raise AssertionError(log.read_text())
        running.append(server)
        return server

    yield start_one
    statuses = [(server.close(), server.log.read_text()) for server in running]
    for server in running:
        shutil.rmtree(server.socket.parent, ignore_errors=True)
    for status, text in statuses:
        assert status in (0, -9), text


@pytest.fixture
def server(start: Callable[..., Server]) -> Server:
    return start()


@pytest.fixture
def agent(server: Server) -> Iterator[Agent]:
    with server.agent() as connected:
        yield connected
