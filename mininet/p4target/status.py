"""Errors as P4Runtime reports them: a canonical code and text a person can act on."""

from __future__ import annotations

from finsy.proto import rpc_code

Code = rpc_code.Code


class Refused(Exception):
    """A request, or one update of it, is not carried out."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


def invalid(text: str) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, text)


def missing(text: str) -> Refused:
    return Refused(Code.NOT_FOUND, text)


def exists(text: str) -> Refused:
    return Refused(Code.ALREADY_EXISTS, text)


def full(text: str) -> Refused:
    return Refused(Code.RESOURCE_EXHAUSTED, text)


def denied(text: str) -> Refused:
    return Refused(Code.PERMISSION_DENIED, text)


def beyond(text: str) -> Refused:
    return Refused(Code.OUT_OF_RANGE, text)


def unsupported(text: str) -> Refused:
    return Refused(Code.UNIMPLEMENTED, text)


def too_early(text: str) -> Refused:
    return Refused(Code.FAILED_PRECONDITION, text)


def decode(value: bytes, width_bits: int, what: str) -> int:
    """A P4Runtime byte string (specification, 8.4): of any length, as long as the value fits."""
    if not value:
        raise beyond(f"{what}: the byte string is empty")
    number = int.from_bytes(value, "big")
    if number >> width_bits:
        raise beyond(f"{what}: {number:#x} does not fit into {width_bits} bits")
    return number


def encode(value: int) -> bytes:
    """The shortest byte string of a value."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")
