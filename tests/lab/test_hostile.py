"""What strangers, users and scarcity do to a running lab: transfers beside it go on, and who asked is told why."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rostrum.client import Agent, AlreadyThere, Busy, NoRoom, RostrumError, TimedOut
from rostrum.lab.lab import Lab

from tests.lab.objects import check, data_of, forget, read, released, send, until

pytestmark = pytest.mark.lab

EVERYONE = [f"h{n}" for n in range(1, 9)]
FAR = ["h3", "h5", "h7"]
SESSION = 20 << 20  # some 0.2 s at high rate: longer than a request waits for a circuit
QUOTA = 96 << 20
GARBAGE = str(Path(__file__).with_name("garbage.py"))
MORE_RSS_MAX_KB = (
    8 << 10
)  # what a program may have grown by in a round of garbage after the first: no leak is that small


@pytest.fixture(scope="module")
def shared():
    changes = {
        "emulation.reconfiguration.mean_ms": 20,
        "emulation.ringing.duration_ms": 2,
        "ocs.ocs.reconfiguration_ms": 20,
    }
    options = ("--circuit-wait", "100ms", "--wait", "5s", "--session-bytes", str(SESSION))
    with Lab.start("hybrid-4x2", name="t-hostile", changes=changes, seed=1, manager_options=options,
                   quota=str(QUOTA)) as lab:  # fmt: skip
        yield lab


@pytest.fixture
def lab(shared: Lab) -> Iterator[Lab]:
    """The lab; after each test all programs still run, no path is held, and stores can be emptied."""
    yield shared
    assert {row["state"] for row in shared.status()["programs"].values()} == {"running"}
    for name in EVERYONE:
        with Agent(shared.agent_socket(name)) as agent:
            until(lambda agent=agent: not agent.status().transfers, f"{name} to be without transfers")
            for row in agent.status().objects:
                agent.delete(row.data_id)
            until(lambda agent=agent: agent.status().store_used == 0, f"the store of {name} to be empty")
    until(lambda: not held(shared), "paths to be given back")
    assert "Traceback" not in (shared.run / "manager.log").read_text() + (shared.run / "lab.log").read_text()


def held(lab: Lab) -> list[dict]:
    return [p for p in lab.rest.get("/v1/paths")["paths"] if p["state"] in ("queued", "configuring", "active")]


def usage(lab: Lab) -> dict[str, tuple[int, int]]:
    """(descriptors, resident KB) of every program."""
    pids = {name: row["pid"] for name, row in lab.status()["programs"].items()}
    look = (
        'for p in "$@"; do ls /proc/$p/fd | wc -l; sed -n "s/VmRSS:[^0-9]*\\([0-9]*\\).*/\\1/p" /proc/$p/status; done'
    )
    fields = lab.execute("manager", ["sh", "-c", look, "-", *map(str, pids.values())]).split()
    return {name: (int(fields[2 * n]), int(fields[2 * n + 1])) for n, name in enumerate(pids)}


def throw_garbage(lab: Lab, group: str, seed: int) -> None:
    """At every socket of the lab at once; returns when all has been thrown."""
    manager, ocs, h1, h5 = "10.255.0.1", "10.255.0.2", "10.0.1.1", "10.0.3.1"
    targets = [("h2", "tcp", h1, 7071), ("h2", "tcp", h5, 7071), ("h2", "tcp", ocs, 10034)]
    targets += [("h2", "tcp", manager, port) for port in (9090, 8080, 6653)]
    targets += [("h2", "udp", h5, 7070), ("h1", "udp", group, 7070)]
    targets += [("manager", "unix", str(lab.run / file), 0) for file in ("lab.sock", "ocs-ocs.ctl")]
    targets += [("manager", "unix", str(lab.run / "manager.sock"), 8080)]
    targets += [("manager", "packet", str(lab.agent_socket(name)), 0) for name in ("h1", "h5")]
    running = []
    for where, kind, target, port in targets:
        rounds = "2000" if kind == "udp" else "60"
        argv = [sys.executable, GARBAGE, kind, target, str(port), rounds, str(seed), *([h1] if where == "h1" else [])]
        running.append(lab.popen(where, argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    for target, process in zip(targets, running, strict=True):
        output, _ = process.communicate(timeout=100)
        assert process.returncode == 0, (target, output[-1000:])


def garbage_beside_a_transfer(lab: Lab, number: int, seed: int) -> dict[str, tuple[int, int]]:
    """What the programs hold afterwards."""
    data = data_of(30_000_000, seed + number)
    with ThreadPoolExecutor(1) as pool, Agent(lab.agent_socket("h1")) as agent:
        agent.add(number, data)
        sending = agent.send(number, FAR)
        group = until(lambda: next((path["group"] for path in held(lab) if path["group"]), ""), "the transfer's path")
        garbage = pool.submit(throw_garbage, lab, str(group), seed + number)
        result = sending.wait(60)
        garbage.result()
    check(lab, result, FAR, data)
    forget(lab, ["h1", *FAR], number)
    return usage(lab)


def test_garbage_on_every_socket_while_transfers_run(lab: Lab, seed: int) -> None:
    """Twice: after the first time, nothing more is held than before, neither descriptors nor memory."""
    after = [garbage_beside_a_transfer(lab, number, seed) for number in (900, 901)]
    grown = {name: after[1][name][1] - kb for name, (_, kb) in after[0].items()}
    assert all(kb < MORE_RSS_MAX_KB for kb in grown.values()), grown
    until(lambda: all(now[0] <= after[0][name][0] for name, now in usage(lab).items()), "descriptors to be closed")
    assert lab.rest.get("/v1/health")["ready"]
    with Agent(lab.agent_socket("h5")) as agent:
        assert agent.status().packets_bad > 0  # they did arrive
    log = (lab.run / "manager.log").read_text()
    assert "OpenFlow from" in log and "framed binary Thrift" in log and "not HTTP" in log
    assert "not the control protocol" in (lab.run / "h5" / "agent.log").read_text()


def test_partial_acceptance_takes_several_sessions(lab: Lab, seed: int) -> None:
    """Each over the circuit of the one before; the last of them is a handful of fragments."""
    data = data_of(2 * SESSION + 12_345, seed)
    result = send(lab, "h1", FAR, data)
    check(lab, result, FAR, data)
    assert result.sessions == 3
    paths = lab.rest.get(f"/v1/transfers/{result.response_id}")["sessions"]
    assert len(paths) == 3 and {path["kind"] for path in paths} == {"circuit"}, paths


def test_more_multicasts_than_fibres(lab: Lab, seed: int) -> None:
    """Every server sends to five others at once: who finds no circuit in time goes over the core, and REST says why."""
    plans = [(name, [other for other in EVERYONE if other != name][:5]) for name in EVERYONE]
    sent = [data_of(5_000_000, seed + n) for n in range(len(plans))]
    with ThreadPoolExecutor(len(plans)) as pool:
        running = [pool.submit(send, lab, sender, to, data) for (sender, to), data in zip(plans, sent, strict=True)]
        results = [one.result() for one in running]
    for (_, to), data, result in zip(plans, sent, results, strict=True):
        check(lab, result, to, data)
    paths = [released(lab, result.response_id) for result in results]
    reasons = [path["reason"] for path in paths if path["kind"] == "packet"]
    assert len(reasons) < len(paths)
    assert reasons and all(reason.startswith("no circuit within") for reason in reasons), reasons


def test_full_store_and_full_tmpfs_fail_alone(lab: Lab, seed: int) -> None:
    data, junk = data_of(10_000_000, seed), lab.run / "h7" / "objects" / "junk"
    with Agent(lab.agent_socket("h5")) as agent:
        agent.add(1, data_of(QUOTA - (5 << 20), seed))
        with pytest.raises(NoRoom, match="quota"):
            agent.add(2, data)
    seen_by_h7 = f"/proc/{lab.status()['programs']['h7']['pid']}/root{junk}"
    assert "No space left" in lab.execute("h7", ["dd", "if=/dev/zero", f"of={seen_by_h7}", "bs=1M"], check=False)
    try:
        result = send(lab, "h1", FAR, data)
    finally:
        lab.execute("h7", ["rm", seen_by_h7])
    assert {row.name: row.state for row in result.receivers} == {"h3": "done", "h5": "failed", "h7": "failed"}
    cause = {row.name: row.cause for row in result.receivers}
    assert f"of {QUOTA} (quota) are in use" in cause["h5"], cause
    assert f"0 of {QUOTA} bytes are free in the tmpfs" in cause["h7"], cause
    assert read(lab, "h3", result.data_id) == data
    check(lab, send(lab, "h1", ["h7"], data), ["h7"], data)


def test_nobody_disturbs_an_object_on_its_way(lab: Lab, seed: int) -> None:
    """Deleting, sending again, adding by the same id and impatient reading are refused; the transfer ends well."""
    data = data_of(40_000_000, seed)
    with Agent(lab.agent_socket("h1")) as agent, Agent(lab.agent_socket("h3")) as receiver:
        agent.add(5, data)
        sending = agent.send(5, FAR)
        next(event for event in sending.events(timeout=60) if event.subject == "high-rate")
        with pytest.raises(Busy, match="being sent"):
            agent.delete(5)
        with pytest.raises(AlreadyThere, match="being sent"):
            agent.send(5, ["h4"]).wait(60)
        with pytest.raises(Busy, match="being received"):
            receiver.delete(5)
        with pytest.raises(AlreadyThere, match="being received"):
            receiver.add(5, b"mine")
        with pytest.raises(TimedOut, match="being received"):
            receiver.read(5, wait=0.001)
        check(lab, sending.wait(60), FAR, data)


DOOMED = """
import sys
from rostrum.client import Agent
agent = Agent(sys.argv[1])
agent.add(6, bytes(range(250)) * 160_000)
for event in agent.send(6, ["h3", "h5"]).events(timeout=60):
    print(event.subject, flush=True)
"""


def test_killed_client_does_not_take_its_transfer_along(lab: Lab) -> None:
    command = [sys.executable, "-c", DOOMED, str(lab.agent_socket("h1"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert any("high-rate" in line for line in client.stdout)
        client.kill()
    for name in ("h3", "h5"):
        assert read(lab, name, 6) == bytes(range(250)) * 160_000


@pytest.mark.parametrize(
    ("to", "text"),
    [
        (["h99"], "h99 not in topology"),
        (["h3", "h1"], "h1 is the sender"),
        (["h3", "h3"], "named twice"),
        ([], "1 to 16384 receivers"),
        ([f"h{n}" for n in range(20_000)], "1 to 16384 receivers"),
        (["h" * 300], "1 to 255 bytes"),
        (["h3\n"], "not a server's name"),
    ],
)
def test_senseless_receivers_are_refused_with_a_reason(lab: Lab, to: list[str], text: str) -> None:
    with Agent(lab.agent_socket("h1")) as agent:
        agent.add(1, b"something")
        with pytest.raises(RostrumError, match=text):
            agent.send(1, to).wait(60)
        for size in (2**40, 2**63, 2**64 - 1):
            with pytest.raises(RostrumError, match=str(size)):
                agent.create(size)
