"""What a tenant's callers see of REST: their tenant's paths, groups and objects, and no word of the others'."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from rostrum.controller.commands.pki import pki
from rostrum.controller.northbound.rest.access import GUARDED, AccessOptions, new_token
from rostrum.controller.northbound.thrift.keys import Keys

from tests.controller.core.test_tenants import with_tenants
from tests.controller.fakes import running
from tests.controller.northbound.test_access import bearer, shown_by
from tests.controller.timeline import hybrid


async def test_callers_of_a_tenant_see_and_do_what_is_theirs(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    tokens = {name: bearer(new_token(file, name, name, "write")) for name in ("blue", "red", "network", "typo")}
    topology = with_tenants(hybrid(), "blue.*")
    async with running(tmp_path / "run", topology=topology) as manager:
        access = manager.app.access
        access.options = AccessOptions(tokens=file)
        port = await manager.app.http.listen_tcp("127.0.0.1", 0, GUARDED, access.tls(GUARDED))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:

            async def ask(who: str, method: str, place: str, **body: object) -> httpx.Response:
                return await http.request(method, place, headers=tokens[who], json=body or None)

            made = {}
            for who, sender, receiver in (("blue", "h1", "h3"), ("red", "h2", "h4")):
                answer = await ask(who, "POST", "/v1/paths", sender=sender, receivers=[receiver])
                assert answer.status_code == 201
                made[who] = answer.json()["id"]
            refused = await ask("blue", "POST", "/v1/paths", sender="h2", receivers=["h4"])
            assert refused.status_code == 422 and "not of blue" in refused.text
            refused = await ask("network", "POST", "/v1/paths", sender="h1", receivers=["h4"])
            assert refused.status_code == 422 and "stays within a tenant" in refused.text
            for who, other in (("blue", "red"), ("red", "blue")):
                listed = (await ask(who, "GET", "/v1/paths")).json()["paths"]
                assert [one["id"] for one in listed if one["state"] != "failed"] == [made[who]]
                assert (await ask(who, "GET", f"/v1/paths/{made[who]}/why")).status_code == 200
                for method, more in (("GET", ""), ("DELETE", ""), ("POST", "/renew"), ("PUT", "/receivers/h5")):
                    assert (await ask(who, method, f"/v1/paths/{made[other]}{more}")).status_code == 404
                for place in ("/v1/topology", "/v1/events", "/metrics", "/v1/transfers", "/v1/overview", "/v1/rules"):
                    answer = await ask(who, "GET", place)
                    assert answer.status_code == 403 and "look after the network" in answer.text
                assert [one["name"] for one in (await ask(who, "GET", "/v1/tenants")).json()["tenants"]] == [who]
                assert (await ask(who, "GET", "/v1/objects")).json()["objects"] == []
            every = (await ask("network", "GET", "/v1/paths")).json()["paths"]
            assert {one["id"] for one in every} >= set(made.values())
            assert (await ask("network", "GET", "/v1/topology")).status_code == 200
            for place in ("/v1/paths", "/v1/topology"):
                answer = await ask("typo", "GET", place)
                assert answer.status_code == 403 and "no tenant typo" in answer.text
            refused = await ask("red", "POST", "/v1/groups", name="blue.x", protocol="plain")
            assert refused.status_code == 403 and "no name of tenant red" in refused.text
            assert (await ask("blue", "DELETE", f"/v1/paths/{made['blue']}")).status_code == 200


async def test_a_certificate_says_the_tenant(tmp_path: Path) -> None:
    ca = tmp_path / "ca"
    assert CliRunner().invoke(pki, ["init", str(ca)]).exit_code == 0
    for words in (("manager", "manager", "--address", "127.0.0.1"), ("operator", "alice", "--tenant", "blue")):
        assert CliRunner().invoke(pki, ["issue", *words, "--dir", str(ca)]).exit_code == 0
    async with running(tmp_path / "run", topology=with_tenants(hybrid())) as manager:
        access = manager.app.access
        access.options = AccessOptions(None, (ca / "manager.pem", ca / "manager.key"), ca / "ca.pem")
        port = await manager.app.http.listen_tcp("127.0.0.1", 0, GUARDED, access.tls(GUARDED))
        url = f"https://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url, verify=shown_by(ca, "alice"), trust_env=False) as http:
            assert (await http.get("/v1/caller")).json()["name"] == "alice"
            assert (await http.get("/v1/topology")).status_code == 403
            answer = await http.post("/v1/paths", json={"sender": "h2", "receivers": ["h4"]})
            assert answer.status_code == 422


@pytest.mark.parametrize("role", ["switch", "manager"])
def test_a_tenant_has_no_switches_and_managers(role: str, tmp_path: Path) -> None:
    assert CliRunner().invoke(pki, ["init", str(tmp_path / "ca")]).exit_code == 0
    words = ["issue", role, "h1", "--tenant", "blue", "--dir", str(tmp_path / "ca")]
    assert "--tenant is of agents, operators and readers" in CliRunner().invoke(pki, words).output


def test_keys__of_another_tenants_agent_are_not_to_be_had() -> None:
    topology = with_tenants(hybrid())
    addresses = {name: one.address for name, one in topology.servers.items()}
    keys = Keys(lambda: 0.0, addresses, tenant_of=topology.tenant_of)
    for name in addresses:
        keys.hello(name)
    assert [one.server for one in keys.wish("h1", ["h2", "h3", "h4", "h5"])] == ["h3", "h5"]
