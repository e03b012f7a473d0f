"""Whole agents with back end netmap, where its kernel module is loaded; elsewhere these are skipped and say so.

Objects arrive beside the host's other traffic on the same NIC (pings, TCP, broadcasts, ARP, IPv6), and an agent that
ends, also by a kill, leaves the kernel its NIC. What the other traffic lost and waited is printed: `pytest -rP`.

The hosts are on virtual interfaces (netmap's emulated mode). Real NICs of one switch may take their place, the first
for the manager and one more for each of three servers; they are moved into namespaces and come back::

    ROSTRUM_NETMAP_NICS=eth1,eth2,eth3,eth4 pytest -rP tests/agent_e2e/test_rostrumd_netmap.py
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.agent_e2e.agents import WAIT_S, Agent, World, content, counter, wait_until, with_metrics, world
from tests.agent_e2e.network import Host, Namespace, Network, network

ALL = ["h2", "h3"]
NICS = [name for name in os.environ.get("ROSTRUM_NETMAP_NICS", "").split(",") if name]
NO_OFFLOADS = ("tx", "off", "tso", "off", "gso", "off", "gro", "off")
PINGS = 100
TICK = b"tick"

pytestmark = [
    pytest.mark.skipif(not Path("/dev/netmap").exists(), reason="no /dev/netmap: load the module (docs/netmap.md)"),
    pytest.mark.skipif(not shutil.which("ethtool") or not shutil.which("ping"), reason="ethtool and ping are needed"),
]


def take_nic(namespace: Namespace, nic: str, address: str) -> None:
    """A NIC of the machine becomes eth0 of a namespace."""
    subprocess.run(["ip", "link", "set", nic, "netns", str(namespace.holder.pid)], check=True, timeout=20)
    namespace.ip("link", "set", nic, "name", "eth0")
    namespace.ip("address", "add", f"{address}/24", "dev", "eth0")
    namespace.ip("link", "set", "eth0", "up")
    namespace.ip("route", "add", "224.0.0.0/4", "dev", "eth0")


def give_back(namespace: Namespace, nic: str) -> None:
    """Under its old name, at once: the end of a namespace gives its NICs back some time later."""
    with contextlib.suppress(AssertionError):  # it never came here
        namespace.ip("link", "set", "eth0", "down")
        namespace.ip("link", "set", "eth0", "name", nic)
        namespace.ip("link", "set", nic, "netns", str(os.getpid()))


@contextlib.contextmanager
def real_network() -> Iterator[Network]:
    """As `network`, on NICs of this machine."""
    net = Network.__new__(Network)
    net.middle, net.hosts = Namespace(), {}
    try:
        for number in range(1, 4):
            net.hosts[f"h{number}"] = Host(f"h{number}", f"10.77.0.{number}", Namespace())
        take_nic(net.middle, NICS[0], Network.MANAGER)
        for host, nic in zip(net.hosts.values(), NICS[1:], strict=True):
            take_nic(host.namespace, nic, host.address)
        yield net
    finally:
        for namespace, nic in zip([net.middle, *(host.namespace for host in net.hosts.values())], NICS, strict=False):
            give_back(namespace, nic)
        net.close()


@pytest.fixture
def lab() -> Iterator[World]:
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(real_network() if NICS else network(3, 1500))
        if not NICS:
            for number in range(1, 4):
                net.middle.run("ethtool", "-K", f"port{number}", *NO_OFFLOADS)
        for host in net.hosts.values():
            host.namespace.run("ethtool", "-K", "eth0", *NO_OFFLOADS)
        yield stack.enter_context(world(net))


def start(lab: World, name: str, *options: str) -> None:
    """Starts an agent with netmap, which works here."""
    agent = lab.start(name, "--io", "netmap", *options)
    refused = [line for line in agent.log if "netmap does not work here" in line]
    assert not refused, refused[0]


def transfer(lab: World, data_id: int, size: int) -> list[int]:
    """An object to both; how many fragments were patched at each."""
    data = content(size, data_id)
    with lab.app("h1") as sender:
        sender.add(data_id, data)
        result = sender.send(data_id, ALL)
    assert result.ok, result
    assert [receiver.digest_ok for receiver in result.receivers] == [True] * 2
    for name in ALL:
        with lab.app(name) as app:
            assert app.read(data_id) == data
    return [receiver.patched_fragments for receiver in result.receivers]


def reaches(lab: World, name: str) -> bool:
    """The kernel of a host speaks to its neighbours by its NIC, from ARP on."""
    host = lab.net.hosts[name]
    host.namespace.ip("neighbour", "flush", "dev", "eth0")
    command = [*host.namespace.prefix(), "ping", "-c", "1", "-W", "1", Network.MANAGER]
    return subprocess.run(command, capture_output=True, timeout=WAIT_S, check=False).returncode == 0


# ------------------------------------------------------------------------------------------------ what else there is


@dataclass
class Pings:
    """A series of echo requests from one host to another."""

    sent: int
    answered: int
    rtt_ms: tuple[float, float]
    """Mean and most."""


class Pinging:
    """Pings that run until they are all answered or given up."""

    def __init__(self, host: Host, target: str, count: int = PINGS) -> None:
        command = ["ping", "-q", "-n", "-i", "0.02", "-c", str(count), "-W", "5", target]
        self.process = subprocess.Popen([*host.namespace.prefix(), *command], stdout=subprocess.PIPE, text=True)

    def end(self) -> Pings:
        try:
            said, _ = self.process.communicate(timeout=WAIT_S)
        finally:
            self.process.kill()
        counts = re.search(r"(\d+) packets transmitted, (\d+) received", said)
        times = re.search(r"= [\d.]+/([\d.]+)/([\d.]+)/", said)
        assert counts, said
        return Pings(
            int(counts[1]), int(counts[2]), (float(times[1]), float(times[2])) if times else (float("nan"),) * 2
        )


@dataclass
class Echo:
    """A TCP connection to a host that answers, and what went through it."""

    rounds: int = 0
    failed: str = ""
    ready: threading.Event = field(default_factory=threading.Event)
    port: int = 0


def answer(host: Host, echo: Echo, ended: threading.Event) -> None:
    """Gives back what one connection brings."""
    host.namespace.enter_thread()
    with socket.create_server((host.address, 0)) as server:
        server.settimeout(WAIT_S)
        echo.port = server.getsockname()[1]
        echo.ready.set()
        one, _ = server.accept()
        with one:
            one.settimeout(WAIT_S)
            while not ended.is_set() and (data := one.recv(65536)):
                one.sendall(data)


def converse(host: Host, target: Host, echo: Echo, ended: threading.Event) -> None:
    """16 kB there and back, again and again."""
    host.namespace.enter_thread()
    sent = content(16384, 5)
    with socket.create_connection((target.address, echo.port), WAIT_S) as one:
        while not ended.is_set():
            one.sendall(sent)
            got = b""
            while len(got) < len(sent):
                part = one.recv(65536)
                if not part:
                    echo.failed = "the connection was closed"
                    return
                got += part
            if got != sent:
                echo.failed = "other bytes came back"
                return
            echo.rounds += 1


def broadcast(net: Network, ended: threading.Event, sent: list[int]) -> None:
    """What a DHCP server would: datagrams to everybody, fifty a second."""
    net.middle.enter_thread()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"br0" if not NICS else b"eth0")
        while not ended.wait(0.02):
            one.sendto(TICK * 75, ("255.255.255.255", 6868))
            sent[0] += 1


def hear(host: Host, ready: threading.Event, ended: threading.Event, heard: list[int]) -> None:
    host.namespace.enter_thread()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("", 6868))
        one.settimeout(0.5)
        ready.set()
        while True:
            try:
                heard[0] += one.recv(2048) == TICK * 75
            except TimeoutError:
                if ended.is_set():
                    return


@contextlib.contextmanager
def others(lab: World) -> Iterator[dict[str, object]]:
    """Everything but objects, beside what the block does; filled in at its end."""
    found: dict[str, object] = {}
    hosts, ended, heard, sent, ready = lab.net.hosts, threading.Event(), [0], [0], threading.Event()
    stop_sending = threading.Event()
    echo = Echo()
    threads = [
        threading.Thread(target=hear, args=(hosts["h2"], ready, ended, heard), daemon=True),
        threading.Thread(target=answer, args=(hosts["h1"], echo, ended), daemon=True),
    ]
    for thread in threads:
        thread.start()
    assert ready.wait(WAIT_S) and echo.ready.wait(WAIT_S)
    more = [
        threading.Thread(target=broadcast, args=(lab.net, stop_sending, sent), daemon=True),
        threading.Thread(target=converse, args=(hosts["h2"], hosts["h1"], echo, stop_sending), daemon=True),
    ]
    for thread in more:
        thread.start()
    six = link_local(hosts["h2"])
    pings = {
        "sender's": Pinging(hosts["h1"], Network.MANAGER),
        "receiver's": Pinging(hosts["h2"], Network.MANAGER),
        "IPv6": Pinging(hosts["h3"], f"{six}%eth0"),
    }
    try:
        yield found
        found.update({name: pinging.end() for name, pinging in pings.items()})
    finally:
        for pinging in pings.values():
            pinging.process.kill()
        stop_sending.set()
        for thread in more:
            thread.join(WAIT_S)
        ended.set()
        for thread in threads:
            thread.join(WAIT_S)
    found["broadcasts"] = (sent[0], heard[0])
    found["TCP rounds"] = echo.rounds
    assert not echo.failed, echo.failed


def link_local(host: Host) -> str:
    """Its IPv6 address, once nobody else has it."""

    def ready() -> str | None:
        said = host.namespace.run("ip", "-6", "-o", "address", "show", "dev", "eth0", "scope", "link")
        found = re.search(r"inet6 ([0-9a-f:]+)/", said)
        return found[1] if found and "tentative" not in said else None

    return str(wait_until(ready, "IPv6 address"))


# ------------------------------------------------------------------------------------------------------------- tests


@pytest.mark.parametrize("loss", [None, "uniform:0.01:seed=7"])
def test_object_arrives(lab: World, loss: str | None) -> None:
    start(lab, "h1")
    for name in ALL:
        start(lab, name, *(["--loss", loss] if loss else []))
    patched = transfer(lab, 1, 4_000_001)
    assert loss is None or all(patched)


@pytest.mark.parametrize("others_io", ["udp", "packet"])
def test_it_understands_other_back_ends(lab: World, others_io: str) -> None:
    start(lab, "h1")
    start(lab, "h2")
    lab.start("h3", "--io", others_io)
    transfer(lab, 2, 2_000_001)


def test_the_hosts_other_traffic_goes_on_beside_objects(lab: World) -> None:
    for name in lab.net.hosts:
        start(lab, name, *with_metrics(lab, name))
    for what, sizes in (("nothing else", []), ("objects", [16_000_001, 16_000_003])):
        with others(lab) as found:
            for number, size in enumerate(sizes):
                transfer(lab, 10 + number, size)
        lost = {name: counter(lab, name, "nic_frames_lost_total") for name in lab.net.hosts}
        print(f"beside {what}: {found}; frames for the kernel that found its ring full: {lost}")
        for name in ("sender's", "receiver's", "IPv6"):
            pings = found[name]
            assert isinstance(pings, Pings)
            assert pings.answered >= pings.sent - 5 - sum(lost.values()), found
        assert found["TCP rounds"], found
    for name in lab.net.hosts:
        assert reaches(lab, name)
        assert counter(lab, name, 'nic_frames_total{direction="from-kernel"}') > 0


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_kernel_has_its_nic_back(lab: World, how: str) -> None:
    for name in lab.net.hosts:
        start(lab, name)
    transfer(lab, 3, 1_000_001)
    for name in ("h1", "h2"):
        agent = lab.agents[name]
        if how == "kill":
            agent.kill()
        else:
            assert agent.stop() == 0
        wait_until(lambda name=name: reaches(lab, name), f"answer to {name} without an agent")
    for name in ("h1", "h2"):
        start(lab, name)
    transfer(lab, 4, 1_000_003)


def test_a_killed_receiver_does_not_hold_the_other(lab: World) -> None:
    for name in lab.net.hosts:
        start(lab, name)
    data = content(24_000_001, 6)
    with lab.app("h1") as sender:
        sender.add(6, data)
        tag = sender.start_send(6, ALL)
        with lab.app("h2") as waiting:
            read = waiting.start_read(6, 60000)
            lab.agents["h3"].kill()
            assert waiting.finish_read(read) == data
        result, _ = sender.finish_send(tag, 2 * WAIT_S)
    assert {one.name: one.digest_ok for one in result.receivers}["h2"], result
    wait_until(lambda: reaches(lab, "h3"), "answer to h3 without an agent")


def test_a_nic_in_use_is_refused(lab: World) -> None:
    start(lab, "h1")
    second = lab.folder / "second"
    second.mkdir()
    agent = Agent(lab.net.hosts["h1"], second, "--io", "netmap", "--control-port", "7073")
    try:
        assert "in use by another netmap program" in agent.wait_log("netmap does not work here")
    finally:
        agent.kill()
        agent._reader.join(WAIT_S)


def test_auto_gives_its_reason(lab: World) -> None:
    agent = lab.start("h1", "--io", "auto")
    line = agent.wait_log("packet I/O: auto")
    print(line)
    assert ("auto chose netmap" in line) if NICS else ("has no driver of netmap" in line), line
