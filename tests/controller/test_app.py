"""The program: its start, its end, its errors; and the order in which devices are told."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rostrum.controller.app import main
from rostrum.controller.core.model import Pair
from rostrum.controller.core.values import State
from rostrum.controller.keyvalue import line
from rostrum.controller.runtime.sequencer import Sequencer

from tests.controller.core.test_failures import TWO_CORES
from tests.controller.fakes import running, until

OPTIONS = ("--listen", "127.0.0.1", "--thrift-port", "0", "--rest-port", "0", "--openflow-port", "0")


def test_program__starts_and_ends_orderly(tmp_path: Path) -> None:
    topology = tmp_path / "two.yaml"
    topology.write_text(TWO_CORES)
    command = [
        sys.executable,
        "-m",
        "rostrum.controller",
        "--topology",
        str(topology),
        "--run",
        str(tmp_path),
        *OPTIONS,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as program:
        try:
            assert program.stderr
            for entry in program.stderr:
                if "manager started" in entry:
                    break
            facts = json.loads((tmp_path / "manager.json").read_text())
            assert facts["pid"] == program.pid
            for port in ("thrift_port", "rest_port", "openflow_port"):
                socket.create_connection(("127.0.0.1", facts[port]), timeout=60).close()
            program.send_signal(signal.SIGTERM)
            _, log = program.communicate(timeout=60)
        finally:
            program.kill()
    assert program.returncode == 0
    assert "manager stops" in log and "Traceback" not in log
    assert not (tmp_path / "manager.sock").exists() and not (tmp_path / "manager.json").exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--topology", "nowhere"], "nowhere"),
        (
            ["--topology", "hybrid-4x2", "--scheduler", "magic"],
            "there is no scheduler 'magic'; known are best-effort, blast, fifo",
        ),
        (["--topology", "hybrid-4x2", "--lease", "soon"], "write a number and us, ms, s, min or h"),
        (["--topology", "hybrid-4x2", "--lease", "1us"], "a lease lasts from 100ms"),
        (["--topology", "hybrid-4x2", "--session-bytes", "0"], "is less than 1"),
        (["--topology", "hybrid-4x2", "--paths-per-server", "0"], "--paths-per-server"),
    ],
)
def test_program__wrong_options_say_what_to_do(tmp_path: Path, options: list[str], text: str) -> None:
    result = CliRunner().invoke(main, [*options, "--run", str(tmp_path)])
    assert result.exit_code != 0 and text in result.output


def test_program__an_address_in_use(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(TWO_CORES)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        options = ["--topology", str(tmp_path / "two.yaml"), "--run", str(tmp_path), *OPTIONS, "--rest-port", port]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "rostrum.controller", *options]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert result.returncode == 1
    assert "cannot listen on 127.0.0.1" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize("folder", ["/proc/none", "x" * 110])
def test_program__a_folder_that_cannot_be_its_own_is_named(tmp_path: Path, folder: str) -> None:
    (tmp_path / "two.yaml").write_text(TWO_CORES)
    options = ["--topology", str(tmp_path / "two.yaml"), *OPTIONS, "--run", str(tmp_path / folder)]
    result = subprocess.run([sys.executable, "-m", "rostrum.controller", *options], capture_output=True, text=True,
                            timeout=60, check=False)  # fmt: skip
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert f"Error: {tmp_path / folder}" in result.stderr and "cannot listen" not in result.stderr


async def test_sequencer__same_key_in_order_others_in_parallel() -> None:
    sequencer = Sequencer()
    done: list[str] = []
    gate = asyncio.Event()

    async def slow() -> None:
        await gate.wait()
        done.append("slow")

    def quick(name: str) -> Any:
        async def work() -> None:
            done.append(name)

        return work

    sequencer.submit(["tor1", "tor2"], slow)
    sequencer.submit(["tor1", "tor2"], quick("behind"))
    sequencer.submit(["tor2"], quick("last"))
    sequencer.submit(["tor3"], quick("beside"))
    await until(lambda: bool(done), "what nothing is in the way of is done")
    assert done == ["beside"] and sequencer.busy == 3
    gate.set()
    await until(lambda: not sequencer.busy, "all is done")
    assert done == ["beside", "slow", "behind", "last"] and not sequencer._last


async def test_sequencer__closed_it_begins_nothing() -> None:
    sequencer = Sequencer()
    done: list[str] = []

    async def endless() -> None:
        await asyncio.Event().wait()

    async def never() -> None:
        done.append("never")

    sequencer.submit(["tor1"], endless)
    sequencer.submit(["tor1"], never)
    await sequencer.close()
    await until(lambda: not sequencer.busy, "given up")
    assert not done


async def test_devices__a_fibre_is_freed_before_it_is_taken(tmp_path: Path) -> None:
    """An idle circuit makes room: the network model fails the test if the OCS is told in the wrong order."""
    async with running(tmp_path) as manager:
        agent = await manager.agent("h1")
        for number, receivers in enumerate([("h3", "h5"), ("h3", "h7"), ("h5", "h7"), ("h3",), ("h3", "h5", "h7")] * 3):
            agent.request(f"r{number}", "h1", *receivers)
            response = await agent.response(f"r{number}", 1)
            path = manager.app.runtime.path(response.response_id)
            assert path is not None
            if number % 2:
                await until(lambda path=path: path.state is State.ACTIVE, "active")  # type: ignore[misc]
                reached = manager.network.deliver("h1", path.group)  # type: ignore[arg-type]
                assert reached == dict.fromkeys(receivers, 1)
            agent.say("release", request_id=f"r{number}", response_id=response.response_id)
        await until(lambda: manager.app.devices.busy == 0, "devices done")
        live = {pair for one in manager.app.runtime.manager.core.resources.circuits for pair in one.cascade.pairs}
        assert manager.network.pairs() == live and Pair(1, 5) in live


async def test_owner__an_event_that_cannot_be_handled_is_survived(tmp_path: Path) -> None:
    async with running(tmp_path) as manager:
        broken = manager.app.runtime.manager.core.scheduler
        broken.schedule = lambda *_: 1 // 0  # type: ignore[method-assign,assignment,return-value]
        agent = await manager.agent("h1")
        agent.request("r1", "h1", "h3")
        await until(lambda: len(manager.app.runtime.manager.core.queue) == 1, "queued")
        del broken.schedule  # type: ignore[method-assign]
        agent.request("r2", "h1", "h5")
        await agent.response("r2", 3)
        assert (await agent.response("r1", 1)).group


def test_log__one_line_whatever_it_holds() -> None:
    assert str(line("accepted", path="p-1", reason="no light\nat h3", ms=1.5, empty="")) == (
        'accepted path=p-1 reason="no light\\nat h3" ms=1.500'
    )
