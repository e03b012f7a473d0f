"""Traffic of experiments: `python -m rostrum.lab.traffic send|receive|tcp-send|tcp-receive ...`.

Numbered UDP datagrams at a rate, and what arrived of them:

send ADDRESS PORT SIZE RATE_BPS SECONDS NIC_ADDRESS: paced by the clock; RATE_BPS counts what the frames take on the
wire. Prints {"sent"}.
receive PORT QUIET_S NIC_ADDRESS [GROUP]: prints `listening`; ends QUIET_S after the last datagram, and prints
{"received", "distinct", "bytes", "seconds"} (from the first to the last). Waits at most WAIT_S for the first.

TCP as fast as it goes:
tcp-send ADDRESS PORT SECONDS: prints {"congestion"}, the name of what controls it, at the end.
tcp-receive PORT: prints `listening`; one connection, at its end {"progress"}: [wall clock in ns, bytes so far] every
PERIOD_S. Waits at most WAIT_S for it.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rostrum.lab.lab import Lab
    from rostrum.lab.namespace import Entered

SO_RCVBUFFORCE = 33  # Linux; Python does not name it
WIRE_HEADERS_BYTES = 8 + 20 + 14 + 24  # UDP, IPv4, Ethernet; preamble, FCS and gap
WAIT_S = 20.0
BUFFER_BYTES = 16 << 20
PERIOD_S = 0.05


def start(lab: Lab, server: str, *fields: object) -> Entered:
    """This program on a server of a lab."""
    argv = [sys.executable, "-m", "rostrum.lab.traffic", *(str(field) for field in fields)]
    return lab.popen(server, argv, stdout=subprocess.PIPE, text=True)


def line_of(program: Entered) -> str:
    """The next one that it prints."""
    assert program.stdout is not None
    return str(program.stdout.readline())


def send(address: str, port: int, size: int, rate_bps: float, seconds: float, nic: str) -> dict[str, int]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(nic))
        link.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
        link.bind((nic, 0))
        gap_s = (size + WIRE_HEADERS_BYTES) * 8 / rate_bps
        count, start = round(seconds / gap_s), time.monotonic()
        payload = bytearray(b"x" * size)
        for number in range(count):
            struct.pack_into("!I", payload, 0, number)
            link.sendto(payload, (address, port))
            wait_s = start + (number + 1) * gap_s - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
    return {"sent": count}


def receive(port: int, quiet_s: float, nic: str, group: str = "") -> dict[str, float]:
    seen: set[int] = set()
    received = size = 0
    first = last = 0.0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        link.bind(("", port))
        if group:
            link.setsockopt(
                socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(nic)
            )
        link.settimeout(WAIT_S)
        print("listening", flush=True)
        try:
            while True:
                data = link.recv(65536)
                last = time.monotonic()
                first = first or last
                received, size = received + 1, size + len(data)
                seen.add(struct.unpack_from("!I", data)[0])
                link.settimeout(quiet_s)
        except TimeoutError:
            pass
    return {"received": received, "distinct": len(seen), "bytes": size, "seconds": last - first}


def tcp_send(address: str, port: int, seconds: float) -> dict[str, str]:
    data = bytes(1 << 16)
    with socket.create_connection((address, port), timeout=WAIT_S) as link:
        name = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(b"\0")[0].decode()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            link.send(data)
    return {"congestion": name}


def tcp_receive(port: int) -> dict[str, list[tuple[int, int]]]:
    progress: list[tuple[int, int]] = []
    size, due = 0, 0.0
    with socket.create_server(("", port)) as door:
        door.settimeout(WAIT_S)
        print("listening", flush=True)
        link, _ = door.accept()
        with link:
            link.settimeout(WAIT_S)
            while data := link.recv(1 << 20):
                size += len(data)
                if time.monotonic() >= due:
                    progress.append((time.time_ns(), size))
                    due = time.monotonic() + PERIOD_S
    return {"progress": progress}


def main(argv: list[str]) -> None:
    if argv[0] == "tcp-send":
        address, port, seconds = argv[1:]
        print(json.dumps(tcp_send(address, int(port), float(seconds))), flush=True)
    elif argv[0] == "tcp-receive":
        print(json.dumps(tcp_receive(int(argv[1]))), flush=True)
    elif argv[0] == "send":
        address, port, size, rate_bps, seconds, nic = argv[1:]
        print(json.dumps(send(address, int(port), int(size), float(rate_bps), float(seconds), nic)), flush=True)
    else:
        port, quiet_s, nic, *group = argv[1:]
        print(json.dumps(receive(int(port), float(quiet_s), nic, *group)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
