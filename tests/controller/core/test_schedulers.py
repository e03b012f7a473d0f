"""What each scheduler does that the others do not, on the manager's core with a virtual clock."""

from __future__ import annotations

import random
import re

import pytest
from rostrum.controller.core import events as ev
from rostrum.controller.core import schedulers
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.schedulers.split import WAIT_NS
from rostrum.controller.core.values import (
    MS,
    Decision,
    Protocol,
    ReceiverReport,
    Settings,
    State,
    TransferReport,
    Wanted,
)
from rostrum.topologies import load_text
from rostrum.topologies.generate import Hybrid
from rostrum.topologies.generate import hybrid as hybrid_text

from tests.controller.timeline import Timeline

MIB = 1 << 20


def timeline(scheduler: str, **more: object) -> Timeline:
    line = Timeline(settings=Settings(scheduler=scheduler, **more))  # type: ignore[arg-type]
    for number in range(1, 9):
        line.hello(f"h{number}")
    return line


def circuit(line: Timeline, sender: str, *receivers: str, size: int) -> Path:
    return line.ask_as_agent(sender, *receivers, size=size, wanted=Wanted.CIRCUIT)


def test_quantum__grants_a_quantum_and_the_next_in_line_goes_before_the_rest() -> None:
    line = timeline("quantum", session_bytes=100 * MIB)
    large = circuit(line, "h1", "h3", size=1000 * MIB)
    small = circuit(line, "h2", "h3", size=50 * MIB)
    assert large.granted and large.accepted_size == 100 * MIB
    assert small.state is State.QUEUED
    rest = line.ask_as_agent("h1", "h3", size=1000 * MIB, remaining=900 * MIB, wanted=Wanted.CIRCUIT)
    assert rest.transfer_id == large.transfer_id and rest.state is State.QUEUED
    line.release(large)
    assert small.granted and small.accepted_size == 50 * MIB
    line.release(small)
    assert rest.granted and rest.accepted_size == 100 * MIB


def test_quantum__has_a_quantum_of_its_own_when_none_is_configured() -> None:
    line = timeline("quantum")
    path = circuit(line, "h1", "h3", size=10_000 * MIB)
    assert 0 < path.accepted_size < 10_000 * MIB
    assert line.responses()[-1].accepted_size == path.accepted_size


def test_blast__takes_the_two_that_fit_beside_each_other_rather_than_the_first() -> None:
    line = timeline("blast")
    holder = circuit(line, "h1", "h3", "h5", "h7", size=MIB)
    first = circuit(line, "h2", "h3", "h5", "h7", size=100 * MIB)  # four racks: 100 / 2
    one = circuit(line, "h4", "h6", size=90 * MIB)  # two racks: 90 / 1.4
    other = circuit(line, "h8", "h2", size=80 * MIB)
    line.release(holder)
    assert one.granted and other.granted
    assert first.state is State.QUEUED and "downlink" in first.reason


def test_blast__weight_is_of_what_remains() -> None:
    line = timeline("blast")
    holder = circuit(line, "h1", "h3", size=MIB)
    nearly_done = line.ask_as_agent("h2", "h3", size=900 * MIB, remaining=MIB, wanted=Wanted.CIRCUIT)
    fresh = circuit(line, "h2", "h4", size=10 * MIB)
    line.release(holder)
    assert fresh.granted and nearly_done.state is State.QUEUED


def test_srt__shortest_goes_first_and_a_live_circuit_counts() -> None:
    line = timeline("srt")
    holder = circuit(line, "h1", "h3", size=MIB)
    long = circuit(line, "h2", "h3", size=500 * MIB)
    short = circuit(line, "h2", "h4", size=5 * MIB)
    line.release(holder)
    assert short.granted and long.state is State.QUEUED
    line.release(short)
    assert long.granted


def test_srt__reconfiguration_is_part_of_the_time() -> None:
    """8 MiB over the live circuit (67 ms) beat 2 MiB on a new one (17 ms and 70 ms to set it)."""
    line = timeline("srt")
    blocker = circuit(line, "h5", "h1", size=MIB)  # rack 3 to rack 1
    over_live = circuit(line, "h5", "h2", size=8 * MIB)
    over_new = circuit(line, "h7", "h1", size=2 * MIB)
    line.release(blocker)
    assert over_live.granted and over_live.reused_circuit
    assert over_new.state is State.QUEUED


@pytest.mark.parametrize("name", sorted(schedulers.BUILT_IN))
def test_every_scheduler__serves_everybody_and_grants_nothing_twice(name: str) -> None:
    """Random requests and releases: the software network refuses a port that is taken twice."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"{name}: seed {seed}")
    rng = random.Random(seed)
    line = timeline(name, session_bytes=64 * MIB if name == "quantum" else None)
    servers = sorted(line.topology.servers)
    paths: list[Path] = []
    for _ in range(60):
        granted = [path for path in paths if path.granted]
        if granted and rng.random() < 0.4:
            line.release(rng.choice(granted))
        else:
            sender, *receivers = rng.sample(servers, rng.randint(2, 6))
            paths.append(line.ask_as_agent(sender, *receivers, size=rng.randint(1, 500) * MIB))
        line.wait(rng.randint(0, 20))
    for _ in range(len(paths)):
        for path in [one for one in paths if one.granted]:
            line.release(path)
        line.wait(20)
    assert all(path.final for path in paths), [path.reason for path in paths if not path.final]
    assert Decision.DENIED not in line.decisions()
    line.assert_nothing_held()


def fast_circuits(text: str) -> str:
    """The same racks with circuits of 4 Gbit/s, servers as before."""
    return re.sub(r'(b: "?ocs:\d+"?, rate: )1G', r"\g<1>4G", text)


def shared() -> Timeline:
    topology = load_text(fast_circuits(hybrid_text(Hybrid())))
    line = Timeline(topology, settings=Settings(scheduler="srt"))
    for number in range(1, 9):
        line.hello(f"h{number}")
    return line


def test_srt__shares_a_fast_circuit_up_to_its_capacity() -> None:
    line = shared()
    first = circuit(line, "h1", "h3", "h5", size=500 * MIB)
    second = circuit(line, "h2", "h4", size=500 * MIB)
    assert first.granted and second.granted and second.circuit_id == first.circuit_id
    third, fourth, fifth = (circuit(line, "h1", "h3", size=MIB) for _ in range(3))
    assert third.circuit_id == fourth.circuit_id == first.circuit_id and fifth.state is State.QUEUED
    line.assert_delivers(second)
    line.release(first)
    assert fifth.circuit_id == first.circuit_id


def test_srt__shared_circuit_stays_until_its_last_path_is_gone() -> None:
    line = shared()
    first, second = circuit(line, "h1", "h3", size=MIB), circuit(line, "h2", "h4", size=MIB)
    line.release(first)
    held = line.manager.core.resources.circuits.of_user(second.id)
    assert held is not None and held.users == (second.id,)
    line.assert_delivers(second)
    line.release(second)
    assert not line.manager.core.resources.in_use()


def test_srt__shares_nothing_when_circuits_are_as_slow_as_servers() -> None:
    line = timeline("srt")
    assert circuit(line, "h1", "h3", size=MIB).granted
    assert circuit(line, "h2", "h4", size=MIB).state is State.QUEUED


def test_srt__of_equals_the_one_with_the_nearer_deadline_goes_first() -> None:
    line = timeline("srt")
    holder = circuit(line, "h1", "h3", size=MIB)
    patient = line.ask_as_agent("h2", "h4", size=50 * MIB, wanted=Wanted.CIRCUIT)
    urgent = line.ask_as_agent("h1", "h4", size=50 * MIB, wanted=Wanted.CIRCUIT, deadline_ms=60_000)
    line.release(holder)
    assert urgent.granted and patient.state is State.QUEUED


def test_srt__who_would_be_late_otherwise_goes_before_a_shorter_one() -> None:
    line = timeline("srt")
    holder = circuit(line, "h1", "h3", size=MIB)
    short = line.ask_as_agent("h2", "h4", size=50 * MIB, wanted=Wanted.CIRCUIT)
    tight = line.ask_as_agent("h1", "h4", size=100 * MIB, wanted=Wanted.CIRCUIT, deadline_ms=1_300)
    line.release(holder)
    assert tight.granted and short.state is State.QUEUED


def splitting(line: Timeline, sender: str, *receivers: str, size: int) -> Path:
    return line.ask_as_agent(sender, *receivers, size=size, wanted=Wanted.CIRCUIT, splits=True)


def test_split__serves_the_free_racks_now_and_the_others_when_they_are_free() -> None:
    line = timeline("split", lease_ns=2 * WAIT_NS)
    holder = circuit(line, "h1", "h3", size=MIB)  # rack 1 to rack 2
    wide = splitting(line, "h5", "h3", "h4", "h7", "h6", size=10 * MIB)
    assert wide.state is State.QUEUED and "downlink" in wide.reason  # half of its racks is not worth it at once
    line.wait(WAIT_NS / MS)
    assert wide.granted and wide.request.receivers == ("h7", "h6") and "2 of 4 receivers now" in wide.reason
    assert [one.server for one in line.responses()[-1].receivers] == ["h7", "h6"]
    line.assert_delivers(wide)
    others = splitting(line, "h5", "h3", "h4", size=10 * MIB)
    assert others.transfer_id == wide.transfer_id and others.state is State.QUEUED
    line.release(wide)
    assert others.state is State.QUEUED
    line.release(holder)
    assert others.granted and others.request.receivers == ("h3", "h4")
    line.assert_delivers(others)


def test_split__a_transfer_is_told_of_the_receivers_of_all_its_parts() -> None:
    line = timeline("split", lease_ns=2 * WAIT_NS)
    holder = circuit(line, "h1", "h3", size=MIB)
    wide = splitting(line, "h5", "h3", "h7", size=10 * MIB)
    line.wait(WAIT_NS / MS)
    others = splitting(line, "h5", "h3", size=10 * MIB)
    line.release(wide)
    line.release(holder)
    states = (ReceiverReport("h7", "done", "", 0, 0, 1, 2), ReceiverReport("h3", "receiving", "", 0, 0, 1, 0))
    report = TransferReport(others.request.request_id, others.id, "high-rate", "", 10 * MIB, 9, 0, 0, states)
    line.do(ev.ReportReceived(report, "h5"))
    transfer = line.manager.core.transfers[others.transfer_id]
    assert transfer.sessions == [wide.id, others.id]
    assert transfer.report is not None and [one.server for one in transfer.report.receivers] == ["h7", "h3"]


def test_split__a_part_that_follows_goes_on_by_republic() -> None:
    """The agent cannot change the protocol within an object, though this path alone would be for all of it."""
    line = timeline("split", circuit_wait_ns=0, lease_ns=2 * WAIT_NS)
    for number in range(1, 9):
        line.do(ev.AgentUp(f"h{number}", 1, 7071, protocols=("rdcm",)))
    whole = line.ask_as_agent("h1", "h3", "h5", "h7", size=MIB, wanted=Wanted.PACKET, splits=True)
    assert whole.protocol is Protocol.RDCM
    part = line.ask_as_agent("h1", "h5", "h7", size=MIB, wanted=Wanted.PACKET, splits=True)
    assert part.transfer_id == whole.transfer_id and part.protocol is Protocol.REPUBLIC


def test_split__leaves_whole_who_does_not_say_that_a_part_will_do() -> None:
    line = timeline("split")
    circuit(line, "h1", "h3", size=MIB)
    wide = circuit(line, "h5", "h3", "h7", size=MIB)
    assert wide.state is State.QUEUED and wide.request.receivers == ("h3", "h7")


def test_split__preempts_at_a_quantum() -> None:
    line = timeline("split", session_bytes=100 * MIB)
    large = splitting(line, "h1", "h3", "h5", size=1000 * MIB)
    assert large.accepted_size == 100 * MIB and large.request.receivers == ("h3", "h5")
