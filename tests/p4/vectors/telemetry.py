"""Counters and first light."""

from tests.p4.frames import ATTEMPT, FIRST, LIMIT, REPAIR, REPORT, data, unicast
from tests.p4.vector import Light, Send, Vector, Write, path, replicate, watch

S, G, OTHER = "10.0.0.1", "239.192.0.1", "239.192.0.2"
PACKET, LONG = data(S, G), data(S, G, sn=1, payload=bytes(500))
PATH = path(1, G, 10, (2,))


def packets(*sns: int, session: int = 0) -> tuple[Send, ...]:
    return tuple(Send(1, data(S, G, sn=sn, session=session)) for sn in sns)


def out(*steps: Send | Write) -> dict[int, tuple[bytes, ...]]:
    """Watching never changes what is forwarded: all that was sent leaves by port 2."""
    return {2: tuple(step.frame for step in steps if isinstance(step, Send))}


def light(epoch: int, sn: int, session: int = 0) -> Light:
    return Light(1, G, S, epoch, session, sn)


def lit(name: str, entry: Write, steps: tuple[Send | Write, ...], digests: tuple[Light, ...]) -> Vector:
    """A vector about digests: `entry` is written first."""
    return Vector(name, "telemetry", PATH, (entry, *steps), out=out(*steps), digests=digests)


COUNTERS = [
    Vector(
        "a path counts packets and bytes before replication",
        "telemetry",
        path(1, G, 10, (2, 3)),
        (Send(1, PACKET), Send(1, LONG)),
        out={2: (PACKET, LONG), 3: (PACKET, LONG)},
        counters={("port_received", 1): (2, len(PACKET) + len(LONG))},
        direct=((replicate(1, G, 10), 2),),
    ),
    Vector(
        "every receiver port of a path counts what was delivered, by the replica's instance",
        "telemetry",
        (*path(1, G, 10, ((2, 3), (5, 4))), *path(1, OTHER, 11, ((2, 5),))),
        (Send(1, PACKET), Send(1, LONG), Send(1, data(S, OTHER))),
        out={2: (PACKET, LONG, data(S, OTHER)), 5: (PACKET, LONG)},
        counters={
            ("delivered", 3): (2, len(PACKET) + len(LONG)),
            ("delivered", 4): (2, len(PACKET) + len(LONG)),
            ("delivered", 5): (1, len(PACKET)),
            ("port_sent_multicast", 2): 3,
            ("port_sent_multicast", 5): 2,
        },
    ),
    Vector(
        "a pruned copy is not delivered",
        "telemetry",
        path(1, G, 10, ((1, 3), (2, 4))),
        (Send(1, PACKET),),
        out={2: (PACKET,)},
        counters={("delivered", 4): 1},
    ),
    Vector(
        "an instance beyond the counter delivers and counts nowhere",
        "telemetry",
        path(1, G, 10, ((2, 16384), (3, 65535))),
        (Send(1, PACKET),),
        out={2: (PACKET,), 3: (PACKET,)},
    ),
]

FIRST_LIGHT = [
    lit(
        "the first data packet of a watched path raises a digest, the next ones none, in a row or not",
        Write(+watch(1, G, slot=0, epoch=100)),
        packets(0, 1, 7, 3, 4),
        (light(100, 0),),
    ),
    lit("without a watch nothing is raised", Write(), packets(0, 1), ()),
    lit(
        "what the packet says is told as numbers: sessions and sns are little-endian on the wire",
        Write(+watch(1, G, slot=1, epoch=0xA1B2C3D4)),
        (Send(1, data(S, G, session=0x010203, sn=0x1122334455667788)),),
        (light(0xA1B2C3D4, 0x1122334455667788, 0x010203),),
    ),
    *(
        lit(
            f"{name}: the engine is no part of the session's number",
            Write(+watch(1, G, slot=18, epoch=epoch, first_session=2, confirm=2)),
            tuple(
                Send(1, data(S, G, session=session, engine=engine, sn=sn))
                for session, sn in ((1, 7), (1, 8), (2, 0), (1, 1), (2, 1))
            ),
            (light(epoch, 1, 2),),
        )
        for epoch, (name, engine) in enumerate({"Republic": 0, "RDCM": 1, "an engine to come": 255}.items(), 100)
    ),
    lit(
        "RDCM: what its sender says of its limit does not matter, nor what it multicasts again",
        Write(+watch(1, G, slot=19, epoch=100, confirm=3)),
        tuple(
            Send(1, data(S, G, engine=1, sn=sn, flags=flags))
            for sn, flags in ((0, FIRST), (1, LIMIT), (1, LIMIT), (2, LIMIT), (3, REPORT | LIMIT), (4, 0))
        ),
        (light(100, 3),),
    ),
    lit(
        "three in a row, when three are asked for",
        Write(+watch(1, G, slot=2, epoch=100, confirm=3)),
        packets(4, 5, 6, 7),
        (light(100, 6),),
    ),
    lit(
        "three in a row are told of once, however many rows follow",
        Write(+watch(1, G, slot=14, epoch=100, confirm=3)),
        packets(4, 5, 6, 7, 0, 1, 2, 3, 4),
        (light(100, 6),),
    ),
    lit(
        "a gap begins the row again: single packets through a ringing circuit are no light",
        Write(+watch(1, G, slot=3, epoch=100, confirm=3)),
        packets(0, 1, 3, 5, 6, 7, 8),
        (light(100, 7),),
    ),
    lit(
        "another epoch arms the same watch again",
        Write(+watch(1, G, slot=4, epoch=100)),
        (*packets(0, 1), Write(~watch(1, G, slot=4, epoch=101)), *packets(2, 3)),
        (light(100, 0), light(101, 2)),
    ),
    lit(
        "the same epoch written again does not",
        Write(+watch(1, G, slot=5, epoch=100)),
        (*packets(0), Write(~watch(1, G, slot=5, epoch=100)), *packets(1)),
        (light(100, 0),),
    ),
    lit(
        "a watch deleted and inserted with another epoch is armed, even halfway through a row",
        Write(+watch(1, G, slot=6, epoch=100, confirm=3)),
        (
            *packets(0, 1),
            Write(-watch(1, G, slot=6, epoch=100, confirm=3)),
            Write(+watch(1, G, slot=6, epoch=101, confirm=3)),
            *packets(2, 3, 4),
        ),
        (light(101, 4),),
    ),
    lit(
        "packets of earlier sessions, still on their way, are no light for this one",
        Write(+watch(1, G, slot=7, epoch=100, first_session=2)),
        (*packets(8, session=0), *packets(9, session=1), *packets(10, session=2)),
        (light(100, 10, 2),),
    ),
    lit("epoch 0 is never raised", Write(+watch(1, G, slot=8, epoch=0)), packets(0, 1), ()),
    lit("a slot beyond the registers raises nothing", Write(+watch(1, G, slot=4096, epoch=1)), packets(0), ()),
    lit(
        "other flags, known or not, do not matter",
        Write(+watch(1, G, slot=9, epoch=100, confirm=5)),
        tuple(Send(1, data(S, G, sn=sn, flags=flags)) for sn, flags in enumerate((FIRST, ATTEMPT, REPORT, 0xF0, 0xF7))),
        (light(100, 4),),
    ),
    lit(
        "a row goes on when the session's ring has gone around",
        Write(+watch(1, G, slot=15, epoch=100, confirm=4)),
        (Send(1, data(S, G, sn=5, flags=FIRST)), *packets(6), Send(1, data(S, G, sn=5, flags=FIRST)), *packets(6)),
        (light(100, 6),),
    ),
    lit(
        "an object of one fragment makes a row too",
        Write(+watch(1, G, slot=16, epoch=100, confirm=3)),
        (Send(1, data(S, G, flags=FIRST)),) * 4,
        (light(100, 0),),
    ),
    lit(
        "repairs are no data: they neither make a row nor break it",
        Write(+watch(1, G, slot=17, epoch=100, confirm=2)),
        tuple(
            Send(1, data(S, G, sn=sn, flags=flags))
            for sn, flags in ((1, REPAIR), (2, REPAIR), (3, 0), (50, REPAIR), (4, 0))
        ),
        (light(100, 4),),
    ),
    lit(
        "what is not rostrum's data is no light",
        Write(+watch(1, G, slot=10, epoch=100)),
        (Send(1, unicast(S, G, bytes(100))), *packets(3)),
        (light(100, 3),),
    ),
    Vector(
        "each watch is for its own port and group",
        "telemetry",
        (
            *PATH,
            *path(4, G, 11, (2,)),
            *path(1, OTHER, 12, (2,)),
            watch(4, G, slot=11, epoch=100),
            watch(1, OTHER, slot=12, epoch=100),
        ),
        (Send(1, PACKET), Send(1, data(S, OTHER, sn=2))),
        out={2: (PACKET, data(S, OTHER, sn=2))},
        digests=(Light(1, OTHER, S, 100, 0, 2),),
    ),
    Vector(
        "a packet without a grant is no light",
        "telemetry",
        (*path(1, G, 10, (2,), source="10.0.0.9/32"), watch(1, G, slot=13, epoch=100)),
        (Send(1, PACKET),),
        counters={("dropped", 6): 1},
    ),
]

VECTORS = COUNTERS + FIRST_LIGHT
