"""Orders to switches: kept in order, put together, taken apart when one of them is refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Any

from rostrum.controller.core.model import MulticastRule, SouthboundError
from rostrum.controller.runtime.rule_writer import Failures, RuleWriter

from tests.controller.fakes import until

PORTS = (1, 2, 1 << 24, (1 << 32) - 1)  # switches may tell of rules with ports that no topology has


class Switches:
    """Flow tables that hold calls back until they are let through; groups in `refused` cannot be set."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[Any, MulticastRule]] = {}
        self.calls: list[tuple[str, str, int]] = []
        self.open = asyncio.Event()
        self.refused: set[IPv4Address] = set()
        self.broken = False

    async def install(self, rules: Sequence[MulticastRule]) -> None:
        self.calls.append((rules[0].switch, "install", len(rules)))
        await self.open.wait()
        if self.broken:
            raise RuntimeError("a bug")
        if any(rule.group in self.refused for rule in rules):
            raise SouthboundError("no room")
        for rule in rules:
            self.tables.setdefault(rule.switch, {})[rule.in_port, rule.group] = rule

    async def remove(self, rules: Sequence[MulticastRule]) -> None:
        self.calls.append((rules[0].switch, "remove", len(rules)))
        await self.open.wait()
        for rule in rules:
            self.tables.setdefault(rule.switch, {}).pop((rule.in_port, rule.group), None)


def rule(group: int, in_port: int = 1, switch: str = "tor1", out: int = 2) -> MulticastRule:
    return MulticastRule(switch, in_port, IPv4Address("239.192.0.0") + group, (out,))


class Talk:
    def __init__(self, bound_s: float = 5.0) -> None:
        self.switches = Switches()
        self.orders = RuleWriter(lambda switch: self.switches, bound_s)  # type: ignore[arg-type,return-value]
        self.done: dict[int, Failures] = {}

    def order(self, number: int, *rules: MulticastRule, removal: bool = False) -> None:
        self.orders.order(number, rules, removal, self.done.__setitem__)

    async def idle(self) -> None:
        self.switches.open.set()
        await until(lambda: not self.orders.busy, "orders done")


async def test_orders_of_one_turn__are_one_call_for_each_switch() -> None:
    talk = Talk()
    for number in range(5):
        talk.order(number, rule(number), rule(number, switch="tor2"))
    await talk.idle()
    assert sorted(talk.switches.calls) == [("tor1", "install", 5), ("tor2", "install", 5)]
    assert talk.done == dict.fromkeys(range(5), ())


async def test_taken_back_while_the_switch_is_busy__is_never_set() -> None:
    talk = Talk()
    talk.order(1, rule(1))
    await asyncio.sleep(0)
    talk.order(2, rule(2))
    talk.order(3, rule(2), removal=True)
    await talk.idle()
    assert talk.switches.calls == [("tor1", "install", 1), ("tor1", "remove", 1)]
    assert talk.done == {1: (), 2: (), 3: ()} and len(talk.switches.tables["tor1"]) == 1


async def test_refused__only_the_order_at_fault_fails() -> None:
    talk = Talk()
    talk.switches.refused.add(rule(2).group)
    for number in (1, 2, 3):
        talk.order(number, rule(number), rule(number, switch="tor2"))
    await talk.idle()
    assert talk.done[1] == talk.done[3] == ()
    assert talk.done[2] == (("tor1", "no room"), ("tor2", "no room"))
    assert len(talk.switches.tables["tor1"]) == 2


async def test_silence__fails_all_that_was_asked_at_once_and_no_more() -> None:
    talk = Talk(bound_s=0.02)
    talk.order(1, rule(1))
    talk.order(2, rule(2))
    await until(lambda: talk.done.keys() >= {1, 2}, "answers")
    assert talk.done[1] == talk.done[2] == (("tor1", "no answer within 0.02 s"),)
    talk.order(3, rule(3))
    await talk.idle()
    assert talk.done[3] == ()


async def test_driver_that_breaks__is_asked_again_with_the_next_order() -> None:
    talk = Talk()
    talk.switches.broken = True
    talk.order(1, rule(1))
    await talk.idle()
    assert talk.done == {}  # the manager gives it up after a time
    talk.switches.broken = False
    talk.order(2, rule(2))
    await talk.idle()
    assert talk.done == {2: ()}
    await talk.orders.close()


async def test_other_work__keeps_its_place_between_orders() -> None:
    talk = Talk()

    async def look() -> None:
        talk.switches.calls.append(("tor1", "read", len(talk.switches.tables["tor1"])))

    talk.order(1, rule(1))
    talk.orders.between("tor1", look)
    talk.order(2, rule(2))
    await talk.idle()
    assert [what for _, what, _ in talk.switches.calls] == ["install", "read", "install"]
    assert talk.switches.calls[1][2] == 1


async def test_moved_group__its_old_rule_goes_after_the_new_one_was_set_if_so_ordered() -> None:
    talk = Talk()
    talk.order(1, rule(7, in_port=1))
    talk.order(2, rule(7, in_port=3), removal=True)
    await talk.idle()
    assert [what for _, what, _ in talk.switches.calls] == ["install", "remove"]


async def test_any_orders__leave_the_switch_as_if_done_one_by_one() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(50):
        talk, expected = Talk(), {}
        for number in range(rng.randint(1, 40)):
            places = {(rng.randint(1, 4), rng.choice(PORTS)) for _ in range(rng.choice((1, 1, 1, 4)))}
            rules = [rule(group, in_port, out=number) for group, in_port in sorted(places)]
            removal = rng.random() < 0.5
            talk.order(number, *rules, removal=removal)
            for one in rules:
                if removal:
                    expected.pop((one.in_port, one.group), None)
                else:
                    expected[one.in_port, one.group] = one
            if rng.random() < 0.3:
                talk.switches.open.set()
                await asyncio.sleep(0)
        await talk.idle()
        assert talk.switches.tables.get("tor1", {}) == expected
        assert len(talk.done) == number + 1
