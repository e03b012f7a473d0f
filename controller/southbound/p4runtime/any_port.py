"""Rules for any port on P4 switches, whose tables match the port exactly: one rule for each port, and back. Pure.

A copy to the port that a packet came by is pruned by the switch, so all ports have the same out ports.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from ipaddress import IPv4Address

from rostrum.controller.core.model import ANY_PORT, MulticastRule


def expand(rules: Iterable[MulticastRule], ports: Sequence[int], barred: bool = False) -> list[MulticastRule]:
    """`ports`: those of the switch that packets may come by. `barred`: those that a rule does not hold for, too, as of
    rules that are to go.
    """
    return [
        one
        for rule in rules
        for one in (_each(replace(rule, barred=()) if barred else rule, ports) if rule.in_port == ANY_PORT else [rule])
    ]


def _each(rule: MulticastRule, ports: Sequence[int]) -> list[MulticastRule]:
    return [replace(rule, in_port=port, barred=()) for port in ports if port not in rule.barred]


def collapse(
    rules: Iterable[MulticastRule], ports: Collection[int], servers: Collection[int] = ()
) -> set[MulticastRule]:
    """What is there for every port alike counts as one rule for any; where there are tenants, for every port but some
    of `servers`, which these are then barred from.
    """
    found = set(rules)
    alike: dict[tuple[IPv4Address, tuple[int, ...], IPv4Address, int], list[MulticastRule]] = defaultdict(list)
    for rule in found:
        alike[rule.group, rule.out_ports, rule.source, rule.level].append(rule)
    for same in alike.values():
        lacking = set(ports) - {rule.in_port for rule in same}
        if len(ports) > 1 and len(same) > bool(lacking) and lacking <= set(servers):
            found -= set(same)
            found.add(replace(same[0], in_port=ANY_PORT, barred=tuple(sorted(lacking))))
    return found
