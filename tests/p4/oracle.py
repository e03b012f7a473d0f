"""What a switch does with a frame, from docs/p4.md alone: judges the P4 program and targets on random frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address

from tests.p4.frames import ARP, IPV4, UDP, VLAN, checksum, remark

MALFORMED, CHECKSUM, OTHER_FRAME, UNKNOWN, REFUSED, FOREIGN, NO_PATH, WAY_BACK = range(1, 9)
OWN_HEADER = b"\x53\x52\x02"


@dataclass(frozen=True)
class State:
    """What is installed. `paths`: (port, group) -> ports. `guarded`: the first 16 bits of groups of ours."""

    unicast: Mapping[int, int]
    grants: frozenset[tuple[int, int, int]]
    paths: Mapping[tuple[int, int], tuple[int, ...]]
    guarded: int
    dscp: int


@dataclass
class Parsed:
    vlan: bool = False
    kind: str = "other"  # "arp", "ipv4", "other" or "short"
    header: bytes = b""  # IPv4
    address: int = 0


def parse(frame: bytes) -> Parsed:
    found, at = Parsed(), 14
    ethertype = int.from_bytes(frame[12:14], "big")
    if ethertype == VLAN:
        if len(frame) < 18:
            return Parsed(kind="short")
        found.vlan, at = True, 18
        ethertype = int.from_bytes(frame[16:18], "big")
    rest = frame[at:]
    if ethertype == ARP:
        if len(rest) < 6:
            found.kind = "short"
        elif rest[:6] == b"\0\1\x08\0\6\4":
            found.kind = "arp" if len(rest) >= 28 else "short"
            found.address = int.from_bytes(rest[24:28], "big")
    elif ethertype == IPV4:
        found.kind = "ipv4" if len(rest) >= 20 else "short"
        found.header, found.address = rest[:20], int.from_bytes(rest[16:20], "big")
        whole = int.from_bytes(rest[6:8], "big") & 0x3FFF == 0
        if found.kind == "ipv4" and rest[0] & 15 == 5 and whole and rest[9] == UDP and short_udp(rest[20:]):
            found.kind = "short"
    return found


def short_udp(rest: bytes) -> bool:
    """A header is announced, and the frame ends within it."""
    if len(rest) < 8:
        return True
    if int.from_bytes(rest[4:6], "big") < 40:
        return False
    return len(rest) < 11 or (rest[8:11] == OWN_HEADER and len(rest) < 40)


def judge(state: State, port: int, frame: bytes) -> tuple[int, dict[int, bytes]]:
    """(reason of a drop or 0, port -> frame that leaves by it)."""
    found = parse(frame)
    if found.kind == "short":
        return MALFORMED, {}
    if found.kind == "other":
        return OTHER_FRAME, {}
    options = False
    if found.kind == "ipv4":
        first, total = found.header[0], int.from_bytes(found.header[2:4], "big")
        options = first & 15 > 5
        if first >> 4 != 4 or first & 15 < 5 or total < 20:
            return MALFORMED, {}
        if not options and checksum(found.header) != 0:
            return CHECKSUM, {}
        if found.address >> 28 == 0xE:
            return multicast(state, port, frame, found, options)
    out = state.unicast.get(found.address)
    if out is None:
        return UNKNOWN, {}
    return (WAY_BACK, {}) if out == port else (0, {out: frame})


def multicast(state: State, port: int, frame: bytes, found: Parsed, options: bool) -> tuple[int, dict[int, bytes]]:
    group, source = found.address, int.from_bytes(found.header[12:16], "big")
    if (port, group, source) not in state.grants:
        return (REFUSED if group >> 16 == state.guarded else FOREIGN), {}
    outs = state.paths.get((port, group))
    if outs is None:
        return NO_PATH, {}
    marked = remark(frame, dscp=None if options else state.dscp, pcp=5)
    return 0, {out: marked for out in outs if out != port}


def number(address: str) -> int:
    return int(IPv4Address(address))
