"""Discovery frames: ours are read back, nobody else's are believed, and garbage does no harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from os_ken.lib.packet import lldp as standard
from os_ken.lib.packet import packet
from rostrum.controller.southbound import lldp

KEY = b"k" * 32
ORIGINS = st.builds(lldp.Origin, st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True), st.integers(1, 65279))


@given(ORIGINS)
def test_frame__is_read_back(origin: lldp.Origin) -> None:
    made = lldp.frame(KEY, origin)
    assert len(made) >= 60
    assert lldp.origin(KEY, made) == origin
    assert lldp.origin(b"another key", made) is None


def test_frame__is_lldp_to_others() -> None:
    read = packet.Packet(lldp.frame(KEY, lldp.Origin("tor1", 50))).get_protocol(standard.lldp)
    chassis, port, ttl = read.tlvs[:3]
    assert chassis.chassis_id == b"tor1" and port.port_id == b"50" and ttl.ttl == lldp.TTL_S


@given(st.binary(max_size=200))
def test_origin__of_garbage_is_none(data: bytes) -> None:
    assert lldp.origin(KEY, data) is None
    assert lldp.origin(KEY, lldp.frame(KEY, lldp.Origin("tor1", 1))[:14] + data) is None


@given(st.integers(14, 59), st.integers(0, 255))
def test_origin__of_a_changed_frame_is_none(at: int, value: int) -> None:
    good = lldp.frame(KEY, lldp.Origin("tor1", 50))
    bad = good[:at] + bytes([value]) + good[at + 1 :]
    if bad != good:
        found = lldp.origin(KEY, bad)
        assert found is None or found == lldp.Origin("tor1", 50)  # what carries no meaning may change


@pytest.mark.parametrize("length", range(0, 54, 6))
def test_origin__of_a_short_frame_is_none(length: int) -> None:
    assert lldp.origin(KEY, lldp.frame(KEY, lldp.Origin("tor1", 50))[:length]) is None
