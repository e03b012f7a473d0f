"""Which orders to switches go together: rule_writer.py sends them. Most of what a path costs is counted here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from rostrum.controller.core.model import MulticastRule

BATCH_MAX = 512  # orders put together

Failures = tuple[tuple[str, str], ...]
Done = Callable[[int, Failures], None]
Work = Callable[[], Awaitable[None]]
Key = int  # of a rule on one switch; a number, because nothing is looked up faster


def key_of(in_port: int, group: int) -> Key:
    """Of what goes to `group` (an address as a number) and enters `in_port`."""
    if in_port >> _PORT_BITS:  # no port of a topology; a switch may tell of a rule with any
        return (group << _ANY_PORT_BITS) + in_port
    return (group << _PORT_BITS) + in_port


def group_of(key: Key) -> int:
    return key >> _PORT_BITS if key < _ANY_PORT else key >> _ANY_PORT_BITS


_PORT_BITS: Final = 24
_ANY_PORT_BITS: Final = 64
_ANY_PORT: Final = 1 << 60  # keys from here on have ports of more than 24 bits; a group has 32


class Op:
    """What one action asked of several switches. `left`: of how many the answer is not here."""

    def __init__(self, number: int, done: Done, left: int) -> None:
        self.number, self.done, self.left = number, done, left
        self.failures: list[tuple[str, str]] = []

    def answered(self, switch: str, failure: str) -> None:
        if failure:
            self.failures.append((switch, failure))
        self.left -= 1
        if self.left == 0:
            self.done(self.number, tuple(sorted(self.failures)))


class Order:
    """One switch's share of it, or something else to do with the switch (`work`). `more`: the rules behind the first,
    which mostly is the only one.
    """

    def __init__(self, op: Op | None, removal: bool, rule: MulticastRule | None, key: Key, work: Work | None) -> None:
        self.op, self.removal, self.rule, self.key, self.work = op, removal, rule, key, work
        self.more: dict[Key, MulticastRule] | None = None


class Batch:
    """Removals come first, then what is set."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.removals: dict[Key, MulticastRule] = {}
        self.installs: dict[Key, MulticastRule] = {}
        self._groups: set[int] | None = None  # of the installs, once somebody asked

    def add(self, order: Order) -> bool:
        """False if it has to come after this batch: a group whose rules are set in it loses none of its other rules in
        it, because removals go first and would meet the group as it was before.
        """
        gone, kept = self.removals, self.installs
        if order.removal:
            if kept and self._would_meet_others(order):
                return False
            gone, kept = kept, gone
        if order.rule is not None:
            if gone and order.key in gone:
                del gone[order.key]
            kept[order.key] = order.rule
        if order.more is not None:
            for key, rule in order.more.items():
                if gone and key in gone:
                    del gone[key]
                kept[key] = rule
        if not order.removal:
            self._groups = None
        self.orders.append(order)
        return True

    def _would_meet_others(self, removal: Order) -> bool:
        groups = self._groups
        if groups is None:
            groups = self._groups = {group_of(key) for key in self.installs}
        if removal.key not in self.installs and group_of(removal.key) in groups:
            return True
        if removal.more is not None:
            for key in removal.more:
                if key not in self.installs and group_of(key) in groups:
                    return True
        return False

    def alone(self) -> list[Batch]:
        """Each of its orders by itself."""
        made = []
        for order in self.orders:
            batch = Batch()
            batch.add(order)
            made.append(batch)
        return made

    def answer(self, switch: str, failure: str) -> None:
        """What became of all of it."""
        for order in self.orders:
            if order.op is not None:
                order.op.answered(switch, failure)


class Waiting:
    """What each switch is to do when it has done what it does."""

    def __init__(self) -> None:
        self.orders: dict[str, list[Order]] = {}

    def put(self, switch: str, order: Order) -> bool:
        """Whether nothing was there to be done for this switch."""
        there = self.orders.get(switch)
        if there is not None:
            there.append(order)
            return False
        self.orders[switch] = [order]
        return True

    def split(self, number: int, rules: Sequence[MulticastRule], removal: bool, done: Done) -> list[str]:
        """Puts each switch's share of an order; returns those that had nothing to do."""
        shares: dict[str, Order] = {}
        op, group, number_of_group = Op(number, done, 0), None, 0
        for rule in rules:
            if rule.group is not group:  # one for all rules of a path
                group, number_of_group = rule.group, int(rule.group)
            key = key_of(rule.in_port, number_of_group)
            share = shares.get(rule.switch)
            if share is None:
                shares[rule.switch] = Order(op, removal, rule, key, None)
            elif share.more is None:
                share.more = {key: rule}
            else:
                share.more[key] = rule
        op.left = len(shares)
        return [switch for switch, share in shares.items() if self.put(switch, share)]

    def take(self, switch: str) -> Batch:
        """The orders at the head that can be put together; empty = something else is."""
        batch, orders = Batch(), self.orders[switch]
        taken = 0
        for order in orders:
            if taken >= BATCH_MAX or order.work is not None or not batch.add(order):
                break
            taken += 1
        del orders[:taken]
        return batch
