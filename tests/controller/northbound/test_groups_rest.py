"""Message groups through the doors of the manager: REST, events, metrics, the command line, and Thrift as agents do."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from rostrum.controller.commands.groups import groups as command
from rostrum.controller.northbound.thrift.codec import decode, encode, idl

from tests.controller.fakes import Running, running
from tests.controller.northbound.test_rest import Client


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as made:
        yield made


@pytest.fixture
async def rest(manager: Running) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(base_url=manager.url, trust_env=False, timeout=60) as http:
        yield Client(http, (await http.get("/openapi.json")).json())


class Agent:
    """An agent's link, in a few lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def hello(cls, port: int, server: str, boot: int = 1, protocols: list[str] | None = None) -> Agent:
        agent = cls(*await asyncio.open_connection("127.0.0.1", port))
        info = idl.AgentInfo(1, server, boot, 7071, [], group_protocols=protocols)
        agent.call("hello", info=info)
        assert (await agent.next())[0] == "welcome"
        return agent

    def call(self, method: str, **arguments: Any) -> None:
        self.writer.write(encode("Manager", method, arguments))

    async def next(self) -> tuple[str, Any]:
        async with asyncio.timeout(5):
            (length,) = struct.unpack(">I", await self.reader.readexactly(4))
            return decode("Agent", await self.reader.readexactly(length))

    def close(self) -> None:
        self.writer.close()


async def test_agents__join_and_use_and_get_views(manager: Running) -> None:
    h1 = await Agent.hello(manager.app.thrift_port, "h1", protocols=["plain", "ricochet"])
    h3 = await Agent.hello(manager.app.thrift_port, "h3", 77, protocols=["plain"])
    h1.call("join_group", group=idl.GroupUse(group="news"))
    method, told = await h1.next()
    assert method == "group_view"
    (view,) = told.views
    assert view.base_version is None and view.version == 1 and len(view.members) == 1
    assert view.facts.options == idl.GroupOptions("plain", "none", 0, 0, 0) and view.facts.data_port == 7070
    h3.call("use_group", group=idl.GroupUse(group="news"))
    _, told = await h3.next()
    assert told.views[0].facts.address == view.facts.address
    assert told.views[0].members == view.members and [one.server for one in told.peers] == ["h1", "h3"]
    _, told = await h1.next()
    assert told.views[0].base_version == 1 and len(told.views[0].senders) == 1 and told.views[0].facts is None
    (peer,) = told.peers
    assert (peer.server, peer.address, peer.port, peer.boot_id) == ("h3", "10.0.2.1", 7071, 77)
    h3.call("join_group", group=idl.GroupUse("fast", idl.GroupOptions("ricochet", "none", 8, 5, 1)))
    method, refused = await h3.next()
    assert (method, refused.group) == ("group_refused", "fast")
    assert refused.reason == "fast runs ricochet; the agent of h3 has plain"
    for agent in (h1, h3):
        agent.close()


async def test_rest__makes_shows_and_deletes(manager: Running, rest: Client) -> None:
    made = await rest.call("POST", "/v1/groups", 201, json={"name": "ticks", "protocol": "ricochet", "stagger": 6})
    assert (made["r"], made["c"], made["stagger"], made["kept"], made["address"]) == (8, 5, 6, True, None)
    await rest.call("POST", "/v1/groups", 201, json={"name": "ticks", "protocol": "ricochet", "stagger": 6})
    other = await rest.call("POST", "/v1/groups", 409, json={"name": "ticks"})
    assert "there with other options: ricochet (r 8, c 5, stagger 6)" in other["detail"]
    h1 = await Agent.hello(manager.app.thrift_port, "h1", protocols=["plain", "ricochet"])
    h1.call("join_group", group=idl.GroupUse(group="ticks"))
    h1.call("join_group", group=idl.GroupUse(group="news"))
    await h1.next()
    shown = await rest.call("GET", "/v1/groups/ticks", 200)
    assert shown["members"] == ["h1"] and shown["senders"] == [] and shown["version"] == 1
    listed = await rest.call("GET", "/v1/groups?limit=1", 200)
    assert [one["name"] for one in listed["groups"]] == ["ticks"] and listed["next"] == "ticks"
    listed = await rest.call("GET", "/v1/groups?limit=1&after=ticks&server=h1", 200)
    assert [one["name"] for one in listed["groups"]] == ["news"] and listed["next"] is None
    assert not (await rest.call("GET", "/v1/groups?server=h2", 200))["groups"]
    kept = await rest.call("DELETE", "/v1/groups/ticks", 409)
    assert "force=true" in kept["detail"]
    await rest.call("DELETE", "/v1/groups/ticks?force=true", 200)
    method, refused = await h1.next()
    assert method == "group_refused" and refused.reason.startswith("ticks was deleted by ")
    await rest.call("GET", "/v1/groups/ticks", 404)
    h1.close()


@pytest.mark.parametrize(("body", "words"), [
    ({"name": "no spaces"}, "name"),
    ({"name": "a", "protocol": "telepathy"}, "there is no group protocol 'telepathy'; this manager has plain, "),
    ({"name": "a", "r": 3}, "r, c and stagger are of ricochet"),
    ({"name": "a", "protocol": "ricochet", "r": 0}, "(r, c) = (0, 5) is out of range"),
    ({"name": "a", "order": "total"}, "order"),
])  # fmt: skip
async def test_rest__refuses_with_words(rest: Client, body: dict[str, Any], words: str) -> None:
    assert words in (await rest.call("POST", "/v1/groups", 422, json=body))["detail"]


async def test_rest__unknown_places(rest: Client) -> None:
    await rest.call("GET", "/v1/groups?server=h99", 404)
    await rest.call("GET", "/v1/groups?after=nobody", 422)
    await rest.call("DELETE", "/v1/groups/nobody", 404)


async def test_events_and_metrics__tell_of_groups(manager: Running, rest: Client) -> None:
    async with rest.http.stream("GET", "/v1/events") as stream:
        lines = stream.aiter_lines()
        await rest.call("POST", "/v1/groups", 201, json={"name": "ticks"})
        async with asyncio.timeout(5):
            while await anext(lines) != "event: groups":
                pass
            assert '"name": "ticks", "there": true' in await anext(lines)
    page = (await rest.http.get("/metrics")).text
    assert "rostrum_groups 1.0" in page
    assert 'rostrum_group_rules{switch="tor1"} 0.0' in page


async def test_command__makes_shows_lists_and_deletes(manager: Running) -> None:
    async def run(*words: str) -> str:
        place = ("--manager", manager.url)
        done = await asyncio.to_thread(CliRunner().invoke, command, [*words[:1], *place, *words[1:]])
        assert done.exit_code == 0, done.output
        return done.output

    assert "no groups" in await run("list")
    assert "runs ricochet (4, 2), fifo" in await run(
        "create", "ticks", "--protocol", "ricochet", "--r", "4", "--c", "2", "--order", "fifo"
    )
    assert '"protocol": "ricochet"' in await run("show", "ticks", "--json")
    assert "ticks is deleted" in await run("delete", "ticks")
