"""Idempotency keys: bounded, forgotten with age, and remembered by the next manager after kill -9."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from rostrum.controller.core.requests.idempotency import KEY_AGE_NS, Misused, Repeats

from tests.controller.core.test_failures import TWO_CORES
from tests.controller.crashes import MortalTimeline

OPTIONS = ("--listen", "127.0.0.1", "--thrift-port", "0", "--rest-port", "0", "--openflow-port", "0", "--wait", "10min")
BODY = {"sender": "h1", "receivers": ["h2"]}


def test_repeats__are_bounded() -> None:
    repeats = Repeats(limit=3)
    for number in range(10):
        changed = repeats.keep(f"k{number}", "body", f"p{number}", number)
        assert changed == ([f"k{number}", f"k{number - 3}"] if number >= 3 else [f"k{number}"])
    assert len(repeats) == 3 and repeats.find("k6", "body", 10) is None and repeats.find("k9", "body", 10) == "p9"
    with pytest.raises(Misused):
        repeats.find("k9", "another", 10)


def test_repeats__are_forgotten_after_a_day() -> None:
    repeats = Repeats()
    repeats.keep("old", "body", "p1", 0)
    assert repeats.find("old", "body", KEY_AGE_NS) == "p1"
    assert repeats.find("old", "another", KEY_AGE_NS + 1) is None
    assert repeats.keep("new", "body", "p2", KEY_AGE_NS + 1) == ["new", "old"]


def test_restart__keys_are_back_but_for_those_too_old() -> None:
    line = MortalTimeline()
    core = line.manager.core
    for name, at in (("old", line.now - KEY_AGE_NS), ("young", line.now)):
        for changed in core.repeats.keep(name, "body", f"p-{name}", at):
            core.persistence.mark("repeat", changed)
    line.ask("h1", "h3")  # what is marked is written with the next step
    assert set(line.records["repeat"]) == {"old", "young"}
    line.now += 1
    line.restart()
    found = line.manager.core.repeats
    assert found.find("young", "body", line.now) == "p-young" and found.find("old", "body", line.now) is None
    assert set(line.records["repeat"]) == {"young"}


@contextmanager
def program(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A manager, and its port for REST; killed with SIGKILL at the end."""
    command = [sys.executable, "-m", "rostrum.controller", "--topology", str(folder / "two.yaml"), "--run", str(folder)]
    with subprocess.Popen([*command, *OPTIONS], stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stderr
            log = ""
            for entry in running.stderr:
                log += entry
                if "manager started" in entry:
                    break
            else:
                pytest.fail(f"the manager ended: {log}")
            yield running, json.loads((folder / "manager.json").read_text())["rest_port"]
        finally:
            running.kill()


def post(port: int, number: int) -> dict[str, Any]:
    body = {**BODY, "size": number + 1}
    key = {"Idempotency-Key": f"job-{number}"}
    answer = httpx.post(f"http://127.0.0.1:{port}/v1/paths", json=body, headers=key, trust_env=False, timeout=60)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def post_and_leave(port: int, numbers: range) -> None:
    """The requests go out, nobody waits for answers."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        for number in numbers:
            body = json.dumps({**BODY, "size": number + 1}).encode()
            head = (
                f"POST /v1/paths HTTP/1.1\r\nHost: manager\r\nContent-Type: application/json\r\n"
                f"Idempotency-Key: job-{number}\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            connection.sendall(head.encode() + body)
        connection.settimeout(2)
        connection.recv(random.randrange(1, 4000))  # so far it had come when it was killed


def test_killed__a_request_that_is_repeated_makes_no_second_path(tmp_path: Path, seed: int) -> None:
    """Killed while requests are being answered: whatever was answered is found again, nothing is there twice."""
    random.seed(seed)
    (tmp_path / "two.yaml").write_text(TWO_CORES)
    with program(tmp_path) as (_, port):
        answered = [post(port, number)["id"] for number in range(4)]
        post_and_leave(port, range(4, 24))
    with program(tmp_path) as (_, port):
        assert [post(port, number)["id"] for number in range(4)] == answered
        again = [post(port, number)["id"] for number in range(4, 24)]
        post_and_leave(port, range(24, 44))
    with program(tmp_path) as (_, port):
        assert [post(port, number)["id"] for number in range(24)] == answered + again
        every = httpx.get(f"http://127.0.0.1:{port}/v1/paths?limit=1000", trust_env=False, timeout=60).json()["paths"]
        sizes = [path["size"] for path in every]
        assert len(sizes) == len(set(sizes)) and set(range(1, 25)) <= set(sizes) <= set(range(1, 45))
        misused = httpx.post(
            f"http://127.0.0.1:{port}/v1/paths",
            json=BODY,
            headers={"Idempotency-Key": "job-3"},
            trust_env=False,
            timeout=60,
        )
        assert misused.status_code == 422
