"""Keys of sealed packets: whom they are given, which numbers, and when they change; and what `security: required` asks
of manager and agents.
"""

from __future__ import annotations

import asyncio
import dataclasses
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from rostrum.controller.access_options import SecurityOptions
from rostrum.controller.core.groups.values import GroupFacts, GroupOptions, GroupPeer, GroupRegion, GroupView
from rostrum.controller.northbound.rest.access import AccessError
from rostrum.controller.northbound.thrift.codec import idl
from rostrum.controller.northbound.thrift.keys import (
    DUE_MAX,
    HEAD_START_S,
    NUMBERS,
    NUMBERS_END,
    REKEY_S,
    Keys,
    Told,
    first_epoch,
    next_epoch,
    transmitter_key,
)

from tests.controller.certificates import Authority
from tests.controller.fakes import FakeAgent, running, until
from tests.controller.northbound.test_thrift_tls import client
from tests.controller.timeline import hybrid

KeyFor = idl.KeyFor
TRANSMITTER_7 = "22cc486b748f07b63791e5affc48669ce40d4266f11e5e9a32fba289d9c93bcd"
OCS = dataclasses.replace(hybrid().ocs["ocs"], tls=False, password_env="OCS_PASSWORD")
SECURE = dataclasses.replace(hybrid(), secure=True, ocs={"ocs": OCS})


class Clock:
    s = 100.0

    def __call__(self) -> float:
        return self.s


SERVERS = {f"h{n}": IPv4Address(f"10.0.0.{n}") for n in range(1, 9)}
IDS = {server: number for number, server in enumerate(SERVERS, 100)}
PEERS = [GroupPeer(IDS[name], name, address, 7071, 1) for name, address in SERVERS.items()]
OPTIONS = GroupOptions("plain", "none", "")


def made(now: Clock, *servers: str) -> Keys:
    keys = Keys(now, SERVERS)
    for server in servers:
        keys.hello(server)
    return keys


def view(version: int, members: str, senders: str = "", gone: str = "", base: int | None = None) -> GroupView:
    facts = GroupFacts("news", IPv4Address("239.1.1.1"), 7070, OPTIONS) if base is None else None
    ids = [tuple(IDS[one] for one in names.split()) for names in (members, senders, gone)]
    return GroupView(5, version, base, facts, ids[0], ids[1], ids[2])


def of(told: Told, server: str, purpose: int) -> list[Any]:
    return [key for name, keys in told if name == server for key in keys if key.purpose == purpose]


def test_own_keys__are_each_agents_alone_and_another_each_time_it_comes() -> None:
    keys = made(Clock())
    [(one, [first])], [(two, [second])] = keys.hello("h1"), keys.hello("h2")
    assert (one, two) == ("h1", "h2") and first.key != second.key
    assert (first.purpose, first.id, len(first.key)) == (KeyFor.SELF, int(SERVERS["h1"]), 32)
    [(_, [again])] = keys.hello("h1")
    assert again.key != first.key and again.epoch != first.epoch


def test_peer_keys__are_of_one_pair_and_of_one_way() -> None:
    keys = made(Clock(), "h1", "h2", "h3")
    own = keys.hello("h2")[0][1][0]
    [to_two] = keys.wish("h1", ["h2", "h1", "nobody", "h5"])
    assert (to_two.server, to_two.epoch, to_two.id) == ("h2", own.epoch, int(SERVERS["h1"]))
    assert to_two.key == transmitter_key(own.key, to_two.id, to_two.transmitter)  # which h2 can make, and h3 cannot
    [once_more], [by_three], [back] = keys.wish("h1", ["h2"]), keys.wish("h3", ["h2"]), keys.wish("h2", ["h1"])
    assert len({one.key for one in (own, to_two, once_more, by_three, back)}) == 5  # a counter never goes back


def test_peer_keys__follow_when_the_other_comes_or_comes_again() -> None:
    keys = made(Clock(), "h1")
    assert keys.wish("h1", ["h2"]) == []
    for _ in range(2):
        told = keys.hello("h2")
        [key] = of(told, "h1", KeyFor.PEER)
        assert key.server == "h2" and key.epoch == of(told, "h2", KeyFor.SELF)[0].epoch
    [mine] = of(keys.hello("h1"), "h1", KeyFor.PEER)  # its connection was cut: it has missed nothing
    assert mine.server == "h2"


def test_signers__are_told_with_the_keys_for_their_servers() -> None:
    keys = made(Clock(), "h1", "h3")
    told = keys.hello("h2", b"2" * 32)
    assert of(told, "h2", KeyFor.SELF)[0].signer is None
    assert [one.signer for one in keys.wish("h1", ["h2", "h3"])] == [b"2" * 32, None]
    [again] = of(keys.hello("h2", b"3" * 32), "h1", KeyFor.PEER)  # another start of its agent, another key
    assert again.signer == b"3" * 32
    for wrong in (None, b"short"):
        [without] = of(keys.hello("h2", wrong), "h1", KeyFor.PEER)
        assert without.signer is None


def test_transmitter_key__is_what_agents_make() -> None:
    """As in test_seal.c, transmitters__are_given_keys_of_their_own."""
    assert transmitter_key(bytes(range(32)), 0x0A000001, 7).hex() == TRANSMITTER_7


def test_group_keys__go_to_those_who_are_told_of_the_group_alone() -> None:
    keys = made(Clock(), "h1", "h2", "h3")
    told = keys.views("h1", PEERS, [view(1, "h1")], [])
    [first] = of(told, "h1", KeyFor.GROUP)
    assert (first.id, first.in_ms) == (5, 0) and {name for name, _ in told} == {"h1"}
    [second] = of(keys.views("h2", PEERS, [view(2, "h2", base=1)], []), "h2", KeyFor.GROUP)
    assert second.key == first.key and second.transmitter != first.transmitter
    assert all(one.transmitter % NUMBERS == 0 for one in (first, second))
    assert of(keys.views("h1", [], [view(2, "h2", base=1)], []), "h1", KeyFor.GROUP) == []  # it has it


def test_group_keys__change_for_all_but_who_left() -> None:
    clock = Clock()
    keys = made(clock, "h1", "h2", "h3")
    for server in ("h1", "h2", "h3"):
        before = of(keys.views(server, PEERS, [view(1, "h1 h2", "h3")], []), server, KeyFor.GROUP)
    told = keys.views("h1", [], [view(2, "", gone="h3", base=1)], [])
    assert of(told, "h3", KeyFor.GROUP) == []
    for server in ("h1", "h2"):
        old, new = of(told, server, KeyFor.GROUP)
        assert old.key == before[0].key != new.key and new.in_ms == round(HEAD_START_S * 1000)
    assert keys.views("h2", [], [view(2, "", gone="h3", base=1)], []) == []  # they have it already
    clock.s += HEAD_START_S
    [full] = of(keys.hello("h1"), "h1", KeyFor.GROUP)  # restarted
    assert full.key == new.key
    told = keys.views("h1", PEERS, [view(3, "h1")], [])  # told in full: h2 is missing in it
    assert len(of(told, "h1", KeyFor.GROUP)) == 2 and of(told, "h2", KeyFor.GROUP) == []


def test_region_keys__go_to_nodes_and_publishers_and_change_when_one_leaves() -> None:
    keys = made(Clock(), "h1", "h2", "h3")
    region = GroupRegion(9, 1, IPv4Address("239.1.1.2"), 7070, "qsm", "", (IDS["h1"], IDS["h2"]))
    facts = GroupFacts("news", IPv4Address(0), 7070, OPTIONS, regions=(9,))
    group = GroupView(5, 1, None, facts, (IDS["h1"], IDS["h2"]), (IDS["h3"],))
    got = {}
    for server in ("h1", "h2", "h3"):
        [got[server]] = of(keys.views(server, PEERS, [group], [region]), server, KeyFor.REGION)
    assert len({one.key for one in got.values()}) == 1
    told = keys.views("h1", [], [GroupView(5, 2, 1, None, (), (), (IDS["h3"],))], [])  # the publisher ends
    assert of(told, "h3", KeyFor.REGION) == [] and len(of(told, "h2", KeyFor.REGION)) == 2


def test_due__old_keys_and_those_without_numbers_are_others() -> None:
    clock = Clock()
    keys = made(clock, "h1", "h2")
    keys.views("h1", PEERS, [view(1, "h1")], [])
    assert keys.due() == []
    clock.s += REKEY_S
    told = keys.due()
    assert len(of(told, "h1", KeyFor.GROUP)) == 2 and len(of(told, "h1", KeyFor.SELF)) == 1
    assert [one.server for one in of(told, "h1", KeyFor.PEER)] == ["h2"]
    clock.s += HEAD_START_S
    assert keys.due() == []
    keys._scopes[KeyFor.GROUP, 5].epoch.next_number = NUMBERS_END - NUMBERS
    assert of(keys.due(), "h1", KeyFor.GROUP)


def test_due__makes_a_bounded_number_at_a_time() -> None:
    """All of a large group know each other, and came within a moment: so do their keys' ends."""
    clock, count = Clock(), 100
    servers = {f"h{n}": IPv4Address(0x0A000000 + n) for n in range(count)}
    keys = Keys(clock, servers)
    for server in servers:
        keys.hello(server)
    for server in servers:
        assert len(keys.wish(server, list(servers))) == count - 1
    clock.s += REKEY_S
    turns, seen = 0, dict[tuple[str, str], int]()
    while told := keys.due():
        made_now = sum(len(ones) for _, ones in told)
        assert made_now < DUE_MAX + count
        for server, ones in told:
            for one in ones:
                seen[server, one.server or "itself"] = seen.get((server, one.server or "itself"), 0) + 1
        turns += 1
    assert turns == 3 and len(seen) == count * count and set(seen.values()) == {1}


def test_epochs__never_are_0_and_keys_are_in_no_text() -> None:
    epoch = first_epoch(0.0)
    epoch.number = (1 << 16) - 1
    assert next_epoch(epoch, 1.0).number == 1
    assert "key=" not in repr(epoch)  # as texts of errors show it


def guarded(run: Path, ours: Authority) -> SecurityOptions:
    files = (*ours.sign("manager"), run / "ours-ours.pem")
    return SecurityOptions(thrift_tls=files, openflow_tls=files)


async def keys_of(agent: FakeAgent, count: int = 1) -> list[Any]:
    return list((await agent.expect("keys", lambda said: len(said.keys) == count)).keys)


def test_required__needs_tls(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=r"(?s)security: required.*--thrift-tls"):
        asyncio.run(_start(tmp_path))


async def _start(run: Path) -> None:
    async with running(run, topology=SECURE):
        pass


async def test_agents__that_seal_get_keys_and_others_a_text(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    async with running(tmp_path, topology=SECURE, security=guarded(tmp_path, ours)) as manager:
        tls = {name: client(ours, ours.sign(name, dns=())) for name in ("h1", "h2", "h3")}
        first, second = [await manager.agent(name, tls=tls[name], seals=True) for name in ("h1", "h2")]
        [one], [two] = await keys_of(first), await keys_of(second)
        assert one.key != two.key and (one.purpose, two.purpose) == (KeyFor.SELF, KeyFor.SELF)
        first.say("peer_keys", servers=["h2", "h7"])
        [to_two] = (await first.expect("keys", lambda said: said.keys[0].purpose == KeyFor.PEER)).keys
        assert to_two.server == "h2" and to_two.key == transmitter_key(two.key, to_two.id, to_two.transmitter)
        plain = await manager.agent(tls=tls["h3"])
        plain.hello("h3")
        assert "--security required" in (await plain.expect("goodbye")).reason


async def test_agents__that_seal_are_told_where_nobody_else_does(tmp_path: Path) -> None:
    async with running(tmp_path) as manager:
        agent = await manager.agent()
        agent.hello("h1", seals=True)
        reason = (await agent.expect("goodbye")).reason
        assert "security: required" in reason and "h1" in reason


async def test_trust__that_changed_ends_connections_and_the_key(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    async with running(tmp_path, topology=SECURE, security=guarded(tmp_path, ours)) as manager:
        tls = client(ours, ours.sign("h1", dns=()))
        agent = await manager.agent("h1", tls=tls, seals=True)
        [old] = await keys_of(agent)
        authority = tmp_path / "ours-ours.pem"
        authority.write_bytes(authority.read_bytes() + b"\n")
        await agent.until_closed()
        await until(lambda: "h1" not in manager.app.thrift.agents, "the agent to be gone")
        again = await manager.agent("h1", 2, tls=tls, seals=True)
        [new] = await keys_of(again)
        assert old.key != new.key
