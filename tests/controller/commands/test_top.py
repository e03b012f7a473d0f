"""`rostrum top`: once, as JSON, and by keys in a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from rostrum.controller.commands.top import top
from rostrum.controller.northbound.thrift.codec import idl

from tests.controller.fakes import Running, running

TIMEOUT_S = 20.0


@pytest.fixture
async def busy(tmp_path: Path) -> AsyncIterator[Running]:
    """A transfer of which one receiver failed."""
    async with running(tmp_path) as made:
        agent = await made.agent("h1")
        agent.request("r1", "h1", "h3", "h5")
        path = (await agent.response("r1", 1)).response_id
        rows = [
            idl.ReceiverReport("h3", "done", "", 0, 0, 1, 1),
            idl.ReceiverReport("h5", "failed", "said [red]nothing", 0, 0, 0, 0),
        ]
        agent.say("report", report=idl.TransferReport("r1", path, "patching", "said [red]nothing", 1, 1, 0, 0, rows))
        await agent.close()
        yield made


async def ask(manager: Running, *options: str) -> str:
    text = ["--manager", manager.url, *options]
    result = await asyncio.to_thread(CliRunner().invoke, top, text)
    assert result.exit_code == 0, result.output
    return result.output


async def test_top__once_and_as_json(busy: Running) -> None:
    text = await ask(busy, "--once")
    for message in ("rostrum hybrid-4x2  ready", "tor1", "splitters: ", "1 under way", "said [red]nothing", "0 groups"):
        assert message in text
    found = json.loads(await ask(busy, "--once", "--json"))
    assert found["transfers"]["rows"][0]["failed"] == ["h5"]
    assert "findings" in json.loads(await ask(busy, "--once", "--json", "--view", "doctor"))["doctor"]
    for view, message in (("doctor", "error"), ("light", "circuit"), ("fabric", "rack")):
        assert message in await ask(busy, "--once", "--view", view)


def until_shown(terminal: int, text: bytes, seen: bytes = b"") -> None:
    while text not in seen:
        assert select.select([terminal], [], [], TIMEOUT_S)[0], f"not shown: {text!r} in {seen[-2000:]!r}"
        seen += os.read(terminal, 65536)


def start(url: str, terminal: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from rostrum.client.cli import main; main()", "top", "--manager", url]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    return subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)


async def test_top__in_a_terminal_by_keys(busy: Running) -> None:
    ours, its = pty.openpty()
    program = start(busy.url, its)
    os.close(its)
    try:
        await asyncio.to_thread(until_shown, ours, b"under way")
        for key, text in ((b"2", b"splitters:"), (b"4", b"groups at"), (b"5", b"object"), (b"9", b"object")):
            os.write(ours, key)
            await asyncio.to_thread(until_shown, ours, text)
        os.write(ours, b"q")
        assert await asyncio.to_thread(program.wait, TIMEOUT_S) == 0
    finally:
        program.kill()
        program.wait()
        os.close(ours)
