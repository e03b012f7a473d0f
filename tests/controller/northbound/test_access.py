"""Who may use REST, and what the audit log keeps."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from rostrum.controller.app import main
from rostrum.controller.commands.paths import manager as manager_commands
from rostrum.controller.commands.pki import pki
from rostrum.controller.keyvalue import SparingBySource
from rostrum.controller.northbound.rest.access import (
    GUARDED,
    LOOPBACK,
    OPEN,
    Access,
    AccessError,
    AccessOptions,
    new_token,
    read,
)

from tests.controller.certificates import Authority
from tests.controller.fakes import Running, running

BODY = {"sender": "h1", "receivers": ["h3"]}


async def guarded(manager: Running, options: AccessOptions, required: bool = False) -> int:
    """One more door to the manager, on loopback, as it would be elsewhere; its port."""
    manager.app.access.options = options
    manager.app.access.required = required
    return await manager.app.http.listen_tcp("127.0.0.1", 0, GUARDED, manager.app.access.tls(GUARDED))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_tokens__who_may_what(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "rostrum.audit")
    file = tmp_path / "tokens"
    reader, writer = new_token(file, "bob", "physics", "read"), new_token(file, "alice", "physics", "write")
    assert writer not in file.read_text() and file.stat().st_mode & 0o027 == 0
    async with running(tmp_path) as manager:
        port = await guarded(manager, AccessOptions(tokens=file))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            for wrong in ({}, bearer("x"), bearer("x y"), bearer("é" * 300), {"Authorization": f"Basic {writer}"}):
                headers = {key: value.encode() for key, value in wrong.items()}
                for place in ("/v1/health", "/metrics", "/openapi.json", "/v1/overview", "/v1/caller", "/nowhere"):
                    answer = await http.get(place, headers=headers)
                    assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
                    assert answer.headers["content-type"] == "application/problem+json"
                    assert "rostrum manager token" in answer.json()["detail"]
            assert (await http.post("/v1/paths", json=BODY)).status_code == 401
            assert not manager.app.runtime.manager.core.paths
            assert (await http.get("/v1/health", headers=bearer(reader))).status_code == 200
            refused = await http.post("/v1/paths", json=BODY, headers=bearer(reader))
            assert refused.status_code == 403 and "bob may only read" in refused.json()["detail"]
            made = await http.post("/v1/paths", json=BODY, headers=bearer(writer))
            assert made.status_code == 201
            path = made.json()["id"]
            assert (await http.delete(f"/v1/paths/{path}", headers=bearer(reader))).status_code == 403
            assert (await http.delete(f"/v1/paths/{path}", headers=bearer(writer))).status_code == 200
        async with httpx.AsyncClient(base_url=manager.url, trust_env=False) as http:
            assert (await http.post("/v1/paths", json=BODY)).status_code == 201  # loopback: nobody is asked
    lines = [record.message for record in caplog.records if record.name == "rostrum.audit"]
    who = [(line.split("who=")[1].split()[0], line.split("status=")[1].split()[0]) for line in lines]
    expected = [("unknown", "401"), ("bob", "403"), ("alice", "201"), ("bob", "403"), ("alice", "200")]
    assert who == [*expected, ("loopback", "201")]
    assert "tenant=physics peer=127.0.0.1:" in lines[2] and f"made=/v1/paths/{path}" in lines[2]
    assert f"method=DELETE target=/v1/paths/{path}" in lines[4]
    assert not any(token in line for line in lines for token in (reader, writer))


async def test_tokens__read_anew_when_the_file_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "tokens"
    first = new_token(file, "alice", "t", "read")
    async with running(tmp_path) as manager:
        port = await guarded(manager, AccessOptions(tokens=file))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:

            async def status(token: str) -> int:
                return (await http.get("/v1/health", headers=bearer(token))).status_code

            assert await status(first) == 200
            second = new_token(file, "bob", "t", "read")
            assert await status(second) == 200
            good = file.read_text()
            file.write_text(good + "nonsense\n")
            assert await status(second) == 200
            assert "tokens not read" in caplog.text and "line 3: write NAME TENANT read|write" in caplog.text
            file.write_text("\n".join(line for line in good.splitlines() if not line.startswith("alice")) + "\n# end\n")
            assert (await status(first), await status(second)) == (401, 200)


def test_door__outside_loopback_somebody_must_be_asked(tmp_path: Path) -> None:
    new_token(tmp_path / "tokens", "alice", "t", "read")
    asked = Access(AccessOptions(tokens=tmp_path / "tokens"))
    for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        assert Access(AccessOptions()).door(host) is asked.door(host) is LOOPBACK
    for host in ("10.255.0.1", "0.0.0.0", "::", "2001:db8::1", "manager"):
        with pytest.raises(AccessError, match="--rest-tokens FILE"):
            Access(AccessOptions()).door(host)
        with pytest.raises(AccessError, match="--rest-open"):  # encryption alone asks nobody
            Access(AccessOptions(tls=(tmp_path / "c", tmp_path / "k"))).door(host)
        assert asked.door(host) is GUARDED
        assert Access(AccessOptions(open=True)).door(host) is OPEN


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "REST would listen on 192.0.2.1"),
        (["--rest-tokens", "/nowhere/tokens"], "the token file cannot be read"),
        (["--rest-client-ca", "/nowhere/ca"], "--rest-client-ca needs"),
        (["--rest-open", "--rest-tokens", "/nowhere/tokens"], "--rest-open lets everybody in"),
    ],
)
def test_program__does_not_start_open(tmp_path: Path, options: list[str], text: str) -> None:
    command = ["--topology", "hybrid-4x2", "--run", str(tmp_path), "--listen", "192.0.2.1", *options]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1 and text in result.output and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alice t write", "line 1: write NAME TENANT"),
        ("# mine\nalice t write sha256:12", "line 2: write NAME TENANT"),
        (f"alice t admin sha256:{'0' * 64}", "the role is admin"),
        (f"al/ice t read sha256:{'0' * 64}", "names and tenants"),
        (f"a t read sha256:{'0' * 64}\nb t read sha256:{'0' * 64}", "line 2: the same credential twice"),
    ],
)
def test_token_file__wrong_lines_are_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    file.chmod(0o640)
    with pytest.raises(AccessError, match=message):
        read(file)
    file.chmod(0o666)
    with pytest.raises(AccessError, match="written by others"):
        read(file)


def test_command__makes_a_token(tmp_path: Path) -> None:
    command = ["token", "alice", "--file", str(tmp_path / "tokens"), "--tenant", "physics", "--role", "write"]
    made = CliRunner().invoke(manager_commands, command)
    assert made.exit_code == 0 and len(made.output.strip()) >= 43
    (caller,) = read(tmp_path / "tokens").values()
    assert (caller.name, caller.tenant, caller.role) == ("alice", "physics", "write")
    again = CliRunner().invoke(manager_commands, command)
    assert again.exit_code == 1 and "has a caller alice already" in again.output


async def test_refused_writes__a_few_lines_for_each_source_and_a_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "rostrum.audit")
    clock = [1000.0]
    monkeypatch.setattr("rostrum.controller.northbound.rest.access._now_s", lambda: clock[0])
    file = tmp_path / "tokens"
    reader, writer = new_token(file, "bob", "physics", "read"), new_token(file, "alice", "physics", "write")

    def lines() -> list[str]:
        found = [record.message for record in caplog.records if record.name == "rostrum.audit"]
        caplog.clear()
        return found

    async with running(tmp_path) as manager:
        port = await guarded(manager, AccessOptions(tokens=file))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            for _ in range(50):
                assert (await http.post("/v1/paths", json=BODY)).status_code == 401
            assert len(lines()) == 5
            assert (await http.post("/v1/paths", json=BODY, headers=bearer(reader))).status_code == 403
            assert [("who=bob" in one, "not_logged" in one) for one in lines()] == [(True, False)]
            for _ in range(8):  # who may is told of each time
                made = await http.post("/v1/paths", json=BODY, headers=bearer(writer))
                await http.delete(made.headers["location"], headers=bearer(writer))
            assert len(lines()) == 16
            clock[0] += 11
            await http.post("/v1/paths", json=BODY)
            assert [one.rsplit(" ", 1)[1] for one in lines()] == ["not_logged=45"]


def test_refused_writes__of_sources_without_end_are_bounded_and_counted() -> None:
    lines = SparingBySource(5, 50, 10.0, sources_max=16)
    told = [lines.may(f"10.0.{n // 100}.{n % 100}", 0.0) for n in range(1000)]
    assert sum(one is not None for one in told) == 50 and len(lines._sources) == 16
    assert lines.may("10.9.9.9", 11.0) == 950


@pytest.mark.parametrize("with_tokens", [False, True])
async def test_mutual_tls__a_certificate_says_who(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, with_tokens: bool
) -> None:
    caplog.set_level("INFO", "rostrum.audit")
    ours, others = Authority(tmp_path, "ours"), Authority(tmp_path, "others")
    tokens = tmp_path / "tokens" if with_tokens else None
    token = ""
    if tokens:
        token = new_token(tokens, "carol", "t", "write")
        with tokens.open("a") as out:
            out.write("ann physics read tls:alice\n")
    options = AccessOptions(tokens, ours.sign("server"), ours.certificate)
    async with running(tmp_path) as manager:
        port = await guarded(manager, options)

        async def post(pair: tuple[Path, Path] | None, headers: dict[str, str] | None = None) -> int:
            context = ssl.create_default_context(cafile=str(ours.certificate))
            if pair:
                context.load_cert_chain(*map(str, pair))
            url = f"https://localhost:{port}"
            async with httpx.AsyncClient(base_url=url, verify=context, trust_env=False, headers=headers) as http:
                return (await http.post("/v1/paths", json=BODY)).status_code

        with pytest.raises(httpx.TransportError):
            await post(others.sign("alice"))
        if with_tokens:
            assert await post(ours.sign("alice")) == 403  # named in the file, with role read
            assert await post(ours.sign("stranger")) == 403
            assert await post(ours.sign("h1", uris=["rostrum:agent:h1"]), bearer(token)) == 201  # by the token
            assert await post(None) == 401
            assert await post(None, bearer(token)) == 201
        else:
            assert await post(ours.sign("alice", uris=["rostrum:operator"])) == 201
            with pytest.raises(httpx.TransportError):
                await post(None)
    assert ("who=ann tenant=physics" if with_tokens else "who=alice") in caplog.text


@pytest.mark.parametrize(
    ("name", "uris", "status", "text"),
    [
        ("h1", ["rostrum:agent:h1"], 403, "is for h1 (agent), and is worth nothing here"),
        ("tor1", ["rostrum:switch:tor1"], 403, "is for tor1 (switch)"),
        ("manager", ["rostrum:manager"], 403, "(manager), and is worth nothing here"),
        ("h1", [], 403, "says no role: have it signed again with subjectAltName=URI:rostrum:operator:h1"),
        ("h1", ["rostrum:operators:h1"], 403, "is for h1 (operators)"),
        ("alice", ["rostrum:operator:alice"], 201, ""),
        ("bob", ["rostrum:reader:bob"], 403, "bob may only read"),
        ("alice", ["https://example.org", "rostrum:operator", "rostrum:agent:h1"], 201, ""),
    ],
)
@pytest.mark.parametrize("listed", [False, True])
async def test_roles__an_agents_certificate_is_worth_nothing_at_rest(
    tmp_path: Path, name: str, uris: list[str], status: int, text: str, listed: bool
) -> None:
    """One CA signs for all. A line in the token file makes up for no role, and not for another one."""
    ours = Authority(tmp_path, "ours")
    tokens = tmp_path / "tokens" if listed else None
    if tokens:
        tokens.write_text(f"someone t write tls:{name}\n")
        tokens.chmod(0o640)
        status = 201 if not uris or uris == ["rostrum:reader:bob"] else status  # the line says what a reader may
    context = ssl.create_default_context(cafile=str(ours.certificate))
    context.load_cert_chain(*map(str, ours.sign(name, uris=uris)))
    async with running(tmp_path) as manager:
        options = AccessOptions(tokens, ours.sign("server"), ours.certificate)
        port = await guarded(manager, options)
        manager.app.access.reload()
        async with httpx.AsyncClient(base_url=f"https://localhost:{port}", verify=context, trust_env=False) as http:
            answer = await http.post("/v1/paths", json=BODY)
        assert answer.status_code == status
        assert status == 201 or text in answer.json()["detail"]
        assert bool(manager.app.runtime.manager.core.paths) == (status == 201)


def shown_by(folder: Path, name: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.check_hostname = False
    ending = "revoked" if (folder / f"{name}.revoked").exists() else "pem"
    context.load_cert_chain(folder / f"{name}.{ending}", folder / f"{name}.key")
    return context


async def test_required__tls_13_alone_and_revocation_and_renewal_without_a_restart(tmp_path: Path) -> None:
    ca = tmp_path / "ca"

    def run(*words: str) -> None:
        done = CliRunner().invoke(pki, [*words, "--dir", str(ca)])
        assert done.exit_code == 0, done.output

    assert CliRunner().invoke(pki, ["init", str(ca)]).exit_code == 0
    run("issue", "manager", "manager", "--address", "127.0.0.1")
    run("issue", "operator", "alice", "carol")
    async with running(tmp_path / "run") as manager:
        options = AccessOptions(None, (ca / "manager.pem", ca / "manager.key"), ca / "ca.pem")
        port = await guarded(manager, options, required=True)
        url = f"https://127.0.0.1:{port}"
        older = shown_by(ca, "alice")
        older.maximum_version = ssl.TLSVersion.TLSv1_2
        async with httpx.AsyncClient(base_url=url, verify=older, trust_env=False) as http:
            with pytest.raises(httpx.TransportError):
                await http.get("/v1/health")
        async with (
            httpx.AsyncClient(base_url=url, verify=shown_by(ca, "alice"), trust_env=False) as alice,
            httpx.AsyncClient(base_url=url, verify=shown_by(ca, "carol"), trust_env=False) as carol,
        ):
            for http in (alice, carol):
                assert (await http.get("/v1/health")).status_code == 200
            run("revoke", "alice")
            run("issue", "manager", "manager", "--address", "127.0.0.1", "--replace")

            async def refused() -> bool:
                try:
                    return (await alice.get("/v1/health")).status_code != 200
                except httpx.TransportError:
                    return True

            end = asyncio.get_running_loop().time() + 60
            while not await refused():
                assert asyncio.get_running_loop().time() < end
                await asyncio.sleep(0.05)
            assert (await carol.get("/v1/health")).status_code == 200
            new = ssl.PEM_cert_to_DER_cert((ca / "manager.pem").read_text())
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=shown_by(ca, "carol"))
            assert writer.get_extra_info("ssl_object").getpeercert(True) == new
            writer.close()
