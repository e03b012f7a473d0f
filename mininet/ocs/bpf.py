"""The few bpf(2) calls that maps and tracing programs take. No libbpf, no Python package."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from pathlib import Path

_NUMBER = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "s390x": 351, "ppc64le": 361}
_MAP_LOOKUP, _MAP_UPDATE, _MAP_NEXT_KEY, _OBJ_GET, _RAW_TRACEPOINT_OPEN = 1, 2, 4, 7, 17
_ATTR_BYTES = 128  # more than any of these calls reads; the kernel wants the rest zero

_libc = ctypes.CDLL(None, use_errno=True)


def _bpf(command: int, attr: bytes) -> int:
    number = _NUMBER.get(platform.machine())
    if number is None:
        raise OSError(f"the number of bpf(2) on {platform.machine()} is not known here")
    buffer = ctypes.create_string_buffer(attr, _ATTR_BYTES)
    result = _libc.syscall(number, command, buffer, _ATTR_BYTES)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)


def possible_cpus() -> int:
    """CPUs a per-CPU map has values for: the last number of a list such as 0-3."""
    return int(Path("/sys/devices/system/cpu/possible").read_text().strip().split(",")[-1].split("-")[-1]) + 1


def _opened(pinned: Path) -> int:
    name = ctypes.create_string_buffer(os.fsencode(pinned))
    return _bpf(_OBJ_GET, struct.pack("=QII", ctypes.addressof(name), 0, 0))


def attach_tracing(pinned: Path) -> int:
    """Lets a loaded tracing program run; until the descriptor that this returns is closed. Raises OSError."""
    program = _opened(pinned)
    try:
        return _bpf(_RAW_TRACEPOINT_OPEN, struct.pack("=QI", 0, program))
    finally:
        os.close(program)


class Map:
    """An open map. Raises OSError from every call that the kernel refuses."""

    def __init__(self, pinned: Path) -> None:
        self._fd = _opened(pinned)

    def update(self, key: bytes, value: bytes) -> None:
        k, v = ctypes.create_string_buffer(key, len(key)), ctypes.create_string_buffer(value, len(value))
        _bpf(_MAP_UPDATE, struct.pack("=IIQQQ", self._fd, 0, ctypes.addressof(k), ctypes.addressof(v), 0))

    def lookup(self, key: bytes, value_bytes: int) -> bytes:
        """The value; for a per-CPU map `value_bytes` is that of all CPUs, each rounded up to 8."""
        k, v = ctypes.create_string_buffer(key, len(key)), ctypes.create_string_buffer(value_bytes)
        _bpf(_MAP_LOOKUP, struct.pack("=IIQQQ", self._fd, 0, ctypes.addressof(k), ctypes.addressof(v), 0))
        return v.raw

    def keys(self, key_bytes: int) -> list[bytes]:
        """All keys of a hash map, as far as it is not changed meanwhile."""
        found: list[bytes] = []
        after = ctypes.create_string_buffer(key_bytes)
        following = ctypes.create_string_buffer(key_bytes)
        pointer = 0  # none: the first key
        while True:
            attr = struct.pack("=IIQQQ", self._fd, 0, pointer, ctypes.addressof(following), 0)
            try:
                _bpf(_MAP_NEXT_KEY, attr)
            except FileNotFoundError:
                return found
            found.append(following.raw)
            after.raw = following.raw
            pointer = ctypes.addressof(after)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
