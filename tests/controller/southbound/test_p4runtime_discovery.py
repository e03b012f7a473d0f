"""Discovery frames through P4Runtime: packet-out to ports, packet-in from them, on a server in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from finsy.proto import p4r
from rostrum.controller.core.model import Sighting
from rostrum.controller.southbound import lldp
from rostrum.controller.southbound.p4runtime.switches import P4RuntimeFabric
from rostrum.topologies.model import End

from tests.controller.fakes import until
from tests.controller.southbound.p4_servers import FakeServer
from tests.controller.southbound.p4_world import PIPELINE, topology

KEY = b"k" * 32


class Seen:
    """A fabric for tor1, and what it saw."""

    def __init__(self, server: FakeServer) -> None:
        self.server, self.ups = server, list[str]()
        self.sightings: list[Sighting] = []
        self.fabric = P4RuntimeFabric(
            topology(tor1=server.port), self.ups.append, lambda *_: None, None, self.sightings.append,
            pipeline=PIPELINE, discovery_key=KEY,
        )  # fmt: skip

    def hands_up(self, port: int, frame: bytes) -> None:
        values = [(1, port.to_bytes(2, "big").lstrip(b"\0")), (2, b"\0")]
        metadata = [p4r.PacketMetadata(metadata_id=number, value=value) for number, value in values]
        self.server.say(p4r.StreamMessageResponse(packet=p4r.PacketIn(payload=frame, metadata=metadata)))


@pytest.fixture
async def seen() -> AsyncIterator[Seen]:
    server = FakeServer()
    await server.start()
    made = Seen(server)
    try:
        await made.fabric.start("", 0)
        await until(lambda: made.ups, "the switch to be up")
        yield made
    finally:
        await made.fabric.close()
        await server.stop()


async def test_round__a_frame_leaves_by_each_port_to_another_device(seen: Seen) -> None:
    seen.server.packets.clear()
    seen.fabric.discover()
    await until(lambda: len(seen.server.packets) >= 2, "the frames")
    ports = {}
    for packet in seen.server.packets:
        told = {one.metadata_id: int.from_bytes(one.value, "big") for one in packet.metadata}
        ports[told[1]] = lldp.origin(KEY, packet.payload)
        assert told.get(2, 0) == 0
    assert ports == {port: lldp.Origin("tor1", port) for port in (49, 50)}  # not those of servers
    watched = [
        one.table_entry.match[0].exact.value[-1]
        for one in seen.server.entities.values()
        if one.table_entry.table_id == 0x02000008
    ]
    assert sorted(watched) == [49, 50]


async def test_packet_in__is_a_sighting_if_it_is_ours(seen: Seen) -> None:
    frame = lldp.frame(KEY, lldp.Origin("core", 1))
    seen.server.say(p4r.StreamMessageResponse(packet=p4r.PacketIn(payload=frame)))  # does not say where it came in
    seen.hands_up(49, b"")
    seen.hands_up(49, lldp.frame(b"x" * 32, lldp.Origin("core", 2)))
    seen.hands_up(300, frame)
    seen.hands_up(49, frame)
    await until(lambda: len(seen.sightings) == 2, "the sightings")
    assert seen.sightings == [Sighting("tor1", port, End("core", 1)) for port in (300, 49)]
    assert seen.fabric.up == {"tor1"}
