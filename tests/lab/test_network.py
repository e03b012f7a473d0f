"""The lab's network alone, with rules put in by hand: what the manager's rules can count on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rostrum.lab.lab import Lab
from rostrum.lab.namespace import LabError

from tests.lab.objects import until
from tests.lab.plain import OTHER_PORT, deliver, deliver_through_full_port, drops, heard, listen, overload, slower

pytestmark = pytest.mark.lab

GROUP = "239.192.7.7"


@pytest.fixture(scope="module")
def lab():
    with Lab.start("hybrid-4x2", name="t-network", parts=()) as lab:
        for name, switch in lab.topology.switches.items():
            flows = []
            for server in lab.topology.servers.values():
                if name == "core":
                    port = next(port for port, far in switch.neighbours.items() if far.node == server.tor)
                else:
                    port = server.tor_port if server.tor == name else 49
                flows.append(f"priority=100,ip,nw_dst={server.address},actions=output:{port}")
                flows.append(f"priority=100,arp,arp_tpa={server.address},actions=output:{port}")
            ofctl(lab, "add-flows", name, "-", input="\n".join(flows) + "\n")
        yield lab


def ofctl(lab: Lab, *arguments: str, input: str | None = None) -> None:
    done = subprocess.run(
        lab.argv("manager", ["ovs-ofctl", "-O", "OpenFlow13", *arguments]), input=input, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr


def test_servers_reach_each_other_with_full_frames(lab: Lab) -> None:
    for other in ("10.0.1.2", "10.0.2.1", "10.0.4.2"):
        lab.execute("h1", ["ping", "-c", "2", "-i", "0.01", "-W", "2", "-M", "do", "-s", "8972", other])


def test_frames_beyond_the_mtu_are_refused(lab: Lab) -> None:
    with pytest.raises(LabError, match="message too long"):
        lab.execute("h1", ["ping", "-c", "1", "-W", "1", "-M", "do", "-s", "8973", "10.0.2.1"])


def test_management_network_is_apart(lab: Lab) -> None:
    lab.execute("h1", ["ping", "-c", "1", "-W", "2", "10.255.0.1"])
    lab.execute("h5", ["ping", "-c", "1", "-W", "2", "10.255.0.2"])
    lab.execute("manager", ["ping", "-c", "1", "-W", "2", "10.255.4.2"])
    with pytest.raises(LabError, match="exit"):
        lab.execute("manager", ["ping", "-c", "1", "-W", "1", "10.0.1.1"])


def test_tcp_crosses_the_core(lab: Lab) -> None:
    """Offloads that a user-space switch cannot serve are off: a stream of real segments arrives."""
    listen = (
        "import socket; s = socket.create_server(('10.0.3.1', 5001)); print('up', flush=True)\n"
        "c, _ = s.accept(); n = 0\n"
        "while data := c.recv(1 << 20): n += len(data)\n"
        "print(n)"
    )
    with lab.popen("h5", [sys.executable, "-c", listen], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline() == "up\n"
        send = "import socket; socket.create_connection(('10.0.3.1', 5001)).sendall(bytes(20_000_000))"
        lab.execute("h1", [sys.executable, "-c", send])
        assert server.stdout.readline() == "20000000\n"


def test_multicast_over_the_core_by_group_tables(lab: Lab) -> None:
    receivers = ["h3", "h4", "h5", "h7"]
    ofctl(lab, "add-group", "core", "group_id=7,type=all,bucket=output:2,bucket=output:3,bucket=output:4")
    ofctl(
        lab, "add-flow", "tor1", f"priority=40000,in_port=1,ip,nw_dst={GROUP},actions=set_field:46->ip_dscp,output:49"
    )
    ofctl(lab, "add-flow", "core", f"priority=40000,in_port=1,ip,nw_dst={GROUP},actions=group:7")
    for tor, buckets in (
        ("tor2", "bucket=output:1,bucket=output:2"),
        ("tor3", "bucket=output:1"),
        ("tor4", "bucket=output:1"),
    ):
        ofctl(lab, "add-group", tor, f"group_id=7,type=all,{buckets}")
        ofctl(lab, "add-flow", tor, f"priority=40000,in_port=49,ip,nw_dst={GROUP},actions=group:7")
    got = deliver(lab, "h1", receivers, GROUP, count=500, size=8944, interval_s=0.0005)
    assert {name: row["distinct"] for name, row in got.items()} == dict.fromkeys(receivers, 500)
    assert all(row["tos"] == [46 << 2] and row["received"] == 500 for row in got.values())


def test_priority_traffic_is_not_lost_to_congestion(lab: Lab) -> None:
    """Two senders offer a port more than it carries: what is marked DSCP 46 arrives whole (Republic, III-A2)."""
    group = "239.192.7.8"
    for tor, port, action in (
        ("tor1", 1, "set_field:46->ip_dscp,output:49"),
        ("core", 1, "output:2"),
        ("tor2", 49, "output:1"),
    ):
        ofctl(lab, "add-flow", tor, f"priority=40000,in_port={port},ip,nw_dst={group},actions={action}")
    through = listen(lab, "h3", "10.0.2.1", 1000, OTHER_PORT)
    with slower(lab, "tor2-p1", "300mbit"), overload(lab, ["h4", "h8"], "h3"):
        # No waiting for a queue to build up: the whole run, its beginning too, must be without loss.
        deliver_through_full_port(lab, "h1", ["h3"], group, "tor2-p1", count=2000, interval_s=0.0005)
        assert heard(through)["received"] >= 1000  # and the others get what is left
    assert drops(lab, "tor2-p1")["10:"] == 0


def test_control_passes_a_port_that_multicast_fills(lab: Lab) -> None:
    """A server's port is offered more of DSCP 46 than it carries, and repairs, which are unicast without a mark: what
    agents mark as control (DSCP 48) arrives all the same. And a flood of control leaves multicast its port.
    """
    port, before = "tor2-p1", drops(lab, "tor2-p1")
    with slower(lab, port, "300mbit"), overload(lab, ["h4", "h8"], "h3", dscp=46), overload(lab, ["h7"], "h3"):
        until(lambda: drops(lab, port)["20:"] > before["20:"], "the port is full")
        control = deliver(lab, "h1", ["h3"], "10.0.2.1", count=1000, size=200, interval_s=0.001, dscp=48)
    assert control["h3"]["distinct"] == 1000
    before = drops(lab, port)
    with overload(lab, ["h4"], "h3", dscp=48):
        until(lambda: drops(lab, port)["5:"] > before["5:"], "control has more than its share")
        got = deliver(lab, "h1", ["h3"], "10.0.2.1", count=2000, dscp=46)
    assert got["h3"]["distinct"] == 2000


def test_nothing_is_forwarded_without_a_rule(lab: Lab) -> None:
    got = deliver(lab, "h1", ["h2"], "239.192.9.9", count=20, size=100, interval_s=0.001)
    assert got["h2"]["received"] == 0


def test_unknown_server_is_named(lab: Lab) -> None:
    with pytest.raises(LabError, match=r"no server h99 in hybrid-4x2; there are h1"):
        lab.execute("h99", ["true"])


def test_same_name_twice_is_refused(lab: Lab) -> None:
    with pytest.raises(LabError, match=r"lab t-network is running; stop it"):
        Lab.start("hybrid-4x2", name="t-network", parts=())


def test_another_process_can_attach(lab: Lab) -> None:
    script = "from rostrum.lab.lab import Lab; print(Lab.attach('t-network').execute('h3', ['hostname', '-I']))"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "10.0.2.1" in shown and "10.255.2.1" in shown


def test_topology_that_cannot_be_built_is_refused(tmp_path: Path) -> None:
    text = Path("topologies/hybrid-4x2.yaml").read_text().replace("h1", "a-rather-long-name")
    file = tmp_path / "long.yaml"
    file.write_text(text)
    with pytest.raises(LabError, match="interface a-rather-long-name-eth0 is longer than 15 letters"):
        Lab.start(file, name="t-long", parts=())


def test_a_veth_core_has_rates() -> None:
    with Lab.start("hybrid-4x2", name="t-veth", parts=(), core_links="veth") as lab:
        shown = lab.execute("manager", ["tc", "class", "show", "dev", "core-p1"])
        assert "ceil 1Gbit" in shown
