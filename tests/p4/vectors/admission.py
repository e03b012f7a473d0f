"""Admission: nobody sends into a group that is not theirs."""

from tests.p4.frames import data, unicast
from tests.p4.vector import Send, Vector, Write, forward, grant, guard, path

S, THIEF, G, OTHER, MDNS = "10.0.0.1", "10.0.0.66", "239.192.0.1", "239.192.0.2", "224.0.0.251"
PACKET = data(S, G)
RANGE = guard("239.192.0.0/16")

VECTORS = [
    Vector(
        "a source with a grant gets through",
        "admission",
        (RANGE, *path(1, G, 10, (2,), source=f"{S}/32")),
        (Send(1, PACKET),),
        out={2: (PACKET,)},
        direct=((grant(1, G, f"{S}/32"), 1),),
    ),
    Vector(
        "another source behind the same port does not; the port is counted",
        "admission",
        (RANGE, *path(1, G, 10, (2,), source=f"{S}/32")),
        (Send(1, data(THIEF, G)), Send(1, PACKET)),
        out={2: (PACKET,)},
        counters={("refused", 1): (1, len(data(THIEF, G))), ("dropped", 5): (1, len(data(THIEF, G)))},
        direct=((grant(1, G, f"{S}/32"), 1),),
    ),
    Vector(
        "the right source by another port does not",
        "admission",
        (RANGE, *path(1, G, 10, (2,), source=f"{S}/32")),
        (Send(4, PACKET),),
        counters={("refused", 4): 1, ("dropped", 5): 1},
    ),
    Vector(
        "a grant is for its group only",
        "admission",
        (RANGE, *path(1, G, 10, (2,)), *path(4, OTHER, 11, (2,))),
        (Send(1, data(S, OTHER)),),
        counters={("refused", 1): 1, ("dropped", 5): 1},
    ),
    Vector(
        "a path without a grant carries nothing",
        "admission",
        (RANGE, *path(1, G, 10, (2,))[:2]),
        (Send(1, PACKET),),
        counters={("refused", 1): 1, ("dropped", 5): 1},
    ),
    Vector(
        "a grant without a source is for every source behind the port",
        "admission",
        (RANGE, *path(1, G, 10, (2,))),
        (Send(1, PACKET), Send(1, data(THIEF, G))),
        out={2: (PACKET, data(THIEF, G))},
    ),
    Vector(
        "a grant may be for a network of sources",
        "admission",
        (RANGE, *path(1, G, 10, (2,), source="10.0.0.0/26")),
        (Send(1, PACKET), Send(1, data(THIEF, G))),
        out={2: (PACKET,)},
        counters={("refused", 1): 1, ("dropped", 5): 1},
    ),
    Vector(
        "a grant taken back ends the flow at once",
        "admission",
        (RANGE, *path(1, G, 10, (2,))),
        (Send(1, PACKET), Write(-grant(1, G)), Send(1, PACKET)),
        out={2: (PACKET,)},
        counters={("refused", 1): 1, ("dropped", 5): 1},
    ),
    Vector(
        "what is not rostrum's data needs a grant too",
        "admission",
        (RANGE, *path(4, G, 10, (2,))),
        (Send(1, unicast(S, G, b"no header of ours")),),
        counters={("refused", 1): 1, ("dropped", 5): 1},
    ),
    Vector(
        "groups that are none of ours are dropped, but are no intrusion",
        "admission",
        (RANGE, *path(1, G, 10, (2,))),
        (Send(1, unicast(S, MDNS)),),
        counters={("dropped", 6): 1},
    ),
    Vector(
        "a fresh switch lets no multicast through",
        "admission",
        (),
        (Send(1, PACKET),),
        counters={("dropped", 6): 1},
    ),
    Vector(
        "unicast needs no grant",
        "admission",
        (RANGE, forward("10.0.0.2/32", 2)),
        (Send(1, unicast(THIEF, "10.0.0.2")),),
        out={2: (unicast(THIEF, "10.0.0.2"),)},
    ),
    Vector(
        "a unicast entry is no way around: multicast never goes by it",
        "admission",
        (RANGE, forward("0.0.0.0/0", 2)),
        (Send(1, PACKET),),
        counters={("refused", 1): 1, ("dropped", 5): 1},
    ),
]
