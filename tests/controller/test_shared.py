"""Managers that share an etcd: one leads, a deposed one writes nothing, the other goes on with its records.

The etcd is a real one, on loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from rostrum.controller import member
from rostrum.controller.config import Cluster, Config
from rostrum.controller.core.durable import Change
from rostrum.controller.core.values import Settings
from rostrum.controller.etcd import Etcd
from rostrum.controller.shared import Election, Facts, SharedStore
from rostrum.controller.store import StoreError
from rostrum.topologies import loader
from rostrum.topologies.model import Topology

from tests.controller.fakes import until
from tests.controller.test_core_failures import TWO_CORES

BOUND_S = 15.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    program = shutil.which("etcd")
    assert program, "etcd-server of .ci/packages is not installed"
    client, peer = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    command = [
        *(program, "--data-dir", str(tmp_path / "etcd"), "--listen-client-urls", client, "--unsafe-no-fsync"),
        *("--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", f"default={peer}"),
    ]
    if "unsafe-no-fsync" not in subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout:
        command.remove("--unsafe-no-fsync")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            yield client
        finally:
            running.kill()


@pytest.fixture
async def etcd(url: str) -> AsyncIterator[Etcd]:
    made = Etcd(["http://127.0.0.1:1", url])  # the first one is not there: the next is asked
    yield made
    await made.close()


def standing(etcd: Etcd, name: str, ttl_s: int = 2) -> Election:
    return Election(etcd, "/t", Facts(name, f"http://{name}", name), ttl_s)


async def test_election__one_leads_the_deposed_one_writes_nothing(etcd: Etcd) -> None:
    first, second = standing(etcd, "a"), standing(etcd, "b")
    async with asyncio.timeout(BOUND_S):
        await first.campaign()
        assert first.leads() and not second.leads()
        store = SharedStore(etcd, "/t", first)
        assert await store.load() == {} and not store.complete
        await store.write([Change("path", "p/1", {"n": 1}), Change("circuit", "c", [1]), Change("agent", "x", None)])
        terms: list[int] = []
        second.on_leader = terms.append
        waiting = asyncio.create_task(second.campaign())
        await until(lambda: terms == [first.term], "the standby to know the leader")
        assert second.leader == Facts("a", "http://a", "a")
        assert first._keeper
        first._keeper.cancel()  # it hangs; its lease runs out
        await waiting
        assert second.term > first.term
        assert not first.leads()  # its own clock said so before etcd did
        with pytest.raises(StoreError, match="another manager leads"):
            await store.write([Change("path", "p/2", {})])
        after = SharedStore(etcd, "/t", second)
        assert await after.load() == {"path": {"p/1": {"n": 1}}, "circuit": {"c": [1]}}
        await after.write([Change("path", "p/1", None)])
        await second.resign()
        again = standing(etcd, "c")
        await again.campaign()
        assert await SharedStore(etcd, "/t", again).load() == {"circuit": {"c": [1]}}
        await again.resign()


async def test_records__more_than_one_transaction_and_one_answer_hold(etcd: Etcd) -> None:
    leader = standing(etcd, "a")
    async with asyncio.timeout(BOUND_S):
        await leader.campaign()
        store = SharedStore(etcd, "/t", leader)
        many = [Change("path", f"p-{number}", number) for number in range(2500)]
        await store.write(many)
        await store.write([Change("path", f"p-{number}", None) for number in range(0, 2500, 2)])
        assert await store.load() == {"path": {f"p-{number}": number for number in range(1, 2500, 2)}}
        before = etcd.revision
        await etcd.compact(before)  # what was deleted is forgotten, what is there is not
        assert len((await store.load())["path"]) == 1250
        await leader.resign()


async def test_etcd__that_does_not_answer_ends_the_lead(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rostrum.controller.etcd.CALL_S", 0.3)
    reached = Etcd([url])
    leader = standing(reached, "a")
    async with asyncio.timeout(BOUND_S):
        await leader.campaign()
        store = SharedStore(reached, "/t", leader)
        assert leader.lost is not None
        reached._endpoints[:] = ["http://127.0.0.1:1"]  # the network between them is cut
        with pytest.raises(StoreError, match="no etcd answers"):
            await store.write([Change("path", "p", 1)])  # tried while the lease may still live
        assert not leader.leads()
        assert "no longer leads" in str(await leader.lost)
    await reached.close()


@contextlib.asynccontextmanager
async def managing(
    topology: Topology,
    urls: str | tuple[str, ...],
    run: Path,
    name: str,
    rest: int,
    tls: tuple[Path, Path, Path] | None = None,
    lease_s: int = 2,
) -> AsyncIterator[asyncio.Event]:
    settings = Settings(boot_id=1000 + rest)
    cluster = Cluster((urls,) if isinstance(urls, str) else urls, tls, name, lease_s)
    config = Config(topology, run, settings, ("127.0.0.1",), free_port(), rest, 0, cluster=cluster)
    stop = asyncio.Event()
    task = asyncio.create_task(member.run(config, stop))
    try:
        yield stop
    finally:
        stop.set()
        await asyncio.wait_for(task, BOUND_S)


async def test_member__stands_by_says_where_the_leader_is_and_takes_over(tmp_path: Path, url: str) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(TWO_CORES)
    topology = loader.load(str(file))
    ports = free_port(), free_port()
    async with httpx.AsyncClient(trust_env=False, timeout=2.0) as http:

        async def status(port: int) -> int:
            try:
                return (await http.get(f"http://127.0.0.1:{port}/v1/paths?limit=3")).status_code
            except httpx.HTTPError:
                return 0

        async def becomes(port: int, wanted: int) -> None:
            async with asyncio.timeout(BOUND_S):
                while True:
                    if await status(port) == wanted:
                        return
                    await asyncio.sleep(0.05)

        async with managing(topology, url, tmp_path / "a", "a", ports[0]) as stop:
            await becomes(ports[0], 200)
            async with managing(topology, url, tmp_path / "b", "b", ports[1]):
                await becomes(ports[1], 307)
                told = await http.get(f"http://127.0.0.1:{ports[1]}/v1/paths?limit=3")
                assert told.headers["Location"] == f"http://127.0.0.1:{ports[0]}/v1/paths?limit=3"
                assert "a leads" in told.json()["detail"]
                followed = await http.get(f"http://127.0.0.1:{ports[1]}/v1/paths?limit=3", follow_redirects=True)
                assert followed.status_code == 200
                stop.set()  # an orderly end: the other one need not wait for the lease
                await becomes(ports[1], 200)
