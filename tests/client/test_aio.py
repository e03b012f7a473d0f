"""The client for asyncio, against the real application interface, and objects as memory."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

import numpy
import pytest
from rostrum.client import Agent, Busy, NotFound, RostrumError, TimedOut, Unavailable, aio

from .conftest import APP, Server

Start = Callable[..., Server]


async def test_objects_come_and_go(server: Server) -> None:
    threads = threading.active_count()
    async with aio.Agent(server.socket, APP) as agent:
        assert agent.server == "h1" and threading.active_count() <= threads + 1  # of to_thread
        told: list[tuple[int, int]] = []
        sending = await agent.send("x", ["copy-7", "h3"], source=b"some bytes", on_progress=lambda *of: told.append(of))
        phases = [event.subject async for event in sending.events() if event.kind == "phase"]
        result = await sending
        assert result.ok and sending.done and phases[-1] == "done" and all(size == 10 for _, size in told)
        with await agent.read(7, wait=20) as copy:
            assert bytes(copy) == b"some bytes" and copy.name == "7"
        await agent.add("there", numpy.arange(5, dtype="u1"))
        with pytest.raises(NotFound, match="nothing"):
            await agent.read("nothing", wait=None)
        assert {item.size for item in (await agent.status()).objects} == {10, 5}
        for name in ("x", 7, "there"):
            await agent.delete(name)
        assert (await agent.status()).store_used == 0


async def test_a_send_that_goes_on_is_cancelled_by_its_handle_not_by_a_task(server: Server) -> None:
    async with aio.Agent(server.socket, APP) as agent:
        sending = await agent.send("big", "slow", source=b"x")
        with pytest.raises(TimedOut, match=r"send of big is not over .* it goes on: wait again, or cancel it"):
            await sending.wait(0.01)
        task = asyncio.create_task(sending.wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(Busy, match="big"):
            await agent.delete("big")
        await sending.cancel()
        assert not (await sending).ok
        with pytest.raises(Unavailable):
            await (await agent.send("other", ["refuse"], source=bytes(1 << 20)))
        await agent.delete("big")
        assert (await agent.status()).store_used == 0


async def test_many_wait_at_once_and_hear_of_the_agents_end(server: Server) -> None:
    async with aio.Agent(server.socket, APP) as agent:
        waiting = [asyncio.create_task(agent.read(f"object-{number}", wait=60)) for number in range(50)]
        await agent.status()  # theirs came before
        server.kill()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(one) for one in ended} == {Unavailable}, ended[:3]
        with pytest.raises(Unavailable, match="went away"):
            await agent.status()
    with pytest.raises(Unavailable, match="no agent answers"):
        await aio.Agent(server.socket, APP).connect()
    with pytest.raises(RostrumError, match="not connected"):
        await aio.Agent(server.socket, APP).status()


async def test_streams_and_news(server: Server, seed: int) -> None:
    data = bytes((seed + i * 7) % 251 for i in range(1_000_003))
    async with aio.Agent(server.socket, APP) as agent:
        reader = await agent.stream_receive("log", wait=10)

        async def collect() -> bytes:
            async with reader:
                return b"".join([piece async for piece in reader])

        collecting = asyncio.create_task(collect())
        async with await agent.stream_send("log", ["h3"]) as out:
            for at in range(0, len(data), 77_777):
                await out.write(data[at : at + 77_777])
            assert (await out.finish(20)).ok
        assert await collecting == data
        async with await agent.subscribe("y") as news:
            with pytest.raises(TimedOut, match="no news of object y"):
                await news.next(0.01)
            sending = await agent.send("y", ["h3"], source=b"y")
            assert (await news.next(20)).kind == "phase"
            assert (await sending).ok


def test_memory_both_ways(server: Server) -> None:
    with server.agent() as agent:
        with agent.create(8 * 1000) as memory:
            numpy.frombuffer(memory, "f8")[:] = numpy.arange(1000)
            agent.send("values", "copy-3,h3", source=memory).wait(20).raise_for_failure()
        with agent.read(3) as data:
            values = numpy.frombuffer(data, "f8")
            assert len(data) == 8000 and not values.flags.writeable and not values.flags.owndata
        agent.delete(3)
        assert values[999] == 999  # the mapping lives as long as the array
        agent.add("empty", b"")
        with agent.read("empty") as nothing, agent.create(0) as empty:
            assert bytes(nothing) == bytes(memoryview(empty)) == b""


@pytest.mark.parametrize(
    "source",
    [numpy.arange(24, dtype="f4").reshape(2, 3, 4), numpy.zeros((0, 3)), memoryview(b"abc"), numpy.float64(2.5)],
    ids=["array", "empty", "view", "scalar"],
)
def test_whatever_lends_its_memory_can_be_sent(agent: Agent, source: object) -> None:
    agent.add("it", source)
    with agent.read("it") as data:
        assert bytes(data) == memoryview(source).tobytes()


def test_what_cannot_be_sent_is_refused_with_a_reason(agent: Agent) -> None:
    with pytest.raises(RostrumError, match="ascontiguousarray"):
        agent.add("it", numpy.zeros((4, 4)).T)
    with pytest.raises(RostrumError, match="a dict is no content"):
        agent.add("it", {})  # type: ignore[arg-type]
    with pytest.raises(RostrumError, match="servers are named by text"):
        agent.send("it", ["h3", 4], source=b"")  # type: ignore[list-item]
    assert agent.status().store_used == 0


def test_names_stand_in_errors_and_a_list_may_be_text(agent: Agent) -> None:
    sending = agent.send("weights", "slow", source=b"x")
    with pytest.raises(TimedOut, match=r"send of weights is not over after 0\.01 s; it goes on"):
        sending.wait(0.01)
    with pytest.raises(Busy, match=r"^(?!.*\d{19}).*weights"):
        agent.delete("weights")
    sending.cancel()
    sending.wait(20)
    assert [row.name for row in agent.send("weights", "h3, h4").wait(20).receivers] == ["h3", "h4"]
    told: list[tuple[int, int]] = []
    agent.send("weights", "copy-9").wait(20)
    agent.read(9, wait=20, on_progress=lambda *of: told.append(of)).close()
    assert os.listdir("/proc/self/fd")
