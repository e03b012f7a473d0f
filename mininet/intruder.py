"""A program that attacks from a server of a secured lab: `python -m rostrum.lab.intruder WHAT JSON` (adversary).

What it sees or does is JSON on standard output, a line each. Formats: docs/protocol.md, controller/rostrum.thrift.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import random
import resource
import select
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import thriftpy2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from rostrum import controller
from thriftpy2.protocol.cybin import TCyBinaryProtocol  # type: ignore[attr-defined]
from thriftpy2.transport.memory import TCyMemoryBuffer  # type: ignore[attr-defined]
from xxhash import xxh3_64_intdigest, xxh64_intdigest

IDL = Path(next(iter(controller.__path__))).resolve() / "rostrum.thrift"
idl: Any = thriftpy2.load(str(IDL), module_name="intruder_thrift")

CONTROL, THRIFT, REST, OPENFLOW = 7071, 9090, 8080, 6653
HELLO, OPEN, OPEN_ACK, INTL_SEQ, FINISHED, RECEIVED, PING, PONG, KEY = 1, 2, 3, 4, 7, 8, 11, 12, 18
ASK, DATA, RATE, REPORT_TO = 5, 6, 9, 16
RDCM = 1  # its engine
PEER_KEY = 4  # KeyFor.PEER of controller/rostrum.thrift
HEARD_MOST = 3000  # datagrams that are kept
PACE_S = 0.001  # between datagrams: it lies, it does not flood
LIES = 400  # of one transfer or group
BURSTS = 20  # in which they go to peers, while a transfer runs
BURST_S = 0.01  # from one to the next
TOLD_S = 0.5  # from one report of what is not so to the next
PIECE = 1 << 20  # of an object's digest
BOOT = 5
ENDS_S = 20.0  # whoever refuses has ended the connection by then: handshakes may take 10 s at most
ONEWAY = 4
Plan = dict[str, Any]


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


# ------------------------------------------------------------------------------------------------------- datagrams


def multicast(me: str) -> socket.socket:
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(me))
    out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
    return out


def eavesdrop(plan: Plan) -> None:
    """Datagrams that come by an interface until the input ends: where they went, and their bytes."""
    heard = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
    heard.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
    heard.bind((plan["nic"], 0))
    say(ready=True)
    kept = 0
    while True:
        ready, _, _ = select.select([heard, sys.stdin], [], [])
        if heard not in ready:
            break
        frame = heard.recv(1 << 17)
        ip = frame[14:]
        if frame[12:14] == b"\x08\x00" and ip[9] == 17 and kept < HEARD_MOST:
            at = (ip[0] & 15) * 4
            to, port = socket.inet_ntoa(ip[16:20]), struct.unpack("!H", ip[at + 2 : at + 4])[0]
            say(to=to, port=port, bytes=ip[at + 8 :].hex())
            kept += 1


def throw(plan: Plan) -> None:
    """Sends what its input names, at a pace."""
    sent, out = 0, multicast(plan["me"])
    for line in sys.stdin:
        one = json.loads(line)
        with contextlib.suppress(OSError):
            out.sendto(bytes.fromhex(one["bytes"]), (one["to"], one["port"]))
            sent += 1
        time.sleep(PACE_S)
    say(sent=sent)


def transmitter_key(key: bytes, number: int) -> bytes:
    """As rs_seal_transmitter_key of the agent makes it."""
    return HKDF(hashes.SHA256(), 32, None, b"rostrum seal 2" + struct.pack("<II", 0, number)).derive(key)


def sealed(key: bytes, epoch: int, transmitter: int, to: str, port: int, clear: bytes, text: bytes,
           counter: int) -> bytes:  # fmt: skip
    """As agent/daemon/seal/seal.c does with a transmitter's key."""
    made = HKDF(hashes.SHA256(), 44, None, b"packets\x01").derive(key)
    head = b"\xe1" + counter.to_bytes(5, "little") + epoch.to_bytes(2, "little") + transmitter.to_bytes(4, "little")
    nonce = bytes(a ^ b for a, b in zip(made[32:], counter.to_bytes(12, "big"), strict=True))
    place = socket.inet_aton(to)[::-1] + port.to_bytes(2, "little")
    return clear + head + AESGCM(made[:32]).encrypt(nonce, text, place + clear + head)


def body_check(ident: bytes, rest: bytes) -> bytes:
    """Of a packet of a group (docs/protocol.md, Group messages)."""
    return struct.pack("<I", (xxh3_64_intdigest(rest) ^ xxh3_64_intdigest(ident)) & 0xFFFFFFFF)


def opened(one: Plan, datagram: bytes) -> bytes:
    """What a group's key opens of a datagram of that group."""
    head, at = datagram[4:16], socket.inet_aton(one["to"])[::-1] + one["port"].to_bytes(2, "little")
    counter, number = int.from_bytes(head[1:6], "little"), int.from_bytes(head[8:12], "little")
    made = HKDF(hashes.SHA256(), 44, None, b"packets\x01").derive(transmitter_key(bytes.fromhex(one["key"]), number))
    nonce = bytes(a ^ b for a, b in zip(made[32:], counter.to_bytes(12, "big"), strict=True))
    return AESGCM(made[:32]).decrypt(nonce, datagram[16:], at + datagram[:4] + head)


def another(packet: bytes, ahead: int) -> bytes:
    """The packet of a group that follows that one, in its sender's name, with another text and the right check."""
    sn = int.from_bytes(packet[16:24], "little") + ahead
    ident = packet[4:16] + sn.to_bytes(8, "little")
    rest = packet[28:-4] + b"LIES"
    return packet[:4] + ident + body_check(ident, rest) + rest


def checked(datagram: bytes) -> bytes:
    """A datagram of a region with its check (docs/protocol.md, "Checks")."""
    check = xxh64_intdigest(datagram[16:], xxh64_intdigest(datagram[:12])) & 0xFFFFFFFF
    return datagram[:12] + check.to_bytes(4, "little") + datagram[16:]


def another_of_region(packet: bytes, ahead: int, lie: bool) -> bytes:
    """A packet of a region, in its sender's name, with a number that comes later: its first message, which was
    published, or one that was not, with the right check.
    """
    number, length = int.from_bytes(packet[32:40], "little") + ahead, int.from_bytes(packet[40:42], "little")
    group, sn, body = packet[42:46], int.from_bytes(packet[46:54], "little"), packet[54 : 54 + length]
    if lie:
        sn, rest = sn + ahead, body[4:-4] + b"LIES"
        ident = packet[4:12] + group + sn.to_bytes(8, "little")
        body = body_check(ident, rest) + rest
    inner = length.to_bytes(2, "little") + group + sn.to_bytes(8, "little") + body
    return checked(packet[:32] + number.to_bytes(8, "little") + inner)


def false_statements_in_region(packet: bytes, name: str) -> list[bytes]:
    """What a node of the region that a packet is of says, by that address: that all, or nothing, or what was never sent
    has come; that it leads; that all is to come again.
    """
    sender, life, place = packet[4:8], packet[8:12], packet[16:32]
    who, far = socket.inet_aton(name)[::-1], 1 << 50
    nothing = struct.pack("<BQ", 0, 0)
    all_of_it = struct.pack("<BQQH", 1, 1 << 16, 0, 65535)

    def word(kind: int, rest: bytes) -> bytes:
        return checked(packet[:3] + bytes([kind]) + who + life + bytes(4) + place + rest)

    said = [word(22, sender + life + struct.pack("<Q", number)) for number in (0, 60000, far)]
    said += [word(kind, sender + life + bytes(4) + all_of_it) for kind in (19, 21)]
    said += [word(20, struct.pack("<QQQ6I", stable, cached, 0, 1, 1, rate, rate, 0, 5000))
             for stable, cached in ((0, 0), (1, 1), (far, far)) for rate in (0, 1 << 31)]  # fmt: skip
    for number in (0, 50, far):
        for round_, phase in ((1, 0), (1 << 31, 0), (1 << 31, 1), (1 << 31, 2)):
            entry = sender + life + struct.pack("<7QIH", *[number] * 6, 0, 0, 0) + nothing + nothing
            head = who + struct.pack("<IIBBBBI", round_, 0, 0, 1, phase, 0, 1)
            said += [word(17, head + entry), word(18, head[:-4] + bytes(4))]
    return said


def lies_in_region(one: Plan, names: list[str]) -> list[bytes]:
    """Sealed for all of a region by one of its keys, which opens a datagram of it that was heard: packets in that one's
    sender's name, some with a counter that this one would use next; and whatever nodes say, in everybody's name.
    """
    key, number, counter = bytes.fromhex(one["key"]), one["transmitter"], one["counter"]
    heard = bytes.fromhex(one["sample"])
    packet, its_counter = opened(one, heard), int.from_bytes(heard[5:10], "little")
    its_number = int.from_bytes(heard[12:16], "little")
    own, its = transmitter_key(key, number), transmitter_key(key, its_number)
    texts = [another_of_region(packet, 1 + at // 2 % 50, at % 2 > 0) for at in range(LIES)]
    texts += [text for name in names for text in false_statements_in_region(packet, name)]

    def closed(at: int, text: bytes) -> bytes:
        if at % 4 == 3:
            return sealed(its, one["epoch"], its_number, one["to"], one["port"], heard[:4], text, its_counter + at)
        return sealed(own, one["epoch"], number, one["to"], one["port"], heard[:4], text, counter + at)

    return [closed(at, text) for at, text in enumerate(texts, 1)]


def lies(one: Plan, rng: random.Random) -> list[bytes]:
    """Of a transfer or group whose key it has, sealed as whoever sends would: other bytes in the sender's name."""
    key, made = bytes.fromhex(one["key"]), list[bytes]()
    if one["kind"] == "transfer":
        own = transmitter_key(key, 0)
        for number in range(LIES):
            clear = struct.pack("<HBB4xQQQ", 0x5253, 2, 0x80, one["nonce"], rng.randrange(one["fragments"]), 0)
            made.append(sealed(own, one["epoch"], 0, one["to"], one["port"], clear, rng.randbytes(one["fragment"]),
                               one.get("counter", 0) + 1 + number))  # fmt: skip
        return made
    own, shown = transmitter_key(key, one["transmitter"]), bytes.fromhex(one["sample"])[:4]
    packet = opened(one, bytes.fromhex(one["sample"]))
    for number in range(LIES):
        made.append(sealed(own, one["epoch"], one["transmitter"], one["to"], one["port"], shown,
                           another(packet, 1 + number % 50), one.get("counter", 0) + 1 + number))  # fmt: skip
    return made


def forge(plan: Plan) -> None:
    """Lies about each transfer or group that a line of its input names."""
    rng, out, sent = random.Random(plan["seed"]), multicast(plan["me"]), 0
    for line in sys.stdin:
        one = json.loads(line)
        for packet in lies(one, rng):
            with contextlib.suppress(OSError):
                out.sendto(packet, (one["to"], one["port"]))
                sent += 1
            time.sleep(PACE_S / 4)
    say(sent=sent)


# ------------------------------------------------------------------------------------------------------- an insider


def client(plan: Plan, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.maximum_version = newest
    context.load_cert_chain(plan["certificate"], plan["key"])
    context.load_verify_locations(plan["authority"])
    return context


def server_context(plan: Plan) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(plan["certificate"], plan["key"])
    context.load_verify_locations(plan["authority"])
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def control(kind: int, nonce: int, session: int, fields: bytes) -> bytes:
    return struct.pack("<IBBHQI", 16 + len(fields), kind, 2, 0, nonce, session) + fields


def hello(name: str) -> bytes:
    return control(HELLO, 0, 0, struct.pack("<IQH", 3 | 1 << 31, BOOT, len(name)) + name.encode())


def call(method: str, **arguments: Any) -> bytes:
    """A oneway call to the manager, as a frame."""
    buffer = TCyMemoryBuffer()
    protocol = TCyBinaryProtocol(buffer)
    protocol.write_message_begin(method, ONEWAY, 0)
    protocol.write_struct(getattr(idl.Manager, f"{method}_args")(**arguments))
    protocol.write_message_end()
    body: bytes = buffer.getvalue()
    return struct.pack(">I", len(body)) + body


def keys_of(frame: bytes) -> list[Any]:
    """SealKeys of a call of the manager's; none if it is another one."""
    protocol = TCyBinaryProtocol(TCyMemoryBuffer(frame))
    if protocol.read_message_begin()[0] != "keys":
        return []
    said = idl.Agent.keys_args()
    protocol.read_struct(said)
    return list(said.keys)


def about(server: str, boot: int, **more: Any) -> Any:
    return idl.AgentInfo(version=1, server=server, boot_id=boot, control_port=CONTROL, live_paths=[], seals=True,
                         **more)  # fmt: skip


def false_reports(nonce: int, session: int, first: int, end: int) -> list[bytes]:
    """Of a receiver: far beyond the object, lost nearly all at a bit a second, all over again; another's end."""
    far = struct.pack("<QQQQQQQI", end + (1 << 30), end + (1 << 30), 0, 0, 1 << 50, time.monotonic_ns(), 0, 1)
    bad = struct.pack("<QQQQQQQI", first, 1, 0, 1 << 47, 1, time.monotonic_ns(), 1 << 39, 1)
    said = [control(RATE, nonce, session, one) for _ in range(LIES // 4) for one in (far, bad)]
    return [*said, control(ASK, nonce, session, struct.pack("<QQ", first, first)),
            control(RECEIVED, nonce ^ 1, session, struct.pack("<BQH", 0, 0, 0))]  # fmt: skip


def false_acknowledgements(nonce: int, end: int) -> list[bytes]:
    """Of RDCM: all has come, more than there is, nothing; can be repaired, has left, by each flag and several views."""
    return [struct.pack("<HBBHHQQQQQIB3x", 0x4152, 2, flags, 0, 0, nonce, view, cum, high, 0, 1, 1)
            for flags in (1, 2, 3, 4, 8, 16, 33, 65) for view in (0, 1, 2)
            for cum, high in ((end, end), ((1 << 61), (1 << 61)), (0, 0))]  # fmt: skip


def false_repairs(nonce: int, session: int, engine: int, ring: tuple[int, int], fragment: int,
                  rng: random.Random) -> list[bytes]:  # fmt: skip
    """Data packets with other bytes, as from the one who repairs."""
    made = []
    for _ in range(LIES // BURSTS):
        sn = rng.randrange(ring[0], max(ring[1], ring[0] + 1))
        head = struct.pack("<HBB", 0x5253, 2, 0) + session.to_bytes(3, "little") + bytes([engine])
        made.append(head + struct.pack("<QQQ", nonce, sn, 0) + rng.randbytes(fragment))
    return made


def false_collected_reports(nonce: int, session: int, ring: tuple[int, int]) -> list[bytes]:
    """Of one that speaks for others: nobody misses anything, nobody is there, all are far behind, lose nearly all; and
    requests for all there is.
    """
    first, end = ring
    made = []
    for flags, receivers, worst, sn in ((13, 1 << 20, 0, end), (5, 1, 0, end), (3, 2, 999_999, first), (1, 1, 0, 0)):
        row = struct.pack("<8Q", end, end, 0, 0, time.monotonic_ns(), 0, 1, sn)
        made.append(struct.pack("<HBBIQ", 0x5052, 2, 1, session, nonce) + row
                    + struct.pack("<8I", flags, receivers, 0, worst, 0, 0, 0, 0))  # fmt: skip
    ask = struct.pack("<II", 1, 0) + struct.pack("<QQ", first, end)
    return [*made, struct.pack("<HBBIQ", 0x5052, 2, 2, session, nonce) + ask]


def reports_to(fields: bytes) -> list[str]:
    """Addresses of the parent and the children that a REPORT_TO names."""
    parent, _, children = struct.unpack_from("<IHB", fields, 6)
    found = [parent, *(struct.unpack_from("<I", fields, 13 + 6 * at)[0] for at in range(children))]
    return [socket.inet_ntoa(one.to_bytes(4, "big")) for one in found if one]


class Receiver:
    """The control channel of an agent that says yes to each transfer, has all of it at once, and tells the keys. It
    lies in its reports, and in acknowledgements, reports for others and repairs to those whose keys it was given.
    """

    def __init__(self, name: str, addresses: dict[str, str]) -> None:
        self.name, self.keys = name, dict[int, tuple[int, bytes]]()
        self.addresses, self.peers = addresses, dict[str, Any]()  # their keys
        self._out, self._counter = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0
        self._rng, self._rings = random.Random(1), dict[int, tuple[tuple[int, int], int, int]]()
        self._tasks = set[asyncio.Task[None]]()
        self.lie = ""  # about which it lies: "reports", "acknowledgements", "parent" (repairs), "aggregator"

    def tell_all(self, texts: list[bytes]) -> int:
        """Says what is not true to all of them; how often."""
        return sum(self.tell(name, texts) for name in self.peers)

    def tell(self, name: str, texts: list[bytes]) -> int:
        sent, key = 0, self.peers[name]
        for text in texts:
            self._counter += 1
            datagram = sealed(key.key, key.epoch, key.transmitter, "0.0.0.0", 0, key.id.to_bytes(4, "little"), text,
                              self._counter)  # fmt: skip
            with contextlib.suppress(OSError):
                sent += self._out.sendto(datagram, (self.addresses[name], CONTROL)) > 0
        return sent

    async def _repair(self, what: str, nonce: int, session: int, to: list[str], more: list[bytes]) -> None:
        ring, fragment, engine = self._rings[nonce]
        sent = 0
        for _ in range(BURSTS):
            for name in to:
                repairs = false_repairs(nonce, session, engine, ring, fragment, self._rng)
                sent += self.tell(name, [*more, *repairs])
            await asyncio.sleep(BURST_S)
        say(kind="lies", **{what: sent})

    def repair(self, what: str, nonce: int, session: int, to: list[str], more: list[bytes]) -> None:
        """Other bytes than were sent, while they come."""
        task = asyncio.get_running_loop().create_task(self._repair(what, nonce, session, to, more))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            while True:
                (length,) = struct.unpack("<I", await reader.readexactly(4))
                body = await reader.readexactly(length)
                kind, _, _, nonce, session = struct.unpack_from("<BBHQI", body)
                for answer in self.answers(kind, nonce, session, body[16:]):
                    writer.write(answer)
                if writer.is_closing():
                    return

    def answers(self, kind: int, nonce: int, session: int, fields: bytes) -> list[bytes]:
        if kind == HELLO:
            return [hello(self.name)]
        if kind == PING:
            return [control(PONG, nonce, session, fields)]
        if kind == KEY:
            self.keys[nonce] = (struct.unpack_from("<H", fields)[0], fields[6:38])
        if kind == OPEN:
            _, _, fragment, first, end, _, group, port = struct.unpack_from("<QQIQQIIH", fields, 16)
            engine = fields[62]
            self._rings[nonce] = ((first, end), fragment, engine)
            if nonce in self.keys and group:
                epoch, key = self.keys[nonce]
                to = socket.inet_ntoa(group.to_bytes(4, "big"))
                say(kind="transfer", nonce=nonce, epoch=epoch, key=key.hex(), to=to, port=port, fragment=fragment,
                    fragments=max(1, end - first))  # fmt: skip
            reports = false_reports(nonce, session, first, end) if self.lie == "reports" else []
            if reports:
                say(kind="lies", reports=len(reports))
            if self.lie == "acknowledgements":
                say(kind="lies", acknowledgements=self.tell_all(false_acknowledgements(nonce, end)))
            if self.lie == "parent" and engine == RDCM:
                self.repair("parent", nonce, session, list(self.peers), [])
            return [control(OPEN_ACK, nonce, session, struct.pack("<BQH", 0, 1 << 30, 0)),
                    control(INTL_SEQ, nonce, session, struct.pack("<Q", first)), *reports]  # fmt: skip
        if kind == REPORT_TO and self.lie == "aggregator" and fields[0] and nonce in self._rings:
            near = [name for name in self.peers if self.addresses[name] in reports_to(fields)]
            said = false_collected_reports(nonce, session, self._rings[nonce][0])
            self.repair("aggregator", nonce, session, near or list(self.peers), said)
        if kind == FINISHED:
            return [control(RECEIVED, nonce, session, struct.pack("<BQH", 0, 0, 0))]
        return []


def qsm_options() -> list[Any]:
    """Those that the agent's engine has (docs/qsm.md), with fewer bounds."""
    usual = {"replicas": 5, "token": 5, "rate": 0, "lambda": 0, "least": 0}
    return [idl.EngineOption(name, 0, 100_000_000, 1000 * value, True) for name, value in usual.items()]


async def lie_in_region(plan: Plan, receiver: Receiver, one: Plan) -> None:
    """To all of it by multicast, and to each of its nodes and the publisher, in everybody's name."""
    out, names = multicast(plan["me"]), [plan["me"], *plan["peers"].values()]
    packet, sent, told = opened(one, bytes.fromhex(one["sample"])), 0, 0
    for datagram in lies_in_region(one, names):
        with contextlib.suppress(OSError):
            sent += out.sendto(datagram, (one["to"], one["port"])) > 0
        await asyncio.sleep(PACE_S / 4)
    statements = [text for name in names for text in false_statements_in_region(packet, name)]
    for text in [*statements, *(another_of_region(packet, 1 + at // 2, at % 2 > 0) for at in range(100))]:
        told += receiver.tell_all([text])
        await asyncio.sleep(PACE_S)
    say(kind="lies in region", multicast=sent, unicast=told)


async def be_inside(plan: Plan) -> None:
    """Until a line "end" comes; "lie KIND", "join GROUP", "leave GROUP", "region JSON": it does so first."""
    receiver = Receiver(plan["server"], plan["peers"])
    await asyncio.start_server(receiver.serve, plan["me"], CONTROL, ssl=server_context(plan))
    reader, writer = await asyncio.open_connection(plan["manager"], THRIFT, ssl=client(plan))

    engines = [idl.Engine(name="plain", options=[], regions=False), idl.Engine("qsm", qsm_options(), True)]
    me = about(plan["server"], time.time_ns(), group_engines=engines, protocols=["republic", "rdcm"])
    options = idl.GroupOptions("plain", "none", "")
    writer.write(call("hello", info=me))
    writer.write(call("join_group", group=idl.GroupUse(group=plan["group"], options=options)))
    writer.write(call("peer_keys", servers=list(plan["peers"])))

    async def listen() -> None:
        while True:
            (length,) = struct.unpack(">I", await reader.readexactly(4))
            for one in keys_of(await reader.readexactly(length)):
                if one.purpose == PEER_KEY and one.server in receiver.addresses:
                    receiver.peers[one.server] = one
                say(kind="key", purpose=one.purpose, id=one.id, epoch=one.epoch, key=one.key.hex(),
                    transmitter=one.transmitter)  # fmt: skip

    async def keep_alive() -> None:
        while True:
            writer.write(call("keepalive"))
            await asyncio.sleep(0.2)

    tasks = [asyncio.create_task(listen()), asyncio.create_task(keep_alive())]
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while (word := (await lines.readline()).decode().strip()) not in ("end", ""):
        what, _, about_it = word.partition(" ")
        if what == "lie":
            receiver.lie = about_it
        if what == "join":  # a group of regions
            options = idl.GroupOptions("qsm", "none", "")
            writer.write(call("join_group", group=idl.GroupUse(group=about_it, options=options)))
        if what == "region":  # and one of its keys, with a datagram that this opens
            await lie_in_region(plan, receiver, json.loads(about_it))
        if what == "leave":
            writer.write(call("leave_group", group=about_it))
    for task in tasks:
        task.cancel()


def inside(plan: Plan) -> None:
    asyncio.run(be_inside(plan))


# ----------------------------------------------------------------------------------------------------------- a relay


class Relay(Receiver):
    """A relay that takes what it is to pass on, and gives others bytes of its own, with their digest."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan["server"], {})
        self._plan, self._orders, self.ordered = plan, dict[str, Any](), list[Any]()

    def answers(self, kind: int, nonce: int, session: int, fields: bytes) -> list[bytes]:
        said = super().answers(kind, nonce, session, fields)
        if kind == OPEN:
            size, fragment = struct.unpack_from("<QI", fields, 24)
            what = (fields[:16], size, fragment)
            for leg_id, order in list(self._orders.items()):
                if order.app_id == fields[:16] and order.data_id == struct.unpack_from("<q", fields, 16)[0]:
                    self._work(leg_id, order, what)
            return [said[0], control(RECEIVED, nonce, session, struct.pack("<BQH", 0, 0, 0))]
        return said

    def _work(self, leg_id: str, order: Any, what: tuple[bytes, int, int]) -> None:
        del self._orders[leg_id]
        for name in order.receivers:
            task = asyncio.get_running_loop().create_task(self._give(name, order, what))
            self._tasks.add(task)

    async def _give(self, name: str, order: Any, what: tuple[bytes, int, int]) -> None:
        """All of it by the control channel, as of an object that has no path."""
        app_id, size, fragment = what
        content = random.Random(name).randbytes(size)
        pieces = [hashlib.sha256(content[at : at + PIECE]).digest() for at in range(0, size, PIECE)]
        root, nonce, count = (
            hashlib.sha256(b"".join(pieces)).digest(),
            self._rng.getrandbits(63) + 1,
            -(-size // fragment),
        )
        ring = struct.pack("<QIQQ", size, fragment, 0, count)
        opening = (
            app_id + struct.pack("<q", order.data_id) + ring + struct.pack("<IIHBBBIBB", 1000, 0, 0, 0, 0, 1, 0, 2, 32)
        )
        reader, writer = await asyncio.open_connection(self._plan["addresses"][name], CONTROL, ssl=client(self._plan))
        writer.write(hello(self.name) + control(OPEN, nonce, 0, opening + root))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            while True:
                (length,) = struct.unpack("<I", await reader.readexactly(4))
                body = await reader.readexactly(length)
                kind = body[0]
                if kind == OPEN_ACK and body[16] == 0:
                    for sn in range(count):
                        part = content[sn * fragment : (sn + 1) * fragment]
                        writer.write(control(DATA, nonce, 0, struct.pack("<Q", sn) + part))
                    writer.write(control(FINISHED, nonce, 0, b""))
                    say(kind="passed on", server=name)
                if kind == PING:
                    writer.write(control(PONG, nonce, 0, body[16:24]))
                if kind == RECEIVED:
                    say(kind="answered", server=name, status=body[16], cause=body[27:].decode())
                    return

    def hear(self, frame: bytes) -> None:
        """A call of the manager's."""
        protocol = TCyBinaryProtocol(TCyMemoryBuffer(frame))
        if protocol.read_message_begin()[0] == "relay":
            args = idl.Agent.relay_args()
            protocol.read_struct(args)
            if isinstance(args.order.app_id, str):
                args.order.app_id = args.order.app_id.encode("utf-8", "surrogateescape")
            self._orders[args.order.leg_id] = args.order
            self.ordered.append(args.order)

    def reports(self) -> list[bytes]:
        """That all of them are done, whatever they say."""
        made = []
        for order in self.ordered:
            rows = [idl.ReceiverReport(name, "done", "", 0, 0, 0, 0) for name in order.receivers]
            report = idl.RelayReport(order.leg_id, order.origin.server, self.name, "done", "", 1 << 20, rows)
            made.append(call("relayed", report=report))
        return made


async def be_relay(plan: Plan) -> None:
    """Until its input ends."""
    relay = Relay(plan)
    await asyncio.start_server(relay.serve, plan["me"], CONTROL, ssl=server_context(plan))
    reader, writer = await asyncio.open_connection(plan["manager"], THRIFT, ssl=client(plan))
    me = about(plan["server"], time.time_ns(), protocols=["republic", "wan"], knows_sites=True, relay=True)
    writer.write(call("hello", info=me))

    async def listen() -> None:
        for number in itertools.count():
            (length,) = struct.unpack(">I", await reader.readexactly(4))
            relay.hear(await reader.readexactly(length))
            if number == 0:  # the manager's welcome
                say(ready=True)

    async def report() -> None:
        while True:
            for one in [call("keepalive"), *relay.reports()]:
                writer.write(one)
            await asyncio.sleep(TOLD_S)

    tasks = [asyncio.create_task(one()) for one in (listen, report)]
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    await lines.readline()
    for task in tasks:
        task.cancel()


def relay(plan: Plan) -> None:
    asyncio.run(be_relay(plan))


# ----------------------------------------------------------------------------------------------------------- doors


@dataclass(frozen=True)
class Door:
    """`words` are said behind it; whoever hears what `shows` looks for is in, and, if `stays`, whoever is answered and
    not put out for `timeout_s`.
    """

    name: str
    address: str
    port: int
    words: bytes
    tls: ssl.SSLContext | None
    shows: Callable[[bytes], bool] = lambda _: False
    stays: bool = False
    timeout_s: float = ENDS_S
    answer: Callable[[bytes], bytes] = lambda _: b""


def gets_in(door: Door) -> bool:
    got = b""
    with contextlib.ExitStack() as open_ones:
        try:
            link = open_ones.enter_context(socket.create_connection((door.address, door.port), ENDS_S))
            if door.tls:
                link = open_ones.enter_context(door.tls.wrap_socket(link))
            link.sendall(door.words)
        except OSError:
            return False
        try:
            while not door.shows(got):
                more = link.recv(1 << 16)
                if not more or len(got) > 1 << 20:
                    return False
                got += more
                link.sendall(door.answer(more))
                link.settimeout(door.timeout_s)
        except TimeoutError:
            return door.stays and bool(got)
        except OSError:
            return False
    return True


def openflow(bytes_: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Type, xid and the rest of each whole message."""
    while len(bytes_) >= 8 and (length := struct.unpack_from(">H", bytes_, 2)[0]) >= 8:
        if len(bytes_) < length:
            return
        yield bytes_[1], struct.unpack_from(">I", bytes_, 4)[0], bytes_[8:length]
        bytes_ = bytes_[length:]


def is_work(got: bytes) -> bool:
    """Whether a switch is asked for more than which one it is: hello, error, echo, features, configuration and the
    list of its ports are the handshake, after which the manager looks at the certificate.
    """
    return any(
        kind not in (0, 1, 2, 3, 5, 9) and not (kind == 18 and rest[:2] == b"\0\x0d") for kind, _, rest in openflow(got)
    )


def as_switch(dpid: int) -> Callable[[bytes], bytes]:
    """What a switch without ports answers (OpenFlow 1.3)."""
    waiting = bytearray()  # the beginning of a message

    def answer(asked: bytes) -> bytes:
        waiting.extend(asked)
        said = b""
        for kind, xid, rest in openflow(bytes(waiting)):
            del waiting[: 8 + len(rest)]
            if kind == 5:  # FEATURES_REQUEST
                said += struct.pack(">BBHIQIBB2xII", 4, 6, 32, xid, dpid, 0, 254, 0, 79, 0)
            elif kind == 18 and len(rest) >= 2:  # MULTIPART_REQUEST: there is nothing of it
                said += struct.pack(">BBHIHH4x", 4, 19, 16, xid, struct.unpack_from(">H", rest)[0], 0)
            elif kind in (2, 20):  # ECHO_REQUEST, BARRIER_REQUEST
                said += struct.pack(">BBHI", 4, kind + 1, 8, xid)
        return said

    return answer


def switch_door(name: str, address: str, port: int, tls: ssl.SSLContext | None, dpid: int) -> Door:
    words = struct.pack(">BBHI", 4, 0, 8, 1)  # HELLO
    return Door(name, address, port, words, tls, is_work, stays=True, answer=as_switch(dpid))


def doors(plan: Plan) -> None:
    """With a thief's certificate at doors that it is not for; with older TLS, and without any, at all. One line each:
    which, and whether it got in. The first is the door that it is for: it does get in.
    """
    manager, agent, me, dpid = plan["manager"], plan["agent"], plan["server"], plan["dpid"]
    tls, old = client(plan), client(plan, ssl.TLSVersion.TLSv1_2)
    greeting = call("hello", info=about(plan["victim"], 2**62))
    request = b"GET /v1/paths HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

    def at_agent(name: str, who: str, tls: ssl.SSLContext | None, timeout_s: float = ENDS_S) -> Door:
        return Door(name, agent, CONTROL, hello(who), tls, stays=True, timeout_s=timeout_s)

    def at_manager(name: str, tls: ssl.SSLContext | None) -> Door:
        return Door(name, manager, THRIFT, greeting, tls, lambda got: b"welcome" in got)

    def at_rest(name: str, tls: ssl.SSLContext | None) -> Door:
        return Door(name, manager, REST, request, tls, lambda got: b" 200 " in got[:20])

    for door in (
        at_agent("own name at an agent", me, tls, 1.0),
        at_agent("another's name at an agent", plan["victim"], tls),
        at_manager("another agent's name at the manager", tls),
        at_rest("REST", tls),
        switch_door("OpenFlow, as a switch", manager, OPENFLOW, tls, dpid),
        at_agent("TLS 1.2 at an agent", me, old),
        at_manager("TLS 1.2 at the manager", old),
        at_agent("no TLS at an agent", me, None),
        at_manager("no TLS at the manager", None),
        at_rest("no TLS at REST", None),
        switch_door("no TLS at OpenFlow", manager, OPENFLOW, None, dpid),
    ):
        say(door=door.name, got_in=gets_in(door))


def half_open(plan: Plan) -> None:
    """Connections that say nothing, as many as it is told, each to the next of the places."""
    count = plan["count"]
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, count + 100))
    held, refused = list[socket.socket](), 0
    for number in range(count):
        link = socket.socket()
        link.settimeout(0.5)
        try:
            link.connect(tuple(plan["places"][number % len(plan["places"])]))
            held.append(link)
        except OSError:
            refused += 1
            link.close()
    say(opened=len(held), refused=refused)
    sys.stdin.readline()


DOES: dict[str, Callable[[Plan], None]] = {
    "eavesdrop": eavesdrop, "throw": throw, "forge": forge, "inside": inside, "relay": relay, "doors": doors,
    "half-open": half_open,
}  # fmt: skip

if __name__ == "__main__":
    DOES[sys.argv[1]](json.loads(sys.argv[2]))
