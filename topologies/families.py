"""Families of data center networks as graphs: fat-tree(k), VL2(da, di), BCube(n, k).

For simulations and for the code that builds multicast trees: nodes, links, rates, and nothing of addresses and ports.
Sources: Al-Fares et al., SIGCOMM 2008; Greenberg et al., SIGCOMM 2009; Guo et al., SIGCOMM 2009.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

GIGABIT = 10**9
NODES_MAX = 65_000


@dataclass
class Graph:
    """`links`: (a, b) -> bit/s, each pair once. `forwards`: servers pass on packets of others (BCube). Names of
    servers, and of nothing else, begin with h.
    """

    name: str
    servers: list[str] = field(default_factory=list)
    switches: list[str] = field(default_factory=list)
    links: dict[tuple[str, str], int] = field(default_factory=dict)
    forwards: bool = False
    neighbours: dict[str, list[str]] = field(default_factory=dict)

    def connect(self, a: str, b: str, rate_bps: int) -> None:
        self.links[a, b] = rate_bps
        self.neighbours.setdefault(a, []).append(b)
        self.neighbours.setdefault(b, []).append(a)

    def passes(self, node: str) -> bool:
        """Whether packets for others may go through a node."""
        return self.forwards or not node.startswith("h")


def fat_tree(k: int, rate_bps: int = GIGABIT) -> Graph:
    """k pods of k/2 edge and k/2 aggregation switches with k ports, (k/2)^2 cores, k^3/4 servers."""
    if k < 2 or k % 2 or 5 * k * k // 4 + k**3 // 4 > NODES_MAX:
        raise ValueError(f"fat-tree({k}): k is even, from 2 to 60")
    half = k // 2
    graph = Graph(f"fat-tree({k})")
    cores = [[f"core{row}.{column}" for column in range(half)] for row in range(half)]
    graph.switches += [name for row in cores for name in row]
    for pod in range(k):
        aggregation = [f"agg{pod}.{index}" for index in range(half)]
        graph.switches += aggregation
        for row, name in enumerate(aggregation):
            for core in cores[row]:
                graph.connect(name, core, rate_bps)
        for index in range(half):
            edge = f"edge{pod}.{index}"
            graph.switches.append(edge)
            for name in aggregation:
                graph.connect(edge, name, rate_bps)
            for slot in range(half):
                server = f"h{pod}.{index}.{slot}"
                graph.servers.append(server)
                graph.connect(server, edge, rate_bps)
    return graph


def vl2(aggregation_ports: int, intermediate_ports: int, per_rack: int = 20, rate_bps: int = GIGABIT) -> Graph:
    """`intermediate_ports` aggregation switches of `aggregation_ports` ports, half of them up to as many intermediate
    switches, half down to racks with two uplinks each; links between switches are ten times as fast.
    """
    da, di = aggregation_ports, intermediate_ports
    if da < 2 or da % 2 or di < 2 or per_rack < 1 or da * di // 4 * (per_rack + 1) > NODES_MAX:
        raise ValueError(f"VL2({da}, {di}): ports of aggregation switches are even, both 2 or more, nodes not too many")
    graph = Graph(f"vl2({da},{di})")
    aggregation = [f"agg{index}" for index in range(di)]
    intermediate = [f"int{index}" for index in range(da // 2)]
    graph.switches += [*aggregation, *intermediate]
    for low, high in product(aggregation, intermediate):
        graph.connect(low, high, 10 * rate_bps)
    for rack in range(da * di // 4):
        tor = f"tor{rack}"
        graph.switches.append(tor)
        for uplink in (2 * rack, 2 * rack + 1):
            graph.connect(tor, aggregation[uplink % di], 10 * rate_bps)
        for slot in range(per_rack):
            server = f"h{rack}.{slot}"
            graph.servers.append(server)
            graph.connect(server, tor, rate_bps)
    return graph


def bcube(n: int, k: int, rate_bps: int = GIGABIT) -> Graph:
    """n^(k+1) servers with k+1 ports and digits a_k ... a_0; the level-i switch joins the n servers that differ only in
    digit i. Servers forward.
    """
    if n < 2 or not 0 <= k < NODES_MAX.bit_length() or n ** (k + 1) * (n + k + 1) // n > NODES_MAX:
        raise ValueError(f"BCube({n}, {k}): n from 2, k from 0, nodes not too many")
    graph = Graph(f"bcube({n},{k})", forwards=True)
    for digits in product(range(n), repeat=k + 1):  # a_k first
        server = "h" + ".".join(map(str, digits))
        graph.servers.append(server)
        for level in range(k + 1):
            place = k - level
            others = digits[:place] + digits[place + 1 :]
            switch = f"w{level}:" + ".".join(map(str, others))
            if digits[place] == 0:
                graph.switches.append(switch)
            graph.connect(server, switch, rate_bps)
    return graph


FAMILIES: dict[str, tuple[Callable[..., Graph], int]] = {
    "fat-tree": (fat_tree, 1),
    "vl2": (vl2, 2),
    "bcube": (bcube, 2),
}


EXAMPLES = "fat-tree:8, vl2:4,4 or bcube:8,3"


def named(text: str) -> Graph:
    """`fat-tree:8`, `vl2:4,4`, `bcube:8,3`. Raises ValueError with the remedy."""
    match = re.fullmatch(r"([a-z0-9-]+):([0-9]{1,5}(?:,[0-9]{1,5})*)", text)
    if match is None or match[1] not in FAMILIES:
        raise ValueError(f"{text!r} is no network; write {EXAMPLES}")
    family, wanted = FAMILIES[match[1]]
    numbers = [int(number) for number in match[2].split(",")]
    if len(numbers) != wanted:
        raise ValueError(f"{text!r} has {len(numbers)} numbers; write {EXAMPLES}")
    return family(*numbers)
