"""What agents need of memory for objects that are larger than theirs: pages of files, and the kernel's tables."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from rostrum.client import wire

from tests.agent_e2e.agents import Agent, World, content, wait_until
from tests.agent_e2e.network import Network, network
from tests.agent_e2e.test_pieces import CGROUPS, MIB, at, file_of, memory_of, pieces_on, start_fetch, to_disk

SIZE = 240 * MIB
TABLES_KB = 160  # of 8 bytes a page, for what is mapped of it at a time; all of it would need 480
MAPPINGS = 8


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(3) as it:
        yield it


def tables_kb(agent: Agent) -> int:
    text = Path(f"/proc/{agent.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmPTE"))


def mappings(agent: Agent) -> int:
    return Path(f"/proc/{agent.process.pid}/maps").read_text().count("\n")


def test_page_tables_of_large_objects_are_given_back_by_who_adds_sends_receives_checks_and_fetches(
    lab: World, disk: Path
) -> None:
    """They grew by 1/512 of each object until it was gone: 200 MB for 100 GB, of memory that no other use gets back."""
    data = content(SIZE, 1)
    sender, late = lab.start("h1"), lab.start("h3", *to_disk(disk, "h3"))
    receiver = lab.start("h2", *to_disk(disk, "h2"))
    agents = [sender, receiver, late]
    before = {agent: (tables_kb(agent), mappings(agent)) for agent in agents}

    def check(what: str) -> None:
        for agent in agents:
            kb, count = before[agent]
            assert tables_kb(agent) - kb < TABLES_KB and mappings(agent) - count < MAPPINGS, (what, agent.host.name)

    fd = file_of(disk, data)
    lab.app("h1").call(wire.ADD, struct.pack("<Q", 7), [fd])
    os.close(fd)
    check("added")
    assert lab.app("h1").send(7, ["h2"]).ok
    check("sent, received")
    app = lab.app("h3")
    assert app.finish_read(start_fetch(app, 7, at(lab, "h1", "h2"), 60_000)) == data
    check("fetched")
    receiver.kill()
    again = lab.start("h2", *to_disk(disk, "h2"))
    agents[1] = again
    before[again] = before[receiver]
    assert lab.app("h2").read(7, 60_000) == data
    check("found again")


@pytest.mark.skipif(
    not any((top / "cgroup.procs").exists() for top, _ in CGROUPS), reason="this machine has no memory cgroups"
)
@pytest.mark.parametrize("loss", ["none", "uniform:0.02"])
def test_an_agent_that_gets_little_memory_while_it_receives_goes_on(lab: World, disk: Path, loss: str) -> None:
    data = content(SIZE, 2)
    lab.start("h1")
    receiver = lab.start("h2", *to_disk(disk, "h2"), *(["--io", "udp", "--loss", loss] if loss != "none" else []))
    fd = file_of(disk, data)
    app = lab.app("h1")
    tag = app.start_send(7, ["h2"], fd=fd)
    wait_until(lambda: pieces_on(disk / "h2") >= 20, "the beginning")
    with contextlib.ExitStack() as bound:
        bound.enter_context(memory_of(receiver, 16 * MIB))
        result, _ = app.finish_send(tag)
        assert result.ok, result
    assert receiver.process.poll() is None and lab.app("h2").read(7) == data
    os.close(fd)
