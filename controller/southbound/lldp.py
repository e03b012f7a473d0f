"""LLDP frames (IEEE 802.1AB) that tell which port of which switch they left by. Pure.

A frame carries a signature made with a key of this manager: what a server, or another manager, sends is not believed.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass

ETH_TYPE = 0x88CC
MULTICAST = bytes.fromhex("0180c200000e")  # nearest bridge: no other bridge forwards it
SOURCE = bytes.fromhex("02526f737400")  # locally administered
TTL_S = 30
SIGNATURE_BYTES = 16
_LOCAL = 7  # subtype of chassis and port ids: assigned locally
_END, _CHASSIS, _PORT, _TTL, _ORGANISATION = 0, 1, 2, 3, 127
_OUI = bytes.fromhex("526f73")  # not registered; only our own frames are read
NAME_MAX = 128


@dataclass(frozen=True)
class Origin:
    """Where a frame left."""

    switch: str
    port: int


def _tlv(kind: int, value: bytes) -> bytes:
    return struct.pack(">H", kind << 9 | len(value)) + value


def _signature(key: bytes, name: bytes, port: bytes) -> bytes:
    return hmac.new(key, name + b"\0" + port, hashlib.sha256).digest()[:SIGNATURE_BYTES]


def frame(key: bytes, origin: Origin) -> bytes:
    """To be sent out of that port."""
    name, port = origin.switch.encode()[:NAME_MAX], str(origin.port).encode()
    parts = [
        _tlv(_CHASSIS, bytes([_LOCAL]) + name),
        _tlv(_PORT, bytes([_LOCAL]) + port),
        _tlv(_TTL, struct.pack(">H", TTL_S)),
        _tlv(_ORGANISATION, _OUI + b"\x01" + _signature(key, name, port)),
        _tlv(_END, b""),
    ]
    return (MULTICAST + SOURCE + struct.pack(">H", ETH_TYPE) + b"".join(parts)).ljust(60, b"\0")


def origin(key: bytes, data: bytes) -> Origin | None:
    """Where a frame of ours left; None for anybody else's, and for anything malformed."""
    if len(data) < 14 or struct.unpack_from(">H", data, 12)[0] != ETH_TYPE:
        return None
    found: dict[int, bytes] = {}
    at = 14
    while at + 2 <= len(data):
        head = struct.unpack_from(">H", data, at)[0]
        kind, length = head >> 9, head & 0x1FF
        value = data[at + 2 : at + 2 + length]
        if kind == _END or len(value) < length:
            break
        found.setdefault(kind, value)
        at += 2 + length
    name, port = found.get(_CHASSIS, b"")[1:], found.get(_PORT, b"")[1:]
    mark = found.get(_ORGANISATION, b"")
    if not hmac.compare_digest(mark, _OUI + b"\x01" + _signature(key, name, port)):
        return None
    return Origin(name.decode(), int(port))
