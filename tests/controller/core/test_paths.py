"""Paths from request to release on the virtual clock."""

from __future__ import annotations

import pytest
from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.model import PathKind
from rostrum.controller.core.values import REST, Decision, ObstacleKind, PathRequest, Settings, State, Wanted
from rostrum.topologies import loader

from tests.controller.timeline import Timeline

MB = 1_000_000
SIX = ("h3", "h4", "h5", "h6", "h7", "h8")


def test_circuit__accepted_first_then_devices_in_parallel() -> None:
    line = Timeline()
    line.hello("h1")
    line.devices_answer = False
    actions = line.do(ev.RequestReceived(PathRequest("r", "h1", "h1", SIX, 64 * MB, 64 * MB)))
    kinds = [type(action) for action in actions if not isinstance(action, act.Log | act.PathChanged)]
    assert kinds[0] is act.Respond
    assert set(kinds[1:]) == {act.Connect, act.InstallRules}
    response = line.responses()[0]
    assert response.decision is Decision.ACCEPTED
    assert response.kind is PathKind.CIRCUIT
    assert response.reconfiguration_ns == 70_000_000
    assert response.accepted_size == 64 * MB
    assert response.rate_bps == 10**9
    assert response.light_bound_ms > 70
    assert [one.address for one in response.receivers][:2] == ["10.0.2.1", "10.0.2.2"]
    path = line.path(response.response_id)
    assert path.state is State.CONFIGURING
    line.wait(70)
    line.let()
    assert path.state is State.ACTIVE
    assert path.stamps.cross_connects_steady and path.stamps.rules_in and path.stamps.active
    assert len(path.pairs) == 4 and path.cascade and len(path.cascade.splitters) == 1
    line.assert_delivers(path)


def test_circuit__one_remote_rack_needs_no_splitter() -> None:
    line = Timeline()
    path = line.ask("h1", "h2", "h3", "h4")
    assert path.kind is PathKind.CIRCUIT and path.state is State.ACTIVE
    assert len(path.pairs) == 1 and path.cascade and not path.cascade.splitters
    line.assert_delivers(path)


def test_circuit__identical_path_reuses_circuit_and_rules() -> None:
    line = Timeline()
    first = line.ask_as_agent("h1", *SIX)
    line.release(first)
    line.actions.clear()
    again = line.ask_as_agent("h1", *SIX)
    assert line.responses()[-1].reconfiguration_ns == 0
    assert again.state is State.ACTIVE and again.reused_circuit and again.group == first.group
    assert not line.of(act.Connect) and not line.of(act.InstallRules) and not line.of(act.Disconnect)
    line.assert_delivers(again)


def test_circuit__other_receivers_in_the_same_racks_reuse_the_circuit_only() -> None:
    line = Timeline()
    line.release(line.ask("h1", *SIX))
    line.actions.clear()
    path = line.ask("h2", "h3", "h6", "h7")
    assert path.reused_circuit and path.reconfiguration_ns == 0
    assert not line.of(act.Connect) and len(line.of(act.InstallRules)) == 1
    line.assert_delivers(path)


def test_circuit__idle_circuits_make_room_least_recently_used_first() -> None:
    line = Timeline()
    old = line.ask("h1", "h3", "h5")
    newer = line.ask("h3", "h1", "h7", wait_ms=0)
    line.release(old)
    line.wait(1)
    line.release(newer)
    path = line.ask("h5", "h1", "h3", "h7")  # needs downlinks of both
    assert path.kind is PathKind.CIRCUIT and path.state is State.ACTIVE
    line.assert_delivers(path)
    line.release(path)
    line.assert_nothing_held()


def test_wait__splitters_in_use_are_named_and_a_release_serves_the_queue() -> None:
    topology = Timeline().topology
    line = Timeline(topology)
    first = line.ask("h1", "h3", "h5")
    second = line.ask_as_agent("h7", "h3", "h5")
    assert second.state is State.QUEUED
    assert second.reason.startswith("waiting for tor2's downlink: port 50 in use by " + first.id)
    assert line.decisions() == [Decision.QUEUED]
    line.release(first)
    assert second.state is State.ACTIVE and second.kind is PathKind.CIRCUIT
    assert line.decisions() == [Decision.QUEUED, Decision.ACCEPTED]
    line.assert_delivers(second)


def test_wait__after_the_circuit_wait_a_packet_path_with_the_reason() -> None:
    line = Timeline(settings=Settings(circuit_wait_ns=2_000_000_000))
    first = line.ask("h1", "h3", "h5")
    second = line.ask("h2", "h3", "h5")
    assert second.state is State.QUEUED and f"uplink: port 50 in use by {first.id}" in second.reason
    assert second.obstacle and second.obstacle.kind is ObstacleKind.CIRCUIT_IN_USE
    line.wait(1999)
    assert second.state is State.QUEUED
    line.wait(2)
    assert second.state is State.ACTIVE and second.kind is PathKind.PACKET
    assert second.reason.startswith("no circuit within 2 s: waiting for tor1's uplink")
    line.assert_delivers(second)
    line.assert_delivers(first)


def test_wait__a_demanded_circuit_is_denied_when_the_wait_is_over() -> None:
    line = Timeline()
    line.ask("h1", "h3", "h5")
    path = line.ask_as_agent("h2", "h3", "h5", wanted=Wanted.CIRCUIT, wait_ms=500)
    line.wait(501)
    assert path.state is State.FAILED
    assert path.cause.startswith("not served within 500 ms: waiting for tor1's uplink")
    assert path.obstacle and path.obstacle.kind is ObstacleKind.CIRCUIT_IN_USE
    assert line.decisions() == [Decision.QUEUED, Decision.DENIED]


def test_packet__receivers_in_the_senders_rack() -> None:
    line = Timeline()
    path = line.ask("h1", "h2")
    assert path.kind is PathKind.PACKET and path.reason == "all receivers are in the sender's rack"
    assert len(path.rules) == 1
    line.assert_delivers(path)


def test_packet__demanded() -> None:
    line = Timeline()
    path = line.ask("h1", *SIX, wanted=Wanted.PACKET)
    assert path.kind is PathKind.PACKET and path.state is State.ACTIVE
    assert {rule.switch for rule in path.rules} == {"tor1", "core", "tor2", "tor3", "tor4"}
    line.assert_delivers(path)
    line.release(path)
    line.assert_nothing_held()


def test_deny__circuit_within_the_rack() -> None:
    line = Timeline()
    path = line.ask("h1", "h2", wanted=Wanted.CIRCUIT)
    assert path.state is State.FAILED and path.cause == "all receivers are in the sender's rack"


@pytest.mark.parametrize(
    ("sender", "receivers", "more", "text"),
    [
        ("h1", ["h99"], {}, "h99 not in topology hybrid-4x2"),
        ("nobody", ["h2"], {}, "nobody not in topology"),
        ("h1", ["h1", "h2"], {}, "h1 is sender and receiver"),
        ("h1", ["h2", "h2"], {}, "named more than once: h2"),
        ("h1", [], {}, "there are no receivers"),
        ("h1", ["h2"], {"size": -1}, "out of range"),
        ("h1", ["h2"], {"size": 1, "remaining": 2}, "not between 0 and"),
        ("h1", ["h2"], {"wait_ms": -5}, "wait_ms -5 is out of range"),
        ("h1", ["h2"], {"wait_ms": 2**31 - 1}, "out of range"),
        ("h1", ["h2"], {"lease_ms": 0}, "lease_ms 0"),
        ("h1", [f"h{n}" for n in range(2, 99)], {}, "97 receivers, but"),
        ("h1", ["h\x00\n" * 99], {}, "not in topology"),
    ],
)
def test_deny__bad_requests_say_what_to_do(sender: str, receivers: list[str], more: dict[str, int], text: str) -> None:
    line = Timeline()
    path = line.ask(sender, *receivers, **more)  # type: ignore[arg-type]
    assert path.state is State.FAILED
    assert text in path.cause and path.cause.isprintable() and len(path.cause) < 1000
    line.assert_nothing_held()


def test_deny__an_agent_asks_for_another_server() -> None:
    line = Timeline()
    line.hello("h1")
    path = line.ask("h3", "h5", origin="h1")
    assert "only that server's agent can" in line.responses()[-1].reason
    assert path.state is State.FAILED


def test_request__repeated_has_no_effect_but_the_answer() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", *SIX, request_id="same")
    again = line.ask_as_agent("h1", *SIX, request_id="same")
    assert again is path
    one, two = line.responses()
    assert one.response_id == two.response_id and two.decision is Decision.ACCEPTED
    line.release(path)
    line.ask_as_agent("h1", *SIX, request_id="same")
    assert line.responses()[-1].decision is Decision.DENIED
    assert "ask with a new id" in line.responses()[-1].reason


def test_release__only_by_its_origin() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", "h3")
    line.hello("h5")
    line.do(ev.Released(path.id, "", "h5"))
    assert path.state is State.ACTIVE
    line.do(ev.Released("p-none", "", "h1"))
    line.do(ev.Released(path.id, "", REST))  # people may take anything back
    assert path.state is State.RELEASED


def test_cancel__withdraws_what_waits() -> None:
    line = Timeline()
    first = line.ask("h1", "h3")
    waiting = line.ask_as_agent("h2", "h3")
    line.do(ev.Cancelled(waiting.request.request_id, "h2"))
    assert waiting.state is State.RELEASED
    line.release(first)
    assert waiting.state is State.RELEASED
    line.assert_nothing_held()


def test_release__while_configuring() -> None:
    line = Timeline()
    line.devices_answer = False
    path = line.ask("h1", *SIX)
    line.release(path)
    line.let()
    line.let()
    assert path.state is State.RELEASED
    line.devices_answer = True
    again = line.ask("h1", *SIX)
    assert again.state is State.ACTIVE and again.reconfiguration_ns == 0
    line.release(again)
    line.assert_nothing_held()


def test_small_object__never_waits_for_optics() -> None:
    """A forgotten path holds the rack's uplink: by circuit a byte would wait two seconds, 64 KiB would take 80 ms."""
    line = Timeline()
    for size in (1, 65_536):
        alone = line.ask_as_agent("h1", *SIX, size=size)
        assert alone.kind is PathKind.PACKET and "before a circuit is made (70 ms)" in alone.reason
        line.release(alone)
    held = line.ask("h1", "h3")  # its size nobody knows
    assert held.kind is PathKind.CIRCUIT
    for size in (1, 65_536):
        behind = line.ask_as_agent("h1", *SIX, size=size)
        assert behind.state is State.ACTIVE and behind.kind is PathKind.PACKET
        line.release(behind)
    assert line.ask_as_agent("h1", *SIX, size=64 * MB).state is State.QUEUED


def test_small_object__where_there_is_no_circuit_switch_waits_for_its_switch() -> None:
    line = Timeline(loader.load("fat-tree-4"), up=False)
    servers = list(line.topology.servers)
    path = line.ask(servers[0], servers[-1], size=1)
    assert path.state is State.QUEUED
    line.all_up()
    assert path.state is State.ACTIVE


def test_small_object__takes_a_live_circuit_and_one_it_demands() -> None:
    line = Timeline()
    line.release(line.ask_as_agent("h1", *SIX, size=64 * MB))
    assert line.ask_as_agent("h1", *SIX, size=1).reused_circuit
    assert line.ask_as_agent("h3", "h1", size=1, wanted=Wanted.CIRCUIT).kind is PathKind.CIRCUIT


def test_sessions__grants_are_capped_and_make_one_transfer() -> None:
    line = Timeline(settings=Settings(session_bytes=400 * MB))
    left, paths = 1000 * MB, []
    while left:
        path = line.ask_as_agent("h1", *SIX, size=1000 * MB, remaining=left)
        left -= path.accepted_size
        paths.append(path)
        line.release(path)
    assert [path.accepted_size for path in paths] == [400 * MB, 400 * MB, 200 * MB]
    assert [path.reused_circuit for path in paths] == [False, True, True]
    (transfer,) = line.manager.core.transfers.values()
    assert transfer.sessions == [path.id for path in paths]


@pytest.mark.parametrize("scheduler", ["best-effort", "fifo"])
def test_sessions__the_next_one_waits_for_its_own_circuit_however_long_that_is_used(scheduler: str) -> None:
    line = Timeline(settings=Settings(session_bytes=400 * MB, scheduler=scheduler, lease_ns=10**12))
    first = line.ask_as_agent("h1", *SIX, size=1000 * MB)
    second = line.ask_as_agent("h1", *SIX, size=1000 * MB, remaining=600 * MB, wait_ms=500)
    line.wait(60_000)  # longer than any wait for a path
    assert second.state is State.QUEUED and first.id in second.reason
    local = line.ask("h5", "h6")  # nobody is held up by it
    assert local.state is State.ACTIVE
    line.release(first)
    assert second.state is State.ACTIVE and second.kind is PathKind.CIRCUIT and second.reused_circuit


def test_sessions__the_wait_of_the_next_one_begins_when_its_circuit_is_given_back() -> None:
    line = Timeline(settings=Settings(session_bytes=400 * MB, lease_ns=10**12))
    first = line.ask_as_agent("h1", *SIX, size=1000 * MB)
    line.wait(100)
    other = line.ask("h2", "h3")  # came before, and gets the circuit in between
    second = line.ask_as_agent("h1", *SIX, size=1000 * MB, remaining=600 * MB)
    line.wait(1000)
    line.release(first)
    assert other.kind is PathKind.CIRCUIT and second.state is State.QUEUED
    line.wait(1999)
    assert second.state is State.QUEUED
    line.wait(2)
    assert second.kind is PathKind.PACKET and second.reason.startswith("no circuit within")


def test_zero_bytes() -> None:
    line = Timeline()
    path = line.ask_as_agent("h1", *SIX, size=0)
    assert path.state is State.ACTIVE and path.accepted_size == 0


def test_fifo__nobody_overtakes() -> None:
    line = Timeline(settings=Settings(scheduler="fifo"))
    line.ask("h1", "h3")
    second = line.ask("h2", "h3")
    third = line.ask("h5", "h7")
    assert second.state is State.QUEUED and third.state is State.QUEUED
    assert f"behind {second.id}" in third.reason
    line.wait(2001)
    assert second.state is State.ACTIVE and third.state is State.ACTIVE


def test_best_effort__the_first_that_fits() -> None:
    line = Timeline()
    line.ask("h1", "h3")
    second = line.ask("h2", "h3")
    third = line.ask("h5", "h7")
    assert second.state is State.QUEUED and third.state is State.ACTIVE


def test_ports__shared_up_to_the_limit() -> None:
    line = Timeline(settings=Settings(paths_per_server=2))
    for sender in ("h3", "h5"):
        line.ask(sender, "h1", wanted=Wanted.PACKET)
    third = line.ask("h7", "h1", wanted=Wanted.PACKET)
    assert third.state is State.QUEUED and "waiting for h1's port: it receives from 2 paths already" in third.reason
    assert third.obstacle and third.obstacle.kind is ObstacleKind.SERVER_PORT


def test_lease__of_a_rest_path_is_renewed_or_over() -> None:
    line = Timeline()
    path = line.ask("h1", "h3", lease_ms=1000)
    forever = line.ask("h5", "h7")
    line.wait(900)
    line.do(ev.Renewed(path.id))
    line.wait(900)
    assert path.state is State.ACTIVE
    line.wait(200)
    assert path.state is State.RELEASED and path.cause == "lease of 1000 ms over"
    line.wait(10**8)
    assert forever.state is State.ACTIVE


def test_queue__is_bounded() -> None:
    line = Timeline(settings=Settings(queue_max=3))
    line.ask("h1", "h3", wanted=Wanted.CIRCUIT)
    paths = [line.ask("h2", "h3", wanted=Wanted.CIRCUIT) for _ in range(5)]
    assert [path.state for path in paths].count(State.QUEUED) == 3
    assert "3 requests are waiting already" in paths[-1].cause
    assert paths[-1].obstacle and paths[-1].obstacle.kind is ObstacleKind.QUEUE_FULL


def test_history__is_bounded() -> None:
    line = Timeline(settings=Settings(history_max=10))
    for _ in range(50):
        line.release(line.ask("h1", "h3"))
    assert len(line.manager.core.paths) <= 11
    assert len(line.manager.core.by_request) <= 11
