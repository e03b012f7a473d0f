"""At a port that multicast fills: what agents tell one another, and ARP, go before it, but not more than their share.

The compiled program in the reference target, with the entries that the manager writes. The port is stopped, filled, and
let go.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

import pytest
from finsy.proto import p4r
from rostrum.controller.core.model import LEVEL_MULTICAST, UnicastRule
from rostrum.controller.southbound.p4runtime import pipeline
from rostrum.controller.southbound.p4runtime.entries import BURST_MIN_BYTES, Entities, insert, modify, queue_of

from tests.p4.frames import ARP, arp_request, data, ethernet, remark, unicast
from tests.p4.target_client import DEVICE, Target, running
from tests.p4.vector import path

S, D, G = "10.0.0.1", "10.0.0.2", "239.192.0.1"
SENDER, RECEIVER = 1, 2  # ports
PIPELINE = pipeline.load()
MAKE = Entities("tor1", PIPELINE.schema)
PACKET = data(S, G)
MARKED = remark(PACKET, dscp=46)
REPORT, OTHER = unicast(S, D, b"what got lost", dscp=48), unicast(S, D, b"a repair")
REQUEST = ethernet(arp_request(S, D), ARP, destination=b"\xff" * 6)


class Port:
    """What left by the receiver's port, which takes nothing while it is stopped."""

    def __init__(self, target: Target) -> None:
        self.switch, self.out, self.stopped = target.switch, list[bytes](), True
        self.port = self.switch.add_port(RECEIVER, self._send)

    def _send(self, frame: bytes) -> bool:
        if not self.stopped:
            self.out.append(frame)
        return not self.stopped

    def arrive(self, *frames: bytes) -> None:
        with self.switch.lock:
            for frame in frames:
                self.switch.receive(SENDER, frame)

    def let_go(self) -> list[bytes]:
        with self.switch.lock:
            self.stopped = False
            self.switch.resume(self.port)
        return self.out


@pytest.fixture(params=[8, 3], ids=lambda queues: f"{queues} queues")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    queues = request.param
    with running(tmp_path_factory.mktemp("target"), queues=queues) as target:
        target.primary()
        target.set_pipeline(p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT, PIPELINE.config())
        settings = MAKE.settings(IPv4Network("239.192.0.0/16"), queues)
        settings.append(MAKE.unicast(UnicastRule("tor1", IPv4Address(D), RECEIVER)))
        settings += [one.encode(PIPELINE.schema) for one in path(SENDER, G, 10, (RECEIVER,), level=LEVEL_MULTICAST)]
        write(target, modify(MAKE.queues(queues)), *(insert(one) for one in settings))
        yield target


def write(target: Target, *updates: p4r.Update) -> None:
    request = p4r.WriteRequest(device_id=DEVICE, updates=updates)
    request.election_id.low = target.election_id
    target.call("Write", request)


def test_report__passes_a_port_that_multicast_fills(target: Target) -> None:
    port = Port(target)
    port.arrive(*[PACKET] * 50, *[OTHER] * 20, REPORT, REQUEST, *[PACKET] * 50)
    first, *out = port.let_go()  # it was on its way when the others came
    assert (first, *out[:2]) == (MARKED, REPORT, REQUEST)
    assert out[2:] == [MARKED] * 99 + [OTHER] * 20


def test_liar__who_marks_all_it_sends_takes_a_share_of_the_port_and_no_more(target: Target) -> None:
    write(target, modify(MAKE.control_share(RECEIVER, 1000)))  # 12 bytes a second: what is seen is the burst
    lie = unicast(S, D, bytes(1000), dscp=48)
    within = BURST_MIN_BYTES // len(lie)
    port = Port(target)
    port.arrive(PACKET, *[lie] * 200, *[PACKET] * 50)
    assert port.let_go() == [MARKED, *[lie] * within, *[MARKED] * 50, *[lie] * (200 - within)]


@pytest.mark.parametrize("queues", range(1, 9))
def test_queues__control_is_before_multicast_and_that_before_the_rest(queues: int) -> None:
    places = [queue_of(level, queues) for level in range(8)]
    assert places == sorted(places)
    assert places[0] == 0
    assert places[-1] < queues
    assert places[LEVEL_MULTICAST] > 0 or queues < 2
    assert places[6] > places[LEVEL_MULTICAST] or queues < 3
