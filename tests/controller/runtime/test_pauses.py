"""Agents and the manager itself that stand still for a while: nothing is granted twice, nobody is forgotten."""

from __future__ import annotations

import asyncio
from pathlib import Path as FilePath

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.groups.values import Engine, GroupUse
from rostrum.controller.core.manager import Manager
from rostrum.controller.core.model import CrossConnect, CrossConnectState, PathKind
from rostrum.controller.core.values import MS, Decision, PathRequest, S, Settings, State, Wanted
from rostrum.controller.runtime.run_clock import HEARTBEAT_S, PAUSE_NS, RunClock, Within
from rostrum.controller.runtime.runtime import Runtime

from tests.controller.fakes import running, until
from tests.controller.timeline import Timeline, hybrid, live_path

SIX = ("h3", "h4", "h5", "h6", "h7", "h8")
SECOND_NS = 1_000_000_000


class Machine:
    """A machine's clock that tests move."""

    def __init__(self) -> None:
        self.at = 50 * SECOND_NS

    def __call__(self) -> int:
        return self.at

    def stop(self, seconds: float) -> None:
        """The process does not run meanwhile."""
        self.at += round(seconds * 1e9)


def told(line: Timeline, kind: type[act.NotifyMoved | act.NotifyFailed]) -> list[tuple[str, str]]:
    """Whom, about which path."""
    return [(one.server, one.path_id) for one in line.actions if isinstance(one, kind)]


async def beaten(clock: RunClock) -> None:
    """The heartbeat has looked at the clock, however busy this machine is."""
    seen: list[int] = []
    clock.on_pause.append(seen.append)
    await until(lambda: bool(seen), "the pause was seen")
    clock.on_pause.remove(seen.append)


async def test_clock__stands_still_while_the_process_does() -> None:
    machine = Machine()
    clock = RunClock(machine)
    end = clock.watch()
    try:
        before = clock.ns()
        machine.stop(0.2)
        assert clock.ns() == before + SECOND_NS // 5  # as any program waits now and then
        for seconds in (1, 4, 10, 60):
            at = clock.ns()
            machine.stop(seconds)
            assert clock.ns() == at
            await beaten(clock)
        assert clock.pauses == 4 and clock.paused_ns == 75 * SECOND_NS
        assert clock.lost_before(before) == 0 and clock.lost_before(clock.ns() + 1) == 75 * SECOND_NS
    finally:
        end()
    machine.stop(10)
    assert clock.pauses == 4  # nobody watches: it may as well have waited for something
    assert round(HEARTBEAT_S * 1e9) * 5 <= PAUSE_NS


async def test_within__an_answer_that_came_during_a_pause_counts() -> None:
    machine = Machine()
    clock = RunClock(machine)
    end = clock.watch()
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        machine.stop(60)  # longer than the bound: its timer is due when the process goes on
        asyncio.get_running_loop().call_soon(answer.set_result, "done")

    try:
        asyncio.get_running_loop().call_soon(wake)
        async with Within(0.05, clock):
            assert await answer == "done"
        waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        late = asyncio.get_running_loop().call_later(0.01, machine.stop, 0.3)
        try:
            async with Within(0.2, clock):
                await waits
        except TimeoutError:
            pass
        else:
            raise AssertionError("a bound that is over in time that the process ran")
        finally:
            late.cancel()
    finally:
        end()


async def test_manager__stood_still_for_its_leases_and_reads_its_agents_one_by_one() -> None:
    machine = Machine()
    clock = RunClock(machine)
    runtime = Runtime(Manager(hybrid(), Settings(), clock.ns()), clock.ns)
    heard: list[act.Action] = []
    for kind in (act.NotifyFailed, act.NotifyMoved):
        runtime.subscribers.setdefault(kind, []).append(heard.append)
    core = runtime.manager.core
    for switch in core.topology.switches:
        runtime.post(ev.SwitchUp(switch))
    for ocs in core.topology.ocs:
        runtime.post(ev.OcsUp(ocs))
        runtime.post(ev.CrossConnectsFound(ocs, (), clock.ns()))
    end = clock.watch()
    try:
        for server in ("h1", "h3", "h5"):
            runtime.post(ev.AgentUp(server, 1, 7071, ()))
        for number, (server, to) in enumerate((("h1", "h3"), ("h3", "h5"), ("h5", "h1"))):
            runtime.post(ev.RequestReceived(PathRequest(f"r{number}", server, server, (to,), 1, 1, b"a" * 16, 7)))
        granted = [path for path in core.paths.values() if path.granted]
        assert len(granted) == 3
        for seconds in (4, 10, 60):
            machine.stop(seconds)
            runtime.post(ev.KeepAlive("h5"))  # the first that it reads; the others' wait behind it
            runtime.post(ev.Tick())
            assert all(path.granted for path in granted)
            runtime.post(ev.KeepAlive("h1"))
            runtime.post(ev.KeepAlive("h3"))
            await beaten(clock)
        assert not heard and core.counts["leases_over"] == 0
    finally:
        end()
        runtime.close()


def test_sender__silent_and_connected_goes_on_over_the_packet_network() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", *SIX)
    assert path.kind is PathKind.CIRCUIT
    line.wait(3010)  # it was stopped
    assert path.granted and path.kind is PathKind.PACKET and "silent for 3 s" in path.reason
    assert told(line, act.NotifyMoved) == [("h1", path.id)]
    line.assert_delivers(path)
    other = line.ask("h1", *SIX, wanted=Wanted.CIRCUIT)
    assert other.granted  # the circuit is for others
    line.wait(60_000)
    line.do(ev.KeepAlive("h1"))
    assert path.granted
    line.assert_delivers(path)
    line.release(path)
    line.release(other)
    line.assert_nothing_held()


def test_sender__gone_for_good_is_told_when_its_path_is_taken_back() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", *SIX)
    line.wait(line.settings.away / MS + 10)
    assert path.state is State.RELEASED and path.cause.startswith("lease over: the agent of h1 is silent for")
    assert told(line, act.NotifyFailed) == [("h1", path.id)]
    line.assert_nothing_held()


def test_circuit__of_a_silent_sender_is_nobodys_before_its_rules_are_out() -> None:
    for disconnected in (False, True):
        line = Timeline()
        first = line.ask_as_agent("h1", *SIX)
        circuit = line.manager.core.resources.circuits.of_user(first.id)
        assert circuit is not None
        second = line.ask_as_agent("h2", *SIX, wanted=Wanted.CIRCUIT, wait_ms=60_000)
        assert second.state is State.QUEUED
        if disconnected:
            line.do(ev.AgentDown("h1", 1, "reset"))
        line.devices_answer = False
        for _ in range(4):
            line.wait(1000)
            line.do(ev.KeepAlive("h2"))
        assert second.state is State.QUEUED, "the first may still send there"
        assert any(isinstance(one, ev.RulesRemoved) for one in line.held) or not disconnected
        line.let()
        assert second.granted and second.kind is PathKind.CIRCUIT
        line.devices_answer = True
        line.let()
        line.release(second)
        line.release(first)
        line.assert_nothing_held()


def test_circuit__of_a_silent_sender_who_demands_one_is_nobodys_before_its_rules_are_out() -> None:
    line = Timeline()
    first = line.ask_as_agent("h1", *SIX, wanted=Wanted.CIRCUIT)
    second = line.ask_as_agent("h2", *SIX, wanted=Wanted.CIRCUIT, wait_ms=60_000)
    assert first.kind is PathKind.CIRCUIT and second.state is State.QUEUED
    line.devices_answer = False
    for _ in range(4):
        line.wait(1000)
        line.do(ev.KeepAlive("h2"))
    assert first.state is State.FAILED and told(line, act.NotifyFailed) == [("h1", first.id)]
    assert second.state is State.QUEUED, "the first, who is stopped, may still send there"
    line.let()
    assert second.granted and second.kind is PathKind.CIRCUIT


def test_circuit__whose_rules_cannot_be_taken_out_goes_dark() -> None:
    line = Timeline()
    first = line.ask_as_agent("h1", *SIX)
    circuit = line.manager.core.resources.circuits.of_user(first.id)
    assert circuit is not None
    line.do(ev.AgentDown("h1", 1, "reset"))
    line.devices_answer = False
    line.wait(3010)
    (removal,) = [one for one in line.held if isinstance(one, ev.RulesRemoved)]
    line.held.clear()
    line.devices_answer = True
    line.do(ev.RulesRemoved(removal.op, (("t1", "no answer"),)))
    core = line.manager.core
    assert core.resources.circuits.get(circuit.id) is None
    assert not line.network.pairs() & set(circuit.cascade.pairs)
    assert not core.fences and not core.resources.in_use()


def test_circuit__lost_while_it_is_kept_moves_nobody_a_second_time() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", *SIX)
    line.devices_answer = False
    line.wait(3010)
    assert path.granted and told(line, act.NotifyMoved) == [("h1", path.id)]
    circuit = line.manager.core.resources.circuits.of_user(path.id)
    assert circuit is not None and not line.manager.core.users(circuit)
    (pair, *_) = circuit.cascade.pairs
    line.do(ev.CrossConnectChanged("ocs", CrossConnect(pair, CrossConnectState.FAULT, cause="its mirror is stuck")))
    assert line.manager.core.resources.circuits.get(circuit.id) is None
    assert told(line, act.NotifyMoved) == [("h1", path.id)]
    line.devices_answer = True
    line.let()
    line.do(ev.KeepAlive("h1"))
    line.assert_delivers(path)
    line.release(path)
    assert not line.manager.core.resources.in_use() and not line.manager.core.fences


def test_queue__a_silent_agents_request_stays_and_is_not_granted() -> None:
    line = Timeline()
    holder = line.ask("h2", *SIX)
    waits = line.ask_as_agent("h1", *SIX, wanted=Wanted.CIRCUIT, wait_ms=60_000)
    line.wait(10_000)
    assert waits.state is State.QUEUED
    line.release(holder)
    assert waits.state is State.QUEUED
    line.do(ev.KeepAlive("h1"))
    assert waits.granted and line.decisions()[-1] is Decision.ACCEPTED
    line.release(waits)
    line.assert_nothing_held()


def test_queue__a_silent_agent_keeps_nobody_else_waiting() -> None:
    for scheduler in ("fifo", "best-effort", "blast", "srt"):
        line = Timeline(settings=Settings(scheduler=scheduler))
        holder = line.ask("h2", *SIX)
        first = line.ask_as_agent("h1", *SIX, wanted=Wanted.CIRCUIT, wait_ms=60_000)
        line.wait(3010)
        second = line.ask("h2", *SIX, wanted=Wanted.CIRCUIT, wait_ms=60_000)
        line.release(holder)
        assert second.granted and first.state is State.QUEUED, scheduler


def test_request__repeated_by_an_agent_that_was_away_longer_than_its_lease_is_one_more() -> None:
    line = Timeline()
    holder = line.ask("h2", *SIX)
    granted = line.ask_as_agent("h1", "h2", request_id="granted")
    waits = line.ask_as_agent("h1", *SIX, wanted=Wanted.CIRCUIT, wait_ms=60_000, request_id="waits")
    line.do(ev.AgentDown("h1", 1, "reset"))
    line.wait(3010)
    assert granted.final and waits.final
    line.hello("h1")
    assert line.ask_as_agent("h1", "h2", request_id="granted").granted  # its answer had been lost
    again = line.ask_as_agent("h1", *SIX, wanted=Wanted.CIRCUIT, wait_ms=60_000, request_id="waits")
    assert again.state is State.QUEUED
    line.release(holder)
    assert again.granted
    line.manager.core.settings = Settings(history_max=0)
    line.manager.core.forget_old()
    assert line.manager.core.by_request["h1", "waits"] == again.id


def test_group__a_member_that_was_stopped_is_in_it_again_when_it_speaks() -> None:
    line = Timeline()
    for server in ("h1", "h3"):
        line.do(ev.AgentUp(server, 1, 7071, (), group_engines=(Engine("plain"),)))
        line.do(ev.GroupJoined(server, GroupUse("news")))
    line.do(ev.GroupJoined("h3", GroupUse("olds"), sends_only=True))
    line.wait(100)
    for _ in range(4):
        line.wait(1000)
        line.do(ev.KeepAlive("h1"))
    members, places = line.manager.core.members, line.manager.core.members.places
    h3 = 1 << places.number["h3"]
    assert not members.groups["news"].members & h3
    line.actions.clear()
    line.do(ev.KeepAlive("h3"))
    line.wait(100)
    assert members.groups["news"].members & h3 and members.groups["olds"].uses & h3
    views = [one for one in line.actions if isinstance(one, act.PushGroups) and one.server == "h3"]
    ids = {members.groups[name].id for name in ("news", "olds")}
    assert {view.id for one in views for view in one.views if view.base_version is None} == ids


def test_agent__back_on_a_new_connection_keeps_what_moved() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", *SIX)
    live = live_path(path)  # as it knows it: a circuit
    line.wait(10_000)
    line.do(ev.AgentDown("h1", 1, "reset"))
    line.wait(1000)
    line.actions.clear()
    line.hello("h1", 1, (live,))
    for _ in range(4):
        line.wait(1000)
        line.do(ev.KeepAlive("h1"))
    assert path.granted and not line.of(act.NotifyFailed)
    assert told(line, act.NotifyMoved) == [("h1", path.id)]
    assert path.id in line.manager.core.resources.in_use()
    line.release(path)
    line.assert_nothing_held()


def test_agent__gone_while_it_was_silent_loses_its_paths_a_lease_later() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", *SIX)
    line.wait(10_000)
    line.do(ev.AgentDown("h1", 1, "reset"))
    line.wait(2990)
    assert path.granted
    line.wait(20)
    assert path.final
    line.assert_nothing_held()


async def test_connection__of_an_agent_that_is_stopped_is_kept(tmp_path: FilePath) -> None:
    async with running(tmp_path, Settings(lease_ns=S // 10)) as manager:
        agent = await manager.agent("h1")
        agent.request("r1", "h1", "h3")
        path = manager.app.runtime.path((await agent.response("r1", 1)).response_id)
        assert path is not None
        await until(lambda: path.kind is PathKind.PACKET, "its circuit is for others")
        await agent.expect("moved")
        assert path.granted
        agent.say("keepalive")
        await agent.expect("alive")
        assert path.granted and not manager.app.runtime.manager.core.agents["h1"].lapsed
