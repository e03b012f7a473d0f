"""The P4 switches of a topology behind `api.SwitchFabric`: one `P4Switch` each, all on the caller's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from rostrum.controller.certificates import Trust
from rostrum.controller.core.model import (
    Light,
    MulticastRule,
    RuleCounters,
    SouthboundError,
    SwitchCounters,
    SwitchFacts,
    UnicastRule,
)
from rostrum.controller.southbound.api import OnLight, OnSighting, OnSwitchDown, OnSwitchUp, by_switch, together
from rostrum.controller.southbound.discovery import Discovery, Frames
from rostrum.controller.southbound.p4runtime.pipeline import Pipeline, load
from rostrum.controller.southbound.p4runtime.switch import BACKUPS_SINCE, P4Switch
from rostrum.topologies.model import Topology


class P4RuntimeFabric:
    """Implements `api.SwitchFabric`.

    `on_switch_up(name)` when this manager is a switch's primary and has read it, `on_switch_down(name, cause)` when it
    is no longer either, `on_light(light)` when a switch saw data come through for a rule that it watches.
    """

    def __init__(
        self,
        topology: Topology,
        on_switch_up: OnSwitchUp,
        on_switch_down: OnSwitchDown,
        on_light: OnLight | None = None,
        on_sighting: OnSighting | None = None,
        *,
        election_id: int = 1,
        pipeline: Pipeline | None = None,
        tls: Trust | None = None,
        discovery_key: bytes = b"",
    ) -> None:
        self._topology, self._pipeline, self._election_id = topology, pipeline, election_id
        self._on_up, self._on_down, self._on_light = on_switch_up, on_switch_down, on_light or _ignore
        self._tls = tls
        self._names = {one.name for one in topology.switches.values() if one.p4}
        self._switches: dict[str, P4Switch] = {}
        self._discovery = (
            Discovery(topology, discovery_key, lambda: self.up, self._send, on_sighting) if on_sighting else None
        )
        self._sending: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> None:
        """Connects to the switches, where the topology says they are; `host` and `port` are not needed.

        Raises SouthboundError if the P4 program cannot be read.
        """
        pipeline = self._pipeline or load()
        for name in sorted(self._names):
            self._switches[name] = P4Switch(
                self._topology.switches[name], self._topology, pipeline, self._election_id,
                self._on_up, self._on_down, self._on_light, self._tls, self._discovery,
            )  # fmt: skip
            self._switches[name].start()
        if self._discovery:
            self._discovery.start()

    def lead(self, term: int) -> None:
        """`start` stands for election with this id."""
        self._election_id = term

    async def close(self) -> None:
        if self._discovery:
            self._discovery.close()
        await asyncio.gather(*(one.close() for one in self._switches.values()))

    @property
    def up(self) -> set[str]:
        """Names of the switches that take orders."""
        return {name for name, one in self._switches.items() if one.up}

    async def install(self, rules: Sequence[MulticastRule]) -> None:
        await together(self._switch(name).install(own) for name, own in by_switch(rules).items())

    async def remove(self, rules: Sequence[MulticastRule]) -> None:
        await together(self._switch(name).remove(own) for name, own in by_switch(rules).items())

    async def rearm(self, rules: Sequence[MulticastRule]) -> None:
        await together(self._switch(name).rearm(own) for name, own in by_switch(rules).items())

    async def install_unicast(self, rules: Sequence[UnicastRule]) -> None:
        """As `api.SwitchFabric`; the rules given are all there shall be on each of their switches: stale ones go."""
        await together(self._switch(name).install_unicast(own) for name, own in by_switch(rules).items())

    async def read(self, switch: str) -> set[MulticastRule]:
        return await self._switch(switch).read()

    async def rule_counters(self, rules: Sequence[MulticastRule]) -> list[RuleCounters]:
        parts = await together(self._switch(name).rule_counters(own) for name, own in by_switch(rules).items())
        return [one for part in parts for one in part]

    def facts(self, switch: str) -> SwitchFacts | None:
        one = self._switches[switch]
        if not one.up:
            return None
        text = ".".join(map(str, one.version)) if one.version > (0,) else "of an unknown version"
        return SwitchFacts(f"P4Runtime {text}", copies="groups", marks="DSCP", failover=one.version >= BACKUPS_SINCE)

    def discover(self, ports: Collection[tuple[str, int]] | None = None) -> None:
        if self._discovery:
            self._discovery.round(ports)

    def _send(self, switch: str, frames: Frames) -> None:
        task = asyncio.create_task(self._switches[switch].send_out(frames))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def switch_counters(self, switch: str) -> SwitchCounters | None:
        return await self._switch(switch).counters()

    def _switch(self, name: str) -> P4Switch:
        if name not in self._switches:
            known = "is not connected" if name in self._names else "is not a P4 switch of this topology"
            raise SouthboundError(f"{name} {known}")
        return self._switches[name]


def _ignore(light: Light) -> None:
    """Nobody asked."""
