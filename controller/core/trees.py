"""Multicast trees through the packet network: shortest paths from the sender's ToR that share links where they can."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rostrum.topologies.model import Topology


@dataclass(frozen=True)
class Hop:
    """What one switch of a tree does: copies what enters `in_port` to `out_ports`."""

    switch: str
    in_port: int
    out_ports: tuple[int, ...]


@dataclass(frozen=True)
class Tree:
    hops: tuple[Hop, ...]  # the sender's ToR first
    rate_bps: int  # of the slowest link

    @property
    def switches(self) -> frozenset[str]:
        return frozenset(hop.switch for hop in self.hops)


class NoTree(Exception):
    """No tree reaches `unreached` (ToRs)."""

    def __init__(self, unreached: list[str]) -> None:
        super().__init__(f"no packet path to {', '.join(unreached)}")
        self.unreached = unreached


def build(topology: Topology, sender: str, receivers: Iterable[str], avoid: Collection[str] = ()) -> Tree:
    """The tree from `sender` to `receivers` (servers) over packet links, around the switches in `avoid`.

    Raises NoTree. The breadth-first search visits neighbours in port order, so that all receivers hang below the first
    core that reaches them: few rules, and the same tree for the same request.
    """
    source = topology.servers[sender]
    targets = [topology.servers[name] for name in receivers]
    wanted = {server.tor for server in targets}
    parents = _search(topology, source.tor, wanted, avoid)
    unreached = sorted(wanted - parents.keys())
    if unreached or source.tor in avoid:
        raise NoTree(unreached or [source.tor])
    in_port = {source.tor: source.tor_port}
    out_ports: dict[str, set[int]] = {source.tor: set()}
    rates = [source.rate_bps]
    for server in targets:
        switch = server.tor
        out_ports.setdefault(switch, set()).add(server.tor_port)
        rates.append(server.rate_bps)
        while (edge := parents[switch]) is not None:
            parent, port, own_port = edge
            in_port[switch] = own_port
            rates.append(topology.switches[parent].rates[port])
            ports = out_ports.setdefault(parent, set())
            if port in ports:
                break
            ports.add(port)
            switch = parent
    order = [name for name in parents if name in out_ports]
    hops = tuple(Hop(name, in_port[name], tuple(sorted(out_ports[name]))) for name in order)
    return Tree(hops, min(rates))


def _search(
    topology: Topology, root: str, wanted: set[str], avoid: Collection[str]
) -> dict[str, tuple[str, int, int] | None]:
    """Breadth first from `root`: switch -> (parent, the parent's port, its own port), in the order found."""
    parents: dict[str, tuple[str, int, int] | None] = {root: None}
    missing = wanted - {root}
    queue = deque([root])
    while queue and missing:
        name = queue.popleft()
        switch = topology.switches[name]
        for port in sorted(switch.neighbours):
            end = switch.neighbours[port]
            if end.node in topology.switches and end.node not in parents and end.node not in avoid:
                parents[end.node] = (name, port, end.port)
                missing.discard(end.node)
                queue.append(end.node)
    return parents


def unicast_ports(topology: Topology, switch: str) -> dict[str, int]:
    """On `switch`, the port towards each server: shortest paths over packet links."""
    ports: dict[str, int] = {}
    first: dict[str, int | None] = {switch: None}
    queue = deque([switch])
    while queue:
        name = queue.popleft()
        here = topology.switches[name]
        for port in sorted(here.neighbours):
            end = here.neighbours[port]
            leave = first[name] if first[name] is not None else port
            if end.node in topology.switches and end.node not in first:
                first[end.node] = leave
                queue.append(end.node)
            elif end.node in topology.servers and leave is not None:
                ports[end.node] = leave
    return ports
