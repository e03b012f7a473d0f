"""The P4Runtime southbound against switches: one in memory, the reference target, and BMv2 where it is installed.

Each test asserts all that is on the switch afterwards, as an outsider reads it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
from finsy import P4MeterEntry
from finsy.proto import p4r
from rostrum.controller.core.model import ANY_SOURCE, Count, SouthboundError, UnicastRule
from rostrum.controller.southbound.p4runtime import switch as p4runtime_switch
from rostrum.controller.southbound.p4runtime.connection import HALF, raised

from tests.controller.southbound.p4_servers import FakeServer, ProgramServer, Server, bmv2_argv, reference_argv
from tests.controller.southbound.p4_world import GROUP, PIPELINE, RULE, UNICAST, World, ask, topology

ROUTES = ["unicast destination=10.0.1.1/32 -> forward(port=1)", "unicast destination=10.0.2.1/32 -> forward(port=49)"]
RULE_SOURCE = IPv4Network("10.0.1.1/32")
RULE_LINES = [
    "admission ingress_port=1 group=239.192.0.5 source=10.0.1.1/32 -> grant()",
    "group 1: 2#1 50#2",
    "multicast ingress_port=1 group=239.192.0.5 -> replicate(replication=1, level=5)",
]


METERS = P4MeterEntry("control_share")  # all of them


@pytest.fixture(params=["memory", "reference", "bmv2"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    made: Server
    if request.param == "memory":
        made = FakeServer()
    elif request.param == "reference":
        made = ProgramServer(reference_argv(), tmp_path / "target.log")
    else:
        argv = bmv2_argv()
        if not argv:
            pytest.skip("simple_switch_grpc (BMv2) is not installed")
        made = ProgramServer(argv, tmp_path / "target.log")
    await made.start()
    yield made
    await made.stop()


async def test_install_and_remove__all_that_is_on_the_switch(server: Server) -> None:
    async with World(server) as world:
        await world.up()
        assert await world.holds() == []
        await world.fabric.install_unicast(UNICAST)
        await world.fabric.install([RULE])
        assert await world.holds() == sorted([*RULE_LINES, *ROUTES])
        assert await world.fabric.read("tor1") == {RULE}
        await world.fabric.install([RULE])
        assert await world.holds() == sorted([*RULE_LINES, *ROUTES]), "a rule that is there is only repeated"
        await world.fabric.remove([RULE])
        assert await world.holds() == ROUTES
        await world.fabric.remove([RULE])
        assert await world.fabric.read("tor1") == set()


async def test_setup__each_port_has_its_share_for_control(server: Server) -> None:
    async with World(server) as world:
        await world.up()
        meters = [one.meter_entry for one in await ask(server.port, [METERS.encode(PIPELINE.schema)])]
        found = {one.index.index: one.config for one in meters if one.HasField("config")}
        rates = topology(tor1=server.port).switches["tor1"].rates
        assert set(found) == set(rates)
        for port, rate_bps in rates.items():
            assert found[port].cir == found[port].pir == rate_bps // 8 // 50
            assert found[port].cburst == found[port].pburst == rate_bps // 8 // 500


async def test_install__replaces_ports_level_and_source(server: Server) -> None:
    async with World(server) as world:
        await world.up()
        await world.fabric.install([RULE])
        other = replace(RULE, out_ports=(3, 50), level=0, source=ANY_SOURCE)
        await world.fabric.install([other])
        assert await world.holds() == [
            "admission ingress_port=1 group=239.192.0.5 -> grant()",
            "group 1: 3#3 50#2",
            "multicast ingress_port=1 group=239.192.0.5 -> replicate(replication=1, level=0)",
        ]
        assert await world.fabric.read("tor1") == {other}


async def test_unicast__stale_entries_go_and_changed_ones_change(server: Server) -> None:
    async with World(server) as world:
        await world.up()
        await world.fabric.install_unicast(UNICAST)
        moved = [replace(UNICAST[0], out_port=2), UnicastRule("tor1", IPv4Address("10.0.3.1"), 49)]
        await world.fabric.install_unicast(moved)
        assert await world.holds() == [
            "unicast destination=10.0.1.1/32 -> forward(port=2)",
            "unicast destination=10.0.3.1/32 -> forward(port=49)",
        ]


async def test_watch__armed_with_an_epoch_and_again_with_another(server: Server) -> None:
    async with World(server) as world:
        await world.up()
        await world.fabric.install([replace(RULE, in_port=50, out_ports=(1, 2), confirm=3)])
        (first,) = [line for line in await world.holds() if line.startswith("first_light")]
        assert first.startswith("first_light ingress_port=50 group=239.192.0.5 -> watch(slot=0, epoch=")
        assert first.endswith("first_session=0, confirm=3)")
        await world.fabric.rearm([replace(RULE, in_port=50, out_ports=(1, 2), confirm=1)])
        (second,) = [line for line in await world.holds() if line.startswith("first_light")]
        assert second.endswith("confirm=1)")
        assert second.split("epoch=")[1].split(",")[0] > first.split("epoch=")[1].split(",")[0]
        await world.fabric.remove([replace(RULE, in_port=50)])
        assert await world.holds() == []


async def test_manager_comes_back__program_and_rules_are_kept(server: Server) -> None:
    async with World(server) as world:
        await world.up()
        await world.fabric.install([RULE])
        await world.fabric.install_unicast(UNICAST)
    async with World(server) as world:
        await world.up()
        assert await world.fabric.read("tor1") == {RULE}, "a program of ours that runs is not pushed again"
        assert await world.holds() == sorted([*RULE_LINES, *ROUTES])
        second = replace(RULE, group=IPv4Address("239.192.0.6"))
        await world.fabric.install([second])
        assert "group 2: 2#3 50#4" in await world.holds(), "numbers in use are known"
        await world.fabric.remove([RULE, second])
        assert await world.holds() == ROUTES


async def test_switch_restarts__it_is_down_then_up_and_empty(server: Server) -> None:
    async with World(server) as world:
        await world.up()
        await world.fabric.install([RULE])
        await server.stop()
        await world.until(lambda: world.downs)
        with pytest.raises(SouthboundError, match="tor1 is not usable"):
            await world.fabric.install([RULE])
        await server.start()
        await world.up(2)
        assert await world.fabric.read("tor1") == set()
        await world.fabric.install([RULE])
        assert await world.holds() == RULE_LINES


async def test_mastership__the_higher_election_id_writes_and_the_lower_takes_over(server: Server) -> None:
    async with World(server, election_id=5) as low:
        await low.up()
        await low.fabric.install([RULE])
        async with World(server, election_id=9) as high:
            await high.up()
            await low.until(lambda: low.downs)
            assert "another controller (election id 9) is its primary" in low.downs[0][1]
            with pytest.raises(SouthboundError, match="election id is 5; it is a backup and writes nothing"):
                await low.fabric.remove([RULE])
            assert await high.fabric.read("tor1") == {RULE}
            await high.fabric.remove([RULE])
        # What then: by the specification nobody is primary until the backup stands with a higher id; BMv2 makes the
        # backup primary at once.
        await low.up(2)
        await low.fabric.install([RULE])
        assert await low.fabric.read("tor1") == {RULE}


async def test_mastership__the_higher_of_two_managers_leads_also_after_a_foreign_one(
    server: Server,
) -> None:
    async with World(server, election_id=5) as low:
        await low.up()
        async with World(server, election_id=1 << 40) as foreign:
            await foreign.up()
        await low.up(2)  # above the foreign one now
        async with World(server, election_id=9) as high:
            await high.up()
            await low.until(lambda: "tor1" not in low.fabric.up)
            await high.fabric.install([RULE])
        await low.up(3)


async def test_mastership__started_anew_after_it_had_to_go_past_a_foreign_one(server: Server) -> None:
    async with World(server) as manager:
        await manager.up()
        async with World(server, election_id=9) as foreign:
            await foreign.up()
        await manager.up(2)
    async with World(server) as again:
        await again.up()
        await again.fabric.install([RULE])


async def test_mastership__a_foreign_primary_that_stays_is_left_alone(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(p4runtime_switch, "TAKE_OVER_S", 0.0)
    async with World(server, election_id=9) as foreign:
        await foreign.up()
        async with World(server) as manager:
            await manager.until(lambda: "another controller (election id 9)" in str(_standing(manager)))
            await foreign.fabric.install([RULE])
            assert await foreign.fabric.read("tor1") == {RULE}
            assert manager.ups == [] and foreign.downs == []


@pytest.mark.parametrize(
    ("own", "highest", "vacant", "claims"),
    [
        (1, 9, False, None),  # somebody else's
        (1, 9, True, HALF + 1),
        (5, HALF + 3, False, HALF + 5),  # another manager's with a lower id
        (5, HALF + 3, True, HALF + 5),
        (5, HALF + 9, False, None),  # with a higher one
        (5, HALF + 9, True, 2 * HALF + 5),
        (5, HALF + 5, True, HALF + 5),  # its own, of before
        (5, HALF + 5, False, None),  # somebody has its own id
        (5, 3 * HALF, False, None),
        (5, HALF * HALF - 1, True, HALF * HALF - 1),
    ],
)
def test_raised(own: int, highest: int, vacant: bool, claims: int | None) -> None:
    assert raised(own, highest, vacant) == claims


def _standing(world: World) -> str:
    return world.fabric._switches["tor1"].standing


async def test_counters__of_rules_and_ports(server: Server) -> None:
    async with World(server) as world:
        await world.up()
        await world.fabric.install([RULE])
        (found,) = await world.fabric.rule_counters([RULE, replace(RULE, in_port=2)])
        assert found.rule == RULE and found.received == found.granted == Count()
        assert found.delivered == ((2, Count()), (50, Count()))
        counters = await world.fabric.switch_counters("tor1")
        assert counters is not None
        assert [row.port for row in counters.ports] == [1, 2, 49, 50]
        assert ("malformed", Count()) in counters.dropped


async def test_backups__where_the_switch_has_them(server: Server) -> None:
    """P4Runtime 1.5; BMv2 and older ones get the rule without."""
    guarded = replace(RULE, backups=((50, 49),))
    async with World(server) as world:
        await world.up()
        facts = world.fabric.facts("tor1")
        assert facts is not None and facts.failover == ("1.5" in facts.device), facts
        expected = guarded if facts.failover else RULE
        await world.fabric.install([guarded])
        assert await world.fabric.read("tor1") == {expected}
        (found,) = await world.fabric.rule_counters([guarded])
        assert found.delivered == ((2, Count()), (50, Count()))
        await world.fabric.install([RULE])
        assert await world.fabric.read("tor1") == {RULE}
        await world.fabric.install([guarded])
        await world.fabric.remove([guarded])
        assert await world.holds() == []


async def test_many_rules__in_a_few_writes(server: Server) -> None:
    rules = [replace(RULE, group=IPv4Address(int(GROUP) + n), confirm=1) for n in range(200)]
    async with World(server) as world:
        await world.up()
        await world.fabric.install(rules)
        assert await world.fabric.read("tor1") == set(rules)
        await asyncio.gather(*(world.fabric.remove([rule]) for rule in rules[:20]))
        await world.fabric.remove(rules[20:])
        assert await world.holds() == []
    if isinstance(server, FakeServer):
        sizes = [len(batch) for batch in server.writes if len(batch) > 100]
        assert sizes == [600, 600, 540, 180], "groups, then entries; back: entries, then groups"


async def test_errors__name_table_fields_and_cause(server: Server) -> None:
    """Somebody else has put an entry where ours goes."""
    async with World(server) as world:
        await world.up()
        stranger = world.fabric._switches["tor1"]
        entity = stranger._make.grant((1, GROUP), RULE_SOURCE)
        assert stranger._connection is not None
        await stranger._connection.write([p4r.Update(type=p4r.Update.INSERT, entity=entity)], "interfere")
        with pytest.raises(SouthboundError) as caught:
            await world.fabric.install([RULE])
        text = str(caught.value)
        assert "tor1 refused to install the multicast rules for 239.192.0.5: " in text
        assert "insert admission (ingress_port 1, group 239.192.0.5, source 10.0.1.1/32): ALREADY_EXISTS" in text
        await world.fabric.remove([RULE])
        assert await world.holds() == [], "what was made of it, and what was in its way"
        await world.fabric.install([RULE])
        assert len(await world.holds()) == len(RULE_LINES)
