"""Three etcd members on loopback, by TLS or without: one killed while records are written and requests answered, two
gone and back, and changes that come late.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import random
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from rostrum.controller.access_options import SecurityOptions
from rostrum.controller.core.persistence.persistence import Change
from rostrum.controller.northbound.rest.access import AccessOptions
from rostrum.controller.runtime.etcd import Etcd, Tls, Turn, User
from rostrum.controller.runtime.shared_store import SharedStore
from rostrum.controller.runtime.store import StoreError, StoreRefused
from rostrum.topologies import loader

from tests.controller.certificates import Authority
from tests.controller.core.test_failures import TWO_CORES
from tests.controller.fakes import until
from tests.controller.runtime.test_shared_store import free_port, managing, standing

BOUND_S = 60.0
NAMES = ("e0", "e1", "e2")


@dataclass
class Cluster:
    """Members by name; each keeps its data while it is dead."""

    folder: Path
    authority: Authority | None = None
    ports: dict[str, tuple[int, int]] = field(
        default_factory=lambda: {one: (free_port(), free_port()) for one in NAMES}
    )
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def url(self, name: str) -> str:
        return f"{'https' if self.authority else 'http'}://127.0.0.1:{self.ports[name][0]}"

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(self.url(name) for name in NAMES)

    @property
    def tls(self) -> tuple[Path, Path, Path] | None:
        if self.authority is None:
            return None
        return (self.authority.certificate, *self.authority.sign("manager"))

    def start(self, name: str) -> None:
        program = shutil.which("etcd")
        assert program, "etcd-server of .ci/packages is not installed"
        peers = {one: f"http://127.0.0.1:{self.ports[one][1]}" for one in NAMES}
        command = [
            *(program, "--name", name, "--data-dir", str(self.folder / name)),
            *("--listen-client-urls", self.url(name), "--advertise-client-urls", self.url(name)),
            *("--listen-peer-urls", peers[name], "--initial-advertise-peer-urls", peers[name]),
            *("--initial-cluster", ",".join(f"{one}={peers[one]}" for one in NAMES)),
            *("--heartbeat-interval", "50", "--election-timeout", "500"),
        ]
        if self.authority:
            certificate, key = self.authority.sign(name)
            command += ["--cert-file", str(certificate), "--key-file", str(key), "--client-cert-auth"]
            command += ["--trusted-ca-file", str(self.authority.certificate)]
        self.running[name] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self, name: str) -> None:
        program = self.running.pop(name)
        program.kill()
        program.wait()

    async def leader(self) -> str:
        """The member that leads the others."""
        tls = Tls(*self.tls) if self.tls else None
        ids: dict[str, str] = {}
        async with asyncio.timeout(BOUND_S):
            while True:
                for name in list(self.running):
                    one = Etcd([self.url(name)], tls)
                    try:
                        status = await one._ask("maintenance/status", {})
                    except Exception:
                        status = {}
                    finally:
                        await one.close()
                    ids[status.get("header", {}).get("member_id", "")] = name
                    if found := ids.get(status.get("leader", "none")):
                        return found
                await asyncio.sleep(0.1)

    def close(self) -> None:
        for name in list(self.running):
            self.kill(name)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        for name in NAMES:
            made.start(name)
        yield made
    finally:
        made.close()


@pytest.fixture
async def etcd(cluster: Cluster) -> AsyncIterator[Etcd]:
    await cluster.leader()
    made = Etcd(cluster.urls)
    yield made
    await made.close()


async def test_one_member_killed__writes_go_on_under_the_same_leader(cluster: Cluster, etcd: Etcd, seed: int) -> None:
    dice = random.Random(seed)
    manager = standing(etcd, "a", 10)  # on a busy machine the members take seconds to agree
    wanted: dict[str, int] = {}
    async with asyncio.timeout(BOUND_S):
        await manager.campaign()
        term, store = manager.term, SharedStore(etcd, "/t", manager)
        victim = await cluster.leader()  # the others have to agree on another one
        for number in range(300):
            if number == 100:
                cluster.kill(victim)
            if number == 250:
                cluster.start(victim)
            key = f"p{dice.randrange(20)}"
            change = None if dice.random() < 0.2 else number
            await store.write([Change("path", key, change)])
            if change is None:
                wanted.pop(key, None)
            else:
                wanted[key] = change
        assert manager.leads() and manager.term == term
        assert (await store.load()).get("path", {}) == wanted
        await manager.resign()


async def test_two_members_killed__nobody_leads_until_they_are_back(cluster: Cluster, etcd: Etcd) -> None:
    manager = standing(etcd, "a", 2)
    async with asyncio.timeout(BOUND_S):
        await manager.campaign()
        store = SharedStore(etcd, "/t", manager)
        await store.write([Change("path", "p", 1)])
        for name in NAMES[:2]:
            cluster.kill(name)
        assert manager.lost is not None
        assert "no longer leads" in str(await manager.lost) and not manager.leads()
        for name in NAMES[:2]:
            cluster.start(name)
        after = standing(etcd, "b", 2)
        await after.campaign()
        assert after.leads()
        again = SharedStore(etcd, "/t", after)
        assert await again.load() == {"path": {"p": 1}}
        await again.write([Change("path", "p", 2)])
        assert await again.load() == {"path": {"p": 2}}
        await after.resign()


async def test_late_change__is_not_made(etcd: Etcd) -> None:
    """Its answer was not waited for, the same was asked of another member, and more since."""
    manager = standing(etcd, "a", 5)
    async with asyncio.timeout(BOUND_S):
        await manager.campaign()
        assert manager.guard
        first, second = Turn("/t/written", "", "1"), Turn("/t/written", "1", "2")
        assert await etcd.change({"/t/k": "old"}, [], manager.guard, first)
        assert await etcd.change({"/t/k": "old"}, [], manager.guard, first)  # repeated at once: made, by the one before
        assert await etcd.change({"/t/k": "new"}, [], manager.guard, second)
        assert not await etcd.change({"/t/k": "old"}, [], manager.guard, first)
        row = await etcd.get("/t/k")
        assert row is not None and row.value == "new"
        await manager.resign()


async def test_tls__strangers_are_refused_on_both_sides(tmp_path: Path) -> None:
    cluster, strangers = Cluster(tmp_path, Authority(tmp_path, "ca")), Authority(tmp_path, "strangers")
    try:
        for name in NAMES:
            cluster.start(name)
        await cluster.leader()
        assert cluster.authority
        for ca, (certificate, key), text in (
            (cluster.authority.certificate, strangers.sign("manager"), ""),  # it closes; why, its log says
            (strangers.certificate, cluster.authority.sign("manager"), ".*certificate verify failed"),
        ):
            refused = Etcd(cluster.urls, Tls(ca, certificate, key))
            with pytest.raises(StoreError, match=f"no etcd answers{text}"):
                await refused.get("/x")
            await refused.close()
        with pytest.raises(OSError, match="--etcd-tls"):
            Etcd(cluster.urls, Tls(tmp_path / "none", certificate, key))
    finally:
        cluster.close()


@pytest.mark.parametrize("tls", [False, True])
async def test_requests__go_on_while_a_member_is_killed(tmp_path: Path, tls: bool) -> None:
    cluster = Cluster(tmp_path, Authority(tmp_path, "ca") if tls else None)
    (tmp_path / "two.yaml").write_text(TWO_CORES)
    topology = loader.load(str(tmp_path / "two.yaml"))
    port = free_port()
    try:
        for name in NAMES:
            cluster.start(name)
        victim = await cluster.leader()
        base = f"http://127.0.0.1:{port}"
        async with (
            httpx.AsyncClient(base_url=base, trust_env=False, timeout=15.0) as http,
            managing(topology, cluster.urls, tmp_path / "a", "a", port, cluster.tls, lease_s=10),
        ):
            await until(lambda: (tmp_path / "a" / "manager.json").exists(), "the manager to lead")
            made = []
            for number in range(40):
                if number == 15:
                    cluster.kill(victim)
                answer = await http.post("/v1/paths", json={"sender": "h1", "receivers": ["h2"], "wait_ms": 600_000})
                assert answer.status_code == 201, answer.text
                made.append(answer.json()["id"])
            listed = (await http.get("/v1/paths?limit=100")).json()["paths"]
            assert sorted(one["id"] for one in listed) == sorted(made)  # one manager all the time: ids tell
    finally:
        cluster.close()


def text(said: str) -> str:
    """As etcd's JSON has bytes."""
    return base64.b64encode(said.encode()).decode()


async def with_roles(etcd: Etcd, password: str) -> None:
    """Nobody may do anything any more but `root`, and `manager` under /rostrum/ (docs/care.md)."""
    for user, role in (("root", "root"), ("manager", "rostrum")):
        await etcd._ask("auth/user/add", {"name": user, "password": password})
        await etcd._ask("auth/role/add", {"name": role})
        await etcd._ask("auth/user/grant", {"user": user, "role": role})
    own = {"permType": "READWRITE", "key": text("/rostrum/"), "range_end": text("/rostrum0")}
    await etcd._ask("auth/role/grant", {"name": "rostrum", "perm": own})
    await etcd._ask("auth/enable", {})


async def test_secured__the_standby_goes_on_with_a_role_of_its_own(tmp_path: Path) -> None:
    """`security: required`: etcd by TLS 1.3 alone, certificates at both ends, a user whose role is /rostrum/."""
    authority, password = Authority(tmp_path, "ca"), "a password of the test's"
    cluster = Cluster(tmp_path, authority)
    (tmp_path / "two.yaml").write_text(TWO_CORES)
    topology = dataclasses.replace(loader.load(str(tmp_path / "two.yaml")), secure=True)
    (user := tmp_path / "etcd-user").write_text(f"manager:{password}\n")
    user.chmod(0o600)
    files = (*authority.sign("own", uris=["rostrum:manager"], common=False), authority.certificate)
    named = Tls(authority.certificate, *authority.sign("named"))
    tls = Tls(authority.certificate, *files[:2])
    closed = {
        "security": SecurityOptions(thrift_tls=files, openflow_tls=files, p4runtime_tls=files),
        "access": AccessOptions(tls=files[:2], client_ca=authority.certificate),
    }
    operator = ssl.create_default_context(cafile=authority.certificate)
    operator.load_cert_chain(*authority.sign("alice", dns=(), uris=["rostrum:operator:alice"]))
    ports = free_port(), free_port()
    others: list[Etcd] = []

    def another(user: User | None, tls: Tls = tls) -> Etcd:
        others.append(Etcd(cluster.urls, tls, strict=True, user=user))
        return others[-1]

    try:
        for name in NAMES:
            cluster.start(name)
        await cluster.leader()
        await with_roles(another(None), password)
        both = (topology, cluster.urls), ((authority.certificate, *files[:2]), 10, user)
        async with httpx.AsyncClient(trust_env=False, timeout=15.0, verify=operator) as http:

            async def becomes(port: int, wanted: int) -> httpx.Response:
                async with asyncio.timeout(BOUND_S):
                    while True:
                        try:
                            answer = await http.get(f"https://127.0.0.1:{port}/v1/paths?limit=100")
                        except httpx.HTTPError:
                            answer = None
                        if answer is not None and answer.status_code == wanted:
                            return answer
                        await asyncio.sleep(0.05)

            async with managing(*both[0], tmp_path / "a", "a", ports[0], *both[1], **closed) as stop:
                await becomes(ports[0], 200)
                asked = {"sender": "h1", "receivers": ["h2"], "wait_ms": 600_000}
                made = await http.post(f"https://127.0.0.1:{ports[0]}/v1/paths", json=asked)
                assert made.status_code == 201, made.text
                async with managing(*both[0], tmp_path / "b", "b", ports[1], *both[1], **closed):
                    told = await becomes(ports[1], 307)
                    assert told.headers["Location"].startswith(f"https://127.0.0.1:{ports[0]}/")
                    cluster.kill(NAMES[0])  # whoever logged in there logs in elsewhere
                    stop.set()
                    listed = (await becomes(ports[1], 200)).json()["paths"]
                    assert [one["id"] for one in listed] == [made.json()["id"]]
        own = another(User("manager", password))
        assert await own.get("/rostrum/none") is None
        with pytest.raises(StoreRefused, match="permission denied"):
            await own.get("/elsewhere")
        with pytest.raises(StoreRefused, match="without a common name"):
            await another(User("manager", password), named).get("/rostrum/none")
        for stranger in (None, User("manager", "another"), User("alice", password)):
            with pytest.raises(StoreRefused):
                await another(stranger).get("/rostrum/none")
    finally:
        for one in others:
            await one.close()
        cluster.close()
