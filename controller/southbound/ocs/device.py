"""What drivers of an OCS share: they stay connected, say why they are not, and take no call that cannot be right."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence

from rostrum.controller.core.model import CrossConnect, CrossConnectState, Pair, SouthboundError
from rostrum.controller.southbound.api import OnCrossConnect, OnOcsDown, OnOcsUp
from rostrum.topologies.model import Ocs

log = logging.getLogger(__name__)

BACKOFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # between attempts to connect; the last one repeats
STEADY_S = 5.0  # a connection that held so long is made again at once; one that ended sooner is as one that failed
MAX_PAIRS = 1024  # of one call


class Device(ABC):
    """`on_up()` each time it is ready, `on_down(cause)` when the connection is lost, `on_change(cross_connect)` when
    the switch reports a FAULT by itself. A driver adds `session` and the calls of `api.CircuitSwitch`."""

    def __init__(self, ocs: Ocs, on_up: OnOcsUp, on_down: OnOcsDown, on_change: OnCrossConnect | None = None) -> None:
        self.ocs = ocs
        self.up = False
        self._on_up, self._on_down, self._on_change = on_up, on_down, on_change
        self._up_since = 0.0  # by the loop's clock
        self._cause = "not started"
        self._task: asyncio.Task[None] | None = None
        self._connecting: set[Pair] = set()
        self._impossible = False  # it listed a cross-connect of ports that it does not have, and that was told

    @abstractmethod
    async def session(self) -> str:
        """Connects, says `now_up()` when it works, returns why it ended. Raises SouthboundError, before or after."""

    async def start(self) -> None:
        self._cause = "connecting"
        self._task = asyncio.create_task(self._stay_connected())

    async def close(self) -> None:
        task, self._task = self._task, None
        await self.leave()
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        self.up = False
        self._cause = "closed"

    async def leave(self) -> None:  # noqa: B027 most switches do not
        """Takes leave of the switch, if it wants that."""

    async def _stay_connected(self) -> None:
        failures = 0
        while True:
            try:
                cause = await self.session()
            except SouthboundError as error:
                cause = str(error)
            was_up, self.up = self.up, False
            if self._task is None:
                return  # closed
            if was_up:
                self._on_down(cause)
                if asyncio.get_running_loop().time() - self._up_since >= STEADY_S:
                    failures, self._cause = 0, cause
                    continue
            elif cause != self._cause:
                log.warning("%s; trying again", cause)
            self._cause = cause
            await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
            failures += 1

    def now_up(self) -> None:
        self.up, self._up_since = True, asyncio.get_running_loop().time()
        self._on_up()

    def check_up(self) -> None:
        """Raises SouthboundError as text when it is not connected."""
        if not self.up:
            where = f"{self.ocs.address}:{self.ocs.management_port}"
            raise SouthboundError(f"{self.ocs.name} at {where} is not connected: {self._cause}")

    def checked(self, pairs: Sequence[Pair]) -> list[Pair]:
        """The pairs, each once. Raises SouthboundError for ports the switch does not have."""
        if len(pairs) > MAX_PAIRS:
            raise SouthboundError(f"{self.ocs.name}: {len(pairs)} cross-connects at once; {MAX_PAIRS} is the most")
        for pair in pairs:
            if not (1 <= pair.input <= self.ocs.ports and 1 <= pair.output <= self.ocs.ports):
                asked = f"{pair.input}->{pair.output}"
                raise SouthboundError(f"{self.ocs.name}: no cross-connect {asked}: ports are 1 to {self.ocs.ports}")
        if len(set(pairs)) != len(pairs):
            raise SouthboundError(f"{self.ocs.name}: the same cross-connect twice in one call")
        return list(pairs)

    def is_possible(self, one: CrossConnect) -> bool:
        """Whether the switch can have that at all. Else its table is not to be trusted, which a person has to know."""
        if 1 <= one.pair.input <= self.ocs.ports and 1 <= one.pair.output <= self.ocs.ports:
            return True
        self.not_possible(f"{one.pair.input}->{one.pair.output} {one.state.value}")
        return False

    def not_possible(self, row: str) -> None:
        if not self._impossible:
            self._impossible = True
            log.warning("%s lists %s, but its ports are 1 to %d: left out", self.ocs.name, row, self.ocs.ports)

    def changed_by_itself(self, one: CrossConnect) -> None:
        unasked = one.pair not in self._connecting and self.is_possible(one)
        if unasked and one.state is CrossConnectState.FAULT and self._on_change is not None:
            self._on_change(one)
