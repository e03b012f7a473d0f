"""The two calls that are read straight from their bytes come out as by the IDL, or are left to it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rostrum.controller.core.values import PathRequest
from rostrum.controller.northbound.thrift import values as thrift_values
from rostrum.controller.northbound.thrift.codec import BadMessage, decode, encode, idl
from rostrum.controller.speed import thrift_request

I64 = st.integers(-(2**63), 2**63 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
REQUESTS = st.fixed_dictionaries(
    {
        "request_id": TEXT, "app_id": st.binary(max_size=17), "data_id": I64, "data_size": I64, "remaining_size": I64,
        "sender": TEXT, "receivers": st.lists(TEXT, max_size=20),
    },
    optional={"wait_ms": I32, "deadline_ms": I32, "protocol": st.integers(0, 4), "splits": st.booleans()},
)  # fmt: skip


def framed(method: str, arguments: dict[str, Any]) -> bytes:
    return encode("Manager", method, arguments)[4:]


def by_idl(frame: bytes) -> PathRequest | None:
    try:
        return thrift_values.request(decode("Manager", frame)[1], "h1", "t")
    except BadMessage:
        return None


@given(REQUESTS)
def test_a_request_comes_out_as_by_the_idl(fields: dict[str, Any]) -> None:
    frame = framed("request", {"request": idl.PathRequest(**fields)})
    assert thrift_request.is_request(frame) and not thrift_request.is_release(frame)
    assert thrift_request.request(frame, "h1", "t") == by_idl(frame)


def test_what_agents_send_is_read_here_and_not_left_to_the_codec() -> None:
    one = idl.PathRequest(
        request_id="r1", app_id=bytes(range(240, 256)), data_id=7, data_size=5, remaining_size=5, sender="h1",
        receivers=["h2"], wait_ms=0, protocol=2, splits=True,
    )  # fmt: skip
    assert thrift_request.request(framed("request", {"request": one}), "h1") is not None
    assert thrift_request.release(framed("release", {"request_id": "r1", "response_id": "p-1"})) == ("p-1", "r1")


@given(TEXT, TEXT)
def test_a_release_comes_out_as_by_the_idl(request_id: str, path_id: str) -> None:
    frame = framed("release", {"request_id": request_id, "response_id": path_id})
    assert thrift_request.is_release(frame) and not thrift_request.is_request(frame)
    assert thrift_request.release(frame) == (path_id, request_id)


@pytest.mark.parametrize("method", ["request", "release"])
def test_garbage_is_never_read_as_something_else(method: str, seed: int) -> None:
    """Bytes changed, taken out and put in: what is read here at all, the codec reads the same."""
    rng = random.Random(seed)
    one = idl.PathRequest(
        request_id="r1", app_id=b"a" * 16, data_id=7, data_size=5, remaining_size=5, sender="h1",
        receivers=["h2", "h3"], wait_ms=3, protocol=1,
    )  # fmt: skip
    fields = {"request": one} if method == "request" else {"request_id": "r1", "response_id": "p-1"}
    good = framed(method, fields)
    read = 0
    for _ in range(5000):
        bad = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(bad))
            bad[at : at + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 2))
            bad = bad or bytearray(1)
        frame = bytes(bad)
        if thrift_request.is_request(frame) and (found := thrift_request.request(frame, "h1", "t")) is not None:
            assert found == by_idl(frame), frame
            read += 1
        elif thrift_request.is_release(frame) and (ids := thrift_request.release(frame)) is not None:
            args = decode("Manager", frame)[1]
            assert ids == (args.response_id, args.request_id), frame
            read += 1
    assert read > 0
