"""Agent.response as bytes. It is what the manager says most, so it is written straight down; every other call is made
by codec.py from the IDL, which a test compares this with.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from rostrum.controller.core.model import PathKind
from rostrum.controller.core.values import Decision, PathResponse, Protocol, ServerAddress
from rostrum.controller.northbound.thrift.codec import I32, I64, LIST, STRING, STRUCT, fields

_METHOD: Final = b"response"
_HEAD: Final = Struct(">Ii8sibh").pack(0x80010004, len(_METHOD), _METHOD, 0, STRUCT, 1)  # oneway, its only argument
_text: Final = Struct(">bhi").pack
_i32: Final = Struct(">bhi").pack
_i64: Final = Struct(">bhq").pack
_grant: Final = Struct(">bhi bhq bhq bhi bhi bhbi").pack  # fields 8 to 13, the last with the list's head
_texts: Final = Struct(">bhbi").pack
_length: Final = Struct(">I").pack
_END: Final = b"\0"

_FIELDS: Final = fields("PathResponse")
_REQUEST_ID: Final = _FIELDS["request_id"][0]
_RESPONSE_ID: Final = _FIELDS["response_id"][0]
_DECISION: Final = _FIELDS["decision"][0]
_REASON: Final = _FIELDS["reason"][0]
_ACCEPTED_SIZE: Final = _FIELDS["accepted_size"][0]
_KIND: Final = _FIELDS["kind"][0]
_GROUP: Final = _FIELDS["group"][0]
_DATA_PORT: Final = _FIELDS["data_port"][0]
_RECONFIGURATION: Final = _FIELDS["reconfiguration_ns"][0]
_RATE: Final = _FIELDS["rate_bps"][0]
_LEASE: Final = _FIELDS["lease_ms"][0]
_LIGHT_BOUND: Final = _FIELDS["light_bound_ms"][0]
_RECEIVERS: Final = _FIELDS["receivers"][0]
_PROTOCOL: Final = _FIELDS["protocol"][0]
_DARK: Final = _FIELDS["dark"][0]
_SENDER_RACK: Final = _FIELDS["sender_rack"][0]
_TREE_LINKS: Final = _FIELDS["tree_links"][0]
_PATH_LINKS: Final = _FIELDS["path_links"][0]
_ADDRESS: Final = fields("ServerAddress")
_ADDRESS_SERVER: Final = _ADDRESS["server"][0]
_ADDRESS_ADDRESS: Final = _ADDRESS["address"][0]
_ADDRESS_PORT: Final = _ADDRESS["control_port"][0]
_ADDRESS_RACK: Final = _ADDRESS["rack"][0]

KNOWN_MAX: Final = 1 << 17
_known: Final[dict[str, tuple[ServerAddress, bytes]]] = {}  # servers as they were written last


def response(value: PathResponse, reason_max: int) -> bytes:
    """A frame with its length; the optional fields only with ACCEPTED."""
    accepted = value.decision is Decision.ACCEPTED
    code = 1 if accepted else 2 if value.decision is Decision.DENIED else 3
    parts = [_HEAD]
    _put(parts, _REQUEST_ID, value.request_id)
    _put(parts, _RESPONSE_ID, value.response_id)
    parts.append(_i32(I32, _DECISION, code))
    _put(parts, _REASON, value.reason[:reason_max])
    if accepted:
        parts.append(_i64(I64, _ACCEPTED_SIZE, value.accepted_size))
        parts.append(_i32(I32, _KIND, 1 if value.kind is PathKind.CIRCUIT else 2))
        _put(parts, _GROUP, value.group)
        parts.append(
            _grant(
                I32, _DATA_PORT, value.data_port,
                I64, _RECONFIGURATION, value.reconfiguration_ns,
                I64, _RATE, value.rate_bps,
                I32, _LEASE, value.lease_ms,
                I32, _LIGHT_BOUND, value.light_bound_ms,
                LIST, _RECEIVERS, STRUCT, len(value.receivers),
            )
        )  # fmt: skip
        for one in value.receivers:
            parts.append(_server(one))
        parts.append(_i32(I32, _PROTOCOL, {Protocol.RDCM: 3, Protocol.WAN: 4}.get(value.protocol, 2)))
        if value.dark:
            parts.append(_texts(LIST, _DARK, STRING, len(value.dark)))
            for name in value.dark:
                written = name.encode("utf-8", "replace")
                parts += (_length(len(written)), written)
        if value.sender_rack:
            parts.append(_i32(I32, _SENDER_RACK, value.sender_rack))
        if value.tree_links:
            parts.append(_i32(I32, _TREE_LINKS, value.tree_links))
            parts.append(_i32(I32, _PATH_LINKS, value.path_links))
    parts.append(_END)  # of the response
    parts.append(_END)  # of the arguments
    body = b"".join(parts)
    return _length(len(body)) + body


def _put(parts: list[bytes], number: int, text: str) -> None:
    written = text.encode("utf-8", "replace")  # half a surrogate pair has no bytes
    parts.append(_text(STRING, number, len(written)))
    parts.append(written)


def _server(one: ServerAddress) -> bytes:
    found = _known.get(one.server)
    if found is not None and found[0] is one:
        return found[1]
    if len(_known) >= KNOWN_MAX:
        _known.clear()
    parts: list[bytes] = []
    _put(parts, _ADDRESS_SERVER, one.server)
    _put(parts, _ADDRESS_ADDRESS, one.address)
    parts.append(_i32(I32, _ADDRESS_PORT, one.control_port))
    if one.rack:
        parts.append(_i32(I32, _ADDRESS_RACK, one.rack))
    parts.append(_END)
    written = b"".join(parts)
    _known[one.server] = (one, written)
    return written
