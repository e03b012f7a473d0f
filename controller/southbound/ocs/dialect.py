"""What a dialect is to the driver: how it makes, takes down and reads cross-connects over a connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rostrum.controller.core.model import CrossConnect, CrossConnectState, Pair
from rostrum.controller.southbound.ocs.connection import Tl1Connection
from rostrum.controller.southbound.ocs.tl1 import Autonomous
from rostrum.topologies.model import Ocs

SETTLED = (CrossConnectState.STEADY, CrossConnectState.FAULT, CrossConnectState.INVALID)
SETTLE_FACTOR = 4  # a cross-connect that is not settled after this many reconfiguration times and ...
SETTLE_MORE_S = 1.0  # ... this is given up


def settle_s(ocs: Ocs) -> float:
    return SETTLE_FACTOR * ocs.reconfiguration_s + SETTLE_MORE_S


class Dialect(Protocol):
    """Methods raise SouthboundError (AnswerTimeout among them) when the switch cannot be asked."""

    async def connect(self, link: Tl1Connection, pairs: Sequence[Pair]) -> list[CrossConnect]:
        """Orders those that the switch does not have, and looks again where it refuses. One result per pair, in order,
        each STEADY, FAULT or INVALID.
        """

    async def disconnect(self, link: Tl1Connection, pairs: Sequence[Pair]) -> str:
        """Why some stayed, in the switch's text; empty if all are gone or the switch says nothing."""

    async def read(self, link: Tl1Connection) -> list[CrossConnect]:
        """All cross-connects on the switch."""

    def changed(self, message: Autonomous) -> list[CrossConnect]:
        """The cross-connects that an autonomous message reports."""
