"""Throws rubbish at sockets, as a broken or hostile program would.

`garbage.py KIND TARGET PORT ROUNDS SEED [NIC_ADDRESS]`. KIND `tcp`: TARGET is an address; `unix` and `packet`
(SOCK_SEQPACKET): TARGET is a path, PORT says what is spoken there; `udp`: TARGET is an address or a group. Each round
is one connection, or one datagram: random bytes, what is spoken there with a wrong end, absurd lengths, or nothing and
an end at once. Nothing is expected of the other side but that it takes connections; prints how many it answered or
closed.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import sys
from collections.abc import Callable

BOUND_S = 0.05  # how long a round listens: rubbish mostly gets no answer

TCP: dict[int, list[Callable[[random.Random], bytes]]] = {
    7071: [  # control channel: length, type, version, zeros, nonce, session; HELLO
        lambda rng: struct.pack("<I", 0xFFFFFFFF) + rng.randbytes(100),
        lambda rng: struct.pack("<IBB2x", 508, rng.randrange(256), 2) + rng.randbytes(504),
        lambda rng: struct.pack("<IBB2xQIIQH", 30 + 2, 1, 2, 0, 0, 3, rng.getrandbits(64), 2) + b"h3",
        lambda rng: struct.pack("<IBB2xQIIQH", 30 + 2, 1, rng.randrange(256), 0, 0, 3, 1, 2) + b"h3",
        lambda rng: (
            struct.pack("<IBB2xQIIQH", 30 + 2, 1, 2, 0, 0, 3, rng.getrandbits(64), 2) + b"zz" + rng.randbytes(9000)
        ),
        lambda rng: struct.pack("<IBB2xQIIQH", 30 + 2, 1, 2, 0, 0, 3, rng.getrandbits(64), 65535) + b"zz",
    ],
    9090: [  # Thrift, framed or not, binary protocol
        lambda rng: struct.pack(">I", 0x7FFFFFFF) + rng.randbytes(100),
        lambda rng: struct.pack(">IHBBI", 50, 0x8001, 0, 1, 5) + b"hello" + rng.randbytes(37),
        lambda rng: struct.pack(">HBBI", 0x8001, 0, 1, 5) + b"hello" + rng.randbytes(60),
        lambda rng: struct.pack(">IHBBI", 4096, 0x8001, 0, 1, 0x7FFFFFFF) + rng.randbytes(4088),
        lambda rng: (
            struct.pack(">IHBBI5sI", 24, 0x8001, 0, 1, 5, b"hello", 1) + bytes([15, 0, 1, 12, 0x7F, 255, 255, 255])
        ),
    ],
    10034: [  # TL1
        lambda rng: b"ACT-USER::" + rng.randbytes(40) + b";",
        lambda rng: b"ENT-CRS-FIBER::" + b"10001&" * 4000 + b";",
        lambda rng: b"A" * 100_000,
        lambda rng: (
            b"ACT-USER::admin:1::rostrum;ENT-CRS-FIBER::99999999999999999999,-1:2;RTRV-CRS-FIBER::1&&9999999999:3;"
        ),
        lambda rng: b";" * 20_000,
    ],
    8080: [  # HTTP
        lambda rng: b"POST /v1/paths HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n" + rng.randbytes(500),
        lambda rng: (
            b"POST /v1/paths HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 6000\r\n\r\n"
            + b"[" * 6000
        ),
        lambda rng: b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        lambda rng: b"POST /v1/paths HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
        lambda rng: b"\x16\x03\x01" + rng.randbytes(300),
    ],
    6653: [  # OpenFlow 1.3
        lambda rng: struct.pack(">BBHI", 4, 0, 8, 1) + rng.randbytes(200),
        lambda rng: struct.pack(">BBHI", 4, 0, 3, 1),
        lambda rng: struct.pack(">BBHI", 4, 0, 8, 1) + struct.pack(">BBHI", 4, 6, 0xFFFF, 2) + rng.randbytes(65527),
        lambda rng: (
            struct.pack(">BBHI", 4, 0, 8, 1)
            + struct.pack(">BBHIQIBB2xII", 4, 6, 32, 2, rng.getrandbits(64), 0, 254, 0, 0, 0)
        ),
        lambda rng: (
            struct.pack(">BBHI", 4, 0, 8, 1)
            + struct.pack(">BBHIQIBB2xII", 4, 6, 32, 2, 11, 0, 254, 7, 0, 0)
            + rng.randbytes(100)
        ),
    ],
}
JSON_LINES: list[Callable[[random.Random], bytes]] = [
    lambda rng: b"[" * 60_000 + b"\n",
    lambda rng: b'{"op": "kill"}\n{"op": 5}\n{"op": "signal", "name": "h1", "signal": 99999}\nnull\n',
    lambda rng: b"x" * 200_000,
]
SEQPACKET: list[Callable[[random.Random], bytes]] = [
    lambda rng: b"\0",
    lambda rng: rng.randbytes(60_000),
    lambda rng: struct.pack("<HBBIQ", 0x5241, 1, rng.randrange(16), 0, 7) + rng.randbytes(50),
]


def datagram(rng: random.Random) -> bytes:
    """A data channel packet that is wrong in some way (docs/protocol.md)."""
    flags, aux = rng.choice([(0, 0), (1, rng.getrandbits(64)), (255, 1), (2, 0)])
    magic, session = rng.choice([0x5253, rng.getrandbits(16)]), rng.choice([0, rng.getrandbits(32)])
    nonce, sn = rng.getrandbits(64), rng.choice([0, rng.getrandbits(64)])
    header = struct.pack("<HBBIQQQ", magic, rng.choice([2, 2, 2, 1]), flags, session, nonce, sn, aux)
    return rng.choice(
        [
            header,
            header[: rng.randrange(32)],
            header + rng.randbytes(rng.randrange(8896)),
            rng.randbytes(rng.randrange(200)),
        ]
    )


def round_of(kind: str, target: str, port: int, rng: random.Random) -> bool:
    """One connection with something wrong on it; whether anything came back (an answer or an end)."""
    family = socket.AF_INET if kind == "tcp" else socket.AF_UNIX
    with socket.socket(family, socket.SOCK_SEQPACKET if kind == "packet" else socket.SOCK_STREAM) as link:
        link.settimeout(2.0)
        link.connect((target, port) if kind == "tcp" else target)
        known = TCP.get(port, JSON_LINES) if kind != "packet" else SEQPACKET
        text = rng.choice([*known, lambda rng: rng.randbytes(rng.randrange(5000)), lambda rng: b""])(rng)
        with contextlib.suppress(OSError):
            for _ in range(rng.choice([1, 3])):
                if text:
                    link.sendall(text)
            if rng.randrange(3) == 0:
                link.shutdown(socket.SHUT_WR)
            link.settimeout(BOUND_S)
            link.recv(65536)
            return True
        return False


def main() -> None:
    kind, target, port, rounds, seed, *nic = sys.argv[1:]
    rng, answered = random.Random(f"{seed}/{kind}/{target}/{port}"), 0
    if kind == "udp":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
            if nic:
                link.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(nic[0]))
                link.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
            for _ in range(int(rounds)):
                link.sendto(datagram(rng), (target, int(port)))
    else:
        for _ in range(int(rounds)):
            answered += round_of(kind, target, int(port), rng)
    print(answered)


if __name__ == "__main__":
    main()
