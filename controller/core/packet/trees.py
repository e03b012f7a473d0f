"""Multicast trees through the packet network (steiner.py) as what switches do, and the ways of unicast."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from rostrum.controller.core.packet.fabric import Ends, Fabric, Link, Place, Port
from rostrum.controller.core.packet.steiner import SteinerTree, Unreachable
from rostrum.controller.speed.cache import Cache
from rostrum.topologies.model import Topology

Hop = tuple[str, int, tuple[int, ...]]
"""What one switch of a tree does: its name, the port by which it gets data, the ports it copies them to (sorted). A
plain tuple, because tens of thousands are made and compared in a second.
"""


@dataclass(frozen=True)
class RackTree:
    """The part of a tree that leads from the sender's ToR to those of the receivers; it serves whoever of these racks
    asks next. Nobody changes it.
    """

    nodes: SteinerTree
    hops: tuple[Hop, ...]  # between switches; the sender's ToR first
    rate_bps: int


@dataclass(frozen=True)
class Tree:
    """What switches do for a request."""

    hops: tuple[Hop, ...]  # the sender's ToR first
    rate_bps: int  # of the slowest link
    between: RackTree = field(compare=False)
    below: dict[str, list[Place]] = field(compare=False)  # the receivers by ToR

    @property
    def nodes(self) -> SteinerTree:
        """The tree from the sender's ToR down to the receivers, made again each time: few paths need theirs."""
        return self.between.nodes.with_leaves(
            {tor: [one.server for one in places] for tor, places in self.below.items()}
        )

    @property
    def switches(self) -> frozenset[str]:
        return frozenset(switch for switch, _, _ in self.hops)


class NoTree(Exception):
    """No tree reaches `unreached` (ToRs)."""

    def __init__(self, unreached: list[str]) -> None:
        super().__init__(f"no packet path to {', '.join(unreached)}")
        self.unreached = unreached


RackTrees = Cache[RackTree]  # by sender and other racks' ToRs; of a fabric where all links are up
RACK_TREES_MAX = 4096


def build(
    fabric: Fabric,
    ends: Ends,
    avoid: Collection[str] = (),
    dead: Collection[Port] = (),
    failed: Collection[Link] = (),
    kept: RackTrees | None = None,
) -> Tree:
    """The tree from the sender to the receivers over packet links, around the switches in `avoid`, the ports in
    `dead` and the links in `failed`. `kept`: trees found before, for when nothing has to be avoided.

    Raises NoTree. The same tree for the same request. Different senders' trees take different ones of equally good
    ways (other cores of a fat-tree).
    """
    cut_off = [tor for tor in ends.tors if tor in avoid] if avoid else []
    if failed:
        cut_off += [tor for tor, places in ends.below.items() for one in places if (tor, one.server) in failed]
    if cut_off:
        raise NoTree(sorted(set(cut_off)))
    key = (ends.sender.server, ends.remote)
    found = kept.get(key) if kept is not None else None
    if found is None:
        found = _rack_tree(fabric, ends.sender.server, ends.remote, avoid, dead, failed)
        if kept is not None:
            kept.put(key, found)
    return _with_servers(found, ends)


def _rack_tree(
    fabric: Fabric,
    sender: str,
    racks: Iterable[str],
    avoid: Collection[str],
    dead: Collection[Port],
    failed: Collection[Link],
) -> RackTree:
    """Raises NoTree."""
    root = fabric.topology.servers[sender].tor
    nodes = SteinerTree(
        root,
        fabric.neighbours,
        _passing(fabric, avoid) if avoid else fabric.is_switch,
        {*failed, *(fabric.links_at(dead) if dead else ())},
        spread=zlib.crc32(sender.encode()),
    )
    try:
        whole = not (avoid or dead or failed)
        nodes.join_all(racks, fabric.depths(root) if whole else None)
    except Unreachable as error:
        raise NoTree(sorted(error.receivers)) from error
    hops, rate_bps = hops_of(fabric, sender, nodes, dead)
    return RackTree(nodes, hops, rate_bps)


def _passing(fabric: Fabric, avoid: Collection[str]) -> Callable[[str], bool]:
    """By itself, so that the tree that keeps it is not kept by it in turn."""
    return lambda node: fabric.is_switch(node) and node not in avoid


def _with_servers(between: RackTree, ends: Ends) -> Tree:
    below, hops = ends.below, []
    for switch, in_port, out_ports in between.hops:
        places = below.get(switch)
        if places is not None:
            ports = list(out_ports)
            for one in places:
                ports.append(one.port)
            ports.sort()
            out_ports = tuple(ports)
        hops.append((switch, in_port, out_ports))
    return Tree(tuple(hops), min(between.rate_bps, ends.rate_bps), between, below)


def hops_of(
    fabric: Fabric, sender: str, nodes: SteinerTree, dead: Collection[Port] = ()
) -> tuple[tuple[Hop, ...], int]:
    """What the switches of a tree do, the sender's ToR first, and the rate of its slowest link."""
    source = fabric.topology.servers[sender]
    rate_bps: int = source.rate_bps
    hops: list[Hop] = []
    reached = [(nodes.sender, source.tor_port)]
    for name, in_port in reached:  # and those behind it, as they are added
        out_ports = []
        for child in nodes.children[name]:
            port = fabric.port(name, child, dead)
            out_ports.append(port)
            far_port, rate = fabric.far[name, port]
            if rate < rate_bps:
                rate_bps = rate
            if far_port:
                reached.append((child, far_port))
        out_ports.sort()
        hops.append((name, in_port, tuple(out_ports)))
    return tuple(hops), rate_bps


def nodes_of(fabric: Fabric, sender: str, hops: Iterable[Hop]) -> SteinerTree:
    """The tree that hops came from; what of them leads nowhere is left out."""
    switches = fabric.topology.switches
    ports_of = {switch: out_ports for switch, _, out_ports in hops}
    root = fabric.topology.servers[sender].tor
    parents: dict[str, str] = {}
    queue = deque([root])
    while queue:
        name = queue.popleft()
        for port in ports_of.get(name, ()):
            end = switches[name].neighbours.get(port)
            if end and end.node != root and end.node not in parents:
                parents[end.node] = name
                queue.append(end.node)
    receivers = parents.keys() & fabric.topology.servers.keys()
    return SteinerTree.of(root, parents, receivers, fabric.neighbours, fabric.is_switch, zlib.crc32(sender.encode()))


def links_of(topology: Topology, sender: str, hops: Iterable[Hop]) -> tuple[int, int]:
    """The links of a tree, the sender's own included, and of the ways to each of its servers, all together: L_m and
    the sum of L_u of Chalmers and Almeroth ("Developing a Multicast Metric", 2000).
    """
    ports_of = {switch: out_ports for switch, _, out_ports in hops}
    root = topology.servers[sender].tor
    depths = {root: 1}
    tree = 1
    ways = 0
    queue = deque([root])
    while queue:
        name = queue.popleft()
        for port in ports_of.get(name, ()):
            end = topology.switches[name].neighbours.get(port)
            if end is None or end.node in depths:
                continue
            depths[end.node] = depths[name] + 1
            tree += 1
            if end.node in topology.servers:
                ways += depths[end.node]
            else:
                queue.append(end.node)
    return tree, ways


def unicast_ports(topology: Topology, switch: str, dead: Collection[Port] = ()) -> dict[str, int]:
    """On `switch`, the port towards each server: shortest paths over packet links, none with an end in `dead`; servers
    that cannot be reached so are left out. Of equally short ways each server has its own, so that repairs between
    receivers seldom meet the multicast tree (RDCM, Sec. 3.1). Every hop is nearer: no loops.
    """
    ports: dict[str, int] = {}
    distance = {switch: 0}
    first: dict[str, list[int]] = {switch: []}  # switch -> the ports here by which shortest ways to it leave
    queue = deque([switch])
    while queue:
        name = queue.popleft()
        here = topology.switches[name]
        for port in sorted(here.neighbours):
            end = here.neighbours[port]
            if dead and ((name, port) in dead or (end.node, end.port) in dead):
                continue
            leave = first[name] or [port]
            if end.node in topology.servers:
                ports[end.node] = leave[zlib.crc32(end.node.encode()) % len(leave)]
            elif end.node in topology.switches:
                if end.node not in distance:
                    distance[end.node] = distance[name] + 1
                    first[end.node] = []
                    queue.append(end.node)
                if distance[end.node] == distance[name] + 1:
                    first[end.node] += [one for one in leave if one not in first[end.node]]
    return ports
