"""Priority: levels become DSCP, 802.1Q priority and queue. The target has four queues (`QUEUES` of the tests)."""

from tests.p4.frames import ARP, arp_request, data, ethernet, remark, unicast
from tests.p4.vector import Send, Vector, forward, path, queues, share, tag

S, D, G = "10.0.0.1", "10.0.0.2", "239.192.0.1"
PACKET, TAGGED = data(S, G), data(S, G, vlan=(1, 100))
REPORT, OTHER = unicast(S, D, b"what got lost", dscp=48), unicast(S, D, b"a repair")
REQUEST = ethernet(arp_request(S, D), ARP, destination=b"\xff" * 6)
CONTROL = (tag(5, 46, 5, 1), tag(6, 48, 6, 6), forward(f"{D}/32", 2))  # of queues, the target has not number 6
LEVELS = {1: 10, 2: 18, 3: 26, 4: 34, 5: 46, 6: 48, 7: 56}

VECTORS = [
    Vector(
        "multicast gets the DSCP of its level, with the IPv4 checksum right",
        "priority",
        (*path(1, G, 10, (2, 3), level=5), tag(5, 46, 5, 0)),
        (Send(1, PACKET),),
        out={2: (remark(PACKET, dscp=46),), 3: (remark(PACKET, dscp=46),)},
    ),
    Vector(
        "a DSCP that a server set itself is overwritten",
        "priority",
        (*path(1, G, 10, (2,), level=5), tag(5, 46, 5, 0)),
        (Send(1, data(S, G, dscp=63)),),
        out={2: (remark(PACKET, dscp=46),)},
    ),
    Vector(
        "ECN bits stay",
        "priority",
        (*path(1, G, 10, (2,), level=5), tag(5, 46, 5, 0)),
        (Send(1, data(S, G, ecn=3)),),
        out={2: (remark(data(S, G, ecn=3), dscp=46),)},
    ),
    Vector(
        "the 802.1Q priority of a tagged packet is rewritten, its VLAN is kept",
        "priority",
        (*path(1, G, 10, (2,), level=5), tag(5, 46, 5, 0)),
        (Send(1, TAGGED),),
        out={2: (remark(TAGGED, dscp=46, pcp=5),)},
    ),
    *(
        Vector(
            f"level {level}",
            "priority",
            (*path(1, G, 10, (2,), level=level), *(tag(one, LEVELS[one], one, 0) for one in LEVELS)),
            (Send(1, TAGGED),),
            out={2: (remark(TAGGED, dscp=dscp, pcp=level),)},
        )
        for level, dscp in LEVELS.items()
    ),
    Vector(
        "a level without an entry leaves the marks as they are",
        "priority",
        (*path(1, G, 10, (2,), level=3), tag(5, 46, 5, 0)),
        (Send(1, data(S, G, dscp=12, vlan=(4, 7))),),
        out={2: (data(S, G, dscp=12, vlan=(4, 7)),)},
    ),
    Vector(
        "unicast keeps its marks beside multicast that is tagged",
        "priority",
        (*path(1, G, 10, (2,), level=5), tag(5, 46, 5, 0), forward(f"{D}/32", 2)),
        (Send(1, unicast(S, D, dscp=12)),),
        out={2: (unicast(S, D, dscp=12),)},
    ),
    Vector(
        "an entry for level 0 bleaches unicast",
        "priority",
        (tag(0, 0, 0, 0), forward(f"{D}/32", 2)),
        (Send(1, unicast(S, D, dscp=46, vlan=(5, 9))),),
        out={2: (remark(unicast(S, D, dscp=46, vlan=(5, 9)), dscp=0, pcp=0),)},
    ),
    Vector(
        "before the control plane says how many queues there are, the most urgent level passes too",
        "priority",
        (*path(1, G, 10, (2,), level=7), tag(7, 56, 7, 7)),
        (Send(1, PACKET),),
        out={2: (remark(PACKET, dscp=56),)},
    ),
    Vector(
        "a queue beyond those there are is the last one",
        "priority",
        (queues(4), *path(1, G, 10, (2,), level=7), tag(7, 56, 7, 7)),
        (Send(1, PACKET),),
        out={2: (remark(PACKET, dscp=56),)},
    ),
    Vector(
        "the first queue beyond, too",
        "priority",
        (queues(4), *path(1, G, 10, (2,), level=4), tag(4, 34, 4, 4)),
        (Send(1, PACKET),),
        out={2: (remark(PACKET, dscp=34),)},
    ),
    Vector(
        "every queue there is can be used",
        "priority",
        (queues(4), *path(1, G, 10, (2,), level=3), tag(3, 26, 3, 3)),
        (Send(1, PACKET),),
        out={2: (remark(PACKET, dscp=26),)},
    ),
    Vector(
        "the queue reaches the target: told of queues that it has not, it drops what would be in them",
        "priority",
        (queues(8), *path(1, G, 10, (2,), level=7), tag(7, 56, 7, 7)),
        (Send(1, PACKET),),
    ),
    Vector(
        "no queues at all counts as one",
        "priority",
        (queues(0), *path(1, G, 10, (2,), level=7), tag(7, 56, 7, 7)),
        (Send(1, PACKET),),
        out={2: (remark(PACKET, dscp=56),)},
    ),
    # What is control leaves by a queue of its own; the target has none of that number, so that it is seen to be chosen.
    Vector(
        "agents' reports have the queue of level 6, other unicast and what is marked for multicast has the last",
        "priority",
        (queues(8), *CONTROL),
        (Send(1, REPORT), Send(1, OTHER), Send(1, unicast(S, D, dscp=46)), Send(1, unicast(S, D, dscp=56))),
        out={2: (OTHER, unicast(S, D, dscp=46), unicast(S, D, dscp=56))},
    ),
    Vector(
        "ARP has the queue of level 6",
        "priority",
        (queues(8), *CONTROL),
        (Send(1, REQUEST), Send(1, OTHER)),
        out={2: (OTHER,)},
    ),
    Vector(
        "control keeps its mark, and a tagged one gets the 802.1Q priority of its level",
        "priority",
        (queues(4), *CONTROL),
        (Send(1, REPORT), Send(1, unicast(S, D, dscp=48, vlan=(1, 9))), Send(1, REQUEST)),
        out={2: (REPORT, remark(unicast(S, D, dscp=48, vlan=(1, 9)), dscp=48, pcp=6), REQUEST)},
    ),
    Vector(
        "control beyond its share of the port goes with other unicast, its mark kept",
        "priority",
        (queues(8), *CONTROL, share(2, 1, 2 * len(REPORT))),
        (*[Send(1, REPORT)] * 5, Send(3, REPORT)),
        out={2: (REPORT,) * 4},
        counters={("control_excess", 2): (4, 4 * len(REPORT))},
    ),
    Vector(
        "other unicast takes nothing of control's share",
        "priority",
        (queues(8), *CONTROL, share(2, 1, len(REPORT))),
        (*[Send(1, OTHER)] * 9, Send(1, REPORT), Send(1, REPORT)),
        out={2: (*[OTHER] * 9, REPORT)},
        counters={("control_excess", 2): 1},
    ),
    Vector(
        "each port has a share of its own",
        "priority",
        (queues(8), *CONTROL, forward("10.0.0.3/32", 3), share(3, 1, 1)),
        (Send(1, unicast(S, "10.0.0.3", dscp=48)), Send(1, REPORT)),
        out={3: (unicast(S, "10.0.0.3", dscp=48),)},
        counters={("control_excess", 3): 1},
    ),
    Vector(
        "without an entry for its level, control is as other unicast",
        "priority",
        (queues(8), forward(f"{D}/32", 2)),
        (Send(1, REPORT), Send(1, REQUEST)),
        out={2: (REPORT, REQUEST)},
    ),
    Vector(
        "multicast that a server marks as control is none",
        "priority",
        (queues(8), *CONTROL, *path(1, G, 10, (2,), level=5)),
        (Send(1, data(S, G, dscp=48)),),
        out={2: (remark(data(S, G, dscp=48), dscp=46),)},
    ),
]
