"""Bytes of the application socket (docs/application-interface.md): requests out, answers in."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from .values import (
    DIGESTS,
    EVENT_KINDS,
    PATHS,
    PROTOCOLS,
    RECEIVER_STATES,
    Code,
    Event,
    GroupStatus,
    Receiver,
    RostrumError,
    SendResult,
    Status,
    StoredObject,
    Transfer,
    name_of,
)

MAGIC, VERSION = 0x5241, 1
MESSAGE_MAX = 196608
HEADER = struct.Struct("<HBBIQ")

REGISTER, UNREGISTER, ADD, CREATE, DROP, SEND, READ, DELETE, STATUS, SUBSCRIBE, UNSUBSCRIBE, CANCEL = range(1, 13)
JOIN, FETCH, NAME, PIN, LEAVE, STREAM_JOIN, NAMES, EPHEMERAL, CHANNELS = 17, 18, 19, 20, 21, 22, 23, 24, 25
STREAM_SEND, STREAM_END, STREAM_RECEIVE = range(14, 17)
(DONE, ERROR, REGISTERED, ADDED, CREATED, OBJECT, RECEIVERS, SENT, EVENT, TRANSFERS, OBJECTS, STATE, GROUP, GROUPS,
 STREAMED, NAMED) = range(128, 144)  # fmt: skip
UNFINISHED = frozenset({RECEIVERS, EVENT, TRANSFERS, OBJECTS, GROUPS, NAMED})

PIN_ON = 1
JOIN_SUBSCRIBE, JOIN_COMPLETE, JOIN_FROM, JOIN_SINCE = 1, 2, 4, 8
SEND_EVENTS = 1
SEND_PROTOCOLS = {"auto": 0, "republic": 1 << 3, "rdcm": 2 << 3, "wan": 3 << 3}
SEND_STRAGGLERS = {None: 0, "wait": 1 << 1, "demote": 2 << 1, "evict": 3 << 1}


@dataclass
class Answer:
    """One message of the agent. `value` depends on the type; `fds` came with it and belong to the holder."""

    type: int
    tag: int
    value: Any
    fds: list[int] = field(default_factory=list)


def text(value: str) -> bytes:
    """A name on the wire.

    Raises:
        RostrumError: empty, or longer than 255 bytes of UTF-8.
    """
    data = value.encode()
    if not 0 < len(data) <= 255:
        raise RostrumError(f"a name of 1 to 255 bytes is needed, not {value[:40]!r}", Code.INVALID)
    return bytes([len(data)]) + data


def request(kind: int, tag: int, body: bytes = b"") -> bytes:
    """A whole request."""
    message = HEADER.pack(MAGIC, VERSION, kind, 0, tag) + body
    if len(message) > MESSAGE_MAX:
        raise RostrumError("the names of the receivers are too long together (64 KiB)", Code.INVALID)
    return message


def send_body(
    data_id: int, receivers: Sequence[str], flags: int, wait_ms: int, deadline_ms: int, options: str = ""
) -> bytes:
    """Fields of SEND; the agent checks the receivers and the options."""
    if len(receivers) > 0xFFFF:
        raise RostrumError(f"{len(receivers)} receivers are too many", Code.INVALID)
    head = struct.pack("<QIIIH", data_id, flags, wait_ms, deadline_ms, len(receivers))
    if len(options) > 255:
        raise RostrumError("options of a send have 255 bytes at most", Code.INVALID)
    return head + b"".join(map(text, receivers)) + (text(options) if options else b"")


def fetch_body(data_id: int, holders: Sequence[str], wait_ms: int) -> bytes:
    """Fields of FETCH; the agent checks the holders."""
    if len(holders) > 0xFFFF:
        raise RostrumError(f"{len(holders)} holders are too many", Code.INVALID)
    return struct.pack("<QIH", data_id, wait_ms, len(holders)) + b"".join(map(text, holders))


def name_body(data_id: int, name: str) -> bytes:
    """Fields of NAME."""
    return struct.pack("<Q", data_id) + text(name)


def join_body(
    group: str,
    subscribe: bool,
    protocol: str,
    order: str,
    options: str,
    start: int | datetime | None = None,
    completion: bool = False,
) -> bytes:
    """Fields of JOIN; `protocol` "": as the group is. `start`: what is kept, too, from that number or time on. Raises
    RostrumError.
    """
    flags, since = (JOIN_SUBSCRIBE if subscribe else 0) | (JOIN_COMPLETE if completion else 0), b""
    if start is not None:
        by_time = isinstance(start, datetime)
        number = round(start.timestamp() * 1e9) if isinstance(start, datetime) else start
        if not 0 <= number < 1 << 64:
            raise RostrumError(f"{start} is no message's number, and no time", Code.INVALID)
        flags |= JOIN_SINCE if by_time else JOIN_FROM
        since = struct.pack("<Q", number)
    head = struct.pack("<I", flags)
    if not protocol and order not in ("", "none"):
        raise RostrumError("order and options of a group go with its protocol", Code.INVALID)
    texts = [one.encode() for one in (protocol, order if protocol else "", options)]
    if any(len(one) > 255 for one in texts):
        raise RostrumError("a group's protocol, order and options have 255 bytes each at most", Code.INVALID)
    return head + text(group) + b"".join(bytes([len(one)]) + one for one in texts) + since


class _Fields:
    """Takes fields off an answer, front to back."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, HEADER.size

    def take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values

    def bytes(self, length: int) -> bytes:
        if length > len(self.data) - self.at:
            raise struct.error("short message")
        self.at += length
        return self.data[self.at - length : self.at]

    def text(self) -> str:
        return self.bytes(self.take("B")[0]).decode("utf-8", "replace")

    def digest(self) -> str:
        algorithm, length = self.take("BB")
        value = self.bytes(length)
        return f"{name_of(DIGESTS, algorithm)}:{value.hex()}" if length else ""


def _error(take: _Fields) -> tuple[int, str]:
    return take.take("H")[0], take.text()


def _registered(take: _Fields) -> tuple[str, str, int]:
    return take.text(), take.text(), take.take("Q")[0]


def _object(take: _Fields) -> tuple[int, str]:
    return take.take("Q")[0], take.digest()


def _created(take: _Fields) -> tuple[Any, ...]:
    return take.take("QQ")


def _event(take: _Fields) -> Event:
    kind, sending, state, data_id, time_ns, session, *rest = take.take("BBBQqIQQQqIII")
    bytes_, size, sn, rate_bps, receivers, done, failed = rest
    return Event(
        name_of(EVENT_KINDS, kind), data_id, time_ns, bool(sending), take.text(), name_of(RECEIVER_STATES, state),
        session, bytes_, size, sn, rate_bps, receivers, done, failed, take.text(),
    )  # fmt: skip


_SENT_TIMES = ("requested_ns", "accepted_ns", "attempt_ns", "high_rate_ns", "data_done_ns", "released_ns", "done_ns")
_SENT_NUMBERS = (
    "reconfiguration_ns", "sessions", "fragment_size", "packets_sent", "packets_attempt", "packets_redundant",
    "packets_patched", "packets_repair", "losses_repaired", "acks_received", "bytes_sent", "rate_bps",
)  # fmt: skip


def _sent(take: _Fields) -> SendResult:
    ok, path, protocol, data_id, size = take.take("BBBQQ")
    numbers = dict(zip(_SENT_TIMES + _SENT_NUMBERS, take.take("7qqII8Qq"), strict=True))
    return SendResult(
        ok=bool(ok), path=name_of(PATHS, path), protocol=name_of(PROTOCOLS, protocol), data_id=data_id, size=size,
        **numbers,
        cause=take.text(), reason=take.text(), response_id=take.text(),
    )  # fmt: skip


def _state(take: _Fields) -> Status:
    server, version = take.text(), take.text()
    boot_id, started_ns, manager_up = take.take("QqB")
    manager, store = take.text(), take.text()
    return Status(server, version, boot_id, started_ns, bool(manager_up), manager, store, *take.take("QQIQ"))


def _receiver(take: _Fields) -> Receiver:
    name = take.text()
    state, flags, initial_sn, patched, first_light_ns, complete_ns = take.take("BBQQqq")
    return Receiver(
        name, name_of(RECEIVER_STATES, state), bool(flags & 1), initial_sn if first_light_ns else None, patched,
        first_light_ns, complete_ns, take.text(), bool(flags & 2),
    )  # fmt: skip


def _transfer(take: _Fields) -> Transfer:
    app = UUID(bytes=take.bytes(16))
    data_id, sending, path, protocol = take.take("QBBB")
    phase, peer = take.text(), take.text()
    names = name_of(PATHS, path), name_of(PROTOCOLS, protocol)
    return Transfer(app, data_id, bool(sending), phase, peer, *names, *take.take("QQqIIIqQQQQQQQq"))


def _stored(take: _Fields) -> StoredObject:
    app = UUID(bytes=take.bytes(16))
    data_id, state, received, holds, size = take.take("QBBIQ")
    goes = bool(received & 4)
    return StoredObject(app, data_id, state == 1, bool(received), holds, size, take.digest(), bool(received & 2), goes)


def _object_name(take: _Fields) -> tuple[UUID, int, str]:
    return UUID(bytes=take.bytes(16)), take.take("Q")[0], take.text()


def _group(take: _Fields) -> tuple[str, str, int]:
    return take.text(), take.text(), take.take("I")[0]


def _group_row(take: _Fields) -> GroupStatus:
    name, protocol, order, address = take.text(), take.text(), take.text(), take.text()
    number, version, joined, *rest = take.take("IQBIIIQQQQQQ")
    return GroupStatus(name, protocol, order, address, number, version, bool(joined), *rest)


def _rows(row: Callable[[_Fields], Any]) -> Callable[[_Fields], list[Any]]:
    return lambda take: [row(take) for _ in range(take.take("H")[0])]


_BODIES: dict[int, Callable[[_Fields], Any]] = {
    DONE: lambda take: None,
    ERROR: _error,
    REGISTERED: _registered,
    ADDED: _object,
    CREATED: _created,
    OBJECT: _object,
    RECEIVERS: _rows(_receiver),
    SENT: _sent,
    EVENT: _event,
    TRANSFERS: _rows(_transfer),
    OBJECTS: _rows(_stored),
    STATE: _state,
    GROUP: _group,
    GROUPS: _rows(_group_row),
    STREAMED: lambda take: take.take("Q")[0],
    NAMED: _rows(_object_name),
}


def parse(data: bytes) -> Answer:
    """One answer of the agent.

    Raises:
        RostrumError: it is not one.
    """
    try:
        magic, version, kind, _, tag = HEADER.unpack_from(data)
        if magic != MAGIC or version != VERSION:
            raise RostrumError(f"what answers is not a rostrum agent of interface version {VERSION}", Code.PROTOCOL)
        take = _Fields(data)
        value = _BODIES[kind](take)
    except (struct.error, KeyError) as error:
        raise RostrumError(f"the agent sent a malformed answer of {len(data)} bytes", Code.PROTOCOL) from error
    if take.at != len(data):
        raise RostrumError(f"the agent sent an answer with {len(data) - take.at} bytes too many", Code.PROTOCOL)
    return Answer(kind, tag, value)
