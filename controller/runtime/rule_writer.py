"""Orders to switches: each switch gets its own in the order they were given, and what came while it was busy at once.

Orders that wait are put together, so that a switch is asked once for many paths, and what was taken back meanwhile is
never set: of the orders about one rule the last one counts. When a switch refuses what was put together, each order is
tried by itself, so that only the one at fault fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from rostrum.controller.core.model import MulticastRule, SouthboundError
from rostrum.controller.runtime.rule_queue import Batch, Done, Failures, Order, Waiting, Work
from rostrum.controller.runtime.run_clock import CLOCK
from rostrum.controller.southbound.api import SwitchFabric

__all__ = ["Done", "Failures", "RuleWriter"]


class RuleWriter:
    """`bound_s`: a switch that does not finish an order within this has failed it. `may_act`: asked when a switch is
    about to be asked for something.
    """

    def __init__(
        self, driver: Callable[[str], SwitchFabric], bound_s: float, may_act: Callable[[], bool] | None = None
    ) -> None:
        self._driver = driver  # of a switch
        self._may_act = may_act or (lambda: True)
        self._bound_s = bound_s
        self._waiting = Waiting()
        self._tasks: dict[str, asyncio.Task[None]] = {}  # one for each switch, from its first order on
        self._asleep: dict[str, asyncio.Future[None]] = {}  # those of them that wait for orders
        self._asked: dict[str, float] = {}  # switch -> when (s, the process's clock) it was asked for what it does now
        self._late: set[str] = set()  # did not answer in time; what it was asked for is given up
        self._watch: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> int:
        """Switches with orders under way."""
        return len(self._waiting.orders)

    def order(self, number: int, rules: Sequence[MulticastRule], removal: bool, done: Done) -> None:
        """Sets or removes rules; `done` gets the number and what failed, when every switch has answered."""
        self._start(self._waiting.split(number, rules, removal, done))

    def between(self, switch: str, work: Work) -> None:
        """Something else to do with a switch, after the orders before it and before those after it. `work` must not
        raise.
        """
        if self._waiting.put(switch, Order(None, False, None, 0, work)):
            self._start([switch])

    async def close(self) -> None:
        """Gives up what is still under way."""
        if self._watch:
            self._watch.cancel()
        self._asleep.clear()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, switches: Sequence[str]) -> None:
        if not switches:
            return
        loop = asyncio.get_running_loop()
        for switch in switches:
            asleep = self._asleep.pop(switch, None)
            if asleep is None:
                self._tasks[switch] = loop.create_task(self._serve(switch, loop))
            else:
                asleep.set_result(None)
        if self._watch is None:
            self._watch = loop.call_later(self._bound_s, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Gives up calls that take too long. One timer for all switches: one for each call costs more than the call."""
        now = CLOCK.s()
        for switch, asked in self._asked.items():
            if asked + self._bound_s <= now:
                self._late.add(switch)
                self._tasks[switch].cancel()
        next_s = min((asked + self._bound_s - now for asked in self._asked.values()), default=self._bound_s)
        self._watch = loop.call_later(max(next_s, self._bound_s / 20), self._look, loop) if self.busy else None

    async def _serve(self, switch: str, loop: asyncio.AbstractEventLoop) -> None:
        """All that comes for this switch."""
        while True:
            waiting = self._waiting.orders[switch]
            try:
                while waiting:
                    work = waiting[0].work
                    if work is not None:
                        del waiting[0]
                        await work()
                    else:
                        await self._carry_out(switch, self._waiting.take(switch), loop)
            finally:
                del self._waiting.orders[switch]
                self._late.discard(switch)
            asleep = self._asleep[switch] = loop.create_future()
            await asleep

    async def _carry_out(self, switch: str, batch: Batch, loop: asyncio.AbstractEventLoop) -> None:
        try:
            failure = await self._ask(switch, batch, loop)
        except SouthboundError as error:
            if len(batch.orders) > 1:
                for one in batch.alone():
                    await self._carry_out(switch, one, loop)
                return
            failure = str(error)
        batch.answer(switch, failure)

    async def _ask(self, switch: str, batch: Batch, loop: asyncio.AbstractEventLoop) -> str:
        """What failed; empty = nothing. Raises SouthboundError."""
        if not self._may_act():
            return "no order given: this manager does not lead any more"
        self._asked[switch] = CLOCK.s()
        try:
            driver = self._driver(switch)
            if batch.removals:
                await driver.remove(list(batch.removals.values()))
            if batch.installs:
                await driver.install(list(batch.installs.values()))
        except asyncio.CancelledError:
            if not self._given_up(switch):
                raise
            return f"no answer within {self._bound_s:g} s"
        except TimeoutError as error:  # the driver's own
            return str(error) or "no answer in time"
        finally:
            del self._asked[switch]
        return ""

    def _given_up(self, switch: str) -> bool:
        """Whether its task was cancelled because the switch is late, and for no other reason."""
        if switch not in self._late:
            return False
        self._late.remove(switch)
        return self._tasks[switch].uncancel() == 0
