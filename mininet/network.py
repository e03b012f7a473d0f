"""Builds a topology inside private namespaces: switches, servers' NICs, fibres to the OCS, rates and priority.

Runs in the namespaces of `PrivateNamespace` (it makes interfaces and bridges where it stands). Debian's Mininet makes
the nodes and links; addresses, offloads, rates and priority are set here, in one batch for each node.
"""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any

from mininet.link import Intf, OVSLink
from mininet.link import Link as VethLink
from mininet.net import Mininet
from mininet.node import Host, OVSSwitch, Switch
from rostrum.lab.links import bridge_of
from rostrum.lab.namespace import LabError
from rostrum.lab.processes import OPEN_VSWITCH, data_interface
from rostrum.topologies.model import End, Link, Server, Topology, control_share

# Mininet makes its own class that of all loggers from its import on, whose first level hides what is said at INFO.
logging.setLoggerClass(logging.Logger)

MANAGEMENT_BRIDGE = "mgmt"
INTERFACE_NAME_MAX = 15  # Linux's limit
DSCP_CONTROL = "0xc0"  # DSCP 48 in the IPv4 TOS byte: agents' acknowledgements, reports and control channels
DSCP_FIRST = "0xb8"  # DSCP 46: multicast
WIRE_OVERHEAD_BYTES = 24  # preamble, frame check sequence and gap, which the kernel does not count


def switch_interface(end: End) -> str:
    """The interface that is a switch's port, or the OCS's port when the node is an OCS (`ocs-p7`)."""
    return f"{end.node}-p{end.port}"


def problems(topology: Topology) -> list[str]:
    """Why this topology cannot be built on one machine; empty if it can."""
    found = []
    for name in [*topology.servers, *topology.switches, *topology.ocs]:
        ports = [end.port for link in topology.links for end in (link.a, link.b) if end.node == name]
        longest = f"{name}-eth0" if name in topology.servers else f"{name}-p{max(ports, default=0)}"
        if len(longest) > INTERFACE_NAME_MAX:
            found.append(
                f"{name}: its interface {longest} is longer than {INTERFACE_NAME_MAX} letters; choose a shorter name"
            )
    found += [
        f"{switch.name}: its P4Runtime server at {switch.p4.address} would not be on this machine; write 127.0.0.1"
        for switch in topology.switches.values()
        if switch.p4 and not switch.p4.address.is_loopback
    ]
    return found


class Ports(Switch):  # type: ignore[misc]
    """Interfaces of a switch that a program of its own will forward between."""

    def start(self, controllers: object) -> None:
        """Nothing: its program is started by the supervisor, with the names of these interfaces."""


class Network:
    """The running network of a topology. `hosts` maps a server's name to its Mininet host."""

    def __init__(self, topology: Topology, *, core_links: str = "patch") -> None:
        """`core_links`: "patch" joins packet switches inside Open vSwitch (faster, but without their rates), "veth"
        by interfaces with the topology's rates."""
        if found := problems(topology):
            raise LabError(f"{topology.name} cannot be built as a lab: " + "; ".join(found))
        self.topology, self.core_links = topology, core_links
        # Mininet would raise limits of the whole machine here.
        Mininet.inited = True
        self._net = Mininet(controller=None, build=False, autoSetMacs=False)
        self.hosts: dict[str, Any] = {}
        self._switches: dict[str, Any] = {}

    def start(self) -> None:
        """Returns when every interface is up. Switches wait for `connect_controllers` (fail_mode=secure)."""
        for number, switch in enumerate(self.topology.switches.values()):
            if switch.p4:
                self._switches[switch.name] = self._net.addSwitch(switch.name, cls=Ports, dpid=f"{1 << 40 | number:x}")
                continue
            bridge = bridge_of(self.topology, switch.name)
            if bridge in self._switches:  # a logical switch of a device that is there
                self._switches[switch.name] = self._switches[bridge]
                continue
            self._switches[bridge] = self._switches[switch.name] = self._net.addSwitch(
                bridge,
                cls=OVSSwitch,
                dpid=f"{switch.dpid:016x}",
                datapath="user",
                protocols="OpenFlow13",
                failMode="secure",
            )
        for server in self.topology.servers.values():
            self.hosts[server.name] = self._net.addHost(server.name, cls=Host, ip=None)
            _inside(
                self.hosts[server.name],
                "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1",
            )
        self._management()
        for link in self.topology.links:
            self._link(link)
        self._net.build()
        for switch in dict.fromkeys(self._switches.values()):
            switch.start([])
        _check_ports()
        for server in self.topology.servers.values():
            self._server(server)
        for link in self.topology.links:
            for own, far in ((link.a, link.b), (link.b, link.a)):
                if own.node in self.topology.switches and not self._is_patch(link):
                    self._shape(own, link.rate_bps, priority=far.node in self.topology.servers)

    def stop(self) -> None:
        """Takes the nodes down, for another network in the same namespaces (the end of these does the same)."""
        self._net.stop()
        _run(["ip", "link", "del", MANAGEMENT_BRIDGE])

    def popen(self, server: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Starts a process on a server."""
        return subprocess.Popen(["mnexec", "-a", str(self.hosts[server].pid), *argv], **options)

    def _is_patch(self, link: Link) -> bool:
        """Between two devices that Open vSwitch is."""
        if link.b.node in self.topology.switches and link.a.node in self.topology.sharing(link.b.node):
            return False  # a cable of a device to itself
        ends = [self.topology.switches.get(end.node) for end in (link.a, link.b)]
        return self.core_links == "patch" and all(end is not None and end.p4 is None for end in ends)

    def interfaces(self, switch: str) -> dict[int, str]:
        """Port -> interface of a switch."""
        return {port: switch_interface(End(switch, port)) for port in self.topology.switches[switch].neighbours}

    def _management(self) -> None:
        """A bridge that carries manager, agents' links to it, and OCS controllers, whose addresses it has."""
        topology, prefix = self.topology, self.topology.management.prefixlen
        lines = [f"link add {MANAGEMENT_BRIDGE} type bridge", f"link set {MANAGEMENT_BRIDGE} up"]
        for address in (*topology.manager.addresses, *(ocs.address for ocs in topology.ocs.values())):
            lines.append(f"addr add {address}/{prefix} dev {MANAGEMENT_BRIDGE}")
        for server in topology.servers.values():
            outer, inner, pid = f"{server.name}-mgmt", "mgmt", self.hosts[server.name].pid
            lines.append(f"link add {outer} type veth peer name {inner} netns {pid}")
            lines.append(f"link set {outer} master {MANAGEMENT_BRIDGE} up")
        _batch(["ip", "-batch", "-"], lines)

    def _link(self, link: Link) -> None:
        """One link of the topology. An OCS port is an interface of these namespaces, its far end a port of the ToR."""
        a, b = link.a, link.b
        if a.node in self.topology.ocs:
            a, b = b, a
        mtu = self.topology.mtu
        if b.node in self.topology.ocs:
            ours, theirs = switch_interface(a), switch_interface(b)
            _batch(
                ["ip", "-batch", "-"],
                [
                    f"link add {ours} mtu {mtu} type veth peer name {theirs} mtu {mtu}",
                    f"link set {ours} up",
                    f"link set {theirs} up",
                ],
            )
            self._adopt(a, ours)
            return
        if a.node in self.topology.servers:
            a, b = b, a
        names = [
            data_interface(end.node) if end.node in self.topology.servers else switch_interface(end) for end in (a, b)
        ]
        nodes = [self._switches.get(end.node) or self._net.getNodeByName(end.node) for end in (a, b)]
        self._net.addLink(
            *nodes,
            port1=a.port,
            port2=b.port,
            intfName1=names[0],
            intfName2=names[1],
            cls=OVSLink if self._is_patch(link) else VethLink,
        )
        up = [
            f"link set {name} mtu {mtu} up"
            for name, end in zip(names, (a, b), strict=True)
            if end.node in self.topology.switches
        ]
        if not self._is_patch(link):
            _batch(["ip", "-batch", "-"], up)

    def _adopt(self, end: End, interface: str) -> None:
        """Hands an interface that is already there to a switch as the given port."""
        Intf(interface, node=self._switches[end.node], port=end.port, moveIntfFn=lambda *_: None)

    def connect_controllers(self, certificates: str = "") -> None:
        """Tells the switches where the manager is; they try at once, by TLS with `certificates`, a folder."""
        manager, command = self.topology.manager, ["ovs-vsctl"]
        ours = [name for name, switch in self.topology.switches.items() if switch.p4 is None]
        names = list(dict.fromkeys(bridge_of(self.topology, name) for name in ours))
        if not names:
            return
        if certificates:
            own = [f"{certificates}/{OPEN_VSWITCH}.{ending}" for ending in ("key", "pem")]
            command += ["--", "set-ssl", *own, f"{certificates}/ca.pem"]
        for name in names:
            targets = [
                f"{'ssl' if certificates else 'tcp'}:{address}:{manager.openflow_port}" for address in manager.addresses
            ]
            command += ["--", "set-controller", name, *targets]
            # A manager that comes back should not wait for a switch's timeout; the rules stay while it is away.
            command += ["--", "set", "bridge", name, "fail_mode=secure"]
        _run(command)
        # By record: a bridge's name stands for its controller only if there is one.
        command = ["ovs-vsctl"]
        for record in _run(["ovs-vsctl", "--bare", "--columns=_uuid", "list", "controller"]).split():
            command += ["--", "set", "controller", record, "max_backoff=1000", "inactivity_probe=5000"]
        _run(command)

    def _server(self, server: Server) -> None:
        topology, nic = self.topology, data_interface(server.name)
        rate = server.rate_bps
        _inside(
            self.hosts[server.name],
            "\n".join(
                [
                    "set -e",
                    "ip link set lo up",
                    f"ethtool -K {nic} tx off tso off gso off >/dev/null",
                    f"ip link set {nic} mtu {topology.mtu} up",
                    f"ip addr add {server.address}/{topology.data.prefixlen} dev {nic}",
                    f"ip route add 224.0.0.0/4 dev {nic}",
                    f"ip addr add {server.management}/{topology.management.prefixlen} dev mgmt",
                    "ip link set mgmt up",
                    # The NIC's rate, in one class: all flows share it as they would a real NIC's queue.
                    f"tc qdisc add dev {nic} root handle 1: htb default 1",
                    f"tc class add dev {nic} parent 1: classid 1:1 htb rate {rate}bit ceil {rate}bit {_burst(rate)}",
                    f"tc qdisc add dev {nic} parent 1:1 handle 10: pfifo limit 1000",
                ]
            ),
        )

    def _shape(self, end: End, rate_bps: int, *, priority: bool) -> None:
        """A switch port's rate; towards servers DSCP 46 goes first (Republic, III-A2: multicast has high priority), but
        for a small share of DSCP 48: what tells senders of losses must not wait behind what causes them. ARP neither:
        without it nothing reaches a server whose address was forgotten.
        """
        port, burst = switch_interface(end), _burst(rate_bps)
        lines = [f"qdisc add dev {port} root handle 1: htb default 20"]
        lines += [f"class add dev {port} parent 1: classid 1:1 htb rate {rate_bps}bit ceil {rate_bps}bit {burst}"]
        if priority:
            control, least = control_share(rate_bps), max(1000, rate_bps // 1000)
            most = rate_bps * 99 // 100 - control
            lines += [
                f"class add dev {port} parent 1:1 classid 1:5 htb rate {control}bit ceil {control}bit prio 0 {burst}",
                f"class add dev {port} parent 1:1 classid 1:10 htb rate {most}bit ceil {rate_bps}bit prio 1 {burst}",
                f"class add dev {port} parent 1:1 classid 1:20 htb rate {least}bit ceil {rate_bps}bit prio 2 {burst}",
                f"qdisc add dev {port} parent 1:5 handle 5: pfifo limit 1000",
                f"qdisc add dev {port} parent 1:10 handle 10: pfifo limit 1000",
                f"filter add dev {port} parent 1: protocol arp u32 match u32 0 0 flowid 1:5",
                f"filter add dev {port} parent 1: protocol ip u32 match ip tos {DSCP_CONTROL} 0xfc flowid 1:5",
                f"filter add dev {port} parent 1: protocol ip u32 match ip tos {DSCP_FIRST} 0xfc flowid 1:10",
            ]
        else:
            lines += [f"class add dev {port} parent 1:1 classid 1:20 htb rate {rate_bps}bit ceil {rate_bps}bit {burst}"]
        lines += [f"qdisc add dev {port} parent 1:20 handle 20: pfifo limit 1000"]
        _batch(["tc", "-batch", "-"], lines)


def _burst(rate_bps: int) -> str:
    """HTB's tokens: two milliseconds' worth, and never less than two of the largest frames."""
    size = max(2 * 9300, rate_bps // 8 // 500)
    return f"burst {size} cburst {size} quantum 60000 overhead {WIRE_OVERHEAD_BYTES}"


def _check_ports() -> None:
    """ovs-vsctl reports a port that could not be made only in the database."""
    table = _run(["ovs-vsctl", "--format=json", "--columns=name,error", "list", "Interface"])
    wrong = [f"{name}: {error}" for name, error in json.loads(table)["data"] if isinstance(error, str) and error]
    if wrong:
        raise LabError("Open vSwitch could not make these ports: " + "; ".join(wrong))


def _run(argv: Sequence[str], input: str | None = None) -> str:
    done = subprocess.run(argv, input=input, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise LabError(
            f"{' '.join(argv)[:200]}: exit {done.returncode}: {(done.stderr or done.stdout).strip()[-1000:]}"
        )
    return done.stdout


def _batch(argv: Sequence[str], lines: Iterable[str]) -> None:
    """Runs `ip` or `tc` once for many commands."""
    text = "\n".join(lines) + "\n"
    try:
        _run(argv, text)
    except LabError as error:
        raise LabError(f"{error}\nwhile doing:\n{text}") from error


def _inside(host: Any, script: str) -> None:
    _run(["mnexec", "-a", str(host.pid), "sh", "-c", script])
