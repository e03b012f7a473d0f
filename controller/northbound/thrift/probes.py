"""Probes: small orders to agents (rostrum.thrift, ProbeOrder), and their reports; for preflight and doctor."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rostrum.controller.core.values import ServerAddress
from rostrum.controller.northbound.thrift import values
from rostrum.controller.northbound.thrift.codec import idl

MARGIN_S = 1.5  # beyond the time an order has, for its report to come in
UNDER_WAY_MAX = 4096
SERVERS_MAX = 128  # that one order names; agents refuse more


class Kind(Enum):
    """Values as in rostrum.thrift."""

    FACTS = 1
    LISTEN = 2
    SEND = 3
    REACH = 4


@dataclass(frozen=True)
class Reached:
    """Empty `cause`: connected."""

    server: str
    cause: str
    took_ns: int


@dataclass(frozen=True)
class ProbeReport:
    """What an agent says. Packets: how many of each sort came in; MTU in bytes of an IP packet."""

    server: str
    phase: str
    cause: str
    software: str = ""
    interface: str = ""
    mtu: int = 0
    rate_bps: int = 0
    wall_clock_ns: int = 0
    group_small: int = 0
    group_full: int = 0
    unicast_small: int = 0
    unicast_full: int = 0
    reached: tuple[Reached, ...] = ()


Call = Callable[[str, Any], bool]  # (server, ProbeOrder) -> whether its agent is there and knows probes


class Probe:
    """One order on its way: `await listening()`, `await report()`; both end in time, if need be with a cause."""

    def __init__(self, server: str, bound_s: float) -> None:
        loop = asyncio.get_running_loop()
        self.server = server
        self.bound_s = bound_s
        self._listening: asyncio.Future[ProbeReport] = loop.create_future()
        self._done: asyncio.Future[ProbeReport] = loop.create_future()

    async def listening(self) -> ProbeReport:
        return await self._wait(self._listening)

    async def report(self) -> ProbeReport:
        return await self._wait(self._done)

    async def _wait(self, future: asyncio.Future[ProbeReport]) -> ProbeReport:
        done, _ = await asyncio.wait((future,), timeout=self.bound_s)
        if done:
            return future.result()
        return ProbeReport(
            self.server, "failed", f"the agent of {self.server} did not report within {self.bound_s:g} s"
        )

    def heard(self, report: ProbeReport) -> None:
        for future in (self._listening,) if report.phase == "listening" else (self._listening, self._done):
            if not future.done():
                future.set_result(report)


class Probes:
    """Orders under way, by their ids."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._under_way: dict[tuple[str, str], Probe] = {}
        self._numbers = itertools.count(1)

    def new_id(self) -> str:
        return f"probe-{next(self._numbers)}"

    def order(
        self,
        server: str,
        kind: Kind,
        time_s: float,
        probe_id: str = "",
        group: str = "",
        port: int = 0,
        packets: int = 0,
        mtu: int = 0,
        servers: Iterable[ServerAddress] = (),
    ) -> Probe:
        """Sends an order; the Probe tells what becomes of it. LISTEN and SEND of one `probe_id` belong together."""
        probe_id = probe_id or self.new_id()
        probe = Probe(server, time_s + MARGIN_S)
        named = values.addresses(tuple(servers))
        made = idl.ProbeOrder(probe_id=probe_id, kind=kind.value, time_ms=round(time_s * 1e3), servers=named or None)
        if kind in (Kind.LISTEN, Kind.SEND):
            made.group, made.port, made.packets, made.mtu = group, port, packets, mtu
        while len(self._under_way) >= UNDER_WAY_MAX:
            del self._under_way[next(iter(self._under_way))]
        if self._call(server, made):
            self._under_way[server, probe_id] = probe
        else:
            text = f"the agent of {server} is not connected, or too old to probe"
            probe.heard(ProbeReport(server, "failed", text))
        return probe

    def reported(self, server: str, args: Any) -> None:
        """A Manager.probe_report from `server`. Raises BadMessage."""
        one = values.need(args, "report", idl.ProbeReport)
        numbers = {name: values.need(one, name, int) for name in _NUMBERS}
        reached = tuple(
            Reached(
                values.need(each, "server", str), values.need(each, "cause", str), values.need(each, "took_ns", int)
            )
            for each in values.need(one, "reached", list)
        )
        phase, cause = values.need(one, "phase", str), values.need(one, "cause", str)
        software, interface = values.need(one, "software", str), values.need(one, "data_interface", str)
        report = ProbeReport(server, phase, cause, software, interface, reached=reached, **numbers)
        key = server, values.need(one, "probe_id", str)
        probe = self._under_way.get(key)
        if probe:
            probe.heard(report)
            if report.phase != "listening":
                del self._under_way[key]


_NUMBERS = (
    "mtu",
    "rate_bps",
    "wall_clock_ns",
    "group_small",
    "group_full",
    "unicast_small",
    "unicast_full",
)
