"""Two managers, etcd, an OCS and agents, cut off from each other and stopped at any moment, with orders to the OCS
under way: in virtual time, each manager on a loop of its own that can be stopped while the world goes on.

The OCS's command log is the witness: TL1 knows no terms, so nobody but the managers themselves keeps a deposed one from
ordering. What is real: election, shared store, owner, core, execution. What is not: etcd, switches, the TL1 connection,
which keeps orders back for `UNSENT_S` at most when the network does, as the kernel does for the real one.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from typing import Any

import pytest
from rostrum.controller.core import events as ev
from rostrum.controller.core.manager import Manager
from rostrum.controller.core.model import CrossConnect, Pair, PathKind, SouthboundError
from rostrum.controller.core.persistence.durable import Durable
from rostrum.controller.core.values import Decision, LivePath, PathRequest, PathResponse, Settings
from rostrum.controller.runtime import run_clock, shared_store
from rostrum.controller.runtime.etcd import Etcd
from rostrum.controller.runtime.execution import Devices
from rostrum.controller.runtime.leadership import ORDER_MARGIN
from rostrum.controller.runtime.runtime import Owner
from rostrum.controller.runtime.shared_store import Election, Facts, SharedStore
from rostrum.controller.runtime.store import StoreError
from rostrum.controller.southbound.ocs.connection import UNSENT_MS

from tests.controller.fakes import FakeFabric
from tests.controller.network import Network
from tests.controller.timeline import hybrid

LEASE_S = 3
UNSENT_S = UNSENT_MS / 1000
LATENCY_S = (0.001, 0.08)
FIBRE = tuple[str, int]


class Selector:
    def select(self, timeout: float | None = None) -> list[Any]:
        return []

    def close(self) -> None:
        """Nothing is open."""


class MemberLoop(asyncio.BaseEventLoop):
    """A process's loop: runs when the world lets it."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._selector = Selector()

    def time(self) -> float:
        return self._world.now

    def _process_events(self, event_list: Any) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""

    def due(self) -> float | None:
        """When it has something to do; None = never."""
        if self._ready:  # type: ignore[attr-defined]
            return 0.0
        scheduled = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
            count = self._timer_cancelled_count  # type: ignore[has-type]
            self._timer_cancelled_count = max(0, count - 1)
        return scheduled[0]._when if scheduled else None

    def turn(self) -> None:
        asyncio._set_running_loop(self)
        try:
            self._run_once()  # type: ignore[attr-defined]
        finally:
            asyncio._set_running_loop(None)


@dataclass
class Order:
    """As it came to the OCS."""

    at: float
    term: int
    member: str
    what: str
    pairs: tuple[Pair, ...]


@dataclass
class Agent:
    """`live`: what it believes that it may send on. It listens to the manager that it is connected to."""

    server: str
    manager: Member | None = None
    live: dict[str, LivePath] = field(default_factory=dict)
    asked: dict[str, PathRequest] = field(default_factory=dict)
    fibres: dict[str, tuple[str, frozenset[FIBRE]]] = field(default_factory=dict)  # path -> its circuit, what it holds


class MiniEtcd:
    """One member that is always there: keys with leases, transactions, revisions."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.rows: dict[str, tuple[str, int, int]] = {}  # value, created, lease
        self.leases: dict[int, tuple[int, float]] = {}  # TTL, until
        self.revision = 1
        self._ids = itertools.count(1000)

    def ask(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        for lease, (_, until) in list(self.leases.items()):
            if until <= self._world.now:
                self._revoke(lease)
        answer = getattr(self, "_" + what.replace("/", "_"))(body)
        return {"header": {"revision": str(self.revision)}, **answer}

    def _lease_grant(self, body: dict[str, Any]) -> dict[str, Any]:
        made = next(self._ids)
        self.leases[made] = (body["TTL"], self._world.now + body["TTL"])
        return {"ID": str(made)}

    def _lease_keepalive(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["ID"] not in self.leases:
            return {"result": {}}
        ttl = self.leases[body["ID"]][0]
        self.leases[body["ID"]] = (ttl, self._world.now + ttl)
        return {"result": {"TTL": str(ttl)}}

    def _lease_revoke(self, body: dict[str, Any]) -> dict[str, Any]:
        self._revoke(body["ID"])
        return {}

    def _revoke(self, lease: int) -> None:
        if self.leases.pop(lease, None) is not None:
            self.revision += 1
            self.rows = {key: row for key, row in self.rows.items() if row[2] != lease}

    def _kv_range(self, body: dict[str, Any]) -> dict[str, Any]:
        first = _text(body["key"])
        last = _text(body["range_end"]) if "range_end" in body else first + "\0"
        found = sorted(key for key in self.rows if first <= key < last)
        rows = [(key, self.rows[key]) for key in found]
        return {"kvs": [{"key": _b64(k), "value": _b64(v), "create_revision": str(c)} for k, (v, c, _) in rows]}

    def _kv_compaction(self, body: dict[str, Any]) -> dict[str, Any]:
        return {}

    def _kv_txn(self, body: dict[str, Any]) -> dict[str, Any]:
        for one in body["compare"]:
            row = self.rows.get(_text(one["key"]))
            if one["target"] == "CREATE" and (row[1] if row else 0) != one["create_revision"]:
                return {}
            if one["target"] == "VALUE" and (row is None or row[0] != _text(one["value"])):
                return {}
        if body["success"]:
            self.revision += 1
        for one in body["success"]:
            if put := one.get("request_put"):
                if put.get("lease") and put["lease"] not in self.leases:
                    return {}
                before = self.rows.get(_text(put["key"]))
                made = before[1] if before else self.revision
                self.rows[_text(put["key"])] = (_text(put["value"]), made, put.get("lease", 0))
            else:
                self.rows.pop(_text(one["request_delete_range"]["key"]), None)
        return {"succeeded": True}


def _text(code: str) -> str:
    return base64.b64decode(code).decode()


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class World:
    """Time, the network between the parts, and the devices."""

    def __init__(self, seed: int) -> None:
        self.now = 1000.0
        self.random = random.Random(seed)
        self.topology = hybrid()
        self.network = Network(self.topology)
        self.network.lenient = True  # a fibre that is taken answers FAULT; the log is what is judged
        self.etcd = MiniEtcd(self)
        self.log: list[Order] = []
        self.agents = {name: Agent(name) for name in self.topology.servers}
        self.grants = self.circuits = 0  # told to agents; of the latter kind
        self.ocs_s = 0.07  # that a cross-connect takes
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self.members = [Member(self, name) for name in ("a", "b")]

    def at(self, when: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (when, next(self._serial), call))

    def latency(self) -> float:
        return self.random.uniform(*LATENCY_S)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            due = [(when, one) for one in self.members if not one.stopped and (when := one.loop.due()) is not None]
            when, member = min(due, key=lambda one: one[0], default=(end, None))
            if self._heap and self._heap[0][0] <= max(when, self.now):
                when, member = self._heap[0][0], None
            if when > end:
                break
            self.now = max(self.now, when)
            if member is not None:
                member.loop.turn()
            elif self._heap and self._heap[0][0] <= self.now:
                heapq.heappop(self._heap)[2]()
            else:
                break
        self.now = max(self.now, end)

    # -- agents ------------------------------------------------------------------------------------------------------

    def leads(self, member: Member) -> None:
        """A manager has begun to lead: agents leave the other one, which may not know yet."""
        for agent in self.agents.values():
            if agent.manager is not member and self.random.random() < 0.9:
                self.connect(agent, member)

    def connect(self, agent: Agent, member: Member) -> None:
        agent.manager = member
        if member.owner:
            member.post(ev.AgentUp(agent.server, 1, 7071, tuple(agent.live.values())))
            for request in agent.asked.values():
                member.post(ev.RequestReceived(request))

    def keep_alive(self) -> None:
        for agent in self.agents.values():
            leader = next(
                (one for one in self.members if one.owner and not one.stopped and one.reached("agents")), None
            )
            if agent.manager and agent.manager.owner and not agent.manager.stopped:
                agent.manager.post(ev.KeepAlive(agent.server))
            elif leader:
                self.connect(agent, leader)
        self.at(self.now + 0.7, self.keep_alive)

    def ask(self) -> None:
        self.put_request()
        self.at(self.now + self.random.uniform(0.1, 0.8), self.ask)

    def put_request(self) -> None:
        sender, *receivers = self.random.sample(sorted(self.agents), self.random.randint(2, 3))
        agent, number = self.agents[sender], next(self._serial)
        request = PathRequest(
            f"r{number}", sender, sender, tuple(receivers), 1 << 30, 1 << 30, b"a" * 16, number, wait_ms=20_000
        )
        agent.asked[request.request_id] = request
        if agent.manager and agent.manager.owner:
            agent.manager.post(ev.RequestReceived(request))

    def release(self) -> None:
        held = [(agent, path) for agent in self.agents.values() for path in agent.live]
        if held:
            agent, path = self.random.choice(held)
            if agent.manager and agent.manager.owner and not agent.manager.stopped:
                request_id = agent.live.pop(path).request_id
                agent.fibres.pop(path, None)
                agent.manager.post(ev.Released(path, request_id, agent.server))
        self.at(self.now + self.random.uniform(0.1, 0.6), self.release)

    # -- faults ------------------------------------------------------------------------------------------------------

    def trouble(self) -> None:
        member = self.random.choice(self.members)
        leading = [one for one in self.members if one.owner]
        if leading and self.random.random() < 0.7:
            member = leading[0]
        seconds = self.random.choice((0.3, 1.0, 2.2, 2.8, 3.5, 6.0))
        kind = self.random.choice(("stop", "stop", "etcd", "ocs", "both"))
        if kind == "stop" and not member.stopped:
            member.stop()
            self.at(self.now + seconds, member.go_on)
        for far in {"etcd": ("etcd",), "ocs": ("ocs",), "both": ("etcd", "ocs")}.get(kind, ()):
            member.cut[far] = max(member.cut.get(far, 0.0), self.now + seconds)
        self.at(self.now + self.random.uniform(1.0, 7.0), self.trouble)

    def check(self) -> None:
        """No order of a term after a later term's first; nobody's fibre is somebody else's."""
        terms = [one.term for one in self.log]
        assert terms == sorted(terms), "\n".join(map(str, self.log[-12:]))
        held: dict[FIBRE, tuple[str, str]] = {}
        for agent in self.agents.values():
            for path, (circuit, fibres) in agent.fibres.items():
                for fibre in fibres:
                    other = held.setdefault(fibre, (circuit, path))
                    assert other[0] == circuit, f"{fibre} is held by {other} and by {(circuit, path)} at {self.now}"


class MemberEtcd(Etcd):
    """A manager's way to etcd."""

    def __init__(self, world: World, member: Member) -> None:
        super().__init__(["http://etcd"])
        self._world, self._member = world, member

    async def _ask(self, what: str, body: Any, call_s: float | None = None) -> Any:
        world, member = self._world, self._member
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def arrives() -> None:
            if not member.reached("etcd"):
                return
            answer = world.etcd.ask(what, body)
            if member.reached("etcd"):
                world.at(world.now + world.latency(), lambda: member.hand(done, answer))

        world.at(world.now + world.latency(), arrives)
        try:
            async with asyncio.timeout(call_s or 1.0):
                value = await done
        except TimeoutError:
            raise StoreError("no etcd answers") from None
        self.revision = int(value["header"]["revision"])
        return value


class MemberOcs:
    """A manager's TL1 session: one command after the other, and nothing of it leaves unless it may."""

    def __init__(self, world: World, member: Member, term: int, may_order: Callable[[], bool]) -> None:
        self._world, self._member, self._term, self._may_order = world, member, term, may_order

    async def connect(self, pairs: Sequence[Pair]) -> list[CrossConnect]:
        if not self._may_order():
            raise SouthboundError("not sent: this manager may lead no more")
        return list(await self._send("connect", tuple(pairs), self._world.ocs_s))

    async def disconnect(self, pairs: Sequence[Pair]) -> None:
        if not self._may_order():
            raise SouthboundError("not sent: this manager may lead no more")
        await self._send("disconnect", tuple(pairs), 0.01)

    async def read(self) -> list[CrossConnect]:
        return list(await self._send("read", (), 0.0))

    async def _send(self, what: str, pairs: tuple[Pair, ...], takes_s: float) -> Any:
        world, member = self._world, self._member
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        sent = world.now

        def arrives() -> None:
            if not member.reached("ocs"):
                if world.now - sent < UNSENT_S:
                    world.at(world.now + 0.05, arrives)
                else:  # the kernel gives the connection up, and with it what was not taken
                    member.fail(done, "the connection was lost, with a command unanswered")
                return
            if what == "read":
                answer: Any = world.network.found("ocs")
            else:
                world.log.append(Order(world.now, self._term, member.name, what, pairs))
                answer = getattr(world.network, what)("ocs", pairs)
            world.at(world.now + takes_s + world.latency(), lambda: member.hand(done, answer))

        world.at(world.now + world.latency(), arrives)
        return await done


class Member:
    """A manager's process. `cut`: from whom the network cuts it off, and until when."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.loop = MemberLoop(world)
        self.cut: dict[str, float] = {}
        self.stopped, self.stopped_s, self._since = False, 0.0, 0.0
        self.owner: Owner | None = None
        self.devices: Devices | None = None
        self.terms: list[int] = []
        self._boots = itertools.count(1)
        self._task = self.loop.create_task(self._live())

    def reached(self, far: str) -> bool:
        return self.cut.get(far, 0.0) <= self.world.now

    def stop(self) -> None:
        self.stopped, self._since = True, self.world.now

    def go_on(self) -> None:
        self.stopped = False
        self.stopped_s += self.world.now - self._since

    def clock(self) -> int:
        """Of its own running time."""
        return round((self.world.now - self.stopped_s) * 1e9)

    def post(self, event: ev.Event) -> None:
        """Waits in a socket while the process is stopped."""
        self.loop.call_soon(lambda: self.owner.post(event) if self.owner else None)

    def hand(self, done: asyncio.Future[Any], answer: Any) -> None:
        self.loop.call_soon(lambda: None if done.done() else done.set_result(answer))

    def fail(self, done: asyncio.Future[Any], words: str) -> None:
        self.loop.call_soon(lambda: None if done.done() else done.set_exception(SouthboundError(words)))

    async def _live(self) -> None:
        """As member.run."""
        etcd = MemberEtcd(self.world, self)
        while True:
            election = Election(etcd, "/t", Facts(self.name, "", ""), LEASE_S)
            try:
                await election.campaign()
                await self._lead(etcd, election)
            except StoreError:
                pass
            finally:
                await election.resign()
            await asyncio.sleep(1.0)

    async def _lead(self, etcd: Etcd, election: Election) -> None:
        world, term = self.world, election.term
        store = SharedStore(etcd, "/t", election)
        records = await store.load()
        settings = Settings(boot_id=1_000_000 * next(self._boots) + 100 * term, circuit_wait_ns=5_000_000_000)
        owner = Owner(Manager(world.topology, settings, self.clock()), self.clock)
        ocs: Any = MemberOcs(world, self, term, lambda: election.leads(ORDER_MARGIN * LEASE_S))
        fabric = FakeFabric(world.network, lambda name: None, lambda name, cause: None, lambda light: None)
        devices = Devices(
            world.topology, fabric, {"ocs": ocs}, owner.post, self.clock, 2.0,
            election.leads, lambda: election.leads(ORDER_MARGIN * LEASE_S),
        )  # fmt: skip
        lost: asyncio.Future[StoreError] = self.loop.create_future()
        owner.on_lost = lambda error: None if lost.done() else lost.set_result(error)
        self.devices = owner.devices = devices
        owner.agents = Told(world, self, owner)
        assert election.lost is not None
        election.lost.add_done_callback(lambda done: (owner.close(), owner.on_lost(done.result())))
        owner.manager.core.durable = Durable(round(world.now * 1e9) - self.clock())
        owner.begin(store, owner.manager.restore(records, self.clock(), store.complete))
        self.owner = owner
        self.terms.append(term)
        tending = asyncio.create_task(store.tend(settings.grace / 1e9))
        try:
            for switch in world.topology.switches:
                owner.post(ev.SwitchUp(switch))
            owner.post(ev.OcsUp("ocs"))
            world.leads(self)
            raise await lost
        finally:
            self.owner = None
            tending.cancel()
            owner.close()
            await devices.close()


class Told:
    """What a manager says to agents; heard by those who are connected to it. Implements `owner.Agents`."""

    def __init__(self, world: World, member: Member, owner: Owner) -> None:
        self._world, self._member, self._owner = world, member, owner

    def respond(self, server: str, response: PathResponse) -> None:
        agent = self._agent(server)
        if agent is None or response.decision is Decision.QUEUED:
            return
        request = agent.asked.pop(response.request_id, None)
        if request is None or response.decision is not Decision.ACCEPTED:
            return
        path = response.response_id
        live = LivePath(
            response.request_id, path, IPv4Address(response.group), response.kind, request.receivers,
            response.accepted_size,
        )  # fmt: skip
        agent.live[path] = live
        self._world.grants += 1
        if response.kind is PathKind.CIRCUIT:
            self._world.circuits += 1
            self._holds(agent, path)

    def moved(self, server: str, path_id: str, kind: PathKind, reason: str) -> None:
        agent = self._agent(server)
        if agent and path_id in agent.live:
            agent.live[path_id] = replace(agent.live[path_id], kind=kind)
            agent.fibres.pop(path_id, None)

    def failed(self, server: str, path_id: str, reason: str) -> None:
        agent = self._agent(server)
        if agent:
            agent.live.pop(path_id, None)
            agent.fibres.pop(path_id, None)

    def light(self, server: str, path_id: str) -> None:
        """Light is light."""

    def view(self, server: str, view: Any) -> None:
        """No RDCM here."""

    def group_view(self, server: str, peers: Any, views: Any) -> None:
        """No groups here."""

    def group_refused(self, server: str, group: str, reason: str) -> None:
        """No groups here."""

    def _agent(self, server: str) -> Agent | None:
        agent = self._world.agents[server]
        return agent if agent.manager is self._member else None

    def _holds(self, agent: Agent, path_id: str) -> None:
        path = self._owner.path(path_id)
        if path and path.cascade:
            pairs = path.cascade.pairs
            fibres = {("in", one.input) for one in pairs} | {("out", one.output) for one in pairs}
            agent.fibres[path_id] = (f"{path.circuit_id} {pairs}", frozenset(fibres))
            self._world.check()


@pytest.fixture
def world(seed: int, monkeypatch: pytest.MonkeyPatch) -> Iterable[World]:
    made = World(seed)
    monkeypatch.setattr(shared_store, "_clock", lambda: made.now)
    monkeypatch.setattr(run_clock.CLOCK, "_machine", lambda: round(made.now * 1e9))
    yield made
    for one in made.members:
        one._task.cancel()
        for task in asyncio.all_tasks(one.loop):
            task.cancel()
    for one in made.members:
        one.stopped = False
        with contextlib.suppress(Exception):
            made.run(5.0)
        one.loop.close()


def test_partitions_and_pauses__no_order_of_a_term_after_a_later_ones_first_and_no_fibre_granted_twice(
    world: World, seed: int
) -> None:
    world.at(world.now, world.keep_alive)
    world.at(world.now + 1.0, world.ask)
    world.at(world.now + 2.0, world.release)
    world.at(world.now + 5.0, world.trouble)
    for _ in range(600):
        world.ocs_s = world.random.choice((0.07, 0.07, 0.5, 1.5))
        world.run(1.0)
        world.check()
    terms = {one.term for one in world.log}
    what = f"{len(terms)} terms, {len(world.log)} orders, {world.grants} grants, {world.circuits} of them of circuits"
    assert len(terms) >= 10 and world.circuits > 40, f"seed {seed}: {what}"
    print(what)


def test_the_leader_stops_past_its_lease_with_an_order_under_way(world: World) -> None:
    """The order arrives while it sleeps; when it wakes, what waited behind that order is not given."""
    world.at(world.now, world.keep_alive)
    world.run(3.0)
    (leader,) = [one for one in world.members if one.owner]
    assert leader.owner
    (other,) = [one for one in world.members if one is not leader]
    sender = world.agents["h1"]
    world.ocs_s = 1.0

    def asks(number: int, receiver: str) -> None:
        request = PathRequest(f"r{number}", "h1", "h1", (receiver,), 1 << 30, 1 << 30, b"a" * 16, number)
        sender.asked[request.request_id] = request
        leader.post(ev.RequestReceived(request))

    asks(1, "h3")
    while not world.log:
        world.run(0.005)
    first = world.log[0]
    (path,) = sender.live
    leader.post(ev.Released(path, sender.live.pop(path).request_id, "h1"))
    sender.fibres.clear()
    asks(2, "h5")  # takes the circuit's place: down with it, up with the next, once the first order is over
    while not sender.live:
        world.run(0.005)
    assert len(world.log) == 1 and leader.devices and leader.devices.busy > 1
    leader.stop()
    world.run(LEASE_S + 4.0)
    assert other.owner and other.terms and other.terms[0] > first.term
    while not [one for one in world.log if one.term == other.terms[0]]:
        world.put_request()
        world.run(1.0)
    mark = len(world.log)
    leader.go_on()
    world.run(10.0)
    assert all(one.member == other.name for one in world.log[mark:])
    world.check()
    assert leader.owner is None
