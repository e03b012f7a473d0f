"""Managers as processes of their own, for tests of what a process may run out of."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from rostrum.controller.northbound.thrift.codec import FRAME_MAX, decode, encode, idl

BOUND_S = 60.0
ANY_PORTS = ("--listen", "127.0.0.1", "--thrift-port", "0", "--rest-port", "0", "--openflow-port", "0")
OPENFLOW_HELLO = bytes.fromhex("0400000800000001")


class Program:
    """A manager under way. `facts`: manager.json."""

    def __init__(self, run: Path, process: subprocess.Popen[bytes]) -> None:
        self.run, self.process = run, process
        self.facts: dict[str, Any] = {}

    def started(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            self.facts = json.loads((self.run / "manager.json").read_text())
        return bool(self.facts.get("pid") == self.process.pid)

    @property
    def log(self) -> str:
        file = self.run / "manager.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def until(self, happened: Callable[[], Any], what: str) -> Any:
        """What `happened` returns once that is true. Fails when the manager ends, or after a bound."""
        end = time.monotonic() + BOUND_S
        while True:
            found = happened()
            if found:
                return found
            assert self.process.poll() is None, f"the manager ended while waiting for: {what}\n{self.log[-3000:]}"
            assert time.monotonic() < end, f"not within {BOUND_S:g} s: {what}\n{self.log[-3000:]}"
            time.sleep(0.02)

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def rest(self, method: str, path: str, body: Any = None, by_socket: bool = False) -> httpx.Response:
        """Raises httpx.HTTPError."""
        transport = httpx.HTTPTransport(uds=str(self.run / "manager.sock")) if by_socket else None
        base = "http://manager" if by_socket else f"http://127.0.0.1:{self.facts['rest_port']}"
        with httpx.Client(base_url=base, transport=transport, trust_env=False, timeout=10.0) as client:
            return client.request(method, path, json=body)

    def rest_answers(self, by_socket: bool = False) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return self.rest("GET", "/v1/health", by_socket=by_socket).status_code in (200, 503)
        return False

    def welcomes(self, server: str = "h1") -> bool:
        """Whether an agent is welcome."""
        hello = idl.AgentInfo(version=idl.VERSION, server=server, boot_id=1, control_port=7071, live_paths=[])
        place = ("127.0.0.1", self.facts["thrift_port"])
        with contextlib.suppress(OSError, EOFError), socket.create_connection(place, timeout=10) as agent:
            agent.sendall(encode("Manager", "hello", {"info": hello}))
            length = int.from_bytes(_exactly(agent, 4), "big")
            assert length <= FRAME_MAX
            return decode("Agent", _exactly(agent, length))[0] == "welcome"
        return False

    def greets_switches(self) -> bool:
        place = ("127.0.0.1", self.facts["openflow_port"])
        with contextlib.suppress(OSError, EOFError), socket.create_connection(place, timeout=10) as switch:
            switch.sendall(OPENFLOW_HELLO)
            return _exactly(switch, 2) == OPENFLOW_HELLO[:2]
        return False

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(BOUND_S)


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


@contextlib.contextmanager
def program(
    run: Path,
    *options: str,
    topology: str = "hybrid-4x2",
    limits: dict[int, int] | None = None,
    stderr: int | None = None,
    wait: bool = True,
) -> Iterator[Program]:
    """`limits`: by resource, soft and hard. `stderr`: default manager.log in `run`."""
    run.mkdir(parents=True, exist_ok=True)

    # Not by preexec_fn: that forks, and other tests of this process may have threads of gRPC that a fork upsets.
    names = {resource.RLIMIT_NOFILE: "nofile", resource.RLIMIT_AS: "as", resource.RLIMIT_FSIZE: "fsize"}
    limited = ["prlimit", *(f"--{names[which]}={value}:{value}" for which, value in limits.items())] if limits else []
    command = [
        *limited,
        sys.executable,
        "-m",
        "rostrum.controller",
        "--topology",
        topology,
        "--run",
        str(run),
        *ANY_PORTS,
    ]
    with (run / "manager.log").open("ab") as log:
        process = subprocess.Popen([*command, *options], stderr=log if stderr is None else stderr)
    made = Program(run, process)
    try:
        if wait:
            made.until(made.started, "manager.json")
        yield made
    finally:
        process.kill()
        process.wait(BOUND_S)
