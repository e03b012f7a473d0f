"""GET /metrics after a scripted run; reasons in classes; bounded labels; the dashboard asks for what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families
from rostrum.controller.core import events as ev
from rostrum.controller.core.values import ObstacleKind, Quota, Settings
from rostrum.controller.northbound.metrics.meters import CLASSES, REASON_CLASSES
from rostrum.controller.northbound.metrics.stats import Histogram
from rostrum.controller.northbound.thrift.codec import idl

from tests.controller.fakes import FakeAgent, Running, running

DASHBOARD = Path(__file__).parents[3] / "docs" / "grafana" / "rostrum-manager.json"


async def scrape(manager: Running) -> dict[tuple[str, ...], float]:
    """(name, label values in the order of labels' names ...) -> value."""
    async with httpx.AsyncClient(base_url=manager.url, trust_env=False) as http:
        answer = await http.get("/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(answer.text):
        for one in family.samples:
            key = (one.name, *(one.labels[name] for name in sorted(one.labels)))
            assert key not in found, f"{key} twice"
            found[key] = one.value
    return found


async def script(manager: Running) -> FakeAgent:
    """A circuit path by an agent with its transfer done; REST: one queued and withdrawn, one denied, one wrong."""
    agent = await manager.agent("h1")
    agent.request("r1", "h1", "h3", "h5")
    path = (await agent.response("r1", 1)).response_id
    async with httpx.AsyncClient(base_url=manager.url, trust_env=False) as http:
        await http.get(f"/v1/paths/{path}?wait=active")
        waits = {"sender": "h2", "receivers": ["h3"], "kind": "circuit"}
        queued = (await http.post("/v1/paths", json=waits)).json()
        assert queued["state"] == "queued"
        await http.delete(f"/v1/paths/{queued['id']}")
        in_rack = {"sender": "h1", "receivers": ["h2"], "kind": "circuit"}
        assert (await http.post("/v1/paths", json=in_rack)).status_code == 409
        late = await http.post("/v1/paths", json={**waits, "wait_ms": 1})
        ended = await http.get(f"/v1/paths/{late.json()['id']}?wait=ended")
        assert ended.json()["state"] == "failed"
        assert (await http.post("/v1/paths", json={"sender": "h1", "receivers": ["h99"]})).status_code == 422
        assert (await http.get("/v1/none/of/these")).status_code == 404
        agent.request("r2", "h1", "h99")
        await agent.response("r2", 2)
        light = 2**62  # far in the future, by the sender's clock
        receivers = [idl.ReceiverReport(name, "done", "", 0, 2, light, light) for name in ("h3", "h5")]
        agent.say("report", report=idl.TransferReport("r1", path, "done", "", 1000, 200, 3, 2, receivers))
        agent.say("release", request_id="r1", response_id=path)
        await http.get(f"/v1/paths/{path}?wait=ended")
    return agent


async def test_metrics__after_a_scripted_run(tmp_path: Path) -> None:
    async with running(tmp_path) as manager:
        await script(manager)
        found = await scrape(manager)
    expected = {
        ("rostrum_requests_total",): 4,
        ("rostrum_requests_queued_total",): 2,
        ("rostrum_requests_withdrawn_total",): 1,
        ("rostrum_grants_total", "circuit"): 1,
        ("rostrum_grants_total", "packet"): 0,
        ("rostrum_denials_total", "circuit impossible"): 1,
        ("rostrum_denials_total", "circuit busy"): 1,
        ("rostrum_denials_total", "invalid"): 2,
        ("rostrum_paths", "active"): 0,
        ("rostrum_paths_released_total",): 1,
        ("rostrum_agents_connected",): 1,
        ("rostrum_circuits", "ocs", "idle"): 1,
        ("rostrum_ocs_links", "uplink", "ocs", "idle"): 1,
        ("rostrum_ocs_links", "downlink", "ocs", "idle"): 2,
        ("rostrum_ocs_links", "downlink", "ocs", "busy"): 0,
        ("rostrum_splitters", "ocs", "idle"): 1,
        ("rostrum_switch_up", "tor1"): 1,
        ("rostrum_ocs_up", "ocs"): 1,
        ("rostrum_switch_rules", "tor2"): 1,
        ("rostrum_switch_rules", "tor4"): 0,
        ("rostrum_transfers_total", "done"): 1,
        ("rostrum_transfer_bytes_total",): 1000,
        ("rostrum_transfer_packets_total", "sent"): 200,
        ("rostrum_transfer_packets_total", "redundant"): 3,
        ("rostrum_transfer_packets_total", "patched"): 2,
        ("rostrum_transfer_seconds_count",): 1,
        ("rostrum_transfer_patched_ratio_sum",): 0.01,
        ("rostrum_grant_wait_seconds_count",): 1,
        ("rostrum_configuration_seconds_count", "circuit"): 1,
        ("rostrum_first_light_seconds_count", "receiver"): 2,
        ("rostrum_thrift_response_seconds_count",): 2,
        ("rostrum_rest_requests_total", "POST", "/v1/paths", "201"): 2,
        ("rostrum_rest_requests_total", "POST", "/v1/paths", "409"): 1,
        ("rostrum_rest_requests_total", "POST", "/v1/paths", "422"): 1,
        ("rostrum_rest_requests_total", "GET", "other", "404"): 1,
        ("rostrum_rest_response_seconds_count", "/v1/paths"): 4,
    }
    assert {key: found.get(key) for key in expected} == expected


async def test_metrics__while_a_path_is_used(tmp_path: Path) -> None:
    async with running(tmp_path) as manager:
        agent = await manager.agent("h1")
        agent.request("r1", "h1", "h3", "h5", "h7")
        await agent.response("r1", 1)
        found = await scrape(manager)
        assert found["rostrum_ocs_links", "uplink", "ocs", "busy"] == 1
        assert found["rostrum_ocs_links", "downlink", "ocs", "busy"] == 3
        assert found["rostrum_paths", "configuring"] + found["rostrum_paths", "active"] == 1
        agent.request("r2", "h1", "h2")  # by packets: of a circuit, what devices have not confirmed yet is no evidence
        beside = await agent.response("r2", 1)
        manager.app.runtime.post(ev.NoLight(beside.response_id, ("h2",), "h1"))
        assert (await scrape(manager))["rostrum_dark_servers", "packet"] == 1
        splitters = manager.topology.ocs["ocs"].splitters
        assert sum(value for key, value in found.items() if key[0] == "rostrum_splitters") == len(splitters)
        await agent.close()


async def test_metrics__labels_are_bounded(tmp_path: Path) -> None:
    """Whatever people ask for, series are added by the interface's size only."""
    async with running(tmp_path, Settings(boot_id=12345, history_max=20)) as manager:
        await script(manager)

        async def noise(first: int) -> None:
            async with httpx.AsyncClient(base_url=manager.url, trust_env=False) as http:
                for number in range(first, first + 6):
                    await http.get(f"/v1/paths/p-{number}")
                    await http.get(f"/{number}")
                    await http.request(("PROPFIND", "LOCK", "SEARCH")[number % 3], "/v1/paths")
                    path = (await http.post("/v1/paths", json={"sender": "h1", "receivers": ["h3"]})).json()
                    await http.delete(f"/v1/paths/{path['id']}")

        await noise(0)
        await scrape(manager)  # its own answer is counted too, from the second one on
        before = set(await scrape(manager))
        await noise(1000)
        after = await scrape(manager)
        assert set(after) == before
        text = json.dumps(sorted(after))
        assert not re.search(r'"(p|t)-[0-9a-z]+-[0-9]+"|"h[1-8]"', text)


def test_denials__each_obstacle_has_its_class() -> None:
    assert set(CLASSES) == set(ObstacleKind) and {"invalid", "circuit busy", "waited"} < set(REASON_CLASSES)


def test_histogram__bounds_belong_to_their_bucket() -> None:
    one = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 7.0):
        one.add(value)
    assert one.cumulative() == [("1.0", 2), ("2.0", 4), ("+Inf", 5)] and one.sum == 12.0 and one.count == 5


async def test_dashboard__asks_for_what_there_is(tmp_path: Path) -> None:
    async with running(tmp_path, Settings(boot_id=12345, quotas={"local": Quota(paths=100)})) as manager:
        await script(manager)
        names = {key[0] for key in await scrape(manager)}
    asked: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if "expr" in node:
                asked.update(re.findall(r"rostrum_[a-z_]+", node["expr"]))
            for each in node.values():
                walk(each)
        elif isinstance(node, list):
            for each in node:
                walk(each)

    walk(json.loads(DASHBOARD.read_text()))
    assert asked and asked <= names, f"unknown: {sorted(asked - names)}"
    missing = {name for name in names if name.endswith("_total")} - asked
    assert not missing, f"counters without a panel: {sorted(missing)}"
