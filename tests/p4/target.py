"""Targets that the P4 vectors run on: their programs, ports that frames go through, and the control connection.

    harness socket <-> h3 =veth= p3 <-> port 3 of the target

All interfaces are in a network namespace of the target's own; gRPC goes over a Unix socket, which is reached from here.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.agent_e2e.network import Namespace
from tests.p4.control import Control
from tests.tidy.tree import ROOT

PROGRAM, INFO = ROOT / "p4src/build/tor.json", ROOT / "p4src/build/tor.p4info.txtpb"
PORTS = range(1, 7)
DEVICE_ID = 1
CPU_PORT = 510
MTU = 9000
START_S = 30.0
SOL_PACKET, PACKET_AUXDATA, PACKET_OUTGOING, VLAN_VALID = 263, 8, 4, 1 << 4
ETH_P_ALL = 3


@dataclass(frozen=True)
class Kind:
    """A program that is a P4Runtime target. `missing`: why it cannot run here; empty if it can."""

    name: str
    missing: str

    def command(self, address: str, queues: int) -> list[str]:
        """Both take the same options."""
        program = ["simple_switch_grpc"] if self.name == "bmv2" else [sys.executable, "-m", "rostrum.lab.p4target"]
        ports = [word for port in PORTS for word in ("-i", f"{port}@p{port}")]
        own = ["--grpc-server-addr", address, "--priority-queues", str(queues), "--cpu-port", str(CPU_PORT)]
        return [*program, "--no-p4", "--device-id", str(DEVICE_ID), *ports, "--", *own]


def kinds() -> list[Kind]:
    found = shutil.which("simple_switch_grpc")
    return [
        Kind("p4-reference-target", ""),
        Kind("bmv2", "" if found else "BMv2 is not installed (no simple_switch_grpc on the PATH)"),
    ]


class Ports:
    """Sockets on the harness' ends of a target's ports."""

    def __init__(self, namespace: Namespace) -> None:
        for port in PORTS:
            namespace.ip("link", "add", f"p{port}", "mtu", str(MTU), "type", "veth", "peer", f"h{port}")
            namespace.ip("link", "set", f"h{port}", "mtu", str(MTU))
        namespace.run("sh", "-c", "for i in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$i; done")
        for port in PORTS:
            namespace.ip("link", "set", f"p{port}", "up")
            namespace.ip("link", "set", f"h{port}", "up")
        self.sockets: dict[int, socket.socket] = {}
        opener = threading.Thread(target=self._open, args=(namespace,))
        opener.start()
        opener.join()
        assert len(self.sockets) == len(PORTS)

    def _open(self, namespace: Namespace) -> None:
        namespace.enter_thread()
        for port in PORTS:
            one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            one.bind((f"h{port}", 0))
            one.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
            one.setblocking(False)
            self.sockets[port] = one

    def send(self, port: int, frame: bytes) -> None:
        self.sockets[port].send(frame)

    def receive(self, bound_s: float) -> list[tuple[int, bytes]]:
        """(port, frame) of what came, as soon as something did; nothing after `bound_s`."""
        ready, _, _ = select.select(list(self.sockets.values()), [], [], bound_s)
        frames = []
        for port, one in self.sockets.items():
            while one in ready:
                try:
                    data, ancillary, _, address = one.recvmsg(MTU + 100, 64)
                except BlockingIOError:
                    break
                if address[2] != PACKET_OUTGOING:
                    frames.append((port, with_tag(data, ancillary)))
        return frames

    def close(self) -> None:
        for one in self.sockets.values():
            one.close()


def with_tag(data: bytes, ancillary: list[tuple[int, int, bytes]]) -> bytes:
    """The frame as it was on the wire: Linux takes the 802.1Q tag out and tells it beside the data."""
    for level, kind, content in ancillary:
        if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
            status, _, _, _, _, tag, protocol = struct.unpack("=IIIHHHH", content[:20])
            if status & VLAN_VALID:
                return data[:12] + struct.pack("!HH", protocol or 0x8100, tag) + data[12:]
    return data


@dataclass
class Target:
    """A running target with the program loaded."""

    kind: str
    ports: Ports
    control: Control


@contextlib.contextmanager
def running(kind: Kind, folder: Path, queues: int = 8) -> Iterator[Target]:
    """Starts a target; its log is `folder`/target.log. All of it is gone afterwards."""
    address = f"unix:{folder / 'grpc.sock'}"
    namespace = Namespace()
    with contextlib.ExitStack() as stack:
        stack.callback(namespace.close)
        ports = Ports(namespace)
        stack.callback(ports.close)
        log = stack.enter_context((folder / "target.log").open("w"))
        command = [*namespace.prefix(), "setpriv", "--pdeathsig", "KILL", "--", *kind.command(address, queues)]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env=os.environ.copy())
        stack.callback(end, process)
        control = Control(address, DEVICE_ID, INFO, PROGRAM)
        stack.callback(control.close)
        wait_for_socket(folder / "grpc.sock", process, folder / "target.log")
        control.connect()
        control.push()
        yield Target(kind.name, ports, control)


def wait_for_socket(path: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not path.exists():
        assert process.poll() is None, f"the target ended with status {process.returncode}: {log.read_text()[-2000:]}"
        assert time.monotonic() < deadline, f"the target does not listen after {START_S:g} s: {log.read_text()[-2000:]}"
        time.sleep(0.02)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
