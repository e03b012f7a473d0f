"""The manager's audit: who asked for what, by REST and as an agent, appended to a file that may be rotated."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest
from rostrum.controller.access_options import SecurityOptions
from rostrum.controller.audit import TEXT_MAX, Audit, AuditError
from rostrum.controller.northbound.rest.access import AccessOptions, new_token

from tests.controller.certificates import Authority
from tests.controller.fakes import running, until
from tests.controller.northbound.test_access import bearer, guarded
from tests.controller.northbound.test_thrift_tls import client


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_agents_and_callers_are_written_down_by_their_certificates(tmp_path: Path) -> None:
    ours, file, tokens = Authority(tmp_path, "ours"), tmp_path / "audit", tmp_path / "tokens"
    token = new_token(tokens, "alice", "physics", "write")
    options = SecurityOptions(thrift_tls=(*ours.sign("manager"), ours.certificate), audit=file)
    async with running(tmp_path / "run", security=options) as manager:
        agent = await manager.agent("h1", tls=client(ours, ours.sign("h1", dns=(), uris=["rostrum:agent:h1"])))
        agent.request("r1", "h1", "h3", "h5")
        await agent.response("r1", 1)
        port = await guarded(manager, AccessOptions(tokens, ours.sign("server"), ours.certificate))
        async with httpx.AsyncClient(
            base_url=f"https://localhost:{port}", verify=client(ours, ours.sign("bob", uris=["rostrum:agent:h2"])),
            trust_env=False,
        ) as http:  # fmt: skip
            body = {"sender": "h2", "receivers": ["h4"]}
            assert (await http.post("/v1/paths", json=body)).status_code == 403
            assert (await http.post("/v1/paths", json=body, headers=bearer(token))).status_code == 201
        await until(lambda: len(rows(file)) >= 5, "all that was asked")
        found = rows(file)
        file.rename(tmp_path / "audit.1")
        manager.app.reload()
        assert (await httpx.AsyncClient(trust_env=False).get(manager.url)).status_code
        assert rows(file) == []
        agent.say("leave_group", group="news")
        await until(lambda: rows(file), "what came after the rotation")
        assert [(one["what"], one["group"]) for one in rows(file)] == [("leave_group", "news")]
    asked = next(one for one in found if one["what"] == "request")
    assert asked["who"] == "h1 (agent)" and asked["receivers"] == ["h3", "h5"] and asked["request"] == "r1"
    assert any(one["what"] == "accepted" and one["request"] == "r1" for one in found)
    refused, made = (one for one in found if one["door"] == "rest")
    assert (refused["who"], refused["certificate"], refused["status"]) == ("unknown", "h2 (agent)", 403)
    assert (made["who"], made["tenant"], made["status"]) == ("alice", "physics", 201)
    assert made["made"].startswith("/v1/paths/") and token not in file.read_text()
    assert file.stat().st_mode & 0o037 == 0


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for wrong in ("pipe", "link", "none/file", "."):
        with pytest.raises(AuditError, match="--audit"):
            Audit(tmp_path / wrong)
    assert not (tmp_path / "elsewhere").exists()


def test_what_others_say_is_bounded_and_one_line(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit")
    audit.note("rest", "a\nb", "", "POST", target="x" * 10_000, many=["y" * 1000] * 1000)
    audit.close()
    (one,) = rows(tmp_path / "audit")
    assert one["who"] == "a\nb" and len(one["target"]) == TEXT_MAX and len(json.dumps(one)) < 20_000


def test_a_full_disk_is_told_and_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit(tmp_path / "audit")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, audit._handle)
    os.close(full)
    audit.note("rest", "a", "", "POST")
    audit.note("rest", "a", "", "POST")
    assert audit.lost == 2 and "audit not written" in caplog.text
    audit.reopen()
    audit.note("rest", "b", "", "POST")
    audit.close()
    assert [one["who"] for one in rows(tmp_path / "audit")] == ["b"]
