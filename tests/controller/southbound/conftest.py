"""Emulated and scripted optical circuit switches on loopback, for the drivers' tests."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from rostrum.controller.core.model import CrossConnect
from rostrum.controller.southbound.ocs.devices import driver_of
from rostrum.lab.ocs import faults
from rostrum.lab.ocs.engine import Engine
from rostrum.lab.ocs.glimmerglass import GlimmerglassServer
from rostrum.lab.ocs.gnmi import GnmiServer
from rostrum.lab.ocs.light import NoLight
from rostrum.lab.ocs.model import Model
from rostrum.lab.ocs.polatis import PolatisServer
from rostrum.lab.ocs.server import Server
from rostrum.topologies.loader import load
from rostrum.topologies.model import Ocs, Reconfiguration

TOPOLOGY = Path(__file__).parents[3] / "topologies" / "hybrid-4x2.yaml"
BOUND_S = 60.0


async def wait_until(happened: Callable[[], Any]) -> None:
    """Returns when `happened()` is true; fails the test when it is not within BOUND_S."""
    end = asyncio.get_running_loop().time() + BOUND_S
    while not happened():
        assert asyncio.get_running_loop().time() < end, f"not seen within {BOUND_S:g} s: {inspect.getsource(happened)}"
        await asyncio.sleep(0.002)


@pytest.fixture
def until() -> Callable[[Callable[[], Any]], Awaitable[None]]:
    return wait_until


@dataclass
class Switch:
    """An emulated OCS without light, listening on loopback."""

    ocs: Ocs
    engine: Engine
    server: Server | GnmiServer

    def fault(self, **request: Any) -> str:
        return self.engine.add_fault(faults.parse(request, self.ocs))


@dataclass
class Heard:
    """A driver's callbacks, to be waited for."""

    ups: int = 0
    downs: list[str] = field(default_factory=list)
    changes: list[CrossConnect] = field(default_factory=list)

    async def until(self, happened: Callable[[Heard], Any]) -> None:
        await wait_until(lambda: happened(self))

    def up(self) -> None:
        self.ups += 1


MakeSwitch = Callable[..., Awaitable[Switch]]
MakeDriver = Callable[..., Awaitable[tuple[Any, Heard]]]


@pytest.fixture
async def make_switch() -> AsyncIterator[MakeSwitch]:
    """make_switch("polatis", reconfiguration_s=0.02) -> a running Switch."""
    made: list[Switch] = []

    async def make(
        dialect: str = "glimmerglass",
        reconfiguration_s: float = 0.02,
        ringing_s: float = 0.002,
        port: int = 0,
        ports: int = 0,
        credentials: Any = None,
        tls: Any = None,
    ) -> Switch:
        ocs = load(TOPOLOGY).ocs["ocs"]
        ocs = replace(ocs, dialect=dialect, reconfiguration_s=reconfiguration_s, ports=ports or ocs.ports)
        model = Model(ocs, Reconfiguration("fixed", reconfiguration_s, 0.0), ringing_s, 0.5, seed=1)
        engine = Engine(model, NoLight())
        faces = {"polatis": PolatisServer, "glimmerglass": GlimmerglassServer}
        server = GnmiServer(engine, credentials) if dialect == "gnmi" else Server(engine, faces[dialect](), tls)
        await server.start("127.0.0.1", port)
        made.append(Switch(replace(ocs, address=IPv4Address("127.0.0.1"), management_port=server.port), engine, server))
        return made[-1]

    yield make
    for switch in made:
        await switch.server.close()
        switch.engine.close()


@pytest.fixture
async def make_driver() -> AsyncIterator[MakeDriver]:
    """make_driver(ocs, mode="ASYNC") -> a started driver and what it calls back; waits for its login if `wait`."""
    made: list[Any] = []

    async def make(ocs: Ocs, wait: bool = True, **options: Any) -> tuple[Any, Heard]:
        heard = Heard()
        driver = driver_of(ocs.dialect)(ocs, heard.up, heard.downs.append, heard.changes.append, **options)
        made.append(driver)
        await driver.start()
        if wait:
            await heard.until(lambda h: h.ups)
        return driver, heard

    yield make
    for driver in made:
        await driver.close()
