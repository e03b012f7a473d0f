"""Links of a running lab between Open vSwitch bridges: cut so that nobody is told, taken down so that switches tell the
manager, and mended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rostrum.lab.namespace import LabError
from rostrum.topologies.model import Topology

if TYPE_CHECKING:
    from rostrum.lab.lab import Lab

COOKIE = "0x6c6f7374"  # of the flows that lose packets
OFCTL = ("ovs-ofctl", "-O", "OpenFlow13")


def bridge_of(topology: Topology, switch: str) -> str:
    """The Open vSwitch bridge that a switch is, or is a part of."""
    return topology.sharing(switch)[0]


def cut(lab: Lab, a: str, b: str, *, only_multicast: bool = False) -> None:
    """From now on everything that crosses the link is lost, both ways, as by a broken transceiver; ports stay up.
    `only_multicast`: as by a switch that lost its groups; unicast gets through.
    """
    what = f"ip,nw_dst={lab.topology.multicast}," if only_multicast else ""
    flows = [
        f"{' '.join(OFCTL)} add-flow {_bridge(lab, switch)} "
        f"cookie={COOKIE},priority=65535,{what}in_port={port},actions=drop"
        for switch, port in _ends(lab.topology, a, b)
    ]
    lab.execute("manager", ["sh", "-c", " & ".join([*flows, "wait"])])


def down(lab: Lab, a: str, b: str) -> None:
    """Both ports are down: the switches tell the manager. Only of links that are interfaces."""
    for switch, port in _ends(lab.topology, a, b):
        _set(lab, switch, port, "down")


def _bridge(lab: Lab, switch: str) -> str:
    return bridge_of(lab.topology, switch)


def up(lab: Lab, a: str, b: str) -> None:
    """The link works again."""
    for switch, port in _ends(lab.topology, a, b):
        if _is_interface(lab, switch, port):
            _set(lab, switch, port, "up")
        lab.execute("manager", [*OFCTL, "del-flows", _bridge(lab, switch), f"cookie={COOKIE}/-1,in_port={port}"])


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


def _ends(topology: Topology, a: str, b: str) -> Iterator[tuple[str, int]]:
    """(switch, port) of both ends; one for the link of a server."""
    found = []
    for link in topology.links:
        if {link.a.node, link.b.node} == {a, b}:
            found += [(end.node, end.port) for end in (link.a, link.b) if end.node in topology.switches]
    if not found:
        raise LabError(f"no link joins {a} and {b} in {topology.name}")
    for name, _ in found:
        if topology.switches[name].p4:
            raise LabError(f"{name} is a P4 switch; links are cut at Open vSwitch bridges only")
    yield from found
