"""Rules for any port on P4 switches, whose tables match the port exactly: one rule for each port, and back. Pure.

A copy to the port that a packet came by is pruned by the switch, so all ports have the same out ports.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from ipaddress import IPv4Address

from rostrum.controller.core.model import ANY_PORT, MulticastRule


def expand(rules: Iterable[MulticastRule], ports: Sequence[int]) -> list[MulticastRule]:
    """`ports`: those of the switch that packets may come by."""
    return [
        one
        for rule in rules
        for one in ([replace(rule, in_port=port) for port in ports] if rule.in_port == ANY_PORT else [rule])
    ]


def collapse(rules: Iterable[MulticastRule], ports: Collection[int]) -> set[MulticastRule]:
    """What is there for every port alike counts as one rule for any."""
    found = set(rules)
    alike: dict[tuple[IPv4Address, tuple[int, ...], IPv4Address, int], list[MulticastRule]] = defaultdict(list)
    for rule in found:
        alike[rule.group, rule.out_ports, rule.source, rule.level].append(rule)
    for same in alike.values():
        if len(ports) > 1 and {rule.in_port for rule in same} == set(ports):
            found -= set(same)
            found.add(replace(same[0], in_port=ANY_PORT))
    return found
