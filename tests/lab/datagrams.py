"""A plain UDP program for lab tests, as an application without an agent would be: `datagrams.py receive|send ...`.

receive GROUP PORT COUNT QUIET_S NIC_ADDRESS: joins GROUP (or just listens, if it is unicast), prints `listening`, then,
after COUNT datagrams, or when its standard input has ended and QUIET_S seconds have passed without one, a JSON line
{"received", "distinct", "tos", "bytes"}.
send GROUP PORT COUNT SIZE INTERVAL_S NIC_ADDRESS [DSCP]: sends COUNT numbered datagrams.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
from typing import TextIO

SO_RCVBUFFORCE = 33  # Linux; Python does not name it


def receive(group: str, port: int, count: int, quiet_s: float, nic: str) -> None:
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    link.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    link.bind(("", port))
    if 224 <= int(group.split(".")[0]) < 240:
        link.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(nic))
    print("listening", flush=True)
    seen, tos, received, size = set(), set(), 0, 0
    watched: list[socket.socket | TextIO] = [link, sys.stdin]
    while len(seen) < count:
        ready, _, _ = select.select(watched, [], [], None if sys.stdin in watched else quiet_s)
        if link in ready:
            data, ancillary, _, _ = link.recvmsg(65536, 64)
            received, size = received + 1, size + len(data)
            seen.add(struct.unpack_from("!I", data)[0])
            tos |= {value[0] for level, kind, value in ancillary if (level, kind) == (socket.IPPROTO_IP, socket.IP_TOS)}
        elif ready:
            watched.remove(sys.stdin)
        else:
            break
    print(json.dumps({"received": received, "distinct": len(seen), "tos": sorted(tos), "bytes": size}), flush=True)


def send(group: str, port: int, count: int, size: int, interval_s: float, nic: str, dscp: int) -> None:
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
    link.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(nic))
    link.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
    start = time.monotonic()
    for number in range(count):
        link.sendto(struct.pack("!I", number).ljust(size, b"x"), (group, port))
        wait = start + (number + 1) * interval_s - time.monotonic()
        if wait > 0:
            time.sleep(wait)


if __name__ == "__main__":
    what, group, port, count, *rest = sys.argv[1:]
    if what == "receive":
        receive(group, int(port), int(count), float(rest[0]), rest[1])
    else:
        dscp = int(rest[3]) if len(rest) > 3 else 0
        send(group, int(port), int(count), int(rest[0]), float(rest[1]), rest[2], dscp)
