"""When parts fail in the middle, the others finish, everybody is told why, nothing hangs, and nothing stays behind."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest
from rostrum.client import Agent, NotFound, RostrumError, SendHandle, SendResult, TimedOut
from rostrum.lab.lab import Lab
from rostrum.lab.namespace import LabError

from tests.lab.objects import check, data_of, forget, read, released, send, until

pytestmark = pytest.mark.lab

FAR = ["h3", "h5", "h7"]
EVERYONE = [f"h{n}" for n in range(1, 9)]
LARGE = 80_000_000  # takes some 0.6 s: long enough to break something meanwhile
HALF_NS = LARGE * 4  # of that, at 1 Gbit/s


@pytest.fixture(scope="module")
def shared():
    changes = {
        "emulation.reconfiguration.mean_ms": 20,
        "emulation.ringing.duration_ms": 2,
        "ocs.ocs.reconfiguration_ms": 20,
    }
    options = ("--circuit-wait", "1s", "--wait", "5s", "--lease", "1s", "--quarantine", "1s")
    with Lab.start("hybrid-4x2", name="t-failures", changes=changes, seed=1, manager_options=options,
                   agent_options=("--silence-bound", "1500ms")) as lab:  # fmt: skip
        yield lab


@pytest.fixture
def lab(shared: Lab) -> Iterator[Lab]:
    """The lab, whole again after each test: all programs run, no faults, nothing stored."""
    yield shared
    for name, program in shared.status()["programs"].items():
        if not program["pid"]:
            shared.start_program(name)
    until(lambda: ready(shared), "all programs to work together again")
    shared.ocs_clear()
    for name in EVERYONE:
        with Agent(shared.agent_socket(name)) as agent:
            until(lambda agent=agent: not agent.status().transfers, f"{name} to be without transfers")
            for row in agent.status().objects:
                agent.delete(row.data_id)


def ready(lab: Lab) -> bool:
    try:
        agents = lab.rest.get("/v1/agents")["agents"]
        connected = {row["server"] for row in agents if row["connected"]}
        # A restarted manager leaves the cross-connects it found alone for a while: then there may be no circuit.
        found = [row for row in lab.rest.get("/v1/circuits")["cross_connects"] if row["found_at_start"]]
        return lab.rest.get("/v1/health")["ready"] and connected == set(EVERYONE) and not found
    except LabError:
        return False


class Sending:
    """A large object on its way, caught when it is at high rate."""

    def __init__(self, lab: Lab, sender: str, receivers: list[str], seed: int, number: int = 500) -> None:
        self.data, self.number = data_of(LARGE, seed), number
        self.agent = Agent(lab.agent_socket(sender))
        self.agent.add(number, self.data)
        self.handle: SendHandle = self.agent.send(number, receivers)
        for event in self.handle.events(timeout=60):
            if event.kind == "phase" and event.subject == "high-rate":
                return
        raise AssertionError("the send was over before it came to high rate")

    def result(self) -> SendResult:
        return self.handle.wait(60)


def test_killed_receiver_does_not_keep_the_others_from_finishing(lab: Lab, seed: int) -> None:
    sending = Sending(lab, "h1", FAR, seed)
    lab.kill("h5")
    result = sending.result()
    states = {row.name: row.state for row in result.receivers}
    assert states == {"h3": "done", "h5": "failed", "h7": "done"} and not result.ok
    cause = next(row.cause for row in result.receivers if row.name == "h5")
    assert cause, "no reason was given for h5"
    for name in ("h3", "h7"):
        assert read(lab, name, sending.number) == sending.data
    assert released(lab, result.response_id)["state"] == "released"


def test_a_receiver_that_hangs_is_given_up_within_its_bound(lab: Lab, seed: int) -> None:
    """Stopped, not dead: its sockets stay open and nothing answers."""
    sending = Sending(lab, "h1", FAR, seed)
    lab.signal("h5", signal.SIGSTOP)
    try:
        result = sending.result()
    finally:
        lab.signal("h5", signal.SIGCONT)
    assert {row.name: row.state for row in result.receivers} == {"h3": "done", "h5": "failed", "h7": "done"}
    assert read(lab, "h3", sending.number) == sending.data


def test_receiver_and_sender_that_stand_still_for_a_moment_catch_up(lab: Lab, seed: int) -> None:
    sending = Sending(lab, "h1", FAR, seed)
    for name in ("h5", "h1"):
        lab.signal(name, signal.SIGSTOP)
        time.sleep(0.3)  # shorter than any bound on silence
        lab.signal(name, signal.SIGCONT)
    check(lab, sending.result(), FAR, sending.data)


def test_restarted_receiver_gets_the_whole_object(lab: Lab, seed: int) -> None:
    """What it had is gone with its first life; the sender brings it again."""
    sending = Sending(lab, "h1", FAR, seed)
    lab.kill("h5")
    lab.start_program("h5")
    result = sending.result()
    check(lab, result, FAR, sending.data)


def test_killed_sender_leaves_no_partial_objects_and_no_path(lab: Lab, seed: int) -> None:
    sending = Sending(lab, "h1", FAR, seed)
    path = lab.rest.get("/v1/paths?state=active")["paths"][0]
    lab.kill("h1")
    with pytest.raises(RostrumError):
        sending.result()
    ended = released(lab, path["id"])  # by its lease: nobody is there to give it back
    assert ended["cause"], ended
    for name in FAR:
        with Agent(lab.agent_socket(name)) as agent:
            until(lambda agent=agent: not agent.status().transfers, f"{name} to give the transfer up")
            with pytest.raises((NotFound, TimedOut)):
                agent.read(sending.number, wait=0.1)
            assert agent.status().store_used == 0
    lab.start_program("h1")
    until(lambda: ready(lab), "h1 to be back")
    data = data_of(1_000_000, seed + 1)
    check(lab, send(lab, "h1", FAR, data), FAR, data)


def test_manager_gone_and_back(lab: Lab, seed: int) -> None:
    sending = Sending(lab, "h1", FAR, seed)
    lab.kill("manager")
    result = sending.result()
    assert result.ok, result.cause  # a running transfer needs no manager
    assert read(lab, "h7", sending.number) == sending.data
    data = data_of(1_000_000, seed + 1)
    try:
        refused = send(lab, "h3", ["h1"], data, wait=1.0)
        assert not refused.ok
        text = refused.cause
    except RostrumError as error:
        text = str(error)
    assert "manager" in text, text
    lab.start_program("manager")
    until(lambda: ready(lab), "the manager to be back")
    check(lab, send(lab, "h3", ["h1"], data), ["h1"], data)


def test_manager_restarted_during_a_transfer_adopts_its_path(lab: Lab, seed: int) -> None:
    sending = Sending(lab, "h1", FAR, seed)
    lab.kill("manager")
    lab.start_program("manager")
    result = sending.result()
    assert result.ok, result.cause
    assert read(lab, "h3", sending.number) == sending.data
    until(lambda: ready(lab), "the manager to be back")
    until(lambda: not lab.rest.get("/v1/paths?state=active")["paths"], "the path to be taken back")


def test_stuck_cross_connect_moves_the_transfer_to_the_packet_network(lab: Lab, seed: int) -> None:
    lab.ocs_fault(kind="stuck", input=2)
    data = data_of(2_000_000, seed)
    result = send(lab, "h3", ["h1", "h5"], data)
    check(lab, result, ["h1", "h5"], data)
    path = released(lab, result.response_id)
    assert path["kind"] == "packet"
    assert "fault" in (path["reason"] + path["cause"] + " ".join(path["notes"])).lower(), path


def test_fibre_that_dies_under_a_transfer_moves_it_to_the_packet_network(lab: Lab, seed: int) -> None:
    """A test that gets no processor may break the fibre when all has gone by it: then it tries again."""
    for number in range(500, 510):
        sending = Sending(lab, "h1", FAR, seed, number)
        lab.ocs_fault(kind="dead-port", port=3, side="output")
        dead_ns = time.time_ns()
        result = sending.result()
        check(lab, result, FAR, sending.data)
        if dead_ns < result.high_rate_ns + HALF_NS:
            break
        lab.ocs_clear()
        forget(lab, EVERYONE, number)
    else:
        pytest.fail("half of the object was sent each time before the fibre was dead")
    path = released(lab, result.response_id)
    assert path["kind"] == "packet" and "output 3 is dead" in path["reason"], path


def test_light_that_fades_under_a_transfer_is_made_up_for_by_patches(lab: Lab, seed: int) -> None:
    """The switch reports nothing: all its cross-connects are steady. One rack sees nothing any more."""
    sending = Sending(lab, "h1", FAR, seed)
    lab.ocs_fault(kind="noisy", port=3, loss=1.0)
    check(lab, sending.result(), FAR, sending.data)


def test_demanded_circuit_that_faults_fails_with_the_cause(lab: Lab) -> None:
    lab.ocs_fault(kind="stuck", input=4)
    wanted = {"sender": "h7", "receivers": ["h1", "h3"], "kind": "circuit"}
    status, path = lab.rest.call("POST", "/v1/paths", wanted)
    assert status == 201, path
    path = released(lab, path["id"])
    assert path["state"] == "failed" and "FAULT" in path["cause"] and "demands a circuit" in path["cause"], path


def test_dim_splitter_moves_the_transfer_to_the_packet_network(lab: Lab, seed: int) -> None:
    """The cross-connects are steady, but the OCS reports less power than the receivers need."""
    for splitter in lab.topology.ocs["ocs"].splitters:
        lab.ocs_fault(kind="dim-splitter", splitter=splitter, db=30)
    data = data_of(2_000_000, seed)
    result = send(lab, "h5", ["h1", "h3", "h7"], data)
    check(lab, result, ["h1", "h3", "h7"], data)
    path = released(lab, result.response_id)
    assert path["kind"] == "packet"
    assert "dim" in path["reason"] + path["cause"] + " ".join(path["notes"]), path


def test_no_light_moves_the_transfer_to_the_packet_network(lab: Lab, seed: int) -> None:
    """The OCS reports nothing, and nothing arrives at the rack of most receivers: only they can tell."""
    lab.ocs_fault(kind="noisy", port=3, loss=1.0)
    data = data_of(2_000_000, seed)
    result = send(lab, "h7", ["h1", "h5", "h6"], data)
    check(lab, result, ["h1", "h5", "h6"], data)
    path = released(lab, result.response_id)
    assert path["kind"] == "packet"
    text = (path["reason"] + path["cause"] + " ".join(path["notes"])).lower()
    assert "light" in text and "h5" in text, path


def test_no_light_at_the_smaller_part_is_made_up_for_by_unicast(lab: Lab, seed: int) -> None:
    lab.ocs_fault(kind="noisy", port=3, loss=1.0)
    data = data_of(2_000_000, seed)
    result = send(lab, "h7", ["h1", "h3", "h5"], data)
    check(lab, result, ["h1", "h3", "h5"], data)
    assert result.path == "circuit"
    causes = {row.name: row.cause for row in result.receivers}
    assert "2 others had light" in causes["h5"] and not causes["h1"] and not causes["h3"], causes


def test_lossy_fibre_is_made_up_for_by_patches(lab: Lab, seed: int) -> None:
    lab.ocs_fault(kind="noisy", port=3, loss=0.02)
    data = data_of(5_000_000, seed)
    result = send(lab, "h7", ["h1", "h5"], data)
    check(lab, result, ["h1", "h5"], data)
    patched = {row.name: row.patched_fragments for row in result.receivers}
    assert patched["h5"] > 0 and patched["h1"] == 0, patched


def test_ocs_controller_gone_means_packet_paths(lab: Lab, seed: int) -> None:
    lab.kill("ocs")
    until(lambda: not lab.rest.get("/v1/health")["ready"], "the manager to notice")
    data = data_of(1_000_000, seed)
    result = send(lab, "h1", ["h7"], data)
    check(lab, result, ["h7"], data)
    assert result.path == "packet" and "ocs is not connected" in result.reason, result.reason
    forget(lab, EVERYONE, result.data_id)
    lab.start_program("ocs")  # it comes back empty
    until(lambda: lab.rest.get("/v1/health")["ready"], "the manager to notice")
    again = send(lab, "h1", ["h7"], data)
    check(lab, again, ["h7"], data)
    assert again.path == "circuit"


def test_switch_without_its_manager_forwards_on_and_takes_nothing_new(lab: Lab, seed: int) -> None:
    manager = lab.topology.manager
    sending = Sending(lab, "h1", FAR, seed)
    try:
        control(lab, "tor3", "tcp:127.0.0.1:1")  # nobody there
        check(lab, sending.result(), FAR, sending.data)
        until(lambda: lab.rest.get("/v1/health")["missing"] == ["tor3"], "the manager to notice")
        data = data_of(1_000_000, seed + 1)
        with pytest.raises(RostrumError, match="waiting for tor3 to connect"):
            send(lab, "h1", ["h3", "h5"], data, wait=0.5)
        others = send(lab, "h1", ["h3", "h7"], data)
        check(lab, others, ["h3", "h7"], data)
    finally:
        control(lab, "tor3", f"tcp:{manager.address}:{manager.openflow_port}")
    until(lambda: lab.rest.get("/v1/health")["ready"], "tor3 to be back")
    data = data_of(1_000_000, seed + 2)
    check(lab, send(lab, "h1", ["h3", "h5"], data), ["h3", "h5"], data)


def control(lab: Lab, switch: str, target: str) -> None:
    """Names the controller that a switch looks for."""
    fields = ["set-controller", switch, target, "--", "set", "controller", switch, "max_backoff=1000"]
    lab.execute("manager", ["ovs-vsctl", *fields])


def test_receiver_without_an_agent_is_told_by_name(lab: Lab, seed: int) -> None:
    lab.kill("h3")
    data = data_of(1_000_000, seed)
    result = send(lab, "h1", ["h3", "h5"], data)
    assert {row.name: row.state for row in result.receivers} == {"h3": "failed", "h5": "done"}
    assert read(lab, "h5", result.data_id) == data


def test_unknown_receiver_is_refused_by_name(lab: Lab) -> None:
    with Agent(lab.agent_socket("h1")) as agent:
        agent.add(900, b"x")
        try:
            text = agent.send(900, ["h77"]).wait(20).cause
        except RostrumError as error:
            text = str(error)
    assert "h77" in text


def test_restarted_agent_serves_again(lab: Lab, seed: int) -> None:
    for name in ("h1", "h5"):
        lab.kill(name, signal.SIGTERM)
        lab.start_program(name)
    until(lambda: ready(lab), "agents to be back")
    data = data_of(1_000_000, seed)
    result = send(lab, "h1", ["h5"], data)
    check(lab, result, ["h5"], data)
    forget(lab, ["h1", "h5"], result.data_id)
