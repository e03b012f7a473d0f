"""Packet-in and packet-out: controller headers in front of frames to and from the CPU port."""

from __future__ import annotations

from typing import Any

from finsy.proto import p4r
from rostrum.lab.p4target.status import decode, encode, invalid, too_early


def to_controller(header: Any, frame: bytes) -> Any:
    """A PacketIn of a frame that the program sent to the CPU port. `header`: p4info's packet_in, or None."""
    if header is None:
        return p4r.PacketIn(payload=frame)
    left = sum(each.bitwidth for each in header.metadata)
    size = (left + 7) // 8
    if len(frame) < size:
        return None
    value, left = int.from_bytes(frame[:size], "big"), size * 8
    packet = p4r.PacketIn(payload=frame[size:])
    for each in header.metadata:
        left -= each.bitwidth
        packet.metadata.add(metadata_id=each.id, value=encode(value >> left & ((1 << each.bitwidth) - 1)))
    return packet


def from_controller(header: Any, packet: Any) -> bytes:
    """The frame of a PacketOut as the program's parser sees it at the CPU port."""
    if header is None:
        if packet.metadata:
            raise invalid("the program has no packet_out header, so a packet carries no metadata")
        return bytes(packet.payload)
    given = {each.metadata_id: each.value for each in packet.metadata}
    known = {each.id for each in header.metadata}
    if len(given) < len(packet.metadata) or set(given) - known:
        raise invalid(f"metadata {sorted(set(given) - known) or sorted(given)}: unknown or given twice")
    value = width = 0
    for each in header.metadata:
        if each.id not in given:
            # Padding may be left out.
            if "padding" not in each.name and not each.name.startswith("_"):
                raise invalid(f"metadata {each.name} ({each.id}) is missing")
            number = 0
        else:
            number = decode(given[each.id], each.bitwidth, f"metadata {each.name}")
        value, width = value << each.bitwidth | number, width + each.bitwidth
    if width % 8:
        raise too_early(f"the packet_out header has {width} bits, no whole number of bytes")
    return value.to_bytes(width // 8, "big") + bytes(packet.payload)
