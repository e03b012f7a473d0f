"""What os-ken is given of a switch's bytes: nothing in which its parser would not end, and all that switches say."""

from __future__ import annotations

import contextlib
import random
import struct
import sys
from types import FrameType
from typing import Any

import pytest
from os_ken import exception
from os_ken.ofproto import ofproto_parser, ofproto_protocol, ofproto_v1_3
from rostrum.controller.southbound.openflow import framing
from rostrum.controller.southbound.openflow.capabilities import TableFeatures

DATAPATH = ofproto_protocol.ProtocolDesc(ofproto_v1_3.OFP_VERSION)
CALLS_MAX = 100_000  # of a parser: the longest message has 8,000 elements


def message(kind: int, body: bytes, version: int = 4) -> bytes:
    return struct.pack("!BBHI", version, kind, 8 + len(body), 7) + body


def part(kind: int, body: bytes) -> bytes:
    return message(19, struct.pack("!HHI", kind, 0, 0) + body)


MATCH = struct.pack("!HHIIxxxx", 1, 12, 0x80000004, 1)
OUTPUT = struct.pack("!HHIH6x", 0, 16, 1, 0xFFFF)
SET_QUEUE = struct.pack("!HHI", 21, 8, 3)
SET_FIELD = struct.pack("!HHIB3x", 25, 16, 0x80001001, 46) + bytes(4)
NICIRA = struct.pack("!HHIHHI", 0xFFFF, 16, 0x2320, 16, 0, 0)
INSTRUCTIONS = (
    struct.pack("!HH4x", 4, 8 + 56) + OUTPUT + SET_QUEUE + SET_FIELD + NICIRA,
    struct.pack("!HHB3x", 1, 8, 3),
    struct.pack("!HH4xQQ", 2, 24, 1, 1),
    struct.pack("!HHI", 6, 8, 1),
)
BUCKET = struct.pack("!HHII4x", 32, 0, 1, 2) + OUTPUT


def flow(instructions: bytes = b"".join(INSTRUCTIONS), match: bytes = MATCH) -> bytes:
    length = 48 + len(match) + len(instructions)
    return struct.pack("!HBxIIHHHH4xQQQ", length, 0, 1, 0, 9, 0, 0, 0, 5, 6, 7) + match + instructions


def group(buckets: bytes = 2 * BUCKET) -> bytes:
    return struct.pack("!HBxI", 8 + len(buckets), 0, 5) + buckets


def table(properties: bytes) -> bytes:
    return struct.pack("!HB5x32sQQII", 64 + len(properties), 0, b"one", 0, 0, 0, 9) + properties


IDS = struct.pack("!HHHHHH4x", 0, 12, 1, 4, 4, 4) + struct.pack("!HHHH", 4, 8, 0, 4)
OXMS = struct.pack("!HHI", 8, 8, 0x80000004)
PORT = struct.pack("!I4x6s2x16sIIIIIIII", 1, b"\x02\0\0\0\0\1", b"p1", 0, 0, 0, 0, 0, 0, 0, 0)
ONE_VERSION = struct.pack("!HHI", 1, 8, 1 << 4)
TWO_WORDS = struct.pack("!HHII4x", 1, 12, 1 << 4, 0)
GOOD = [
    message(0, b""),
    message(0, ONE_VERSION),
    message(0, TWO_WORDS),
    message(1, struct.pack("!HH", 3, 1) + b"what was wrong"),
    message(2, b"echo"),
    message(3, b"echo"),
    message(6, struct.pack("!QIBBHII", 5, 256, 254, 0, 0, 0, 0)),
    message(10, struct.pack("!IHBBQ", 0xFFFFFFFF, 64, 0, 0, 1) + MATCH + b"\0\0" + b"x" * 64),
    message(11, struct.pack("!QHBBIIHHQQ", 1, 9, 0, 0, 1, 1, 0, 0, 5, 6) + MATCH),
    message(12, struct.pack("!B7x", 2) + PORT),
    part(0, bytes(1056)),
    part(1, flow() + flow(b"")),
    part(3, bytes(48)),
    part(5, bytes(80)),
    part(6, struct.pack("!H2xII4xQQII", 56, 5, 1, 2, 3, 4, 5) + bytes(16)),
    part(7, group() + group(b"")),
    part(8, bytes(40)),
    part(12, table(IDS + OXMS) + table(b"")),
    part(13, PORT + PORT),
    message(21, b""),
    message(25, struct.pack("!I4xQ", 2, 9)),
]
ENDLESS = [
    message(0, bytes(8)),
    message(0, struct.pack("!HH4x", 1, 0)),
    message(0, struct.pack("!HHI", 1, 8, 16) + struct.pack("!HH4x", 9, 0), version=6),
    part(1, bytes(56)),
    part(1, flow(struct.pack("!HH4x", 4, 0))),
    part(1, flow(struct.pack("!HH4x", 3, 16) + struct.pack("!HH4x", 25, 0))),
    part(1, flow(struct.pack("!HH4x", 1, 16) + struct.pack("!HH4x", 4, 0))),
    part(1, flow(struct.pack("!HH4x", 4, 24) + struct.pack("!HH4x", 11, 16) + struct.pack("!HHI", 0xFFFF, 0, 1))),
    part(1, flow(match=struct.pack("!HH4x", 1, 0))),
    part(6, bytes(40)),
    part(7, bytes(8)),
    part(7, group(bytes(16))),
    part(7, group(struct.pack("!HHII4x", 24, 0, 1, 2) + bytes(8))),
    part(12, bytes(64)),
    part(12, table(bytes(8))),
    part(12, table(struct.pack("!HHHH", 0, 8, 1, 0))),
    part(12, table(struct.pack("!HHHH", 6, 8, 0, 0))),
]


class TooLong(BaseException):
    """As os-ken takes every other for a malformed packet."""


def parse(data: bytes) -> Any:
    """What os-ken makes of it; TooLong if that takes more calls than any message may."""
    known = framing.for_os_ken(bytearray(data))
    if known is None:
        return None
    left = CALLS_MAX

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise TooLong

    sys.setprofile(count)
    try:
        return ofproto_parser.msg(DATAPATH, *ofproto_parser.header(known), known)
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("data", GOOD, ids=[f"{one[1]}-{number}" for number, one in enumerate(GOOD)])
def test_what_switches_say__is_parsed(data: bytes) -> None:
    assert parse(data) is not None


def test_what_switches_say__is_all_there() -> None:
    flows = parse(part(1, flow() + flow(b""))).body
    assert [[one.type for one in each.instructions] for each in flows] == [[4, 1, 2, 6], []]
    actions = flows[0].instructions[0].actions
    assert [(one.type, one.len) for one in actions] == [(0, 16), (21, 8), (25, 16), (65535, 16)]
    assert [len(one.buckets) for one in parse(part(7, group() + group(b""))).body] == [2, 0]
    (features,) = parse(part(12, table(IDS + OXMS))).body
    assert isinstance(features, TableFeatures)  # which takes the place of os-ken's
    assert features.entries == 9 and features.can() == (frozenset(), frozenset())
    for hello in (ONE_VERSION, TWO_WORDS, struct.pack("!HHI", 9, 7, 1) + ONE_VERSION):
        assert [one.versions for one in parse(message(0, hello)).elements] == [[4]]
    assert parse(message(0, b"", version=77)).version == framing.VERSION_MAX


@pytest.mark.parametrize("data", ENDLESS, ids=[f"{one[1]}-{number}" for number, one in enumerate(ENDLESS)])
def test_lengths_that_lead_nowhere__are_refused(data: bytes) -> None:
    with pytest.raises(framing.Malformed, match=r"of \d+ bytes|with \d+ bytes"):
        framing.for_os_ken(bytearray(data))


@pytest.mark.parametrize("data", [*GOOD, message(1, struct.pack("!HHI", 0xFFFF, 1, 2))], ids=lambda one: f"{one[1]}")
def test_what_is_cut_off__is_refused_before_os_ken_logs_all_of_it(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for length in range(8, len(data)):
        cut = bytearray(data[:length])
        cut[2:4] = length.to_bytes(2, "big")
        with contextlib.suppress(framing.Malformed, exception.OFPTruncatedMessage):
            parse(bytes(cut))
        assert not caplog.records, (length, caplog.text)


@pytest.mark.parametrize("data", [
    message(14, bytes(48)),
    message(4, bytes(8)),
    message(9, bytes(4)),
    message(23, bytes(8)),
    part(4, bytes(112)),
    part(9, bytes(40)),
    part(0xFFFF, bytes(8)),
    message(19, part(1, b"")[8:], version=5),
])  # fmt: skip
def test_what_nobody_asks_a_switch_for__is_not_parsed(data: bytes) -> None:
    assert framing.for_os_ken(bytearray(data)) is None


def test_messages_of_any_shape__are_parsed_in_bounded_time(rng: random.Random) -> None:
    for _ in range(20_000):
        changed = bytearray(rng.choice(GOOD + ENDLESS))
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(8 if rng.random() < 0.9 else 0, max(9, len(changed))) % len(changed)
            changed[at] = rng.choice((0, 0, 1, 4, 8, 255, rng.randrange(256)))
        if rng.random() < 0.2:
            del changed[rng.randrange(8, len(changed) + 1) :]
        changed[2:4] = len(changed).to_bytes(2, "big")
        with contextlib.suppress(framing.Malformed, exception.OFPTruncatedMessage, exception.OFPUnknownVersion):
            parse(bytes(changed))


def test_split__takes_whole_messages_however_they_come(rng: random.Random) -> None:
    data, buffer, found = b"".join(GOOD), bytearray(), []
    at = 0
    while at < len(data):
        size = rng.choice((1, 3, 50, 2000))
        buffer += data[at : at + size]
        at += size
        found += framing.split(buffer)
    assert found == GOOD
    assert not buffer
    with pytest.raises(framing.Malformed, match="7 bytes"):
        list(framing.split(bytearray([4, 2, 0, 7, 0, 0, 0, 1])))
