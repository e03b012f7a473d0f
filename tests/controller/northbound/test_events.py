"""GET /v1/events: what changes is told once, in order; who does not read is cut off."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from rostrum.controller.northbound.rest import events
from rostrum.controller.northbound.thrift.codec import idl

from tests.controller.fakes import Running, running, until

BODY = {"sender": "h1", "receivers": ["h3"]}


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as made:
        yield made


@contextlib.asynccontextmanager
async def reading(manager: Running) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
    """Events as (name, data), from behind the greeting on."""

    async def parsed(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, Any]]:
        name = ""
        async for line in lines:
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))

    async with (
        asyncio.timeout(20),
        httpx.AsyncClient(base_url=manager.url, trust_env=False) as http,
        http.stream("GET", "/v1/events") as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        found = parsed(answer.aiter_lines())
        assert await anext(found) == ("hello", {"boot_id": 12345})
        yield found


async def test_events__of_paths_and_transfers(manager: Running) -> None:
    async with reading(manager) as found:
        agent = await manager.agent("h1")
        agent.request("r1", "h1", "h3", "h5")
        path = (await agent.response("r1", 1)).response_id
        told: list[tuple[str, str]] = []

        async def read_until(last: tuple[str, str]) -> Any:
            while True:
                name, data = await anext(found)
                if name == "path":
                    assert data["id"] == path and data["request_id"] == "r1" and data["kind"] == "circuit"
                told.append((name, data["state"] if name == "path" else data["phase"]))
                if told[-1] == last:
                    return data

        await read_until(("path", "active"))
        agent.say("report", report=idl.TransferReport("r1", path, "sending", "", 10, 1, 0, 0, []))
        agent.say("report", report=idl.TransferReport("r1", path, "sending", "", 20, 2, 0, 0, []))
        agent.say("report", report=idl.TransferReport("r1", path, "done", "", 1000, 10, 3, 2, []))
        done = await read_until(("transfer", "done"))
        assert done["path"] == path and done["bytes"] == 1000
        agent.say("release", request_id="r1", response_id=path)
        await read_until(("path", "released"))
        await agent.close()
    assert told == [
        ("path", "configuring"),
        ("transfer", "waiting for a path"),
        ("path", "active"),
        ("transfer", "sending"),
        ("transfer", "done"),
        ("path", "released"),
    ]
    await until(lambda: not manager.app.rest.events.readers, "the reader that left is forgotten")


async def test_events__who_is_too_far_behind_hears_why(manager: Running) -> None:
    hub = manager.app.rest.events
    with hub.reader() as reader:
        for _ in range(events.QUEUE_MAX + 50):
            reader.put(b"x")
        assert reader.queue.qsize() == events.QUEUE_MAX + 1
        texts = [reader.queue.get_nowait() for _ in range(reader.queue.qsize())]
        assert b"event: end" in texts[-1] and b"events behind" in texts[-1]
        assert texts[-2] == b"x" and reader.ended


async def test_events__who_takes_nothing_is_cut_off(manager: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SEND_BOUND_S", 0.05)
    hub = manager.app.rest.events
    _, writer = await asyncio.open_connection("127.0.0.1", manager.app.rest_port, limit=1)
    writer.write(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
    await until(lambda: hub.readers, "the reader is there")
    large = events.encode("path", {"reason": "x" * (1 << 20)})

    def flooded() -> bool:
        for one in hub.readers:
            one.put(large)
        return not hub.readers

    await until(flooded, "it was cut off")
    writer.close()
    async with httpx.AsyncClient(base_url=manager.url, trust_env=False) as http:
        assert (await http.get("/v1/health")).status_code == 200


async def test_events__only_so_many_readers(manager: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "READERS_MAX", 1)
    async with reading(manager), httpx.AsyncClient(base_url=manager.url, trust_env=False) as http:
        answer = await http.get("/v1/events")
        assert answer.status_code == 503 and "1 readers" in answer.json()["detail"]


async def test_events__the_managers_end_is_told(tmp_path: Path) -> None:
    async with running(tmp_path) as manager:
        async with reading(manager) as found:
            closing = asyncio.create_task(manager.app.close())
            name, data = await anext(found)
            assert name == "end" and "the manager stops" in data["detail"]
            assert await anext(found, None) is None
        await closing
