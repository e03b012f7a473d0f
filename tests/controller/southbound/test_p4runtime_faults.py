"""P4 switches that refuse, keep silent, talk nonsense, or are somebody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any

import pytest
from finsy.proto import p4d, p4r, rpc_code, rpc_status
from rostrum.controller.core.model import Count, Light, SouthboundError
from rostrum.controller.southbound.p4runtime import connection
from rostrum.controller.southbound.p4runtime import switch as p4runtime_switch
from rostrum.controller.southbound.p4runtime.entries import delete, source_of

from tests.controller.southbound.p4_servers import FakeServer, identity
from tests.controller.southbound.p4_world import GROUP, PIPELINE, RULE, SENDER, UNICAST, World

WATCHED = replace(RULE, in_port=50, out_ports=(1, 2), confirm=1)
DIGEST = PIPELINE.schema.digests["first_light_t"].id


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    made = FakeServer()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of tenths of seconds."""
    monkeypatch.setattr(connection, "CONFIRM_S", 0.3)
    monkeypatch.setattr(connection, "CONNECT_S", 0.3)
    monkeypatch.setattr(p4runtime_switch, "PULSE_S", 0.1)
    monkeypatch.setattr(p4runtime_switch, "BACKOFF_MAX_S", 0.1)


def table_of(update: p4r.Update) -> str:
    table = PIPELINE.schema.tables.get(update.entity.table_entry.table_id)
    return table.alias if table else ""


def bits(number: int, size: int) -> p4d.P4Data:
    return p4d.P4Data(bitstring=number.to_bytes(size, "big").lstrip(b"\0") or b"\0")


def seen(port: int, epoch: int, sn: int = 7, session: int = 2, group: IPv4Address = GROUP) -> p4d.P4Data:
    members = [bits(port, 2), bits(int(group), 4), bits(int(SENDER), 4), bits(epoch, 4), bits(session, 4), bits(sn, 8)]
    return p4d.P4Data(struct=p4d.P4StructLike(members=members))


def epoch_of(world: World) -> int:
    watch = world.fabric._switches["tor1"]._book.rules[50, GROUP].watch
    assert watch is not None
    return watch.epoch


async def test_refused_updates__each_is_named(server: FakeServer) -> None:
    async with World(server) as world:
        await world.up()
        server.refuse = lambda update: (
            (rpc_code.RESOURCE_EXHAUSTED, "table is full") if table_of(update) == "multicast" else (0, "")
        )
        rules = [replace(RULE, group=IPv4Address(int(GROUP) + n)) for n in range(6)]
        with pytest.raises(SouthboundError) as caught:
            await world.fabric.install(rules)
        text = str(caught.value)
        assert "insert multicast (ingress_port 1, group 239.192.0.5): RESOURCE_EXHAUSTED: table is full" in text
        assert "; and 2 more of 12" in text, text
        server.refuse = lambda _: (0, "")
        assert await world.holds() == [], "halves of rules are removed"
        await world.fabric.install(rules)
        assert await world.fabric.read("tor1") == set(rules)


@pytest.mark.parametrize("raw", [b"", b"\xff\xff\xff", b"\x0a\x05abc", b"\x1a\x02\x0a\x00"])
async def test_error_details_that_are_garbage__the_status_is_told(server: FakeServer, raw: bytes) -> None:
    async with World(server) as world:
        await world.up()
        server.refuse, server.details = lambda _: (rpc_code.INTERNAL, "x"), lambda _: raw
        with pytest.raises(SouthboundError, match=r"tor1 refused to install .*: UNKNOWN"):
            await world.fabric.install_unicast(UNICAST)


async def test_values_that_do_not_fit__are_refused_before_anything_is_written(server: FakeServer) -> None:
    async with World(server) as world:
        await world.up()
        before = len(server.writes)
        with pytest.raises(SouthboundError, match=r"tor1: port 600 is not in 1 \.\.\. 509"):
            await world.fabric.install([replace(RULE, out_ports=(600,))])
        with pytest.raises(SouthboundError, match="has no out ports"):
            await world.fabric.install([replace(RULE, out_ports=())])
        with pytest.raises(SouthboundError, match="does not take this"):
            await world.fabric.install([replace(RULE, level=9)])
        assert len(server.writes) == before
        with pytest.raises(SouthboundError, match="tor9 is not a P4 switch of this topology"):
            await world.fabric.install([replace(RULE, switch="tor9")])


@pytest.mark.usefixtures("impatient")
async def test_silent_switch__orders_fail_in_time_and_it_goes_down(server: FakeServer) -> None:
    async with World(server) as world:
        await world.up()
        server.hold["Write"] = asyncio.Event()
        with pytest.raises(SouthboundError, match=r"did not confirm within 0\.3 s: install the multicast rules"):
            await world.fabric.install([RULE])
        server.hold["GetForwardingPipelineConfig"] = asyncio.Event()
        await world.until(lambda: world.downs)
        assert "no sign of life 3 times in a row" in world.downs[0][1]
        for event in server.hold.values():
            event.set()
        await world.up(2)
        assert server.pushes == 1, "its program was ours all the time"


async def test_refusal_that_leaves_doubt__is_cleared_by_reading_anew(server: FakeServer) -> None:
    async with World(server) as world:
        await world.up()
        server.refuse = lambda update: (rpc_code.INTERNAL, "no") if update.entity.HasField("table_entry") else (0, "")
        with pytest.raises(SouthboundError):
            await world.fabric.install([RULE])
        server.refuse = lambda _: (0, "")
        await world.fabric.install([RULE])
        assert await world.fabric.read("tor1") == {RULE}


async def test_half_rules__are_removed_when_the_switch_is_met(server: FakeServer) -> None:
    async with World(server) as world:
        await world.up()
        await world.fabric.install([RULE, replace(RULE, in_port=2), WATCHED])
    make = world.fabric._switches["tor1"]._make
    halves = [make.grant((1, GROUP), source_of(RULE)), make.multicast((2, GROUP), 2, 5)]
    for half in halves:
        server._update(delete(half))
    async with World(server) as world:
        await world.up()
        assert await world.fabric.read("tor1") == {WATCHED}
        lines = await world.holds()
        assert [line.split()[0] for line in lines] == ["admission", "first_light", "group", "multicast"]


GARBAGE = [
    p4r.Entity(table_entry=p4r.TableEntry(table_id=0x02FFFFFF)),
    p4r.Entity(
        table_entry=p4r.TableEntry(
            table_id=0x02000004,
            match=[p4r.FieldMatch(field_id=9, exact=p4r.FieldMatch.Exact(value=b"\1"))],
            action=p4r.TableAction(action=p4r.Action(action_id=0x01000007)),
        )
    ),
    p4r.Entity(
        table_entry=p4r.TableEntry(
            table_id=0x02000004,
            match=[p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\1"))],
            action=p4r.TableAction(action=p4r.Action(action_id=0x01FFFFFF)),
        )
    ),
]


@pytest.mark.parametrize("number", range(len(GARBAGE)))
async def test_garbage_among_its_entries__is_told_and_the_manager_lives(server: FakeServer, number: int) -> None:
    async with World(server) as world:
        await world.up()
        server.garbage = [GARBAGE[number]]
        with pytest.raises(SouthboundError, match="tor1 says what is not in its p4info"):
            await world.fabric.read("tor1")
        server.garbage = []
        await world.fabric.install([RULE])
        assert await world.fabric.read("tor1") == {RULE}


async def test_first_light__is_told_once_it_is_of_the_epoch_that_is_armed(server: FakeServer) -> None:
    async with World(server) as world:
        await world.up()
        await world.fabric.install([WATCHED])
        epoch = epoch_of(world)
        server.digest(DIGEST, seen(50, epoch - 1))
        server.digest(DIGEST, seen(49, epoch))
        server.digest(DIGEST, seen(50, epoch, group=IPv4Address("239.192.9.9")))
        server.digest(DIGEST, seen(50, epoch, sn=41, session=3))
        await world.until(lambda: world.lights)
        assert world.lights == [Light("tor1", 50, GROUP, 3, 41)]
        await world.until(lambda: len(server.acks) == 4)
        await world.fabric.rearm([WATCHED])
        server.digest(DIGEST, seen(50, epoch))
        server.digest(DIGEST, seen(50, epoch_of(world)))
        await world.until(lambda: len(world.lights) == 2)


async def test_digests_and_messages_that_are_garbage__are_left_alone(server: FakeServer) -> None:
    async with World(server) as world:
        await world.up()
        await world.fabric.install([WATCHED])
        server.digest(DIGEST + 1, seen(50, epoch_of(world)))
        server.digest(DIGEST, p4d.P4Data(bitstring=b"\1"))
        server.digest(DIGEST, p4d.P4Data(struct=p4d.P4StructLike(members=[bits(1, 1)])))
        server.digest(DIGEST, p4d.P4Data())
        server.say(p4r.StreamMessageResponse(packet=p4r.PacketIn(payload=b"x" * 1000)))
        server.say(p4r.StreamMessageResponse(error=p4r.StreamError(message="bad digest ack")))
        server.say(p4r.StreamMessageResponse())
        server.digest(DIGEST, seen(50, epoch_of(world)))
        await world.until(lambda: world.lights)
        assert world.downs == [] and len(world.lights) == 1


async def test_another_program__is_replaced_by_ours(server: FakeServer) -> None:
    server.config = p4r.ForwardingPipelineConfig(cookie=p4r.ForwardingPipelineConfig.Cookie(cookie=7))
    async with World(server) as world:
        await world.up()
        assert server.pushes == 1 and server.config is not None
        assert server.config.cookie.cookie == PIPELINE.cookie and server.config.p4info == PIPELINE.p4info


@pytest.mark.usefixtures("impatient")
async def test_program_replaced_while_it_ran__is_pushed_again(server: FakeServer) -> None:
    async with World(server) as world:
        await world.up()
        server.config = p4r.ForwardingPipelineConfig(cookie=p4r.ForwardingPipelineConfig.Cookie(cookie=7))
        server.entities.clear()
        await world.until(lambda: world.downs)
        assert world.downs == [("tor1", "somebody replaced its program")]
        await world.up(2)
        assert server.pushes == 2 and await world.holds() == []


@pytest.mark.usefixtures("impatient")
async def test_no_switch_there__says_so_and_connects_when_it_comes() -> None:
    server = FakeServer()
    async with World(server) as world:
        switch = world.fabric._switches["tor1"]
        await world.until(lambda: "does not answer within" in switch.standing)
        with pytest.raises(SouthboundError, match=r"tor1 is not usable: 127\.0\.0\.1:\d+ does not answer"):
            await world.fabric.read("tor1")
        await server.start()
        await world.up()
    await server.stop()


class HangsUp(FakeServer):
    """Makes each its primary, and ends the stream."""

    def __init__(self) -> None:
        super().__init__()
        self.streams = 0

    async def StreamChannel(self, requests: Any, context: Any) -> Any:
        self.streams += 1
        async for message in requests:
            status = rpc_status.Status(code=rpc_code.OK)
            election = message.arbitration.election_id
            arbitration = p4r.MasterArbitrationUpdate(device_id=1, election_id=election, status=status)
            yield p4r.StreamMessageResponse(arbitration=arbitration)
            return


async def test_a_switch_that_hangs_up_at_once__is_asked_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(p4runtime_switch, "BACKOFF_MIN_S", 0.001)
    monkeypatch.setattr(p4runtime_switch, "BACKOFF_MAX_S", 3600.0)
    server = HangsUp()
    await server.start()
    async with World(server) as world:
        await world.until(lambda: server.streams >= 8)
        for _ in range(100):
            await asyncio.sleep(0.003)
        assert server.streams <= 11  # the tenth wait is of half a second
    await server.stop()


async def test_a_switch_that_does_not_answer__is_asked_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its attempts took counted as time that connections held."""
    waits: list[float] = []
    pause = asyncio.sleep

    async def noted(delay: float) -> None:
        own = asyncio.current_task() is kept
        waits.extend([delay] if own else [])
        await pause(0 if own else delay)

    async def refused(link: connection.Connection) -> None:
        raise SouthboundError("it does not answer")

    monkeypatch.setattr(p4runtime_switch, "STEADY_S", 0.0)
    monkeypatch.setattr(connection.Connection, "open", refused)
    async with World(FakeServer()) as world:
        kept = world.fabric._switches["tor1"]._task
        monkeypatch.setattr(asyncio, "sleep", noted)
        await world.until(lambda: len(waits) >= 8)
        monkeypatch.undo()
    assert waits[-1] >= 0.8 * p4runtime_switch.BACKOFF_MAX_S, waits


@pytest.mark.usefixtures("impatient")
async def test_same_election_id_twice__the_second_waits_for_its_turn(server: FakeServer) -> None:
    first = World(server)
    await first.fabric.start("", 0)
    await first.up()
    async with World(server) as second:
        switch = second.fabric._switches["tor1"]
        await second.until(lambda: "Election id already exists" in switch.standing)
        assert second.ups == []
        await first.fabric.close()
        await second.up()


async def test_election_not_won__is_said_and_nothing_written(server: FakeServer) -> None:
    server.status[1] = 13
    async with World(server) as world:
        switch = world.fabric._switches["tor1"]
        await world.until(lambda: "backup" in switch.standing)
        assert server.pushes == 0 and server.writes == [] and world.ups == []


async def test_a_switch_that_lets_nobody_be_primary__is_asked_on_and_gets_no_order(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(p4runtime_switch, "TAKE_OVER_S", 0.01)
    asked: list[int] = []
    server.status = _Nobody(asked)
    async with World(server) as world:
        switch = world.fabric._switches["tor1"]
        await world.until(lambda: "no controller is its primary since" in switch.standing and len(asked) >= 5)
        assert server.pushes == 0 and server.writes == [] and world.ups == []
        assert set(asked) == {1, 1 + (1 << 64)}  # its own, and one above what the switch said it had seen


class _Nobody(dict[int, int]):
    """Notes who asks, and says NOT_FOUND."""

    def __init__(self, asked: list[int]) -> None:
        super().__init__()
        self.asked = asked

    def get(self, election: int, default: object = None) -> int:
        self.asked.append(election)
        return int(rpc_code.NOT_FOUND)


async def test_counters__as_the_switch_tells_them(server: FakeServer) -> None:
    async with World(server) as world:
        await world.up()
        await world.fabric.install([RULE])
        delivered = PIPELINE.schema.counters["delivered"].id
        refused = PIPELINE.schema.counters["refused"].id
        server.counters[delivered, 2] = p4r.CounterData(packet_count=5, byte_count=700)
        excess = PIPELINE.schema.counters["control_excess"].id
        server.counters[refused, 2] = p4r.CounterData(packet_count=1, byte_count=60)
        server.counters[excess, 2] = p4r.CounterData(packet_count=3, byte_count=180)
        make = world.fabric._switches["tor1"]._make
        asked = make.ask_direct("multicast", {"ingress_port": 1, "group": int(GROUP)})
        entry = p4r.Entity(table_entry=asked.direct_counter_entry.table_entry)
        server.direct[identity(entry)] = p4r.CounterData(packet_count=6, byte_count=840)
        (found,) = await world.fabric.rule_counters([RULE])
        assert found.received == Count(6, 840) and found.granted == Count()
        assert found.delivered == ((2, Count()), (50, Count(5, 700)))
        counters = await world.fabric.switch_counters("tor1")
        assert counters is not None and counters.ports[1].refused == Count(1, 60)
        assert [row.control_excess for row in counters.ports] == [Count(), Count(3, 180), Count(), Count()]
