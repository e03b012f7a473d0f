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
        yield await Client.with_document(http)


OPTIONS = {
    "ricochet": [
        idl.EngineOption("r", 1000, 32_000, 8000, False, "clears\x1b[2J the terminal"),
        idl.EngineOption("c", 0, 64_000, 5000, True, "repairs for each r packets"),
        idl.EngineOption("stagger", 1000, 64_000, 1000, False, "long" * 100),
        idl.EngineOption("flush", 0, 1_000_000, 0, True, "ms", True),
    ]
}


class Agent:
    """An agent's link, in a few lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def hello(cls, port: int, server: str, boot: int = 1, protocols: list[str] | None = None) -> Agent:
        agent = cls(*await asyncio.open_connection("127.0.0.1", port))
        engines = None if protocols is None else [idl.Engine(one, OPTIONS.get(one, [])) for one in protocols]
        info = idl.AgentInfo(1, server, boot, 7071, [], group_engines=engines)
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
    assert view.facts.options == idl.GroupOptions("plain", "none", "") and view.facts.data_port == 7070
    h3.call("use_group", group=idl.GroupUse(group="news"))
    _, told = await h3.next()
    assert told.views[0].facts.address == view.facts.address
    assert told.views[0].members == view.members and [one.server for one in told.peers] == ["h1", "h3"]
    _, told = await h1.next()
    assert told.views[0].base_version == 1 and len(told.views[0].senders) == 1 and told.views[0].facts is None
    (peer,) = told.peers
    assert (peer.server, peer.address, peer.port, peer.boot_id) == ("h3", "10.0.2.1", 7071, 77)
    h3.call("join_group", group=idl.GroupUse("fast", idl.GroupOptions("ricochet", "none", "r=8")))
    method, refused = await h3.next()
    assert (method, refused.group) == ("group_refused", "fast")
    assert refused.reason == "fast runs ricochet; the agent of h3 has plain"
    for agent in (h1, h3):
        agent.close()


async def test_rest__makes_shows_and_deletes(manager: Running, rest: Client) -> None:
    early = await rest.call("POST", "/v1/groups", 503, json={"name": "ticks"})
    assert early["detail"].startswith("no agent has told yet which protocols of groups it has")
    h1 = await Agent.hello(manager.app.thrift_port, "h1", protocols=["plain", "ricochet"])
    wanted = {"name": "ticks", "protocol": "ricochet", "options": "stagger=6"}
    made = await rest.call("POST", "/v1/groups", 201, json=wanted)
    assert (made["options"], made["kept"], made["address"]) == ("r=8,c=5,stagger=6", True, None)
    await rest.call("POST", "/v1/groups", 201, json={**wanted, "options": "c=5.0,stagger=06"})
    other = await rest.call("POST", "/v1/groups", 409, json={"name": "ticks"})
    assert "there with other options: ricochet (r=8, c=5, stagger=6)" in other["detail"]
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


@pytest.mark.parametrize(("body", "text"), [
    ({"name": "no spaces"}, "name"),
    ({"name": "a", "protocol": "telepathy"}, "there is no group protocol 'telepathy'; agents have plain, ricochet"),
    ({"name": "a", "options": "r=3"}, "plain has no option 'r'; it has none"),
    ({"name": "a", "protocol": "ricochet", "options": "r=0"}, "r of ricochet is a whole number from 1 to 32"),
    ({"name": "a", "protocol": "ricochet", "options": "c=1,c=1"}, "c is named twice"),
    ({"name": "a", "protocol": "ricochet", "options": "é" * 128}, "options are 255 bytes at most"),
    ({"name": "a", "order": "backwards"}, "order"),
    ({"name": "a", "order": "fifo", "guarantee": "reliable"}, "reliable goes with order sender, agreed or total, not"),
    ({"name": "a", "order": "total", "guarantee": "best-effort"}, "best-effort goes with order none or fifo"),
    ({"name": "a", "slow": "drop"}, "slow=drop goes with order sender, agreed or total"),
    ({"name": "a", "order": "sender", "keep": "1M"}, "keep goes with order total"),
    ({"name": "a", "order": "total", "keep": "0M"}, "keep"),
    ({"name": "a", "order": "total", "keep_on": "disk"}, "keep_on goes with keep"),
])  # fmt: skip
async def test_rest__refuses_with_a_reason(manager: Running, rest: Client, body: dict[str, Any], text: str) -> None:
    h1 = await Agent.hello(manager.app.thrift_port, "h1", protocols=["plain", "ricochet"])
    assert text in (await rest.call("POST", "/v1/groups", 422, json=body))["detail"]
    h1.close()


async def test_rest__lists_the_protocols_that_agents_have_and_their_options(manager: Running, rest: Client) -> None:
    assert (await rest.call("GET", "/v1/engines", 200))["groups"] == []
    h1 = await Agent.hello(manager.app.thrift_port, "h1", protocols=["plain", "ricochet"])
    plain, ricochet = (await rest.call("GET", "/v1/engines", 200))["groups"]
    assert plain == {"name": "plain", "meaning": "", "options": []}
    c = {"name": "c", "least": 0, "most": 64, "usual": 5, "whole": False, "meaning": "repairs for each r packets"}
    assert ricochet["options"][1] == c
    assert [one["meaning"] for one in ricochet["options"]] == ["", c["meaning"], "long" * 25, "ms"]
    h1.close()


async def test_rest__unknown_places(rest: Client) -> None:
    await rest.call("GET", "/v1/groups?server=h99", 404)
    await rest.call("GET", "/v1/groups?after=nobody", 422)
    await rest.call("DELETE", "/v1/groups/nobody", 404)


async def test_events_and_metrics__tell_of_groups(manager: Running, rest: Client) -> None:
    h1 = await Agent.hello(manager.app.thrift_port, "h1", protocols=["plain"])
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
    h1.close()


async def test_command__makes_shows_lists_and_deletes(manager: Running) -> None:
    async def run(*fields: str) -> str:
        place = ("--manager", manager.url)
        done = await asyncio.to_thread(CliRunner().invoke, command, [*fields[:1], *place, *fields[1:]])
        assert done.exit_code == 0, done.output
        return done.output

    h1 = await Agent.hello(manager.app.thrift_port, "h1", protocols=["plain", "ricochet"])
    assert "no groups" in await run("list")
    listed = await run("protocols")
    assert "ricochet" in listed and "1 to 32, whole" in listed and "repairs for each r packets" in listed
    fields = ("--protocol", "ricochet", "--option", "r=4", "--option", "c=2.5", "--order", "fifo")
    assert "runs ricochet (r=4,c=2.5,stagger=1), fifo" in await run("create", "ticks", *fields)
    made = await run("create", "log", "--order", "total", "--slow", "drop")
    assert "order total, virtual-synchrony, slow: drop" in made
    assert '"guarantee": "virtual-synchrony"' in await run("show", "log", "--json")
    assert '"protocol": "ricochet"' in await run("show", "ticks", "--json")
    assert "ticks is deleted" in await run("delete", "ticks")
    h1.close()
