"""Preflight: a path is made, its sender's agent sends probe packets along it, its receivers' agents say what came.

The path is an ordinary one, by REST, with a short lease: it goes through the queue, takes quota, and is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from rostrum.controller.core import events as ev
from rostrum.controller.core.diagnostics.findings import Finding
from rostrum.controller.core.diagnostics.preflight import Evidence, Verdict, judge
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.values import REST, ObstacleKind, PathRequest, ServerAddress, State, Wanted
from rostrum.controller.northbound.thrift.probes import SERVERS_MAX, Kind, Probe, ProbeReport, Probes
from rostrum.controller.runtime import waiting
from rostrum.controller.runtime.runtime import Runtime

PACKETS = 5  # of each sort
PROBE_PORT_OFFSET = 2  # UDP port of probe packets, above the data port
LISTEN_S = 3.0
SEND_S = 2.0
LEASE_MS = 30_000
RUNS_MAX = 4  # at a time


@dataclass(frozen=True)
class Flight:
    """The outcome. `path`: as it was while it was probed; None when there was none."""

    path: Path | None
    general: list[Finding]
    receivers: list[Verdict]


class Preflight:
    def __init__(self, runtime: Runtime, probes: Probes) -> None:
        self._runtime = runtime
        self._probes = probes
        self._running = 0
        self._numbers = itertools.count(1)

    @property
    def full(self) -> bool:
        return self._running >= RUNS_MAX

    async def run(self, sender: str, receivers: Sequence[str], wanted: Wanted, wait_s: float, tenant: str) -> Flight:
        """`wait_s`: for the path. Takes up to `wait_s` and some 5 s; nothing if the request cannot be meant."""
        core = self._runtime.manager.core
        number = f"preflight-{core.settings.boot_id}-{next(self._numbers)}"
        wait_ms = round(wait_s * 1e3)
        request = PathRequest(
            number, REST, sender, tuple(receivers), wanted=wanted, wait_ms=wait_ms, lease_ms=LEASE_MS, tenant=tenant
        )
        self._running += 1
        try:
            self._runtime.post(ev.RequestReceived(request))
            path_id = core.by_request.get((REST, number), "")  # a manager that stops makes none
            path = await waiting.path_until(self._runtime, path_id, lambda one: one.state is State.ACTIVE, wait_s + 1.0)
            try:
                if path and path.obstacle and path.obstacle.kind is ObstacleKind.INVALID:
                    return Flight(path, [], [])
                if path is None or path.state is not State.ACTIVE:
                    return await self._without_path(path, sender, receivers)
                return await self._along(path)
            finally:
                self._runtime.post(ev.Released(path_id, number, REST))
                with contextlib.suppress(Exception):
                    await waiting.settled(self._runtime)
        finally:
            self._running -= 1

    async def _without_path(self, path: Path | None, sender: str, receivers: Sequence[str]) -> Flight:
        text = (path.cause or path.reason) if path else "it is not remembered any more"
        mend = "the reason says what it waits for; rostrum doctor shows what is wrong with the network"
        finding = Finding("error", "path", sender, f"there is no path to probe: {text}", mend)
        reached = await self._reach(sender, receivers)
        causes = {one.server: one.cause for one in reached.reached} if not reached.cause else {}
        verdicts = []
        for name in receivers:
            verdict = Verdict(name, causes.get(name) == "", False, False, [])
            if causes.get(name):
                what = f"{sender} cannot connect to the control port of {name}: {causes[name]}"
                mend = f"see that {name}'s rostrumd runs, and the links between them (rostrum doctor)"
                verdict.findings.append(Finding("error", "reachability", name, what, mend))
            verdict.findings.append(Finding("error", "path", name, "not probed: there is no path", ""))
            verdicts.append(verdict)
        return Flight(path, [finding], verdicts)

    async def _along(self, path: Path) -> Flight:
        core, request = self._runtime.manager.core, path.request
        mtu, port = core.topology.mtu, core.topology.data_port + PROBE_PORT_OFFSET
        probe_id, group = self._probes.new_id(), str(path.group)

        def order(server: str, kind: Kind, time_s: float, to: Sequence[ServerAddress] = ()) -> Probe:
            return self._probes.order(server, kind, time_s, probe_id, group, port, PACKETS, mtu, to)

        listeners = {name: order(name, Kind.LISTEN, LISTEN_S) for name in request.receivers}
        await asyncio.gather(*(one.listening() for one in listeners.values()))
        sent = await order(request.sender, Kind.SEND, SEND_S, self._addresses(request.receivers)).report()
        reach = asyncio.create_task(self._reach(request.sender, request.receivers))
        heard = await asyncio.gather(*(one.report() for one in listeners.values()))
        reached = await reach
        general = _of_sender(request.sender, sent, reached, mtu)
        budgets = {one.tor: one for one in path.budgets}
        verdicts = []
        for name, report in zip(listeners, heard, strict=True):
            how = next((one for one in reached.reached if one.server == name), None)
            evidence = Evidence(
                name,
                PACKETS,
                mtu,
                report.cause if report.phase != "done" else "",
                report.group_small,
                report.group_full,
                report.unicast_small,
                report.unicast_full,
                report.mtu,
                how.cause if how else reached.cause,
                budgets.get(core.topology.servers[name].tor),
            )
            verdicts.append(judge(evidence, request.sender, sent.cause))
        return Flight(path, general, verdicts)

    def _addresses(self, names: Sequence[str]) -> list[ServerAddress]:
        core = self._runtime.manager.core
        found = []
        for name in names[:SERVERS_MAX]:
            agent = core.agents.get(name)
            port = agent.control_port if agent else core.topology.control_port
            found.append(ServerAddress(name, str(core.topology.servers[name].address), port))
        return found

    async def _reach(self, sender: str, receivers: Sequence[str]) -> ProbeReport:
        return await self._probes.order(sender, Kind.REACH, SEND_S, servers=self._addresses(receivers)).report()


def _of_sender(sender: str, sent: ProbeReport, reached: ProbeReport, mtu: int) -> list[Finding]:
    found = []
    for report in (sent, reached):
        if report.cause and "MTU is smaller" not in report.cause:
            mend = f"start rostrumd on {sender}, or see its log"
            found.append(Finding("error", "agent", sender, report.cause, mend))
    if sent.mtu and sent.mtu < mtu:
        what = f"the data NIC of {sender} has an MTU of {sent.mtu}, the topology says {mtu}"
        mend = f"ip link set its mtu {mtu}, or correct network.mtu in the topology file"
        found.append(Finding("error", "mtu", sender, what, mend))
    return list(dict.fromkeys(found))
