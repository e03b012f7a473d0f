"""The manager that is measured: the one people run, over switches and an OCS in memory that do as told at once.

`python -m rostrum.bench.manager.serve JOB` says on stdout where it listens, and runs until SIGTERM.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import uvloop
from rostrum.controller import logs
from rostrum.controller.access_options import SecurityOptions
from rostrum.controller.app import App
from rostrum.controller.config import Config
from rostrum.controller.core.model import (
    CrossConnect,
    CrossConnectState,
    MulticastRule,
    Pair,
    RuleCounters,
    SwitchCounters,
    SwitchFacts,
    UnicastRule,
)
from rostrum.controller.core.values import Settings
from rostrum.controller.northbound.rest.access import AccessOptions
from rostrum.controller.speed.memory import settle_memory
from rostrum.topologies import load_text
from rostrum.topologies.generate import Hybrid, hybrid
from rostrum.topologies.model import Ocs, Topology

LEASE_NS = 600 * 10**9  # of agents that the load generator plays one after the other: it has no time for keepalives


class QuickFabric:
    """Switches that keep what they are told. They take a rule back that is the same object: comparing and hashing
    addresses would cost more than all else here.
    """

    port = 0

    def __init__(self, topology: Topology, up: Callable[[str], None]) -> None:
        self._up = up
        self._tables: dict[str, dict[int, MulticastRule]] = {name: {} for name in topology.switches}

    async def start(self, host: str, port: int) -> None:
        for name in self._tables:
            asyncio.get_running_loop().call_soon(self._up, name)

    async def close(self) -> None:
        """Nothing is open."""

    async def install(self, rules: Sequence[MulticastRule]) -> None:
        for rule in rules:
            self._tables[rule.switch][id(rule)] = rule

    async def remove(self, rules: Sequence[MulticastRule]) -> None:
        for rule in rules:
            self._tables[rule.switch].pop(id(rule), None)

    async def rearm(self, rules: Sequence[MulticastRule]) -> None:
        """Nobody looks for light here."""

    async def install_unicast(self, rules: Sequence[UnicastRule]) -> None:
        """Nothing is forwarded."""

    def facts(self, switch: str) -> SwitchFacts | None:
        return None

    def discover(self, ports: Collection[tuple[str, int]] | None = None) -> None:
        """No frames are sent."""

    async def read(self, switch: str) -> set[MulticastRule]:
        return set(self._tables[switch].values())

    async def rule_counters(self, rules: Sequence[MulticastRule]) -> list[RuleCounters]:
        return []

    async def switch_counters(self, switch: str) -> SwitchCounters | None:
        return None


class QuickOcs:
    """Cross-connects that are steady at once."""

    def __init__(self, up: Callable[[], None]) -> None:
        self._up = up
        self._made: set[Pair] = set()

    async def start(self) -> None:
        asyncio.get_running_loop().call_soon(self._up)

    async def close(self) -> None:
        """Nothing is open."""

    async def connect(self, pairs: Sequence[Pair]) -> list[CrossConnect]:
        self._made.update(pairs)
        return [CrossConnect(pair, CrossConnectState.STEADY) for pair in pairs]

    async def disconnect(self, pairs: Sequence[Pair]) -> None:
        self._made.difference_update(pairs)

    async def read(self) -> list[CrossConnect]:
        return [CrossConnect(pair, CrossConnectState.STEADY) for pair in self._made]


def topology_of(size: Hybrid, folder: Path) -> Topology:
    """Made once for each size: reading the file of 10,000 servers takes seconds."""
    file = folder / f"hybrid-{size.racks}x{size.servers}.pickle"
    if file.exists():
        kept: Topology = pickle.loads(file.read_bytes())
        return kept
    topology = load_text(hybrid(size))
    file.write_bytes(pickle.dumps(topology))
    return topology


async def run(job: dict[str, Any]) -> None:
    folder = Path(job["folder"])
    topology = topology_of(Hybrid(**job["hybrid"]), folder)
    settings = Settings(
        circuit_wait_ns=round(job["case"]["wait_s"] * 1e9), paths_per_server=10_000, boot_id=time.time_ns() // 10**6
    )
    journal = Path(job["place"]) / "manager.journal" if job["case"]["journal"] else None
    config = Config(topology, folder / "run", settings, ("127.0.0.1",), 0, 0, 0, journal=journal)
    if "tls" in job:
        config = secured(config, *map(Path, job["tls"]))
    app = App(config, lambda config, up, down, light: QuickFabric(config.topology, up), _ocs)
    await app.start()
    settle_memory()
    print(json.dumps({"thrift": app.thrift_port, "rest": app.rest_port, "pid": os.getpid()}), flush=True)
    try:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    finally:
        await app.close()


def secured(config: Config, certificate: Path, key: Path, ca: Path) -> Config:
    """The same with `security: required`; devices in memory need none."""
    files = certificate, key, ca
    devices = {
        name: dataclasses.replace(one, tls=False, password="", password_env="NONE")
        for name, one in config.topology.ocs.items()
    }
    return dataclasses.replace(
        config,
        topology=dataclasses.replace(config.topology, secure=True, ocs=devices),
        security=SecurityOptions(thrift_tls=files, openflow_tls=files),
        access=AccessOptions(tls=files[:2], client_ca=ca),
        settings=dataclasses.replace(config.settings, lease_ns=LEASE_NS),
    )


def _ocs(ocs: Ocs, up: Callable[[], None], down: Callable[[str], None], changed: object) -> QuickOcs:
    return QuickOcs(up)


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    logs.to_stderr()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(job))


if __name__ == "__main__":
    main()
