"""Parser and checks: what is let in, what is dropped as broken, and that nothing else of a frame changes."""

from tests.p4.frames import (
    ARP,
    IPV4,
    MAGIC,
    TCP,
    VLAN,
    arp_request,
    data,
    ethernet,
    ipv4,
    remark,
    rostrum,
    udp,
    unicast,
)
from tests.p4.vector import Light, Send, Vector, forward, path, tag, watch

S, D, G = "10.0.0.1", "10.0.0.2", "239.192.0.1"
TO_D = forward(f"{D}/32", 2)
ROUTER_ALERT = b"\x94\x04\x00\x00"
X = udp(S, D, b"x")


def to_group(packet: bytes) -> bytes:
    return ethernet(packet, IPV4)


def datagram(content: bytes, **how: int) -> bytes:
    return to_group(ipv4(S, G, udp(S, G, content, **how)))


def passes(name: str, frame: bytes) -> Vector:
    return Vector(name, "parser", (TO_D,), (Send(1, frame),), out={2: (frame,)})


def dropped(name: str, reason: int, *frames: bytes) -> Vector:
    steps = tuple(Send(1, frame) for frame in frames)
    return Vector(name, "parser", (forward("0.0.0.0/0", 2),), steps, counters={("dropped", reason): len(frames)})


def no_light(name: str, frame: bytes) -> Vector:
    """Forwarded, but not taken for rostrum's data."""
    entries = (*path(1, G, 10, (2,)), watch(1, G, slot=20, epoch=1))
    return Vector(name, "parser", entries, (Send(1, frame),), out={2: (frame,)})


FORWARDED = [
    passes("an 802.1Q tag is kept", unicast(S, D, vlan=(3, 42))),
    Vector(
        "ARP inside an 802.1Q tag is forwarded",
        "parser",
        (TO_D,),
        (Send(1, ethernet(arp_request(S, D), ARP, vlan=(0, 42))),),
        out={2: (ethernet(arp_request(S, D), ARP, vlan=(0, 42)),)},
    ),
    passes("padding behind the IPv4 packet is kept", unicast(S, D) + bytes(12)),
    passes("a fragment is forwarded", ethernet(ipv4(S, D, bytes(64), fragment=0x2000 | 8), IPV4)),
    passes("a datagram without a UDP checksum is forwarded", ethernet(ipv4(S, D, X[:6] + b"\0\0x"), IPV4)),
    passes("IPv4 options are forwarded", ethernet(ipv4(S, D, X, options=ROUTER_ALERT), IPV4)),
    passes("an IPv4 packet that is a header only is forwarded", ethernet(ipv4(S, D, protocol=TCP), IPV4)),
    passes("a frame of the largest size is forwarded", unicast(S, D, bytes(8900))),
    Vector(
        "a header with options keeps its DSCP, which could not be changed with the checksum right",
        "parser",
        (*path(1, G, 10, (2,), level=5), tag(5, 46, 5, 0)),
        (Send(1, to_group(ipv4(S, G, udp(S, G, rostrum()), options=ROUTER_ALERT))),),
        out={2: (to_group(ipv4(S, G, udp(S, G, rostrum()), options=ROUTER_ALERT)),)},
    ),
    Vector(
        "marking leaves the UDP checksum as it was, and right",
        "parser",
        (*path(1, G, 10, (2,), level=5), tag(5, 46, 5, 0)),
        (Send(1, datagram(b"odd length!")),),
        out={2: (remark(datagram(b"odd length!"), dscp=46),)},
    ),
]

DROPPED = [
    dropped("a wrong IPv4 header checksum", 2, ethernet(ipv4(S, D, X, wrong_checksum=True), IPV4)),
    dropped("an IPv4 header that says another version", 1, ethernet(ipv4(S, D, X, version=6), IPV4)),
    dropped("an IPv4 header shorter than its fields", 1, ethernet(ipv4(S, D, X, header_words=4), IPV4)),
    dropped("an IPv4 packet shorter than its header", 1, ethernet(ipv4(S, D, X, total_bytes=19), IPV4)),
    dropped("frames that end within a header", 1, unicast(S, D)[:14], unicast(S, D)[:33], unicast(S, D)[:40]),
    dropped("a tagged frame that ends within the IPv4 header", 1, unicast(S, D, vlan=(0, 5))[:30]),
    dropped("an ARP frame that ends within its addresses", 1, ethernet(arp_request(S, D)[:20], ARP)),
    dropped("ARP for something else than IPv4 over Ethernet", 3, ethernet(b"\0\x06" + arp_request(S, D)[2:], ARP)),
    dropped("neither IPv4 nor ARP: IPv6, LLDP", 3, ethernet(bytes(40), 0x86DD), ethernet(bytes(40), 0x88CC)),
    dropped("a second 802.1Q tag", 3, ethernet(b"\0\5\x08\0" + ipv4(S, D, X), VLAN, vlan=(0, 4))),
    dropped(
        "a datagram that ends within the rostrum header that it announces",
        1,
        to_group(ipv4(S, G, udp(S, G, rostrum())[:30])),
    ),
]

NOT_OURS = [
    no_light("another magic", datagram(rostrum(magic=MAGIC ^ 1))),
    no_light("another version", datagram(rostrum(version=1))),
    no_light("the magic in the other byte order", datagram(rostrum(magic=0x5352))),
    no_light("a datagram too short for a header", datagram(rostrum()[:31])),
    no_light("a fragment of a datagram", to_group(ipv4(S, G, udp(S, G, rostrum()), fragment=0x2000))),
    no_light(
        "the last fragment of one, whatever its bytes look like",
        to_group(ipv4(S, G, udp(S, G, rostrum()), fragment=17)),
    ),
    no_light("another protocol whose bytes look like it", to_group(ipv4(S, G, udp(S, G, rostrum()), protocol=TCP))),
    no_light("IPv4 options that look like UDP", to_group(ipv4(S, G, rostrum(), options=udp(S, G, rostrum())[:8]))),
    no_light("behind IPv4 options", to_group(ipv4(S, G, udp(S, G, rostrum()), options=ROUTER_ALERT))),
    Vector(
        "the header is known on any UDP port",
        "parser",
        (*path(1, G, 10, (2,)), watch(1, G, slot=21, epoch=1)),
        (Send(1, datagram(rostrum(sn=9), port=9999)),),
        out={2: (datagram(rostrum(sn=9), port=9999),)},
        digests=(Light(1, G, S, 1, 0, 9),),
    ),
    Vector(
        "an empty fragment is data",
        "parser",
        (*path(1, G, 10, (2,)), watch(1, G, slot=22, epoch=1)),
        (Send(1, data(S, G, payload=b"")),),
        out={2: (data(S, G, payload=b""),)},
        digests=(Light(1, G, S, 1, 0, 0),),
    ),
]

VECTORS = FORWARDED + DROPPED + NOT_OURS
