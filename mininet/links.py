"""Links of a running lab: cut so that nobody is told, taken down so that switches tell the manager, and mended.

What enters an Open vSwitch bridge is dropped by a flow. P4 switches and servers read their interfaces past the kernel's
filters, so what would reach them is dropped where it leaves the link's other end: by a class of HTB (network.py), whose
queue takes everything and gives nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rostrum.lab.namespace import LabError
from rostrum.lab.processes import data_interface
from rostrum.topologies.model import End, Topology

if TYPE_CHECKING:
    from rostrum.lab.lab import Lab

COOKIE = "0x6c6f7374"  # of the flows that lose packets
OFCTL = ("ovs-ofctl", "-O", "OpenFlow13")
DEAD = "1:dead"


def bridge_of(topology: Topology, switch: str) -> str:
    """The Open vSwitch bridge that a switch is, or is a part of."""
    return topology.sharing(switch)[0]


def cut(lab: Lab, a: str, b: str, *, only_multicast: bool = False) -> None:
    """From now on everything that crosses the link is lost, both ways, as by a broken transceiver; ports stay up.
    `only_multicast`: as by a switch that lost its groups; unicast gets through.
    """
    flows, group = [], str(lab.topology.multicast)
    what = f"ip,nw_dst={group}," if only_multicast else ""
    for end, far in _directions(lab.topology, a, b):
        if not _is_bridge(lab.topology, far):
            _lose(lab, end, f"protocol ip prio 1 u32 match ip dst {group}" if only_multicast else None)
            continue
        flow = f"cookie={COOKIE},priority=65535,{what}in_port={far.port},actions=drop"
        flows.append(f"{' '.join(OFCTL)} add-flow {_bridge(lab, far.node)} {flow}")
    lab.execute("manager", ["sh", "-c", " & ".join([*flows, "wait"])])


def down(lab: Lab, a: str, b: str) -> None:
    """Both ports are down: the switches tell the manager. Only of links that are interfaces."""
    ends = [end for end, _ in _directions(lab.topology, a, b) if end.node in lab.topology.switches]
    for end in ends:
        if lab.topology.switches[end.node].p4:
            raise LabError(f"{end.node} is a P4 switch, which is not told of ports that go down: cut the link")
    for end in ends:
        _set(lab, end.node, end.port, "down")


def _bridge(lab: Lab, switch: str) -> str:
    return bridge_of(lab.topology, switch)


def _is_bridge(topology: Topology, end: End) -> bool:
    return end.node in topology.switches and topology.switches[end.node].p4 is None


def up(lab: Lab, a: str, b: str) -> None:
    """The link works again."""
    for end, far in _directions(lab.topology, a, b):
        if end.node in lab.topology.switches and _is_interface(lab, end.node, end.port):
            _set(lab, end.node, end.port, "up")
        if not _is_bridge(lab.topology, far):
            _lose(lab, end, "")
            continue
        of_it = f"cookie={COOKIE}/-1,in_port={far.port}"
        lab.execute("manager", [*OFCTL, "del-flows", _bridge(lab, far.node), of_it])


def _lose(lab: Lab, end: End, what: str | None) -> None:
    """What leaves there is lost: all of it (None), or what a filter chooses; "": nothing any more."""
    switch = end.node in lab.topology.switches
    port = f"{end.node}-p{end.port}" if switch else data_interface(end.node)
    where = "manager" if switch else end.node
    lines = [f"tc filter del dev {port} parent 1: prio 1", f"tc class del dev {port} classid {DEAD}"]
    lab.execute(where, ["sh", "-c", "; ".join(f"{line} 2>/dev/null" for line in lines)], check=False)
    if what == "":
        return
    lines = [
        f"tc class add dev {port} parent 1: classid {DEAD} htb rate 8bit quantum 60000",
        f"tc qdisc add dev {port} parent {DEAD} blackhole",
        f"tc filter add dev {port} parent 1: {what or 'protocol all prio 1 u32 match u32 0 0'} flowid {DEAD}",
    ]
    lab.execute(where, ["sh", "-c", " && ".join(lines)])


def _set(lab: Lab, switch: str, port: int, state: str) -> None:
    if not _is_interface(lab, switch, port):
        raise LabError(
            f"{switch} port {port} is a patch port, which cannot go down: start the lab with --core-links veth, "
            "or cut the link"
        )
    lab.execute("manager", ["ip", "link", "set", f"{switch}-p{port}", state])


def _is_interface(lab: Lab, switch: str, port: int) -> bool:
    name = f"{switch}-p{port}"
    return "does not exist" not in lab.execute("manager", ["ip", "link", "show", name], check=False)


def _directions(topology: Topology, a: str, b: str) -> Iterator[tuple[End, End]]:
    """(end that sends, end that receives) of both ways of each link between the two; not of the cables to an OCS."""
    found = [link for link in topology.links if {link.a.node, link.b.node} == {a, b}]
    if not found or not {a, b} <= {*topology.switches, *topology.servers}:
        raise LabError(f"no link joins {a} and {b} in {topology.name}")
    for link in found:
        yield link.a, link.b
        yield link.b, link.a
