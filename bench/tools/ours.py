"""rostrum as its users have it: rostrumd on every host, the manager, an application at the sender."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rostrum.bench.cases import Case
from rostrum.bench.fabric import FREE_BPS, Host
from rostrum.bench.run import Plain, Program, Run, TimedOut, ToolFailed
from rostrum.client import Agent, RostrumError
from rostrum.client import TimedOut as Late
from rostrum.client.names import app_id_of
from rostrum.lab import processes
from rostrum.lab.namespace import LabError
from rostrum.lab.processes import agent_program

OBJECT = 1
MS = 1e6  # ns


class Ours(Plain):
    """`io`: the agents' --io. `told`: the topology and --nic-rate say what a limited link carries, as they should;
    else they say 100 Gbit/s and the agents find out. `protocol`, `options`: as of `Agent.send`."""

    timed = (
        "the call send with the file, its digest too, until the agent says that all receivers have it, digests right"
    )

    def __init__(
        self, io: str, told: bool = True, protocol: str = "auto", options: str = "", security: str = "",
        ready: bool = False,
    ) -> None:  # fmt: skip
        """`security`: "required" or "signed", of a topology with `security: required`; or none. `ready`: receivers have
        a reserve as large as the object."""
        self.io, self.told, self.protocol, self.options, self.security = io, told, protocol, options, security
        self.ready = ready
        marks = (io if io != "auto" else "", protocol if protocol != "auto" else "", "" if told else "untold",
                 {"required": "secure"}.get(security, security), "ready" if ready else "")  # fmt: skip
        self.name = "-".join(("rostrum", *(mark for mark in marks if mark)))
        self._client: Agent | None = None

    def unfit(self, case: Case) -> str:
        if case.rate_bps and self.io == "xdp":
            return "AF_XDP passes the limit of the link by"
        if not case.rate_bps and not self.told:
            return "there is no limit to be told"
        return ""

    def prepare(self, run: Run) -> None:
        rate_bps = run.case.rate_bps if self.told else 0
        options = ["--io", self.io, "--nic-rate", str(rate_bps or FREE_BPS), "--seed", str(run.seed)]
        reserve = ["--reserve", str(run.case.size)] if self.ready else []
        agents = start_agents(run, run.case.mtu, rate_bps, self.security, options, reserve)
        chosen = re.search(r"packet I/O: auto chose ([\w-]+)", agents[0].text())
        run.facts["io"] = chosen[1] if chosen else self.io
        try:
            self._client = Agent(socket_of(run.sender), process="bench")
        except RostrumError as error:
            raise ToolFailed(str(error)) from error

    def send(self, run: Run) -> None:
        assert self._client is not None
        names = [host.name for host in run.receivers]
        fd = os.open(run.source, os.O_RDONLY)
        try:
            sent = self._client.send(OBJECT, names, protocol=self.protocol, source=fd, options=self.options)
            result = sent.wait(run.case.bound_s)
        except RostrumError as error:
            raise (TimedOut if isinstance(error, Late) else ToolFailed)(str(error)) from error
        finally:
            os.close(fd)
        run.facts.update(_facts(result))
        if not result.ok:
            raise ToolFailed(f"{result.cause}; " + "; ".join(f"{one.name}: {one.cause}" for one in result.receivers))

    def finish(self, run: Run) -> None:
        if self._client:
            self._client.close()
            self._client = None

    def received(self, run: Run, host: Host) -> Path | None:
        return host.folder / "store" / str(app_id_of(None)) / str(OBJECT)


def start_agents(
    run: Run, mtu: int, rate_bps: int, security: str, options: list[str], receivers_options: Sequence[str] = ()
) -> list[Program]:
    """The manager, and an agent on each host, the sender's first; all are connected. Raises ToolFailed."""
    try:
        run.fabric.manager(mtu, rate_bps, bool(security))
    except LabError as error:
        raise ToolFailed(str(error)) from error
    agents = []
    for host in [run.sender, *run.receivers]:
        store = host.folder / "store"
        store.mkdir(exist_ok=True)
        argv = [str(agent_program()), "--server", host.name, "--interface", "eth0", "--address", host.address]
        argv += ["--manager", run.fabric.manager_address, "--socket", str(socket_of(host)), "--store", str(store)]
        if security:
            argv += [*processes.tls("--manager-tls", str(run.fabric.certificates), host.name), "--security", security]
        argv += [*options, *([] if host is run.sender else receivers_options)]
        agents.append(run.start("sender" if host is run.sender else "receivers", host, argv))
    run.ready(agents, r"manager up=1")
    return agents


def socket_of(host: Host) -> Path:
    return host.folder / "agent.sock"


def _facts(result: Any) -> dict[str, Any]:
    """What the sender's agent tells of the transfer: packets, repairs, milliseconds since the request."""
    times = ("accepted_ns", "attempt_ns", "high_rate_ns", "data_done_ns", "released_ns", "done_ns")
    return {
        "protocol": result.protocol,
        "packets_sent": result.packets_sent,
        "packets_redundant": result.packets_redundant,
        "repaired": result.packets_patched,
        "rate_bps": result.rate_bps,
        "patched": [one.patched_fragments for one in result.receivers],
        "ms": {
            name.removesuffix("_ns"): round((getattr(result, name) - result.requested_ns) / MS, 2)
            for name in times
            if getattr(result, name)
        },
    }
