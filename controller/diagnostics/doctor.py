"""`GET /v1/doctor`: asks switches for their rules, the OCS for its powers and agents for their facts, all at once and
each within a bound, and has `core/diagnostics/diagnosis.py` say what is wrong.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from rostrum.controller.core.diagnostics.diagnosis import AgentFacts, Evidence, Unreached, diagnose
from rostrum.controller.core.diagnostics.findings import Finding
from rostrum.controller.core.model import MulticastRule, SouthboundError
from rostrum.controller.core.values import ServerAddress
from rostrum.controller.northbound.thrift.probes import Kind, Probes
from rostrum.controller.runtime.runtime import Runtime

FACTS_S = 1.0
REACH_S = 1.5
REFRESH_S = 3.0
DISCOVERY_S = 0.5  # for frames sent now to come in
NEIGHBOURS = 3  # other agents that each one is asked to connect to
AT_A_TIME = 64  # agents asked at once


class Doctor:
    def __init__(
        self, runtime: Runtime, probes: Probes, version: str, certificates: Callable[[], Mapping[str, float]] = dict
    ) -> None:
        """`certificates`: as `Evidence` has them, now."""
        self._runtime = runtime
        self._probes = probes
        self._version = version
        self._certificates = certificates
        self._running: asyncio.Task[list[Finding]] | None = None

    async def examine(self) -> list[Finding]:
        """What is wrong, causes first. Whoever asks while an examination is under way gets its outcome."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._examine())
        return await asyncio.shield(self._running)

    async def _examine(self) -> list[Finding]:
        core = self._runtime.manager.core
        devices = self._runtime.devices
        if devices:
            devices.discover()
        agents, unreached, rules, _ = await asyncio.gather(
            self._facts(), self._reach(), self._rules(), self._powers(), return_exceptions=False
        )
        await asyncio.sleep(DISCOVERY_S)
        certificates = self._certificates()
        names = [name for name in core.topology.switches if name not in core.resources.switches_down]
        switches = {name: facts for name in names if devices and (facts := devices.facts(name))}
        evidence = Evidence(self._version, rules, self._changing(), agents, unreached, certificates, switches)
        found = diagnose(core, evidence, self._runtime.clock())
        if not any(one.check == "rules" for one in found):
            return found
        # A path may have come or gone while its switch was read: what stays different is wrong.
        rules = await self._rules()
        evidence = replace(evidence, rules=rules, changing=self._changing())
        return diagnose(core, evidence, self._runtime.clock())

    def _changing(self) -> set[str]:
        core = self._runtime.manager.core
        return {rule.switch for one in core.rule_ops.values() for rule in one.rules}

    def _connected(self) -> list[str]:
        return sorted(name for name, one in self._runtime.manager.core.agents.items() if one.connected)

    async def _facts(self) -> dict[str, AgentFacts]:
        bound = asyncio.Semaphore(AT_A_TIME)

        async def one(name: str) -> AgentFacts:
            async with bound:
                began = time.time_ns()
                report = await self._probes.order(name, Kind.FACTS, FACTS_S).report()
                rtt = time.time_ns() - began
            off = report.wall_clock_ns - (began + rtt // 2)
            facts = (report.software, report.interface, report.mtu, report.rate_bps)
            return AgentFacts(name, report.cause, *facts, off if report.wall_clock_ns else 0, rtt // 2)

        return {facts.server: facts for facts in await asyncio.gather(*(one(name) for name in self._connected()))}

    async def _reach(self) -> list[Unreached]:
        """Each agent connects to the next few, in the order of their names, those of other racks among them."""
        core, names = self._runtime.manager.core, self._connected()
        steps = sorted({1, *(len(names) * part // (NEIGHBOURS + 1) for part in range(1, NEIGHBOURS + 1))} - {0})
        bound = asyncio.Semaphore(AT_A_TIME)

        async def one(index: int) -> list[Unreached]:
            name = names[index]
            others = {names[(index + step) % len(names)] for step in steps} - {name}
            servers = [
                ServerAddress(to, str(core.topology.servers[to].address), core.agents[to].control_port)
                for to in sorted(others)
            ]
            if not servers:
                return []
            async with bound:
                report = await self._probes.order(name, Kind.REACH, REACH_S, servers=servers).report()
            return [Unreached(name, each.server, each.cause) for each in report.reached if each.cause]

        return [each for part in await asyncio.gather(*map(one, range(len(names)))) for each in part]

    async def _rules(self) -> dict[str, Collection[MulticastRule] | str]:
        devices = self._runtime.devices
        if devices is None:
            return {}

        async def one(switch: str) -> Collection[MulticastRule] | str:
            try:
                return await devices.read_rules(switch)
            except (SouthboundError, TimeoutError) as error:
                return str(error) or "it did not answer in time"

        down = self._runtime.manager.core.resources.switches_down
        names = [name for name in self._runtime.manager.core.topology.switches if name not in down]
        return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))

    async def _powers(self) -> None:
        """Powers as the OCSs report them now; one that does not answer is told by its state."""
        if self._runtime.devices is None:
            return
        for name in self._runtime.manager.core.topology.ocs:
            try:
                async with asyncio.timeout(REFRESH_S):
                    await self._runtime.devices.refresh(name)
            except (SouthboundError, TimeoutError):
                continue
