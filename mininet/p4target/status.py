"""Errors as P4Runtime reports them: a canonical code and words a person can act on."""

from __future__ import annotations

from finsy.proto import rpc_code

Code = rpc_code.Code


class Refused(Exception):
    """A request, or one update of it, is not carried out."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code, self.words = code, words


def invalid(words: str) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, words)


def missing(words: str) -> Refused:
    return Refused(Code.NOT_FOUND, words)


def exists(words: str) -> Refused:
    return Refused(Code.ALREADY_EXISTS, words)


def full(words: str) -> Refused:
    return Refused(Code.RESOURCE_EXHAUSTED, words)


def denied(words: str) -> Refused:
    return Refused(Code.PERMISSION_DENIED, words)


def beyond(words: str) -> Refused:
    return Refused(Code.OUT_OF_RANGE, words)


def unsupported(words: str) -> Refused:
    return Refused(Code.UNIMPLEMENTED, words)


def too_early(words: str) -> Refused:
    return Refused(Code.FAILED_PRECONDITION, words)


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
