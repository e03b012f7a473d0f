"""Switches that nobody drives (`southbound: none`): they flood multicast, or forward it by IGMP, as agents join.

There is nothing to install and nothing to ask: rules are confirmed at once and remembered, so that what decides needs
to know of no difference. What rules would do besides is not there: priority, a way chosen for a tree, admission by what
links carry, counters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from rostrum.controller.core.model import MulticastRule, RuleCounters, SwitchCounters, SwitchFacts, UnicastRule
from rostrum.topologies.model import Topology


class PlainFabric:
    """Implements `api.SwitchFabric` for all switches of `topology` that have no southbound."""

    port = 0  # nobody connects

    def __init__(self, topology: Topology, on_up: Callable[[str], None]) -> None:
        self._rules: dict[str, set[MulticastRule]] = {
            name: set() for name, switch in topology.switches.items() if switch.southbound == "none"
        }
        self._on_up = on_up

    async def start(self, host: str, port: int) -> None:
        for name in self._rules:
            self._on_up(name)

    async def close(self) -> None:
        pass

    async def install(self, rules: Sequence[MulticastRule]) -> None:
        await self.remove(rules)
        for rule in rules:
            self._rules[rule.switch].add(rule)

    async def remove(self, rules: Sequence[MulticastRule]) -> None:
        for rule in rules:
            held = self._rules[rule.switch]
            held -= {one for one in held if (one.in_port, one.group) == (rule.in_port, rule.group)}

    async def rearm(self, rules: Sequence[MulticastRule]) -> None:
        pass

    async def install_unicast(self, rules: Sequence[UnicastRule]) -> None:
        pass

    async def read(self, switch: str) -> set[MulticastRule]:
        return set(self._rules[switch])

    async def rule_counters(self, rules: Sequence[MulticastRule]) -> list[RuleCounters]:
        return []

    async def switch_counters(self, switch: str) -> SwitchCounters | None:
        return None

    def facts(self, switch: str) -> SwitchFacts | None:
        return None

    def discover(self, ports: Collection[tuple[str, int]] | None = None) -> None:
        pass
