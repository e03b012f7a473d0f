"""Overlays, failed links, and receivers that come and go, over REST and in the metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from rostrum.topologies import load

from tests.controller.fakes import running
from tests.controller.northbound.test_rest import Client

ENDS = {"sender": "h0-0-0", "receivers": ["h1-0-0", "h2-0-0", "h3-1-1"]}


@pytest.fixture
async def rest(tmp_path: Path) -> AsyncIterator[Client]:
    async with (
        running(tmp_path, topology=load("fat-tree-4")) as manager,
        httpx.AsyncClient(base_url=manager.url, trust_env=False, timeout=60) as http,
    ):
        yield await Client.with_document(http)


async def test_overlay__of_a_path_of_rdcm_and_of_others(rest: Client) -> None:
    path = await rest.call("POST", "/v1/paths", 201, json={**ENDS, "protocol": "rdcm"})
    assert path["protocol"] == "rdcm" and path["kind"] == "packet"
    shown = await rest.call("GET", f"/v1/paths/{path['id']}/overlay", 200)
    assert shown["receivers"] == sorted(ENDS["receivers"]) and shown["version"] == 1
    assert sum(len(ring["members"]) for ring in shown["rings"]) >= 3
    assert {node["server"] for node in shown["nodes"]} == {"h0-0-0", *ENDS["receivers"]}
    plain = await rest.call("POST", "/v1/paths", 201, json=ENDS)
    assert plain["protocol"] == "republic"
    refused = await rest.call("GET", f"/v1/paths/{plain['id']}/overlay", 409)
    assert "its protocol is republic" in refused["detail"]
    wrong = await rest.call("POST", "/v1/paths", 422, json={**ENDS, "protocol": "rdcm", "receivers": ["h1-0-0"]})
    assert "two or more receivers" in wrong["detail"]


async def test_receivers__join_and_leave(rest: Client) -> None:
    path = await rest.call("POST", "/v1/paths", 201, json={**ENDS, "protocol": "rdcm"})
    where = f"/v1/paths/{path['id']}"
    more = await rest.call("PUT", f"{where}/receivers/h2-1-0", 200)
    assert more["receivers"] == [*ENDS["receivers"], "h2-1-0"]
    less = await rest.call("DELETE", f"{where}/receivers/h3-1-1", 200)
    assert less["receivers"] == ["h1-0-0", "h2-0-0", "h2-1-0"]
    shown = await rest.call("GET", f"{where}/overlay", 200)
    assert [one["cause"] for one in shown["changes"]] == ["granted", "h2-1-0 joined", "h3-1-1 left"]
    assert "is in p-" in (await rest.call("PUT", f"{where}/receivers/h2-1-0", 409))["detail"]
    assert "no receiver" in (await rest.call("DELETE", f"{where}/receivers/h3-1-1", 409))["detail"]
    assert "no server is called" in (await rest.call("PUT", f"{where}/receivers/h9", 409))["detail"]


async def test_failed_links__said_by_people_and_taken_back(rest: Client) -> None:
    path = await rest.call("POST", "/v1/paths", 201, json={**ENDS, "protocol": "rdcm"})
    tree = (await rest.call("GET", f"/v1/paths/{path['id']}/overlay", 200))["tree"]
    link = next(one for one in tree if one[0].startswith("core"))
    failed = await rest.call("POST", "/v1/failed-links", 201, json={"link": link})
    assert [sorted(one["link"]) for one in failed["failed_links"]] == [sorted(link)]
    shown = await rest.call("GET", f"/v1/paths/{path['id']}/overlay", 200)
    assert link not in shown["tree"] and shown["changes"][-1]["links_added"]
    metrics = (await rest.http.get("/metrics")).text
    assert "rostrum_failed_links 1.0" in metrics and "rostrum_rdcm_paths 1.0" in metrics
    assert (await rest.call("GET", "/v1/failed-links", 200)) == failed
    assert (await rest.call("DELETE", f"/v1/failed-links/{link[1]}/{link[0]}", 200)) == {
        "failed_links": [],
        "drained_links": [],
    }
    assert "is in use" in (await rest.call("DELETE", f"/v1/failed-links/{link[0]}/{link[1]}", 404))["detail"]
    wrong = await rest.call("POST", "/v1/failed-links", 422, json={"link": ["core0-0", "core0-1"]})
    assert "no two switches" in wrong["detail"]


async def test_links__drained_by_people_and_put_back(rest: Client) -> None:
    link = ["core0-0", "agg0-0"]
    drained = await rest.call("PUT", "/v1/links/core0-0/agg0-0/drain", 200, json={"reason": "new cable"})
    assert [(one["link"], one["reason"]) for one in drained["drained_links"]] == [(sorted(link), "new cable")]
    assert (await rest.call("GET", "/v1/failed-links", 200)) == drained
    ports = (await rest.call("GET", "/v1/links", 200))["links"]
    uses = {(one["switch"], one["expected"].partition(":")[0]): one["use"] for one in ports}
    assert {ends for ends, use in uses.items() if use == "drained"} == {("core0-0", "agg0-0"), ("agg0-0", "core0-0")}
    assert "rostrum_drained_links 1.0" in (await rest.http.get("/metrics")).text
    found = (await rest.call("GET", "/v1/doctor", 200))["findings"]
    assert any("agg0-0-core0-0 is drained: new cable" in one["what"] for one in found)
    assert (await rest.call("DELETE", "/v1/links/agg0-0/core0-0/drain", 200))["drained_links"] == []
    assert "is not drained" in (await rest.call("DELETE", "/v1/links/agg0-0/core0-0/drain", 404))["detail"]
    assert "no two switches" in (await rest.call("PUT", "/v1/links/core0-0/h0-0-0/drain", 422, json={}))["detail"]
    await rest.call("PUT", "/v1/links/edge0-0/agg0-0/drain", 200, json={})
    refused = await rest.call("PUT", "/v1/links/edge0-0/agg0-1/drain", 409, json={})
    assert "a rack would be cut off" in refused["detail"]
