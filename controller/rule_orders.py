"""Orders to switches: each switch gets its own in the order they were given, and what came while it was busy at once.

Orders that wait are put together, so that a switch is asked once for many paths, and what was taken back meanwhile is
never set: of the orders about one rule the last one counts. When a switch refuses what was put together, each order is
tried by itself, so that only the one at fault fails.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from rostrum.controller.core.model import MulticastRule, SouthboundError
from rostrum.controller.southbound.api import SwitchFabric

BATCH_MAX = 512  # orders put together

Failures = tuple[tuple[str, str], ...]
Done = Callable[[int, Failures], None]
Work = Callable[[], Awaitable[None]]
Key = tuple[int, int]  # of a rule on one switch: in port, group (as a number: faster to hash)


@dataclass(slots=True)
class _Op:
    """What one action asked of several switches. `left`: of how many the answer is not here."""

    number: int
    done: Done
    left: int
    failures: list[tuple[str, str]] = field(default_factory=list)

    def answered(self, switch: str, failure: str) -> None:
        if failure:
            self.failures.append((switch, failure))
        self.left -= 1
        if self.left == 0:
            self.done(self.number, tuple(sorted(self.failures)))


@dataclass(slots=True)
class _Order:
    op: _Op
    removal: bool
    rules: list[MulticastRule]


class RuleOrders:
    """`bound_s`: a switch that does not finish an order within this has failed it."""

    def __init__(self, fabric: SwitchFabric, bound_s: float) -> None:
        self._fabric = fabric
        self._bound_s = bound_s
        self._waiting: dict[str, deque[_Order | Work]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def busy(self) -> int:
        """Switches with orders under way."""
        return len(self._tasks)

    def order(self, number: int, rules: Sequence[MulticastRule], removal: bool, done: Done) -> None:
        """Sets or removes rules; `done` gets the number and what failed, when every switch has answered."""
        shares: dict[str, list[MulticastRule]] = {}
        for rule in rules:
            shares.setdefault(rule.switch, []).append(rule)
        op = _Op(number, done, len(shares))
        for switch, own in shares.items():
            self._put(switch, _Order(op, removal, own))

    def between(self, switch: str, work: Work) -> None:
        """Something else to do with a switch, after the orders before it and before those after it. `work` must not
        raise.
        """
        self._put(switch, work)

    async def close(self) -> None:
        """Gives up what is still under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _put(self, switch: str, order: _Order | Work) -> None:
        waiting = self._waiting.get(switch)
        if waiting is None:
            waiting = self._waiting[switch] = deque()
            self._tasks[switch] = asyncio.ensure_future(self._serve(switch, waiting))
        waiting.append(order)

    async def _serve(self, switch: str, waiting: deque[_Order | Work]) -> None:
        """Until nothing waits for this switch."""
        try:
            while waiting:
                if isinstance(waiting[0], _Order):
                    await self._carry_out(switch, _take(waiting))
                else:
                    await waiting.popleft()()  # type: ignore[operator]
        finally:
            del self._waiting[switch], self._tasks[switch]

    async def _carry_out(self, switch: str, batch: _Batch) -> None:
        try:
            await self._ask(list(batch.removals.values()), list(batch.installs.values()))
        except TimeoutError:
            self._answer(switch, batch.orders, f"no answer within {self._bound_s:g} s")
        except SouthboundError as error:
            if len(batch.orders) == 1:
                self._answer(switch, batch.orders, str(error))
                return
            for order in batch.orders:
                alone = _Batch()
                alone.add(order)
                await self._carry_out(switch, alone)
        else:
            self._answer(switch, batch.orders, "")

    def _answer(self, switch: str, orders: Sequence[_Order], failure: str) -> None:
        for order in orders:
            order.op.answered(switch, failure)

    async def _ask(self, removals: Sequence[MulticastRule], installs: Sequence[MulticastRule]) -> None:
        """Raises SouthboundError, TimeoutError."""
        async with asyncio.timeout(self._bound_s):
            if removals:
                await self._fabric.remove(removals)
            if installs:
                await self._fabric.install(installs)


@dataclass(slots=True)
class _Batch:
    """Removals come first, then what is set."""

    orders: list[_Order] = field(default_factory=list)
    removals: dict[Key, MulticastRule] = field(default_factory=dict)
    installs: dict[Key, MulticastRule] = field(default_factory=dict)
    groups: set[int] = field(default_factory=set)  # set in this batch

    def add(self, order: _Order) -> bool:
        """False if it has to come after this batch: a group whose rules are set in it loses none of its other rules in
        it, because removals go first and would meet the group as it was before.
        """
        keys = [(rule.in_port, int(rule.group)) for rule in order.rules]
        if order.removal:
            if any(key not in self.installs and key[1] in self.groups for key in keys):
                return False
            gone, kept = self.installs, self.removals
        else:
            gone, kept = self.removals, self.installs
            self.groups.update(group for _, group in keys)
        for key, rule in zip(keys, order.rules, strict=True):
            gone.pop(key, None)
            kept[key] = rule
        self.orders.append(order)
        return True


def _take(waiting: deque[_Order | Work]) -> _Batch:
    """The orders at the head that can be put together."""
    batch = _Batch()
    while waiting and len(batch.orders) < BATCH_MAX:
        order = waiting[0]
        if not isinstance(order, _Order) or not batch.add(order):
            break
        waiting.popleft()
    return batch
