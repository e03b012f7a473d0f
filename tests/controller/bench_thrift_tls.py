"""What agents by TLS cost in processor time: `python -m tests.controller.bench_thrift_tls` prints medians.

A handshake, at each end; then a call of 300 bytes in and an answer of 300 bytes out, at the manager, beyond what it
costs without TLS. Keys are of P-256, as docs/care.md makes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from rostrum.controller.keyvalue import Sparing
from rostrum.controller.northbound.thrift import tls

from tests.controller.certificates import Authority

HANDSHAKES, CALLS, REPEATS = 300, 5_000, 5
CALL = bytes(300)


class Wire:
    """The TCP connection: what the manager writes."""

    def __init__(self) -> None:
        self.out: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.out.append(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def abort(self) -> None:
        raise AssertionError("the manager ended the connection")


class Answering:
    """An agent's connection at the manager that answers each call."""

    server = "h1"

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(CALL)

    def connection_lost(self, error: Exception | None) -> None:
        """Nothing is kept."""


def shaken(door: tls.TlsDoor, context: ssl.SSLContext) -> tuple[int, int, tls.TlsConnection, Wire, Any]:
    """Nanoseconds of the manager and the agent, and the ends of the connection."""
    wire: Any = Wire()
    connection = door.wrap(Answering())
    connection.connection_made(wire)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    agent = context.wrap_bio(incoming, outgoing)
    began = time.process_time_ns()
    here = 0
    while connection not in door.open:
        with contextlib.suppress(ssl.SSLWantReadError):
            agent.do_handshake()
        at = time.process_time_ns()
        if outgoing.pending:
            connection.data_received(outgoing.read())
        here += time.process_time_ns() - at
        for data in wire.out:
            incoming.write(data)
        wire.out.clear()
    return here, time.process_time_ns() - began - here, connection, wire, (agent, outgoing)


async def measure(folder: Path) -> dict[str, float]:
    ours = Authority(folder, "ours")
    door = tls.TlsDoor((*ours.sign("manager"), folder / "ours-ours.pem"), Sparing(1, 1.0))
    context = ssl.create_default_context(cafile=folder / "ours-ours.pem")
    context.check_hostname = False
    context.load_cert_chain(*ours.sign("h1"))
    both = [shaken(door, context)[:2] for _ in range(HANDSHAKES)]
    _, _, connection, wire, (agent, outgoing) = shaken(door, context)
    calls = []
    for _ in range(REPEATS):
        records = []
        for _ in range(CALLS):
            agent.write(CALL)
            records.append(outgoing.read())
        began = time.process_time_ns()
        for record in records:
            connection.data_received(record)
        calls.append((time.process_time_ns() - began) / CALLS)
        assert len(wire.out) == CALLS
        wire.out.clear()
    return {
        "handshake_manager_ms": statistics.median(here for here, _ in both) / 1e6,
        "handshake_agent_ms": statistics.median(there for _, there in both) / 1e6,
        "call_and_answer_us": statistics.median(calls) / 1e3,
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, value in asyncio.run(measure(Path(folder))).items():
            print(f"{name:22} {value:.2f}")


if __name__ == "__main__":
    main()
