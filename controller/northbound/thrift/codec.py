"""Framed binary Thrift, checked before it is decoded.

thriftpy2's Cython reader trusts lengths and element types, so that a frame of garbage could keep it busy for minutes.
Here every frame is walked first: lengths against what is there, types against those that exist, depth and number of
values against a bound.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final

import thriftpy2
from rostrum import controller
from thriftpy2.protocol.cybin import TCyBinaryProtocol  # type: ignore[attr-defined]
from thriftpy2.transport.memory import TCyMemoryBuffer  # type: ignore[attr-defined]

IDL = Path(next(iter(controller.__path__))).resolve() / "rostrum.thrift"
idl: Any = thriftpy2.load(str(IDL), module_name="rostrum_thrift")

FRAME_MAX = 1 << 21
NAME_MAX = 64
DEPTH_MAX = 8
VALUES_MAX = 200_000  # of one frame
CALL: Final = 1
ONEWAY: Final = 4

_VERSION_1 = 0x8001
_BINARY: Final = 18  # thriftpy2's; a string on the wire
BOOL: Final = 2  # types on the wire
I32: Final = 8
I64: Final = 10
STRING: Final = 11
STRUCT: Final = 12
MAP: Final = 13
SET: Final = 14
LIST: Final = 15
_FIXED = {BOOL: 1, 3: 1, 4: 8, 6: 2, I32: 4, I64: 8}  # with byte, double and i16 -> bytes
_i32 = struct.Struct(">i").unpack_from
_header = struct.Struct(">HBBi").unpack_from


def fields(struct_name: str) -> dict[str, tuple[int, int]]:
    """Number and type on the wire of a struct's fields, by name, as the IDL has them."""
    spec: dict[int, Any] = getattr(idl, struct_name).thrift_spec
    return {str(one[1]): (number, STRING if one[0] == _BINARY else int(one[0])) for number, one in spec.items()}


class BadMessage(Exception):
    """The bytes are no call that this end understands; the text says why."""


def encode(service: str, method: str, arguments: dict[str, Any]) -> bytes:
    """A oneway call as a frame with its length."""
    buffer = TCyMemoryBuffer()
    protocol = TCyBinaryProtocol(buffer)
    protocol.write_message_begin(method, ONEWAY, 0)
    protocol.write_struct(getattr(getattr(idl, service), f"{method}_args")(**arguments))
    protocol.write_message_end()
    body: bytes = buffer.getvalue()
    return struct.pack(">I", len(body)) + body


def decode(service: str, frame: bytes) -> tuple[str, Any]:
    """Method and arguments of a call to `service`. Raises BadMessage."""
    name = _check(frame)
    methods = getattr(idl, service).thrift_services
    if name not in methods:
        raise BadMessage(f"unknown call {name!r}; {service} has {', '.join(methods)}")
    protocol = TCyBinaryProtocol(TCyMemoryBuffer(frame))
    arguments = getattr(getattr(idl, service), f"{name}_args")()
    try:
        protocol.read_message_begin()
        protocol.read_struct(arguments)
    except Exception as error:
        # Whatever the reader stumbles over was sent by the peer.
        raise BadMessage(f"{name}: {error or type(error).__name__}") from error
    return name, arguments


def _check(frame: bytes) -> str:
    """Walks a frame; returns the method's name."""
    if len(frame) < 12:
        raise BadMessage(f"a frame of {len(frame)} bytes is too short for a Thrift message")
    version, _, kind, length = _header(frame)
    if version != _VERSION_1:
        raise BadMessage("no strict binary Thrift message (use the binary protocol, framed)")
    if kind not in (CALL, ONEWAY):
        raise BadMessage(f"message type {kind} is no call")
    if not 0 < length <= NAME_MAX or 8 + length + 4 > len(frame):
        raise BadMessage(f"the method's name has {length} bytes; 1 to {NAME_MAX} are possible")
    try:
        name = frame[8 : 8 + length].decode("ascii")
    except UnicodeDecodeError:
        raise BadMessage("the method's name is not ASCII") from None
    walk = _Walk(frame)
    try:
        end = walk.struct(8 + length + 4, 0)
    except (struct.error, IndexError):
        raise BadMessage(f"{name[:NAME_MAX]!r}: the message ends too early") from None
    if end != len(frame):
        raise BadMessage(f"{name[:NAME_MAX]!r}: {len(frame) - end} bytes follow the message")
    return name


class _Walk:
    """Steps over values without building them. struct.error and IndexError = it ends too early."""

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.values = 0

    def struct(self, at: int, depth: int) -> int:
        frame = self.frame
        while True:
            kind = frame[at]
            if kind == 0:
                return at + 1
            size = _FIXED.get(kind)
            at = at + 3 + size if size else self.value(kind, at + 3, depth + 1)
            self.count(1)

    def value(self, kind: int, at: int, depth: int) -> int:
        """Where the value of this type that begins at `at` ends."""
        if depth > DEPTH_MAX:
            raise BadMessage(f"values are nested more than {DEPTH_MAX} deep")
        if kind == STRING:
            (length,) = _i32(self.frame, at)
            return self.fits(at + 4, length)
        if kind == STRUCT:
            return self.struct(at, depth)
        if kind in (LIST, SET):
            (length,) = _i32(self.frame, at + 1)
            return self.elements((self.frame[at],), length, at + 5, depth)
        if kind == MAP:
            (length,) = _i32(self.frame, at + 2)
            return self.elements((self.frame[at], self.frame[at + 1]), length, at + 6, depth)
        raise BadMessage(f"type {kind} does not exist in Thrift")

    def elements(self, kinds: tuple[int, ...], length: int, at: int, depth: int) -> int:
        self.fits(at, length)  # an element has one byte at least
        self.count(length * len(kinds))
        if length == 0:
            return at
        sizes = [_FIXED.get(kind) for kind in kinds]
        fixed = [size for size in sizes if size]
        if len(fixed) == len(sizes):
            return self.fits(at, length * sum(fixed))
        if kinds == (STRING,):
            return self.strings(length, at)
        for _ in range(length):
            for kind, size in zip(kinds, sizes, strict=True):
                at = at + size if size else self.value(kind, at, depth + 1)
        return at

    def strings(self, count: int, at: int) -> int:
        """Past so many texts: most of a request is its receivers' names."""
        frame = self.frame
        for _ in range(count):
            (length,) = _i32(frame, at)
            at += 4 + length
            if length < 0 or at > len(frame):
                raise BadMessage(f"a length of {length} does not fit the message")
        return at

    def fits(self, at: int, length: int) -> int:
        if length < 0 or at + length > len(self.frame):
            raise BadMessage(f"a length of {length} does not fit the message")
        return at + length

    def count(self, values: int) -> None:
        self.values += values
        if self.values > VALUES_MAX:
            raise BadMessage(f"more than {VALUES_MAX} values in one message")
