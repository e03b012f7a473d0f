"""Frames for the P4 vectors, built field by field; and read back as text when a vector fails."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address

MAGIC, VERSION = 0x5253, 2
FIRST, ATTEMPT, REPORT, REPAIR, LIMIT = 1, 2, 4, 8, 64
NONCE = 0x0F0E_0D0C_0B0A_0908
DATA_PORT = 7070

IPV4, ARP, VLAN = 0x0800, 0x0806, 0x8100
UDP, TCP = 17, 6


def checksum(data: bytes) -> int:
    """The Internet checksum."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data[: len(data) & ~1]))
    total += data[-1] << 8 if len(data) % 2 else 0
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return int(~total & 0xFFFF)


def mac(number: int) -> bytes:
    return struct.pack("!HI", 0x0200, number)


def ethernet(
    payload: bytes,
    ethertype: int,
    *,
    source: bytes = b"",
    destination: bytes = b"",
    vlan: tuple[int, int] | None = None,
) -> bytes:
    """`vlan`: (802.1Q priority, VLAN)."""
    tag = b"" if vlan is None else struct.pack("!HH", VLAN, vlan[0] << 13 | vlan[1])
    return (destination or mac(2)) + (source or mac(1)) + tag + struct.pack("!H", ethertype) + payload


def ipv4(
    source: str,
    destination: str,
    payload: bytes = b"",
    *,
    protocol: int = UDP,
    dscp: int = 0,
    ecn: int = 0,
    ttl: int = 64,
    options: bytes = b"",
    fragment: int = 0,
    version: int = 4,
    header_words: int | None = None,
    total_bytes: int | None = None,
    wrong_checksum: bool = False,
) -> bytes:
    """A packet. `fragment`: the 16 bits of flags and offset. What is given instead of computed makes it malformed."""
    words = 5 + len(options) // 4 if header_words is None else header_words
    total = 20 + len(options) + len(payload) if total_bytes is None else total_bytes
    head = struct.pack(
        "!BBHHHBBH4s4s",
        version << 4 | words,
        dscp << 2 | ecn,
        total,
        7,
        fragment,
        ttl,
        protocol,
        0,
        IPv4Address(source).packed,
        IPv4Address(destination).packed,
    )
    own = checksum(head + options) ^ (0x5555 if wrong_checksum else 0)
    return head[:10] + struct.pack("!H", own) + head[12:] + options + payload


def udp(
    source: str, destination: str, payload: bytes, *, port: int = DATA_PORT, total_bytes: int | None = None
) -> bytes:
    """A datagram with its checksum, to be put into an IPv4 packet with these addresses."""
    size = 8 + len(payload) if total_bytes is None else total_bytes
    pseudo = IPv4Address(source).packed + IPv4Address(destination).packed + struct.pack("!BBH", 0, UDP, size)
    head = struct.pack("!HHH", 40_000, port, size)
    return head + struct.pack("!H", checksum(pseudo + head + b"\0\0" + payload) or 0xFFFF) + payload


def rostrum(
    *,
    session: int = 0,
    engine: int = 0,
    sn: int = 0,
    flags: int = 0,
    version: int = VERSION,
    magic: int = MAGIC,
    payload: bytes = b"",
) -> bytes:
    """The data channel's header (docs/protocol.md) and a fragment."""
    return struct.pack("<HBBIQQQ", magic, version, flags, engine << 24 | session, NONCE, sn, 0) + payload


def arp_request(sender: str, target: str) -> bytes:
    head = struct.pack("!HHBBH", 1, IPV4, 6, 4, 1)
    return head + mac(1) + IPv4Address(sender).packed + bytes(6) + IPv4Address(target).packed


def unicast(
    source: str,
    destination: str,
    payload: bytes = b"hello",
    *,
    vlan: tuple[int, int] | None = None,
    dscp: int = 0,
    ttl: int = 64,
) -> bytes:
    """A whole frame: UDP over IPv4."""
    packet = ipv4(source, destination, udp(source, destination, payload), dscp=dscp, ttl=ttl)
    return ethernet(packet, IPV4, vlan=vlan)


def data(
    source: str,
    group: str,
    *,
    session: int = 0,
    engine: int = 0,
    sn: int = 0,
    flags: int = 0,
    dscp: int = 0,
    ecn: int = 0,
    vlan: tuple[int, int] | None = None,
    payload: bytes = b"fragment",
) -> bytes:
    """A whole frame: a rostrum data packet to a group."""
    content = rostrum(session=session, engine=engine, sn=sn, flags=flags, payload=payload)
    address = int(IPv4Address(group))
    destination = struct.pack("!HI", 0x0100, 0x5E00_0000 | address & 0x7F_FFFF)
    packet = ipv4(source, group, udp(source, group, content), dscp=dscp, ecn=ecn)
    return ethernet(packet, IPV4, destination=destination, vlan=vlan)


def remark(frame: bytes, *, dscp: int | None = None, pcp: int | None = None) -> bytes:
    """The frame as a switch that sets these marks sends it: IPv4 checksum right, all else as it was."""
    tagged = frame[12:14] == struct.pack("!H", VLAN)
    out, at = bytearray(frame), 18 if tagged else 14
    if pcp is not None and tagged:
        out[14] = out[14] & 0x1F | pcp << 5
    if dscp is not None:
        out[at + 1] = out[at + 1] & 3 | dscp << 2
        out[at + 10 : at + 12] = b"\0\0"
        out[at + 10 : at + 12] = struct.pack("!H", checksum(bytes(out[at : at + 20])))
    return bytes(out)


def describe(frame: bytes) -> str:
    """What a frame is, in a line."""
    fields, at = [f"{len(frame)} bytes"], 14
    ethertype = int.from_bytes(frame[12:14], "big")
    if ethertype == VLAN and len(frame) >= 18:
        fields.append(f"802.1Q priority {frame[14] >> 5} VLAN {int.from_bytes(frame[14:16], 'big') & 0xFFF}")
        ethertype, at = int.from_bytes(frame[16:18], "big"), 18
    if ethertype == IPV4 and len(frame) >= at + 20:
        head = frame[at : at + 20]
        right = "" if checksum(head) == 0 or head[0] & 15 != 5 else " (checksum wrong)"
        fields.append(
            f"{IPv4Address(head[12:16])} -> {IPv4Address(head[16:20])} DSCP {head[1] >> 2} ECN {head[1] & 3}{right}"
        )
    else:
        fields.append(f"ethertype {ethertype:#06x}")
    if frame[at + 28 : at + 30] == b"\x53\x52" and len(frame) >= at + 76:
        session, sn = struct.unpack_from("<I", frame, at + 32)[0], struct.unpack_from("<Q", frame, at + 60)[0]
        fields.append(f"session {session & 0xFFFFFF} engine {session >> 24} sn {sn}")
    return ", ".join(fields)
