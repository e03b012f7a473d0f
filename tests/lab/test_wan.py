"""The emulated wide area, by packets that pass it; the study that runs over it, and sites around it, small."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rostrum.client import Agent
from rostrum.lab.emulator import Emulator, Port
from rostrum.lab.experiments import sites
from rostrum.lab.namespace import LabError, PrivateNamespace
from rostrum.lab.processes import agent_program

pytestmark = pytest.mark.lab

# Two hosts on the emulator; what a burst of numbered datagrams from a came to at b, as one line of JSON.
SCENE = """
import json, socket, struct, subprocess, sys, time
from pathlib import Path
from rostrum.bench.wan.probe import inside, probe
from rostrum.lab.emulator import Emulator, Port

def sh(text):
    subprocess.run(text.split(), check=True)

for number, name in enumerate("ab", 1):
    sh(f"ip netns add {name}")
    sh(f"ip link add p{name} type veth peer name eth0 netns {name}")
    for where in (f"ip netns exec {name} ", ""):  # IPv6 says things of its own, and losses are drawn by the frame
        sh(where + "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
    sh(f"ip link set p{name} up")
    sh(f"ip -n {name} link set eth0 address 02:00:00:00:00:0{number}")
    sh(f"ip -n {name} address add 10.9.0.{number}/24 dev eth0")
    sh(f"ip -n {name} link set eth0 up")
    sh(f"ip netns exec {name} ethtool -K eth0 tx off")
    sh(f"ip -n {name} neighbour replace 10.9.0.{3 - number} lladdr 02:00:00:00:00:0{3 - number} dev eth0 nud permanent")

def burst(count, size, ecn=0, gap=0.0):
    with inside("b"):
        into = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        into.bind(("10.9.0.2", 7000))
    with inside("a"):
        out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    into.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)
    into.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    out.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ecn)
    for number in range(count):
        out.sendto(struct.pack("!I", number).ljust(size, b"x"), ("10.9.0.2", 7000))
        time.sleep(gap)
    came, marked = [], 0
    into.settimeout(1.0)
    try:
        while True:
            data, ancillary, _, _ = into.recvmsg(2048, 64)
            came.append(struct.unpack_from("!I", data)[0])
            marked += any(value[0] & 3 == 3 for _, _, value in ancillary)
    except TimeoutError:
        pass
    into.close(), out.close()
    return {"came": came, "marked": marked}

def scene(first, second, seed, what):
    with Emulator(Path(sys.argv[1]), [Port("pa", **first), Port("pb", **second)], seed=seed) as net:
        return {**what(), "counters": net.counters()}

lossy = {"lost_down": 0.1, "burst": 4}
found = {
    "delay": scene({}, {"delay_ms": 20}, 1, lambda: probe("a", "b", "10.9.0.2", 20, 0, 300, 1)),
    "lost": [scene({}, lossy, seed, lambda: burst(2000, 64, gap=1e-4)) for seed in (3, 3, 4)],
    "narrow": scene({"up_bps": 1e6, "queue": 20000}, {}, 1, lambda: burst(60, 972)),
    "marked": scene({"up_bps": 1e6, "queue": 20000, "mark": 10000}, {}, 1, lambda: burst(15, 972, ecn=2)),
    "unable": scene({"up_bps": 1e6, "queue": 20000, "mark": 10000}, {}, 1, lambda: burst(15, 972, ecn=0)),
}
print("FOUND " + json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("wan")
    with PrivateNamespace(switches=False) as namespace:
        said = namespace.run([sys.executable, "-c", SCENE, str(folder)]).stdout
    return dict(json.loads(said.partition("FOUND ")[2]))


def test_delay__is_exact_to_a_tenth_of_a_millisecond(found: dict[str, Any]) -> None:
    """Of 300 packets the best hundredth: what a busy machine adds to the others is not the emulator's."""
    delay = found["delay"]
    assert delay["came"] == 300 and -20 < delay["p1_us"] < 100, delay


def test_losses__are_the_seeds_and_come_in_bursts(found: dict[str, Any]) -> None:
    first, again, other = ([n for n in range(2000) if n not in set(one["came"])] for one in found["lost"])
    assert first == again != other
    runs = sum(number - 1 not in first for number in first)
    assert 80 < len(first) < 350 and 2 < len(first) / runs < 8, f"seed 3: {len(first)} lost in {runs} bursts"
    assert found["lost"][0]["counters"]["ports"]["pb"]["lost_down"] == len(first)


def test_queue__holds_what_it_may_and_the_rest_is_lost(found: dict[str, Any]) -> None:
    """Of 60 frames of 1,014 bytes at once some 20 wait, and what left in the meantime makes room for a few."""
    narrow = found["narrow"]
    passed, full = len(narrow["came"]), narrow["counters"]["ports"]["pa"]["full_up"]
    assert passed + full == 60 and 19 <= passed < 40 and narrow["came"] == sorted(narrow["came"])


def test_marks__only_of_a_long_queue_and_of_packets_that_allow_them(found: dict[str, Any]) -> None:
    marked = found["marked"]
    assert len(marked["came"]) == 15 and 1 <= marked["marked"] <= 5, marked
    assert marked["counters"]["ports"]["pa"]["marked"] == marked["marked"] and found["unable"]["marked"] == 0


def test_emulator__that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no-such-interface"):
        Emulator(tmp_path, [Port("no-such-interface"), Port("lo")]).start()
    with pytest.raises(LabError, match="2 to 16 ports"):
        Emulator(tmp_path, [Port("lo")])


def test_study__ours_and_tcp_over_a_lossy_area(tmp_path: Path) -> None:
    file = tmp_path / "wan.json"
    fields = ["lab", "run", "wan", "--rtt", "20", "--loss", "1", "--burst", "1", "--tools", "rostrum,tcp-cubic"]
    fields += ["--receivers", "2", "--rate", "50", "--seconds", "2", "--seed", "5", "--json", str(file)]
    program = "from rostrum.client.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program, *fields], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(file.read_text())
    ours = next(row for row in report["runs"] if row["tool"] == "rostrum")
    assert ours["outcome"] == "ok" and ours["share"] > 0 and "20ms/1" in report["summary"]["share"], ours
    assert file.with_suffix(".svg").exists() and report["points"][0]["lost"].startswith("on each receiver's link")


def test_sites__by_manager_and_relays_and_on_when_a_relay_is_killed() -> None:
    """What goes over the wide area is tested, not how fast: other work may run on this machine."""
    seed = 5
    area = sites.Area((10.0, 30.0), 2, 40e6, 0.01)
    report = sites.run(area, 8 << 20, seed)
    plain, killed = report["plain"], report["killed"]
    assert plain["protocol"] == "wan" and "relay s2h1" in plain["reason"], plain
    assert not plain["failed"] and all(1 <= row["copies"] < 2 for row in plain["sites"].values()), plain
    assert set(killed["failed"]) == {"s1h1"} and "relay s1h1 failed" in killed["failed"]["s1h1"], killed
    assert killed["went_on_from"] >= 0.25, killed  # the relay was killed when a third was there


def test_sites__whose_routers_translate_addresses_and_ports() -> None:
    """Nobody reaches a server there: relays connect to the sender, and so does who follows a relay that was killed; the
    last one of its site, too, which has nobody to pass anything on to.
    """
    report = sites.run(sites.Area((10.0, 30.0), 2, 40e6, 0.01, nat=True), 8 << 20, 6)
    plain, killed = report["plain"], report["killed"]
    assert not plain["failed"] and all(1 <= row["copies"] < 2 for row in plain["sites"].values()), plain
    assert set(killed["failed"]) == {"s1h1"} and killed["went_on_from"] >= 0.25, killed


def test_sites__sealed_through_routers_that_translate() -> None:
    """`security: required`: what agents open is sealed for whom it is, whatever address it came from by then."""
    area = sites.Area((10.0, 30.0), 2, 40e6, 0.01, nat=True, secure=True)
    report = sites.run(area, 8 << 20, 7)
    plain, killed = report["plain"], report["killed"]
    assert plain["protocol"] == "wan" and not plain["failed"], plain
    packets = (8 << 20) / (sites.MTU - sites.HEADERS)
    assert all(row["opened"] > packets / 4 for row in plain["sites"].values()), plain
    assert set(killed["failed"]) == {"s1h1"} and killed["went_on_from"] >= 0.25, killed


def test_sites__in_a_chain() -> None:
    """s2 lies behind s1, and s3 behind s2: each link carries the object once, and each relay feeds the next site's."""
    report = sites.run(sites.Area((10.0, 20.0, 30.0), 2, 40e6, 0.01, chain=True), 8 << 20, 8, kill=False)
    plain = report["plain"]
    assert not plain["failed"] and all(1 <= row["copies"] < 2 for row in plain["sites"].values()), plain
    assert "site s1 over the wide area" in plain["reason"] and "site s2" not in plain["reason"], plain["reason"]


def test_sites__in_a_chain_by_the_options_of_the_send() -> None:
    """The real manager tells them to each relay: nothing is there sooner than the rate that was asked for allows."""
    area = sites.Area((10.0, 20.0), 2, 40e6, 0.0, chain=True, options="congestion=fixed:10M,coding=repairs")
    plain = sites.run(area, 4 << 20, 9, kill=False)["plain"]
    assert plain["protocol"] == "wan" and not plain["failed"], plain
    assert all(row["seconds"] >= 0.95 * (4 << 20) * 8 / 10e6 for row in plain["sites"].values()), plain


FAR_APART = """rostrum: 1
name: far-apart
network: {data: 10.9.0.0/24, management: 10.9.0.0/24, multicast: 239.192.0.0/16}
manager: {address: 10.9.0.1, openflow_port: 6653, thrift_port: 9090, rest_port: 8080}
agent: {control_port: 7071, data_port: 7070}
switches: {wide: {role: tor, southbound: none}}
servers:
  a: {address: 10.9.0.1, management: 10.9.0.1}
  b: {address: 10.9.0.2, management: 10.9.0.2}
  c: {address: 10.9.0.3, management: 10.9.0.3}
links:
  - {a: a, b: "wide:1", rate: 1G}
  - {a: b, b: "wide:2", rate: 1G}
  - {a: c, b: "wide:3", rate: 1G}
"""


@contextlib.contextmanager
def far_apart() -> Iterator[tuple[dict[str, Agent], Path]]:
    """Three agents, the first with the manager, and the folder of their logs; the others are 20 ms from it and 40 ms
    from each other.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rostrum-far-", dir=sites.MEMORY)))
        namespace = stack.enter_context(PrivateNamespace(switches=False))
        run = namespace.run
        macs = {name: f"02:00:00:00:00:0{number}" for number, name in enumerate("abc", 1)}
        for number, name in enumerate("abc", 1):
            run(["ip", "netns", "add", name])
            run(["ip", "link", "add", f"p{name}", "type", "veth", "peer", "name", "eth0", "netns", name])
            inside = ["ip", "netns", "exec", name]
            for where in (inside, []):
                run([*where, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"])
            run([*inside, "ip", "link", "set", "eth0", "address", macs[name], "up"])
            run([*inside, "ip", "link", "set", "lo", "up"])
            run([*inside, "ip", "address", "add", f"10.9.0.{number}/24", "dev", "eth0"])
            run([*inside, "ip", "route", "add", "224.0.0.0/4", "dev", "eth0"])
            run([*inside, "ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off"])
            for far, other in enumerate("abc", 1):
                if other != name:
                    run([*inside, "ip", "neighbour", "replace", f"10.9.0.{far}", "lladdr", macs[other], "dev", "eth0",
                         "nud", "permanent"])  # fmt: skip
            run(["ip", "link", "set", f"p{name}", "up"])
        delays = {"a": 0.0, "b": 10.0, "c": 10.0}
        ports = [Port(f"p{name}", delay_ms=delay) for name, delay in delays.items()]
        stack.enter_context(Emulator(folder, ports, 1, enter=namespace.enter))
        (folder / "far.yaml").write_text(FAR_APART)

        def start(name: str, host: str, argv: list[str]) -> None:
            with (folder / f"{name}.log").open("ab") as log:
                process = namespace.popen(["ip", "netns", "exec", host, *argv], stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)

        manager = [sys.executable, "-m", "rostrum.controller", "--topology", str(folder / "far.yaml"), "--rest-open"]
        start("manager", "a", [*manager, "--run", str(folder / "run")])
        agents = {}
        for number, name in enumerate("abc", 1):
            place = folder / name
            (place / "objects").mkdir(parents=True, mode=0o710)
            start(f"agent-{name}", name, [
                str(agent_program()), "--interface", "eth0", "--manager", "10.9.0.1:9090", "--server", name,
                "--address", f"10.9.0.{number}", "--socket", str(place / "sock"), "--store", str(place / "objects"),
                "--nic-rate", "100M", "--log-level", "debug",
            ])  # fmt: skip
        for name in "abc":
            deadline = time.monotonic() + 60
            while name not in agents or not agents[name].status().manager_up:
                log = (folder / f"agent-{name}.log").read_text()
                assert time.monotonic() < deadline, log
                time.sleep(0.02)
                if name not in agents and (folder / name / "sock").exists():
                    agents[name] = stack.enter_context(contextlib.closing(Agent(folder / name / "sock")))
        yield agents, folder


def test_auto__takes_wan_where_round_trips_are_long_and_says_why() -> None:
    """By what the manager's own connections tell; where these say nothing, by what the sender has measured."""
    with far_apart() as (agents, folder):

        def send(name: str, sender: str, *receivers: str) -> tuple[str, str]:
            result = agents[sender].send(name, receivers, source=bytes(200_000)).wait(60)
            assert all(one.state == "done" for one in result.receivers), result
            return result.protocol, result.reason

        protocol, reason = send("first", "a", "b", "c")
        assert protocol == "wan" and "ms away" in reason, reason
        protocol, reason = send("unknown", "b", "c")
        assert protocol == "republic", reason
        protocol, reason = send("known", "b", "c")
        assert protocol == "wan" and "a receiver is 4" in reason, reason
        for name, opened in (("a", "bc"), ("b", "")):  # by wan; its second send has the connection
            log = (folder / f"agent-{name}.log").read_text()
            assert sorted(re.findall(r'goes before its HELLO peer="(\w)"', log)) == list(opened), log
            assert "closed peer" not in log, log
