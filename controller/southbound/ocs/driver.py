"""An optical circuit switch behind `api.CircuitSwitch`: stays connected and logged in, in the switch's dialect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from rostrum.controller.core.model import CrossConnect, CrossConnectState, Pair, SouthboundError
from rostrum.controller.southbound.api import OnCrossConnect, OnOcsDown, OnOcsUp
from rostrum.controller.southbound.ocs.connection import MayOrder, Tl1Connection, open_connection
from rostrum.controller.southbound.ocs.dialect import Dialect
from rostrum.controller.southbound.ocs.glimmerglass import Glimmerglass
from rostrum.controller.southbound.ocs.polatis import Polatis
from rostrum.controller.southbound.ocs.tl1 import Autonomous, Command, quote
from rostrum.topologies.model import Ocs

log = logging.getLogger(__name__)

BACKOFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # between attempts to connect; the last one repeats
KEEPALIVE_S = 5.0  # how often a connection is asked whether it lives
LOGOUT_S = 1.0
MAX_PAIRS = 1024  # of one call

# Made of an OCS and the mode. topologies/loader.py has the TL1 port of each, schema.json the names.
DIALECTS: dict[str, Callable[[Ocs, str], Dialect]] = {
    "glimmerglass": Glimmerglass,
    "polatis": lambda ocs, mode: Polatis(ocs),
}


class OcsDriver:
    """One OCS. `on_up()` after each login, `on_down(cause)` when the connection is lost, `on_change(cross_connect)`
    when the switch reports a FAULT by itself. `mode` (Glimmerglass only): SYNC or ASYNC. `may_order`: as of
    `Tl1Connection`."""

    def __init__(
        self,
        ocs: Ocs,
        on_up: OnOcsUp,
        on_down: OnOcsDown,
        on_change: OnCrossConnect | None = None,
        mode: str = "SYNC",
        may_order: MayOrder | None = None,
    ) -> None:
        self.ocs = ocs
        self._may_order = may_order
        self._on_up = on_up
        self._on_down = on_down
        self._on_change = on_change
        self._dialect = DIALECTS[ocs.dialect](ocs, mode)
        self._link: Tl1Connection | None = None
        self._cause = "not started"
        self._task: asyncio.Task[None] | None = None
        self._connecting: set[Pair] = set()
        self._impossible = False  # it listed a cross-connect of ports that it does not have, and that was told

    async def start(self) -> None:
        self._cause = "connecting"
        self._task = asyncio.create_task(self._stay_connected())

    async def close(self) -> None:
        task, self._task = self._task, None
        link, self._link = self._link, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        if link is not None:
            try:
                await link.ask(Command("CANC-USER", aid=quote_if_needed(self.ocs.user)), LOGOUT_S)
            except SouthboundError as error:
                log.info("%s: no proper logout: %s", self.ocs.name, error)
            link.drop("closed")
        self._cause = "closed"

    @property
    def up(self) -> bool:
        return self._link is not None

    async def connect(self, pairs: Sequence[Pair]) -> list[CrossConnect]:
        pairs = self._checked(pairs)
        link = self._connected()
        self._connecting.update(pairs)
        try:
            return await self._dialect.connect(link, pairs) if pairs else []
        finally:
            self._connecting.difference_update(pairs)

    async def disconnect(self, pairs: Sequence[Pair]) -> None:
        pairs = self._checked(pairs)
        link = self._connected()
        why = await self._dialect.disconnect(link, pairs) if pairs else ""
        if why:
            stayed = {c.pair for c in await self._dialect.read(link)} & set(pairs)
            if stayed:
                names = ", ".join(f"{p.input}->{p.output}" for p in sorted(stayed))
                raise SouthboundError(f"{self.ocs.name}: cross-connects {names} stayed: {why}")

    async def read(self) -> list[CrossConnect]:
        return [one for one in await self._dialect.read(self._connected()) if self._is_possible(one)]

    def _is_possible(self, one: CrossConnect) -> bool:
        """Whether the switch can have that at all. Else its table is not to be trusted, which a person has to know."""
        if 1 <= one.pair.input <= self.ocs.ports and 1 <= one.pair.output <= self.ocs.ports:
            return True
        if not self._impossible:
            self._impossible = True
            row = f"{one.pair.input}->{one.pair.output} {one.state.value}"
            log.warning("%s lists %s, but its ports are 1 to %d: left out", self.ocs.name, row, self.ocs.ports)
        return False

    def _checked(self, pairs: Sequence[Pair]) -> list[Pair]:
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

    def _connected(self) -> Tl1Connection:
        if self._link is None:
            where = f"{self.ocs.address}:{self.ocs.tl1_port}"
            raise SouthboundError(f"{self.ocs.name} at {where} is not connected: {self._cause}")
        return self._link

    async def _stay_connected(self) -> None:
        failures = 0
        while True:
            try:
                link = await self._open()
            except SouthboundError as error:
                if str(error) != self._cause:
                    log.warning("%s; trying again", error)
                self._cause = str(error)
                await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
                failures += 1
                continue
            failures = 0
            self._link = link
            self._on_up()
            try:
                self._cause = await self._until_lost(link)
            finally:
                if self._link is link and self._task is not None:
                    self._link = None
            self._on_down(self._cause)

    async def _open(self) -> Tl1Connection:
        """A connection that is logged in. Raises SouthboundError."""
        ocs = self.ocs
        link = await open_connection(ocs.name, str(ocs.address), ocs.tl1_port, self._autonomous, self._may_order)
        try:
            command = Command("ACT-USER", aid=quote_if_needed(ocs.user), blocks=("", quote_if_needed(ocs.password)))
            answer = await link.ask(command)
            if answer.code != "COMPLD":
                raise SouthboundError(f"{ocs.name} refused the login of user {ocs.user}: {answer.why()}")
        except BaseException:
            link.drop("no login")
            raise
        return link

    async def _until_lost(self, link: Tl1Connection) -> str:
        """Watches over a connection; returns why it ended."""
        while True:
            done, _ = await asyncio.wait((link.lost,), timeout=KEEPALIVE_S)
            if done:
                return link.lost.result()
            try:
                await link.ask(Command("RTRV-HDR"))  # any answer will do
            except SouthboundError as error:
                link.drop(str(error))

    def _autonomous(self, message: Autonomous) -> None:
        for one in self._dialect.changed(message):
            unasked = one.pair not in self._connecting and self._is_possible(one)
            if unasked and one.state is CrossConnectState.FAULT and self._on_change is not None:
                self._on_change(one)


def quote_if_needed(text: str) -> str:
    """TL1 text as it is, or in quotes where it holds what TL1 gives a meaning to."""
    return text if text.isalnum() and text.isascii() else quote(text)
