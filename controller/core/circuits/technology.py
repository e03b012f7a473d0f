"""What a technology of circuits decides: how many racks one circuit reaches, through what, and how long it takes. Each
kind of circuit switch names one (topologies/circuit_kinds.py); plan.py asks it. `Splitters` is the paper's.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Protocol

from rostrum.controller.core.circuits.splitters import Cascade, TorPort, best_budget, branches, fit
from rostrum.controller.core.model import Pair
from rostrum.topologies import circuit_kinds
from rostrum.topologies.model import Ocs, Splitter


class Technology(Protocol):
    """Pure: the same answers to the same questions. A cascade's pairs may have one input several times where the switch
    itself makes copies; an output once."""

    def reaches(self, ocs: Ocs) -> int:
        """Racks that one circuit reaches at most, with all of the switch free."""

    def shortage(self, ocs: Ocs) -> str:
        """Why it does not reach more, as text."""

    def fit(
        self, ocs: Ocs, uplink: TorPort, downlinks: Sequence[TorPort], available: Sequence[Splitter]
    ) -> Cascade | None:
        """The circuit from a ToR to others through free splitters; None if it cannot be, or no light would arrive."""

    def best(
        self, ocs: Ocs, uplink: TorPort, downlinks: Sequence[TorPort], available: Sequence[Splitter]
    ) -> Cascade | None:
        """The one with most light, whether or not that is enough; None if there are too few branches."""

    def delay_s(self, ocs: Ocs, made: Cascade | None) -> float:
        """Until all its cross-connects are steady. None: at least, for any circuit."""

    def loss_db(self, ocs: Ocs, made: Cascade, pair: Pair) -> float:
        """Between input and output of a cross-connect of this circuit."""


class Splitters:
    """Light through external 1:N splitters; all mirrors move at once."""

    def reaches(self, ocs: Ocs) -> int:
        return branches(list(ocs.splitters.values()))

    def shortage(self, ocs: Ocs) -> str:
        if not ocs.splitters:
            return "it has no splitters"
        return f"its {len(ocs.splitters)} splitters have {self.reaches(ocs)} branches"

    def fit(
        self, ocs: Ocs, uplink: TorPort, downlinks: Sequence[TorPort], available: Sequence[Splitter]
    ) -> Cascade | None:
        return fit(uplink, downlinks, available, ocs.light)

    def best(
        self, ocs: Ocs, uplink: TorPort, downlinks: Sequence[TorPort], available: Sequence[Splitter]
    ) -> Cascade | None:
        return best_budget(uplink, downlinks, available, ocs.light)

    def delay_s(self, ocs: Ocs, made: Cascade | None) -> float:
        return ocs.reconfiguration_s

    def loss_db(self, ocs: Ocs, made: Cascade, pair: Pair) -> float:
        return ocs.light.cross_connect_loss_db


@functools.cache
def _of_kind(dialect: str) -> Technology:
    made: Technology = circuit_kinds.named(circuit_kinds.kind(dialect).technology)()
    return made


def of(ocs: Ocs) -> Technology:
    return _of_kind(ocs.dialect)


def delay_ns(ocs: Ocs, made: Cascade | None = None) -> int:
    return round(of(ocs).delay_s(ocs, made) * 1e9)
