"""Attacks the programs of a lab with well-formed packets whose fields are forged: `adversary.py DOOR JSON`.

Runs on a server of the lab (lab.popen). JSON is a `Plan`: who is attacked, what the attacker has seen or guessed, for
how long and how fast. Prints {"sent": datagrams, messages or calls, "bytes": of payload, "heard": what came back}.
Formats: docs/protocol.md, controller/rostrum.thrift. Everything is bounded by time and rate.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import random
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from rostrum.lab.intruder import body_check
from xxhash import xxh64_intdigest

DATA, CONTROL = 7070, 7071
GROUPS_KNOWN = 8  # numbers of message groups: the manager counts from 1
NOTHING = 0xFFFFFFFF
FAR = (1 << 40) - 1
TURN_S = 0.01  # what goes out is spread over turns of this length
NOBODY = 65534  # uid of a program that has no right to anything


@dataclasses.dataclass
class Plan:
    """What is known to the attacker. Addresses as text."""

    seed: int = 1
    seconds: float = 1.0
    rate: float = 3000.0  # datagrams or messages a second
    me: str = ""  # address of the attacker's data NIC
    me_name: str = ""
    target: str = ""  # a server's data address, or the manager's
    groups: list[str] = dataclasses.field(default_factory=list)  # multicast addresses in use
    message_groups: dict[str, int] = dataclasses.field(default_factory=dict)  # address -> port
    others: dict[str, str] = dataclasses.field(default_factory=dict)  # servers: name -> data address
    nonces: list[int] = dataclasses.field(default_factory=list)  # of transfers, seen
    paths: list[tuple[str, str]] = dataclasses.field(default_factory=list)  # (request, response) ids of others
    names: list[str] = dataclasses.field(default_factory=list)  # of message groups
    boots: list[int] = dataclasses.field(default_factory=list)
    dpids: list[int] = dataclasses.field(default_factory=list)
    path: str = ""  # of a unix socket
    nic: str = ""


@dataclasses.dataclass
class Done:
    sent: int = 0
    bytes: int = 0
    heard: int = 0
    text: list[str] = dataclasses.field(default_factory=list)


def number(address: str) -> int:
    return int.from_bytes(socket.inet_aton(address), "big")


def incarnation(boot_id: int) -> int:
    """The upper half of splitmix64."""
    mask = (1 << 64) - 1
    z = (boot_id + 0x9E3779B97F4A7C15) & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return (z ^ z >> 31) >> 32 or 1


# ------------------------------------------------------------------------------------------------- the data channel


def data_packet(nonce: int, sn: int, *, flags: int = 0, session: int = 0, engine: int = 0, aux: int = 0,
                payload: bytes = b"") -> bytes:  # fmt: skip
    head = struct.pack("<HBB", 0x5253, 2, flags) + session.to_bytes(3, "little") + bytes([engine])
    return head + struct.pack("<QQQ", nonce, sn, aux) + payload


def repair_packet(nonce: int, sn: int, repair: int, distances: list[int], *, flags: int = 8, session: int = 0,
                  payload: bytes = b"") -> bytes:  # fmt: skip
    head = struct.pack("<HBB", 0x5253, 2, flags) + session.to_bytes(3, "little") + b"\0" + struct.pack("<QQ", nonce, sn)
    short = len(distances) > 10
    shape = (len(distances) + 1) | (128 if short else 0)
    ways = b"".join(struct.pack("<B" if short else "<H", one) for one in distances)
    return head + repair.to_bytes(3, "little") + bytes([shape]) + ways.ljust(20, b"\0") + payload


def forged_data(plan: Plan, rng: random.Random) -> bytes:
    nonce = rng.choice([*plan.nonces, *plan.nonces, rng.getrandbits(64) | 1])
    sn, session = rng.choice([0, 1, rng.randrange(900), rng.getrandbits(40), 2**64 - 1]), rng.choice([0, 0, 0, 1, 9999])
    size = rng.choice([0, 8896, 8896, 4000])
    if rng.randrange(3) == 0:
        flags = rng.choice([8, 24, 40, 56])
        distances = rng.choice([[], [1], [1] * 20, [255] * 20, [65535] * 10])
        return repair_packet(nonce, sn, rng.randrange(1 << 24), distances, flags=flags, session=session,
                             payload=rng.randbytes(size))  # fmt: skip
    flags = rng.choice([0, 0, 1, 2, 4, 6, 7, 64, 128])
    aux = rng.getrandbits(64) if flags & 65 else 0
    return data_packet(nonce, sn, flags=flags, session=session, engine=rng.choice([0, 0, 1, 7]), aux=aux,
                       payload=rng.randbytes(size))  # fmt: skip


# ----------------------------------------------------------------------------------------- datagrams between agents


def acknowledgement(nonce: int, *, flags: int, view: int, cum: int, hesn: int, base: int, words: list[int],
                    settled: int = 0) -> bytes:  # fmt: skip
    head = struct.pack("<HBBHHQQQQQIB3x", 0x4152, 2, flags, len(words), settled, nonce, view, cum, hesn, base, 1, 1)
    return head + struct.pack(f"<{len(words)}Q", *words)


def forged_peer(plan: Plan, rng: random.Random) -> bytes:
    nonce = rng.choice([*plan.nonces, *plan.nonces, rng.getrandbits(64) | 1])
    if rng.randrange(4) == 0:
        sn = rng.choice([rng.randrange(900), FAR])
        return data_packet(nonce, sn, flags=rng.choice([0, 1]), engine=1, payload=rng.randbytes(8896))
    cum = rng.choice([0, rng.randrange(900), (1 << 62) - 1])
    return acknowledgement(
        nonce,
        flags=rng.randrange(1, 128),
        view=rng.choice([0, 1, 2, 3, 1 << 62]),
        cum=cum,
        hesn=rng.choice([0, cum, 1 << 61]),
        base=(cum + 63) // 64 * 64 if cum < 1 << 61 else 0,
        words=[rng.choice([0, 2**64 - 1]) for _ in range(rng.choice([0, 1, 48]))],
        settled=rng.choice([0, 1, 65535]),
    )


# ------------------------------------------------------------------------------------------------------ message groups


def packet_id(sender: int, life: int, group: int, sn: int) -> bytes:
    return struct.pack("<IIIQ", sender, life, group, sn)


def views(version: int) -> bytes:
    return struct.pack("<BIHBHBH", 0, version, 0, 0, 0, 0, 0)


def check(seeded_by: bytes, data: bytes) -> bytes:
    """Anybody can make it: it finds chance, not malice."""
    return struct.pack("<I", xxh64_intdigest(data, xxh64_intdigest(seeded_by)) & NOTHING)


def body(ident: bytes, payload: bytes, version: int = 1) -> bytes:
    rest = struct.pack("<HB", len(payload), 0) + views(version) + payload
    return body_check(ident, rest) + rest


def forged_message(plan: Plan, rng: random.Random) -> bytes:
    """Any kind, as if of any server, known or invented, in its true incarnation or a higher one."""
    sender = rng.choice([*map(number, plan.others.values()), number(plan.me), rng.getrandbits(32)])
    life = rng.choice([*map(incarnation, plan.boots), NOTHING, rng.getrandbits(32) | 1])
    group = rng.choice([*range(1, GROUPS_KNOWN), rng.getrandbits(31)])
    sn = rng.choice([rng.randrange(1, 500), rng.randrange(1, 1 << 59), 1])
    kind = rng.randrange(1, 7)
    head = struct.pack("<HBB", 0x5247, 3, kind)
    ident = packet_id(sender, life, group, sn)
    if kind in (1, 5):
        return head + ident + body(ident, rng.randbytes(rng.choice([1, 60, 1000])))
    if kind == 2:
        xor = body(ident, rng.randbytes(400))
        count = rng.choice([1, 8, 32])
        ids = b"".join(packet_id(sender, life, group, sn + n) for n in range(count))
        head += struct.pack("<IBBH", sender, count, 0, len(xor))
        return head + check(head, ids) + ids + xor
    if kind == 3:
        asked = [number(rng.choice([*plan.others.values()])) for _ in range(48)]
        items = b"".join(
            packet_id(of, life, group, sn + 33 * n) + struct.pack("<I", NOTHING) for n, of in enumerate(asked)
        )
        head += struct.pack("<IBBH", sender, len(asked), 0, 0)
        return head + check(head, items) + items
    if kind == 4:
        states = b"".join(struct.pack("<IQ3x", n + 1, sn) + views(rng.choice([1, NOTHING])) for n in range(16))
        head += struct.pack("<II", sender, life)
        states = struct.pack("<I", 16) + states
        return head + check(head, states) + states
    report = struct.pack("<HHIIIQ", 0x4652, 1, sender, life, group, rng.choice([0, 1, sn]))
    return report + struct.pack("<I", xxh64_intdigest(report) & NOTHING)


def forged_probe(plan: Plan, rng: random.Random) -> bytes:
    return (
        b"RSPROBE1" + rng.randbytes(8) + bytes([rng.randrange(256), rng.randrange(256)]) + bytes(rng.choice([0, 1400]))
    )


# ------------------------------------------------------------------------------------------------------------- sending


def paced(plan: Plan) -> Iterator[int]:
    """Numbers, no faster than the plan's rate, until its time is over."""
    begin = time.monotonic()
    for turn in itertools.count():
        now = time.monotonic()
        if now - begin >= plan.seconds:
            return
        yield turn
        ahead = begin + (turn + 1) / plan.rate - time.monotonic()
        if ahead > TURN_S:
            time.sleep(ahead)


def udp(plan: Plan, make: Callable[[Plan, random.Random], bytes], where: list[tuple[str, int]]) -> Done:
    """From the attacker's own address, from the agent's port where that is free to share, to each place in turn."""
    done, rng = Done(), random.Random(plan.seed)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(plan.me))
        link.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
        link.bind((plan.me, 0))
        for turn in paced(plan):
            sent = make(plan, rng)
            with contextlib.suppress(OSError):
                link.sendto(sent, where[turn % len(where)])
                done.sent, done.bytes = done.sent + 1, done.bytes + len(sent) + 42
    return done


def spoofed(plan: Plan, make: Callable[[Plan, random.Random], bytes], where: list[tuple[str, int]]) -> Done:
    """As other servers' agents, by address and port: what only keys can tell from true; one in four from an address
    that nobody can have, or from the attacked one's own. One fragment each.
    """
    done, rng = Done(), random.Random(plan.seed)
    sources = [one for one in plan.others.values() if one != plan.target]
    odd = [plan.target, "0.0.0.0", "127.0.0.1", "255.255.255.255", "239.192.0.9", "198.51.100.7", *plan.groups]
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as link:
        link.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(plan.me))
        for turn in paced(plan):
            to, port = where[turn % len(where)]
            inner = make(plan, rng)
            source = rng.choice(odd if turn % 4 == 0 else sources)
            datagram = struct.pack(">HHHH", CONTROL, port, 8 + len(inner), 0) + inner
            head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(datagram), 0, 0, 8, 17, 0,
                               socket.inet_aton(source), socket.inet_aton(to))  # fmt: skip
            with contextlib.suppress(OSError):
                link.sendto(head + datagram, (to, 0))
                done.sent, done.bytes = done.sent + 1, done.bytes + len(head) + len(datagram) + 14
    return done


def places(plan: Plan, port: int) -> list[tuple[str, int]]:
    return [(plan.target, port), *((group, DATA) for group in plan.groups), *plan.message_groups.items()]


# ------------------------------------------------------------------------------------------------- the control channel


def control(kind: int, nonce: int, session: int, fields: bytes, version: int = 2) -> bytes:
    return struct.pack("<IBBHQI", 16 + len(fields), kind, version, 0, nonce, session) + fields


def hello(name: str, boot: int = 5, version: int = 2) -> bytes:
    return control(1, 0, 0, struct.pack("<IQH", 3, boot, len(name)) + name.encode(), version)


def open_object(
    nonce: int,
    *,
    app: bytes,
    data: int,
    size: int,
    fragment: int,
    group: str = "239.192.3.3",
    engine: int = 0,
    path: int = 2,
    epoch: int = 0,
) -> bytes:
    fragments = max(1, -(-size // fragment))
    fields = app + struct.pack("<QQIQQIIHBBBI", data, size, fragment, 0, fragments, 5000,
                               number(group) if path else 0, DATA if path else 0, engine, path, 1, epoch)  # fmt: skip
    return control(2, nonce, 0, fields + bytes([1, 16]) + bytes(16))


def forged_control(plan: Plan, rng: random.Random) -> bytes:
    nonce = rng.choice([*plan.nonces, rng.getrandbits(64) | 1])
    kind = rng.choice([2, 2, 2, 2, 3, 4, 5, 5, 5, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15])
    fields = {
        3: struct.pack("<BQH", rng.randrange(3), 2**63, 0),
        4: struct.pack("<Q", rng.randrange(900)),
        5: struct.pack("<QQ", rng.randrange(900), rng.randrange(900)),
        6: struct.pack("<Q", rng.randrange(900)) + rng.randbytes(8896),
        7: b"",
        8: struct.pack("<BQH", rng.randrange(3), 0, 0),
        9: struct.pack("<QQQQQQQI", FAR, 1 << 47, 1 << 47, 1 << 47, 1 << 49, 1 << 61, 1 << 39, 1),
        10: struct.pack("<H", 3) + b"lie",
        11: struct.pack("<Q", rng.getrandbits(64)),
        13: struct.pack("<QQIBH", 0, 0, 1, 1, 64) + b"\xff" * 8,
        14: struct.pack("<QHB", 0, rng.choice([1, 28]), 0),
        15: struct.pack("<QHB", 0, 1, 16) + bytes(16),
    }
    if kind != 2:
        return control(kind, nonce, rng.choice([0, NOTHING]), fields[kind])
    return open_object(
        nonce,
        app=rng.randbytes(16),
        data=rng.getrandbits(64),
        size=rng.choice([0, 1, 5000, 1 << 30, 1 << 38]),
        fragment=rng.choice([8896, 65000]),
        group=rng.choice([*plan.groups, f"239.192.{rng.randrange(256)}.{rng.randrange(1, 255)}"]),
        engine=rng.choice([0, 0, 0, 1, 200]),
        path=rng.choice([1, 2, 2, 77]),
        epoch=rng.choice([0, 0, 0, 3]),
    )


def talk(plan: Plan, greeting: bytes, make: Callable[[Plan, random.Random], bytes], port: int, each: int) -> Done:
    """Connections one after the other; each says its greeting and up to `each` messages."""
    done, rng = Done(), random.Random(plan.seed)
    link: socket.socket | None = None
    left = 0
    for _ in paced(plan):
        try:
            if link is None or not left:
                if link is not None:
                    link.close()
                link, left = socket.create_connection((plan.target, port), 1.0), each
                link.setblocking(False)
                link.send(greeting)
            sent = make(plan, rng)
            link.send(sent)
            left -= 1
            done.sent, done.bytes = done.sent + 1, done.bytes + len(sent) + 66
            with contextlib.suppress(BlockingIOError):
                heard = len(link.recv(1 << 16))
                done.heard += heard
                left = left if heard else 0
        except BlockingIOError:
            left = 0  # cut in the middle, or nobody reads
        except OSError:
            left = 0
    if link is not None:
        link.close()
    return done


def attack_control(plan: Plan) -> Done:
    return talk(plan, hello(plan.me_name), forged_control, CONTROL, 200)


def attack_opens(plan: Plan) -> Done:
    """Many objects that are well announced, and no data."""

    def one(plan: Plan, rng: random.Random) -> bytes:
        return open_object(rng.getrandbits(64) | 1, app=rng.randbytes(16), data=rng.getrandbits(64), size=100,
                           fragment=8896, path=0)  # fmt: skip

    return talk(plan, hello(plan.me_name), one, CONTROL, 1 << 30)


def attack_hellos(plan: Plan) -> Done:
    """As every other server in turn, in other versions too."""
    greetings = [hello(name, boot, version) for name in plan.others for boot in (1, 2**64 - 1) for version in (2, 3)]
    done, rng = Done(), random.Random(plan.seed)
    held: list[socket.socket] = []
    for turn in paced(plan):
        try:
            link = socket.create_connection((plan.target, CONTROL), 1.0)
            held.append(link)
            link.sendall(greetings[turn % len(greetings)] + forged_control(plan, rng))
            done.sent, done.bytes = done.sent + 1, done.bytes + 600
        except OSError:
            pass
        if len(held) > 200:
            held.pop(0).close()
    return done


# --------------------------------------------------------------------------------------------------------- the manager


def attack_thrift(plan: Plan) -> Done:
    """As other servers' agents, with the highest boot id; then as itself about what is others'."""
    from rostrum.controller.northbound.thrift.codec import encode, idl

    rng, done = random.Random(plan.seed), Done()

    def call(method: str, **arguments: Any) -> bytes:
        return bytes(encode("Manager", method, arguments))

    def greet(server: str, boot: int) -> bytes:
        live = [
            idl.LivePath(f"r{n}", rng.choice(plan.paths)[1] if plan.paths and n < 8 else f"p{n}", "239.192.0.9", 1,
                         [*plan.others][:4], 1 << 40) for n in range(rng.choice([0, 8, 2000]))
        ]  # fmt: skip
        return call("hello", info=idl.AgentInfo(1, server, boot, CONTROL, live, wants_light=True, knows_probes=True,
                                                protocols=["republic", "rdcm"],
                                                group_engines=[idl.Engine("plain", []), idl.Engine("ricochet", [])],
                                                ))  # fmt: skip

    def about_others(plan: Plan, rng: random.Random) -> bytes:
        request, response = rng.choice([*plan.paths, (f"x{rng.getrandbits(64)}", f"p-{rng.randrange(100)}")])
        names = [*plan.others]
        rows = [idl.ReceiverReport(name, "failed", "lies", 2**62, -1, -(2**62), 2**62) for name in names]
        report = idl.TransferReport(request, response, rng.choice(["done", "failed", "!"]), "lies", -1, 1, 1, 1, rows)
        use = idl.GroupUse(group=rng.choice([*plan.names, f"junk{rng.randrange(50)}"]), id=rng.randrange(9), version=99,
                           address="239.192.0.9")  # fmt: skip
        failure = idl.FailureReport(response, rng.choice([1, 1 << 60]), rng.randrange(1, 4), 1, rng.choice(names))
        asked = idl.PathRequest(f"x{rng.getrandbits(64)}", b"x" * 16, 1, rng.choice([0, 1 << 62]), 1 << 40,
                                rng.choice(names), rng.sample(names, 3), wait_ms=rng.choice([0, 50]))  # fmt: skip
        return rng.choice(
            [
                lambda: call("release", request_id=request, response_id=response),
                lambda: call("cancel", request_id=request),
                lambda: call("no_light", response_id=response, receivers=names),
                lambda: call("report", report=report),
                lambda: call("view_used", response_id=response, version=rng.choice([1, 1 << 60])),
                lambda: call("failure", report=failure),
                lambda: call("join_group", group=use),
                lambda: call("leave_group", group=use.group),
                lambda: call("request", request=asked),
                lambda: call("keepalive"),
            ]
        )()

    slow = dataclasses.replace(plan, seconds=plan.seconds / 2, rate=min(plan.rate, 100.0))
    for turn in paced(slow):
        with contextlib.suppress(OSError), socket.create_connection((plan.target, 9090), 1.0) as link:
            sent = greet([*plan.others][turn % len(plan.others)], rng.choice([2**63 - 1, time.time_ns()]))
            link.sendall(sent)
            link.settimeout(0.2)
            done.sent, done.bytes = done.sent + 1, done.bytes + len(sent)
            answer = link.recv(1 << 16)
            done.heard += len(answer)
            if b"welcome" in answer:
                done.text.append(f"welcomed as {[*plan.others][turn % len(plan.others)]}")
    rest = dataclasses.replace(plan, seconds=plan.seconds / 2)
    more = talk(
        rest, greet("h2-not", 1) if not plan.me_name else greet(plan.me_name, 2**63 - 1), about_others, 9090, 400
    )
    return Done(done.sent + more.sent, done.bytes + more.bytes, done.heard + more.heard, sorted(set(done.text)))


def attack_rest(plan: Plan) -> Done:
    """Requests with senseless or enormous values, and lists that cost something, on connections of their own."""

    def one(plan: Plan, rng: random.Random) -> bytes:
        names = [*plan.others]
        asked = rng.choice(
            [
                {"sender": rng.choice(names), "receivers": names * 200, "size": 1},
                {"sender": "h1", "receivers": ["h1"], "size": -5},
                {"sender": "nobody", "receivers": names, "size": 2**62, "lease_ms": 2**62},
                {"group": "x" * 5000},
                {},
            ]
        )
        text = json.dumps(asked).encode()
        way = rng.choice([b"/v1/paths", b"/v1/groups", b"/v1/failed-links", b"/v1/links/a/b/drain"])
        get = rng.choice([b"/v1/paths?limit=1000", b"/v1/agents", b"/v1/groups", b"/v1/doctor", b"/v1/events?since=-1"])
        if rng.randrange(2):
            return b"GET " + get + b" HTTP/1.1\r\nHost: x\r\n\r\n"
        head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        return head % (way, len(text)) + text

    return talk(dataclasses.replace(plan, rate=min(plan.rate, 100.0)), b"", one, 8080, 8)


def attack_openflow(plan: Plan) -> Done:
    """As a switch of the topology: the whole handshake, then ports that go down, and frames that were never heard."""
    done = Done()
    for turn in paced(dataclasses.replace(plan, rate=min(plan.rate, 20.0))):
        dpid = plan.dpids[turn % len(plan.dpids)]
        with contextlib.suppress(OSError), socket.create_connection((plan.target, 6653), 1.0) as link:
            link.settimeout(0.15)
            link.sendall(struct.pack(">BBHI", 4, 0, 8, 1))
            for _ in range(12):
                heard = link.recv(1 << 16)
                if not heard:
                    break
                done.heard += len(heard)
                while len(heard) >= 8:
                    _, kind, length, xid = struct.unpack_from(">BBHI", heard)
                    answer = b""
                    if kind == 5:
                        answer = struct.pack(">BBHIQIBB2xII", 4, 6, 32, xid, dpid, 0, 254, 0, 0x4F, 0)
                    elif kind == 20:  # barrier
                        answer = struct.pack(">BBHI", 4, 21, 8, xid)
                    elif kind == 18 and len(heard) >= 10:  # a description: of nothing
                        answer = struct.pack(">BBHIHH4x", 4, 19, 16, xid, struct.unpack_from(">H", heard, 8)[0], 0)
                    elif kind == 2:
                        answer = struct.pack(">BBHI", 4, 3, 8, xid)
                    if answer:
                        link.sendall(answer)
                        done.sent, done.bytes = done.sent + 1, done.bytes + len(answer)
                    if length < 8:
                        break
                    heard = heard[length:]
                down = struct.pack(">I4x6s2x16sIIIIIIII", 49, b"\0" * 6, b"p", 1, 1, 0, 0, 0, 0, 0, 0)
                link.sendall(struct.pack(">BBHIB7x", 4, 12, 16 + len(down), 9, 2) + down)
                done.sent += 1
    return done


def attack_frames(plan: Plan) -> Done:
    """LLDP as switches send it, and IGMP reports for others' groups, from a server's port."""
    done, rng = Done(), random.Random(plan.seed)

    def tlv(kind: int, value: bytes) -> bytes:
        return struct.pack(">H", kind << 9 | len(value)) + value

    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as link:
        link.bind((plan.nic, 0))
        for turn in paced(plan):
            if turn % 2:
                parts = [(1, b"\x07tor1"), (2, b"\x0749"), (3, b"\0\x78"), (127, rng.randbytes(40)), (0, b"")]
                frame = bytes.fromhex("0180c200000e02000000000188cc") + b"".join(tlv(*part) for part in parts)
            else:
                group = socket.inet_aton(rng.choice([*plan.groups, *plan.message_groups, "239.192.1.1"]))
                report = struct.pack(">BBH4s", 0x16, 0, 0, group)
                head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(report), 0, 0, 1, 2, 0,
                                   socket.inet_aton(plan.me), group)  # fmt: skip
                to = b"\x01\x00\x5e" + bytes([group[1] & 127, *group[2:]])
                frame = to + rng.randbytes(6) + b"\x08\0" + head + report
            with contextlib.suppress(OSError):
                link.send(frame)
                done.sent, done.bytes = done.sent + 1, done.bytes + len(frame)
    return done


# ------------------------------------------------------------------------------------------------------ on the server


def attack_application(plan: Plan) -> Done:
    """A program of another user at the agent's socket: it must not even get a connection."""
    done = Done()
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    for _ in paced(dataclasses.replace(plan, rate=min(plan.rate, 200.0))):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
            done.sent += 1
            try:
                link.connect(plan.path)
                done.text.append("connected")
            except PermissionError:
                done.heard += 1
    return done


def seen(plan: Plan) -> Done:
    """Nonces of data packets and ids of message packets that come by: what somebody on the way can read."""
    nonces: set[int] = set()
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)) as link:
        link.bind((plan.nic, 0x0800))
        link.settimeout(plan.seconds)
        end = time.monotonic() + plan.seconds
        while time.monotonic() < end and len(nonces) < 4:
            try:
                packet = link.recv(128)
            except TimeoutError:
                break
            inner = packet[28:]
            if len(inner) >= 16 and inner[:3] == b"\x53\x52\x02":
                nonces.add(struct.unpack_from("<Q", inner, 8)[0])
    return Done(text=[str(one) for one in sorted(nonces)])


DOORS: dict[str, Callable[[Plan], Done]] = {
    "data": lambda plan: udp(plan, forged_data, [(plan.target, DATA), *((group, DATA) for group in plan.groups)]),
    "peer": lambda plan: udp(plan, forged_peer, [(plan.target, CONTROL)]),
    "messages": lambda plan: udp(plan, forged_message, places(plan, CONTROL)),
    "probe": lambda plan: udp(plan, forged_probe, places(plan, CONTROL)),
    "spoofed-peer": lambda plan: spoofed(plan, forged_peer, [(plan.target, CONTROL)]),
    "spoofed-data": lambda plan: spoofed(plan, forged_data, [(plan.target, DATA), *((g, DATA) for g in plan.groups)]),
    "spoofed-probe": lambda plan: spoofed(plan, forged_probe, places(plan, CONTROL)),
    "spoofed-messages": lambda plan: spoofed(plan, forged_message, places(plan, CONTROL)),
    "control": attack_control,
    "opens": attack_opens,
    "hellos": attack_hellos,
    "thrift": attack_thrift,
    "rest": attack_rest,
    "openflow": attack_openflow,
    "frames": attack_frames,
    "application": attack_application,
    "seen": seen,
}


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(DOORS[sys.argv[1]](Plan(**json.loads(sys.argv[2]))))))
