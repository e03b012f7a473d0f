"""Four sites of three servers in a file: the sender's and three others, joined by nothing that carries multicast."""

from __future__ import annotations

from rostrum.topologies import load_text
from rostrum.topologies.model import Topology

SITES = ("home", "east", "west", "south")


def text(more: str = "") -> str:
    """`more` goes behind the sites' servers and relays: `east: "nat: true"` and its like, a line each."""
    extra = dict(part.split(":", 1) for part in more.splitlines() if part)
    switches, servers, links, sites = [], [], [], []
    for number, site in enumerate(SITES):
        switches.append(f"  {site}-tor: {{role: tor, dpid: {number + 1}}}")
        names = [f"{site}-{host}" for host in (1, 2, 3)]
        for host, name in enumerate(names, 1):
            servers.append(f"  {name}: {{address: 10.0.{number}.{host}, management: 10.255.{number + 1}.{host}}}")
            links.append(f'  - {{a: {name}, b: "{site}-tor:{host}", rate: 1G}}')
        sites.append(f"  {site}: {{servers: [{', '.join(names)}]{',' + extra[site] if site in extra else ''}}}")
    return "\n".join(
        [
            "rostrum: 1",
            "name: sites",
            "network: {data: 10.0.0.0/16, management: 10.255.0.0/16, multicast: 239.192.0.0/16}",
            "manager: {address: 10.255.0.1}",
            "switches:", *switches, "servers:", *servers, "links:", *links, "sites:", *sites, "",
        ]
    )  # fmt: skip


def topology(more: str = "") -> Topology:
    return load_text(text(more))
