"""Data centers as simulated networks: from a topology file, or of a published family. Trees are the manager's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Protocol

from rostrum.controller.core.packet import fabric, trees
from rostrum.controller.core.packet.steiner import SteinerTree
from rostrum.sim.network import HostParams, LinkParams, Network
from rostrum.topologies.families import Graph
from rostrum.topologies.model import Topology

TreeLinks = Mapping[str, Iterable[str]]  # node -> the nodes it copies a group's packets to


class TreeBuilder(Protocol):
    def __call__(self, sender: str, receivers: list[str]) -> TreeLinks: ...


class Fabric:
    """`servers`: with the rate of their NICs; `links`: (a, b) -> bit/s; `link`: what all links have besides a rate
    (`up`: those from servers to switches);
    `host`: an agent's parameters by server name; None = servers without engines, which only forward.
    """

    def __init__(
        self,
        servers: Mapping[str, int],
        switches: Iterable[str],
        links: Mapping[tuple[str, str], int],
        build: TreeBuilder,
        seed: int,
        link: LinkParams | None = None,
        host: Callable[[str], HostParams] | None = lambda name: HostParams(),
        up: LinkParams | None = None,
    ) -> None:
        self.network = Network(seed)
        self.nodes: dict[str, int] = {}
        self._build = build
        self._trees: dict[int, TreeLinks] = {}
        self._takers: dict[int, set[str]] = {}
        self._seed, self._rates = seed, dict(servers)
        for name in servers:
            self.nodes[name] = self.network.server()
            if host is not None:
                self.use_node(name, host(name))
        for name in switches:
            self.nodes[name] = self.network.switch()
        for (a, b), rate_bps in links.items():
            down = replace(link or LinkParams(), rate_bps=rate_bps)
            ways = [replace(up, rate_bps=rate_bps) if up and end in servers else down for end in (a, b)]
            self.network.link(self.nodes[a], self.nodes[b], *ways)
            for server, switch in ((a, b), (b, a)):
                if server in servers and switch not in servers:
                    self.network.rack(self.nodes[server], self.nodes[switch])
        self.servers = list(servers)

    @classmethod
    def of_topology(
        cls,
        topology: Topology,
        seed: int,
        link: LinkParams | None = None,
        host: Callable[[str], HostParams] | None = lambda name: HostParams(),
    ) -> Fabric:
        """The packet network of a topology file, with the trees that the manager grants."""

        packet_network = fabric.Fabric(topology)

        def build(sender: str, receivers: list[str]) -> TreeLinks:
            copies: dict[str, list[str]] = {sender: [topology.servers[sender].tor]}
            for switch, _, out_ports in trees.build(packet_network, packet_network.ends(sender, receivers)).hops:
                copies[switch] = [topology.switches[switch].neighbours[port].node for port in out_ports]
            return copies

        servers = {name: topology.servers[name].rate_bps for name in sorted(topology.servers)}
        known = {*topology.servers, *topology.switches}
        links = {(one.a.node, one.b.node): one.rate_bps for one in topology.links if {one.a.node, one.b.node} <= known}
        return cls(servers, sorted(topology.switches), links, build, seed, link, host)

    @classmethod
    def of_graph(
        cls,
        graph: Graph,
        seed: int,
        link: LinkParams | None = None,
        host: Callable[[str], HostParams] | None = lambda name: HostParams(),
        up: LinkParams | None = None,
    ) -> Fabric:
        """A fat-tree, VL2 or BCube, with Steiner trees."""

        def build(sender: str, receivers: list[str]) -> TreeLinks:
            return SteinerTree.build(sender, receivers, graph.neighbours, graph.passes).children

        rates = {end: rate_bps for ends, rate_bps in graph.links.items() for end in ends}
        servers = {name: rates[name] for name in graph.servers}
        return cls(servers, graph.switches, graph.links, build, seed, link, host, up)

    def tree(self, group: int, sender: str, receivers: Iterable[str]) -> list[int]:
        """Sets a group's forwarding along the manager's tree; returns the links it uses, the sender's first."""
        members = list(receivers)
        return self.lay(group, sender, members, self._build(sender, members))

    def lay(
        self, group: int, sender: str, members: Iterable[str], copies: TreeLinks, shared: bool = False
    ) -> list[int]:
        """Sets a group's forwarding along a given tree; returns the links it uses, the sender's first. `shared`: every
        member may send to it, both ways along the tree.
        """
        gone = {*self._trees.get(group, ()), *self._takers.get(group, ())}
        self._trees[group] = copies
        takers = {*members, sender} if shared else set(members)
        links: dict[str, list[int]] = {name: [] for name in sorted({*copies, *takers}, key=lambda name: name != sender)}
        for node, ends in copies.items():
            links[node] += [self._link(node, end) for end in ends]
        used = [link for name in links for link in links[name]]
        for node, ends in copies.items() if shared else ():
            for end in ends:
                links.setdefault(end, []).append(self._link(end, node))
        self._takers[group] = takers
        for node, out in links.items():
            self.network.group(self.nodes[node], group, out, member=node in takers)
        for node in gone - set(links):
            self.network.group(self.nodes[node], group, [])
        return used

    def use_node(self, server: str, params: HostParams) -> None:
        """The agent's engine at a server; its seed and its NIC's rate are the server's if it says none."""
        seed = params.seed or self._seed * 1_000_003 + self.nodes[server] + 1
        rate_bps = params.nic_rate_bps or self._rates[server]
        self.network.use_node(self.nodes[server], replace(params, seed=seed, nic_rate_bps=rate_bps))

    def way(self, nodes: Iterable[str]) -> list[int]:
        """The links from each node to the next."""
        return [self._link(a, b) for a, b in pairwise(nodes)]

    def copies(self, group: int) -> TreeLinks:
        """The tree of a group: what each node copies packets to."""
        return self._trees[group]

    def rate(self, server: str) -> int:
        """bit/s of a server's links."""
        return self._rates[server]

    def last_link(self, group: int, receiver: str) -> int:
        """The link of a group's tree that ends at a receiver."""
        return next(self._link(node, receiver) for node, ends in self._trees[group].items() if receiver in ends)

    def _link(self, a: str, b: str) -> int:
        return self.network.link_between(self.nodes[a], self.nodes[b])
