"""Objects in pieces: on disk, larger than memory, found again after a restart, fetched from whoever has them."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rostrum.client import wire
from rostrum.client.values import Code, RostrumError

from tests.agent_e2e.agents import Agent, App, World, content, wait_until, world
from tests.agent_e2e.network import Network, network

MIB = 1 << 20
CGROUPS = (  # of either version
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(4) as it:
        yield it


@pytest.fixture
def lab(net: Network) -> Iterator[World]:
    with world(net) as it:
        yield it


@pytest.fixture
def disk() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rostrum-pieces-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


def to_disk(disk: Path, name: str) -> tuple[str, str]:
    folder = disk / name
    folder.mkdir(exist_ok=True)
    return ("--to-disk", str(folder))


@contextlib.contextmanager
def memory_of(agent: Agent, limit: int) -> Iterator[None]:
    """The running agent in a memory cgroup of its own."""
    top, bound = next((top, bound) for top, bound in CGROUPS if (top / "cgroup.procs").exists())
    group = top / f"rostrum-test-{agent.process.pid}"
    try:
        group.mkdir()
        (group / bound).write_text(str(limit))
        (group / "cgroup.procs").write_text(str(agent.process.pid))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        yield
    finally:
        (top / "cgroup.procs").write_text(str(agent.process.pid))
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "end of the cgroup")
        group.rmdir()


def file_of(disk: Path, data: bytes) -> int:
    path = disk / "source"
    path.write_bytes(data)
    return os.open(path, os.O_RDONLY)


@pytest.mark.skipif(
    not any((top / "cgroup.procs").exists() for top, _ in CGROUPS), reason="this machine has no memory cgroups"
)
def test_an_object_of_ten_times_the_memory_goes_from_disk_to_disk_and_outlives_the_agent(
    lab: World, disk: Path
) -> None:
    size = 240 * MIB
    data = content(size, 1)
    sender = lab.start("h1")
    receiver = lab.start("h2", *to_disk(disk, "h2"))
    fd = file_of(disk, data)
    with memory_of(receiver, size // 10), memory_of(sender, size // 10):
        result = lab.app("h1").send(7, ["h2"], fd=fd)
        assert result.ok, result
        with App(receiver) as app:
            read = app.call(wire.READ, struct.pack("<QI", 7, 1000))
            with open(read.fds[0], "rb") as file:
                assert all(file.read(MIB) == data[at : at + MIB] for at in range(0, size, MIB))
    os.close(fd)
    assert receiver.objects() == []  # nothing of it is in memory
    receiver.kill()
    again = lab.start("h2", *to_disk(disk, "h2"))
    with App(again) as app:
        assert app.read(7, 60_000) == data
        app.delete(7)
        with pytest.raises(RostrumError) as caught:
            app.read(7, 1)
        assert caught.value.code == Code.TIMEOUT
    assert [path for path in (disk / "h2").rglob("*") if path.is_file()] == []
