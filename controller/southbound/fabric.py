"""All packet switches of a topology, whatever they speak: each order goes to the driver of its switch's kind."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

from rostrum.controller.core.model import (
    MulticastRule,
    RuleCounters,
    SouthboundError,
    SwitchCounters,
    SwitchFacts,
    UnicastRule,
)
from rostrum.controller.southbound.api import R, SwitchFabric, together
from rostrum.topologies.model import Topology


@runtime_checkable
class Leader(Protocol):
    """Drivers whose switches can tell a leader from a deposed one."""

    def lead(self, term: int) -> None: ...


@runtime_checkable
class Follower(Protocol):
    """Drivers whose switches connect by themselves, to standbys too."""

    async def stand_by(self, host: str, port: int) -> None: ...

    def follow(self, term: int) -> None: ...


class MixedFabric:
    """Implements `api.SwitchFabric` over the drivers in `fabrics`, by the switches' `southbound` in the topology."""

    def __init__(self, topology: Topology, fabrics: Mapping[str, SwitchFabric]) -> None:
        self._fabrics = fabrics
        self._of = {name: fabrics[switch.southbound] for name, switch in topology.switches.items()}

    @property
    def port(self) -> int:
        """Where OpenFlow switches connect; 0 if there are none."""
        return max((int(getattr(fabric, "port", 0)) for fabric in self._fabrics.values()), default=0)

    async def start(self, host: str, port: int) -> None:
        for fabric in self._fabrics.values():
            await fabric.start(host, port)

    async def stand_by(self, host: str, port: int) -> None:
        """Lets switches connect, and gives them no orders: another manager does. Raises as `start`."""
        for fabric in self._fabrics.values():
            if isinstance(fabric, Follower):
                await fabric.stand_by(host, port)

    def follow(self, term: int) -> None:
        """While it stands by: another manager leads in this term."""
        for fabric in self._fabrics.values():
            if isinstance(fabric, Follower):
                fabric.follow(term)

    def lead(self, term: int) -> None:
        """From `start` on, switches obey this manager, if no other with a higher term leads."""
        for fabric in self._fabrics.values():
            if isinstance(fabric, Leader):
                fabric.lead(term)

    async def close(self) -> None:
        await asyncio.gather(*(fabric.close() for fabric in self._fabrics.values()))

    async def install(self, rules: Sequence[MulticastRule]) -> None:
        await together(fabric.install(own) for fabric, own in self._shares(rules))

    async def remove(self, rules: Sequence[MulticastRule]) -> None:
        await together(fabric.remove(own) for fabric, own in self._shares(rules))

    async def rearm(self, rules: Sequence[MulticastRule]) -> None:
        await together(fabric.rearm(own) for fabric, own in self._shares(rules))

    async def install_unicast(self, rules: Sequence[UnicastRule]) -> None:
        await together(fabric.install_unicast(own) for fabric, own in self._shares(rules))

    async def read(self, switch: str) -> set[MulticastRule]:
        return await self.driver(switch).read(switch)

    async def rule_counters(self, rules: Sequence[MulticastRule]) -> list[RuleCounters]:
        parts = await together(fabric.rule_counters(own) for fabric, own in self._shares(rules))
        return [one for part in parts for one in part]

    async def switch_counters(self, switch: str) -> SwitchCounters | None:
        return await self.driver(switch).switch_counters(switch)

    def facts(self, switch: str) -> SwitchFacts | None:
        return self.driver(switch).facts(switch)

    def discover(self, ports: Collection[tuple[str, int]] | None = None) -> None:
        for fabric in self._fabrics.values():
            fabric.discover(ports)

    def driver(self, switch: str) -> SwitchFabric:
        """Whose switch it is. Raises SouthboundError."""
        if switch not in self._of:
            raise SouthboundError(f"{switch} is not a switch of this topology")
        return self._of[switch]

    def _shares(self, rules: Sequence[R]) -> list[tuple[SwitchFabric, list[R]]]:
        shares = {
            id(fabric): (fabric, [rule for rule in rules if self.driver(rule.switch) is fabric])
            for fabric in self._fabrics.values()
        }
        return [share for share in shares.values() if share[1]]
