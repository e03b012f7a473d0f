"""Preflight, doctor, ports, cabling, metrics and logs, in a lab with real switches and agents."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
from click.testing import CliRunner
from rostrum.controller.commands import diagnostics
from rostrum.controller.commands.paths import paths
from rostrum.lab.lab import Lab

from tests.lab.metrics import scrape
from tests.lab.objects import check, data_of, send, until

pytestmark = pytest.mark.lab

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "rostrum-agents.json"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    changes = {
        "emulation.reconfiguration.mean_ms": 20,
        "emulation.ringing.duration_ms": 2,
        "ocs.ocs.reconfiguration_ms": 20,
    }
    options = ("--circuit-wait", "1s", "--wait", "5s", "--quarantine", "1s", "--log-format", "json")
    with Lab.start("hybrid-4x2", name="t-care", changes=changes, seed=1, manager_options=options,
                   agent_options=("--log-format", "json")) as lab:  # fmt: skip
        yield lab


def ask(lab: Lab, method: str, path: str, **more: Any) -> Any:
    transport = httpx.HTTPTransport(uds=str(lab.run / "manager.sock"))
    with httpx.Client(transport=transport, base_url="http://manager", timeout=30) as http:
        answer = http.request(method, path, **more)
        assert answer.status_code < 300, answer.text
        return answer.json()


def fly(lab: Lab, sender: str, *receivers: str, **more: Any) -> Any:
    return ask(lab, "POST", "/v1/preflight", json={"sender": sender, "receivers": list(receivers), **more})


def findings(lab: Lab) -> list[tuple[str, str]]:
    return [(one["check"], one["subject"]) for one in ask(lab, "GET", "/v1/doctor")["findings"]]


def healthy(lab: Lab) -> bool:
    return bool(ask(lab, "GET", "/v1/doctor")["healthy"])


def vsctl(lab: Lab, *fields: str) -> str:
    return lab.execute("manager", ["ovs-vsctl", *fields])


def ofctl(lab: Lab, *fields: str) -> str:
    return lab.execute("manager", ["ovs-ofctl", "-O", "OpenFlow13", *fields])


def links(lab: Lab) -> dict[tuple[str, int], Any]:
    return {(one["switch"], one["port"]): one for one in ask(lab, "GET", "/v1/links")["links"]}


def test_preflight__real_probes_get_through_on_a_circuit_and_on_packets(lab: Lab) -> None:
    for kind in ("circuit", "packet"):
        found = fly(lab, "h1", "h3", "h5", "h2", kind=kind)
        assert found["works"], found
        assert found["kind"] == kind
        assert all(one["multicast"] and one["full_sized"] and one["reachable"] for one in found["receivers"])
    assert [one["margin_db"] is None for one in fly(lab, "h1", "h3", kind="circuit")["receivers"]] == [False]


def test_preflight__names_a_filter_an_mtu_and_a_dead_agent(lab: Lab) -> None:
    group = "udp,nw_dst=239.192.0.0/16"
    ofctl(lab, "add-flow", "tor2", f"priority=65000,{group},actions=drop")
    try:
        by = {one["receiver"]: one for one in fly(lab, "h1", "h3", "h5", kind="packet")["receivers"]}
        assert by["h5"]["works"] and not by["h3"]["works"] and by["h3"]["reachable"]
        assert by["h3"]["findings"][0]["check"] == "group" and "filtered" in by["h3"]["findings"][0]["mend"]
    finally:
        ofctl(lab, "--strict", "del-flows", "tor2", f"priority=65000,{group}")
    lab.execute("h5", ["ip", "link", "set", "h5-eth0", "mtu", "1500"])
    try:
        by = {one["receiver"]: one for one in fly(lab, "h1", "h3", "h5")["receivers"]}
        assert by["h3"]["works"] and not by["h5"]["works"]
        assert by["h5"]["findings"][0]["what"].startswith("the data NIC of h5 has an MTU of 1500")
        assert ("mtu", "h5") in findings(lab)
    finally:
        lab.execute("h5", ["ip", "link", "set", "h5-eth0", "mtu", "9000"])
    lab.kill("h7")
    try:
        until(lambda: ("agent", "h7") in findings(lab), "doctor to miss the agent of h7")
        by = {one["receiver"]: one for one in fly(lab, "h1", "h3", "h7", kind="packet")["receivers"]}
        assert by["h3"]["works"] and by["h7"]["findings"][0]["check"] == "agent"
    finally:
        lab.start_program("h7")
        until(lambda: healthy(lab), "the lab to be healthy again", 20)


def test_discovery__sees_the_cabling_and_names_two_fibres_that_were_swapped(lab: Lab) -> None:
    until(
        lambda: not [one for one in links(lab).values() if one["state"] == "not looked at"],
        "every port to be heard",
        30,
    )
    states = {one["state"] for key, one in links(lab).items() if not one["expected"].startswith("ocs:")}
    assert states == {"as expected"}
    swap(lab)
    try:
        path = ask(lab, "POST", "/v1/paths", json={"sender": "h1", "receivers": ["h3"], "kind": "circuit"})
        try:
            ask(lab, "GET", f"/v1/paths/{path['id']}", params={"wait": "active"})
            until(lambda: ("cabling", "tor3 port 50") in findings(lab), "the swap to be named", 30)
            text = links(lab)["tor3", 50]["text"]
            assert text == "tor3 port 50 expected ocs:3, sees ocs:2"
        finally:
            ask(lab, "DELETE", f"/v1/paths/{path['id']}")
    finally:
        swap(lab)
    until(lambda: not [one for one in findings(lab) if one[0] in ("port", "switch")], "ports to be back", 20)


def swap(lab: Lab) -> None:
    """The OCS fibres of tor2 and tor3 change places."""
    of = {bridge: port(lab, bridge, 50) for bridge in ("tor2", "tor3")}
    vsctl(lab, "del-port", "tor2", of["tor2"], "--", "del-port", "tor3", of["tor3"])
    for bridge, name in (("tor2", of["tor3"]), ("tor3", of["tor2"])):
        vsctl(lab, "add-port", bridge, name, "--", "set", "interface", name, "ofport_request=50")


def port(lab: Lab, bridge: str, number: int) -> str:
    """The interface that is this port."""
    for name in vsctl(lab, "list-ports", bridge).split():
        if int(vsctl(lab, "get", "interface", name, "ofport")) == number:
            return name
    raise AssertionError(f"{bridge} has no port {number}")


def test_port_down__the_path_moves_with_its_cause_and_comes_to_no_harm(lab: Lab) -> None:
    path = ask(lab, "POST", "/v1/paths", json={"sender": "h1", "receivers": ["h3", "h5"], "kind": "auto"})
    active = ask(lab, "GET", f"/v1/paths/{path['id']}", params={"wait": "active"})
    assert active["kind"] == "circuit"
    ofctl(lab, "mod-port", "tor2", "50", "down")
    try:
        until(lambda: ask(lab, "GET", f"/v1/paths/{path['id']}")["kind"] == "packet", "the path to move")
        moved = ask(lab, "GET", f"/v1/paths/{path['id']}", params={"wait": "active"})
        assert moved["reason"] == "tor2 port 50 (to ocs:2) is down"
        assert ("port", "tor2 port 50") in findings(lab)
        data = data_of(300_000, 7)
        check(lab, send(lab, "h1", ["h3", "h5"], data), ["h3", "h5"], data)
    finally:
        ofctl(lab, "mod-port", "tor2", "50", "up")
        ask(lab, "DELETE", f"/v1/paths/{path['id']}")
    until(lambda: ("port", "tor2 port 50") not in findings(lab), "the port to be up")


def test_doctor__finds_rules_that_are_missing_or_foreign_and_a_switch_that_is_gone(lab: Lab) -> None:
    until(lambda: healthy(lab), "the lab to be healthy", 30)
    path = ask(lab, "POST", "/v1/paths", json={"sender": "h1", "receivers": ["h3", "h5"], "kind": "packet"})
    active = ask(lab, "GET", f"/v1/paths/{path['id']}", params={"wait": "active"})
    ofctl(lab, "del-flows", "tor3", f"ip,nw_dst={active['group']}")
    until(lambda: ("rules", "tor3") in findings(lab), "the missing rule to be found")
    controller = vsctl(lab, "get-controller", "tor3").strip()
    vsctl(lab, "del-controller", "tor3")
    until(lambda: ("switch", "tor3") in findings(lab), "the switch to be missed")
    vsctl(lab, "set-controller", "tor3", controller)
    until(lambda: healthy(lab), "the switch to be back, its rules set again", 30)
    assert ask(lab, "GET", f"/v1/paths/{path['id']}")["state"] == "active"
    ask(lab, "DELETE", f"/v1/paths/{path['id']}")


def test_log__one_request_is_found_from_the_agent_to_the_switches(lab: Lab) -> None:
    assert send(lab, "h4", ["h6", "h8"], data_of(300_000, 8)).ok
    lines = [json.loads(one) for one in (lab.run / "h4" / "agent.log").read_text().splitlines() if one.startswith("{")]
    asked = [one for one in lines if one["event"] == "send" and one.get("asks_for") == "path"]
    request = asked[-1]["request"]
    manager = [json.loads(one) for one in (lab.run / "manager.log").read_text().splitlines() if one.startswith("{")]
    events = {one["event"] for one in manager if one.get("request") == request}
    assert {"accepted", "rules written"} <= events
    written = next(one for one in manager if one.get("request") == request and one["event"] == "rules written")
    assert written["by"] == "openflow" and "tor2" in written["switches"]


def test_metrics__agents_count_what_they_did(lab: Lab) -> None:
    assert send(lab, "h2", ["h3"], data_of(300_000, 9)).ok
    page = scrape(lab, "h2")
    assert page["rostrum_agent_sends_total", 'outcome="done"'] >= 1
    assert page["rostrum_agent_data_packets_sent_total", 'kind="all"'] > 0
    assert page["rostrum_agent_manager_up", ""] == 1
    assert len({name for name, _ in page}) >= 30
    asked = set(re.findall(r"rostrum_agent_[a-z_]+", DASHBOARD.read_text()))
    assert asked <= {name for name, _ in page}
    received = scrape(lab, "h3")
    assert received["rostrum_agent_receives_total", 'outcome="done"'] >= 1
    assert received["rostrum_agent_received_bytes_total", ""] >= 300_000


def test_metrics__a_stranger_at_the_socket_does_no_harm(lab: Lab) -> None:
    for garbage in (b"\0" * 100, b"GET " + b"a" * 8000, b"GET /metrics HTTP/1.1\r\nHost: x"):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(lab.run / "h1" / "metrics.sock"))
            stranger.sendall(garbage)
    assert scrape(lab, "h1")["rostrum_agent_manager_up", ""] == 1


def test_commands__say_it_to_people_and_by_their_exit_status(lab: Lab) -> None:
    until(lambda: healthy(lab), "the lab to be healthy", 30)
    where = ["--manager", str(lab.run / "manager.sock")]

    def run(command: click.Command, *fields: str) -> tuple[int, str]:
        done = CliRunner().invoke(command, [*fields, *where])
        return done.exit_code, done.output

    assert run(diagnostics.doctor) == (0, "healthy: nothing was found that has to be mended\n")
    status, fields = run(diagnostics.preflight, "h1", "h3", "h5")
    assert status == 0 and "h3: works: packets of 9000 bytes get through" in fields
    lab.execute("h5", ["ip", "link", "set", "h5-eth0", "mtu", "1500"])
    try:
        status, fields = run(diagnostics.doctor)
        assert status == 2 and "error  h5's h5-eth0 has an MTU of 1500, the topology says 9000" in fields
        assert "ip link set h5-eth0 mtu 9000 on h5" in fields
        status, fields = run(diagnostics.doctor, "--json")
        assert status == 2 and json.loads(fields)["findings"][0]["check"] == "mtu"
        status, fields = run(diagnostics.preflight, "h1", "h3", "h5")
        assert status == 1 and "h5: does not work" in fields and "h3: works" in fields
    finally:
        lab.execute("h5", ["ip", "link", "set", "h5-eth0", "mtu", "9000"])
    path = ask(lab, "POST", "/v1/paths", json={"sender": "h1", "receivers": ["h3"]})
    status, fields = run(paths, "why", path["id"])
    assert status == 0 and fields.startswith(f"{path['id']} is ")
    ask(lab, "DELETE", f"/v1/paths/{path['id']}")
    assert CliRunner().invoke(diagnostics.doctor, ["--manager", str(lab.run / "nobody.sock")]).exit_code == 3
