"""The command line against a running manager."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result
from rostrum.controller.commands.paths import circuits, paths
from rostrum.controller.commands.paths import manager as manager_group
from rostrum.controller.core.values import Decision
from rostrum.sim import workload
from rostrum.topologies import load

from tests.controller.fakes import Running, running

ACCEPTED = Decision.ACCEPTED.value


async def invoke(manager: Running | str, *fields: str) -> Result:
    """In a thread: the manager answers on this one."""
    where = manager if isinstance(manager, str) else str(manager.app.socket)
    group = click.Group("rostrum", {one.name: one for one in (paths, circuits, manager_group) if one.name})
    return await asyncio.to_thread(CliRunner().invoke, group, [*fields], env={"ROSTRUM_MANAGER": where})


async def ask(manager: Running, *fields: str) -> Any:
    result = await invoke(manager, *fields, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def test_paths__from_request_to_release(tmp_path: Path) -> None:
    async with running(tmp_path) as manager:
        made = await ask(manager, "paths", "request", "h1", "h3", "h5", "--wait")
        assert made["state"] == "active"
        shown = await invoke(manager, "paths", "show", made["id"])
        assert made["group"] in shown.output and "1>5" in shown.output and "cross connects steady" in shown.output
        for fields in (["paths"], ["paths", "list"], ["paths", "list", "--state", "active"]):
            assert [one["id"] for one in (await ask(manager, *fields))["paths"]] == [made["id"]]
        shown = await invoke(manager, "paths", "--json", "show", made["id"])
        assert json.loads(shown.stdout)["id"] == made["id"]
        listed = await invoke(manager, "paths")
        assert made["id"] in listed.output and "circuit" in listed.output
        table = await invoke(manager, "circuits", "--fresh")
        assert "ocs 1>5" in table.output and made["id"] in table.output and "s1" in table.output
        released = await invoke(manager, "paths", "release", made["id"])
        assert released.exit_code == 0 and "released" in released.output
        status = await invoke(manager, "manager", "status")
        assert "5 of 5 connected" in status.output and "ready" in status.output


async def test_trace__is_one_the_simulator_replays(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    async with running(tmp_path) as manager:
        agent = await manager.agent("h1")
        agent.request("r1", "h1", "h3", "h5", size=1000)
        await agent.response("r1", ACCEPTED)
        agent.request("r2", "h1", "h7", size=0)
        await agent.response("r2", ACCEPTED)
        done = await invoke(manager, "manager", "trace", "-o", str(file))
        assert "2 requests" in done.output
        await agent.close()
    first, second = workload.read(file, load("hybrid-4x2"))
    assert (first.at, first.sender, first.receivers, first.size) == (0, "h1", ("h3", "h5"), 1000)
    assert second.at > 0 and second.receivers == ("h7",)


async def test_errors__are_the_managers_text(tmp_path: Path) -> None:
    async with running(tmp_path) as manager:
        unknown = await invoke(manager, "paths", "request", "h1", "h99")
        assert unknown.exit_code == 1 and "h99 not in topology hybrid-4x2" in unknown.output
        absent = await invoke(manager, "paths", "show", "p-none")
        assert absent.exit_code == 1 and "there is no path 'p-none'" in absent.output
        odd = await invoke(manager, "paths", "show", "../../x")
        assert odd.exit_code == 2 and "is no path's id" in odd.output
        over_tcp = await invoke(f"127.0.0.1:{manager.app.rest_port}", "manager", "status")
        assert over_tcp.exit_code == 0
    nobody = await invoke(str(tmp_path / "none.sock"), "circuits")
    assert nobody.exit_code == 1 and "rostrum lab up" in nobody.output


async def test_help__teaches() -> None:
    shown = await invoke("", "paths", "--help")
    assert "rostrum paths request h1 h3 h5 --wait" in shown.output
    run = await invoke("", "manager", "run", "--help")
    assert "--topology" in run.output and "--circuit-wait" in run.output
