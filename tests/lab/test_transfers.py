"""Objects from server to servers through the whole of rostrum: agents, manager, switches, emulated light."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from rostrum.client import Agent, TimedOut
from rostrum.lab.lab import Lab

from tests.lab.objects import check, data_of, forget, read, released, send, until

pytestmark = pytest.mark.lab

FAR = ["h3", "h4", "h5", "h6", "h7", "h8"]
EVERYONE = ["h1", "h2", *FAR]


@pytest.fixture(scope="module")
def lab():
    changes = {
        "emulation.reconfiguration": {"distribution": "uniform", "mean_ms": 20, "spread_ms": 8},
        "emulation.ringing.duration_ms": 4,
        "ocs.ocs.reconfiguration_ms": 20,
    }
    with Lab.start("hybrid-4x2", name="t-transfers", changes=changes, seed=1) as lab:
        yield lab


def test_one_to_six_over_a_circuit(lab: Lab, seed: int) -> None:
    data = data_of(8_000_001, seed)
    result = send(lab, "h1", FAR, data)
    check(lab, result, FAR, data)
    assert result.path == "circuit" and result.sessions == 1
    assert result.requested_ns < result.accepted_ns <= result.attempt_ns < result.high_rate_ns < result.data_done_ns
    assert result.accepted_ns + 12_000_000 < result.high_rate_ns  # dark for at least that long
    assert all(row.first_light_ns and row.digest_ok for row in result.receivers)
    assert result.packets_sent >= 8_000_001 // result.fragment_size
    path = released(lab, result.response_id)
    assert path["state"] == "released" and len(path["circuit"]["cross_connects"]) == 4
    transfer = lab.rest.get(f"/v1/transfers/{result.response_id}")
    assert transfer["phase"] == "done" and {row["state"] for row in transfer["receivers"]} == {"done"}
    forget(lab, EVERYONE, result.data_id)


def test_live_circuit_is_used_again_at_once(lab: Lab, seed: int) -> None:
    data = data_of(1_000_000, seed)
    first = send(lab, "h2", ["h5", "h6"], data)
    again = send(lab, "h2", ["h6"], data)
    for result, receivers in ((first, ["h5", "h6"]), (again, ["h6"])):
        check(lab, result, receivers, data)
        forget(lab, EVERYONE, result.data_id)
    assert again.reconfiguration_ns == 0


@pytest.mark.parametrize("size", [0, 1, 8895, 8896, 8897, 1 << 20])
def test_sizes_around_fragments_and_chunks(lab: Lab, seed: int, size: int) -> None:
    data = data_of(size, seed)
    result = send(lab, "h3", ["h1", "h7"], data)
    check(lab, result, ["h1", "h7"], data)
    forget(lab, EVERYONE, result.data_id)


def test_receivers_in_the_senders_rack(lab: Lab, seed: int) -> None:
    data = data_of(2_000_000, seed)
    alone = send(lab, "h1", ["h2"], data)
    check(lab, alone, ["h2"], data)
    assert alone.path == "packet"
    mixed = send(lab, "h1", ["h2", "h3", "h8"], data)
    check(lab, mixed, ["h2", "h3", "h8"], data)
    for result in (alone, mixed):
        forget(lab, EVERYONE, result.data_id)


def test_concurrent_transfers_in_all_directions(lab: Lab, seed: int) -> None:
    """Every server sends to others while it receives; paths share NICs, splitters are short."""
    plans = [("h1", ["h3", "h5"]), ("h3", ["h1", "h7"]), ("h5", ["h2", "h8"]), ("h8", ["h4", "h6", "h1"])]
    sent = [data_of(3_000_000 + n, seed + n) for n in range(len(plans))]
    with ThreadPoolExecutor(len(plans)) as pool:
        running = [pool.submit(send, lab, sender, to, data) for (sender, to), data in zip(plans, sent, strict=True)]
        results = [one.result() for one in running]
    for (_, receivers), data, result in zip(plans, sent, results, strict=True):
        check(lab, result, receivers, data)
        forget(lab, EVERYONE, result.data_id)


def test_two_objects_of_one_sender_share_its_nic(lab: Lab, seed: int) -> None:
    sent = [data_of(6_000_000, seed), data_of(6_000_000, seed + 1)]
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(send, lab, "h1", to, data) for to, data in zip((["h3"], ["h5"]), sent, strict=True)]
        results = [one.result() for one in running]
    for receivers, data, result in zip((["h3"], ["h5"]), sent, results, strict=True):
        check(lab, result, receivers, data)
        forget(lab, EVERYONE, result.data_id)


def test_readers_wait_for_one_transfer(lab: Lab, seed: int) -> None:
    """Readers that come before the object get it as soon as it is whole, all from one transfer."""
    data, number = data_of(2_000_000, seed), 70_000
    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read, lab, "h7", number, 60.0) for _ in range(3)]
        with Agent(lab.agent_socket("h2")) as agent:
            agent.add(number, data)
            result = agent.send(number, ["h7"]).wait(60)
        assert result.ok
        assert all(reader.result() == data for reader in readers)
    transfers = [row for row in lab.rest.get("/v1/transfers")["transfers"] if row["data_id"] == number]
    assert len(transfers) == 1
    forget(lab, EVERYONE, number)


def test_nothing_is_readable_before_it_is_whole(lab: Lab) -> None:
    with Agent(lab.agent_socket("h4")) as agent, pytest.raises(TimedOut):
        agent.read(123_456, wait=0.2)


def test_unicast_goes_on_beside_multicast(lab: Lab, seed: int) -> None:
    data, lost = data_of(20_000_000, seed), []
    ping = ["ping", "-q", "-c", "40", "-i", "0.01", "-W", "2", "10.0.2.1"]
    asker = threading.Thread(target=lambda: lost.append(lab.execute("h2", ping)))
    asker.start()
    result = send(lab, "h1", ["h3", "h5"], data)
    asker.join(60)
    check(lab, result, ["h3", "h5"], data)
    assert lost and "100% packet loss" not in lost[0] and " 0% packet loss" in lost[0], lost
    forget(lab, EVERYONE, result.data_id)


def test_stores_are_empty_at_the_end(lab: Lab) -> None:
    """The tests above deleted what they sent: no agent still holds memory or a transfer."""
    for name in EVERYONE:
        with Agent(lab.agent_socket(name)) as agent:
            until(lambda agent=agent: not agent.status().transfers, f"{name} to be without transfers")
            status = agent.status()
            assert (status.objects, status.store_used) == ((), 0), name
            assert status.packets_bad == 0
    assert not [p for p in lab.rest.get("/v1/paths")["paths"] if p["state"] in ("queued", "configuring", "active")]
