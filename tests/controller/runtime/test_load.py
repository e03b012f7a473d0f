"""Many requests at once, agents that vanish, and strangers: every request ends, and nothing grows without bound."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rostrum.controller.core.values import S, Settings
from rostrum.controller.northbound.thrift import service

from tests.controller.fakes import FakeAgent, Running, running, until

WAITING = 1_000
ACCEPTED, DENIED = 1, 2


class Busy:
    """An agent that asks a lot, and gives back what it gets; remembers how each request ended."""

    def __init__(self, agent: FakeAgent, server: str) -> None:
        self.agent, self.server = agent, server
        self.ended: dict[str, tuple[int, str]] = {}
        self._read = 0

    def ask(self, count: int, rng: random.Random, servers: list[str]) -> None:
        others = [name for name in servers if name != self.server]
        for number in range(count):
            receivers = rng.sample(others, rng.randint(1, len(others)))
            self.agent.request(f"{self.server}-{number}", self.server, *receivers, size=rng.randint(1, 10**9))

    def hear(self) -> int:
        """Gives back what was accepted meanwhile; how many requests have ended."""
        for name, args in self.agent.heard[self._read :]:
            response = args.response if name == "response" else None
            if response is not None and response.decision in (ACCEPTED, DENIED):
                assert response.request_id not in self.ended, "answered twice"
                self.ended[response.request_id] = response.decision, response.reason
                if response.decision == ACCEPTED:
                    self.agent.say("release", request_id=response.request_id, response_id=response.response_id)
        self._read = len(self.agent.heard)
        self.agent.say("keepalive")
        return len(self.ended)


def seeded() -> random.Random:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)


async def agents(manager: Running) -> list[Busy]:
    return [Busy(await manager.agent(name), name) for name in sorted(manager.topology.servers)]


def assert_nothing_is_left(manager: Running, history: int) -> None:
    core = manager.app.runtime.manager.core
    assert not core.queue and not core.resources.in_use() and not manager.app.thrift._arrived
    assert len(core.paths) <= history and len(core.by_request) <= history and len(core.transfers) <= history


async def test_a_thousand_waiting__all_end_and_nothing_is_left(tmp_path: Path) -> None:
    rng, settings = seeded(), Settings(boot_id=1, wait_ns=200 * S, lease_ns=30 * S, paths_per_server=4, history_max=500)
    async with running(tmp_path, settings) as manager:
        busy = await agents(manager)
        for one in busy:
            one.ask(WAITING // len(busy), rng, sorted(manager.topology.servers))
        await until(lambda: len(manager.app.runtime.manager.core.queue) > WAITING // 2, "most of them wait")
        await until(lambda: sum(one.hear() for one in busy) == WAITING, "all ended", 100)
        outcomes = Counter(decision for one in busy for decision, _ in one.ended.values())
        assert outcomes == {ACCEPTED: WAITING}
        await until(lambda: not manager.app.runtime.manager.core.resources.in_use(), "all given back")
        assert_nothing_is_left(manager, 500)


async def test_waits_that_nobody_ends__are_denied_with_the_reason(tmp_path: Path) -> None:
    """Nobody gives anything back: those that wait are told why they were not served."""
    settings = Settings(boot_id=1, wait_ns=S, circuit_wait_ns=S // 4, lease_ns=30 * S, paths_per_server=2)
    async with running(tmp_path, settings) as manager:
        one = Busy(await manager.agent("h1"), "h1")
        one.ask(200, seeded(), sorted(manager.topology.servers))
        await until(lambda: not manager.app.runtime.manager.core.queue and len(one.agent.heard) >= 200, "all decided")
        await until(lambda: one.hear() == 200, "all answered")
        reasons = [reason for decision, reason in one.ended.values() if decision == DENIED]
        assert len(reasons) >= 190 and all(
            "not served within" in reason and "waiting for" in reason for reason in reasons
        )


async def test_agents_that_vanish__hold_nobody_up(tmp_path: Path) -> None:
    """Half of the agents ask and say nothing more, their connections open: what they had is for others."""
    rng, settings = seeded(), Settings(boot_id=1, wait_ns=60 * S, lease_ns=S // 2, paths_per_server=2)
    async with running(tmp_path, settings) as manager:
        busy = await agents(manager)
        for one in busy:
            one.ask(20, rng, sorted(manager.topology.servers))
        living = busy[::2]
        await until(lambda: sum(one.hear() for one in living) == 20 * len(living), "the living served", 30)
        assert all(decision == ACCEPTED for one in living for decision, _ in one.ended.values())
        core = manager.app.runtime.manager.core
        here = {one for one in core.agents if not core.agents[one].lapsed}
        await until(lambda: not any(core.paths[one].request.origin in here for one in core.queue), "none of them waits")


async def test_strangers__garbage_and_half_open_connections_disturb_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "HELLO_BOUND_S", 0.3)
    rng = seeded()
    async with running(tmp_path) as manager:
        port, thrift = manager.app.thrift_port, manager.app.thrift
        agent = await manager.agent("h1")
        half_open: list[Any] = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        with caplog.at_level(logging.WARNING, "rostrum.thrift"):
            for _ in range(200):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(rng.randbytes(rng.randint(1, 2000)))
                writer.close()
            agent.request("r1", "h1", "h3")
            await agent.response("r1", ACCEPTED)
            await until(lambda: thrift.connections == {thrift.agents["h1"]}, "strangers gone")
        for _, writer in half_open:
            writer.close()
        goodbyes = [one for one in caplog.records if "goodbye" in one.getMessage()]
        lines, _ = service.STRANGERS_LINES
        assert 0 < len(goodbyes) <= 3 * lines
        assert thrift.refused > len(goodbyes)
