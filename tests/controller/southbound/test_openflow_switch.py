"""The OpenFlow southbound with real Open vSwitch (user-space datapath) in a private namespace, and with impostors."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import select
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from rostrum.controller.core.model import MulticastRule, RuleCounters, SouthboundError, UnicastRule
from rostrum.controller.keyvalue import Sparing
from rostrum.controller.southbound.openflow import switches as openflow
from rostrum.controller.southbound.openflow import thread
from rostrum.controller.southbound.openflow.switches import OpenFlowFabric
from rostrum.controller.southbound.openflow.thread import OpenFlowThread
from rostrum.lab.namespace import PrivateNamespace
from rostrum.lab.netns import call_in_network
from rostrum.topologies.loader import load
from rostrum.topologies.model import Coexist, Topology

TOPOLOGY = load(Path(__file__).parents[3] / "topologies" / "hybrid-4x2.yaml")
GROUP = IPv4Address("239.192.0.5")
BOUND_S = 60.0
PORTS = (1, 2, 3)
HELLO = bytes([4, 0, 0, 8, 0, 0, 0, 1])
lab = pytest.mark.lab

Scenario = Callable[["World"], Awaitable[None]]


class World:
    """A fabric, the switches connected to it, and what it called back."""

    def __init__(self, ns: PrivateNamespace | None = None, topology: Topology = TOPOLOGY) -> None:
        self.ns = ns
        self.lost: list[str] = []
        self.ups: list[str] = []
        self.downs: list[tuple[str, str]] = []
        self.ports: list[tuple[str, int, bool]] = []
        self.fabric = OpenFlowFabric(
            topology,
            self.ups.append,
            lambda *a: self.downs.append(a),
            lambda *a: self.ports.append(a),
            on_lost=self.lost.append,
        )

    async def until(self, happened: Callable[[], Any]) -> None:
        end = time.monotonic() + BOUND_S
        while not happened():
            assert time.monotonic() < end, f"up {self.ups}, down {self.downs}, ports {self.ports}"
            await asyncio.sleep(0.002)

    def ovs(self, *command: str) -> str:
        assert self.ns is not None
        return self.ns.run(list(command)).stdout

    async def attach(self, *switches: str) -> None:
        """Point switches (bridges with ports PORTS) at the fabric, and wait for them."""
        before = len(self.ups)
        for name in switches:
            self.ovs("ovs-vsctl", "set-controller", name, f"tcp:127.0.0.1:{self.fabric.port}")
        await self.until(lambda: set(self.ups[before:]) == set(switches))

    async def counted(self, *rules: MulticastRule) -> dict[MulticastRule, RuleCounters]:
        """Once a packet of each was counted: Open vSwitch counts now and then."""
        end = time.monotonic() + BOUND_S
        while True:
            found = {one.rule: one for one in await self.fabric.rule_counters(rules)}
            if all(rule in found and found[rule].received.packets for rule in rules):
                return found
            assert time.monotonic() < end, found
            await asyncio.sleep(0.05)

    def dump(self, what: str, switch: str) -> list[str]:
        return self.ovs("ovs-ofctl", "-O", "OpenFlow13", f"dump-{what}", switch).splitlines()[1:]


@pytest.fixture(scope="module")
def namespace() -> Iterator[PrivateNamespace]:
    with PrivateNamespace() as ns:
        for name in ("tor1", "tor2"):
            dpid = f"{TOPOLOGY.switches[name].dpid:016x}"
            ns.run(["ovs-vsctl", "add-br", name, "--", "set", "bridge", name, "datapath_type=netdev",
                    "protocols=OpenFlow13", "fail_mode=secure", f"other-config:datapath-id={dpid}"])  # fmt: skip
            for port in PORTS:
                ns.run(["ip", "link", "add", f"{name}-{port}", "type", "veth", "peer", "name", f"{name}-{port}h"])
                ns.run(["ip", "link", "set", f"{name}-{port}", "up"])
                ns.run(["ip", "link", "set", f"{name}-{port}h", "up"])
                ns.run(["ovs-vsctl", "add-port", name, f"{name}-{port}", "--", "set", "interface", f"{name}-{port}",
                        f"ofport_request={port}"])  # fmt: skip
        yield ns


@pytest.fixture
def play(namespace: PrivateNamespace) -> Iterator[Callable[[Scenario], None]]:
    """Runs a scenario in the namespace's network with a started fabric and switches without rules."""

    def run(scenario: Scenario, topology: Topology = TOPOLOGY) -> None:
        async def whole() -> None:
            world = World(namespace, topology)
            await world.fabric.start("127.0.0.1", 0)
            try:
                await asyncio.wait_for(scenario(world), 60)
            finally:
                await world.fabric.close()

        call_in_network(namespace.pid, lambda: asyncio.run(whole()))

    yield run
    for name in ("tor1", "tor2"):
        namespace.run(["ovs-vsctl", "del-controller", name])
        for what in ("flows", "groups"):
            namespace.run(["ovs-ofctl", "-O", "OpenFlow13", f"del-{what}", name])


def ethernet(destination: IPv4Address, ttl: int = 9) -> bytes:
    """An IPv4 multicast or unicast UDP datagram with DSCP 0, as a server sends it."""
    payload = b"rostrum" * 10
    udp = struct.pack("!HHHH", 7070, 7070, 8 + len(payload), 0) + payload
    head = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, ttl, 17, 0, bytes([10, 0, 1, 1]), destination.packed
    )
    total = sum(struct.unpack("!10H", head))
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    head = head[:10] + struct.pack("!H", checksum) + head[12:]
    mac = b"\x01\x00\x5e" + destination.packed[1:] if destination.is_multicast else b"\x02\0\0\0\0\2"
    return mac + b"\x02\0\0\0\0\1" + b"\x08\x00" + head + udp


class Wires:
    """The far ends of a switch's ports."""

    def __init__(self, switch: str) -> None:
        self.ends = {}
        for port in PORTS:
            end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            end.setsockopt(263, 23, 1)  # SOL_PACKET, PACKET_IGNORE_OUTGOING
            end.bind((f"{switch}-{port}h", 0x0003))
            self.ends[port] = end

    def __enter__(self) -> Wires:
        return self

    def __exit__(self, *_: object) -> None:
        for end in self.ends.values():
            end.close()

    def exchange(self, port: int, frame: bytes, expected: dict[int, int]) -> dict[int, list[bytes]]:
        """Put a frame in; take what comes out, until as many have come as expected at each port (or the bound), and
        then what else there is within a little while."""
        self.ends[port].send(frame)
        got: dict[int, list[bytes]] = {p: [] for p in PORTS}
        end = time.monotonic() + BOUND_S
        while any(len(got[p]) < n for p, n in expected.items()):
            assert time.monotonic() < end, f"at each port came { ({p: len(f) for p, f in got.items()}) }"
            self._take(got, 0.2)
        self._take(got, 0.05)
        return got

    def _take(self, got: dict[int, list[bytes]], wait_s: float) -> None:
        ready, _, _ = select.select(list(self.ends.values()), [], [], wait_s)
        for port, end in self.ends.items():
            if end in ready:
                got[port].append(end.recv(2000))


@lab
def test_multicast_rule__replicates_to_all_its_ports_and_tags(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.attach("tor1")
        await world.fabric.install([MulticastRule("tor1", 1, GROUP, (2, 3))])
        with Wires("tor1") as wires:
            frame = ethernet(GROUP)
            got = wires.exchange(1, frame, {2: 1, 3: 1})
            for port in (2, 3):
                (copy,) = got[port]
                assert copy[15] == 46 << 2  # DSCP 46, ECN untouched
                assert copy[26:] == frame[26:]  # behind the IP checksum nothing changed
                assert sum(struct.unpack("!10H", copy[14:34])) % 0xFFFF == 0  # which is right
            assert got[1] == []
            assert wires.exchange(2, frame, {}) == {1: [], 2: [], 3: []}  # another in_port: not this rule
            other = wires.exchange(1, ethernet(IPv4Address("239.192.0.6")), {})
            assert other == {1: [], 2: [], 3: []}

    play(scenario)


@lab
def test_unicast__beside_multicast_and_the_rest_is_dropped(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.attach("tor1")
        here, gone = UnicastRule("tor1", IPv4Address("10.0.1.2"), 2), UnicastRule("tor1", IPv4Address("10.0.1.9"), 3)
        await world.fabric.install_unicast([here, gone])
        await world.fabric.install([MulticastRule("tor1", 1, GROUP, (2, 3))])
        with Wires("tor1") as wires:
            frame = ethernet(IPv4Address("10.0.1.2"))
            assert wires.exchange(1, frame, {2: 1}) == {1: [], 2: [frame], 3: []}  # untagged
            assert wires.exchange(1, ethernet(IPv4Address("10.0.9.9")), {}) == {1: [], 2: [], 3: []}
            await world.fabric.install_unicast([here])
            assert wires.exchange(1, ethernet(IPv4Address("10.0.1.9")), {}) == {1: [], 2: [], 3: []}
            arp = (
                b"\xff" * 6
                + b"\x02\0\0\0\0\1"
                + b"\x08\x06"
                + struct.pack(
                    "!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, bytes(6), bytes([10, 0, 1, 1]), bytes(6), bytes([10, 0, 1, 2])
                )
            )
            assert wires.exchange(1, arp, {2: 1}) == {1: [], 2: [arp], 3: []}

    play(scenario)


@lab
def test_install_read_change_remove__leaves_nothing_behind(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.attach("tor1", "tor2")
        rules = [
            MulticastRule(switch, 1, IPv4Address(int(GROUP) + n), (2, 3))
            for switch in ("tor1", "tor2")
            for n in range(50)
        ]
        await world.fabric.install(rules)
        await world.fabric.install(rules)  # again: no error
        for switch in ("tor1", "tor2"):
            assert await world.fabric.read(switch) == {r for r in rules if r.switch == switch}
        changed = replace(rules[0], out_ports=(2,))
        await world.fabric.install([changed])
        assert changed in await world.fabric.read("tor1")
        assert len(await world.fabric.read("tor1")) == 50
        await world.fabric.remove(rules)
        await world.fabric.remove(rules)  # again: no error
        assert await world.fabric.read("tor1") == set()
        assert world.dump("flows", "tor1") == []
        assert world.dump("groups", "tor2") == []

    play(scenario)


@lab
def test_rules_of_others__are_neither_read_nor_touched(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.attach("tor1")
        world.ovs("ovs-ofctl", "-O", "OpenFlow13", "add-group", "tor1", "group_id=1,type=all,bucket=actions=output:2")
        world.ovs("ovs-ofctl", "-O", "OpenFlow13", "add-flow", "tor1", "priority=7,udp,actions=group:1")
        rule = MulticastRule("tor1", 1, GROUP, (2, 3))
        await world.fabric.install([rule])
        assert await world.fabric.read("tor1") == {rule}
        await world.fabric.remove([rule])
        assert len(world.dump("flows", "tor1")) == 1
        assert len(world.dump("groups", "tor1")) == 1

    play(scenario)


@lab
def test_a_successor__finds_the_rules_and_can_change_them(play: Any) -> None:
    rule = MulticastRule("tor1", 1, GROUP, (2, 3))

    async def first(world: World) -> None:
        await world.attach("tor1")
        await world.fabric.install([rule])
        orphan = "group_id=0x50001001,type=all,bucket=actions=output:2"  # ours by its id, used by no flow
        world.ovs("ovs-ofctl", "-O", "OpenFlow13", "add-group", "tor1", orphan)

    async def second(world: World) -> None:
        await world.attach("tor1")
        assert await world.fabric.read("tor1") == {rule}
        assert len(world.dump("groups", "tor1")) == 1
        await world.fabric.install([replace(rule, out_ports=(3,))])
        assert await world.fabric.read("tor1") == {replace(rule, out_ports=(3,))}

    play(first)
    play(second)


@lab
def test_refusal__names_switch_rule_and_reason_and_spares_the_others(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.attach("tor1", "tor2")
        good = MulticastRule("tor2", 1, GROUP, (2,))
        bad = MulticastRule("tor1", 1, GROUP, (0xFFFF_FFF0,))
        with pytest.raises(SouthboundError) as refused:
            await world.fabric.install([bad, good])
        assert "tor1 refused to install the multicast rules for 239.192.0.5" in str(refused.value)
        assert "BAD_OUT_PORT" in str(refused.value)
        assert "tor2" not in str(refused.value)
        assert await world.fabric.read("tor2") == {good}
        await world.fabric.install([replace(bad, out_ports=(2, 3))])  # and the next try is not held back by the last

    play(scenario)


@lab
def test_ports_and_departure__are_reported(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.attach("tor1")
        world.ovs("ip", "link", "set", "tor1-3h", "down")
        await world.until(lambda: ("tor1", 3, False) in world.ports)
        world.ovs("ip", "link", "set", "tor1-3h", "up")
        await world.until(lambda: ("tor1", 3, True) in world.ports)
        world.ovs("ovs-vsctl", "del-controller", "tor1")
        await world.until(lambda: world.downs)
        assert world.downs[0][0] == "tor1"
        with pytest.raises(SouthboundError, match="tor1 is not connected"):
            await world.fabric.install([MulticastRule("tor1", 1, GROUP, (2,))])
        await world.attach("tor1")

    play(scenario)


@lab
def test_a_dead_switch__is_noticed_by_its_silence(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openflow, "ECHO_INTERVAL_S", 0.05)
    monkeypatch.setattr(openflow, "CONFIRM_S", 0.5)

    async def scenario(world: World) -> None:
        await world.attach("tor1")
        pid = world.ovs("cat", "/run/openvswitch/ovs-vswitchd.pid").strip()
        world.ovs("kill", "-STOP", pid)
        try:
            with pytest.raises(SouthboundError, match=r"tor1 (went away|did not confirm)"):
                await world.fabric.install([MulticastRule("tor1", 1, GROUP, (2,))])
            await world.until(lambda: world.downs)
            assert "did not answer 3 echo requests" in world.downs[0][1]
        finally:
            world.ovs("kill", "-CONT", pid)
        await world.until(lambda: len(world.ups) == 2)

    play(scenario)


def with_switches(**changes: dict[str, Any]) -> Topology:
    """The topology with fields of these switches replaced."""
    changed = {name: replace(TOPOLOGY.switches[name], **fields) for name, fields in changes.items()}
    return replace(TOPOLOGY, switches={**TOPOLOGY.switches, **changed})


@lab
def test_coexist__nothing_of_others_goes_and_what_they_remove_is_told(play: Any) -> None:
    rule, marked = MulticastRule("tor1", 1, GROUP, (2, 3)), "group_id=0x50001001,type=all,bucket=actions=output:2"
    theirs = (
        "cookie=1,priority=1,actions=NORMAL",
        "cookie=1,table=3,priority=40000,ip,nw_dst=239.192.0.5,actions=drop",
    )

    async def before(world: World) -> None:
        await world.attach("tor1")
        await world.fabric.install_unicast([UnicastRule("tor1", IPv4Address("10.0.1.2"), 2)])
        await world.fabric.install([replace(rule, group=IPv4Address("239.192.0.9"))])

    async def scenario(world: World) -> None:
        for flow in theirs:
            world.ovs("ovs-ofctl", "-O", "OpenFlow13", "add-flow", "tor1", flow)
        world.ovs("ovs-ofctl", "-O", "OpenFlow13", "add-group", "tor1", marked)
        await world.attach("tor1")
        await world.fabric.install([rule, replace(rule, in_port=0, group=IPv4Address("239.192.0.6"))])
        await world.fabric.install_unicast([UnicastRule("tor1", IPv4Address("10.0.1.2"), 2)])
        flows = world.dump("flows", "tor1")
        ours = [one for one in flows if "cookie=0x526f7374" in one]
        assert len(flows) == 4 and len(ours) == 2, flows
        assert all("table=2," in one and "priority=7" in one and "group:" not in one for one in ours), ours
        assert await world.fabric.read("tor1") == {rule, replace(rule, in_port=0, group=IPv4Address("239.192.0.6"))}
        await world.fabric.remove([replace(rule, in_port=0, group=IPv4Address("239.192.0.6"))])
        assert not world.lost
        world.ovs("ovs-ofctl", "-O", "OpenFlow13", "del-flows", "tor1")  # as Faucet does when it starts
        await world.until(lambda: world.lost == ["tor1"])
        assert await world.fabric.read("tor1") == set()
        facts = world.fabric.facts("tor1")
        assert facts and "somebody else removed 1 entries" in facts.remarks[0].what
        assert any("0x50001001" in one or "1342181377" in one for one in world.dump("groups", "tor1"))
        await world.fabric.install([rule])
        assert await world.fabric.read("tor1") == {rule}

    play(before)
    play(scenario, with_switches(tor1={"coexist": Coexist(2, 77)}))


@lab
def test_full_table__is_respected_and_said(play: Any) -> None:
    rules = [MulticastRule("tor1", 1, IPv4Address(int(GROUP) + n), (2, 3)) for n in range(20)]

    async def scenario(world: World) -> None:
        fields = "-- --id=@t create Flow_Table flow_limit=12 overflow_policy=refuse -- set bridge tor1 flow_tables:0=@t"
        world.ovs("ovs-vsctl", *fields.split())
        try:
            await world.attach("tor1")
            await world.fabric.install(rules[:8])
            facts = world.fabric.facts("tor1")
            assert facts and facts.entries == 12 and "Open vSwitch" in facts.device
            with pytest.raises(SouthboundError, match="table 0 of tor1 is full: it holds 8 of 12 entries, and 5 more"):
                await world.fabric.install(rules[8:13])
            await world.fabric.install(rules[8:12])
            facts = world.fabric.facts("tor1")
            assert facts and "holds 12 of 12" in facts.remarks[0].what
            await world.fabric.install(rules[:4])  # those that are there need no room
            await world.fabric.remove(rules[:4])
            await world.fabric.install(rules[12:16])
            world.ovs("ovs-ofctl", "-O", "OpenFlow13", "del-flows", "tor1", "ip,nw_dst=239.192.0.20")
            world.ovs("ovs-ofctl", "-O", "OpenFlow13", "add-flow", "tor1", "priority=1,udp,actions=drop")
            with pytest.raises(SouthboundError, match="full"):
                await world.fabric.install(rules[16:18])
        finally:
            world.ovs("ovs-vsctl", "clear", "bridge", "tor1", "flow_tables")

    play(scenario)


@lab
def test_logical_switches__share_a_device_and_nothing_else(play: Any) -> None:
    near, far = TOPOLOGY.switches["tor1"], TOPOLOGY.switches["tor2"]
    ends = near.neighbours
    topology = with_switches(
        tor1={"neighbours": {port: ends[port] for port in (1, 2)}},
        tor2={"neighbours": {3: far.neighbours[1]}, "dpid": near.dpid},
    )
    rules = [
        MulticastRule("tor1", 1, GROUP, (2,)),
        MulticastRule("tor2", 3, GROUP, (1, 2)),
        MulticastRule("tor1", 0, IPv4Address("239.192.0.79"), (1, 2)),
        MulticastRule("tor2", 0, IPv4Address("239.192.0.79"), (3, 1)),
    ]

    async def scenario(world: World) -> None:
        world.ovs("ovs-vsctl", "set-controller", "tor1", f"tcp:127.0.0.1:{world.fabric.port}")
        await world.until(lambda: set(world.ups) == {"tor1", "tor2"})
        address = IPv4Address("10.0.1.9")
        await world.fabric.install(rules)
        await world.fabric.install_unicast([UnicastRule("tor1", address, 1), UnicastRule("tor2", address, 2)])
        await world.fabric.install_unicast([UnicastRule("tor2", address, 2)])
        for name in ("tor1", "tor2"):
            assert await world.fabric.read(name) == {rule for rule in rules if rule.switch == name}
        with Wires("tor1") as wires:
            unicast = ethernet(address)
            assert {p: len(f) for p, f in wires.exchange(2, unicast, {1: 1}).items()} == {1: 1, 2: 0, 3: 0}
            assert {p: len(f) for p, f in wires.exchange(3, unicast, {2: 1}).items()} == {1: 0, 2: 1, 3: 0}
            to_all = ethernet(IPv4Address("239.192.0.79"))
            assert {p: len(f) for p, f in wires.exchange(1, to_all, {2: 1}).items()} == {1: 0, 2: 1, 3: 0}
            assert {p: len(f) for p, f in wires.exchange(3, to_all, {1: 1}).items()} == {1: 1, 2: 0, 3: 0}
        counted = await world.counted(rules[2], rules[3])
        assert counted[rules[2]].received.packets == 1 and counted[rules[3]].received.packets == 1
        assert [count.packets for _, count in counted[rules[2]].delivered] == [0, 1]
        await world.fabric.remove([one for one in rules if one.switch == "tor1"])
        assert await world.fabric.read("tor2") == {rule for rule in rules if rule.switch == "tor2"}
        world.ovs("ip", "link", "set", "tor1-3h", "down")
        await world.until(lambda: ("tor2", 3, False) in world.ports)
        world.ovs("ip", "link", "set", "tor1-3h", "up")
        await world.until(lambda: ("tor2", 3, True) in world.ports)
        assert not [one for one in world.ports if one[:2] == ("tor1", 3)]

    play(scenario, topology)


@lab
def test_counters_and_failover__by_the_switch_itself(play: Any) -> None:
    # Groups that no other test sends to: counts of packets that met no entry are given to the next one by Open vSwitch.
    guarded = MulticastRule("tor1", 1, IPv4Address("239.192.0.77"), (2,), backups=((2, 3),))
    plain = MulticastRule("tor1", 1, IPv4Address("239.192.0.78"), (2, 3))

    async def scenario(world: World) -> None:
        await world.attach("tor1")
        facts = world.fabric.facts("tor1")
        assert facts and facts.failover and facts.copies == "groups" and facts.marks == "DSCP" and not facts.remarks
        await world.fabric.install([guarded, plain])
        assert await world.fabric.read("tor1") == {guarded, plain}
        frame = ethernet(guarded.group)
        with Wires("tor1") as wires:
            assert [len(wires.exchange(1, frame, {2: 1})[port]) for port in PORTS] == [0, 1, 0]
            wires.exchange(1, ethernet(plain.group), {2: 1, 3: 1})
            counted = await world.counted(guarded, plain)
            assert counted[guarded].received.packets == 1 and counted[guarded].received.bytes == len(frame)
            assert [(port, one.packets) for port, one in counted[plain].delivered] == [(2, 1), (3, 1)]
        world.ovs("ip", "link", "set", "tor1-2", "down")
        try:
            await world.until(lambda: ("tor1", 2, False) in world.ports)
            with Wires("tor1") as wires:  # nobody tells the switch what to do; it takes a moment
                end = time.monotonic() + BOUND_S
                while not wires.exchange(1, frame, {})[3]:
                    assert time.monotonic() < end
        finally:
            world.ovs("ip", "link", "set", "tor1-2", "up")
        await world.until(lambda: ("tor1", 2, True) in world.ports)
        await world.fabric.remove([guarded, plain])
        assert world.dump("flows", "tor1") == []

    async def after(world: World) -> None:
        await world.attach("tor1")
        assert world.dump("groups", "tor1") == []  # what no entry uses goes when a switch is greeted

    play(scenario)
    play(after)


@pytest.fixture
async def fabric() -> Any:
    world = World()
    await world.fabric.start("127.0.0.1", 0)
    yield world
    await world.fabric.close()


async def dial(world: World, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", world.fabric.port)
    writer.write(data)
    return reader, writer


def thread_of(world: World) -> OpenFlowThread:
    assert world.fabric._thread is not None
    return world.fabric._thread


async def closed(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(BOUND_S):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize("garbage", [
    b"GET / HTTP/1.1\r\n\r\n" * 20,
    b"\x04\x00\x00\x00" * 100,
    b"\x04\x0e\xff\xff" + b"\xff" * 70_000,
    HELLO + bytes([4, 6, 0, 9, 0, 0, 0, 1, 0]),  # a features reply cut short
    HELLO + bytes([4, 1, 0, 12, 0, 0, 0, 1, 0, 3, 0, 1]),
    bytes(1000),
    b"",
])  # fmt: skip
async def test_garbage__ends_that_connection_and_nothing_else(
    fabric: World, garbage: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = await dial(fabric, garbage)
    with contextlib.suppress(OSError):  # it may have hung up already
        writer.write_eof()
    await closed(reader)
    writer.close()
    reader, writer = await dial(fabric)
    async with asyncio.timeout(BOUND_S):
        assert (await reader.readexactly(2))[1] == 0  # OpenFlow's hello: still serving
    writer.close()
    assert fabric.ups == []


@pytest.mark.parametrize("endless", [
    bytes([4, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0]),  # a hello's element of no length
    bytes([4, 19, 0, 72, 0, 0, 0, 1, 0, 1]) + bytes(62),  # a flow entry
    bytes([4, 19, 0, 24, 0, 0, 0, 1, 0, 7]) + bytes(14),  # a group's description
])  # fmt: skip
async def test_elements_of_no_length__do_not_keep_the_manager_busy_without_end(
    fabric: World, endless: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """os-ken took the same element again and again: 43 MB more each second, from one packet of a stranger."""
    reader, writer = await dial(fabric, endless + bytes([4, 2, 0, 8, 0, 0, 0, 9]))
    async with asyncio.timeout(BOUND_S):
        assert (await reader.readexactly(8))[1] == 0
        assert await reader.readexactly(8) == bytes([4, 3, 0, 8, 0, 0, 0, 9]), "its echo request is answered"
    writer.close()
    assert "a message was left out: " in caplog.text


@pytest.mark.parametrize("data", [
    struct.pack("!BBHI", 4, 6, 8, 1),  # a features reply without its body
    struct.pack("!BBHIHHI", 4, 19, 65535, 1, 13, 0, 0) + bytes(65519),  # ports, of which the last is cut off
    struct.pack("!BBHIQI4x16xIHHH2x", 4, 11, 56, 1, 0, 0, 0, 1, 0, 0)[:48] + struct.pack("!HHI", 1, 12, 0xFFFF0000),
    struct.pack("!BBHIHH", 4, 1, 12, 1, 1, 1),  # an error without the message that it is about
    struct.pack("!BBHIHHI", 4, 0, 16, 1, 1, 8, 2),  # a hello of version 1 alone
], ids=["features", "ports", "match", "error", "hello"])  # fmt: skip
async def test_what_os_ken_cannot_read__does_not_fill_the_log(
    fabric: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    """Each was a line, of five characters for each byte of it."""
    for spared in (thread.MALFORMED, thread.HANDSHAKES):
        monkeypatch.setattr(spared, "_lines", Sparing(1, 3600.0))
    reader, writer = await dial(fabric, data * 20)
    with contextlib.suppress(OSError):
        writer.write_eof()
    await closed(reader)
    writer.close()
    await fabric.until(lambda: not thread_of(fabric)._connections)
    assert len(caplog.text) < 2000, caplog.text[:5000]


def test_lines_of_os_ken__are_short_and_say_how_many_were_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    spared = thread.Spared()
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def line(level: int = logging.ERROR) -> logging.LogRecord | None:
        cause = (ValueError, ValueError(), None)
        record = logging.LogRecord("os_ken", level, "", 1, "buf %s, %d", ("0x00 " * 65_535, 7), cause)
        return record if spared.filter(record) else None

    first, *others = [line() for _ in range(30)]
    assert first and first.getMessage().startswith("buf 0x00 ") and not first.exc_info
    assert len(first.getMessage()) <= thread.LOGGED_MAX + 3 and others == [None] * 29
    assert line(logging.DEBUG)
    clock[0] += thread.LOG_EVERY_S
    late = line()
    assert late and late.getMessage().endswith("... (29 more were not logged)")


async def test_a_connection_that_was_dropped__is_read_no_more(fabric: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 8,192 messages that had come by then were."""
    parsed = []

    def parse(connection: thread.Connection, message: bytearray) -> None:
        parsed.append(message)
        connection.drop("enough")

    monkeypatch.setattr(thread.Connection, "_parse", parse)
    reader, writer = await dial(fabric, bytes([4, 21, 0, 8, 0, 0, 0, 9]) * 1000)
    await closed(reader)
    writer.close()
    await fabric.until(lambda: not thread_of(fabric)._connections)
    assert len(parsed) == 1


async def test_a_switch_that_talks_without_end__waits_for_the_loop(
    fabric: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages do not pile up while the loop has other things to do."""
    monkeypatch.setattr(thread, "DELIVERED_MAX", 8)
    own = fabric.fabric._thread
    assert own is not None
    taken: list[Any] = []
    handed = {"ready": 0, "message": 0}
    call = own._call

    def counted(function: Callable[..., None], *args: Any) -> None:
        handed["message" if len(args) == 2 else "ready"] += 1
        call(function, *args)

    monkeypatch.setattr(own, "_call", counted)
    monkeypatch.setattr(own, "_on_message", lambda _, message: taken.append(message))
    reply = struct.pack("!BBHIQIBBHII", 4, 6, 32, 1, TOPOLOGY.switches["tor1"].dpid, 256, 254, 0, 0, 0, 0)
    ports = struct.pack("!BBHIHHI", 4, 19, 16, 1, 13, 0, 0)
    flood = bytes([4, 21, 0, 8, 0, 0, 0, 9]) * 1000
    with socket.create_connection(("127.0.0.1", fabric.fabric.port)) as peer:
        peer.sendall(HELLO + reply + ports + flood)
        end = time.monotonic() + BOUND_S
        while handed["message"] < 8:
            assert time.monotonic() < end
            time.sleep(0.001)  # noqa: ASYNC251 the loop has other things to do
        for _ in range(20):
            time.sleep(0.002)  # noqa: ASYNC251
            assert handed["message"] == 8
        await fabric.until(lambda: len(taken) >= 1000)


async def test_silence__is_given_up_after_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread, "HANDSHAKE_S", 0.05)
    world = World()
    await world.fabric.start("127.0.0.1", 0)
    reader, writer = await dial(world)
    await closed(reader)
    writer.close()
    await world.fabric.close()


class FailingListener:
    """Its accept() fails with each of `errors` in turn, and then takes connections as `real` does."""

    def __init__(self, real: socket.socket, errors: list[int]) -> None:
        self.real, self.errors = real, errors

    def accept(self) -> Any:
        if self.errors:
            number = self.errors.pop(0)
            raise OSError(number, os.strerror(number))
        return self.real.accept()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED])
async def test_accept_that_fails__does_not_end_the_listening(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(thread, "ACCEPT_RETRY_S", 0.001)
    accept = OpenFlowThread._accept
    errors = [number] * 3
    monkeypatch.setattr(
        OpenFlowThread, "_accept", lambda self, listener: accept(self, FailingListener(listener, errors))
    )
    world = World()
    await world.fabric.start("127.0.0.1", 0)
    try:
        reader, writer = await dial(world, HELLO)
        async with asyncio.timeout(BOUND_S):
            assert await reader.readexactly(2) == HELLO[:2]
        assert not errors
        writer.close()
    finally:
        await world.fabric.close()


async def test_crowd_of_strangers__the_oldest_make_room(fabric: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread, "HANDSHAKES_MAX", 4)
    crowd = [await dial(fabric) for _ in range(5)]
    await closed(crowd[0][0])
    for reader, _ in crowd[1:]:
        async with asyncio.timeout(BOUND_S):
            assert await reader.readexactly(2) == HELLO[:2]
    for _, writer in crowd:
        writer.close()


async def test_strangers__a_datapath_id_not_in_the_topology_is_turned_away(fabric: World) -> None:
    features = struct.pack("!BBHIQIBBHII", 4, 6, 32, 1, 0xDEAD, 256, 254, 0, 0, 0, 0)
    ports = struct.pack("!BBHIHHI", 4, 19, 16, 1, 13, 0, 0)
    reader, writer = await dial(fabric, HELLO + features + ports)
    await closed(reader)
    writer.close()
    assert fabric.ups == []


async def test_a_switch_that_comes_and_goes__does_not_fill_the_log(
    fabric: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It had a line each time, 300 a second."""
    reply = struct.pack("!BBHIQIBBHII", 4, 6, 32, 1, TOPOLOGY.switches["tor1"].dpid, 256, 254, 0, 0, 0, 0)
    ready = HELLO + reply + struct.pack("!BBHIHHI", 4, 19, 16, 1, 13, 0, 0)
    for number in range(20):
        _, writer = await dial(fabric, ready)
        await fabric.until(lambda: "tor1" in fabric.fabric._links)
        writer.close()
        await fabric.until(lambda: "tor1" not in fabric.fabric._links and not fabric.fabric._tasks)
        if number == 0:
            assert "tor1 went away" in caplog.text
    lines = [one for one in caplog.records if "tor1 went away" in one.getMessage()]
    assert len(lines) == openflow.GREETING_LINES[0]


async def test_strangers__a_server_is_no_switch(fabric: World, caplog: pytest.LogCaptureFixture) -> None:
    """The switch keeps its connection, whoever says its datapath id on one of the servers."""
    fabric.fabric._servers_at = {"127.0.0.2": frozenset({"h2"})}
    dpid = TOPOLOGY.switches["tor1"].dpid
    reply = struct.pack("!BBHIQIBBHII", 4, 6, 32, 1, dpid, 256, 254, 0, 0, 0, 0)
    ready = reply + struct.pack("!BBHIHHI", 4, 19, 16, 1, 13, 0, 0)
    _, writer = await dial(fabric, HELLO + ready)
    await fabric.until(lambda: "tor1" in fabric.fabric._links)
    link = fabric.fabric._links["tor1"]
    reader, impostor = await asyncio.open_connection("127.0.0.1", fabric.fabric.port, local_addr=("127.0.0.2", 0))
    impostor.write(HELLO + ready)
    await closed(reader)
    await fabric.until(lambda: "h2's address" in caplog.text)
    assert fabric.fabric._links["tor1"] is link and not link.connection.cause
    for one in (writer, impostor):
        one.close()


async def test_listening__on_the_given_address_only(fabric: World) -> None:
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.2", fabric.fabric.port)


async def test_an_address_that_is_taken__is_said(fabric: World) -> None:
    other = World()
    with pytest.raises(SouthboundError, match=f"cannot listen for OpenFlow switches on 127.0.0.1:{fabric.fabric.port}"):
        await other.fabric.start("127.0.0.1", fabric.fabric.port)


async def test_unknown_switches__are_named(fabric: World) -> None:
    with pytest.raises(SouthboundError, match="tor1 is not connected; tor9 is not an OpenFlow switch"):
        await fabric.fabric.install([MulticastRule("tor1", 1, GROUP, (2,)), MulticastRule("tor9", 1, GROUP, (2,))])
    with pytest.raises(SouthboundError, match="tor2 is not connected"):
        await fabric.fabric.read("tor2")
