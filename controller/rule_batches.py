"""Which orders to switches go together: rule_orders.py sends them. Most of what a path costs is counted here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from rostrum.controller.core.model import MulticastRule

BATCH_MAX = 512  # orders put together

Failures = tuple[tuple[str, str], ...]
Done = Callable[[int, Failures], None]
Work = Callable[[], Awaitable[None]]
Key = tuple[int, int]  # of a rule on one switch: in port, group (as a number: faster to hash)


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
    """One switch's share of it, or something else to do with the switch."""

    def __init__(self, op: Op | None, removal: bool, rules: list[MulticastRule], work: Work | None = None) -> None:
        self.op, self.removal, self.rules, self.work = op, removal, rules, work


class Batch:
    """Removals come first, then what is set."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.removals: dict[Key, MulticastRule] = {}
        self.installs: dict[Key, MulticastRule] = {}
        self.groups: set[int] = set()  # set in this batch

    def add(self, order: Order) -> bool:
        """False if it has to come after this batch: a group whose rules are set in it loses none of its other rules in
        it, because removals go first and would meet the group as it was before.
        """
        keys: list[Key] = [(rule.in_port, int(rule.group)) for rule in order.rules]
        gone, kept = self.removals, self.installs
        if order.removal:
            gone, kept = kept, gone
            for key in keys if self.groups else ():
                if key[1] in self.groups and key not in self.installs:
                    return False
        else:
            for key in keys:
                self.groups.add(key[1])
        for index, rule in enumerate(order.rules):
            if gone:
                gone.pop(keys[index], None)
            kept[keys[index]] = rule
        self.orders.append(order)
        return True

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
        op = Op(number, done, 0)
        for rule in rules:
            share = shares.get(rule.switch)
            if share is None:
                shares[rule.switch] = Order(op, removal, [rule])
            else:
                share.rules.append(rule)
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
