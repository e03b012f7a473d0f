"""The console's door: pages for everybody, an overview as a stream that costs nothing while nobody looks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from rostrum.controller.core.values import Settings
from rostrum.controller.northbound.console import board, overview, pages
from rostrum.controller.northbound.rest.access import GUARDED, AccessOptions, new_token
from rostrum.controller.northbound.thrift.codec import idl
from rostrum.topologies import generate, loader
from rostrum.topologies.model import Topology

from tests.controller.fakes import Running, running, until
from tests.controller.northbound.test_access import bearer, guarded

STATIC = Path(pages.__file__).parent / "static"
HOSTILE = "<img src=x onerror=alert(1)>\r\n\r\nevent: end\r\ndata: {}\n\nevent: end\ndata: {}\n\n\u2028"


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "INTERVAL_S", 0.01)


@contextlib.asynccontextmanager
async def looking(manager: Running) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
    """Events as (name, data)."""

    async def parsed(chunks: AsyncIterator[str]) -> AsyncIterator[tuple[str, Any]]:
        text = ""
        async for chunk in chunks:
            text += chunk
            while "\n\n" in text:
                one, text = text.split("\n\n", 1)
                found = re.fullmatch(r"event: (.*)\ndata: (.*)", one)
                if found:
                    yield found[1], json.loads(found[2])

    async with (
        asyncio.timeout(30),
        httpx.AsyncClient(base_url=manager.url, trust_env=False, timeout=30) as http,
        http.stream("GET", "/v1/overview/events") as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield parsed(answer.aiter_text())


async def of(found: AsyncIterator[tuple[str, Any]], wanted: str, holds: Any = lambda _: True) -> Any:
    async for name, data in found:
        if name == wanted and holds(data):
            return data
    raise AssertionError(f"the stream ended before {wanted}")


async def test_overview__is_told_as_a_whole_and_then_what_changed(manager: Running) -> None:
    async with looking(manager) as found:
        first = [await anext(found) for _ in overview.PARTS]
        assert [name for name, _ in first] == list(overview.PARTS)
        racks = dict(first)["fabric"]["racks"]
        assert [one["switch"] for one in racks] == ["tor1", "tor2", "tor3", "tor4"] and racks[0]["states"] == "--"
        agent = await manager.agent("h1")
        await of(found, "fabric", lambda part: part["racks"][0]["states"] == "o-")
        agent.request("r1", "h1", "h3", "h5")
        path = (await agent.response("r1", 1)).response_id
        row = (await of(found, "transfers", lambda part: part["rows"]))["rows"][0]
        assert row["live"] and row["sender"] == "h1" and row["path"] == path and row["receivers"] == 2
        receivers = [
            idl.ReceiverReport("h3", "done", "", 0, 0, 1, 1),
            idl.ReceiverReport("h5", "failed", HOSTILE, 0, 0, 0, 0),
        ]
        agent.say("report", report=idl.TransferReport("r1", path, "failed", HOSTILE, 10, 1, 0, 0, receivers))
        row = (await of(found, "transfers", lambda part: part["rows"][0]["phase"] == "failed"))["rows"][0]
        assert not row["live"] and row["states"] == {"done": 1, "failed": 1} and row["failed"] == ["h5"]
        assert row["why"] == HOSTILE  # one event, not two
        await agent.close()
        await of(found, "fabric", lambda part: part["racks"][0]["states"] == "x-")


async def test_overview__nobody_looks_nothing_is_done(manager: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = manager.app.rest.board
    async with looking(manager) as found:
        await anext(found)
        await until(lambda: hub.made >= 3, "views are made while somebody looks")
    await until(lambda: not hub.viewers, "the viewer that left is forgotten")
    made = hub.made
    agent = await manager.agent("h1")
    agent.request("r1", "h1", "h3")
    await agent.response("r1", 1)
    assert hub.made == made and hub._task is None
    await agent.close()


async def test_overview__one_view_serves_all_and_a_dear_one_is_made_seldom(
    manager: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board, "INTERVAL_S", 3600.0)
    hub = manager.app.rest.board
    async with httpx.AsyncClient(base_url=manager.url, trust_env=False) as http:
        answers = await asyncio.gather(*(http.get("/v1/overview") for _ in range(20)))
    assert {one.status_code for one in answers} == {200} and hub.made == 1
    with contextlib.ExitStack() as viewers:
        texts = {hub.news(viewers.enter_context(hub.viewer())) for _ in range(board.VIEWERS_MAX)}
        assert hub.made == 1 and len(texts) == 1 and hub.full
    hub._cost_s = 1000.0
    assert hub.pause_s == board.SHARE * 1000.0 > board.INTERVAL_S


async def test_overview__a_slow_viewer_gets_the_latest_only_and_a_dead_one_is_cut_off(
    manager: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board, "SEND_BOUND_S", 0.05)
    hub = manager.app.rest.board
    with hub.viewer() as slow:
        hub.news(slow)
        for number in range(1000):
            hub._texts["groups"] = b"%d" % number
            hub._versions["groups"] += 1
        assert hub.news(slow) == b"event: groups\ndata: 999\n\n" and hub.news(slow) == b""
    _, writer = await asyncio.open_connection("127.0.0.1", manager.app.rest_port, limit=1)
    writer.write(b"GET /v1/overview/events HTTP/1.1\r\nHost: x\r\n\r\n")
    await until(lambda: hub.viewers, "it looks")

    def flooded() -> bool:
        hub._texts["groups"] = b'"%b"' % (b"x" * (1 << 20))
        for one in hub.viewers:
            hub._versions["groups"] += 1
            one.news.set()
        return not hub.viewers

    monkeypatch.setattr(hub, "_refresh", lambda: None)
    await until(flooded, "it was cut off")
    assert hub.cut_off == 1
    writer.close()


async def test_overview__only_so_many_viewers_and_they_hear_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board, "VIEWERS_MAX", 1)
    async with running(tmp_path) as manager:
        async with looking(manager) as found, httpx.AsyncClient(base_url=manager.url, trust_env=False) as http:
            await anext(found)
            answer = await http.get("/v1/overview/events")
            assert answer.status_code == 503 and "1 viewers" in answer.json()["detail"]
            assert "rostrum_console_viewers 1.0" in (await http.get("/metrics")).text
            closing = asyncio.create_task(manager.app.close())
            assert "the manager stops" in (await of(found, "end"))["detail"]
        await closing


async def test_overview__a_stream_ends_after_an_hour(manager: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "LIFE_S", -1.0)
    async with looking(manager) as found:
        assert (await anext(found)) == ("end", {"detail": board.ANEW})
        assert await anext(found, None) is None


def large() -> Topology:
    """500 servers in 25 racks."""
    return loader.load_text(generate.hybrid(generate.Hybrid(racks=25, servers=20, ocs_ports=64)))


async def test_overview__at_500_servers_is_small_and_as_the_document_says(tmp_path: Path) -> None:
    """A hundred transfers to all the others, each with all receivers in its report: the stream names none of them."""
    async with running(tmp_path, Settings(boot_id=1), large()) as manager:
        names = list(manager.topology.servers)
        assert len(names) == 500
        agents = {name: await manager.agent(name) for name in names[:100]}
        rows = [idl.ReceiverReport(name, "receiving", "x" * 500, 0, 0, 1, 0) for name in names[100:]]
        for name, agent in agents.items():
            agent.request(f"r-{name}", name, *names[100:], wait_ms=60_000)
        await until(lambda: len(manager.app.rest.core.transfers) == 100, "all asked")
        for path in list(manager.app.rest.core.paths.live()):
            if path.granted:
                report = idl.TransferReport(path.request.request_id, path.id, "high-rate", "", 1, 1, 0, 0, rows)
                agents[path.request.sender].say("report", report=report)
        async with httpx.AsyncClient(base_url=manager.url, trust_env=False, timeout=60) as http:
            document = (await http.get("/openapi.json")).json()
            answer = await http.get("/v1/overview")
            schema = document["paths"]["/v1/overview"]["get"]["responses"]["200"]["content"]["application/json"][
                "schema"
            ]
            jsonschema.validate(answer.json(), {**schema, "components": document["components"]})
        assert len(answer.json()["transfers"]["rows"]) == 100
        assert len(answer.content) < 100_000
        await asyncio.gather(*(agent.close() for agent in agents.values()))


async def test_pages__are_open_to_all_hold_nothing_and_load_nothing_from_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    writer, reader = new_token(file, "alice", "t", "write"), new_token(file, "bob", "t", "read")
    async with running(tmp_path) as manager:
        port = await guarded(manager, AccessOptions(tokens=file))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            for path in pages.FILES:
                answer = await http.get(path)
                assert answer.status_code == 200 and answer.headers["content-security-policy"] == pages.STRICT, path
                assert (await http.post(path)).status_code == 401
                if not path.startswith("/docs/swagger"):
                    assert not re.search(r"(src|href|url|from|import)\W{1,3}(https?:)?//", answer.text), path
            assert (await http.get("/")).headers["location"] == "/console"
            for path in ("/console/", "/console/../v1/health", "/console/nothing", "/v1/overview", "/openapi.json"):
                assert (await http.get(path)).status_code == 401, path
            assert (await http.get("/v1/caller")).status_code == 401
            for token, role in ((writer, "write"), (reader, "read")):
                told = (await http.get("/v1/caller", headers=bearer(token))).json()
                assert (told["token"], told["role"], told["asked"]) == (role, role, True)
        async with httpx.AsyncClient(base_url=manager.url, trust_env=False) as http:  # loopback asks nobody
            assert (await http.get("/v1/caller")).json()["token"] is None
            assert (await http.get("/v1/caller", headers=bearer("wrong"))).json()["token"] is None
            assert (await http.get("/v1/caller", headers=bearer(writer))).json()["token"] == "write"


def test_pages__are_all_there_and_parse_no_html_from_outside() -> None:
    assert {name for _, name in pages.FILES.values() if name.startswith("static/")} == {
        f"static/{file.name}" for file in STATIC.iterdir()
    }
    for file in STATIC.glob("*.js"):
        for danger in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert danger not in file.read_text(), f"{file.name}: {danger}"
    for file in STATIC.glob("*.html"):  # strict CSP: no style or script in a page
        assert not re.search(r"<style|\son\w+=|style=|<script(?! [^>]*src=)", file.read_text())
    assert GUARDED.caller is None
