"""The manager's split of a send over sites: ways, relays by preference, address translation; and agents' calls."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import uvloop
from rostrum.controller.core.manager import Manager
from rostrum.controller.core.requests.sites import Present, Split, split
from rostrum.controller.core.requests.validation import problems
from rostrum.controller.core.values import PathRequest, Settings
from rostrum.controller.northbound.thrift.codec import idl

from tests.controller.fakes import running
from tests.topologies import three_sites

ALL = {f"{site}-{host}": Present(7000 + host) for site in three_sites.SITES for host in (1, 2, 3)}
EVERYBODY = [name for name in ALL if name != "home-1"]


def ways(found: Split) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {leg.site: (leg.relay.server if leg.relay else "", leg.receivers) for leg in found.legs}


def test_each_other_site_has_a_relay_and_the_own_one_none() -> None:
    found = split(three_sites.topology("east: relays: [east-3, east-1]"), "home-1", EVERYBODY, (), ALL)
    assert ways(found) == {
        "home": ("", ("home-2", "home-3")),
        "east": ("east-3", ("east-1", "east-2", "east-3")),
        "west": ("west-1", ("west-1", "west-2", "west-3")),
        "south": ("south-1", ("south-1", "south-2", "south-3")),
    }
    east = next(leg for leg in found.legs if leg.site == "east")
    assert east.relay and (east.relay.address, east.relay.control_port) == ("10.0.1.3", 7003)
    assert east.origin and east.origin.address == "10.0.0.1" and not east.relay_dials
    assert "over the wide area by wan to relay east-3, the first of the site's relays that is there" in east.reason


def test_a_site_behind_another_is_in_that_ones_leg_and_the_relay_splits_on() -> None:
    topology = three_sites.topology("south: via: west")
    found = split(topology, "home-1", ["south-1", "west-2"], (), ALL)
    assert ways(found) == {"west": ("west-2", ("south-1", "west-2"))}
    assert ways(split(topology, "west-2", ["south-1"], (), ALL)) == {"south": ("south-1", ("south-1",))}
    (west,) = found.legs
    assert [(leg.site, leg.relay and leg.relay.server, leg.origin and leg.origin.server) for leg in west.onward] == [
        ("south", "south-1", "west-2")
    ]
    assert split(topology, "home-1", ["south-1", "west-2"], (), ALL, ahead=0).legs[0].onward == ()
    # Where no receiver is on the way, somebody must be named.
    without = split(topology, "home-1", ["south-1"], (), ALL)
    assert not without.legs and without.ever and "name `relays` in the topology" in without.reason


def test_who_failed_is_avoided_and_who_is_away_is_passed_over() -> None:
    topology = three_sites.topology("east: relays: [east-3, east-1]")
    here = {name: one for name, one in ALL.items() if name != "east-1"}
    assert ways(split(topology, "home-1", ["east-2"], (), here)) == {"east": ("east-3", ("east-2",))}
    found = split(topology, "home-1", ["east-2"], ("east-3",), here)
    assert ways(found) == {"east": ("east-2", ("east-2",))}
    # Whoever named relays hears why it is none of them.
    why = "a receiver, as east-3 failed, the agent of east-1 is not connected, or does not know sites"
    assert found.legs[0].reason.endswith(f"to relay east-2, {why}"), found
    nobody = split(topology, "home-1", ["east-2"], ("east-3",), {})
    assert not nobody.legs and not nobody.ever
    assert nobody.reason == (
        "site east has no relay: east-3 failed, the agents of east-1, east-2 are not connected, or do not know sites"
    )
    assert split(three_sites.topology(), "home-1", ["east-2"], ("east-2",), ALL).ever


def test_an_agent_that_was_started_as_relay_comes_before_receivers() -> None:
    flagged = {**ALL, "west-3": Present(7003, relay=True)}
    assert ways(split(three_sites.topology(), "home-1", ["west-1"], (), flagged))["west"][0] == "west-3"


def test_a_site_that_translates_addresses_is_where_connections_begin() -> None:
    topology = three_sites.topology("east: nat: true, outside: {east-1: '192.0.2.7:9000'}\nsouth: nat: true")
    (leg,) = split(topology, "home-1", ["east-1"], (), ALL).legs
    assert leg.relay_dials and leg.relay and (leg.relay.address, leg.relay.control_port) == ("192.0.2.7", 9000)
    (leg,) = split(topology, "east-1", ["home-1"], (), ALL).legs
    assert not leg.relay_dials and leg.origin and leg.origin.address == "0.0.0.0"
    both = split(topology, "east-1", ["south-1"], (), ALL)
    assert both.ever and "neither reaches the other" in both.reason


def test_a_relay_behind_a_translation__is_where_the_manager_sees_it() -> None:
    topology = three_sites.topology("east: nat: true")
    inside = str(topology.servers["east-1"].address)
    for seen, told in (("192.0.2.7", "192.0.2.7"), (inside, "0.0.0.0"), ("", "0.0.0.0")):
        present = {**ALL, "east-1": Present(7001, address=seen)}
        (leg,) = split(topology, "home-1", ["east-1"], (), present).legs
        assert leg.relay_dials and leg.relay and leg.relay.address == told


def test_no_path_leads_to_another_site() -> None:
    topology = three_sites.topology()
    Manager(topology)  # that its sites are not joined is nothing to it
    (text,) = problems(PathRequest("r", "home-1", "home-1", ("home-2", "east-1"), 1, 1), topology, Settings())
    assert "east-1 is in site east, home-1 in home: no path leads to another site" in text
    assert not problems(PathRequest("r", "home-1", "home-1", ("home-2",), 1, 1), topology, Settings())


def test_a_relay_whose_own_ways_are_not_all_there_asks_later() -> None:
    topology = three_sites.topology("south: via: west")
    here = {name: one for name, one in ALL.items() if not name.startswith("south")}
    (leg,) = split(topology, "home-1", ["south-1", "west-2"], (), here).legs
    assert leg.relay and leg.relay.server == "west-2" and leg.onward == ()


def test_relays_behind_relays_have_their_orders_before_the_object_comes(tmp_path: Path) -> None:
    async def talk() -> None:
        async with running(tmp_path, topology=three_sites.topology("south: via: west")) as manager:
            sender = await manager.agent("home-1", knows_sites=True)
            west = await manager.agent("west-2", knows_sites=True)
            south = await manager.agent("south-1", knows_sites=True)
            sender.say("split", request=idl.SplitRequest("a", b"0123456789abcdef", 7, EVERYBODY[5:], []))
            (leg,) = (await sender.expect("legs")).answer.legs
            order = (await west.expect("relay")).order
            assert (order.leg_id, leg.relay.server, leg.site) == (leg.leg_id, "west-2", "west")
            own, beyond = order.onward
            assert (own.site, own.relay, own.receivers) == ("west", None, ["west-1", "west-3"])
            assert (beyond.site, beyond.relay.server) == ("south", "south-1")
            last = (await south.expect("relay")).order
            assert (last.leg_id, last.origin.server) == (beyond.leg_id, "west-2")
            assert last.receivers == ["south-2", "south-3"]
            assert [(one.site, one.relay, one.receivers) for one in last.onward] == [("south", None, last.receivers)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(talk())


def test_agents_are_told_their_site_and_relays_their_orders(tmp_path: Path) -> None:
    async def talk() -> None:
        async with running(tmp_path, topology=three_sites.topology()) as manager:
            sender = await manager.agent("home-1", knows_sites=True)
            relay = await manager.agent("east-2", knows_sites=True, control_port=7099)
            assert (await sender.expect("site")).site == "home"

            async def asked(request_id: str, *receivers: str, avoid: tuple[str, ...] = ()) -> Any:
                one = idl.SplitRequest(request_id, b"0123456789abcdef", 7, list(receivers), list(avoid))
                sender.say("split", request=one)
                return (await sender.expect("legs", lambda args: args.answer.request_id == request_id)).answer

            (leg,) = (await asked("a", "east-1", "east-2")).legs
            order = (await relay.expect("relay")).order
            assert (order.leg_id, order.receivers, order.keeps) == (leg.leg_id, ["east-1"], True)
            assert (order.origin.server, order.data_id, order.dials) == ("home-1", 7, False)
            assert (leg.relay.server, leg.relay.control_port, leg.site) == ("east-2", 7099, "east")
            report = idl.RelayReport(leg.leg_id, "home-1", "east-2", "passing", "", 5, [])
            relay.say("relayed", report=report)
            assert (await sender.expect("relayed")).report.bytes == 5
            answer = await asked("b", "east-1", avoid=("east-2",))
            assert not answer.legs and not answer.ever and "not connected" in answer.reason
            assert "not in topology" in (await asked("c", "east-9")).reason
            liar = await manager.agent("west-1", knows_sites=True)
            liar.say("relayed", report=report)
            assert "reports as relay east-2" in (await liar.expect("goodbye")).reason

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(talk())


def test_what_was_asked_of_a_send_is_in_every_relays_order_and_old_relays_are_passed_over(tmp_path: Path) -> None:
    async def talk() -> None:
        async with running(tmp_path, topology=three_sites.topology("south: via: west")) as manager:
            sender = await manager.agent("home-1", knows_sites=True, knows_terms=True)
            old = await manager.agent("west-1", knows_sites=True)
            west = await manager.agent("west-2", knows_sites=True, knows_terms=True)
            south = await manager.agent("south-1", knows_sites=True, knows_terms=True)
            terms = idl.SendTerms("congestion=friendly,coding=repairs", "evict", 7, 60_000)

            async def asked(request_id: str, receivers: list[str], terms: Any) -> Any:
                one = idl.SplitRequest(request_id, b"0123456789abcdef", 7, receivers, [], terms)
                sender.say("split", request=one)
                return (await sender.expect("legs", lambda args: args.answer.request_id == request_id)).answer

            answer = await asked("a", EVERYBODY[5:], terms)
            assert answer.with_terms and answer.legs[0].relay.server == "west-2"
            for relay in (west, south):
                told = (await relay.expect("relay")).order.terms
                assert (told.options, told.stragglers) == (terms.options, "evict")
                assert (told.wait_ms, told.deadline_ms) == (7, 60_000)
            answer = await asked("b", ["west-1", "west-3"], terms)
            assert not answer.legs and not answer.ever
            assert "the release of rostrumd on west-1 passes nothing on with options" in answer.reason
            assert (await asked("c", ["west-1"], terms)).legs  # it passes nothing on
            for number, nothing in enumerate((None, idl.SendTerms("", "", 7, 0))):  # times are hints
                answer = await asked(f"d{number}", ["west-1", "west-3"], nothing)
                assert answer.legs[0].relay.server == "west-1" and (answer.with_terms is True) == (nothing is not None)
                assert (await old.expect("relay")).order.receivers == ["west-3"]
            await asked("e", ["west-2"], idl.SendTerms("x" * 255, "evict", 0, 2**31 - 1))
            for number, (field, bad) in enumerate(
                [("options", "x" * 256), ("options", "\u20ac"), ("options", "coding\0"), ("stragglers", "x" * 256),
                 ("wait_ms", -1), ("deadline_ms", -(2**31)), ("deadline_ms", None), ("options", None)]
            ):  # fmt: skip
                liar = await manager.agent(f"home-{2 + number % 2}", knows_sites=True, boot_id=number + 10)
                odd = idl.SendTerms("", "", 0, 0)
                setattr(odd, field, bad)
                liar.say("split", request=idl.SplitRequest("f", b"0123456789abcdef", 7, ["west-1"], [], odd))
                assert field in (await liar.expect("goodbye")).reason

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(talk())
