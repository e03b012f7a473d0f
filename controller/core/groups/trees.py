"""Shared multicast trees of message groups: any server may send, and nothing loops.

All trees of one root are parts of one spanning tree of the packet network. On a switch, a group's rule takes packets
from any port and copies them to the tree's ports except the one they came by; so a packet walks the tree away from its
sender and reaches every port of it once. While receivers come and go, switches may for a moment follow older and newer
trees: each is a part of the same spanning tree, and so is the mixture; it cannot loop. A tree never changes its root.

Sets of servers are int masks: bit i is the i-th server by name.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator

from rostrum.topologies.model import Topology

Ports = dict[str, tuple[int, ...]]  # switch -> out ports of a tree


def bits(mask: int) -> Iterator[int]:
    """Places of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Places:
    """Servers by number, and the racks they are in."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.names = sorted(topology.servers)
        self.number = {name: i for i, name in enumerate(self.names)}
        self.tors = sorted({server.tor for server in topology.servers.values()})
        self.rack_of = [self.tors.index(topology.servers[name].tor) for name in self.names]
        self.port_of = [topology.servers[name].tor_port for name in self.names]
        self.in_rack = [0] * len(self.tors)
        for i, rack in enumerate(self.rack_of):
            self.in_rack[rack] |= 1 << i

    def racks(self, servers: int) -> int:
        """The mask of racks in which these servers are."""
        found = 0
        while servers:
            rack = self.rack_of[(servers & -servers).bit_length() - 1]
            found |= 1 << rack
            servers &= ~self.in_rack[rack]
        return found

    def named(self, servers: int) -> list[str]:
        return [self.names[i] for i in bits(servers)]


class Spanning:
    """The spanning tree from `root`, breadth first in port order, without links that have an end in `dead`: (switch,
    port).
    """

    def __init__(self, places: Places, root: str, dead: Collection[tuple[str, int]] = ()) -> None:
        self.root = root
        self._places = places
        self._parents = _parents(places.topology, root, dead)
        self.reached = sum(1 << i for i, tor in enumerate(places.tors) if tor in self._parents)
        self._ways: list[tuple[str, ...]] = [self._way(tor) for tor in places.tors]

    def _way(self, tor: str) -> tuple[str, ...]:
        """From a rack's switch up to the root."""
        way = [tor] if tor in self._parents else []
        while way and (edge := self._parents[way[-1]]) is not None:
            way.append(edge[0])
        return tuple(way)

    def ports(self, receivers: int, senders: int) -> Ports:
        """The tree that brings what anyone of both sends to every receiver: no switch above the lowest that all have
        in common, and no way down to racks that only send. Empty when there is nobody to send to.
        """
        places = self._places
        if (receivers | senders).bit_count() < 2 or not receivers:
            return {}
        receiving = places.racks(receivers) & self.reached
        racks = (receiving | places.racks(senders)) & self.reached
        out: dict[str, set[int]] = {}
        for i in bits(receivers):
            if receiving >> places.rack_of[i] & 1:
                out.setdefault(places.tors[places.rack_of[i]], set()).add(places.port_of[i])
        if racks.bit_count() > 1:
            self._join(receiving, racks, out)
        return {name: tuple(sorted(ports)) for name, ports in out.items()}

    def _join(self, receiving: int, racks: int, out: dict[str, set[int]]) -> None:
        below: Counter[str] = Counter()
        receiving_below: Counter[str] = Counter()
        for rack in bits(racks):
            below.update(self._ways[rack])
            if receiving >> rack & 1:
                receiving_below.update(self._ways[rack])
        count, receiving_count = racks.bit_count(), receiving.bit_count()
        for switch, under in below.items():
            if under == count:
                continue  # the top of the tree, or above it
            edge = self._parents[switch]
            assert edge is not None
            parent, port, own_port = edge
            if receiving_below[switch]:
                out.setdefault(parent, set()).add(port)
            if receiving_below[switch] < receiving_count:
                out.setdefault(switch, set()).add(own_port)


def _parents(
    topology: Topology, root: str, dead: Collection[tuple[str, int]]
) -> dict[str, tuple[str, int, int] | None]:
    """Switch -> (parent, the parent's port, its own port)."""
    parents: dict[str, tuple[str, int, int] | None] = {root: None}
    queue = deque([root])
    while queue:
        name = queue.popleft()
        for port, end in sorted(topology.switches[name].neighbours.items(), key=lambda one: one[0]):
            if (name, port) in dead or (end.node, end.port) in dead:
                continue
            if end.node in topology.switches and end.node not in parents:
                parents[end.node] = (name, port, end.port)
                queue.append(end.node)
    return parents


def packet_ports(topology: Topology, switch: str) -> list[int]:
    """The ports by which packets of the packet network come: not those to optical switches."""
    ends = topology.switches[switch].neighbours
    return sorted(port for port, end in ends.items() if end.node in topology.servers or end.node in topology.switches)


def roots(topology: Topology) -> list[str]:
    """Where trees may have their root: the core switches that are farthest from the servers, so that ways down are
    short; in a network without any, every switch that has servers.
    """
    tors = sorted({server.tor for server in topology.servers.values()})
    level = dict.fromkeys(tors, 0)
    queue = deque(tors)
    while queue:
        name = queue.popleft()
        for end in topology.switches[name].neighbours.values():
            if end.node in topology.switches and end.node not in level:
                level[end.node] = level[name] + 1
                queue.append(end.node)
    cores = {name: far for name, far in level.items() if topology.switches[name].role == "core"}
    top = max(cores.values(), default=0)
    return sorted(name for name, far in cores.items() if far == top) or tors
