"""Topology files of the families (families.py): the same networks with addresses, ports and controllers.

A server that forwards (BCube) has its NICs in a software switch on it, which the manager controls like any other: the
server itself is the only thing at that switch's port 1, its NICs are the ports after that.
"""

from __future__ import annotations

from dataclasses import dataclass

from rostrum.topologies.families import Graph

RACKS_MAX = 127 * 256  # a /24 each in 10.0.0.0/9; what is above 10.254 belongs to the manager
SLOTS_MAX = 250


@dataclass(frozen=True)
class Options:
    mtu: int = 9000
    name: str = ""  # of the data center; default: the family's with its numbers


def file_name(name: str) -> str:
    """As names in topology files are: `h0.1.2` -> `h0-1-2`, `w0:1` -> `w0-1`, `fat-tree(4)` -> `fat-tree-4`."""
    return name.translate(str.maketrans(".:(,", "----", ")")).rstrip("-")


def switch_on(server: str) -> str:
    """The software switch on a server that forwards: `b0-1` on `h0-1`."""
    return "b" + server.removeprefix("h")


def fabric(graph: Graph, options: Options | None = None) -> str:
    """The topology file of a network, YAML. Raises ValueError if addresses do not suffice."""
    options = options or Options()
    racks = _racks(graph)
    if len(racks) > RACKS_MAX or max(map(len, racks.values())) > SLOTS_MAX:
        raise ValueError(f"{graph.name}: at most {RACKS_MAX} racks of {SLOTS_MAX} servers have addresses")
    about = f"{graph.name}: {len(graph.servers)} servers, {len(graph.switches)} switches"
    lines = [
        f"# {about}{'; servers forward, each by a software switch b... on it' if graph.forwards else ''}.",
        "rostrum: 1",
        f"name: {options.name or file_name(graph.name)}",
        "network:",
        "  data: 10.0.0.0/9",
        "  management: 10.128.0.0/9",
        "  multicast: 239.192.0.0/16",
        f"  mtu: {options.mtu}",
        "manager: {address: 10.255.0.1, openflow_port: 6653, thrift_port: 9090, rest_port: 8080}",
        "agent: {control_port: 7071, data_port: 7070}",
        "switches:",
    ]
    tors = set(racks)
    for dpid, name in enumerate(graph.switches, 1):
        role = "tor" if name in tors else "core"
        lines.append(f"  {file_name(name)}: {{role: {role}, southbound: openflow, dpid: {dpid}}}")
    for dpid, name in enumerate(graph.servers if graph.forwards else (), len(graph.switches) + 1):
        server = file_name(name)
        lines.append(f"  {switch_on(server)}: {{role: tor, southbound: openflow, dpid: {dpid}, server: {server}}}")
    lines.append("servers:")
    for number, servers in enumerate(racks.values()):
        high, low = divmod(number, 256)
        for slot, name in enumerate(servers, 1):
            lines.append(
                f"  {file_name(name)}: {{address: 10.{high}.{low}.{slot}, management: 10.{128 + high}.{low}.{slot}}}"
            )
    return "\n".join([*lines, "links:", *_links(graph)]) + "\n"


def _racks(graph: Graph) -> dict[str, list[str]]:
    """ToR -> its servers; a server that forwards is a rack of its own."""
    if graph.forwards:
        return {server: [server] for server in graph.servers}
    racks: dict[str, list[str]] = {}
    for server in graph.servers:
        racks.setdefault(graph.neighbours[server][0], []).append(server)
    return racks


def _links(graph: Graph) -> list[str]:
    """Ports are numbered as links come, those of servers first."""
    used: dict[str, int] = {}

    def end(node: str) -> str:
        used[node] = used.get(node, 0) + 1
        return f'"{node}:{used[node]}"'

    def row(a: str, b: str, rate_bps: int) -> str:
        return f"  - {{a: {a}, b: {b}, rate: {_rate(rate_bps)}}}"

    lines = []
    if graph.forwards:
        for name in graph.servers:
            server = file_name(name)
            lines.append(row(server, end(switch_on(server)), sum(_rates(graph, name))))
    by_servers_first = sorted(graph.links.items(), key=lambda one: not _server_in(graph, one[0]))
    for (a, b), rate_bps in by_servers_first:
        ends = [file_name(a), file_name(b)]
        if graph.forwards:
            ends = [switch_on(end) if end.startswith("h") else end for end in ends]
        first, second = (one if one.startswith("h") else end(one) for one in ends)
        lines.append(row(first, second, rate_bps))
    return lines


def _rates(graph: Graph, node: str) -> list[int]:
    """Of all links of a node."""
    return [graph.links.get((node, far)) or graph.links[far, node] for far in graph.neighbours[node]]


def _server_in(graph: Graph, pair: tuple[str, str]) -> bool:
    return pair[0].startswith("h") or pair[1].startswith("h")


def _rate(rate_bps: int) -> str:
    for unit, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if rate_bps % unit == 0:
            return f"{rate_bps // unit}{letter}"
    return str(rate_bps)
