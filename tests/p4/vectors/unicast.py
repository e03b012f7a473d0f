"""Unicast forwarding: IPv4 by destination, ARP by the address it asks for."""

from tests.p4.frames import ARP, IPV4, TCP, arp_request, ethernet, ipv4, unicast
from tests.p4.vector import Send, Vector, Write, forward

H1, H2, H3 = "10.0.0.1", "10.0.0.2", "10.0.1.3"
HELLO = unicast(H1, H2)
REQUEST = ethernet(arp_request(H1, H2), ARP, destination=b"\xff" * 6)

VECTORS = [
    Vector(
        "an IPv4 packet leaves by the port of its destination, unchanged",
        "unicast",
        (forward(f"{H2}/32", 2), forward(f"{H3}/32", 3)),
        (Send(1, HELLO),),
        out={2: (HELLO,)},
        counters={("port_sent_unicast", 2): (1, len(HELLO))},
    ),
    Vector(
        "the TTL is not changed: this is a switch",
        "unicast",
        (forward(f"{H2}/32", 2),),
        (Send(1, unicast(H1, H2, ttl=1)),),
        out={2: (unicast(H1, H2, ttl=1),)},
    ),
    Vector(
        "TCP goes the same way as UDP",
        "unicast",
        (forward(f"{H2}/32", 2),),
        (Send(1, ethernet(ipv4(H1, H2, bytes(40), protocol=TCP), IPV4)),),
        out={2: (ethernet(ipv4(H1, H2, bytes(40), protocol=TCP), IPV4),)},
    ),
    Vector(
        "an ARP request is not flooded: it goes to whom it asks",
        "unicast",
        (forward(f"{H2}/32", 2), forward(f"{H3}/32", 3)),
        (Send(1, REQUEST),),
        out={2: (REQUEST,)},
        counters={("port_sent_unicast", 2): (1, len(REQUEST))},
    ),
    Vector(
        "nobody known by the destination: dropped and counted",
        "unicast",
        (forward(f"{H2}/32", 2),),
        (Send(1, unicast(H1, H3)), Send(1, ethernet(arp_request(H1, H3), ARP))),
        counters={("dropped", 4): 2},
    ),
    Vector(
        "a packet for whom is behind its own port is not sent back",
        "unicast",
        (forward(f"{H2}/32", 2),),
        (Send(2, HELLO),),
        counters={("dropped", 8): (1, len(HELLO))},
    ),
    Vector(
        "the longest prefix wins",
        "unicast",
        (forward("10.0.0.0/16", 4), forward(f"{H3}/32", 3), forward("10.0.0.0/24", 2)),
        (Send(1, unicast(H1, H3)), Send(1, HELLO), Send(1, unicast(H1, "10.0.9.9"))),
        out={2: (HELLO,), 3: (unicast(H1, H3),), 4: (unicast(H1, "10.0.9.9"),)},
    ),
    Vector(
        "an entry modified sends elsewhere, an entry deleted no more",
        "unicast",
        (forward(f"{H2}/32", 2),),
        (
            Send(1, HELLO),
            Write(~forward(f"{H2}/32", 5)),
            Send(1, HELLO),
            Write(-forward(f"{H2}/32", 5)),
            Send(1, HELLO),
        ),
        out={2: (HELLO,), 5: (HELLO,)},
        counters={("dropped", 4): 1},
    ),
    Vector(
        "an entry counts its packets",
        "unicast",
        (forward(f"{H2}/32", 2), forward(f"{H3}/32", 3)),
        (Send(1, HELLO), Send(4, HELLO)),
        out={2: (HELLO, HELLO)},
        direct=((forward(f"{H2}/32", 2), 2), (forward(f"{H3}/32", 3), 0)),
    ),
]
