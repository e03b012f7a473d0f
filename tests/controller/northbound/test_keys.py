"""Keys of sealed packets: whom they are given, which numbers, and when they change; and what `security: required` asks
of manager and agents.
"""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from rostrum.controller.access_options import SecurityOptions
from rostrum.controller.northbound.rest.access import AccessError
from rostrum.controller.northbound.thrift.keys import HEAD_START_S, NUMBERS, NUMBERS_END, REKEY_S, Keys

from tests.controller.certificates import Authority
from tests.controller.fakes import FakeAgent, running, until
from tests.controller.northbound.test_thrift_tls import client
from tests.controller.timeline import hybrid

SECURE = dataclasses.replace(hybrid(), secure=True)


class Clock:
    s = 100.0

    def __call__(self) -> float:
        return self.s


def test_numbers__are_each_agents_alone_and_those_of_another_boot_are_others() -> None:
    keys = Keys(Clock())
    told = [keys.for_agent() for _ in range(1000)]
    assert len({row[0].transmitter for row in told}) == 1000
    assert all(row[0].transmitter % NUMBERS == 0 and row[0].transmitter > 0 for row in told)
    assert len({(row[0].epoch, row[0].key) for row in told}) == 1 and len(told[0]) == 1
    assert told[0][0].in_ms == 0 and len(told[0][0].key) == 32 and 0 < told[0][0].epoch < 1 << 16


def test_rekey__all_have_the_next_key_before_anybody_seals_with_it() -> None:
    clock = Clock()
    keys = Keys(clock)
    [first] = keys.for_agent()
    keys.rekey()
    before, after = keys.for_agent()  # one that comes in between needs both
    assert (before.epoch, before.key, before.in_ms) == (first.epoch, first.key, 0)
    assert after.key != first.key and after.epoch != first.epoch
    assert after.in_ms == round(HEAD_START_S * 1000) and before.transmitter != first.transmitter
    clock.s += HEAD_START_S
    [now] = keys.for_agent()
    assert (now.epoch, now.key, now.in_ms) == (after.epoch, after.key, 0)


def test_rekey__is_due_by_age_and_when_numbers_end() -> None:
    clock = Clock()
    keys = Keys(clock)
    assert not keys.due()
    clock.s += REKEY_S
    assert keys.due()
    keys.rekey()
    assert not keys.due()
    keys._current.next_number = NUMBERS_END - NUMBERS
    assert keys.due()


def test_epochs__never_are_0() -> None:
    keys = Keys(Clock())
    keys._current.number = (1 << 16) - 1
    keys.rekey()
    assert keys.for_agent()[-1].epoch == 1
    assert "key=" not in repr(keys._current)  # as texts of errors show it


def guarded(run: Path, ours: Authority) -> SecurityOptions:
    return SecurityOptions(thrift_tls=(*ours.sign("manager"), run / "ours-ours.pem"))


async def keys_of(agent: FakeAgent, count: int = 1) -> list[Any]:
    return list((await agent.expect("keys", lambda said: len(said.keys) == count)).keys)


def test_required__needs_tls(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=r"security: required.*--thrift-tls"):
        asyncio.run(_start(tmp_path))


async def _start(run: Path) -> None:
    async with running(run, topology=SECURE):
        pass


async def test_agents__that_seal_get_keys_and_others_words(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    async with running(tmp_path, topology=SECURE, security=guarded(tmp_path, ours)) as manager:
        tls = {name: client(ours, ours.sign(name, dns=())) for name in ("h1", "h2", "h3")}
        first, second = [await manager.agent(name, tls=tls[name], seals=True) for name in ("h1", "h2")]
        [one], [two] = await keys_of(first), await keys_of(second)
        assert one.key == two.key and one.transmitter != two.transmitter
        plain = await manager.agent(tls=tls["h3"])
        plain.hello("h3")
        assert "--security required" in (await plain.expect("goodbye")).reason
        manager.app.thrift.rekey()
        before, after = await keys_of(first, 2)
        assert before.key == one.key != after.key and after.in_ms > 0


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
        before, after = await keys_of(again, 2)
        assert before.key == old.key != after.key
