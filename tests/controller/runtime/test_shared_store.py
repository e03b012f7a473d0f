"""Managers that share an etcd: one leads, a deposed one writes nothing, the other goes on with its records.

The etcd is a real one, on loopback.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from rostrum.controller.config import Cluster, Config
from rostrum.controller.core.persistence.persistence import Change
from rostrum.controller.core.values import Settings
from rostrum.controller.runtime import leadership, shared_store
from rostrum.controller.runtime.etcd import Etcd, Row
from rostrum.controller.runtime.shared_store import Election, Facts, SharedStore
from rostrum.controller.runtime.store import StoreError, StoreRefused, Unencodable
from rostrum.topologies import loader
from rostrum.topologies.model import Topology

from tests.controller.core.test_failures import TWO_CORES
from tests.controller.fakes import until

BOUND_S = 60.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with serving(tmp_path) as client:
        yield client


@contextlib.contextmanager
def serving(tmp_path: Path, *options: str) -> Iterator[str]:
    """An etcd; its URL."""
    program = shutil.which("etcd")
    assert program, "etcd-server of .ci/packages is not installed"
    client, peer = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    command = [
        *(program, "--data-dir", str(tmp_path / "etcd"), "--listen-client-urls", client, "--unsafe-no-fsync"),
        *("--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", f"default={peer}", *options),
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
    monkeypatch.setattr("rostrum.controller.runtime.etcd.CALL_S", 0.3)
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


async def test_etcd__that_is_full_ends_the_lead_at_once_and_is_led_again_once_there_is_room(tmp_path: Path) -> None:
    """The lease lives on in a full etcd: whoever only tried again would lead for ever and answer nobody."""
    with serving(tmp_path, "--quota-backend-bytes", str(8 << 20)) as url:
        full = Etcd([url])
        leader = standing(full, "a", ttl_s=10)
        async with asyncio.timeout(60):
            await leader.campaign()
            store = SharedStore(full, "/t", leader)
            with pytest.raises(StoreRefused, match=r"space exceeded; compact, defragment and disarm the alarm"):
                for number in range(64):
                    await store.write([Change("path", f"p-{number}", "x" * (500 << 10))])
            assert leader.leads() and store.retries == 0  # it was no matter of waiting
            await leader.resign()
            waiting = standing(full, "b")
            campaign = asyncio.create_task(waiting.campaign())
            await until(lambda: "space exceeded" in waiting.obstacle, "why nobody leads")
            async with httpx.AsyncClient(trust_env=False, base_url=url, timeout=10.0) as person:
                await make_room(person)
            await campaign
            again = SharedStore(full, "/t", waiting)
            assert await again.load() == {}
            await again.write([Change("path", "p", 1)])
            assert waiting.obstacle == "" and await again.load() == {"path": {"p": 1}}
            await waiting.resign()
        await full.close()


async def make_room(person: httpx.AsyncClient) -> None:
    """As with etcdctl: del, compact, defrag, alarm disarm."""

    async def ask(what: str, body: dict[str, object]) -> dict[str, Any]:
        answer = await person.post(f"/v3/{what}", json=body)
        assert answer.is_success, answer.text
        return dict(answer.json())

    first, last = (base64.b64encode(one.encode()).decode() for one in ("/t/record/", "/t/record0"))
    gone = await ask("kv/deleterange", {"key": first, "range_end": last})
    await ask("kv/compaction", {"revision": gone["header"]["revision"]})
    await ask("maintenance/defragment", {})
    for one in (await ask("maintenance/alarm", {"action": "GET"})).get("alarms", ()):
        await ask("maintenance/alarm", {"action": "DEACTIVATE", **one})


async def test_records__large_ones_take_transactions_of_their_own_and_too_large_ones_are_told(etcd: Etcd) -> None:
    leader = standing(etcd, "a")
    async with asyncio.timeout(BOUND_S):
        await leader.campaign()
        store = SharedStore(etcd, "/t", leader)
        large = "x" * (700 << 10)
        await store.write([Change("path", f"p-{number}", large) for number in range(3)])
        assert sorted((await store.load())["path"]) == ["p-0", "p-1", "p-2"]
        with pytest.raises(Unencodable, match=r"path q: it has \d+ bytes, 1048576 are possible"):
            store.write([Change("path", "q", 2 * large), Change("path", "r", 1)])
        await leader.resign()


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (429, {"code": 8, "error": "etcdserver: too many requests"}, StoreError),
        (503, {"code": 14, "error": "etcdserver: leader changed"}, StoreError),
        (400, {"code": 3, "error": "etcdserver: request is too large"}, StoreRefused),
        (403, {"code": 7, "error": "etcdserver: permission denied"}, StoreRefused),
        (400, ["garbage"], StoreRefused),
    ],
)
async def test_etcd__what_is_worth_asking_again(status: int, said: object, kind: type[StoreError]) -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, json=said)

    etcd = Etcd(["http://127.0.0.1:1"])
    await etcd._client.aclose()
    etcd._client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    with pytest.raises(StoreError) as found:
        await etcd.get("k")
    assert type(found.value) is kind
    await etcd.close()


async def test_store__that_nobody_answers_while_the_lease_is_renewed_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A member that answers keepalives and nothing else."""
    now = 0.0
    monkeypatch.setattr(shared_store, "_clock", lambda: now)
    monkeypatch.setattr(shared_store, "POLL_S", 0.0)

    class Half(Etcd):
        async def get(self, key: str) -> Row | None:
            nonlocal now
            now += 1.0
            raise StoreError("no etcd answers")

    etcd = Half([])
    election = standing(etcd, "a")
    election.guard, election._until = Row("/t/leader", "", 7), 1e9
    store = SharedStore(etcd, "/t", election)
    with pytest.raises(StoreError, match="no etcd answers"):
        await store.write([Change("path", "p", 1)])
    assert store.retries == shared_store.WRITE_LEASES * election.ttl_s - 1
    await etcd.close()


@contextlib.asynccontextmanager
async def managing(
    topology: Topology,
    urls: str | tuple[str, ...],
    run: Path,
    name: str,
    rest: int,
    tls: tuple[Path, Path, Path] | None = None,
    lease_s: int = 2,
    user: Path | None = None,
    **more: Any,
) -> AsyncIterator[asyncio.Event]:
    """A manager; `more`: of its Config."""
    settings = Settings(boot_id=1000 + rest)
    cluster = Cluster((urls,) if isinstance(urls, str) else urls, tls, name, lease_s, user)
    config = Config(topology, run, settings, ("127.0.0.1",), free_port(), rest, 0, cluster=cluster, **more)
    stop = asyncio.Event()
    task = asyncio.create_task(leadership.run(config, stop))
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

        async def status(port: int, follow: bool) -> int:
            try:
                url = f"http://127.0.0.1:{port}/v1/paths?limit=3"
                return (await http.get(url, follow_redirects=follow)).status_code
            except httpx.HTTPError:
                return 0

        async def becomes(port: int, wanted: int, follow: bool = False) -> None:
            async with asyncio.timeout(BOUND_S):
                while True:
                    if await status(port, follow) == wanted:
                        return
                    await asyncio.sleep(0.05)

        async with managing(topology, url, tmp_path / "a", "a", ports[0]) as stop:
            await becomes(ports[0], 200)
            async with managing(topology, url, tmp_path / "b", "b", ports[1]):
                await becomes(ports[1], 307)
                told = await http.get(f"http://127.0.0.1:{ports[1]}/v1/paths?limit=3")
                assert told.headers["Location"] == f"http://127.0.0.1:{ports[0]}/v1/paths?limit=3"
                assert "a leads" in told.json()["detail"]
                await becomes(ports[1], 200, follow=True)
                stop.set()  # an orderly end: the other one need not wait for the lease
                await becomes(ports[1], 200)
