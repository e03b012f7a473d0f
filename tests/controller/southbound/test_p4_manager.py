"""The whole manager over P4 switches: what a path leaves on each of them, from request to release."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from rostrum.controller.core.model import (
    MulticastRule,
    RuleCounters,
    SouthboundError,
    SwitchCounters,
    SwitchFacts,
    UnicastRule,
)
from rostrum.controller.core.requests.paths import Path as GrantedPath
from rostrum.controller.core.values import Settings, State
from rostrum.controller.southbound.fabric import MixedFabric
from rostrum.topologies.kinds import with_kind
from rostrum.topologies.loader import load_text

from tests.controller.fakes import FakeAgent, Running, until
from tests.controller.southbound.p4_servers import FakeServer
from tests.controller.southbound.p4_world import PIPELINE, SETTINGS, TEXT, read_all, topology
from tests.controller.southbound.test_p4runtime_faults import DIGEST, seen

SIX = ("h3", "h4", "h5", "h6", "h7", "h8")
SWITCHES = ("core", "tor1", "tor2", "tor3", "tor4")


class OverP4(Running):
    """A manager with the real P4 fabric, and an OCS in memory."""

    def __init__(self, run: Path, servers: dict[str, FakeServer]) -> None:
        super().__init__(run, Settings(boot_id=12345), topology(**{n: one.port for n, one in servers.items()}), None)
        self.servers = servers
        self.app = type(self.app)(self.app.config, None, self._ocs)

    async def rules_on(self, name: str) -> list[str]:
        """Multicast entries and groups of a switch."""
        lines = await read_all(self.servers[name].port)
        return [line for line in lines if line not in SETTINGS and not line.startswith("unicast")]

    def path(self, path_id: str) -> GrantedPath:
        path = self.app.runtime.path(path_id)
        assert path is not None
        return path

    def shine(self, path: GrantedPath, rack: str) -> None:
        """The switch of a rack sees first light of the path."""
        assert path.group is not None
        fabric = self.app.fabric._fabrics["p4runtime"]  # type: ignore[attr-defined]
        rule = next(rule for rule in path.rules if rule.switch == rack)
        epoch = fabric._switches[rack]._book.rules[rule.in_port, path.group].watch.epoch
        self.servers[rack].digest(DIGEST, seen(rule.in_port, epoch, group=path.group))


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[OverP4]:
    async with contextlib.AsyncExitStack() as stack:
        servers = {name: FakeServer() for name in SWITCHES}
        for server in servers.values():
            await server.start()
            stack.push_async_callback(server.stop)
        made = OverP4(tmp_path, servers)
        await made.app.start()
        stack.push_async_callback(made.app.close)
        core = made.app.runtime.manager.core
        await until(lambda: not core.resources.switches_down, "switches up")
        await until(lambda: core.resources.ocs["ocs"].state.value == "up", "OCS up")
        await until(lambda: not made.app.devices.busy, "unicast set")
        yield made


async def granted(manager: OverP4, agent: FakeAgent) -> GrantedPath:
    agent.request("r1", "h1", *SIX)
    response = await agent.response("r1", 1)
    path = manager.path(response.response_id)
    await until(lambda: path.state is State.ACTIVE, "active")
    return path


async def test_path__is_on_every_switch_as_it_should_and_gone_when_the_manager_drops_it(manager: OverP4) -> None:
    agent = await manager.agent("h1")
    path = await granted(manager, agent)
    group = path.group
    assert await manager.rules_on("tor1") == [
        f"admission ingress_port=1 group={group} source=10.0.1.1/32 -> grant()",
        "group 1: 50#1",
        f"multicast ingress_port=1 group={group} -> replicate(replication=1, level=5)",
    ]
    for rack in ("tor2", "tor3", "tor4"):
        lines = await manager.rules_on(rack)
        assert lines[0] == f"admission ingress_port=50 group={group} source=10.0.1.1/32 -> grant()"
        assert lines[1].startswith(f"first_light ingress_port=50 group={group} -> watch(slot=0, epoch=")
        assert lines[1].endswith("first_session=0, confirm=3)") and lines[2] == "group 1: 1#1 2#2"
    assert await manager.rules_on("core") == []
    core = manager.app.runtime.manager.core
    agent.say("release", request_id="r1", response_id=path.id)
    await until(lambda: path.state is State.RELEASED, "released")
    assert len(await manager.rules_on("tor1")) == 3, "kept for an identical path to come"
    core.discard(core.idle_rules.all(), manager.app.runtime.clock())
    for action in core.out:
        manager.app.devices.perform(action)
    await until(lambda: not manager.app.devices.busy, "removed")
    assert [await manager.rules_on(name) for name in SWITCHES] == [[]] * 5


async def test_unicast__every_server_at_every_switch(manager: OverP4) -> None:
    for name in SWITCHES:
        routes = [line for line in await read_all(manager.servers[name].port) if line.startswith("unicast")]
        assert len(routes) == 8, name
    assert "unicast destination=10.0.3.1/32 -> forward(port=3)" in await read_all(manager.servers["core"].port)


async def test_first_light__reaches_the_agent_that_wants_it(manager: OverP4) -> None:
    agent = await manager.agent("h1", wants_light=True)
    path = await granted(manager, agent)
    for rack in ("tor2", "tor4"):
        manager.shine(path, rack)
    await until(lambda: len(path.light) == 2, "light at two racks")
    assert not [name for name, _ in agent.heard if name == "light"]
    manager.shine(path, "tor3")
    assert (await agent.expect("light")).response_id == path.id
    agent.say("release", request_id="r1", response_id=path.id)
    await until(lambda: path.state is State.RELEASED, "released")
    agent.request("r2", "h1", *SIX)
    again = manager.path((await agent.response("r2", 1)).response_id)
    await until(lambda: not manager.app.devices.busy, "armed again")
    for rack in ("tor2", "tor3", "tor4"):
        manager.shine(again, rack)
    await agent.expect("light", lambda args: args.response_id == again.id)


async def test_switch_killed_and_started_again__its_rules_come_back(manager: OverP4) -> None:
    path = await granted(manager, await manager.agent("h1"))
    before = await manager.rules_on("tor3")
    core = manager.app.runtime.manager.core
    await manager.servers["tor3"].stop()
    await until(lambda: "tor3" in core.resources.switches_down, "down")
    assert path.state is State.ACTIVE
    await manager.servers["tor3"].start()
    await until(lambda: "tor3" not in core.resources.switches_down, "up")
    await until(lambda: path.rules_in and not manager.app.devices.busy, "rules in")
    after = await manager.rules_on("tor3")
    # The same but for the epoch of its watch: nothing is armed twice alike.
    assert [line.split("epoch=")[0] for line in after] == [line.split("epoch=")[0] for line in before]
    assert len([line for line in await read_all(manager.servers["tor3"].port) if line.startswith("unicast")]) == 8


class Told:
    """A driver that writes down what it is told."""

    def __init__(self, name: str) -> None:
        self.name, self.heard, self.broken = name, list[tuple[str, object]](), False
        self.port = 6653 if name == "openflow" else 0

    async def _hear(self, what: str, rules: object) -> None:
        await asyncio.sleep(0)
        if self.broken:
            raise SouthboundError(f"{self.name} is broken")
        self.heard.append((what, rules))

    async def start(self, host: str, port: int) -> None:
        await self._hear("start", port)

    async def close(self) -> None:
        await self._hear("close", None)

    async def install(self, rules: Sequence[MulticastRule]) -> None:
        await self._hear("install", [rule.switch for rule in rules])

    async def remove(self, rules: Sequence[MulticastRule]) -> None:
        await self._hear("remove", [rule.switch for rule in rules])

    async def rearm(self, rules: Sequence[MulticastRule]) -> None:
        await self._hear("rearm", [rule.switch for rule in rules])

    async def install_unicast(self, rules: Sequence[UnicastRule]) -> None:
        await self._hear("unicast", [rule.switch for rule in rules])

    async def read(self, switch: str) -> set[MulticastRule]:
        await self._hear("read", switch)
        return set()

    async def rule_counters(self, rules: Sequence[MulticastRule]) -> list[RuleCounters]:
        await self._hear("counters", [rule.switch for rule in rules])
        return []

    def facts(self, switch: str) -> SwitchFacts | None:
        return None

    def discover(self) -> None:
        """Nobody is asked."""

    async def switch_counters(self, switch: str) -> SwitchCounters | None:
        await self._hear("counters", switch)
        return None


async def test_mixed_fabric__each_order_goes_to_the_driver_of_its_switch() -> None:
    drivers = {"openflow": Told("openflow"), "p4runtime": Told("p4runtime")}
    fabric = MixedFabric(load_text(with_kind(TEXT, "mixed")), drivers)
    assert fabric.port == 6653
    rules = [MulticastRule(name, 1, IPv4Address("239.192.0.5"), (2,)) for name in ("tor1", "core", "tor2")]
    for order in (fabric.install, fabric.remove, fabric.rearm, fabric.rule_counters):
        await order(rules)
    await fabric.read("core")
    await fabric.switch_counters("tor3")
    await fabric.install_unicast([UnicastRule("core", IPv4Address("10.0.1.1"), 1)])
    orders = ("install", "remove", "rearm", "counters")
    assert drivers["openflow"].heard == [*((o, ["core"]) for o in orders), ("read", "core"), ("unicast", ["core"])]
    assert drivers["p4runtime"].heard == [*((o, ["tor1", "tor2"]) for o in orders), ("counters", "tor3")]
    drivers["p4runtime"].broken = True
    with pytest.raises(SouthboundError, match="p4runtime is broken"):
        await fabric.install(rules)
    assert drivers["openflow"].heard[-1] == ("install", ["core"]), "the others are carried out"
    with pytest.raises(SouthboundError, match="tor9 is not a switch of this topology"):
        await fabric.read("tor9")


def test_cookie__is_of_program_and_p4info() -> None:
    assert PIPELINE.cookie > 0 and PIPELINE.config().cookie.cookie == PIPELINE.cookie
