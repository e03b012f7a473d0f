"""Random frames, well-formed ones and broken ones: a switch does with each what docs/p4.md says, and goes on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.p4 import frames
from tests.p4.bench import Bench
from tests.p4.oracle import State, judge, number
from tests.p4.target import Kind, kinds, running
from tests.p4.vector import Send, Vector, Write, forward, guard, path, tag

pytestmark = pytest.mark.lab

FRAMES = 400
BURST = 16  # then all of them must be out: BMv2 has queues of 64 packets
PORT = 1
HOSTS = {"10.0.0.1": 1, "10.0.0.2": 2, "10.0.0.3": 3}
SOURCE, GROUP, OTHER_PORTS, NOT_GRANTED, FOREIGN = "10.0.0.1", "239.192.0.1", "239.192.0.2", "239.192.0.3", "224.0.0.5"
DSCP = 46
SHORTEST = 20  # Linux itself drops tagged frames that end before, and so do network cards

STATE = State(
    unicast={number(address): port for address, port in HOSTS.items()},
    grants=frozenset((PORT, number(group), number(SOURCE)) for group in (GROUP, OTHER_PORTS)),
    paths={(PORT, number(GROUP)): (1, 2, 4), (PORT, number(OTHER_PORTS)): (3,)},
    guarded=number(GROUP) >> 16,
    dscp=DSCP,
)
ENTRIES = (
    *(forward(f"{address}/32", port) for address, port in HOSTS.items()),
    guard("239.192.0.0/16"),
    *path(PORT, GROUP, 10, (1, 2, 4), source=f"{SOURCE}/32", level=5),
    *path(PORT, OTHER_PORTS, 11, (3,), source=f"{SOURCE}/32", level=5),
    tag(5, DSCP, 5, 0),
)


@pytest.fixture(scope="module", params=[kind for kind in kinds() if not kind.missing], ids=lambda kind: kind.name)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    kind: Kind = request.param
    with running(kind, tmp_path_factory.mktemp("p4")) as target:
        yield Bench(target)


def whole(rng: random.Random) -> bytes:
    """A well-formed frame of any kind."""
    vlan = (rng.randrange(8), rng.randrange(4096)) if rng.random() < 0.3 else None
    source = rng.choice([SOURCE, SOURCE, "10.0.0.66"])
    target = rng.choice([*HOSTS, GROUP, GROUP, OTHER_PORTS, NOT_GRANTED, FOREIGN, "10.9.9.9"])
    if rng.random() < 0.15:
        return frames.ethernet(frames.arp_request(source, target), frames.ARP, vlan=vlan)
    content = rng.randbytes(rng.randrange(80))
    if rng.random() < 0.6:
        content = frames.rostrum(session=rng.randrange(9), sn=rng.getrandbits(64), flags=rng.randrange(256))
    packet = frames.ipv4(
        source,
        target,
        frames.udp(source, target, content),
        protocol=rng.choice([frames.UDP, frames.UDP, frames.TCP]),
        dscp=rng.randrange(64),
        ecn=rng.randrange(4),
        ttl=rng.randrange(256),
        options=rng.choice([b"", b"", b"\x94\x04\0\0", b"\1" * 40]),
        fragment=rng.choice([0, 0, 0x4000, 0x2000, 17]),
    )
    return frames.ethernet(packet, frames.IPV4, vlan=vlan)


def broken(rng: random.Random, frame: bytes) -> bytes:
    """The frame with bits turned, cut short, or with a piece of itself somewhere else."""
    out = bytearray(frame)
    for _ in range(rng.randrange(4)):
        match rng.randrange(4):
            case 0 | 1:
                at = rng.randrange(12, min(len(out), 90))
                out[at] ^= 1 << rng.randrange(8)
            case 2:
                del out[rng.randint(min(SHORTEST + 1, len(out)), len(out)) :]
            case 3:
                at, to, size = rng.randrange(len(out)), rng.randrange(12, len(out)), rng.randrange(8)
                out[to : to + size] = out[at : at + size]
    return bytes(out[: max(SHORTEST, len(out))]).ljust(SHORTEST, b"\0")


def test_random_frames(bench: Bench, rng: random.Random) -> None:
    sent = [broken(rng, whole(rng)) for _ in range(FRAMES)]
    out: dict[int, list[bytes]] = {}
    reasons: Counter[int] = Counter()
    for frame in sent:
        reason, copies = judge(STATE, PORT, frame)
        reasons[reason] += reason != 0
        for port, copy in copies.items():
            out.setdefault(port, []).append(copy)
    assert len(reasons) > 5, "the frames are of too few kinds to say much"
    assert len(out) == 3
    steps: list[Send | Write] = []
    for number_sent, frame in enumerate(sent, 1):
        steps += [Send(PORT, frame)] + [Write()] * (number_sent % BURST == 0)
    outcome = bench.run(Vector("random", "parser", ENTRIES, tuple(steps)))
    dropped = {index: n for (name, index), (n, _) in outcome.counters.items() if name == "dropped"}
    assert dropped == {reason: n for reason, n in reasons.items() if n}
    for port in sorted({*out, *outcome.out}):
        compare(port, outcome.out.get(port, []), out.get(port, []))


def compare(port: int, got: list[bytes], expected: list[bytes]) -> None:
    """Which frame differs first, as text and bytes."""
    for place, (one, other) in enumerate(zip(got, expected, strict=False)):
        told = f"frame {place} of port {port}: {frames.describe(one)} instead of {frames.describe(other)}"
        assert one.hex() == other.hex(), told
    assert len(got) == len(expected), f"port {port}"
