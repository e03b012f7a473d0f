"""Ranks of torch.distributed with an agent each: what a rank that is killed, an agent that is, and a restart do."""

from __future__ import annotations

import os
import queue
import random
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent_e2e.agents import ROOT, World, wait_until
from tests.agent_e2e.network import Network, network

DEBIAN = "/usr/bin/python3"
RANKS = ROOT / "tests" / "client" / "torch_ranks.py"
TOLD = ROOT / "tests" / "client" / "torch_told.py"
BOUND_S = 200

pytestmark = [pytest.mark.apps, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", autouse=True)
def torch() -> None:
    if subprocess.run([DEBIAN, "-c", "import torch.distributed"], capture_output=True, check=False).returncode:
        pytest.skip("needs Debian's python3-torch: run .ci/setup apps")


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(3) as it:
        yield it


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


class Rank:
    """A process; it answers each line that it is told by one."""

    def __init__(self, agent_socket: Path, *command: object) -> None:
        settings = {**os.environ, "ROSTRUM_SOCKET": str(agent_socket), "PYTHONPATH": str(ROOT / "build" / "python"),
                    "OMP_NUM_THREADS": "1"}  # fmt: skip
        self.process = subprocess.Popen([DEBIAN, *map(str, command)], env=settings, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
        self.said: list[str] = []
        self.answers: queue.Queue[str] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.said.append(line)
            self.answers.put(line)
        self.answers.put("ended")

    def tell(self, *words: object) -> None:
        assert self.process.stdin
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """What it said to the oldest line; not its warnings."""
        while True:
            line = self.answers.get(timeout=BOUND_S).strip()
            if line.split(" ")[0] in ("ready", "joined", "right", "wrong", "failed", "left", "ended"):
                return line

    def end(self) -> None:
        self.process.kill()
        self.process.wait(BOUND_S)
        self.reader.join(BOUND_S)
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        print("-- a rank said:", "".join(self.said)[-3000:])


@pytest.fixture
def ranks(lab: World) -> Iterator[Callable[..., list[Rank]]]:
    """Begins one for each name, at that host's agent."""
    lab.start_all()
    made: list[Rank] = []

    def begin(*names: str, timeout_s: float = 60.0) -> list[Rank]:
        port = free_port()
        new = [Rank(lab.agents[name].socket, TOLD, rank, len(names), port, timeout_s)
               for rank, name in enumerate(names)]  # fmt: skip
        made.extend(new)
        assert all_say(new) == {"ready"}
        return new

    yield begin
    for rank in made:
        rank.end()


def all_say(ranks: list[Rank], *words: object) -> set[str]:
    for rank in ranks:
        if words:
            rank.tell(*words)
    return {rank.answer() for rank in ranks}


def empty(lab: World, *names: str) -> None:
    """Nothing stays in those agents' stores."""
    for name in names:
        app = lab.app(name)
        wait_until(lambda app=app: not app.status()[2], f"end of objects at {name}")
        app.close()


def test_a_group_over_three_servers(lab: World) -> None:
    """Tensors of all kinds, subgroups, async handles, objects, a second run, a root that does not come."""
    lab.start_all()
    port = free_port()
    ranks = [Rank(lab.agents[name].socket, RANKS, "group", rank, 3, port)
             for rank, name in enumerate(("h1", "h2", "h3"))]  # fmt: skip
    try:
        assert {rank.answer() for rank in ranks} == {"right"}
        assert {rank.answer() for rank in ranks} == {"ended"}
    finally:
        for rank in ranks:
            rank.end()
    empty(lab, "h1", "h2", "h3")


@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_is_killed_hurts_nobody_and_leaves_nothing(
    lab: World, ranks: Callable[..., list[Rank]], rng: random.Random, victim: int
) -> None:
    """A receiver, or the root of the job's first broadcast, which is under way; with another rank on its server."""
    group = ranks("h1", "h2", "h3", "h3")
    assert all_say(group, "join", "first") == {"joined"}
    assert all_say(group, "broadcast", 0, 1) == {"right"}
    others = [rank for number, rank in enumerate(group) if number != victim]
    root = 1 if victim else 2
    group[victim].tell("killed", root, 2, rng.uniform(0, 0.5))
    if victim:  # rank 0 has the job's store: without it there is no group to go on with
        assert all_say(others, "broadcast", root, 2) == {"right"}
        assert all_say(others, "broadcast", 0, 3) == {"right"}
    assert group[victim].process.wait(BOUND_S) == -9
    for rank in others:
        rank.process.kill()
    empty(lab, "h1", "h2", "h3")
    again = ranks("h1", "h2", "h3")  # the job is started again
    assert all_say(again, "join", "first") == {"joined"}
    assert all_say(again, "broadcast", 1, 4) == {"right"}
    assert all_say(again, "leave") == {"left"}
    empty(lab, "h1", "h2", "h3")


def test_an_agent_that_is_killed_fails_the_ranks_of_its_server_alone(
    lab: World, ranks: Callable[..., list[Rank]]
) -> None:
    group = ranks("h1", "h2", "h3", timeout_s=30.0)
    assert all_say(group, "join", "first") == {"joined"}
    assert all_say(group, "broadcast", 0, 1) == {"right"}
    lab.agents["h3"].kill()
    for rank in group:
        rank.tell("broadcast", 0, 2)
    assert [rank.answer() for rank in group[:2]] == ["right", "right"]
    said = group[2].answer()
    assert said.startswith("failed rostrum: broadcast 1 of rank 0"), said
    assert "RuntimeWarning: rostrum: broadcast 1 did not reach h3" in "".join(group[0].said)
    empty(lab, "h1", "h2")
    for rank in group:
        rank.process.kill()
    lab.start("h3")
    again = ranks("h1", "h2", "h3")
    assert all_say(again, "join", "first") == {"joined"}
    assert all_say(again, "broadcast", 2, 3) == {"right"}
