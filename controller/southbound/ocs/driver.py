"""An optical circuit switch by TL1 behind `api.CircuitSwitch`: stays logged in, in the switch's dialect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from rostrum.controller.certificates import Trust
from rostrum.controller.core.model import CrossConnect, Pair, SouthboundError
from rostrum.controller.southbound.api import OnCrossConnect, OnOcsDown, OnOcsUp
from rostrum.controller.southbound.ocs.connection import MayOrder, Tl1Connection, open_connection
from rostrum.controller.southbound.ocs.device import Device
from rostrum.controller.southbound.ocs.dialect import Dialect
from rostrum.controller.southbound.ocs.glimmerglass import Glimmerglass
from rostrum.controller.southbound.ocs.polatis import Polatis
from rostrum.controller.southbound.ocs.tl1 import Autonomous, Command, quote
from rostrum.topologies import secrets
from rostrum.topologies.model import Ocs

log = logging.getLogger(__name__)

KEEPALIVE_S = 5.0  # how often a connection is asked whether it lives
LOGOUT_S = 1.0

# Made of an OCS and the mode. topologies/loader.py has the TL1 port of each, schema.json the names.
DIALECTS: dict[str, Callable[[Ocs, str], Dialect]] = {
    "glimmerglass": Glimmerglass,
    "polatis": lambda ocs, mode: Polatis(ocs),
}


class OcsDriver(Device):
    """One OCS. `mode` (Glimmerglass only): SYNC or ASYNC. `may_order`: as of `Tl1Connection`. TL1 knows no terms, so an
    older leader's orders are told by nothing but that."""

    def __init__(
        self,
        ocs: Ocs,
        on_up: OnOcsUp,
        on_down: OnOcsDown,
        on_change: OnCrossConnect | None = None,
        mode: str = "SYNC",
        may_order: MayOrder | None = None,
        term: int = 0,
        tls: Trust | None = None,
    ) -> None:
        """`tls`: of what stands before the switch, such as stunnel; None: TL1 in clear. Raises SecretError."""
        super().__init__(ocs, on_up, on_down, on_change)
        self._may_order, self._tls = may_order, tls
        self._password = secrets.password(ocs)
        self._dialect = DIALECTS[ocs.dialect](ocs, mode)
        self._link: Tl1Connection | None = None

    async def leave(self) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        try:
            await link.ask(Command("CANC-USER", aid=quote_if_needed(self.ocs.user)), LOGOUT_S)
        except SouthboundError as error:
            log.info("%s: no proper logout: %s", self.ocs.name, error)
        link.drop("closed")

    async def connect(self, pairs: Sequence[Pair]) -> list[CrossConnect]:
        pairs = self.checked(pairs)
        link = self._connected()
        self._connecting.update(pairs)
        try:
            return await self._dialect.connect(link, pairs) if pairs else []
        finally:
            self._connecting.difference_update(pairs)

    async def disconnect(self, pairs: Sequence[Pair]) -> None:
        pairs = self.checked(pairs)
        link = self._connected()
        why = await self._dialect.disconnect(link, pairs) if pairs else ""
        if why:
            stayed = {c.pair for c in await self._dialect.read(link)} & set(pairs)
            if stayed:
                names = ", ".join(f"{p.input}->{p.output}" for p in sorted(stayed))
                raise SouthboundError(f"{self.ocs.name}: cross-connects {names} stayed: {why}")

    async def read(self) -> list[CrossConnect]:
        return [one for one in await self._dialect.read(self._connected()) if self.is_possible(one)]

    def _connected(self) -> Tl1Connection:
        self.check_up()
        assert self._link is not None
        return self._link

    async def session(self) -> str:
        link = await self._open()
        self._link = link
        self.now_up()
        try:
            return await self._until_lost(link)
        finally:
            if self._link is link:
                self._link = None

    async def _open(self) -> Tl1Connection:
        """A connection that is logged in. Raises SouthboundError."""
        ocs = self.ocs
        link = await open_connection(
            ocs.name, str(ocs.address), ocs.management_port, self._autonomous, self._may_order, self._tls
        )
        try:
            command = Command("ACT-USER", aid=quote_if_needed(ocs.user), blocks=("", quote_if_needed(self._password)))
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
            self.changed_by_itself(one)


def quote_if_needed(text: str) -> str:
    """TL1 text as it is, or in quotes where it holds what TL1 gives a meaning to."""
    return text if text.isalnum() and text.isascii() else quote(text)
