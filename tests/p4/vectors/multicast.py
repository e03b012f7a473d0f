"""Multicast: (ingress port, group) -> copies to the ports of a replication group."""

from tests.p4.frames import data
from tests.p4.vector import Send, Vector, Write, grant, path, replicas, replicate

S, G, OTHER = "10.0.0.1", "239.192.0.1", "239.192.0.2"
PACKET = data(S, G)

VECTORS = [
    Vector(
        "a packet is copied to every port of its path",
        "multicast",
        path(1, G, 10, (2, 3, 5)),
        (Send(1, PACKET),),
        out={2: (PACKET,), 3: (PACKET,), 5: (PACKET,)},
        counters={("port_sent_multicast", port): (1, len(PACKET)) for port in (2, 3, 5)},
    ),
    Vector(
        "the same group by another port takes the path of that port",
        "multicast",
        (*path(1, G, 10, (2, 3)), *path(4, G, 11, (5,))),
        (Send(1, PACKET), Send(4, PACKET)),
        out={2: (PACKET,), 3: (PACKET,), 5: (PACKET,)},
    ),
    Vector(
        "groups are apart",
        "multicast",
        (*path(1, G, 10, (2,)), *path(1, OTHER, 11, (3,))),
        (Send(1, PACKET), Send(1, data(S, OTHER))),
        out={2: (PACKET,), 3: (data(S, OTHER),)},
    ),
    Vector(
        "a copy to the ingress port is pruned",
        "multicast",
        path(1, G, 10, (1, 2)),
        (Send(1, PACKET),),
        out={2: (PACKET,)},
        counters={("port_sent_multicast", 2): 1},
    ),
    Vector(
        "admitted, but without a path: dropped and counted",
        "multicast",
        (grant(1, G),),
        (Send(1, PACKET),),
        counters={("dropped", 7): (1, len(PACKET))},
    ),
    Vector(
        "a path to a replication group without ports goes nowhere",
        "multicast",
        path(1, G, 10, ()),
        (Send(1, PACKET),),
    ),
    Vector(
        "a replication group modified copies to its new ports",
        "multicast",
        path(1, G, 10, (2, 3)),
        (Send(1, PACKET), Write(~replicas(10, 3, 4)), Send(1, PACKET)),
        out={2: (PACKET,), 3: (PACKET, PACKET), 4: (PACKET,)},
    ),
    Vector(
        "a path moves to another replication group without a loss",
        "multicast",
        (*path(1, G, 10, (2,)), replicas(11, 3)),
        (Send(1, PACKET), Write(~replicate(1, G, 11)), Send(1, PACKET)),
        out={2: (PACKET,), 3: (PACKET,)},
    ),
    Vector(
        "two paths may share a replication group",
        "multicast",
        (*path(1, G, 10, (2, 3)), replicate(1, OTHER, 10), grant(1, OTHER)),
        (Send(1, PACKET), Send(1, data(S, OTHER))),
        out={2: (PACKET, data(S, OTHER)), 3: (PACKET, data(S, OTHER))},
    ),
    Vector(
        "jumbo frames are copied whole",
        "multicast",
        path(1, G, 10, (2, 3)),
        (Send(1, data(S, G, payload=bytes(range(256)) * 34)),),
        out={port: (data(S, G, payload=bytes(range(256)) * 34),) for port in (2, 3)},
    ),
]
