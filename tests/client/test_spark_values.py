"""The objects of rostrum.spark: values whose large parts lie out of band; garbage is refused in words."""

from __future__ import annotations

import pickle
import random
import struct

import pytest
from rostrum.client.values import Code, RostrumError
from rostrum.spark import MAGIC, pack, unpack

SEEDS = 300


def written(value: object) -> bytearray:
    size, parts = pack(value)
    data = bytearray(size)
    for at, part in parts:
        view = memoryview(part).cast("B")
        data[at : at + len(view)] = view
    return data


def test_a_value__is_the_same_and_its_buffers_are_views() -> None:
    held = pickle.PickleBuffer(bytearray(random.Random(1).randbytes(5000)))
    value = {"a": [1, 2.5, None], "b": held, "c": pickle.PickleBuffer(b"x" * 77), "d": pickle.PickleBuffer(b"")}
    data = written(value)
    got = unpack(data)
    assert got["a"] == value["a"]
    assert bytes(got["b"]) == bytes(held) and bytes(got["c"]) == b"x" * 77 and bytes(got["d"]) == b""
    with pytest.raises(TypeError):
        got["b"][0] = 1
    data[data.index(b"x" * 77)] = ord("y")
    assert bytes(got["c"])[0] == ord("y")  # a view, no copy


def test_garbage__is_refused_in_text() -> None:
    right = bytes(written([pickle.PickleBuffer(b"z" * 300)]))
    for seed in range(SEEDS):
        random_of = random.Random(seed)
        kinds = [
            random_of.randbytes(random_of.randrange(80)),
            MAGIC + random_of.randbytes(random_of.randrange(80)),
            right[: random_of.randrange(len(MAGIC) + 4 + 32)],
            MAGIC + struct.pack("<IQQ", 1, random_of.getrandbits(64), random_of.getrandbits(64)) + right,
            MAGIC + struct.pack("<I", random_of.choice([0, 1 << 31])) + right,
        ]
        with pytest.raises(RostrumError) as caught:
            unpack(kinds[seed % len(kinds)])
        assert caught.value.code is Code.PROTOCOL, seed
