"""The packet network as a graph: who is next to whom, by which ports. Links are named by their two nodes; of parallel
links between two switches the one at the lowest port stands for all that are left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from rostrum.topologies.model import Topology

Link = tuple[str, str]
Port = tuple[str, int]  # switch, port


@dataclass(frozen=True)
class Place:
    """Where a server is attached; `rate_bps` of its link's slower end. `address`: as text."""

    server: str
    address: str
    tor: str
    port: int
    rate_bps: int


@dataclass(frozen=True)
class Ends:
    """Who sends and who receives, by rack."""

    sender: Place
    below: dict[str, list[Place]]  # the receivers' ToRs -> the receivers there
    remote: tuple[str, ...]  # their ToRs without the sender's, sorted
    rate_bps: int  # of the slowest server

    @property
    def tors(self) -> set[str]:
        return {self.sender.tor, *self.remote}


class Fabric:
    """Of switches and servers, without OCSs. `neighbours`: of a switch, the switches; of a server, its ToR."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.places = {
            one.name: Place(
                one.name,
                str(one.address),
                one.tor,
                one.tor_port,
                min(one.rate_bps, topology.switches[one.tor].rates[one.tor_port]),
            )
            for one in topology.servers.values()
        }
        tors = sorted({one.tor for one in self.places.values()})
        self.racks = {tor: number for number, tor in enumerate(tors, 1)}  # numbers for agents, of this topology
        self.neighbours: dict[str, tuple[str, ...]] = {
            server.name: (server.tor,) for server in topology.servers.values()
        }
        self._depths: dict[str, dict[str, int]] = {}
        self.ports: dict[Link, int] = {}  # (switch, next node) -> the switch's port
        self.far: dict[Port, tuple[int, int]] = {}  # the port at the other end, 0 = a server's; the rate here (bit/s)
        for switch in topology.switches.values():
            for port in sorted(switch.neighbours):
                end = switch.neighbours[port]
                self.far[switch.name, port] = (end.port if end.node in topology.switches else 0, switch.rates[port])
                if end.node in topology.switches or end.node in topology.servers:
                    self.ports.setdefault((switch.name, end.node), port)
            ports = sorted(switch.neighbours.items())
            found = dict.fromkeys(end.node for _, end in ports if end.node in topology.switches)
            self.neighbours[switch.name] = tuple(found)

    def ends(self, sender: str, receivers: Iterable[str]) -> Ends:
        """Raises KeyError for who is no server."""
        places = self.places
        here = places[sender]
        below: dict[str, list[Place]] = {}
        rate_bps = here.rate_bps
        for name in receivers:
            place = places[name]
            together = below.get(place.tor)
            if together is None:
                below[place.tor] = [place]
            else:
                together.append(place)
            if place.rate_bps < rate_bps:
                rate_bps = place.rate_bps
        remote = sorted(below)
        if here.tor in below:
            remote.remove(here.tor)
        return Ends(here, below, tuple(remote), rate_bps)

    def depths(self, root: str) -> Mapping[str, int]:
        """Links from one switch to each that it reaches when all links are up."""
        if root not in self._depths:
            depth = {root: 0}
            queue = deque([root])
            while queue:
                node = queue.popleft()
                for near in self.neighbours[node]:
                    if near not in depth:
                        depth[near] = depth[node] + 1
                        queue.append(near)
            self._depths[root] = depth
        return self._depths[root]

    def is_switch(self, node: str) -> bool:
        return node in self.topology.switches

    def links_at(self, ports: Iterable[Port]) -> set[Link]:
        """The links between switches with an end at one of these ports, both ways; parallel ones as long as none of
        them is left are not among them.
        """
        dead = set(ports)
        found: set[Link] = set()
        for switch, port in dead:
            end = self.topology.switches[switch].neighbours.get(port)
            if end is None or end.node not in self.topology.switches:
                continue
            if self._standing(switch, end.node, dead) is None:
                found |= {(switch, end.node), (end.node, switch)}
        return found

    def port(self, node: str, towards: str, dead: Collection[Port] = ()) -> int:
        """A switch's port to a neighbour; around ports in `dead` if there are parallel links."""
        if dead and towards in self.topology.switches:
            standing = self._standing(node, towards, dead)
            if standing is not None:
                return standing
        return self.ports[node, towards]

    def _standing(self, node: str, towards: str, dead: Collection[Port]) -> int | None:
        for port, end in sorted(self.topology.switches[node].neighbours.items()):
            if end.node == towards and (node, port) not in dead and (end.node, end.port) not in dead:
                return port
        return None

    def connected_without(self, links: Collection[Link]) -> bool:
        """Whether every rack still reaches every other one."""
        racks = {server.tor for server in self.topology.servers.values()}
        start = next(iter(racks))
        reached, todo = {start}, deque([start])
        while todo:
            node = todo.popleft()
            for far in self.neighbours[node]:
                if far not in reached and (node, far) not in links and (far, node) not in links:
                    reached.add(far)
                    todo.append(far)
        return racks <= reached
