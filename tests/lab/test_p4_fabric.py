"""A lab with P4 switches at the top of racks, or everywhere: paths, admission, counters, first light, a switch killed.

On the reference target in a mixed fabric, and on BMv2 in a pure one where it is installed.
"""

from __future__ import annotations

import re
import shutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from rostrum.lab import p4switches
from rostrum.lab.churn.inventory import Inventory, tables
from rostrum.lab.lab import Lab

from tests.lab.adversary import Plan
from tests.lab.objects import check, data_of, forget, send, until
from tests.lab.plain import PORT, SIZE, deliver, heard, listen, send_argv
from tests.lab.test_adversary import Log, attack, boot_id, nic, nobody_is_missed, outcome

pytestmark = pytest.mark.lab

COUNT = 60
GAP_S = 0.004
FAR = ["h3", "h5", "h7"]


@pytest.fixture(
    scope="module", params=[(p4switches.REFERENCE, "mixed"), (p4switches.BMV2, "p4")], ids=lambda one: one[0]
)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    target, switch = request.param
    if target == p4switches.BMV2 and not shutil.which("simple_switch_grpc"):
        pytest.skip("simple_switch_grpc (BMv2) is not installed")
    options = ("--start-on", "switches")
    with Lab.start("hybrid-4x2", name="t-p4", switch=switch, p4_target=target, seed=1, agent_options=options) as lab:
        yield lab


@pytest.fixture(autouse=True)
def clean(lab: Lab) -> Iterator[None]:
    yield
    for path in lab.rest.get("/v1/paths")["paths"]:
        if path["state"] in ("queued", "configuring", "active"):
            lab.rest.call("DELETE", f"/v1/paths/{path['id']}")


def request(lab: Lab, **wanted: Any) -> dict[str, Any]:
    """An active path."""
    status, path = lab.rest.call("POST", "/v1/paths", wanted)
    assert status == 201, path
    path = lab.rest.get(f"/v1/paths/{path['id']}?wait=active&timeout_ms=60000")
    assert path["state"] == "active", path
    return path


def counted(lab: Lab, path_id: str) -> dict[tuple[str, str, str], int]:
    """(switch, what, receiver or "") -> how many by now."""
    found: dict[tuple[str, str, str], int] = {}
    for one in lab.rest.get(f"/v1/paths/{path_id}/counters")["switches"]:
        switch = one["switch"]
        found[switch, "granted", ""] = one["granted"]["packets"]
        found[switch, "received", ""] = one["received"]["packets"]
        found[switch, "bytes", ""] = one["received"]["bytes"]
        found |= {(switch, "delivered", row["to"]): row["packets"] for row in one["delivered"]}
    return found


def refused(lab: Lab, switch: str, port: int) -> int:
    ports = lab.rest.get(f"/v1/switches/{switch}/counters")["ports"]
    return int(next(row for row in ports if row["port"] == port)["refused"]["packets"])


def test_what_forwards__is_named(lab: Lab) -> None:
    assert lab.switch in ("p4-reference-target+openvswitch", "bmv2")


def test_preflight_and_doctor(lab: Lab) -> None:
    for kind in ("packet", "circuit"):
        status, found = lab.rest.call("POST", "/v1/preflight", {"sender": "h1", "receivers": FAR, "kind": kind})
        assert status == 200 and found["works"] and found["kind"] == kind, found
    # Until discovery has gone round, a note says that the cabling is not looked at.
    until(lambda: not lab.rest.get("/v1/doctor")["findings"], "the doctor to have looked at everything")
    assert lab.rest.get("/v1/doctor")["healthy"]


@pytest.mark.parametrize("kind", ["packet", "circuit"])
def test_path__delivers_marks_counts(lab: Lab, kind: str) -> None:
    path = request(lab, sender="h1", receivers=["h2", "h3", "h5"] if kind == "packet" else FAR, kind=kind)
    names = path["receivers"]
    before = counted(lab, path["id"])  # a circuit of the preflight's may be live, with rules that have counted
    got = deliver(lab, "h1", names, path["group"], count=COUNT, interval_s=GAP_S)
    assert {name: row["received"] for name, row in got.items()} == dict.fromkeys(names, COUNT)
    assert all(row["tos"] == [46 << 2] for row in got.values())

    def more_now() -> dict[tuple[str, str, str], int]:
        return {what: count - before[what] for what, count in counted(lab, path["id"]).items()}

    # Open vSwitch counts its flows when it looks at them, up to seconds later on a busy machine.
    until(
        lambda: {count for what, count in more_now().items() if what[1] in ("granted", "received")} == {COUNT},
        "all packets to be counted",
    )
    more = more_now()
    assert {lab.topology.servers[name].tor for name in ("h1", *names)} <= {what[0] for what in more}
    assert {name: more[lab.topology.servers[name].tor, "delivered", name] for name in names} == dict.fromkeys(
        names, COUNT
    )
    assert {count for what, count in more.items() if what[1] in ("granted", "received")} == {COUNT}
    assert {count for what, count in more.items() if what[1] == "bytes"} == {COUNT * (SIZE + 42)}


STRANGERS = [("h2", 1, 2, ""), ("h4", 2, 2, ""), ("h1", 1, 1, "10.0.1.77")]  # server, rack, port, another address


@pytest.mark.parametrize(("server", "rack", "port", "address"), STRANGERS)
def test_admission__without_a_grant_nobody_reaches_a_groups_receivers(
    lab: Lab, server: str, rack: int, port: int, address: str
) -> None:
    """Not from another port of the sender's rack or a receiver's, nor from the sender's port with another address."""
    path = request(lab, sender="h1", receivers=["h3", "h5"])
    before = refused(lab, f"tor{rack}", port)
    argv = send_argv(lab, server, path["group"], COUNT, GAP_S)
    victims = {name: listen(lab, name, path["group"], COUNT) for name in ("h3", "h5")}
    if address:
        lab.execute(server, ["ip", "address", "add", f"{address}/16", "dev", f"{server}-eth0"])
        argv[argv.index(str(lab.topology.servers[server].address))] = address
    try:
        lab.execute(server, argv)
    finally:
        if address:
            lab.execute(server, ["ip", "address", "del", f"{address}/16", "dev", f"{server}-eth0"])
    assert {name: heard(program)["received"] for name, program in victims.items()} == {"h3": 0, "h5": 0}
    until(lambda: refused(lab, f"tor{rack}", port) - before >= COUNT, f"tor{rack} to have refused it")
    got = deliver(lab, "h1", ["h3", "h5"], path["group"], count=COUNT, interval_s=GAP_S)
    assert {name: row["received"] for name, row in got.items()} == {"h3": COUNT, "h5": COUNT}, "the sender's own"


def test_transfer__starts_on_light_that_switches_saw(lab: Lab) -> None:
    """Where receivers' own word of it came first, on a busy machine, it is tried again."""
    data = data_of(2_000_000, 1)
    found = []
    while len(found) < 5 and (not found or found[-1] != ({"tor2", "tor3", "tor4"}, True)):
        result = send(lab, "h1", FAR, data)
        check(lab, result, FAR, data)
        path = lab.rest.get(f"/v1/paths/{result.response_id}?wait=ended&timeout_ms=60000")
        by_switches = f"light=switches path={result.response_id}" in (lab.run / "h1" / "agent.log").read_text()
        found.append(({row["rack"] for row in path["first_light"]}, by_switches))
        forget(lab, ["h1", *FAR], result.data_id)
    assert found[-1] == ({"tor2", "tor3", "tor4"}, True), found


def test_switch_killed_and_started_again__its_rules_come_back(lab: Lab) -> None:
    path = request(lab, sender="h1", receivers=["h3", "h5"], kind="packet")
    steady = listen(lab, "h5", path["group"], 10**6)
    flow = lab.popen("h1", send_argv(lab, "h1", path["group"], 10**6, GAP_S, size=1000))
    try:
        lab.kill("tor2")
        until(lambda: not _up(lab, "tor2"), "tor2 to be down")
        assert lab.rest.get(f"/v1/paths/{path['id']}")["state"] == "active"
        lab.start_program("tor2")
        until(lambda: _up(lab, "tor2"), "tor2 to be up")
        again = listen(lab, "h3", path["group"], COUNT)
        assert heard(again)["distinct"] == COUNT
    finally:
        flow.kill()
        flow.wait()
    assert heard(steady)["received"] > COUNT, "others' light is not touched"
    lab.execute("h4", ["ping", "-c1", "-W2", "10.0.3.1"])


def test_switch_killed_under_a_transfer__it_goes_on_to_the_end(lab: Lab) -> None:
    data = data_of(6_000_000, 2)

    def interrupt() -> None:
        lab.kill("tor3")
        lab.start_program("tor3")

    timer = threading.Timer(0.4, interrupt)
    timer.start()
    try:
        result = send(lab, "h1", FAR, data)
    finally:
        timer.join()
    check(lab, result, FAR, data)
    forget(lab, ["h1", *FAR], result.data_id)


def _up(lab: Lab, switch: str) -> bool:
    return bool(next(row for row in lab.rest.get("/v1/switches")["switches"] if row["name"] == switch)["up"])


def test_dump__is_what_the_manager_knows_of(lab: Lab) -> None:
    path = request(lab, sender="h1", receivers=["h3", "h5"], kind="packet")
    shown = lab.execute("manager", [sys.executable, "-m", "rostrum.lab.p4entries", str(lab.run / "topology.yaml")])
    for rack in ("tor1", "tor2", "tor3"):
        (number,) = re.findall(
            rf"^flows {rack} .*nw_dst={re.escape(path['group'])} .*group:(\d+)$", shown, re.MULTILINE
        )
        assert f"groups {rack} group_id={number}\n" in shown
    known = {(row["switch"], row["group"]) for row in lab.rest.get("/v1/rules")["rules"]}
    found = Inventory()
    tables(shown, known, known, found)
    assert not found.unexplained and found.flows and found.openflow_groups


def test_stranger_on_the_data_port__is_refused_too(lab: Lab) -> None:
    """A group of the range that no path has: dropped where it enters, and counted."""
    before = refused(lab, "tor4", 1)
    lab.execute("h7", send_argv(lab, "h7", "239.192.255.254", COUNT, GAP_S, port=PORT))
    until(lambda: refused(lab, "tor4", 1) - before >= COUNT, "tor4 to refuse it")


def test_adversary__at_every_door_beside_a_transfer(lab: Lab, seed: int) -> None:
    """Forged packets with its own and with others' addresses, to servers, to a granted group and to the manager: the
    switch at the attacker's port refuses what goes to the group, a transfer beside it is right, nobody is missed."""
    attacker, log = "h2", Log(lab)
    path = request(lab, sender="h7", receivers=["h3", "h6"], kind="packet")
    addresses = {name: str(one.address) for name, one in lab.topology.servers.items()}
    plan = Plan(
        seed=seed,
        seconds=2.0,
        rate=100.0,
        me=addresses[attacker],
        me_name=attacker,
        target=addresses["h5"],
        groups=[path["group"]],
        others={name: one for name, one in addresses.items() if name != attacker},
        boots=[boot_id(lab, name) for name in ("h5", "h7", "h1")],
        nic=nic(lab, attacker),
    )
    before = refused(lab, "tor1", 2)
    doors = (
        "data",
        "peer",
        "messages",
        "probe",
        "spoofed-data",
        "spoofed-peer",
        "spoofed-messages",
        "control",
        "frames",
    )
    running = {door: attack(lab, door, plan) for door in doors}
    running["thrift"] = attack(lab, "thrift", replace(plan, target=str(lab.topology.manager.address)))
    data = data_of(1_000_000, seed)
    result = send(lab, "h1", FAR, data)
    check(lab, result, FAR, data)
    for door, one in running.items():
        print(door, outcome(door, one))
    assert refused(lab, "tor1", 2) - before > 0, "the switch lets no stranger into the group"
    got = deliver(lab, "h7", ["h3", "h6"], path["group"], count=COUNT, interval_s=GAP_S)
    assert {name: row["received"] for name, row in got.items()} == {"h3": COUNT, "h6": COUNT}, "the grant holds"
    forget(lab, ["h1", *FAR], result.data_id)
    nobody_is_missed(lab, log)


def test_cabling__p4_switches_tell_what_their_ports_hear(lab: Lab) -> None:
    def states() -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for one in lab.rest.get("/v1/links")["links"]:
            found.setdefault(one["state"], []).append(f"{one['switch']}:{one['port']} expected {one['expected']}")
        return found

    packet = {f"tor{n}:49 expected core:{n}" for n in range(1, 5)}
    packet |= {f"core:{n} expected tor{n}:49" for n in range(1, 5)}
    until(lambda: packet <= set(states().get("as expected", ())), "packet links to be heard from both ends", 30)
    now = states()
    assert set(now) <= {"as expected", "not heard"}, now
    path = request(lab, sender="h1", receivers=["h3", "h5"], kind="circuit")
    lit = {f"tor{number}:50 expected ocs:{number}" for number in (2, 3)}
    until(lambda: lit <= set(states()["as expected"]), f"light through the circuit of {path['id']}", 30)
    assert not [one for one in lab.rest.get("/v1/doctor")["findings"] if one["check"] == "cabling"]


def pings_heard(lab: Lab, source: str, target: str) -> int:
    """How many of the source's three pings the target heard, whether its answers came back or not."""

    def heard_so_far() -> int:
        return int(lab.execute(target, ["sh", "-c", "grep Icmp: /proc/net/snmp"]).splitlines()[1].split()[1])

    before = heard_so_far()
    argv = ["ping", "-c", "3", "-i", "0.2", "-W", "1", str(lab.topology.servers[target].address)]
    lab.execute(source, argv, check=False)
    return heard_so_far() - before


@pytest.mark.parametrize(("link", "ends"), [(("tor1", "core"), ("h1", "h3")), (("tor3", "h5"), ("h3", "h5"))])
def test_link__that_is_cut_passes_nothing_either_way(lab: Lab, link: tuple[str, str], ends: tuple[str, str]) -> None:
    a, b = ends
    until(lambda: pings_heard(lab, a, b) and pings_heard(lab, b, a), "both to hear each other")
    with lab.cut(*link):
        assert (pings_heard(lab, a, b), pings_heard(lab, b, a)) == (0, 0)
    until(lambda: pings_heard(lab, a, b) and pings_heard(lab, b, a), "both to hear each other again")
