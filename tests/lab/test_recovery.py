"""The manager is killed while transfers run: they do not notice, and afterwards nothing is left behind or held twice.

Also with two managers: the other one takes over.
"""

from __future__ import annotations

import json
import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest
from rostrum.client import Agent
from rostrum.controller.core.model import MulticastRule
from rostrum.controller.runtime import journal
from rostrum.controller.southbound.openflow.messages import COOKIE_MULTICAST, group_id
from rostrum.lab.experiments import pauses
from rostrum.lab.lab import Lab
from rostrum.lab.namespace import LabError
from rostrum.lab.rest import Rest

from tests.lab.objects import check, data_of, forget, read, send, until
from tests.lab.test_failures import EVERYONE, FAR, Sending

pytestmark = pytest.mark.lab

KILLS = 4  # Open vSwitch takes up to 8 s to come back to a manager that was restarted
FAILOVER_BOUND_S = 90.0  # lease of the leader 3 s, looking for it, agents' pauses; the machine may be busy
STALE = "239.192.9.9"
QUICK = {
    "emulation.reconfiguration.mean_ms": 20,
    "emulation.ringing.duration_ms": 2,
    "ocs.ocs.reconfiguration_ms": 20,
}
OPTIONS = ("--circuit-wait", "1s", "--wait", "5s", "--lease", "2s", "--quarantine", "1s")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.start("hybrid-4x2", name="t-recovery", changes=QUICK, seed=1, manager_options=OPTIONS) as made:
        # From then on what the journal does not explain is stale.
        until(lambda: journal.show(made.run / "manager.journal")["about"]["whole"] == "1", "the journal to be whole")
        yield made


def connected(rest: Rest) -> bool:
    try:
        agents = {row["server"] for row in rest.get("/v1/agents")["agents"] if row["connected"]}
        return bool(rest.get("/v1/health")["ready"]) and agents == set(EVERYONE)
    except LabError:
        return False


def stands_by(rest: Rest) -> bool:
    try:
        return rest.call("GET", "/v1/paths")[0] == 307
    except LabError:
        return False


def crossed(lab: Lab) -> set[tuple[int, int]]:
    return {(row["input"], row["output"]) for row in lab.ocs_state()["cross_connects"]}


def flows(lab: Lab) -> set[tuple[str, str]]:
    """Multicast flows that are on the switches: (switch, group)."""
    found = set()
    for switch in lab.topology.switches:
        shown = lab.execute("manager", ["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", switch])
        found |= {(switch, group) for group in re.findall(r"nw_dst=(239\.[0-9.]+)[ ,]", shown)}
    return found


def assert_devices_are_as_the_manager_says(lab: Lab, rest: Rest) -> None:
    def agreed() -> bool:
        rows = rest.get("/v1/circuits")["cross_connects"]
        told = rest.get("/v1/rules")["rules"]
        rules = {(one["switch"], one["group"]) for one in told if one["use"] != "found at start"}
        assert len({row["input"] for row in rows}) == len({row["output"] for row in rows}) == len(rows)
        ours = {(row["input"], row["output"]) for row in rows}
        return ours == crossed(lab) and rules == flows(lab) and not any(row["found_at_start"] for row in rows)

    until(agreed, "cross-connects and rules to be what the manager says")


def test_manager_killed_again_and_again__transfers_keep_their_light(lab: Lab, seed: int) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    for number in range(600, 600 + KILLS):
        sending = Sending(lab, "h1", FAR, seed + number, number)
        before = crossed(lab)
        time.sleep(rng.uniform(0, 0.15))
        lab.kill("manager", signal.SIGKILL)
        time.sleep(rng.choice([0, 0, 0.3]))
        lab.start_program("manager")
        result = sending.result()
        check(lab, result, FAR, sending.data)
        until(lambda: connected(lab.rest), "the manager to be back")
        assert before <= crossed(lab)  # never taken down: the light was on all the time
        until(lambda: not lab.rest.get("/v1/paths?state=active")["paths"], "the path to be given back")
        forget(lab, EVERYONE, number)
    assert_devices_are_as_the_manager_says(lab, lab.rest)
    data = data_of(1_000_000, seed)
    check(lab, send(lab, "h3", ["h1", "h5"], data), ["h1", "h5"], data)
    again = send(lab, "h1", FAR, data)  # at once, on the circuit that outlived all those managers
    check(lab, again, FAR, data)
    assert lab.rest.get("/v1/circuits")["circuits"]


def test_rest_path_outlives_the_manager_and_stale_things_go(lab: Lab) -> None:
    _, made = lab.rest.call("POST", "/v1/paths", {"sender": "h1", "receivers": ["h3", "h5"]})
    path = lab.rest.get(f"/v1/paths/{made['id']}?wait=active")
    assert path["state"] == "active"
    lab.kill("manager", signal.SIGKILL)
    number = group_id(MulticastRule("tor4", 1, IPv4Address(STALE), (2,)))
    flow = f"cookie={COOKIE_MULTICAST:#x},priority=40000,in_port=1,ip,nw_dst={STALE},actions=group:{number}"
    for order, what in (("add-group", f"group_id={number},type=all,bucket=output:2"), ("add-flow", flow)):
        lab.execute("manager", ["ovs-ofctl", "-O", "OpenFlow13", order, "tor4", what])
    lab.execute("manager", ["ovs-ofctl", "-O", "OpenFlow13", "del-flows", "tor2", f"ip,nw_dst={path['group']}"])
    lab.start_program("manager")
    until(lambda: connected(lab.rest), "the manager to be back")
    again = lab.rest.get(f"/v1/paths/{made['id']}?wait=active")
    assert again["state"] == "active" and again["group"] == path["group"] and again["kind"] == path["kind"]
    assert_devices_are_as_the_manager_says(lab, lab.rest)
    assert ("tor2", path["group"]) in flows(lab)  # put back
    assert ("tor4", STALE) not in flows(lab)  # gone, and not because of its age
    lab.rest.call("DELETE", f"/v1/paths/{made['id']}")


@pytest.fixture(scope="module")
def pair() -> Iterator[Lab]:
    changes = {**QUICK, "manager.standbys": ["10.255.0.3"]}
    with Lab.start("hybrid-4x2", name="t-pair", changes=changes, seed=1, manager_options=OPTIONS) as made:
        yield made


def test_two_managers__the_other_one_takes_over_while_transfers_run(pair: Lab, seed: int) -> None:
    """Killed, then stopped and continued: a leader that does not know that it was deposed does no harm."""
    first, second = pair.rest, Rest(pair.run / "manager2")
    until(lambda: connected(first), "the first manager to lead")
    until(lambda: stands_by(second), "the second manager to stand by")
    assert "10.255.0.1:8080" in second.call("GET", "/v1/paths")[1]["detail"]

    sending = Sending(pair, "h1", FAR, seed, 700)
    before, begun = crossed(pair), time.monotonic()
    pair.kill("manager", signal.SIGKILL)
    check(pair, sending.result(), FAR, sending.data)
    until(lambda: connected(second), "the second manager to have all agents and devices", FAILOVER_BOUND_S)
    print(f"failover {time.monotonic() - begun:.1f} s")
    assert before <= crossed(pair)
    assert_devices_are_as_the_manager_says(pair, second)
    data = data_of(1_000_000, seed)
    check(pair, send(pair, "h3", ["h1", "h5"], data), ["h1", "h5"], data)

    pair.start_program("manager")  # stands by now
    until(lambda: stands_by(first), "the first manager to stand by")
    sending = Sending(pair, "h1", FAR, seed + 1, 701)
    pair.signal("manager2", signal.SIGSTOP)
    try:
        check(pair, sending.result(), FAR, sending.data)
        until(lambda: connected(first), "the first manager to lead again", FAILOVER_BOUND_S)
        held = pair.execute("manager", ["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "tor1"])
    finally:
        pair.signal("manager2", signal.SIGCONT)
    until(lambda: stands_by(second), "the deposed manager to stand by")
    assert held  # the switches' tables were read by the new leader before the old one woke
    assert_devices_are_as_the_manager_says(pair, first)
    check(pair, send(pair, "h1", FAR, data), FAR, data)
    assert read(pair, "h3", 701) == sending.data


def test_two_managers__agents_and_switches_follow(pair: Lab) -> None:
    """After an orderly end the other one leads at once; switches know one MASTER."""
    rests = {"manager": pair.rest, "manager2": Rest(pair.run / "manager2")}
    leading = next(name for name, rest in rests.items() if not stands_by(rest))
    other = next(name for name in rests if name != leading)
    pair.kill(leading, signal.SIGTERM)
    until(lambda: connected(rests[other]), "the other one to lead", FAILOVER_BOUND_S)
    pair.start_program(leading)
    until(lambda: stands_by(rests[leading]), "it to stand by")

    def roles() -> bool:
        shown = pair.execute("manager", ["ovs-vsctl", "--format=json", "--columns=target,role", "list", "controller"])
        by_role: dict[str, set[str]] = {}
        for target, role in json.loads(shown)["data"]:
            by_role.setdefault(str(role), set()).add(target)
        address = {"manager": "10.255.0.1", "manager2": "10.255.0.3"}[other]
        return by_role.get("master") == {f"tcp:{address}:6653"}

    until(roles, "every switch to have the leader as its MASTER")
    with Agent(pair.agent_socket("h1")) as agent:
        assert "connected to manager" in agent.status().manager


def test_two_managers__the_leader_is_stopped_past_its_lease_with_an_order_to_the_ocs_under_way(pair: Lab) -> None:
    """What waited behind that order is not given when it wakes: the OCS's log has no order of the old leader after the
    first one of the new.
    """
    rests = {"manager": pair.rest, "manager2": Rest(pair.run / "manager2")}
    old = next(name for name, rest in rests.items() if not stands_by(rest))
    new = next(name for name in rests if name != old)
    until(lambda: connected(rests[old]) and stands_by(rests[new]), "one to lead and one to stand by", FAILOVER_BOUND_S)

    def orders() -> list[tuple[str, str]]:
        rows = pair.ask_ocs("ocs", {"op": "log"})["commands"]
        return [(one["from"], one["command"]) for one in rows if one["command"].startswith(("ENT-", "DLT-"))]

    def circuit(rest: Rest, sender: str, receiver: str) -> str:
        status, made = rest.call("POST", "/v1/paths", {"sender": sender, "receivers": [receiver], "kind": "circuit"})
        assert status == 201, made
        return str(made["id"])

    for row in rests[old].get("/v1/paths?state=active")["paths"]:
        rests[old].call("DELETE", f"/v1/paths/{row['id']}")
    before = len(orders())
    pair.ask_ocs("ocs", {"op": "timing", "reconfiguration": "fixed:1500ms"})
    try:
        # The next order of the same fibre waits for the answer to this one.
        first = circuit(rests[old], "h1", "h3")
        rests[old].call("DELETE", f"/v1/paths/{first}")
        circuit(rests[old], "h1", "h5")
        until(lambda: len(orders()) > before, "an order to be under way")
        pair.signal(old, signal.SIGSTOP)
        try:
            pair.ask_ocs("ocs", {"op": "timing", "reconfiguration": "fixed:20ms"})
            until(lambda: connected(rests[new]), "the other one to lead", FAILOVER_BOUND_S)
            since = len(orders())
            made = circuit(rests[new], "h3", "h7")
            until(lambda: len(orders()) > since, "an order of the new leader")
            leaders = {session for session, _ in orders()[since:]}
        finally:
            pair.signal(old, signal.SIGCONT)
        until(lambda: stands_by(rests[old]), "the deposed manager to stand by")
        assert {session for session, _ in orders()[since:]} == leaders, orders()[before:]
        assert_devices_are_as_the_manager_says(pair, rests[new])
        rests[new].call("DELETE", f"/v1/paths/{made}")
    finally:
        pair.ask_ocs("ocs", {"op": "timing", "reconfiguration": "fixed:20ms"})


def test_two_managers__both_are_stopped_past_the_lease__transfers_go_on_and_requests_wait(pair: Lab, seed: int) -> None:
    """The standby goes on first and takes over; the leader wakes and knows that it was deposed."""
    rests = {"manager": pair.rest, "manager2": Rest(pair.run / "manager2")}
    old = next(name for name, rest in rests.items() if not stands_by(rest))
    new = next(name for name in rests if name != old)
    until(lambda: connected(rests[old]) and stands_by(rests[new]), "one to lead and one to stand by", FAILOVER_BOUND_S)
    for row in rests[old].get("/v1/paths?state=active")["paths"]:
        rests[old].call("DELETE", f"/v1/paths/{row['id']}")
    log = pauses.OcsLog(pair)
    sending = Sending(pair, "h1", FAR, seed + 2, 702)
    data = data_of(1_000_000, seed)
    with Agent(pair.agent_socket("h3")) as agent:
        pair.signal(old, signal.SIGSTOP)
        pair.signal(new, signal.SIGSTOP)
        goes_on = threading.Timer(4.0, pair.signal, (new, signal.SIGCONT))  # twice the leases of agents and leader
        goes_on.start()
        try:
            agent.add(703, data)
            asked = agent.send(703, ["h1", "h5"], wait=FAILOVER_BOUND_S)
        finally:
            goes_on.join()
        try:
            until(lambda: connected(rests[new]), "the other one to lead", FAILOVER_BOUND_S)
        finally:
            pair.signal(old, signal.SIGCONT)
        check(pair, asked.wait(FAILOVER_BOUND_S), ["h1", "h5"], data)
    check(pair, sending.result(), FAR, sending.data)
    until(lambda: stands_by(rests[old]), "the deposed manager to stand by")
    until(lambda: not rests[new].get("/v1/paths?state=active")["paths"], "all paths to be given back")
    assert_devices_are_as_the_manager_says(pair, rests[new])
    assert log.wrong([]) == []


@pytest.mark.parametrize("phase", pauses.PHASES)
def test_two_managers__both_are_stopped_at_a_phase_and_go_on_in_the_other_order(
    pair: Lab, phase: str, seed: int
) -> None:
    """The transfer goes on, nothing is granted twice, and the OCS has what the new leader says."""
    rests = {"manager": pair.rest, "manager2": Rest(pair.run / "manager2")}
    old = next(name for name, rest in rests.items() if not stands_by(rest))
    new = next(name for name in rests if name != old)
    until(lambda: connected(rests[old]) and stands_by(rests[new]), "one to lead and one to stand by", FAILOVER_BOUND_S)
    log, number = pauses.OcsLog(pair), 710 + pauses.PHASES.index(phase)
    data = data_of(pauses.SIZE, seed)
    with Agent(pair.agent_socket("h1")) as agent:
        agent.add(number, data)
        handle = agent.send(number, FAR, wait=FAILOVER_BOUND_S)
        if phase != "requested":
            pauses.until_phase(handle, phase)
        pair.signal(old, signal.SIGSTOP)
        pair.signal(new, signal.SIGSTOP)
        goes_on = threading.Timer(1.0, pair.signal, (new, signal.SIGCONT))
        goes_on.start()
        try:
            goes_on.join()
            until(lambda: connected(rests[new]), "the other one to lead", FAILOVER_BOUND_S)
        finally:
            pair.signal(old, signal.SIGCONT)
        check(pair, handle.wait(FAILOVER_BOUND_S), FAR, data)
    until(lambda: stands_by(rests[old]), "the deposed manager to stand by")
    until(lambda: not rests[new].get("/v1/paths?state=active")["paths"], "all paths to be given back")
    assert_devices_are_as_the_manager_says(pair, rests[new])
    assert log.wrong([]) == []
    forget(pair, ["h1", *FAR], number)
