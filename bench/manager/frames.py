"""Calls of the agent-manager interface, made and read with as little work as possible: the load generator's side.

Frames are made once by the real codec; for each request only its id is put in. Of what the manager says, only the
places are read that matter here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from rostrum.controller.northbound.thrift.codec import decode, encode, idl

ID_BYTES = 12
ACCEPTED, DENIED, QUEUED = 1, 2, 3
_BLANK = "?" * ID_BYTES
_ID_AT = 4 + 4 + 4 + len("response") + 4 + 3 + 3 + 4  # length, version, name, sequence, argument, field, id's length
_i32 = struct.Struct(">i").unpack_from


class Refused(Exception):
    """The manager said goodbye."""


def hello(server: str, boot_id: int) -> bytes:
    info = idl.AgentInfo(version=idl.VERSION, server=server, boot_id=boot_id, control_port=7071, live_paths=[])
    return encode("Manager", "hello", {"info": info})


def keepalive() -> bytes:
    return encode("Manager", "keepalive", {})


def request(sender: str, receivers: Sequence[str], size: int, **more: Any) -> tuple[bytes, bytes]:
    """What comes before and after the request's id."""
    one = idl.PathRequest(
        request_id=_BLANK,
        app_id=b"0123456789abcdef",
        data_id=7,
        data_size=size,
        remaining_size=size,
        sender=sender,
        receivers=list(receivers),
        **more,
    )
    head, tail = encode("Manager", "request", {"request": one}).split(_BLANK.encode())
    return head, tail


def request_id(number: int) -> bytes:
    return b"%0*x" % (ID_BYTES, number)


_RELEASE, _REST = encode("Manager", "release", {"request_id": _BLANK, "response_id": ""})[4:].split(_BLANK.encode())


def release(wanted: bytes, path: bytes) -> bytes:
    body = b"%b%b%b%b%b\0" % (_RELEASE, wanted, _REST[:3], len(path).to_bytes(4, "big"), path)
    return len(body).to_bytes(4, "big") + body


def answers(buffer: bytes) -> tuple[list[tuple[bytes, bytes, int]], bytes]:
    """(request id, path id, decision) of each response in `buffer`, and what is left of it. Raises Refused."""
    found, at, end = [], 0, len(buffer)
    while end - at >= 4:
        (length,) = _i32(buffer, at)
        if end - at - 4 < length:
            break
        if buffer[at + 12 : at + 20] == b"response":
            path_at = at + _ID_AT + ID_BYTES + 7
            path_end = path_at + _i32(buffer, path_at - 4)[0]
            wanted = buffer[at + _ID_AT : at + _ID_AT + ID_BYTES]
            found.append((wanted, buffer[path_at:path_end], buffer[path_end + 6]))
        elif buffer[at + 12 : at + 19] == b"goodbye":
            raise Refused(decode("Agent", buffer[at + 4 : at + 4 + length])[1].reason)
        at += 4 + length
    return found, buffer[at:]
