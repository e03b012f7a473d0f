"""A plain LAN without a manager: `rostrum lab run lan`, small; garbage at the door; the doctor's text."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest
from rostrum.client import Agent
from rostrum.lab.experiments import lan as experiment
from rostrum.lab.namespace import PrivateNamespace
from rostrum.lab.processes import agent_program

pytestmark = pytest.mark.lab
SIZE = 4 << 20
GARBAGE = """
import random, socket, sys
seed, target = int(sys.argv[1]), sys.argv[2]
randomly, link = random.Random(seed), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.bind((sys.argv[3], 0))
link.settimeout(0.3)
head = bytes.fromhex("52534c4e01")
asked = answered = 0
for number in range(3000):
    body = head + bytes([randomly.randrange(12)]) + randomly.randbytes(46) + bytes(140)
    body = body[: randomly.choice([5, 100, 191, 192, 192, 192])]
    link.sendto(body, (target, 7072))
    asked += len(body)
try:
    while True:
        answered += len(link.recv(65536))
except TimeoutError:
    pass
print(asked, answered)
"""


def test_lan__multicast_relays_and_some_of_both() -> None:
    """What the sender decides is tested: a machine that does other work drops packets, which it repairs, as many as the
    clock has it.
    """
    summary = experiment.run(SIZE, 3, 1500, 1, tools=False)["summary"]
    assert summary["relay_over_unicast"] is True
    assert summary["multicast_reached_partly"] == 1
    for way in ("relay", "partly"):
        assert 1 <= summary[f"{way}_first_packets"] <= 1.2, summary  # one to each would be two or three
        assert summary[f"{way}_repaired_share"] < 0.5, summary  # nor do repairs carry it to those who are not reached


def test_lan__garbage_is_no_amplifier_and_the_doctor_says_what_hinders() -> None:
    seed = int(os.environ.get("LAN_SEED", "5"))
    print(f"LAN_SEED={seed}")
    with tempfile.TemporaryDirectory(prefix="rostrum-lan-test-", dir=experiment.MEMORY) as name:
        folder = Path(name)
        folder.chmod(0o755)
        file = folder / "file.bin"
        file.write_bytes(os.urandom(SIZE))
        file.chmod(0o644)
        with PrivateNamespace(switches=False) as namespace:
            lan = experiment.Lan(namespace, folder, 2, 1500)
            lan.multicast(range(2, 3), through=False)

            def receive(number: int) -> list[str]:
                return [*experiment.rostrum_command(), "receive", lan.place(number, "in"), "--count", "1"]

            with experiment.receiving(lan, receive, "waiting") as running:
                output = namespace.run(
                    [
                        "ip",
                        "netns",
                        "exec",
                        "h0",
                        sys.executable,
                        "-c",
                        GARBAGE,
                        str(seed),
                        lan.address(1),
                        lan.address(0),
                    ]
                ).stdout
                asked, answered = map(int, output.split())
                assert asked > 0 and answered <= asked
                assert all(one.poll() is None for one in running)
                to = ",".join([lan.address(1), lan.address(2), "10.0.0.77"])
                doctor = lan.start(0, [*experiment.rostrum_command(), "doctor", "--lan", "--to", to, "--json"])
                doctor.wait(60)
                said = lan.log(0)
                report = json.loads(said[said.index("{\n") :])
                assert doctor.returncode == 1 and not report["ok"]
                level = {one["subject"]: one["level"] for one in report["findings"]}
                assert level["10.0.0.77"] == "problem", report
                assert [one for one in report["findings"] if "multicast gets there" in one["text"]], report
                assert [one for one in report["findings"] if "from server to server" in one["text"]], report
                # what the doctor sent is no file; the next one is
                sender = lan.start(0, [*experiment.rostrum_command(), "send", str(file), "--wait-for", "2"])
                for one in [sender, *running]:
                    one.wait(60)
                assert sender.returncode == 0, lan.log(0)
                assert (Path(lan.place(1, "in")) / "file.bin").read_bytes() == file.read_bytes()


PLAIN = """
rostrum: 1
name: plain
network: {data: 10.0.0.0/24, management: 10.0.0.0/24, multicast: 239.192.0.0/16, mtu: 1500}
manager: {address: 10.0.0.1, openflow_port: 6653, thrift_port: 9090, rest_port: 8080}
agent: {control_port: 7071, data_port: 7070}
switches:
  lan: {role: tor, southbound: none}
servers:
  h0: {address: 10.0.0.1, management: 10.0.0.1}
  h1: {address: 10.0.0.2, management: 10.0.0.2}
  h2: {address: 10.0.0.3, management: 10.0.0.3}
links:
  - {a: h0, b: "lan:1", rate: 1G}
  - {a: h1, b: "lan:2", rate: 1G}
  - {a: h2, b: "lan:3", rate: 1G}
"""


def test_plain_fabric__a_manager_over_switches_that_nobody_drives() -> None:
    """`southbound: none`, one subnet for data and management, the manager on a server: objects and message groups. The
    switch snoops IGMP, is a querier, and floods no multicast."""
    with tempfile.TemporaryDirectory(prefix="rostrum-lan-test-", dir=experiment.MEMORY) as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "plain.yaml").write_text(PLAIN)
        (folder / "file.bin").write_bytes(os.urandom(SIZE))
        with PrivateNamespace(switches=False) as namespace:
            lan = experiment.Lan(namespace, folder, 2, 1500)
            lan.multicast(range(3), through=False)
            for options in (["mcast_query_response_interval", "20"], ["mcast_snooping", "1", "mcast_querier", "1"]):
                namespace.run(["ip", "link", "set", "br0", "type", "bridge", *options])
            agent = [str(agent_program()), "--interface", "eth0", "--manager", "10.0.0.1:9090"]
            manager = [sys.executable, "-m", "rostrum.controller", "--topology", str(folder / "plain.yaml")]
            running = [lan.start(0, [*manager, "--run", lan.place(0, "run"), "--rest-open"])]
            for number, host in enumerate(lan.hosts):
                Path(lan.place(number, "objects")).mkdir(mode=0o710)
                os.chown(lan.place(number, "objects"), experiment.USER, experiment.USER)
                own = ["--server", host, "--address", lan.address(number), "--socket", lan.place(number, "agent.sock")]
                running.append(lan.start(number, [*agent, *own, "--store", lan.place(number, "objects")]))
            sockets = [Path(lan.place(number, "agent.sock")) for number in range(3)]
            try:
                experiment.until(lambda: all(path.exists() for path in sockets), 20, "the agents' start")
                agents = [Agent(path) for path in sockets]
                result = agents[0].send("file", ["h1", "h2"], source=folder / "file.bin").wait(60)
                assert result.ok, (result, lan.log(0)[-2000:])
                assert result.path == "packet" and result.packets_patched == 0
                data = agents[1].read("file")
                assert data.bytes() == (folder / "file.bin").read_bytes()
                data.close()
                group, publisher = agents[2].join("news"), agents[0].publisher("news")
                publisher.publish(b"all is well")
                assert group.next(20).data == b"all is well"
                group.close()
                publisher.close()
                for one in agents:
                    one.close()
            finally:
                print("".join(lan.log(number)[-1500:] for number in range(3)))  # of a test that failed
                for process in running:
                    process.kill()
                    process.wait()


def test_relay_that_dies__is_gone_around_and_the_others_have_the_file() -> None:
    """Multicast reaches nobody: the sender sends to the first receiver, which hands on to the next. It is killed while
    it does."""
    with tempfile.TemporaryDirectory(prefix="rostrum-lan-test-", dir=experiment.MEMORY) as name:
        folder = Path(name)
        folder.chmod(0o755)
        file = folder / "file.bin"
        file.write_bytes(os.urandom(8 * SIZE))
        file.chmod(0o644)
        with PrivateNamespace(switches=False) as namespace:
            lan = experiment.Lan(namespace, folder, 3, 1500)
            lan.multicast(range(4), through=False)
            slow = ["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "100mbit", "burst", "64k", "latency", "50ms"]
            namespace.run(["ip", "netns", "exec", "h0", "tc", *slow])

            def receive(number: int) -> list[str]:
                return [*experiment.rostrum_command(), "receive", lan.place(number, "in"), "--count", "1"]

            def handed_on(number: int) -> int:
                return int(namespace.run(["cat", f"/sys/class/net/port{number}/statistics/rx_bytes"]).stdout)

            with experiment.receiving(lan, receive, "waiting") as running:
                sender = lan.start(0, [*experiment.rostrum_command(), "send", str(file), "--wait-for", "3"])
                relays: list[int] = []

                def hands_on() -> bool:
                    relays[:] = [number for number in lan.receivers if handed_on(number) > SIZE]
                    return bool(relays)

                experiment.until(hands_on, 60, "a receiver that hands on")
                assert sender.poll() is None, lan.log(0)
                dead = relays[0]
                namespace.run(["ip", "link", "set", f"port{dead}", "down"])
                sender.wait(90)
                assert sender.returncode != 0  # one has not got it
                for number in lan.receivers:
                    if number != dead:
                        running[number - 1].wait(60)
                        assert running[number - 1].returncode == 0, lan.log(number)
                        assert (Path(lan.place(number, "in")) / "file.bin").read_bytes() == file.read_bytes()
