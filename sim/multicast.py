"""One group's session in a simulated data center, by RDCM or a protocol it is compared with (RDCM, Sec. 4.1).

Everything is sent as fast as the sender's link carries it, without congestion control; queues hold what waits. Trees
and overlays are the manager's.
"""

from __future__ import annotations

import random
import resource
import time
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from rostrum.controller.core.packet.steiner import SteinerTree, Unreachable
from rostrum.controller.core.rdcm.overlay import BackupOverlay
from rostrum.sim import hierarchies, views
from rostrum.sim.fabric import Fabric
from rostrum.sim.hierarchies import Region
from rostrum.sim.network import (
    LINK_STATS,
    BaselineParams,
    Child,
    HostParams,
    LinkParams,
    PathParams,
    RdcmParams,
    SimError,
)
from rostrum.topologies.families import Graph

PROTOCOLS = ("rdcm", "lbrm", "rmtp", "tmtp", "srm")
GROUP, FIRST_REGION = 7, 1000  # group numbers
SITE_MOST = 64  # receivers of one logging server: of 16, 32, 64, 128, what LBRM does best with at 1,000
LONGEST_NS, STEP_NS = 60 * 10**9, 10**5
# Every link is full of data: acknowledgements are few, and a fixed time-out (as in the paper's testbed) waits for them.
PAPERS = RdcmParams(no_congestion_control=True, ack_every=64, ack_delay_ns=700_000, ack_timeout_ns=1_200_000)
CONSTANTS = ("paper", "agents")
LINK = LinkParams(delay_ns=1_000, queue_bytes=1 << 30)


def rdcm_of(constants: str, papers: RdcmParams = PAPERS) -> RdcmParams:
    """RDCM's parameters: `papers`, which stand for the paper's in a study, or as agents have them; what is no constant
    of agents (congestion control, when losses are known) is the study's in both.
    """
    if constants == "paper":
        return papers
    return replace(
        RdcmParams.of_agents(),
        no_congestion_control=papers.no_congestion_control,
        loss_delay_ns=papers.loss_delay_ns,
    )


@dataclass(frozen=True)
class Load:
    """`loss`: share of packets lost on every link, in runs of `burst` in the mean (Gilbert)."""

    packets: int = 1024
    packet_bytes: int = 1024
    loss: float = 0.0
    burst: float = 2.0


@dataclass(frozen=True)
class Outcome:
    """Of one session. Goodput: what receivers had, in the mean, when the last packet would have come without losses,
    over what a link carries in that time (its payload share, with headers and Ethernet's overhead). `completion`: the
    same for the time until each had all: the last repairs, of which a long session has no more than a short one, are in
    that. Footprints: bytes on all links over those of the tree without losses; `footprint` of data and repairs,
    `control` of everything else.
    """

    protocol: str
    receivers: int
    loss: float
    goodput: float
    completion: float
    worst: float  # completion of the slowest receiver
    footprint: float
    control: float
    tree_links: int
    events: int
    cpu_s: float
    events_per_s: float
    memory_bytes: int
    peak_bytes: int  # of the process


@dataclass
class Group:
    """Who sends to whom in a data center, and the manager's tree. `random_proxies`: of the backup overlay, as in the
    paper (Fig. 8), instead of the nearest, as the manager has them.
    """

    graph: Graph
    sender: str
    receivers: list[str]
    random_proxies: bool = False

    @classmethod
    def drawn(cls, graph: Graph, receivers: int, seed: int) -> Group:
        """At random. Raises ValueError."""
        if receivers >= len(graph.servers):
            raise ValueError(f"{graph.name} has {len(graph.servers)} servers: no room for {receivers} receivers")
        sender, *others = random.Random(seed).sample(graph.servers, receivers + 1)
        return cls(graph, sender, others)

    @cached_property
    def tree(self) -> SteinerTree:
        # As the paper's in BCube: level by level, every way a shortest one.
        return SteinerTree.shortest(self.sender, self.receivers, self.graph.neighbours, self.graph.passes)

    @cached_property
    def overlay(self) -> BackupOverlay:
        return BackupOverlay.build(self.sender, self.tree.children, self.receivers, at_random=self.random_proxies)

    @cached_property
    def regions(self) -> list[Region]:
        return hierarchies.regions(self.tree)

    @cached_property
    def sites(self) -> list[Region]:
        return hierarchies.sites(self.tree, SITE_MOST)

    @cached_property
    def site_trees(self) -> list[SteinerTree]:
        """LBRM's repairs have trees of their own, off the links of the group's (RDCM, Sec. 6), where there are any."""
        found = []
        for site in self.sites:
            trees = (
                SteinerTree(site.mender, self.graph.neighbours, self.graph.passes, failed)
                for failed in (self.tree.links, ())
            )
            found.append(next(filter(None, (_joined(tree, site) for tree in trees))))
        return found

    @cached_property
    def site_hops(self) -> list[dict[str, int]]:
        return [hierarchies.hops(self.graph.neighbours, site.mender, site.members) for site in self.sites]


def _joined(tree: SteinerTree, site: Region) -> SteinerTree | None:
    try:
        for member in site.members:
            tree.join(member)
    except Unreachable:
        return None
    return tree


class Session:
    """A group's network with the engines of one protocol at its members. `rdcm`: RDCM's parameters."""

    def __init__(self, group: Group, protocol: str, load: Load, seed: int, rdcm: RdcmParams = PAPERS) -> None:
        self.rdcm = rdcm
        self.group, self.protocol, self.load, self.seed = group, protocol, load, seed
        self.fabric = Fabric.of_graph(group.graph, seed, LINK, None)
        self.network = self.fabric.network
        members = group.receivers
        self.links = self.fabric.lay(GROUP, group.sender, members, group.tree.children, shared=protocol == "srm")
        if load.loss:
            for link in range(self.network.link_count()):
                self.network.loss(link, "gilbert", load.loss, load.burst)
        getattr(self, f"_use_{protocol}")()

    def run(self) -> Outcome:
        """Until every receiver has all. Raises SimError if that takes a minute of virtual time."""
        net, load = self.network, self.load
        nodes = [self.fabric.nodes[name] for name in self.group.receivers]
        began = time.process_time()
        self.xfer = net.send(self.fabric.nodes[self.group.sender], 1, load.packets * load.packet_bytes, nodes)
        while net.link_stats(self.links[0])["data_packets"] == 0:
            net.run(net.now_ns + STEP_NS)
        link = net.link_stats(self.links[0])
        first, packet = link["first_data_at"], link["data_bytes"] / link["data_packets"]
        wire_ns = load.packets * packet * 8e9 / LINK.rate_bps
        hops = max(len(self.group.tree.way(name)) - 1 for name in self.group.receivers)
        last = first + wire_ns + (hops - 1) * packet * 8e9 / LINK.rate_bps + hops * LINK.delay_ns
        net.run(round(last))
        had = np.array([self.present(name) for name in self.group.receivers])
        net.run_until_noted("complete", len(nodes), LONGEST_NS)
        cpu_s = time.process_time() - began
        done = net.notes_of("complete")["at"]
        if len(done) < len(nodes):
            raise SimError(f"{self.protocol}: {len(done)} of {len(nodes)} receivers have all after {net.now_ns} ns")
        totals = net.link_totals()
        column = {name: totals[:, index] for index, name in enumerate(LINK_STATS)}
        shares = wire_ns / (done - first)
        tree_bytes = load.packets * packet * len(self.links)
        stats = net.run_stats()
        return Outcome(
            self.protocol,
            len(nodes),
            load.loss,
            goodput=float(np.mean(had)) / load.packets * wire_ns / (last - first),
            completion=float(np.mean(shares)),
            worst=float(np.min(shares)),
            footprint=float(column["data_bytes"].sum() / tree_bytes),
            control=float((column["bytes"].sum() - column["data_bytes"].sum()) / tree_bytes),
            tree_links=len(self.links),
            events=stats["events"],
            cpu_s=cpu_s,
            events_per_s=stats["events"] / max(cpu_s, 1e-9),
            memory_bytes=stats["bytes"] + stats["engine_bytes"],
            peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )

    def present(self, name: str) -> int:
        """Packets that a receiver has so far."""
        node = self.fabric.nodes[name]
        if self.protocol != "rdcm":
            return self.network.baseline_stats(node)["received"]
        number = self.network.receiving(node, 1)
        return self.network.transfer(node, number)["bytes_present"] // self.load.packet_bytes if number else 0

    def stats(self, name: str) -> dict[str, int]:
        """Of a member's engine, by RDCM."""
        node = self.fabric.nodes[name]
        return self.network.transfer(node, self.xfer if name == self.group.sender else self.network.receiving(node, 1))

    # engines

    def _use_rdcm(self) -> None:
        group, nodes = self.group, self.fabric.nodes
        for name in [group.sender, *group.receivers]:
            self.fabric.use_node(name, HostParams(fragment_size=self.load.packet_bytes, rdcm=self.rdcm))
        for name, view in views.of_overlay(group.overlay, nodes, 1):
            self.network.view(nodes[name], 1, view)
        path = PathParams(GROUP, "rdcm", rate_bps=LINK.rate_bps, manager_delay_ns=0)
        self.network.path(nodes[group.sender], path)

    def _params(self, number: int) -> BaselineParams:
        bytes_ = self.load.packet_bytes
        return BaselineParams(self.protocol, GROUP, self.seed * 1_000_003 + number + 1, bytes_, LINK.rate_bps)

    def _use_srm(self) -> None:
        for number, name in enumerate([self.group.sender, *self.group.receivers]):
            params = replace(self._params(number), members=1 + len(self.group.receivers))
            self.network.use_baseline(self.fabric.nodes[name], params)

    def _use_tmtp(self) -> None:
        """RMTP's regions are its domains, in which everybody hears of losses (Sec. 6)."""
        self._use_rmtp(shared=True)

    def _use_rmtp(self, shared: bool = False) -> None:
        """Repairs go along the tree, to one or to a whole region (Sec. 6)."""
        children: dict[str, list[Child]] = {}
        domains: dict[str, int] = {}
        for number, region in enumerate(self.group.regions, FIRST_REGION):
            tree = hierarchies.cut(self.group.tree, region.mender, region.members)
            links = len(self.fabric.lay(number, region.mender, region.members, tree, shared))
            for name in region.members:
                domains[name] = number
                nodes = hierarchies.way(self.group.tree, region.mender, name)
                self.network.route(self.fabric.nodes[region.mender], self.fabric.nodes[name], self.fabric.way(nodes))
                child = Child(self.fabric.nodes[name], len(nodes) - 1, number, links)
                children.setdefault(region.mender, []).append(child)
        self._use_hierarchy(children, domains)

    def _use_lbrm(self) -> None:
        children: dict[str, list[Child]] = {}
        sites = zip(self.group.sites, self.group.site_trees, self.group.site_hops, strict=True)
        for number, (site, tree, hops) in enumerate(sites, FIRST_REGION):
            links = len(self.fabric.lay(number, site.mender, site.members, tree.children))
            children[site.mender] = [Child(self.fabric.nodes[name], hops[name], number, links) for name in site.members]
        self._use_hierarchy(children, {})

    def _use_hierarchy(self, children: dict[str, list[Child]], domains: dict[str, int]) -> None:
        parents = {child.node: self.fabric.nodes[name] for name, below in children.items() for child in below}
        for number, name in enumerate([self.group.sender, *self.group.receivers]):
            node = self.fabric.nodes[name]
            below = tuple(children.get(name, ()))
            params = replace(
                self._params(number), parent=parents.get(node), children=below, domain=domains.get(name, 0)
            )
            self.network.use_baseline(node, params)
