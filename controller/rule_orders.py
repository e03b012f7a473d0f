"""Orders to switches: each switch gets its own in the order they were given, and what came while it was busy at once.

Orders that wait are put together, so that a switch is asked once for many paths, and what was taken back meanwhile is
never set: of the orders about one rule the last one counts. When a switch refuses what was put together, each order is
tried by itself, so that only the one at fault fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rostrum.controller.core.model import MulticastRule, SouthboundError
from rostrum.controller.rule_batches import Batch, Done, Failures, Order, Waiting, Work
from rostrum.controller.southbound.api import SwitchFabric

__all__ = ["Done", "Failures", "RuleOrders"]


class RuleOrders:
    """`bound_s`: a switch that does not finish an order within this has failed it."""

    def __init__(self, fabric: SwitchFabric, bound_s: float) -> None:
        self._fabric = fabric
        self._bound_s = bound_s
        self._waiting = Waiting()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def busy(self) -> int:
        """Switches with orders under way."""
        return len(self._tasks)

    def order(self, number: int, rules: Sequence[MulticastRule], removal: bool, done: Done) -> None:
        """Sets or removes rules; `done` gets the number and what failed, when every switch has answered."""
        for switch in self._waiting.split(number, rules, removal, done):
            self._tasks[switch] = asyncio.ensure_future(self._serve(switch))

    def between(self, switch: str, work: Work) -> None:
        """Something else to do with a switch, after the orders before it and before those after it. `work` must not
        raise.
        """
        if self._waiting.put(switch, Order(None, False, [], work)):
            self._tasks[switch] = asyncio.ensure_future(self._serve(switch))

    async def close(self) -> None:
        """Gives up what is still under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, switch: str) -> None:
        """Until nothing waits for this switch."""
        waiting = self._waiting.orders[switch]
        try:
            while waiting:
                work = waiting[0].work
                if work is None:
                    await self._carry_out(switch, self._waiting.take(switch))
                else:
                    waiting.popleft()
                    await work()
        finally:
            del self._waiting.orders[switch], self._tasks[switch]

    async def _carry_out(self, switch: str, batch: Batch) -> None:
        try:
            await self._ask(list(batch.removals.values()), list(batch.installs.values()))
        except TimeoutError:
            batch.answer(switch, f"no answer within {self._bound_s:g} s")
        except SouthboundError as error:
            if len(batch.orders) == 1:
                batch.answer(switch, str(error))
                return
            for order in batch.orders:
                alone = Batch()
                alone.add(order)
                await self._carry_out(switch, alone)
        else:
            batch.answer(switch, "")

    async def _ask(self, removals: Sequence[MulticastRule], installs: Sequence[MulticastRule]) -> None:
        """Raises SouthboundError, TimeoutError."""
        async with asyncio.timeout(self._bound_s):
            if removals:
                await self._fabric.remove(removals)
            if installs:
                await self._fabric.install(installs)
