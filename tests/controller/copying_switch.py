"""A kind of circuit switch that rostrum does not have, in one file: it copies light to four outputs by itself, without
splitters, and makes one cross-connect after another. What a package would offer as `copying = "module:KIND"`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

from rostrum.controller.core.circuits.splitters import Cascade, TorPort
from rostrum.controller.core.model import CrossConnect, CrossConnectState, Pair
from rostrum.controller.core.values import Budget
from rostrum.controller.southbound.ocs.device import Device
from rostrum.topologies.circuit_kinds import CircuitKind
from rostrum.topologies.model import Ocs, Splitter

COPIES = 4
EACH_S = 0.005


class Copying:
    """The technology."""

    def reaches(self, ocs: Ocs) -> int:
        return COPIES

    def shortage(self, ocs: Ocs) -> str:
        return f"it copies light to {COPIES} outputs at most"

    def fit(
        self, ocs: Ocs, uplink: TorPort, downlinks: Sequence[TorPort], available: Sequence[Splitter]
    ) -> Cascade | None:
        made = self.best(ocs, uplink, downlinks, available)
        return made if made is not None and made.weakest.margin_db >= 0 else None

    def best(
        self, ocs: Ocs, uplink: TorPort, downlinks: Sequence[TorPort], available: Sequence[Splitter]
    ) -> Cascade | None:
        if len(downlinks) > COPIES:
            return None
        power = ocs.light.transmit_dbm - self._loss_db(ocs, len(downlinks))
        margin = round(power - ocs.light.sensitivity_dbm, 3)
        return Cascade(
            uplink,
            tuple(downlinks),
            (),
            tuple(Pair(uplink.ocs_port, one.ocs_port) for one in downlinks),
            tuple(Budget(one.tor, one.ocs_port, (), round(power, 3), margin) for one in downlinks),
        )

    def delay_s(self, ocs: Ocs, made: Cascade | None) -> float:
        return EACH_S * (1 if made is None else len(made.pairs))

    def loss_db(self, ocs: Ocs, made: Cascade, pair: Pair) -> float:
        return self._loss_db(ocs, len(made.pairs))

    def _loss_db(self, ocs: Ocs, copies: int) -> float:
        return ocs.light.cross_connect_loss_db + 10 * math.log10(copies)


class CopyingDriver(Device):
    """Of a switch that is a table in memory."""

    def __init__(self, ocs: Ocs, *callbacks: Any, **_: Any) -> None:
        super().__init__(ocs, *callbacks)
        self.table: set[Pair] = set()

    async def session(self) -> str:
        self.now_up()
        await asyncio.Event().wait()
        return ""

    async def connect(self, pairs: Sequence[Pair]) -> list[CrossConnect]:
        self.check_up()
        self.table |= set(self.checked(pairs))
        await asyncio.sleep(EACH_S * len(pairs))
        return [CrossConnect(pair, CrossConnectState.STEADY, 0.0, -7.0) for pair in pairs]

    async def disconnect(self, pairs: Sequence[Pair]) -> None:
        self.check_up()
        self.table -= set(pairs)

    async def read(self) -> list[CrossConnect]:
        self.check_up()
        return [CrossConnect(pair, CrossConnectState.STEADY, 0.0, -7.0) for pair in sorted(self.table)]


KIND = CircuitKind("copying", 4711, f"{__name__}:CopyingDriver", f"{__name__}:Copying")
