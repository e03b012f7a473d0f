"""Orders to devices: when a manager that may be deposed still gives them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Any

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.model import CrossConnect, CrossConnectState, MulticastRule, Pair, UnicastRule
from rostrum.controller.runtime.execution import Devices

from tests.controller.fakes import until
from tests.controller.timeline import hybrid

BOUND_S = 5.0
FIRST, SECOND = (Pair(1, 5),), (Pair(1, 6),)  # of the same fibre: the second waits for the first


class SlowOcs:
    """Does what it is told once it is let."""

    def __init__(self) -> None:
        self.orders: list[tuple[str, Sequence[Pair]]] = []
        self.open = asyncio.Event()

    async def connect(self, pairs: Sequence[Pair]) -> list[CrossConnect]:
        self.orders.append(("connect", tuple(pairs)))
        await self.open.wait()
        return [CrossConnect(pair, CrossConnectState.STEADY) for pair in pairs]

    async def disconnect(self, pairs: Sequence[Pair]) -> None:
        self.orders.append(("disconnect", tuple(pairs)))
        await self.open.wait()


class SlowSwitches:
    def __init__(self) -> None:
        self.orders: list[str] = []
        self.open = asyncio.Event()

    async def install(self, rules: Sequence[MulticastRule]) -> None:
        self.orders.append("install")
        await self.open.wait()

    async def remove(self, rules: Sequence[MulticastRule]) -> None:
        self.orders.append("remove")
        await self.open.wait()

    async def install_unicast(self, rules: Sequence[UnicastRule]) -> None:
        self.orders.append("unicast")


class Given:
    """Devices of a manager that leads while `leads`, and for long while `long`."""

    def __init__(self) -> None:
        self.ocs, self.switches = SlowOcs(), SlowSwitches()
        self.leads = self.long = True
        self.told: list[Any] = []
        drivers: Any = {"ocs": self.ocs}
        fabric: Any = self.switches
        self.devices = Devices(
            hybrid(), fabric, drivers, self.told.append, time.monotonic_ns, BOUND_S,
            lambda: self.leads, lambda: self.leads and self.long,
        )  # fmt: skip

    async def heard(self, number: int) -> None:
        await until(lambda: len(self.told) >= number, "the devices' answers")


async def test_deposed_while_an_order_waits_its_turn__it_is_not_given() -> None:
    given = Given()
    given.devices.perform(act.Connect(1, "ocs", FIRST, "p-1"))
    given.devices.perform(act.Disconnect(2, "ocs", FIRST, "over"))
    given.devices.perform(act.Connect(3, "ocs", SECOND, "p-2"))
    await until(lambda: given.ocs.orders, "the first order")
    given.leads = False
    given.ocs.open.set()
    await given.heard(3)
    assert given.ocs.orders == [("connect", FIRST)]
    assert given.told[1:] == [
        ev.DisconnectResult(2, "no order given: this manager does not lead any more"),
        ev.CircuitResult(3, (), "no order given: this manager does not lead any more"),
    ]
    await given.devices.close()


async def test_deposed_while_a_switch_is_busy__it_gets_no_further_order() -> None:
    given = Given()
    rule = MulticastRule("tor1", 1, IPv4Address("239.192.0.1"), (2,))
    given.devices.perform(act.InstallRules(1, (rule,), "p-1"))
    await until(lambda: given.switches.orders, "the first order")
    given.devices.perform(act.RemoveRules(2, (rule,), "p-1"))
    given.devices.perform(act.InstallUnicast("tor1", (UnicastRule("tor1", IPv4Address("10.0.1.1"), 1),)))
    given.leads = False
    given.switches.open.set()
    await given.heard(2)
    assert given.switches.orders == ["install"]
    assert given.told == [
        ev.RulesInstalled(1),
        ev.RulesRemoved(2, (("tor1", "no order given: this manager does not lead any more"),)),
    ]
    await until(lambda: not given.devices.busy, "the switch to have nothing to do")
    assert given.switches.orders == ["install"]
    await given.devices.close()


async def test_lease_nearly_over__the_order_waits_until_it_is_renewed() -> None:
    given = Given()
    given.long = False
    given.devices.perform(act.Connect(1, "ocs", FIRST, "p-1"))
    await until(lambda: given.devices.busy, "the order to wait")
    for _ in range(10):
        await asyncio.sleep(0)
    assert not given.ocs.orders and not given.told
    given.long = True
    given.ocs.open.set()
    await given.heard(1)
    assert given.ocs.orders == [("connect", FIRST)] and given.told[0].error == ""
    await given.devices.close()
