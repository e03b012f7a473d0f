"""Two managers, etcd, an OCS and agents, cut off from each other and stopped at any moment, with orders to the OCS
under way: in virtual time, each manager on a loop of its own that can be stopped while the world goes on.

The OCS's command log is the witness, with what agents were told: TL1 knows no terms, so nobody but the managers
themselves keeps a deposed one from ordering. Nothing is judged by what a manager says of itself. What is real:
election, shared store, runtime, core, execution. What is not: etcd, switches (they refuse orders of earlier terms), the
TL1 connection, which keeps orders back for `UNSENT_S` at most when the network does, as the kernel does for the real
one.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import heapq
import itertools
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from typing import Any

import pytest
from rostrum.controller.core import events as ev
from rostrum.controller.core.manager import Manager
from rostrum.controller.core.model import CrossConnect, MulticastRule, Pair, PathKind, SouthboundError
from rostrum.controller.core.persistence.persistence import Persistence
from rostrum.controller.core.values import Decision, LivePath, PathRequest, PathResponse, Settings, Wanted
from rostrum.controller.runtime import run_clock, shared_store
from rostrum.controller.runtime.etcd import Etcd
from rostrum.controller.runtime.execution import Devices
from rostrum.controller.runtime.leadership import ORDER_MARGIN
from rostrum.controller.runtime.runtime import Runtime
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
    done: tuple[Pair, ...] = ()  # what it made or took down


@dataclass
class Agent:
    """`live`: what it believes that it may send on. It listens to the manager that it is connected to. `asleep`: its
    process is stopped, and what it is told waits in `inbox`; then it sends by none of its paths (`slept`) before it has
    asked, but its switch must keep it off all the same.
    """

    server: str
    manager: Member | None = None
    lead: Runtime | None = None  # of the manager, when it was connected to
    live: dict[str, LivePath] = field(default_factory=dict)
    asked: dict[str, PathRequest] = field(default_factory=dict)
    asleep: bool = False
    inbox: list[Callable[[], None]] = field(default_factory=list)
    slept: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)  # what it was denied or lost, as text


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
        self.rules_s = 0.0  # that a switch takes
        self.setting = 0  # orders with rules that switches have not answered
        self.term = 0  # the newest that the switches were told
        self.deaf: set[str] = set()  # switches that nothing reaches, though they are connected
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
            if agent.lead is not member.runtime and not agent.asleep and self.random.random() < 0.9:
                self.connect(agent, member)

    def connect(self, agent: Agent, member: Member) -> None:
        agent.manager, agent.lead = member, member.runtime
        if member.runtime:
            member.post(ev.AgentUp(agent.server, 1, 7071, tuple(agent.live.values())))
            for request in agent.asked.values():
                member.post(ev.RequestReceived(request))

    def keep_alive(self) -> None:
        for agent in self.agents.values():
            if agent.asleep:
                continue
            leader = next(
                (one for one in self.members if one.runtime and not one.stopped and one.reached("agents")), None
            )
            lead = agent.manager.runtime if agent.manager else None
            if agent.manager and lead and lead is agent.lead and not agent.manager.stopped:
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
        if agent.asleep:
            return
        request = PathRequest(
            f"r{number}", sender, sender, tuple(receivers), 1 << 30, 1 << 30, b"a" * 16, number, wait_ms=20_000
        )
        agent.asked[request.request_id] = request
        if agent.manager and agent.manager.runtime:
            agent.manager.post(ev.RequestReceived(request))

    def release(self) -> None:
        held = [(agent, path) for agent in self.agents.values() if not agent.asleep for path in agent.live]
        if held:
            agent, path = self.random.choice(held)
            if agent.manager and agent.manager.runtime and not agent.manager.stopped:
                request_id = agent.live.pop(path).request_id
                agent.manager.post(ev.Released(path, request_id, agent.server))
        self.at(self.now + self.random.uniform(0.1, 0.6), self.release)

    # -- faults ------------------------------------------------------------------------------------------------------

    def trouble(self) -> None:
        member = self.random.choice(self.members)
        leading = [one for one in self.members if one.runtime]
        if leading and self.random.random() < 0.7:
            member = leading[0]
        seconds = self.random.choice((0.3, 1.0, 2.2, 2.8, 3.5, 6.0))
        kind = self.random.choice(("stop", "stop", "etcd", "ocs", "both", "sleep", "sleep"))
        awake = [agent for agent in self.agents.values() if not agent.asleep]
        if kind == "sleep" and awake:
            self.sleep(self.random.choice(awake), self.random.choice((1.0, 4.0, 10.0, 60.0)))
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
        crossed = self.crossed()
        held: dict[FIBRE, tuple[str, str]] = {}
        for agent in self.agents.values():
            circuits = [path for path, live in agent.live.items() if live.kind is PathKind.CIRCUIT]
            for path in circuits:
                if path in agent.slept and not self.leads_out(agent.server, agent.live[path].group):
                    continue
                for fibre in self.fibres(agent.server, agent.live[path].receivers, crossed):
                    other = held.setdefault(fibre, (agent.server, path))
                    assert other == (agent.server, path), (
                        f"{fibre} is held by {other} and by {(agent.server, path)} at {self.now}:\n"
                        + "\n".join(map(str, self.log[-12:]))
                    )

    def leads_out(self, server: str, group: IPv4Address) -> bool:
        """Whether what a server sends to this group gets into the OCS, by its switch's rules."""
        place = self.topology.servers[server]
        rule = self.network.tables[place.tor].get((place.tor_port, group))
        neighbours = self.topology.switches[place.tor].neighbours
        return rule is not None and any(neighbours[port].node in self.topology.ocs for port in rule.out_ports)

    def sleep(self, agent: Agent, seconds: float) -> None:
        def wakes() -> None:
            inbox, agent.inbox = agent.inbox, []
            for hear in inbox:
                hear()
            agent.asleep = False

        agent.asleep = True
        agent.slept |= set(agent.live)
        self.at(self.now + seconds, wakes)

    def crossed(self) -> dict[int, int]:
        """Input -> output, by the OCS's log."""
        there: dict[int, int] = {}
        for order in self.log:
            for pair in order.done:
                if order.what == "connect":
                    assert there.get(pair.input, pair.output) == pair.output, f"{pair} of {order} was another's"
                    there[pair.input] = pair.output
                else:
                    there.pop(pair.input, None)
        assert len(set(there.values())) == len(there), there
        return there

    def fibres(self, sender: str, receivers: Iterable[str], crossed: dict[int, int]) -> set[FIBRE]:
        """What a circuit takes of the OCS: its racks' ports, and once it is made what its light passes."""
        ocs, servers = self.topology.ocs["ocs"], self.topology.servers
        ports = {end.node: port for port, end in ocs.attached.items()}
        source = servers[sender].tor
        racks = {servers[one].tor for one in receivers} - {source}
        taken: set[FIBRE] = {("in", ports[source])} | {("out", ports[rack]) for rack in racks}
        light: set[FIBRE] = set()
        lit = [ports[source]]
        while lit:
            output = crossed.get(fibre := lit.pop())
            if output is not None:
                light |= {("in", fibre), ("out", output)}
                lit += [out for one in ocs.splitters.values() if one.input == output for out in one.outputs]
        reached = {port for side, port in light if side == "out" and port in ocs.attached}
        there = reached == {ports[rack] for rack in racks}  # else it is not made yet
        return taken | light if there else taken


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
                order = Order(world.now, self._term, member.name, what, pairs)
                world.log.append(order)
                before = world.network.pairs("ocs")
                answer = getattr(world.network, what)("ocs", pairs)
                order.done = tuple(before ^ world.network.pairs("ocs"))
            world.at(world.now + takes_s + world.latency(), lambda: member.hand(done, answer))

        world.at(world.now + world.latency(), arrives)
        return await done


class MemberFabric(FakeFabric):
    """A manager's way to the switches, which listen to the newest term alone."""

    def __init__(self, world: World, member: Member, term: int) -> None:
        super().__init__(world.network, lambda name: None, lambda name, cause: None, lambda light: None)
        self._world, self._member, self._term = world, member, term
        world.term = max(world.term, term)

    async def install(self, rules: Sequence[MulticastRule]) -> None:
        await self._order(rules, lambda: self.network.install(tuple(rules)))

    async def remove(self, rules: Sequence[MulticastRule]) -> None:
        await self._order(rules, lambda: self.network.remove(tuple(rules)))

    async def read(self, switch: str) -> set[MulticastRule]:
        if switch in self._world.deaf:
            await asyncio.get_running_loop().create_future()
        return await super().read(switch)

    async def _order(self, rules: Sequence[MulticastRule], do: Callable[[], None]) -> None:
        world, member = self._world, self._member
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def arrives() -> None:
            world.setting -= 1
            if world.deaf & {rule.switch for rule in rules}:
                return
            if self._term < world.term:
                member.fail(done, "another manager leads")
                return
            do()
            member.hand(done, None)

        world.setting += 1
        world.at(world.now + world.rules_s, arrives)
        await done


class Member:
    """A manager's process. `cut`: from whom the network cuts it off, and until when."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.loop = MemberLoop(world)
        self.cut: dict[str, float] = {}
        self.stopped, self.stopped_s, self._since = False, 0.0, 0.0
        self.runtime: Runtime | None = None
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
        self.loop.call_soon(lambda: self.runtime.post(event) if self.runtime else None)

    def hand(self, done: asyncio.Future[Any], answer: Any) -> None:
        self.loop.call_soon(lambda: None if done.done() else done.set_result(answer))

    def fail(self, done: asyncio.Future[Any], text: str) -> None:
        self.loop.call_soon(lambda: None if done.done() else done.set_exception(SouthboundError(text)))

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
        runtime = Runtime(Manager(world.topology, settings, self.clock()), self.clock)
        ocs: Any = MemberOcs(world, self, term, lambda: election.leads(ORDER_MARGIN * LEASE_S))
        fabric = MemberFabric(world, self, term)
        devices = Devices(
            world.topology, fabric, {"ocs": ocs}, runtime.post, self.clock, 2.0,
            election.leads, lambda: election.leads(ORDER_MARGIN * LEASE_S),
        )  # fmt: skip
        lost: asyncio.Future[StoreError] = self.loop.create_future()
        runtime.on_lost = lambda error: None if lost.done() else lost.set_result(error)
        self.devices = runtime.devices = devices
        runtime.agents = Told(world, self)
        assert election.lost is not None
        election.lost.add_done_callback(lambda done: (runtime.close(), runtime.on_lost(done.result())))
        runtime.manager.core.persistence = Persistence(round(world.now * 1e9) - self.clock())
        runtime.begin(store, runtime.manager.restore(records, self.clock(), store.complete))
        self.runtime = runtime
        self.terms.append(term)
        tending = asyncio.create_task(store.tend(settings.grace / 1e9))
        try:
            for switch in world.topology.switches:
                runtime.post(ev.SwitchUp(switch))
            runtime.post(ev.OcsUp("ocs"))
            world.leads(self)
            raise await lost
        finally:
            self.runtime = None
            tending.cancel()
            runtime.close()
            await devices.close()


class Told:
    """What a manager says to agents; heard by those who are connected to it. Implements `runtime.Agents`."""

    def __init__(self, world: World, member: Member) -> None:
        self._world, self._member = world, member

    def respond(self, server: str, response: PathResponse) -> None:
        self._hear(server, lambda agent: self._respond(agent, response))

    def _respond(self, agent: Agent, response: PathResponse) -> None:
        if response.decision is Decision.QUEUED:
            return
        request = agent.asked.pop(response.request_id, None)
        if response.decision is Decision.DENIED:
            agent.failed.append(response.reason)
        if request is None or response.decision is not Decision.ACCEPTED:
            return
        path = response.response_id
        live = LivePath(
            response.request_id, path, IPv4Address(response.group), response.kind, request.receivers,
            response.accepted_size,
        )  # fmt: skip
        agent.live[path] = live
        if agent.asleep:
            agent.slept.add(path)  # it was granted meanwhile; what comes next may take it back
        self._world.grants += 1
        if response.kind is PathKind.CIRCUIT:
            self._world.circuits += 1
            self._world.check()

    def moved(self, server: str, path_id: str, kind: PathKind, reason: str) -> None:
        def hear(agent: Agent) -> None:
            if path_id in agent.live:
                agent.live[path_id] = replace(agent.live[path_id], kind=kind)

        self._hear(server, hear)

    def failed(self, server: str, path_id: str, reason: str) -> None:
        def hear(agent: Agent) -> None:
            agent.failed.append(reason)
            agent.live.pop(path_id, None)

        self._hear(server, hear)

    def light(self, server: str, path_id: str) -> None:
        """Light is light."""

    def view(self, server: str, view: Any) -> None:
        """No RDCM here."""

    def group_view(self, server: str, peers: Any, views: Any) -> None:
        """No groups here."""

    def group_refused(self, server: str, group: str, reason: str) -> None:
        """No groups here."""

    def _hear(self, server: str, hear: Callable[[Agent], None]) -> None:
        agent = self._world.agents[server]
        if agent.manager is self._member:
            agent.inbox.append(lambda: hear(agent)) if agent.asleep else hear(agent)


@pytest.fixture
def make_world(monkeypatch: pytest.MonkeyPatch) -> Iterable[Callable[[int], World]]:
    """One world at a time: the one before ends."""
    worlds: list[World] = []

    def end() -> None:
        for made in worlds:
            for one in made.members:
                one._task.cancel()
                for task in asyncio.all_tasks(one.loop):
                    task.cancel()
            for one in made.members:
                one.stopped = False
                with contextlib.suppress(Exception):
                    made.run(5.0)
                one.loop.close()
        worlds.clear()

    def make(seed: int) -> World:
        end()
        made = World(seed)
        monkeypatch.setattr(shared_store, "_clock", lambda: made.now)
        monkeypatch.setattr(run_clock.CLOCK, "_machine", lambda: round(made.now * 1e9))
        worlds.append(made)
        return made

    yield make
    end()


@pytest.fixture
def world(make_world: Callable[[int], World], seed: int) -> World:
    return make_world(seed)


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
    (leader,) = [one for one in world.members if one.runtime]
    assert leader.runtime
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
    asks(2, "h5")  # takes the circuit's place: down with it, up with the next, once the first order is over
    while not sender.live:
        world.run(0.005)
    assert len(world.log) == 1 and leader.devices and leader.devices.busy > 1
    leader.stop()
    world.run(LEASE_S + 4.0)
    assert other.runtime and other.terms and other.terms[0] > first.term
    while not [one for one in world.log if one.term == other.terms[0]]:
        world.put_request()
        world.run(1.0)
    mark = len(world.log)
    leader.go_on()
    world.run(10.0)
    assert all(one.member == other.name for one in world.log[mark:])
    world.check()
    assert leader.runtime is None


PHASES = ("asked", "scheduled", "circuit being made", "rules being set", "sending", "releasing")
LENGTHS_S = (1, 4, 10, 60)
TO = ("h3", "h5")  # whom the sender, and its rival of the same rack, send to
# Who is stopped and goes on, in which order: "l" the leader, "s" its standby.
ORDERS = ("l-l", "s-s", "ls-ls", "ls-sl", "sl-ls", "sl-sl", "l-l then s-s", "l then s-l then s")


class Scene:
    """One transfer, brought to a phase of it; a rival waits for the same optics."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.ocs_s, world.rules_s = 0.5, 0.1
        world.at(world.now, world.keep_alive)
        world.run(3.0)
        (self.leader,) = [one for one in world.members if one.runtime]
        (self.standby,) = [one for one in world.members if one is not self.leader]
        self.sender, self.rival = world.agents["h1"], world.agents["h2"]
        self.sends = True  # and does not give its path back yet

    def ask(self, agent: Agent, number: int) -> None:
        request = PathRequest(
            f"r{number}", agent.server, agent.server, TO, 1 << 30, 1 << 30, b"a" * 16, number,
            wait_ms=300_000, wanted=Wanted.CIRCUIT,
        )  # fmt: skip
        agent.asked[request.request_id] = request
        if agent.manager:
            agent.manager.post(ev.RequestReceived(request))

    def until(self, condition: Callable[[], object], what: str, bound_s: float = 20.0, step_s: float = 0.01) -> None:
        end = self.world.now + bound_s
        while not condition():
            assert self.world.now < end, f"{what} within {bound_s} s: {self.story()}"
            self.world.run(step_s)
            self.world.check()

    def to(self, phase: str) -> None:
        world, sender = self.world, self.sender
        self.ask(sender, 1)
        if phase != "asked":
            self.until(lambda: sender.live, "the path is granted", step_s=0.001)
        if phase == "rules being set":
            self.until(lambda: world.setting, "rules are on their way", step_s=0.001)
        elif phase == "circuit being made":
            self.until(lambda: world.log, "the order is under way", step_s=0.005)
        elif phase in ("sending", "releasing"):
            self.until(self.lit, "the path is there")
        self.ask(self.rival, 2)
        if phase == "releasing":
            self.give_back(sender)

    def lit(self) -> bool:
        """The sender's packets get to all whom it sends to, by what the devices have."""
        return any(
            live.kind is PathKind.CIRCUIT
            and self.world.network.deliver("h1", live.group) == dict.fromkeys(live.receivers, 1)
            for live in self.sender.live.values()
        )

    def give_back(self, agent: Agent) -> None:
        for path, live in list(agent.live.items()):
            del agent.live[path]
            if agent.manager:
                agent.manager.post(ev.Released(path, live.request_id, agent.server))

    def pause(self, order: str, seconds: float) -> None:
        """In world time; what is left open by an order's turn is drawn."""
        world = self.world
        who = {"l": self.leader, "s": self.standby}
        if order == "l-l then s-s":  # the standby, when it has taken over
            self.stop(self.leader, seconds)
            self.stop(self.standby, seconds)
        elif order == "l then s-l then s":
            self.leader.stop()
            self.during(seconds / 2)
            self.standby.stop()
            self.during(seconds / 2)
            self.leader.go_on()
            self.during(seconds / 2)
            self.standby.go_on()
        else:
            stops, goes_on = order.split("-")
            for number, one in enumerate(stops):
                self.during(world.random.uniform(0.0, 0.4) if number else 0.0)
                who[one].stop()
            self.during(seconds)
            for number, one in enumerate(goes_on):
                self.during(world.random.uniform(0.0, 1.5) if number else 0.0)
                who[one].go_on()

    def stop(self, member: Member, seconds: float) -> None:
        member.stop()
        self.during(seconds)
        member.go_on()

    def during(self, seconds: float) -> None:
        end = self.world.now + seconds
        while self.world.now < end:
            self.world.run(min(0.25, end - self.world.now))
            self.world.check()

    def finish(self) -> None:
        """Both get what they asked for, one after the other, and nothing is left behind."""
        world, sender, rival = self.world, self.sender, self.rival
        told = lambda agent: agent.live or agent.failed  # noqa: E731
        self.until(lambda: self.lit() or rival.live or sender.failed, "somebody has the optics", 30.0, 0.1)
        self.until(lambda: sender.asked == {} or rival.live, "the sender was answered", 30.0, 0.1)
        self.give_back(sender)
        self.until(lambda: told(rival), "the rival has its turn", 60.0, 0.1)
        assert not rival.failed and not sender.failed, self.story()
        self.give_back(rival)
        self.until(self.quiet, "nothing is left", 60.0, 0.25)
        terms = [one.term for one in world.log]
        assert terms == sorted(terms)

    def quiet(self) -> bool:
        leading = [one for one in self.world.members if one.runtime]
        if len(leading) != 1 or not leading[0].runtime:
            return False
        core = leading[0].runtime.manager.core
        for agent in self.world.agents.values():
            self.give_back(agent)  # what came late
        circuits = {(pair.input, pair.output) for one in core.resources.circuits for pair in one.cascade.pairs}
        held = core.resources.in_use() or core.queue or core.fences or core.foreign_rules
        return not held and not self.world.setting and circuits == set(self.world.crossed().items())

    def story(self) -> str:
        world = self.world
        lines = [f"{name}: {agent}" for name, agent in world.agents.items() if name in ("h1", "h2")]
        lines += [f"{one.name}: stopped {one.stopped}, leads {one.runtime is not None}" for one in world.members]
        return "\n".join([f"at {world.now}", *lines, *map(str, world.log[-12:])])


def test_takeover__a_circuit_whose_sender_sleeps_is_nobodys_while_its_switch_leads_there(world: World) -> None:
    scene = Scene(world)
    scene.to("sending")
    (live,) = scene.sender.live.values()
    world.sleep(scene.sender, 100.0)
    world.run(2.0)
    world.deaf = {"tor1"}
    scene.leader.stop()
    scene.until(lambda: scene.standby.runtime, "the standby leads")
    scene.during(45.0)
    assert world.leads_out("h1", live.group) and not scene.rival.live
    asks = world.agents["h4"]
    request = PathRequest("r9", "h4", "h4", ("h7",), 1 << 30, 1 << 30, b"a" * 16, 9, wanted=Wanted.CIRCUIT)
    asks.asked["r9"] = request
    scene.standby.post(ev.RequestReceived(request))
    scene.until(lambda: asks.live, "another rack has its circuit", 2.0)
    scene.give_back(asks)
    world.deaf = set()
    scene.leader.go_on()
    scene.until(lambda: scene.rival.live, "the rival has its turn", 60.0, 0.1)
    assert not world.leads_out("h1", live.group)
    assert [one.kind for one in scene.rival.live.values()] == [PathKind.CIRCUIT]


@pytest.mark.parametrize("seconds", LENGTHS_S)
@pytest.mark.parametrize("phase", PHASES)
def test_leader_and_standby_are_stopped_in_any_order__at_each_phase_of_a_transfer(
    make_world: Callable[[int], World], seed: int, phase: str, seconds: int
) -> None:
    """Nothing fails, nothing is granted twice, nothing is left. Of all orders a few at each run."""
    orders = random.Random(seed).sample(ORDERS, int(os.environ.get("ROSTRUM_PAUSE_ORDERS", "2")))
    for order in orders:
        print(f"seed {seed}, {phase}, {order}, {seconds} s")
        scene = Scene(make_world(seed))
        scene.to(phase)
        scene.pause(order, seconds)
        scene.finish()
