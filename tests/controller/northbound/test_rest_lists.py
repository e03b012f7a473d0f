"""Requests that are repeated, and lists that are read page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from rostrum.controller.core.values import Settings
from rostrum.controller.northbound.rest.access import GUARDED, AccessOptions, new_token

from tests.controller.fakes import Running, running

BODY = {"sender": "h1", "receivers": ["h3"], "kind": "packet"}


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as made:
        yield made


@pytest.fixture
async def http(manager: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=manager.url, trust_env=False) as made:
        yield made


async def test_repeated__same_key_and_body_is_the_same_path(http: httpx.AsyncClient, manager: Running) -> None:
    key = {"Idempotency-Key": "job-17"}
    first = await http.post("/v1/paths", json=BODY, headers=key)
    again = await http.post("/v1/paths", json={**BODY, "size": None}, headers=key)  # the same, said otherwise
    assert first.status_code == again.status_code == 201
    assert first.json()["id"] == again.json()["id"] and first.headers["location"] == again.headers["location"]
    other = await http.post("/v1/paths", json=BODY, headers={"Idempotency-Key": "job-18"})
    without = await http.post("/v1/paths", json=BODY)
    assert len({first.json()["id"], other.json()["id"], without.json()["id"]}) == 3
    misused = await http.post("/v1/paths", json={**BODY, "receivers": ["h4"]}, headers=key)
    assert misused.status_code == 422 and "take a new key" in misused.json()["detail"]
    assert misused.headers["content-type"] == "application/problem+json"
    assert len(manager.app.runtime.manager.core.paths) == 3
    await http.delete(first.headers["location"])
    assert (await http.post("/v1/paths", json=BODY, headers=key)).json()["state"] == "released"


async def test_repeated__a_denied_request_stays_denied(http: httpx.AsyncClient) -> None:
    key, body = {"Idempotency-Key": "k"}, {"sender": "h1", "receivers": ["h2"], "kind": "circuit"}
    answers = [await http.post("/v1/paths", json=body, headers=key) for _ in range(2)]
    assert [one.status_code for one in answers] == [409, 409]
    assert answers[0].json() == answers[1].json() and answers[0].json()["path"]


async def test_repeated__what_was_refused_can_be_mended(http: httpx.AsyncClient) -> None:
    key = {"Idempotency-Key": "k"}
    assert (await http.post("/v1/paths", json={**BODY, "receivers": ["h99"]}, headers=key)).status_code == 422
    assert (await http.post("/v1/paths", json=BODY, headers=key)).status_code == 201


@pytest.mark.parametrize("key", ["", "x" * 129, "with space", "tab\tin"])
async def test_repeated__keys_have_a_form(http: httpx.AsyncClient, manager: Running, key: str) -> None:
    answer = await http.post("/v1/paths", json=BODY, headers={"Idempotency-Key": key})
    assert answer.status_code == 422 and "idempotency-key" in answer.json()["detail"].lower()
    assert not manager.app.runtime.manager.core.paths


async def test_repeated__keys_belong_to_their_caller(manager: Running, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    tokens = [new_token(file, name, "t", "write") for name in ("alice", "bob")]
    manager.app.access.options = AccessOptions(tokens=file)
    port = await manager.app.http.listen_tcp("127.0.0.1", 0, GUARDED)
    made = set()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
        for token in tokens * 2:
            headers = {"Idempotency-Key": "1", "Authorization": f"Bearer {token}"}
            made.add((token, (await http.post("/v1/paths", json=BODY, headers=headers)).json()["id"]))
    assert len(made) == len({path for _, path in made}) == 2


async def test_repeated__a_key_whose_path_is_forgotten_makes_no_second_one(tmp_path: Path) -> None:
    async with (
        running(tmp_path, Settings(boot_id=12345, history_max=2)) as manager,
        httpx.AsyncClient(base_url=manager.url, trust_env=False) as http,
    ):
        first = (await http.post("/v1/paths", json=BODY, headers={"Idempotency-Key": "k"})).json()["id"]
        await http.delete(f"/v1/paths/{first}")
        for _ in range(3):
            path = (await http.post("/v1/paths", json=BODY)).json()["id"]
            await http.delete(f"/v1/paths/{path}")
        assert (await http.get(f"/v1/paths/{first}")).status_code == 404
        again = await http.post("/v1/paths", json=BODY, headers={"Idempotency-Key": "k"})
        assert again.status_code == 410 and first in again.json()["detail"]


async def test_pages__every_path_once_though_new_ones_come(http: httpx.AsyncClient) -> None:
    made = [(await http.post("/v1/paths", json=BODY)).json()["id"] for _ in range(7)]
    for path in made[::2]:
        await http.delete(f"/v1/paths/{path}")
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = (await http.get("/v1/paths", params={"limit": 3, **after})).json()
        seen += [one["id"] for one in page["paths"]]
        await http.post("/v1/paths", json=BODY)
        if page["next"] is None:
            break
        assert len(page["paths"]) == 3
        after = {"after": page["next"]}
    assert seen == made[::-1]
    released = (await http.get("/v1/paths", params={"state": "released", "limit": 4})).json()
    assert [one["id"] for one in released["paths"]] == made[::-2] and released["next"] is None
    lost = await http.get("/v1/paths", params={"after": "p-none"})
    assert lost.status_code == 422 and "begin again without it" in lost.json()["detail"]


async def test_pages__of_transfers(http: httpx.AsyncClient, manager: Running) -> None:
    agent = await manager.agent("h1")
    for number in range(5):
        agent.request(f"r{number}", "h1", "h3", data_id=number)
        await agent.response(f"r{number}", 3 if number else 1)
    first = (await http.get("/v1/transfers", params={"limit": 3})).json()
    rest = (await http.get("/v1/transfers", params={"limit": 3, "after": first["next"]})).json()
    assert [one["data_id"] for one in first["transfers"] + rest["transfers"]] == [4, 3, 2, 1, 0]
    assert rest["next"] is None
    assert (await http.get("/v1/transfers", params={"after": "t-none"})).status_code == 422
    await agent.close()
