"""Hash and checksum algorithms of v1model, as BMv2 computes them. Each takes bytes and gives an int."""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Callable


def csum16(data: bytes) -> int:
    """The Internet checksum (RFC 1071). A sum of 16-bit words with end-around carry is a remainder modulo 65535."""
    value = int.from_bytes(data + b"\0" if len(data) % 2 else data, "big")
    return 0xFFFF - (value % 0xFFFF or (0xFFFF if value else 0))


def crc16(data: bytes) -> int:
    """CRC-16/ARC: polynomial 0x8005, reflected."""
    crc = 0
    for byte in data:
        crc = (crc >> 8) ^ _CRC16[(crc ^ byte) & 0xFF]
    return crc


def _crc16_of(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0xA001 if byte & 1 else 0)
    return byte


_CRC16 = [_crc16_of(byte) for byte in range(256)]


def crc_ccitt(data: bytes) -> int:
    return binascii.crc_hqx(data, 0xFFFF)


def identity(data: bytes) -> int:
    """The first eight bytes, as BMv2."""
    return int.from_bytes(data[:8], "big")


def xor16(data: bytes) -> int:
    padded = data + b"\0" if len(data) % 2 else data
    result = 0
    for place in range(0, len(padded), 2):
        result ^= int.from_bytes(padded[place : place + 2], "big")
    return result


ALGORITHMS: dict[str, Callable[[bytes], int]] = {
    "csum16": csum16,
    "cksum16": csum16,
    "crc16": crc16,
    "crc16_custom": crc16,  # unless configured, which P4Runtime cannot, the custom ones are the plain ones
    "crc32": zlib.crc32,
    "crc32_custom": zlib.crc32,
    "crcCCITT": crc_ccitt,
    "identity": identity,
    "xor16": xor16,
}
