"""Packets in, packets out: every vector on every target there is. The report says which target each ran on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.p4.bench import Bench, Outcome
from tests.p4.frames import describe
from tests.p4.target import Kind, kinds, running
from tests.p4.vector import Send, Vector
from tests.p4.vectors import admission, multicast, parsing, priority, telemetry, unicast

pytestmark = pytest.mark.lab

QUEUES = 4  # fewer than levels, so that the guard against queues that are not there is seen at work
VECTORS: list[Vector] = [v for m in (unicast, multicast, priority, admission, telemetry, parsing) for v in m.VECTORS]
PORT_COUNTERS = ("port_received", "port_sent_multicast", "port_sent_unicast")


@pytest.fixture(scope="module", params=[kind for kind in kinds() if not kind.missing], ids=lambda kind: kind.name)
def bench(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    record_testsuite_property: Callable[[str, object], None],
) -> Iterator[Bench]:
    """One target for all vectors: each leaves it as it found it."""
    kind: Kind = request.param
    with running(kind, tmp_path_factory.mktemp("p4"), QUEUES) as target:
        record_testsuite_property("note", f"P4 vectors ran on {kind.name}")
        yield Bench(target)


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.name)
def test_target_is_there(kind: Kind) -> None:
    """Vectors run on every target that is; one that is not is told of once."""
    if kind.missing:
        pytest.skip(kind.missing)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector.block}: {vector.name}")
def test_vector(bench: Bench, vector: Vector) -> None:
    outcome = bench.run(vector)
    assert told(outcome.out) == told({port: list(frames) for port, frames in vector.out.items()})
    assert outcome.out == {port: list(frames) for port, frames in vector.out.items()}, "bytes of frames differ"
    assert outcome.digests == list(vector.digests)
    assert outcome.direct == [packets for _, packets in vector.direct]
    check_counters(vector, outcome)


def told(out: dict[int, list[bytes]]) -> dict[int, list[str]]:
    return {port: [describe(frame) for frame in frames] for port, frames in sorted(out.items())}


def check_counters(vector: Vector, outcome: Outcome) -> None:
    """Those that the vector names, as it says. Ports' counters agree with frames in and out; all others stay."""
    for key, expected in vector.counters.items():
        packets, octets = outcome.counters.get(key, (0, 0))
        assert (packets if isinstance(expected, int) else (packets, octets)) == expected, key
    added = {key: packets for key, (packets, _) in outcome.counters.items()}
    others = {key: packets for key, packets in added.items() if key not in vector.counters}
    assert {key: n for key, n in others.items() if key[0] not in PORT_COUNTERS} == {}
    sent = [step for step in vector.steps if isinstance(step, Send)]
    for port in {step.port for step in sent} | set(vector.out):
        assert added.get(("port_received", port), 0) == sum(step.port == port for step in sent)
        left = added.get(("port_sent_multicast", port), 0) + added.get(("port_sent_unicast", port), 0)
        assert left == len(vector.out.get(port, ()))


def test_names_of_vectors_are_unique() -> None:
    names = [(vector.block, vector.name) for vector in VECTORS]
    assert len(set(names)) == len(names)
