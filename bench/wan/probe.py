"""How exact the emulated delays are, by the kernel's clock at the far end: packets from one host to another."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SO_TIMESTAMPNS = 35
CLONE_NEWNET = 0x40000000
PORT = 7300
WIRE_BYTES = 8 + 20 + 14 + 24
SIZE = 256

_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """In a host's network. Sockets made there stay there."""
    own, other = os.open("/proc/self/ns/net", os.O_RDONLY), os.open(Path("/run/netns") / namespace, os.O_RDONLY)
    try:
        if _libc.setns(other, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
        yield
    finally:
        _libc.setns(own, CLONE_NEWNET)
        os.close(own)
        os.close(other)


def probe(
    sender: str, receiver: str, address: str, delay_ms: float, rate_bps: float, count: int, seed: int
) -> dict[str, Any]:
    """Sends packets at random times; by how much longer they took than `delay_ms` and their time on the link."""
    draw = random.Random(seed)
    with inside(sender):
        out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with inside(receiver):
        into = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sent: list[int] = []
    errors_us: list[float] = []
    expected_ns = delay_ms * 1e6 + ((SIZE + WIRE_BYTES) * 8e9 / rate_bps if rate_bps else 0)
    with out, into:
        into.bind((address, PORT))
        into.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        into.setsockopt(socket.SOL_SOCKET, 33, 4 << 20)
        for number in range(count):
            payload = struct.pack("!I", number).ljust(SIZE, b"x")
            time.sleep(draw.uniform(0.0003, 0.0015))
            sent.append(time.time_ns())
            out.sendto(payload, (address, PORT))
        into.settimeout(1.0 + delay_ms / 1e3)
        with contextlib.suppress(TimeoutError):
            for _ in range(count):
                data, fields, _flags, _source = into.recvmsg(SIZE, 256)
                seconds, nanoseconds = struct.unpack_from("=qq", fields[0][2])
                took = seconds * 1_000_000_000 + nanoseconds - sent[struct.unpack_from("!I", data)[0]]
                errors_us.append((took - expected_ns) / 1e3)
    errors_us.sort()
    row: dict[str, Any] = {"delay_ms": delay_ms, "sent": count, "came": len(errors_us)}
    for share in (1, 50, 99):
        place = min(int(len(errors_us) * share / 100), len(errors_us) - 1)
        row[f"p{share}_us"] = errors_us[place] if errors_us else None
    return row
