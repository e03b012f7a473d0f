"""Manager.request and Manager.release straight from their bytes. They are what agents say most; whatever does not look
as agents write it is left to codec.py, which finds the text for what is wrong. A test compares the two.
"""

from __future__ import annotations

from typing import Final

from rostrum.controller.core.values import TENANT, PathRequest, Protocol
from rostrum.controller.northbound.thrift.codec import (
    BOOL,
    CALL,
    I32,
    I64,
    ONEWAY,
    STRING,
    VALUES_MAX,
    fields,
)  # fmt: skip
from rostrum.controller.northbound.thrift.values import APP_ID_BYTES, TEXT_MAX, wanted

_HEAD: Final = b"\x80\x01\x00"  # strict binary protocol; then the kind of message
_REQUEST: Final = b"\x00\x00\x00\x07request"
_RELEASE: Final = b"\x00\x00\x00\x07release"
_BODY_AT: Final = 4 + 11 + 4  # behind version, name and sequence number
_KINDS: Final = (CALL, ONEWAY)


class _Unusual(Exception):
    """Not as agents write it."""


def is_request(frame: bytes) -> bool:
    return frame[:3] == _HEAD and frame[4:15] == _REQUEST


def is_release(frame: bytes) -> bool:
    return frame[:3] == _HEAD and frame[4:15] == _RELEASE


def request(frame: bytes, origin: str, tenant: str = TENANT) -> PathRequest | None:
    """What thrift_codec and thrift_values make of a frame that `is_request`; None = ask them."""
    try:
        return _request(frame, origin, tenant)
    except (_Unusual, IndexError, UnicodeDecodeError):
        return None


def release(frame: bytes) -> tuple[str, str] | None:
    """The response's and the request's id in a frame that `is_release`; None = ask thrift_codec."""
    try:
        return _release(frame)
    except (_Unusual, IndexError, UnicodeDecodeError):
        return None


def _request(frame: bytes, origin: str, tenant: str) -> PathRequest:
    if frame[3] not in _KINDS or frame[_BODY_AT : _BODY_AT + 3] != b"\x0c\x00\x01":  # a struct, the only argument
        raise _Unusual
    texts: dict[int, str] = {}
    numbers: dict[int, int] = {}
    app_id: bytes | None = None
    receivers: tuple[str, ...] | None = None
    at, field = _BODY_AT + 3, 0
    while (kind := frame[at]) != 0:
        number = (frame[at + 1] << 8) | frame[at + 2]
        if number <= field or _KIND_OF.get(number) != kind:  # out of order, twice, or of a later release
            raise _Unusual
        field = number
        at += 3
        if kind == STRING:
            end = _end(frame, at)
            if number == _APP_ID:
                app_id = frame[at + 4 : end]
            else:
                texts[number] = _text(frame, at + 4, end)
            at = end
        elif kind == I64:
            numbers[number] = _i64(frame, at)
            at += 8
        elif kind == I32:
            numbers[number] = _i32(frame, at)
            at += 4
        elif kind == BOOL:
            numbers[number] = frame[at]
            at += 1
        else:
            receivers, at = _texts(frame, at)
    if at + 2 != len(frame) or frame[at + 1] != 0:
        raise _Unusual
    if len(texts) != 2 or app_id is None or len(app_id) > APP_ID_BYTES or receivers is None:
        raise _Unusual
    if not (_DATA_ID in numbers and _DATA_SIZE in numbers and _REMAINING_SIZE in numbers):
        raise _Unusual
    protocol = _PROTOCOLS.get(numbers.get(_PROTOCOL, 1))
    if protocol is None:
        raise _Unusual
    return PathRequest(
        request_id=texts[_REQUEST_ID],
        origin=origin,
        sender=texts[_SENDER],
        receivers=receivers,
        data_size=numbers[_DATA_SIZE],
        remaining_size=numbers[_REMAINING_SIZE],
        app_id=app_id,
        data_id=numbers[_DATA_ID],
        wait_ms=numbers.get(_WAIT_MS),
        deadline_ms=numbers.get(_DEADLINE_MS),
        protocol=protocol,
        wanted=wanted(protocol),
        tenant=tenant,
        round_trip_us=max(numbers.get(_ROUND_TRIP_US, 0), 0),
        splits=numbers.get(_SPLITS, 0) != 0,
    )


def _release(frame: bytes) -> tuple[str, str]:
    at = _BODY_AT
    if frame[3] not in _KINDS or frame[at : at + 3] != b"\x0b\x00\x01":
        raise _Unusual
    middle = _end(frame, at + 3)
    if frame[middle : middle + 3] != b"\x0b\x00\x02":
        raise _Unusual
    end = _end(frame, middle + 3)
    if end + 1 != len(frame) or frame[end] != 0:
        raise _Unusual
    return _text(frame, middle + 7, end), _text(frame, at + 7, middle)


def _i32(frame: bytes, at: int) -> int:
    value = (frame[at] << 24) | (frame[at + 1] << 16) | (frame[at + 2] << 8) | frame[at + 3]
    return value if value < 1 << 31 else value - (1 << 32)


def _i64(frame: bytes, at: int) -> int:
    return (_i32(frame, at) << 32) | (_i32(frame, at + 4) & 0xFFFFFFFF)


def _end(frame: bytes, at: int) -> int:
    """Where the text ends whose length is at `at`."""
    length = _i32(frame, at)
    end = at + 4 + length
    if length < 0 or end > len(frame):
        raise _Unusual
    return end


def _text(frame: bytes, begin: int, end: int) -> str:
    text = frame[begin:end].decode("utf-8")
    if len(text) > TEXT_MAX:
        raise _Unusual
    return text


def _texts(frame: bytes, at: int) -> tuple[tuple[str, ...], int]:
    count = _i32(frame, at + 1)
    if frame[at] != STRING or not 0 <= count <= VALUES_MAX - 2 * len(_KIND_OF):
        raise _Unusual
    at += 5
    found = []
    for _ in range(count):
        end = _end(frame, at)
        found.append(_text(frame, at + 4, end))
        at = end
    return tuple(found), at


_FIELDS: Final = fields("PathRequest")
_KIND_OF: Final = dict(_FIELDS.values())
_REQUEST_ID: Final = _FIELDS["request_id"][0]
_APP_ID: Final = _FIELDS["app_id"][0]
_DATA_ID: Final = _FIELDS["data_id"][0]
_DATA_SIZE: Final = _FIELDS["data_size"][0]
_REMAINING_SIZE: Final = _FIELDS["remaining_size"][0]
_SENDER: Final = _FIELDS["sender"][0]
_WAIT_MS: Final = _FIELDS["wait_ms"][0]
_DEADLINE_MS: Final = _FIELDS["deadline_ms"][0]
_PROTOCOL: Final = _FIELDS["protocol"][0]
_ROUND_TRIP_US: Final = _FIELDS["round_trip_us"][0]
_SPLITS: Final = _FIELDS["splits"][0]
_PROTOCOLS: Final = {one.value: one for one in Protocol}
