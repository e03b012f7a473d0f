"""A well-formed adversary: a server of the lab sends valid packets with forged fields to every door of every program.

Each door is attacked alone, while nothing else runs: what the attacked program holds and sends stays in proportion.
Then all are attacked at once beside transfers, a stream and messages: all of these go on. ROSTRUM_ADVERSARY_S makes
each attack that many seconds long.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from rostrum.client import Agent, TimedOut
from rostrum.lab.lab import Lab
from rostrum.lab.namespace import Entered

from tests.lab.adversary import Plan
from tests.lab.objects import check, data_of, forget, released, send, until

pytestmark = pytest.mark.lab

ATTACKER, ATTACKED = "h2", "h5"
SENDER, RECEIVERS = "h1", ["h3", "h5", "h7"]
ATTACK_S = float(os.environ.get("ROSTRUM_ADVERSARY_S", "1.5"))
ALL_S = 3 * ATTACK_S
PROGRAM = str(Path(__file__).with_name("adversary.py"))
SIZE = 8_000_000
MORE_RSS_MAX_KB = 24 << 10  # by one attack; before the bounds a second of some took ten times as much
EGRESS_TIMES = 3
QUIET_BYTES = 200_000  # what a server sends anyway in the time of an attack: LLDP, keepalives, ARP, TCP's own
LATE_TIMES, LATE_S = 20.0, 0.5  # an answer may take that many times as long as in a quiet lab, and this much besides
QUIET_ANSWERS = 10
GROUP = "victims"
OPTIONS: dict[str, Any] = {"protocol": "ricochet", "order": "fifo"}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    changes = {"emulation.reconfiguration.mean_ms": 20, "ocs.ocs.reconfiguration_ms": 20}
    options = ("--circuit-wait", "100ms", "--wait", "10s")
    with Lab.start("hybrid-4x2", name="t-adversary", changes=changes, seed=1, manager_options=options,
                   agent_options=("--reserve", "0")) as lab:  # fmt: skip
        yield lab


@pytest.fixture
def plan(lab: Lab, seed: int) -> Plan:
    """What somebody on the data network can know: all names and addresses, boot ids, groups."""
    servers = lab.topology.servers
    return Plan(
        seed=seed,
        seconds=ATTACK_S,
        me=str(servers[ATTACKER].address),
        me_name=ATTACKER,
        target=str(servers[ATTACKED].address),
        others={name: str(one.address) for name, one in servers.items() if name != ATTACKER},
        boots=[boot_id(lab, name) for name in ("h5", "h7", "h1")],
        names=[GROUP],
        dpids=[one.dpid for one in lab.topology.switches.values() if one.dpid],
        nic=nic(lab, ATTACKER),
    )


def boot_id(lab: Lab, server: str) -> int:
    with Agent(lab.agent_socket(server)) as agent:
        return agent.status().boot_id


def nic(lab: Lab, server: str) -> str:
    address = str(lab.topology.servers[server].address)
    rows = json.loads(lab.execute(server, ["ip", "-j", "addr"]))
    return str(next(row["ifname"] for row in rows for one in row["addr_info"] if one["local"] == address))


def attack(lab: Lab, door: str, plan: Plan, where: str = ATTACKER) -> Entered:
    argv = [sys.executable, PROGRAM, door, json.dumps(asdict(plan))]
    return lab.popen(where, argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def outcome(door: str, running: Entered, bound_s: float = 10 * ALL_S + 30) -> dict[str, Any]:
    output, _ = running.communicate(timeout=bound_s)
    assert running.returncode == 0, (door, output[-2000:])
    told = dict(json.loads(output))
    assert told["sent"] > 0 or told["text"], f"{door}: nothing was sent: {told}"
    return told


def resident_kb(lab: Lab) -> dict[str, int]:
    """Of each program: memory of its own (objects are in the store, whose quota bounds them)."""
    pids = {name: row["pid"] for name, row in lab.status()["programs"].items()}
    look = 'for p in "$@"; do sed -n "s/RssAnon:[^0-9]*\\([0-9]*\\).*/\\1/p" /proc/$p/status; done'
    fields = lab.execute("manager", ["sh", "-c", look, "-", *map(str, pids.values())]).split()
    return dict(zip(pids, map(int, fields), strict=True))


def nic_bytes(lab: Lab, server: str) -> tuple[int, int]:
    """Of the data NIC: (received, sent)."""
    row = json.loads(lab.execute(server, ["ip", "-j", "-s", "link", "show", "dev", nic(lab, server)]))[0]["stats64"]
    return int(row["rx"]["bytes"]), int(row["tx"]["bytes"])


class Latency:
    """How long agent and manager take to answer, asked over and over until it ends: medians and worst, in seconds."""

    def __init__(self, lab: Lab) -> None:
        self.took: dict[str, list[float]] = {"agent": [], "manager": []}
        self._lab, self._end = lab, threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(name,)) for name in self.took]

    def __enter__(self) -> Latency:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, what: str) -> None:
        with Agent(self._lab.agent_socket(ATTACKED)) as agent:
            while not self._end.is_set():
                begin = time.monotonic()
                if what == "agent":
                    agent.status()
                else:
                    self._lab.rest.get("/v1/health")
                self.took[what].append(time.monotonic() - begin)
                self._end.wait(0.02)

    def medians(self) -> dict[str, float]:
        return {name: statistics.median(took) for name, took in self.took.items()}


def quiet(lab: Lab) -> dict[str, float]:
    with Latency(lab) as latency:
        until(lambda: min(map(len, latency.took.values())) >= QUIET_ANSWERS, "answers in a quiet lab")
    return latency.medians()


def in_time(before: dict[str, float], latency: Latency) -> None:
    for name, median in latency.medians().items():
        assert median < LATE_TIMES * before[name] + LATE_S, (name, before[name], median, max(latency.took[name]))


def agents_up(lab: Lab) -> set[str]:
    return {row["server"] for row in lab.rest.get("/v1/agents")["agents"] if row["connected"]}


class Log:
    """What the manager has logged since this was made."""

    def __init__(self, lab: Lab) -> None:
        self._file = lab.run / "manager.log"
        self._at = self._file.stat().st_size

    def lines(self, *fields: str) -> list[str]:
        with self._file.open() as file:
            file.seek(self._at)
            return [line for line in file if any(word in line for word in fields)]


def nobody_is_missed(lab: Lab, log: Log) -> None:
    """No program ended, no agent but that of the attacker's own server was lost, no path taken back, no switch left."""
    assert {row["state"] for row in lab.status()["programs"].values()} == {"running"}
    bad = log.lines("Traceback", "agent down", "lease over", "switch down", "a newer agent", "path not known")
    bad = [line for line in bad if f"agent={ATTACKER} " not in line and f"agent of {ATTACKER} " not in line]
    assert not bad, bad[:5]
    until(lambda: agents_up(lab) == set(lab.topology.servers), "all agents to be connected")


UDP = ["data", "peer", "messages", "probe", "spoofed-data", "spoofed-peer", "spoofed-messages", "spoofed-probe"]


@pytest.mark.parametrize("door", [*UDP, "control", "opens", "hellos"])
def test_door_of_an_agent(lab: Lab, plan: Plan, door: str) -> None:
    log, before, memory = Log(lab), quiet(lab), resident_kb(lab)
    received, sent = nic_bytes(lab, ATTACKED)
    with Latency(lab) as latency:
        told = outcome(door, attack(lab, door, plan))
    after = nic_bytes(lab, ATTACKED)
    arrived, left = after[0] - received, after[1] - sent
    print(door, told, "arrived", arrived, "left", left, before, latency.medians())
    assert arrived > 10_000, "nothing came"
    assert left < EGRESS_TIMES * arrived + QUIET_BYTES
    in_time(before, latency)
    grown = {name: kb - memory[name] for name, kb in resident_kb(lab).items()}
    print(door, grown)
    assert all(kb < MORE_RSS_MAX_KB for kb in grown.values()), grown
    nobody_is_missed(lab, log)
    data = data_of(300_000, plan.seed)
    result = send(lab, SENDER, [ATTACKED], data)
    check(lab, result, [ATTACKED], data)
    forget(lab, [SENDER, ATTACKED], result.data_id)


@pytest.mark.parametrize("door", ["thrift", "rest", "openflow", "frames"])
def test_door_of_the_manager(lab: Lab, plan: Plan, door: str) -> None:
    log, before, memory = Log(lab), quiet(lab), resident_kb(lab)
    with Latency(lab) as latency:
        told = outcome(door, attack(lab, door, replace(plan, target=str(lab.topology.manager.address))))
    print(door, told, before, latency.medians())
    assert all(text.endswith(f" {ATTACKER}") for text in told["text"]), told["text"]  # welcomed as itself at most
    in_time(before, latency)
    grown = {name: kb - memory[name] for name, kb in resident_kb(lab).items()}
    print(door, grown)
    assert all(kb < MORE_RSS_MAX_KB for kb in grown.values()), grown
    nobody_is_missed(lab, log)


def test_application_socket_of_another_user(lab: Lab, plan: Plan) -> None:
    """It is not even let in. (The agent's own users and root are.)"""
    told = outcome("application", attack(lab, "application", replace(plan, path=str(lab.agent_socket(ATTACKER)))))
    assert told["heard"] == told["sent"] and not told["text"]


class Workload:
    """Transfers from h1, a stream from h4 and messages of h7, beside each other, until it ends: all must be right."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.seed = lab, seed
        self.sent, self.transfers, self.published = 0, 0, 0
        self.kinds: list[str] = []
        self.patched = self.packets = 0
        self.got: dict[str, list[int]] = {"h3": [], "h5": []}
        self.lost = 0
        self._end = threading.Event()
        self._pool = ThreadPoolExecutor(8)

    def __enter__(self) -> Workload:
        self._ready = threading.Barrier(len(self.got) + 1)
        self._jobs = [self._pool.submit(self._subscribe, name) for name in self.got]
        self._ready.wait(20)
        self._jobs += [self._pool.submit(one) for one in (self._publish, self._transfer, self._write, self._read)]
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._pool.shutdown()
        for job in self._jobs:
            job.result()

    def _transfer(self) -> None:
        data = data_of(SIZE, self.seed)
        while not self._end.is_set():
            result = send(self.lab, SENDER, RECEIVERS, data)
            check(self.lab, result, RECEIVERS, data)
            self.transfers += 1
            self.kinds.append(result.path)
            self.packets, self.patched = self.packets + result.packets_sent, self.patched + result.packets_patched
            forget(self.lab, [SENDER, *RECEIVERS], result.data_id)

    def _write(self) -> None:
        piece = data_of(20_000, self.seed)
        with Agent(self.lab.agent_socket("h4")) as agent, agent.stream_send("tide", ["h5", "h6"]) as stream:
            while not self._end.wait(0.005):
                stream.write(piece)
                self.sent += 1
            stream.finish().raise_for_failure()

    def _read(self) -> None:
        hashed, wanted, count = hashlib.sha256(), hashlib.sha256(), 0
        readers = []
        for name in ("h5", "h6"):
            agent = Agent(self.lab.agent_socket(name))
            readers.append((agent, agent.stream_receive("tide", wait=30)))
        other = self._pool.submit(lambda: b"".join(readers[1][1]))
        for piece in readers[0][1]:
            hashed.update(piece)
            count += len(piece)
        same = hashlib.sha256(other.result())
        piece = data_of(20_000, self.seed)
        for _ in range(self.sent):
            wanted.update(piece)
        assert count == self.sent * len(piece) and hashed.digest() == wanted.digest() == same.digest()
        for agent, stream in readers:
            stream.close()
            agent.close()

    def _publish(self) -> None:
        with Agent(self.lab.agent_socket("h7")) as agent, agent.publisher(GROUP) as out:
            while not self._end.wait(0.01):
                out.publish(b"%d " % self.published + b"x" * (self.published * 37 % 1200))
                self.published += 1

    def _subscribe(self, name: str) -> None:
        taken = self.got[name]
        with (
            Agent(self.lab.agent_socket(name)) as agent,
            agent.join(GROUP, **OPTIONS) as group,
        ):
            self._ready.wait(20)
            over = 0.0
            while not over or (time.monotonic() < over and (not taken or taken[-1] < self.published - 1)):
                if self._end.is_set() and not over:
                    over = time.monotonic() + 10
                try:
                    message = group.next(0.05)
                except TimedOut:
                    continue
                if message.lost is not None:
                    self.lost += message.lost
                elif message.data[:1].isdigit():
                    taken.append(int(message.data.split()[0]))


def beside(lab: Lab, plan: Plan, doors: list[str], least: int = 2) -> None:
    """All doors at once, while others work."""
    log, before, memory = Log(lab), quiet(lab), resident_kb(lab)
    with Workload(lab, plan.seed) as work, Latency(lab) as latency:
        until(lambda: work.transfers >= 1 and work.published > 20 and work.sent > 20, "all to be under way")
        eye = attack(lab, "seen", replace(plan, nic=nic(lab, ATTACKED)), where=ATTACKED)
        nonces = [int(one) for one in outcome("seen", eye)["text"]]
        held = lab.rest.get("/v1/paths")["paths"]
        group = lab.rest.get(f"/v1/groups/{GROUP}")
        known = replace(
            plan,
            seconds=ALL_S,
            rate=1000.0,
            nonces=nonces,
            groups=sorted({path["group"] for path in held if path["group"]}),
            paths=[(path["request_id"], path["id"]) for path in held],
            message_groups={group["address"]: int(group["data_port"])},
        )
        manager = replace(known, target=str(lab.topology.manager.address))
        ours = {"thrift", "rest", "openflow"}
        running = {door: attack(lab, door, manager if door in ours else known) for door in doors}
        begun = work.transfers
        for door, one in running.items():
            print(door, outcome(door, one))
        until(lambda: work.transfers >= begun + least, "transfers to go on")
    print(
        "transfers",
        work.transfers,
        work.kinds,
        "patched",
        work.patched,
        "of",
        work.packets,
        "published",
        work.published,
        {name: len(taken) for name, taken in work.got.items()},
        "lost",
        work.lost,
        "stream",
        work.sent,
    )
    in_time(before, latency)
    for name, taken in work.got.items():
        assert taken == list(range(work.published)) or taken == list(range(taken[0], work.published)), (name, taken[:5])
    assert work.lost == 0
    assert work.patched < work.packets / 10, "the fast path is lost"
    grown = {name: kb - memory[name] for name, kb in resident_kb(lab).items()}
    print(grown)
    assert all(kb < 2 * MORE_RSS_MAX_KB for kb in grown.values()), grown
    nobody_is_missed(lab, log)


def test_manager_has_no_door_for_datagrams(lab: Lab) -> None:
    """So nobody can reach it with another's address."""
    pid = lab.status()["programs"]["manager"]["pid"]
    look = f"for d in /proc/{pid}/fd/*; do readlink $d; done; echo; cat /proc/{pid}/net/udp /proc/{pid}/net/udp6"
    held, sockets = lab.execute("manager", ["sh", "-c", look]).split("\n\n", 1)
    assert "socket:[" in held
    inodes = {row.split()[9] for row in sockets.splitlines() if ":" in row.split()[0]}
    assert not [one for one in held.split() if one.removeprefix("socket:[").removesuffix("]") in inodes]


@pytest.mark.parametrize("wrong", [None, 4], ids=["light-nowhere", "light-at-a-wrong-port"])
def test_circuit_switch_that_lies(lab: Lab, seed: int, wrong: int | None) -> None:
    """It says late that all is as ordered, with power, and shines elsewhere: whoever depends on it goes on by packets
    and is told why, others do not notice, and nothing but that fibre is suspected."""
    log, data = Log(lab), data_of(SIZE, seed)
    lab.ocs_fault(kind="astray", input=1, **({"output": wrong} if wrong else {}))
    lab.ocs_fault(kind="slow", seconds=0.02)
    try:
        with ThreadPoolExecutor(2) as pool:
            for _ in range(2):
                mine = pool.submit(send, lab, SENDER, ["h3", "h4"], data)
                others = pool.submit(send, lab, "h5", ["h7", "h8"], data)
                for sender, of, at in ((SENDER, mine, ["h3", "h4"]), ("h5", others, ["h7", "h8"])):
                    result = of.result()
                    check(lab, result, at, data)
                    forget(lab, [sender, *at], result.data_id)
                    path = released(lab, result.response_id)
                    print(sender, path["kind"], path["reason"], result.packets_patched, result.packets_sent)
                    if sender == SENDER:
                        assert path["kind"] == "packet" and "no light at" in path["reason"], path
                    else:
                        assert path["kind"] == "circuit", path
                        assert result.packets_patched < result.packets_sent / 10, "two lights in one fibre"
        found = [one["subject"] for one in lab.rest.get("/v1/doctor")["findings"] if one["check"] in ("dark", "optics")]
        assert set(found) <= {"ocs input 1", "ocs output 2"}, found
    finally:
        lab.ocs_clear()
    result = send(lab, "h7", ["h3", "h5"], data)
    check(lab, result, ["h3", "h5"], data)
    assert released(lab, result.response_id)["kind"] == "circuit"
    forget(lab, ["h7", "h3", "h5"], result.data_id)
    nobody_is_missed(lab, log)


DOORS = ["data", "peer", "messages", "probe", "control", "opens", "hellos", "thrift", "rest", "openflow", "frames"]


def test_every_door_at_once_beside_others_work(lab: Lab, plan: Plan) -> None:
    beside(lab, plan, DOORS)
