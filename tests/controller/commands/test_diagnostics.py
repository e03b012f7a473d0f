"""Preflight, doctor, tenants, agents' tokens and logs of the whole manager, with agents and devices in memory."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from rostrum.controller.core import events as ev
from rostrum.controller.core.model import Sighting
from rostrum.controller.core.values import Quota, Settings
from rostrum.controller.keyvalue import JsonFormatter, line
from rostrum.controller.northbound.rest import quota_file
from rostrum.controller.northbound.rest.access import AccessError
from rostrum.controller.northbound.thrift.codec import BadMessage, idl
from rostrum.controller.northbound.thrift.gate import AgentGate
from rostrum.topologies.model import End
from rostrum.topologies.version import VERSION

from tests.controller.fakes import FakeAgent, Running, running, until
from tests.controller.timeline import hybrid


class ProbedAgent:
    """Answers probes as an agent on a network without faults would; `odd`: what it says otherwise."""

    def __init__(self, agent: FakeAgent, server: str, **odd: Any) -> None:
        self.agent, self.server, self.odd = agent, server, odd
        self.answered = 0
        self.task = asyncio.create_task(self._answer())

    async def _answer(self) -> None:
        while True:
            probes = [args.order for name, args in self.agent.heard if name == "probe"]
            for order in probes[self.answered :]:
                self.answered += 1
                self._report(order)
            await asyncio.sleep(0.002)

    def _report(self, order: Any) -> None:
        packets = order.packets or 0
        reached = [idl.ProbeReach(server=one.server, cause="", took_ns=1000) for one in order.servers or ()]
        values = {
            "probe_id": order.probe_id,
            "cause": "",
            "software": VERSION,
            "data_interface": "eth0",
            "mtu": 9000,
            "rate_bps": 10**9,
            "wall_clock_ns": time.time_ns(),
            "group_small": packets,
            "group_full": packets,
            "unicast_small": packets,
            "unicast_full": packets,
            "reached": reached if order.kind == 4 else [],
        } | self.odd
        if order.kind == 2:
            self.agent.say("probe_report", report=idl.ProbeReport(**{**values, "phase": "listening"}))
        self.agent.say("probe_report", report=idl.ProbeReport(**{"phase": "done", **values}))


@contextlib.asynccontextmanager
async def world(run: Path, odd: dict[str, dict[str, Any]] | None = None, **settings: Any) -> AsyncIterator[Any]:
    """A manager with an agent on every server, and an HTTP client."""
    async with running(run, Settings(boot_id=12345, **settings)) as manager:
        agents = []
        for server in manager.topology.servers:
            fake = await manager.agent(server, knows_probes=True, software=VERSION)
            agents.append(ProbedAgent(fake, server, **(odd or {}).get(server, {})))
        async with httpx.AsyncClient(base_url=manager.url, trust_env=False, timeout=60) as http:
            try:
                yield manager, http
            finally:
                for one in agents:
                    one.task.cancel()
                    await one.agent.close()


async def fly(http: httpx.AsyncClient, sender: str, *receivers: str, **more: Any) -> Any:
    answer = await http.post("/v1/preflight", json={"sender": sender, "receivers": list(receivers), **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_preflight__says_that_it_works_and_gives_the_path_back(tmp_path: Path) -> None:
    async with world(tmp_path) as (manager, http):
        found = await fly(http, "h1", "h3", "h5")
        assert found["works"] and found["kind"] == "circuit" and not found["findings"]
        assert [one["works"] for one in found["receivers"]] == [True, True]
        assert all(one["margin_db"] > 0 for one in found["receivers"])
        path = manager.app.runtime.path(found["path"])
        assert path.state.value == "released"


async def test_preflight__names_what_is_wrong_per_receiver(tmp_path: Path) -> None:
    odd = {"h3": {"group_small": 0, "group_full": 0}, "h5": {"group_full": 0, "unicast_full": 0, "mtu": 1500}}
    async with world(tmp_path, odd) as (_, http):
        found = await fly(http, "h1", "h3", "h5", "h7")
        by = {one["receiver"]: one for one in found["receivers"]}
        assert not found["works"] and by["h7"]["works"]
        assert [one["check"] for one in by["h3"]["findings"]] == ["group"]
        assert "IGMP" in by["h3"]["findings"][0]["mend"]
        assert by["h5"]["findings"][0]["what"] == "the data NIC of h5 has an MTU of 1500, the topology says 9000"


async def test_preflight__without_a_path_says_why(tmp_path: Path) -> None:
    async with world(tmp_path) as (manager, http):
        manager.app.runtime.post(ev.PortChanged("tor2", 1, False))
        found = await fly(http, "h1", "h3", wait_ms=50)
        assert not found["works"] and found["path"]
        assert "tor2 port 1 (to h3:0) is down" in found["findings"][0]["what"]


async def test_preflight__refuses_what_makes_no_sense(tmp_path: Path) -> None:
    async with world(tmp_path) as (_, http):
        for body in ({"sender": "h99", "receivers": ["h3"]}, {"sender": "h1", "receivers": []}):
            answer = await http.post("/v1/preflight", json=body)
            assert answer.status_code == 422 and answer.headers["content-type"] == "application/problem+json"


async def examine(http: httpx.AsyncClient) -> Any:
    return (await http.get("/v1/doctor")).json()


async def test_doctor__healthy(tmp_path: Path) -> None:
    async with world(tmp_path) as (_, http):
        assert await examine(http) == {"healthy": True, "findings": []}


async def test_doctor__finds_each_of_several_faults(tmp_path: Path) -> None:
    odd: dict[str, dict[str, Any]] = {
        "h1": {"mtu": 1500},
        "h2": {"software": "0.0.9"},
        "h3": {"wall_clock_ns": 10**18},
        "h4": {"reached": [idl.ProbeReach(server="h6", cause="No route to host", took_ns=1)]},
    }
    async with world(tmp_path, odd) as (manager, http):
        made = (await http.post("/v1/paths", json={"sender": "h1", "receivers": ["h3", "h5"]})).json()
        await http.get(f"/v1/paths/{made['id']}", params={"wait": "active"})
        rules = sorted(manager.network.tables["tor2"].values())
        manager.network.remove((rules[0],))
        manager.network.install((replace(rules[0], switch="tor4"),))
        manager.app.runtime.post(ev.PortChanged("tor3", 1, False))
        manager.app.runtime.post(ev.SwitchDown("core", "it did not answer 3 echo requests"))
        far = manager.topology.switches["tor1"]
        port = next(number for number, end in far.neighbours.items() if end.node == "core")
        manager.app.runtime.post(ev.Sighted(Sighting("tor1", port, End("tor2", port))))
        found = await examine(http)
        assert not found["healthy"]
        seen = {(one["severity"], one["check"], one["subject"]) for one in found["findings"]}
        assert {
            ("error", "mtu", "h1"),
            ("warning", "version", "h2"),
            ("warning", "clock", "h3"),
            ("error", "reachability", "h6"),
            ("error", "rules", "tor2"),
            ("warning", "rules", "tor4"),
            ("error", "port", "tor3 port 1"),
            ("error", "switch", "core"),
            ("error", "cabling", f"tor1 port {port}"),
        } <= seen
        assert all(one["mend"] for one in found["findings"])


async def test_doctor__an_agent_that_is_not_there(tmp_path: Path) -> None:
    async with running(tmp_path) as manager, httpx.AsyncClient(base_url=manager.url, trust_env=False) as http:
        found = (await http.get("/v1/doctor", timeout=60)).json()
        assert {one["check"] for one in found["findings"]} == {"agent"}
        assert "h1" in {one["subject"] for one in found["findings"]}


async def test_tenants__rest_shows_quota_use_and_who_waits(tmp_path: Path) -> None:
    quotas = {"local": Quota(paths=1)}
    async with world(tmp_path, quotas=quotas) as (_, http):
        for sender, receiver in (("h1", "h3"), ("h4", "h5")):
            await http.post("/v1/paths", json={"sender": sender, "receivers": [receiver]})
        found = (await http.get("/v1/tenants")).json()
        assert "tenants" in found, found
        (one,) = found["tenants"]
        assert one["name"] == "local" and one["used"]["paths"] == 1 and one["waiting"] == 1
        assert one["quota"]["paths"] == 1 and one["quota"]["circuits"] is None
        page = (await http.get("/metrics")).text
        assert 'rostrum_tenant_used{resource="paths",tenant="local"} 1.0' in page
        assert 'rostrum_tenant_quota{resource="paths",tenant="local"} 1.0' in page


async def test_problems__a_fault_of_the_manager_is_one_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as manager, httpx.AsyncClient(base_url=manager.url, trust_env=False) as http:
        monkeypatch.setattr("rostrum.controller.northbound.rest.views.health", None)
        answer = await http.get("/v1/health")
        assert answer.status_code == 500 and answer.headers["content-type"] == "application/problem+json"
        assert "Its log has the cause" in answer.json()["detail"]
        assert (await http.get("/v1/switches")).status_code == 200


def test_quota_file__is_read_or_the_wrong_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "quotas"
    file.write_text("# who\nphysics circuits=2 rate=20G over=deny\n* paths=5\n")
    assert quota_file.read(file) == {
        "physics": Quota(circuits=2, rate_bps=20 * 10**9, over="deny"),
        "*": Quota(paths=5),
    }
    for text, message in (
        ("physics colours=2", "line 1: 'colours=2' is not understood"),
        ("a paths=1\na paths=2", "line 2: a a second time"),
        ("a rate=fast", "line 1: rate:"),
        ("a over=deny", "line 1: it limits nothing"),
        ("a/b paths=1", "line 1: a tenant's name"),
    ):
        file.write_text(text)
        with pytest.raises(AccessError, match=message):
            quota_file.read(file)


def tokens(file: Path, *lines: tuple[str, str, str]) -> None:
    text = "".join(
        f"{who} {tenant} write sha256:{hashlib.sha256(t.encode()).hexdigest()}\n" for who, tenant, t in lines
    )
    file.write_text(text)
    file.chmod(0o600)


def test_agent_gate__knows_a_server_by_its_own_token_only(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    tokens(file, ("h1", "physics", "one"), ("h2", "biology", "two"))
    gate = AgentGate(file)
    assert gate.admit("h1", "one") == "physics"
    for server, token in (("h1", "two"), ("h3", "one"), ("h1", ""), ("h1", None)):
        with pytest.raises(BadMessage, match="--manager-token"):
            gate.admit(server, token)
    tokens(file, ("h1", "chemistry", "three, which is longer"))
    assert gate.admit("h1", "three, which is longer") == "chemistry"
    file.write_text("nonsense")
    assert gate.admit("h1", "three, which is longer") == "chemistry"
    assert AgentGate(None).admit("h1", None) == "default"


async def test_agents__without_a_token_are_told_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    tokens(file, ("h1", "physics", "one"))
    made = Running(tmp_path, Settings(boot_id=1), hybrid(), None)
    made.app.thrift.gate = AgentGate(file)
    await made.app.start()
    try:
        stranger = await made.agent()
        stranger.hello("h1")
        said = await stranger.expect("goodbye")
        assert "--manager-token" in said.reason
        known = await made.agent("h1", token="one")
        known.request("r1", "h1", "h3")
        await until(lambda: made.app.runtime.manager.core.paths, "request")
        (path,) = made.app.runtime.manager.core.paths.values()
        assert path.request.tenant == "physics"
        await known.close()
    finally:
        await made.app.close()


async def test_log__the_request_is_found_in_the_lines_of_the_writes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with running(tmp_path) as manager:
            agent = await manager.agent("h1")
            agent.request("11111111-2222", "h1", "h3", "h5")
            await agent.response("11111111-2222", 1)
            await until(lambda: any("rules written" in record.message for record in caplog.records), "a write")
            await agent.close()
    formatter = JsonFormatter()
    lines = [json.loads(formatter.format(record)) for record in caplog.records]
    events = {one["event"] for one in lines if one.get("request") == "11111111-2222"}
    assert {"accepted", "rules written", "cross-connects made"} <= events


def test_json__a_line_is_one_object_whatever_it_holds() -> None:
    record = logging.LogRecord(
        "rostrum.x", logging.WARNING, "", 0, line("a b", text='say "\n\x07é"', n=3, none=None), (), None
    )
    made = JsonFormatter().format(record)
    assert "\n" not in made
    assert {key: value for key, value in json.loads(made).items() if key != "time"} == {
        "level": "warning",
        "logger": "rostrum.x",
        "event": "a b",
        "text": 'say "\n\x07é"',
        "n": 3,
    }


async def test_why__says_what_a_request_waits_for_how_long_and_what_to_do(tmp_path: Path) -> None:
    async with world(tmp_path, quotas={"local": Quota(paths=1)}) as (manager, http):
        first = (await http.post("/v1/paths", json={"sender": "h1", "receivers": ["h3"]})).json()
        second = (await http.post("/v1/paths", json={"sender": "h4", "receivers": ["h5"]})).json()
        why = (await http.get(f"/v1/paths/{second['id']}/why")).json()
        assert why["state"] == "queued" and why["over_quota"] and why["ahead"] == 0
        assert why["why"].startswith("waiting for the quota of tenant local") and "--quotas" in why["do"]
        assert 0 < why["denied_in_ms"] <= 30_000
        manager.app.runtime.post(ev.PortChanged("tor3", 1, False))
        why = (await http.get(f"/v1/paths/{first['id']}/why")).json()
        assert why["ahead"] is None and why["denied_in_ms"] is None
        assert (await http.get("/v1/paths/p-none/why")).status_code == 404
