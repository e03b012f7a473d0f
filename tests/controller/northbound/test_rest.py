"""REST as people and tools meet it, and against the OpenAPI document that it serves."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, ClassVar

import httpx
import jsonschema
import pytest
from rostrum.controller.core.model import Light
from rostrum.controller.core.values import Settings
from rostrum.topologies.kinds import with_kind
from rostrum.topologies.loader import FOLDER, load_text

from tests.controller.fakes import Running, running

SIX = ["h3", "h4", "h5", "h6", "h7", "h8"]


class Client:
    """Every answer is held against the document, which takes longest to make and is the same in all of a run."""

    known: ClassVar[dict[str, Any]] = {}

    @classmethod
    async def with_document(cls, http: httpx.AsyncClient) -> Client:
        if not cls.known:
            document = (await http.get("/openapi.json")).json()
            assert document["openapi"].startswith("3.")
            cls.known = document
        return cls(http, cls.known)

    def __init__(self, http: httpx.AsyncClient, document: dict[str, Any]) -> None:
        self.http, self.document = http, document
        self.seen: set[tuple[str, str, int]] = set()

    async def call(self, method: str, path: str, status: int, **more: Any) -> Any:
        answer = await self.http.request(method, path, **more)
        assert answer.status_code == status, answer.text
        template = self._template(path.split("?")[0])
        documented = self.document["paths"][template][method.lower()]["responses"]
        assert str(status) in documented, f"{method} {template} does not document {status}"
        ((media, content),) = documented[str(status)]["content"].items()
        assert answer.headers["content-type"].split(";")[0] == media
        schema = {**content["schema"], "components": self.document["components"]}
        jsonschema.validate(answer.json(), schema)
        self.seen.add((method, template, status))
        return answer.json()

    def _template(self, path: str) -> str:
        parts = path.split("/")
        for template in sorted(self.document["paths"], key=lambda one: "{" in one):
            pattern = template.split("/")
            if len(pattern) == len(parts) and all(
                p == q or p.startswith("{") for p, q in zip(pattern, parts, strict=True)
            ):
                return str(template)
        raise AssertionError(f"{path} is not in the document")


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as made:
        yield made


@pytest.fixture
async def rest(manager: Running) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(base_url=manager.url, trust_env=False, timeout=60) as http:
        yield await Client.with_document(http)


async def test_path__requested_seen_and_released(rest: Client, manager: Running) -> None:
    made = await rest.call("POST", "/v1/paths", 201, json={"sender": "h1", "receivers": SIX, "size": 64 << 20})
    assert made["state"] == "configuring" and made["kind"] == "circuit" and made["group"].startswith("239.192.")
    path = await rest.call("GET", f"/v1/paths/{made['id']}?wait=active&timeout_ms=5000", 200)
    assert path["state"] == "active"
    assert {one["state"] for one in path["circuit"]["cross_connects"]} == {"steady"}
    assert [one["receiver"] for one in path["circuit"]["light"]] == SIX
    assert all(one["power_dbm"] == -9.0 and one["margin_db"] == 9.0 for one in path["circuit"]["light"])
    assert {one["switch"] for one in path["rules"]} == {"tor1", "tor2", "tor3", "tor4"}
    times = path["timeline"]
    assert times["requested_ns"] <= times["accepted_ns"] <= times["rules_in_ns"] <= times["active_ns"]
    assert times["accepted_ns"] < times["cross_connects_steady_ns"] <= times["active_ns"]
    assert [one["id"] for one in (await rest.call("GET", "/v1/paths?state=active", 200))["paths"]] == [made["id"]]
    circuits = await rest.call("GET", "/v1/circuits?fresh=true", 200)
    assert {one["path"] for one in circuits["cross_connects"]} == {made["id"]}
    assert {one["name"]: one["state"] for one in circuits["splitters"]}["s1"] == "in use"
    rules = (await rest.call("GET", "/v1/rules", 200))["rules"]
    assert {one["path"] for one in rules} == {made["id"]}
    gone = await rest.call("DELETE", f"/v1/paths/{made['id']}", 200)
    assert gone["state"] == "released" and gone["timeline"]["released_ns"]
    await rest.call("DELETE", f"/v1/paths/{made['id']}", 200)
    circuits = await rest.call("GET", "/v1/circuits", 200)
    assert {one["path"] for one in circuits["cross_connects"]} == {None}
    again = await rest.call("POST", "/v1/paths", 201, json={"sender": "h1", "receivers": SIX})
    assert again["reconfiguration_ms"] == 0 and again["circuit"]["reused"]


async def test_path__queued_with_the_reason(rest: Client) -> None:
    first = await rest.call("POST", "/v1/paths", 201, json={"sender": "h1", "receivers": ["h3"]})
    second = await rest.call("POST", "/v1/paths", 201, json={"sender": "h2", "receivers": ["h3"], "kind": "circuit"})
    assert second["state"] == "queued" and first["id"] in second["reason"]
    poll = asyncio.create_task(rest.call("GET", f"/v1/paths/{second['id']}?wait=active", 200))
    await asyncio.sleep(0)
    await rest.call("DELETE", f"/v1/paths/{first['id']}", 200)
    assert (await poll)["state"] == "active"
    same = await rest.call("GET", f"/v1/paths/{second['id']}?wait=ended&timeout_ms=1", 200)
    assert same["state"] == "active"


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"sender": "h1", "receivers": ["h99"]}, 422, "h99 not in topology"),
        ({"sender": "h11", "receivers": ["h2"]}, 422, "did you mean h1?"),
        ({"sender": "h1", "receivers": ["h1"]}, 422, "sender and receiver"),
        ({"sender": "h1", "receivers": ["h3", "h3"]}, 422, "more than once: h3"),
        ({"sender": "h1", "receivers": []}, 422, "receivers"),
        ({"sender": "h1"}, 422, "receivers: Field required"),
        ({"sender": "h1", "receivers": ["h3"], "colour": 1}, 422, "colour: there is no such field"),
        ({"sender": "h1", "receivers": ["h3"], "options": "coding=repairs"}, 422, "a path has no options: options are"),
        ({"sender": "h1", "receivers": ["h3"], "size": -1}, 422, "size"),
        ({"sender": "h1", "receivers": ["h3"], "size": 10**30}, 422, "size"),
        ({"sender": "h1", "receivers": ["h3"], "size": "many"}, 422, "size"),
        ({"sender": "h1", "receivers": ["h3"], "wait_ms": 10**12}, 422, "wait_ms"),
        ({"sender": "h1", "receivers": ["h3"], "lease_ms": -1}, 422, "lease_ms"),
        ({"sender": "h1", "receivers": ["h3"], "kind": "radio"}, 422, "kind"),
        ({"sender": "h1", "receivers": ["x" * 65]}, 422, "receivers"),
        ([1, 2], 422, "body"),
        ({"sender": "h1", "receivers": ["h2"], "kind": "circuit"}, 409, "all receivers are in the sender's rack"),
    ],
)
async def test_errors__are_problems_with_a_reason(rest: Client, body: Any, status: int, text: str) -> None:
    problem = await rest.call("POST", "/v1/paths", status, json=body)
    assert problem["status"] == status and problem["title"] and text in problem["detail"]
    assert len(problem["detail"]) < 2000


async def test_errors__unreadable_bodies_and_places(rest: Client) -> None:
    for content in (b"", b"{", b"\xff\xfe\x00", b"[" * 5000, b'"x"', b'{"sender":NaN}'):
        headers = {"content-type": "application/json"}
        assert "detail" in await rest.call("POST", "/v1/paths", 422, content=content, headers=headers)
    huge = b'{"sender":"h1","receivers":["' + b"x" * (300 << 10) + b'"]}'
    assert "256 KiB" in (await rest.call("POST", "/v1/paths", 413, content=huge))["detail"]

    async def unannounced() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * (32 << 10)

    assert "256 KiB" in (await rest.call("POST", "/v1/paths", 413, content=unannounced()))["detail"]
    await rest.call("GET", "/v1/paths/p-none", 404)
    await rest.call("DELETE", "/v1/paths/p-none", 404)
    await rest.call("GET", "/v1/transfers/t-none", 404)
    await rest.call("GET", "/v1/paths?state=lost", 422)
    await rest.call("GET", "/v1/paths?limit=0", 422)
    await rest.call("GET", "/v1/paths/p?timeout_ms=99999999", 422)
    for method, path, status in (("GET", "/v1/none", 404), ("PUT", "/v1/paths", 405)):
        answer = await rest.http.request(method, path)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json" and "/docs" in answer.json()["detail"]
        assert status == 404 or answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"
    told = (await rest.call("POST", "/v1/paths", 415, content=b'{"sender":"h1"}'))["detail"]
    assert "Content-Type is none; send Content-Type: application/json" in told


async def test_garbage__on_the_socket_harms_nobody(rest: Client, manager: Running) -> None:
    rng = random.Random(5)
    for noise in (
        rng.randbytes(2000),
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET " + b"/" * 200_000,
        b"POST / HTTP/9\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", manager.app.rest_port)
        writer.write(noise)
        writer.write_eof()
        async with asyncio.timeout(10):
            await reader.read()
        writer.close()
    await rest.call("GET", "/v1/health", 200)


async def test_lease__renewed_or_over(rest: Client) -> None:
    made = await rest.call("POST", "/v1/paths", 201, json={"sender": "h1", "receivers": ["h3"], "lease_ms": 150})
    await rest.call("POST", f"/v1/paths/{made['id']}/renew", 200)
    ended = await rest.call("GET", f"/v1/paths/{made['id']}?wait=ended", 200)
    assert ended["state"] == "released" and ended["cause"] == "lease of 150 ms over"
    assert "only a granted path" in (await rest.call("POST", f"/v1/paths/{made['id']}/renew", 409))["detail"]
    held = await rest.call("POST", "/v1/paths", 201, json={"sender": "h1", "receivers": ["h3"], "lease_ms": 0})
    assert held["lease_ms"] is None
    assert "has no lease" in (await rest.call("POST", f"/v1/paths/{held['id']}/renew", 409))["detail"]


async def test_forgotten_path__has_a_lease_all_the_same(rest: Client) -> None:
    made = await rest.call("POST", "/v1/paths", 201, json={"sender": "h1", "receivers": ["h3"]})
    assert made["lease_ms"] == 600_000
    renewed = await rest.call("POST", f"/v1/paths/{made['id']}/renew", 200)
    assert renewed["state"] in ("configuring", "active")


async def test_views__of_state_and_network(rest: Client, manager: Running) -> None:
    agent = await manager.agent("h1")
    agent.request("r1", "h1", *SIX)
    response = await agent.response("r1", 1)
    health = await rest.call("GET", "/v1/health", 200)
    assert health["ready"] and health["agents_connected"] == 1 and health["missing"] == []
    (known,) = (await rest.call("GET", "/v1/agents", 200))["agents"]
    assert known["server"] == "h1" and known["paths"] == [response.response_id]
    assert all(one["up"] for one in (await rest.call("GET", "/v1/switches", 200))["switches"])
    topology = await rest.call("GET", "/v1/topology", 200)
    assert len(topology["servers"]) == 8 and "password" not in json.dumps(topology)
    (transfer,) = (await rest.call("GET", "/v1/transfers", 200))["transfers"]
    assert transfer["phase"] == "waiting for a path" and transfer["sessions"][0]["id"] == response.response_id
    assert (await rest.call("GET", f"/v1/transfers/{response.response_id}", 200))["id"] == transfer["id"]
    stats = await rest.call("GET", "/v1/stats", 200)
    assert stats["thrift_response"]["count"] == 1 and stats["counts"]["accepted_circuit"] == 1
    taken = await rest.call("DELETE", f"/v1/paths/{response.response_id}", 200)
    assert taken["state"] == "released"
    assert "taken back" in (await agent.expect("failed")).reason


async def test_transfer__shows_the_agents_report(rest: Client, manager: Running) -> None:
    from rostrum.controller.northbound.thrift.codec import idl

    agent = await manager.agent("h1")
    agent.request("r1", "h1", "h3", "h5")
    response = await agent.response("r1", 1)
    receivers = [
        idl.ReceiverReport("h3", "done", "", 58, 2, 10**18, 10**18 + 5),
        idl.ReceiverReport("h9", "?", "", 0, 0, 0, 0),
    ]
    report = idl.TransferReport("r1", response.response_id, "done", "", 1000, 10, 3, 2, receivers)
    agent.say("report", report=report)
    agent.say("release", request_id="r1", response_id=response.response_id)
    await rest.call("GET", f"/v1/paths/{response.response_id}?wait=ended", 200)
    transfer = await rest.call("GET", f"/v1/transfers/{response.response_id}", 200)
    assert transfer["phase"] == "done" and transfer["redundant_packets"] == 3
    by_name = {one["server"]: one for one in transfer["receivers"]}
    assert by_name["h3"]["initial_sn"] == 58 and by_name["h3"]["complete_ns"] == 10**18 + 5
    assert by_name["h5"]["state"] == "waiting" and "h9" not in by_name


async def test_unix_socket__serves_the_same(manager: Running) -> None:
    transport = httpx.AsyncHTTPTransport(uds=str(manager.app.socket))
    async with httpx.AsyncClient(transport=transport, base_url="http://manager") as http:
        assert (await http.get("/v1/health")).json()["ready"]


async def test_busy__when_the_queue_is_full(tmp_path: Path) -> None:
    async with running(tmp_path, Settings(queue_max=1)) as manager, httpx.AsyncClient(base_url=manager.url) as http:
        rest = await Client.with_document(http)
        body = {"sender": "h1", "receivers": ["h3"], "kind": "circuit"}
        await rest.call("POST", "/v1/paths", 201, json=body)
        await rest.call("POST", "/v1/paths", 201, json=body)
        assert "ask again later" in (await rest.call("POST", "/v1/paths", 503, json=body))["detail"]


async def test_counters__of_paths_and_switches_that_count(tmp_path: Path) -> None:
    mixed = load_text(with_kind((FOLDER / "hybrid-4x2.yaml").read_text(), "mixed"))
    async with running(tmp_path, topology=mixed) as manager, httpx.AsyncClient(base_url=manager.url) as http:
        rest = await Client.with_document(http)
        body = {"sender": "h1", "receivers": ["h3", "h5"], "kind": "packet"}
        path = await rest.call("POST", "/v1/paths", 201, json=body)
        found = await rest.call("GET", f"/v1/paths/{path['id']}/counters", 200)
        assert [row["switch"] for row in found["switches"]] == ["tor1", "tor2", "tor3"] and found["without"] == ["core"]
        one = {"packets": 1, "bytes": 100}
        assert found["switches"][1]["delivered"] == [{**one, "port": 1, "to": "h3"}]
        ports = (await rest.call("GET", "/v1/switches/tor1/counters", 200))["ports"]
        assert ports[0]["to"] == "h1" and ports[0]["refused"] == {"packets": 5, "bytes": 500}
        assert ports[0]["control_excess"] == {"packets": 2, "bytes": 200}
        answer = await rest.call("GET", "/v1/switches/core/counters", 409)
        assert "no P4 switch" in answer["detail"]
        await rest.call("GET", "/v1/switches/tor9/counters", 404)
        await rest.call("GET", "/v1/paths/p-none/counters", 404)
        manager.fabric.broken["tor2"] = "its Read: UNAVAILABLE"
        answer = await rest.call("GET", f"/v1/paths/{path['id']}/counters", 503)
        assert "tor2: its Read: UNAVAILABLE" in answer["detail"]


async def test_first_light__is_in_the_path(tmp_path: Path) -> None:
    every = load_text(with_kind((FOLDER / "hybrid-4x2.yaml").read_text(), "p4"))
    async with running(tmp_path, topology=every) as manager, httpx.AsyncClient(base_url=manager.url) as http:
        rest = await Client.with_document(http)
        path = await rest.call("POST", "/v1/paths", 201, json={"sender": "h1", "receivers": ["h3", "h5"]})
        assert path["first_light"] == []
        manager.fabric.light(Light("tor2", 50, IPv4Address(path["group"]), 0, 41))
        (row,) = (await rest.call("GET", f"/v1/paths/{path['id']}", 200))["first_light"]
        assert (row["rack"], row["port"], row["sn"]) == ("tor2", 50, 41)
        assert row["at_ns"] >= path["timeline"]["accepted_ns"]
        assert row["after_ms"] == pytest.approx((row["at_ns"] - path["timeline"]["accepted_ns"]) / 1e6)
