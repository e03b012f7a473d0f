"""From plans to switch rules: multicast rules of a path, unicast rules of the topology."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from ipaddress import IPv4Address

from rostrum.controller.core.circuits.splitters import Cascade
from rostrum.controller.core.model import ANY_SOURCE, LEVEL_MULTICAST, MulticastRule, UnicastRule
from rostrum.controller.core.packet.fabric import Ends
from rostrum.controller.core.packet.trees import Hop, unicast_ports
from rostrum.topologies.model import Topology

RuleKey = tuple[str, int, IPv4Address]


def key(rule: MulticastRule) -> RuleKey:
    """What makes two rules the same entry of a switch's table: the later one replaces the earlier one's outputs."""
    return rule.switch, rule.in_port, rule.group


def circuit_hops(ends: Ends, cascade: Cascade) -> tuple[Hop, ...]:
    """Only first and last hop are packet-switched (paper, Sec. II): the sender's ToR to the uplink and its own
    receivers, each receivers' ToR from its downlink to its receivers.
    """
    source, below = ends.sender, ends.below
    near = [one.port for one in below.get(source.tor, ())]
    hops = [(source.tor, source.port, tuple(sorted([cascade.uplink.tor_port, *near])))]
    for downlink in cascade.downlinks:
        places = below.get(downlink.tor)
        if places is not None:  # else the circuit is for others too
            hops.append((downlink.tor, downlink.tor_port, tuple(sorted([one.port for one in places]))))
    return tuple(hops)


def holds(found: MulticastRule | None, wanted: MulticastRule) -> bool:
    """Whether what a switch has does what is wanted; switches that do not look at sources say so by ANY_SOURCE."""
    if found is None or (found.out_ports, found.level, found.barred) != (wanted.out_ports, wanted.level, wanted.barred):
        return False
    return found.source in (ANY_SOURCE, wanted.source)


def multicast(
    hops: Iterable[Hop],
    group: IPv4Address,
    source: IPv4Address = ANY_SOURCE,
    level: int = LEVEL_MULTICAST,
    confirm: int = 0,
    racks: Collection[str] = (),
) -> tuple[MulticastRule, ...]:
    """One rule for each hop. The switches in `racks` watch for first light: `confirm` data packets in a row."""
    return tuple(
        [
            MulticastRule(switch, in_port, group, out_ports, source, level, confirm if switch in racks else 0)
            for switch, in_port, out_ports in hops
        ]
    )


def unicast(topology: Topology, switch: str, dead: Collection[tuple[str, int]] = ()) -> tuple[UnicastRule, ...]:
    """Every server's address on one switch, around the links with an end in `dead`."""
    ports = unicast_ports(topology, switch, dead)
    return tuple(UnicastRule(switch, topology.servers[name].address, port) for name, port in sorted(ports.items()))
