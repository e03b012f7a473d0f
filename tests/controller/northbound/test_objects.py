"""Objects through the doors of the manager: Thrift as agents do, REST, the command line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from rostrum.controller.commands.objects import objects as command
from rostrum.controller.northbound.thrift.codec import idl

from tests.controller.fakes import Running, running, until
from tests.controller.northbound.test_rest import Client

APP = b"0123456789abcdef"


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as made:
        yield made


@pytest.fixture
async def rest(manager: Running) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(base_url=manager.url, trust_env=False, timeout=60) as http:
        yield await Client.with_document(http)


def held(number: int, size: int = 64 << 20, **more: Any) -> Any:
    return idl.HeldObject(APP, number, size, "xxh3-128-tree:00ff", **more)


async def test_who_holds_what_is_told_listed_and_forgotten_with_its_agent(manager: Running, rest: Client) -> None:
    known = manager.app.thrift.objects.objects.known
    one = await manager.agent("h1", piece_port=7072, serves=True)
    two = await manager.agent("h3", piece_port=7072)
    one.say("holds", objects=[held(number) for number in range(250)], reset=True)
    one.say("holds", objects=[held(7, name="model.bin"), held(-1)], reset=False)
    two.say("holds", objects=[held(7)], reset=True)
    await until(lambda: len(known) == 251 and len(known[next(iter(known))].holders) == 1, "all of them")
    await until(lambda: sum(len(one.holders) for one in known.values()) == 252, "the other one's")
    page = await rest.call("GET", "/v1/objects?limit=100", 200)
    rows, count = page["objects"], page["count"]
    while page["next"]:
        page = await rest.call("GET", f"/v1/objects?limit=100&after={page['next']}", 200)
        rows += page["objects"]
    assert count == 251 == len({row["id"] for row in rows})
    assert {row["data_id"] for row in rows} >= {"0", "249", str(2**64 - 1)}
    found = await rest.call("GET", "/v1/objects/model.bin", 200)
    assert (found["holders"], found["size"], found["name"]) == (["h1", "h3"], 64 << 20, "model.bin")
    assert await rest.call("GET", f"/v1/objects/{found['id']}", 200) == found
    assert APP.hex() not in str(rows) and found["app"] in found["id"]
    (row,) = (await rest.call("GET", "/v1/objects?name=mod&holder=h3", 200))["objects"]
    assert row["name"] == "model.bin"
    await rest.call("GET", "/v1/objects/nothing", 404)
    await rest.call("GET", "/v1/objects?after=nothing-1", 422)
    two.say("holds", objects=[held(7, gone=True)], reset=False)
    await until(lambda: len(known) == 251 and all(list(one.holders) == ["h1"] for one in known.values()), "one holder")
    result = await asyncio.to_thread(CliRunner().invoke, command, ["model.bin", "--manager", manager.url])
    assert "holders   h1" in result.output, result.output
    result = await asyncio.to_thread(CliRunner().invoke, command, ["--name", "model", "--manager", manager.url])
    assert "model.bin" in result.output and "67108864" in result.output, result.output
    await one.close()
    await until(lambda: not known, "nothing is held")


async def test_four_that_fetch_together_are_sent_it_by_one_holder(manager: Running) -> None:
    holder = await manager.agent("h1", piece_port=7072, serves=True)
    holder.say("holds", objects=[held(7)], reset=True)
    servers = ("h2", "h4", "h6", "h8")
    fetchers = [await manager.agent(name, piece_port=7072, serves=True) for name in servers]
    await until(lambda: manager.app.thrift.objects.objects.known, "the object")
    for one in fetchers:
        one.say("fetch", request=idl.FetchRequest(APP, 7, True))
    answers = [(await one.expect("holders")).answer for one in fetchers]
    assert all(len(one.holders) == 1 and one.holders[0].piece_port == 7072 for one in answers)
    served = [args.order.receivers for name, args in holder.heard if name == "serve"]
    assert sum(len(one) for one in served) >= 2 and {name for one in served for name in one} <= set(servers)
    assert sum(one.sent_within_ms > 0 for one in answers) == sum(len(one) for one in served)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("holds", {"objects": [idl.HeldObject(b"short", 7, 1, "d")], "reset": True}),
        ("holds", {"objects": [idl.HeldObject(APP, 7, -1, "d")], "reset": True}),
        ("holds", {"objects": [held(number) for number in range(257)], "reset": True}),
        ("holds", {"objects": [held(1)]}),
        ("fetch", {"request": idl.FetchRequest(b"", 7, True)}),
    ],
)
async def test_what_makes_no_sense_ends_that_agents_connection_alone(
    manager: Running, method: str, arguments: dict[str, Any]
) -> None:
    other = await manager.agent("h3", piece_port=7072)
    other.say("holds", objects=[held(7)], reset=True)
    bad = await manager.agent("h1", piece_port=7072)
    bad.say(method, **arguments)
    assert (await bad.expect("goodbye")).reason
    await bad.until_closed()
    await until(lambda: len(manager.app.thrift.objects.objects.known) == 1, "the other one's")
    assert not other.closed
