"""XXH3 of 64 bits (seed 0), as its specification has it: the check of group messages (docs/protocol.md)."""

from __future__ import annotations

import struct

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578"
    "825ad07dccff7221b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea3"
    "71644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931"
    "c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
MASK = (1 << 64) - 1
PRIMES32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
STRIPE, STRIPES = 64, 16  # bytes; of a block


def xxh3_64(data: bytes) -> int:
    """Of nine bytes or more: nothing shorter is checked."""
    if len(data) < 9:
        raise ValueError(f"{len(data)} bytes")
    if len(data) <= 16:
        low, high = _word(data, 0) ^ _flip(24), _word(data, len(data) - 8) ^ _flip(40)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(len(data) + swapped + high + _folded(low, high))
    return _short(data) if len(data) <= 240 else _long(data)


def _short(data: bytes) -> int:
    size, last = len(data), len(data) - 16
    sum_ = size * PRIMES[0]
    if size <= 128:
        for n in range((size - 1) // 32 + 1):
            sum_ += _mixed(data, 16 * n, 32 * n) + _mixed(data, last - 16 * n, 32 * n + 16)
        return _avalanche(sum_)
    for n in range(8):
        sum_ += _mixed(data, 16 * n, 16 * n)
    sum_ = _avalanche(sum_)
    for n in range(8, size // 16):
        sum_ += _mixed(data, 16 * n, 16 * (n - 8) + 3)
    return _avalanche(sum_ + _mixed(data, last, 136 - 17))


def _long(data: bytes) -> int:
    lanes = [PRIMES32[2], *PRIMES[:4], PRIMES32[1], PRIMES[4], PRIMES32[0]]
    key = struct.unpack_from("<8Q", SECRET, len(SECRET) - STRIPE)
    for n in range((len(data) - 1) // STRIPE):
        _add(lanes, data, n * STRIPE, n % STRIPES * 8)
        if n % STRIPES == STRIPES - 1:  # the end of a block
            lanes = [(lane ^ lane >> 47 ^ word) * PRIMES32[0] & MASK for lane, word in zip(lanes, key, strict=True)]
    _add(lanes, data, len(data) - STRIPE, len(SECRET) - STRIPE - 7)
    sum_ = len(data) * PRIMES[0]
    for n in range(0, 8, 2):
        sum_ += _folded(lanes[n] ^ _word(SECRET, 11 + 8 * n), lanes[n + 1] ^ _word(SECRET, 19 + 8 * n))
    return _avalanche(sum_)


def _add(lanes: list[int], data: bytes, at: int, key_at: int) -> None:
    words, keys = struct.unpack_from("<8Q", data, at), struct.unpack_from("<8Q", SECRET, key_at)
    for n, (word, key) in enumerate(zip(words, keys, strict=True)):
        mixed = word ^ key
        lanes[n ^ 1] = (lanes[n ^ 1] + word) & MASK
        lanes[n] = (lanes[n] + (mixed & 0xFFFFFFFF) * (mixed >> 32)) & MASK


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _flip(at: int) -> int:
    return _word(SECRET, at) ^ _word(SECRET, at + 8)


def _folded(one: int, other: int) -> int:
    product = one * other
    return (product ^ product >> 64) & MASK


def _mixed(data: bytes, at: int, key_at: int) -> int:
    return _folded(_word(data, at) ^ _word(SECRET, key_at), _word(data, at + 8) ^ _word(SECRET, key_at + 8))


def _avalanche(value: int) -> int:
    value &= MASK
    value = (value ^ value >> 37) * 0x165667919E3779F9 & MASK
    return value ^ value >> 32
