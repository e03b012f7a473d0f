"""Bytes of a switch, or of a stranger, as messages that os-ken may parse.

os-ken follows the lengths that stand in a message, and trusts them: at a length of 0 its loops take the same element
again and again, without end, and keep all of them. So each message is walked here first, as os-ken walks it; what it
would not get through is refused, and what nobody here asks for is not parsed at all. Lengths are in bytes.
Source: OpenFlow 1.3.5, sections 7.1 to 7.5.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto.ofproto_common import NX_EXPERIMENTER_ID

VERSION_MAX = 6  # OpenFlow 1.5, the last one: whoever says hello with a later one speaks earlier ones too
# Types that this manager understands; of these, the first three in any version (an answer to a hello has the sender's).
ANY_VERSION = frozenset({ofp.OFPT_ERROR, ofp.OFPT_ECHO_REQUEST, ofp.OFPT_ECHO_REPLY})
TAKEN = ANY_VERSION | {
    ofp.OFPT_FEATURES_REPLY,
    ofp.OFPT_PACKET_IN,
    ofp.OFPT_FLOW_REMOVED,
    ofp.OFPT_PORT_STATUS,
    ofp.OFPT_MULTIPART_REPLY,
    ofp.OFPT_BARRIER_REPLY,
    ofp.OFPT_ROLE_REPLY,
}
# Where a type has more than the header: what it begins with.
FIXED = {
    ofp.OFPT_ERROR: ofp.OFP_ERROR_MSG_SIZE,
    ofp.OFPT_FEATURES_REPLY: ofp.OFP_SWITCH_FEATURES_SIZE,
    ofp.OFPT_PACKET_IN: ofp.OFP_PACKET_IN_SIZE,
    ofp.OFPT_FLOW_REMOVED: ofp.OFP_FLOW_REMOVED_SIZE,
    ofp.OFPT_PORT_STATUS: ofp.OFP_PORT_STATUS_SIZE,
    ofp.OFPT_MULTIPART_REPLY: ofp.OFP_MULTIPART_REPLY_SIZE,
    ofp.OFPT_ROLE_REPLY: ofp.OFP_ROLE_REQUEST_SIZE,
}
MATCH_AT = {ofp.OFPT_PACKET_IN: 24, ofp.OFPT_FLOW_REMOVED: 48}
FLOW_MATCH_AT = 48
EXPERIMENTERS_ERROR = struct.pack("!H", ofp.OFPET_EXPERIMENTER)
INSTRUCTION_SIZES = {ofp.OFPIT_GOTO_TABLE: 8, ofp.OFPIT_WRITE_METADATA: 24, ofp.OFPIT_METER: 8}
OF_ACTIONS = (ofp.OFPIT_WRITE_ACTIONS, ofp.OFPIT_APPLY_ACTIONS, ofp.OFPIT_CLEAR_ACTIONS)
ACTION_SIZE = 8  # of all but these; None: it says itself
ACTION_SIZES = {ofp.OFPAT_OUTPUT: 16, ofp.OFPAT_SET_FIELD: None, ofp.OFPAT_EXPERIMENTER: None}
OF_IDS = (
    *(ofp.OFPTFPT_INSTRUCTIONS, ofp.OFPTFPT_INSTRUCTIONS_MISS),
    *(ofp.OFPTFPT_WRITE_ACTIONS, ofp.OFPTFPT_WRITE_ACTIONS_MISS),
    *(ofp.OFPTFPT_APPLY_ACTIONS, ofp.OFPTFPT_APPLY_ACTIONS_MISS),
)


class Malformed(ValueError):
    """Says what is wrong with a message."""


def split(buffer: bytearray) -> Iterator[bytearray]:
    """Takes whole messages from the front of `buffer`. Raises Malformed if it is not OpenFlow: nobody knows then where
    the next message begins.
    """
    while len(buffer) >= ofp.OFP_HEADER_SIZE:
        (length,) = struct.unpack_from("!H", buffer, 2)
        if length < ofp.OFP_HEADER_SIZE:
            raise Malformed(f"a message of {length} bytes, where its header alone has {ofp.OFP_HEADER_SIZE}")
        if len(buffer) < length:
            return
        message = buffer[:length]
        del buffer[:length]
        yield message


def for_os_ken(message: bytearray) -> bytearray | None:
    """`message` as os-ken parses it in bounded time; None: it is none that this manager takes. Raises Malformed."""
    version, kind = message[0], message[1]
    if kind == ofp.OFPT_HELLO:
        return _hello(message)
    if kind not in ANY_VERSION and (version != ofp.OFP_VERSION or kind not in TAKEN):
        return None
    least = FIXED.get(kind, ofp.OFP_HEADER_SIZE)
    if kind == ofp.OFPT_ERROR and message[8:10] == EXPERIMENTERS_ERROR:
        least = ofp.OFP_ERROR_EXPERIMENTER_MSG_SIZE
    if len(message) < least:
        raise Malformed(f"a message of type {kind} with {len(message)} bytes, where {least} are the least")
    if kind in MATCH_AT:
        _match(message, MATCH_AT[kind], len(message))
    elif kind == ofp.OFPT_MULTIPART_REPLY:
        (part,) = struct.unpack_from("!H", message, ofp.OFP_HEADER_SIZE)
        if part not in PARTS:
            return None
        PARTS[part](message, ofp.OFP_MULTIPART_REPLY_SIZE, len(message))
    return message


def _each(
    data: bytearray, at: int, end: int, what: str, least: int, length_at: int = 2, unit: int = 1
) -> Iterator[tuple[int, int]]:
    """Begin and end of each element from `at` to `end`. It has its length at `length_at`, `least` or more, and is
    filled up to a multiple of `unit`.
    """
    while at < end:
        length = struct.unpack_from("!H", data, at + length_at)[0] if end - at >= least else 0
        if not least <= length <= end - at:
            raise Malformed(f"{what} of {length} bytes, where {least} to {end - at} may be")
        yield at, at + length
        at += -(-length // unit) * unit


def _hello(message: bytearray) -> bytearray:
    """os-ken does not expect that elements are filled up to 8 bytes, and knows one kind of them."""
    known = bytearray()
    if message[0] >= ofp.OFP_VERSION:
        for begin, end in _each(message, ofp.OFP_HEADER_SIZE, len(message), "a hello element", 4, unit=8):
            if struct.unpack_from("!H", message, begin)[0] == ofp.OFPHET_VERSIONBITMAP and not known:
                known = message[begin:end]
    head = bytearray(message[: ofp.OFP_HEADER_SIZE])
    struct.pack_into("!BBH", head, 0, min(message[0], VERSION_MAX), ofp.OFPT_HELLO, len(head) + len(known))
    return head + known


def _match(data: bytearray, at: int, end: int) -> int:
    """Where what follows it begins."""
    length = struct.unpack_from("!H", data, at + 2)[0] if end - at >= 4 else 0
    if not 4 <= length <= end - at:
        raise Malformed(f"a match of {length} bytes, where 4 to {max(0, end - at)} may be")
    return at + -(-length // 8) * 8


def _flows(data: bytearray, at: int, end: int) -> None:
    for begin, stop in _each(data, at, end, "a flow entry", ofp.OFP_FLOW_STATS_SIZE, length_at=0):
        instructions = _match(data, begin + FLOW_MATCH_AT, stop)
        for first, last in _each(data, instructions, stop, "an instruction", 8):
            (kind,) = struct.unpack_from("!H", data, first)
            if last - first != INSTRUCTION_SIZES.get(kind, last - first):
                raise Malformed(f"an instruction of type {kind} with {last - first} bytes")
            if kind in OF_ACTIONS:
                _actions(data, first + 8, last)


def _actions(data: bytearray, at: int, end: int) -> None:
    """Nicira's actions become some unknown experimenter's: their parsers have loops too, and they say nothing here."""
    for first, last in _each(data, at, end, "an action", 8):
        kind, _, experimenter = struct.unpack_from("!HHI", data, first)
        if last - first != (ACTION_SIZES.get(kind, ACTION_SIZE) or last - first):
            raise Malformed(f"an action of type {kind} with {last - first} bytes")
        if kind == ofp.OFPAT_EXPERIMENTER and experimenter == NX_EXPERIMENTER_ID:
            struct.pack_into("!I", data, first + 4, 0)


def _groups(data: bytearray, at: int, end: int) -> None:
    for _ in _each(data, at, end, "a group's counters", ofp.OFP_GROUP_STATS_SIZE, length_at=0):
        pass


def _descriptions(data: bytearray, at: int, end: int) -> None:
    for begin, stop in _each(data, at, end, "a group's description", ofp.OFP_GROUP_DESC_STATS_SIZE, length_at=0):
        buckets = begin + ofp.OFP_GROUP_DESC_STATS_SIZE
        for first, last in _each(data, buckets, stop, "a bucket", ofp.OFP_BUCKET_SIZE, length_at=0):
            _actions(data, first + ofp.OFP_BUCKET_SIZE, last)


def _tables(data: bytearray, at: int, end: int) -> None:
    for begin, stop in _each(data, at, end, "a table's features", ofp.OFP_TABLE_FEATURES_SIZE, length_at=0):
        for first, last in _each(data, begin + ofp.OFP_TABLE_FEATURES_SIZE, stop, "a table's property", 4, unit=8):
            if struct.unpack_from("!H", data, first)[0] in OF_IDS:
                for _ in _each(data, first + 4, last, "an id in a table's property", 4):
                    pass


def _sized(what: str, size: int, one: bool = False) -> Callable[[bytearray, int, int], None]:
    """Elements that are of one size; with `one`, there is one."""

    def walk(data: bytearray, at: int, end: int) -> None:
        if (end - at) % size or (one and end - at != size):
            raise Malformed(f"{what} of {size} bytes each in a body of {end - at} bytes")

    return walk


# Multipart replies that are asked for, and how their elements are walked.
PARTS: dict[int, Callable[[bytearray, int, int], None]] = {
    ofp.OFPMP_DESC: _sized("a description", ofp.OFP_DESC_SIZE, one=True),
    ofp.OFPMP_FLOW: _flows,
    ofp.OFPMP_TABLE: _sized("a table's counters", ofp.OFP_TABLE_STATS_SIZE),
    ofp.OFPMP_QUEUE: _sized("a queue's counters", ofp.OFP_QUEUE_STATS_SIZE),
    ofp.OFPMP_GROUP: _groups,
    ofp.OFPMP_GROUP_DESC: _descriptions,
    ofp.OFPMP_GROUP_FEATURES: _sized("features of groups", ofp.OFP_GROUP_FEATURES_SIZE, one=True),
    ofp.OFPMP_TABLE_FEATURES: _tables,
    ofp.OFPMP_PORT_DESC: _sized("ports", ofp.OFP_PORT_SIZE),
}
