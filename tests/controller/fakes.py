"""Switches, OCS and agents in memory, behind the interfaces of the real ones."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from rostrum.controller.access_options import SecurityOptions
from rostrum.controller.app import App
from rostrum.controller.config import Config
from rostrum.controller.core.model import (
    Count,
    CrossConnect,
    Light,
    MulticastRule,
    Pair,
    PortCounters,
    RuleCounters,
    SouthboundError,
    SwitchCounters,
    SwitchFacts,
    UnicastRule,
)
from rostrum.controller.core.values import Settings
from rostrum.controller.northbound.rest.access import AccessOptions
from rostrum.controller.northbound.thrift.codec import decode, encode, idl
from rostrum.topologies.model import Ocs, Topology

from tests.controller.network import Network
from tests.controller.timeline import hybrid

TIMEOUT_S = 10.0


class FakeFabric:
    """All switches of a topology as flow tables. `broken`: switch -> what it answers instead of working."""

    def __init__(
        self,
        network: Network,
        up: Callable[[str], None],
        down: Callable[[str, str], None],
        light: Callable[[Light], None],
    ) -> None:
        self.network = network
        self.up, self.down, self.light = up, down, light
        self.rearmed: list[MulticastRule] = []
        self.broken: dict[str, str] = {}
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        for name in self.network.topology.switches:
            asyncio.get_running_loop().call_soon(self.up, name)

    async def close(self) -> None:
        """Nothing is open."""

    async def install(self, rules: Sequence[MulticastRule]) -> None:
        await asyncio.sleep(0)
        self._check(rules)
        self.network.install(tuple(rules))

    async def remove(self, rules: Sequence[MulticastRule]) -> None:
        await asyncio.sleep(0)
        self._check(rules)
        self.network.remove(tuple(rules))

    async def rearm(self, rules: Sequence[MulticastRule]) -> None:
        await asyncio.sleep(0)
        self._check(rules)
        self.rearmed += rules

    async def rule_counters(self, rules: Sequence[MulticastRule]) -> list[RuleCounters]:
        """As switches that counted one packet of 100 bytes for each rule."""
        await asyncio.sleep(0)
        self._check(rules)
        one = Count(1, 100)
        counting = [rule for rule in rules if self.network.topology.switches[rule.switch].p4]
        return [RuleCounters(rule, one, one, tuple((port, one) for port in rule.out_ports)) for rule in counting]

    def facts(self, switch: str) -> SwitchFacts | None:
        return None

    def discover(self, ports: Collection[tuple[str, int]] | None = None) -> None:
        """Nobody is asked."""

    async def switch_counters(self, switch: str) -> SwitchCounters | None:
        await asyncio.sleep(0)
        if self.network.topology.switches[switch].p4 is None:
            return None
        return SwitchCounters(
            (PortCounters(1, Count(5, 500), Count(), Count(), Count(5, 500), Count(2, 200)),), (("malformed", Count()),)
        )

    async def install_unicast(self, rules: Sequence[UnicastRule]) -> None:
        await asyncio.sleep(0)
        self.network.unicast[rules[0].switch] = tuple(rules)

    async def read(self, switch: str) -> set[MulticastRule]:
        await asyncio.sleep(0)
        return set(self.network.tables[switch].values())

    def _check(self, rules: Sequence[MulticastRule]) -> None:
        for rule in rules:
            if rule.switch in self.broken:
                raise SouthboundError(f"{rule.switch}: {self.broken[rule.switch]}")


class FakeOcs:
    """An OCS that needs `delay_s` for a cross-connect."""

    def __init__(self, network: Network, ocs: Ocs, up: Callable[[], None], down: Callable[[str], None]) -> None:
        self.network, self.ocs = network, ocs
        self.up, self.down = up, down
        self.delay_s = 0.002
        self.broken = ""

    async def start(self) -> None:
        asyncio.get_running_loop().call_soon(self.up)

    async def close(self) -> None:
        """Nothing is open."""

    async def connect(self, pairs: Sequence[Pair]) -> list[CrossConnect]:
        await asyncio.sleep(self.delay_s)
        self._check()
        return list(self.network.connect(self.ocs.name, tuple(pairs)))

    async def disconnect(self, pairs: Sequence[Pair]) -> None:
        await asyncio.sleep(0)
        self._check()
        self.network.disconnect(self.ocs.name, tuple(pairs))

    async def read(self) -> list[CrossConnect]:
        await asyncio.sleep(0)
        self._check()
        return list(self.network.found(self.ocs.name))

    def _check(self) -> None:
        if self.broken:
            raise SouthboundError(f"{self.ocs.name}: {self.broken}")


class FakeAgent:
    """An agent's end of the Thrift connection: says what it is told to, keeps what it hears."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.heard: list[tuple[str, Any]] = []
        self.closed = False
        self._news = asyncio.Event()
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def connect(
        cls, port: int, server: str = "", boot_id: int = 1, tls: ssl.SSLContext | None = None, **hello: Any
    ) -> FakeAgent:
        agent = cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls))
        if server:
            agent.hello(server, boot_id, **hello)
            await agent.expect("welcome")
        return agent

    def hello(self, server: str, boot_id: int = 1, **more: Any) -> None:
        info = {"version": 1, "server": server, "boot_id": boot_id, "control_port": 7071, "live_paths": []}
        self.say("hello", info=idl.AgentInfo(**{**info, **more}))

    def say(self, method: str, **arguments: Any) -> None:
        self.writer.write(encode("Manager", method, arguments))

    def request(self, request_id: str, origin: str, *to: str, size: int = 100_000_000, **more: Any) -> None:
        values = {
            "request_id": request_id,
            "app_id": b"0123456789abcdef",
            "data_id": 7,
            "data_size": size,
            "remaining_size": size,
            "sender": origin,
            "receivers": list(to),
        }
        self.say("request", request=idl.PathRequest(**{**values, **more}))

    async def response(self, request_id: str, decision: int) -> Any:
        def matches(args: Any) -> bool:
            return bool(args.response.request_id == request_id and args.response.decision == decision)

        return (await self.expect("response", matches)).response

    async def expect(self, method: str, matches: Callable[[Any], bool] = lambda _: True) -> Any:
        """The first call of that name that matches, whether heard already or to come."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                for name, args in self.heard:
                    if name == method and matches(args):
                        return args
                assert not self.closed, f"closed while waiting for {method}; heard {self.heard}"
                self._news.clear()
                await self._news.wait()

    async def until_closed(self) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.wait((self._listener,))

    async def close(self) -> None:
        self.writer.close()
        await self.until_closed()

    async def _listen(self) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (length,) = struct.unpack(">I", await self.reader.readexactly(4))
                self.heard.append(decode("Agent", await self.reader.readexactly(length)))
                self._news.set()
        self.closed = True
        self._news.set()


def _rest_of(security: SecurityOptions | None) -> AccessOptions:
    """Where security is required, REST has the certificate that agents are shown."""
    files = security.thrift_tls if security else None
    return AccessOptions(tls=files[:2], client_ca=files[2]) if files else AccessOptions()


class Running:
    """A manager on loopback, with fake devices."""

    def __init__(
        self,
        run: Path,
        settings: Settings,
        topology: Topology | None,
        network: Network | None,
        journal: Path | None = None,
        security: SecurityOptions | None = None,
    ) -> None:
        self.topology = topology or hybrid()
        self.network = network or Network(self.topology)
        config = Config(
            self.topology,
            run,
            settings,
            ("127.0.0.1",),
            0,
            0,
            0,
            journal=journal,
            security=security or SecurityOptions(),
            access=_rest_of(security) if self.topology.secure else AccessOptions(),
        )
        self.fabrics: list[FakeFabric] = []
        self.ocs: dict[str, FakeOcs] = {}
        self.app = App(config, self._fabric, self._ocs)

    @property
    def fabric(self) -> FakeFabric:
        return self.fabrics[0]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.app.rest_port}"

    async def agent(self, server: str = "", boot_id: int = 1, **hello: Any) -> FakeAgent:
        return await FakeAgent.connect(self.app.thrift_port, server, boot_id, **hello)

    def _fabric(
        self,
        config: Config,
        up: Callable[[str], None],
        down: Callable[[str, str], None],
        light: Callable[[Light], None],
    ) -> FakeFabric:
        self.fabrics.append(FakeFabric(self.network, up, down, light))
        return self.fabrics[-1]

    def _ocs(self, ocs: Ocs, up: Callable[[], None], down: Callable[[str], None], changed: object) -> FakeOcs:
        self.ocs[ocs.name] = FakeOcs(self.network, ocs, up, down)
        return self.ocs[ocs.name]


async def until(condition: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Waits for a condition, not for a time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"not within {timeout_s:g} s: {what}"
        await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def running(
    run: Path,
    settings: Settings | None = None,
    topology: Topology | None = None,
    network: Network | None = None,
    journal: Path | None = None,
    security: SecurityOptions | None = None,
) -> AsyncIterator[Running]:
    """A manager whose devices are all connected."""
    made = Running(run, settings or Settings(boot_id=12345), topology, network, journal, security)
    await made.app.start()
    try:
        core = made.app.runtime.manager.core
        await until(
            lambda: (
                not core.resources.switches_down and all(o.state.value == "up" for o in core.resources.ocs.values())
            ),
            "devices up",
        )
        yield made
    finally:
        await made.app.close()
