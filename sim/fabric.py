"""A data center of a topology file as a simulated network; trees come from the manager's own code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from rostrum.controller.core import trees
from rostrum.sim.network import HostParams, LinkParams, Network
from rostrum.topologies.model import Topology


class Fabric:
    """The packet network: servers, switches, links with the topology's rates. `link`: their other parameters; `host`:
    an agent's parameters by server name.
    """

    def __init__(
        self,
        topology: Topology,
        seed: int,
        link: LinkParams | None = None,
        host: Callable[[str], HostParams] = lambda name: HostParams(),
    ) -> None:
        self.topology = topology
        self.network = Network(seed)
        self.nodes: dict[str, int] = {}
        for number, name in enumerate(sorted(topology.servers), 1):
            params = host(name)
            rate_bps = params.nic_rate_bps or topology.servers[name].rate_bps
            self.nodes[name] = self.network.host(replace(params, seed=seed * 1_000_003 + number, nic_rate_bps=rate_bps))
        for name in sorted(topology.switches):
            self.nodes[name] = self.network.switch()
        for one in topology.links:
            if one.a.node in self.nodes and one.b.node in self.nodes:
                both = replace(link or LinkParams(), rate_bps=one.rate_bps)
                self.network.link(self.nodes[one.a.node], self.nodes[one.b.node], both)

    def tree(self, group: int, sender: str, receivers: Iterable[str]) -> list[int]:
        """Sets a group's forwarding along the manager's tree; returns the links it uses."""
        members = list(receivers)
        used = [self._link(sender, self.topology.servers[sender].tor)]
        self.network.group(self.nodes[sender], group, used)
        for hop in trees.build(self.topology, sender, members).hops:
            ends = [self.topology.switches[hop.switch].neighbours[port].node for port in hop.out_ports]
            links = [self._link(hop.switch, end) for end in ends]
            self.network.group(self.nodes[hop.switch], group, links)
            used += links
        for name in members:
            self.network.group(self.nodes[name], group, [], member=True)
        return used

    def downlink(self, server: str) -> int:
        """The link from its ToR switch to a server."""
        return self._link(self.topology.servers[server].tor, server)

    def _link(self, a: str, b: str) -> int:
        return self.network.link_between(self.nodes[a], self.nodes[b])
