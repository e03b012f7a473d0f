"""Breadth-first splitter cascades and their light budget.

A splitter is an external passive device: an OCS output feeds it, its outputs enter OCS inputs. The signal of a sender's
rack enters the OCS at the ToR's port and is steered through splitters until there is one branch for each receivers'
rack.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rostrum.controller.core.model import Pair
from rostrum.controller.core.values import Budget
from rostrum.topologies.model import Light, Splitter


@dataclass(frozen=True, order=True)
class TorPort:
    """An OCS port that a ToR's port is cabled to (a pair of fibres: input and output of that number)."""

    tor: str
    tor_port: int
    ocs_port: int


@dataclass(frozen=True)
class Cascade:
    uplink: TorPort
    downlinks: tuple[TorPort, ...]
    splitters: tuple[str, ...]
    pairs: tuple[Pair, ...]
    budgets: tuple[Budget, ...]  # in the order of downlinks

    @property
    def weakest(self) -> Budget:
        return min(self.budgets, key=lambda budget: budget.margin_db)


def needed(racks: int, fanout: int) -> int:
    """Splitters of one fan-out that `racks` receiver racks take."""
    return max(1, math.ceil((racks - 1) / (fanout - 1))) if racks > 1 else 0


def branches(splitters: Sequence[Splitter]) -> int:
    """Ends of a cascade of all these splitters: each one takes a branch and gives fan-out branches."""
    return 1 + sum(splitter.fanout - 1 for splitter in splitters)


def cascade(uplink: TorPort, downlinks: Sequence[TorPort], splitters: Sequence[Splitter], light: Light) -> Cascade:
    """The cross-connects that carry `uplink`'s light through `splitters`, attached breadth first in the order given, to
    every downlink.

    Raises ValueError when the splitters have too few branches.
    """
    if branches(splitters) < len(downlinks):
        raise ValueError(f"{len(splitters)} splitters have {branches(splitters)} branches, {len(downlinks)} are needed")
    # An open branch: the OCS input its light enters by, the power there, the splitters passed.
    open_branches: deque[tuple[int, float, tuple[str, ...]]] = deque([(uplink.ocs_port, light.transmit_dbm, ())])
    pairs: list[Pair] = []
    for splitter in splitters:
        fibre, power, passed = open_branches.popleft()
        pairs.append(Pair(fibre, splitter.input))
        after = power - light.cross_connect_loss_db - splitter.loss_db
        open_branches.extend((output, after, (*passed, splitter.name)) for output in splitter.outputs)
    budgets: list[Budget] = []
    for downlink in downlinks:
        fibre, power, passed = open_branches.popleft()
        pairs.append(Pair(fibre, downlink.ocs_port))
        arriving = power - light.cross_connect_loss_db
        budgets.append(
            Budget(
                downlink.tor, downlink.ocs_port, passed, round(arriving, 3), round(arriving - light.sensitivity_dbm, 3)
            )
        )
    return Cascade(
        uplink, tuple(downlinks), tuple(splitter.name for splitter in splitters), tuple(pairs), tuple(budgets)
    )


def expected_dbm(made: Cascade, splitters: dict[str, Splitter], light: Light) -> dict[Pair, float]:
    """Power that should enter the OCS at each cross-connect of a cascade."""
    at_input = {made.uplink.ocs_port: light.transmit_dbm}
    by_feed = {splitters[name].input: splitters[name] for name in made.splitters}
    expected: dict[Pair, float] = {}
    for pair in made.pairs:
        expected[pair] = at_input[pair.input]
        splitter = by_feed.get(pair.output)
        if splitter:
            for output in splitter.outputs:
                at_input[output] = expected[pair] - light.cross_connect_loss_db - splitter.loss_db
    return expected


def fit(uplink: TorPort, downlinks: Sequence[TorPort], available: Sequence[Splitter], light: Light) -> Cascade | None:
    """A cascade from `available` splitters whose every branch has light enough, few splitters first; None if there is
    none.
    """
    for chosen in _choices(available, len(downlinks)):
        made = cascade(uplink, downlinks, chosen, light)
        if made.weakest.margin_db >= 0:
            return made
    return None


def best_budget(
    uplink: TorPort, downlinks: Sequence[TorPort], available: Sequence[Splitter], light: Light
) -> Cascade | None:
    """The cascade with the strongest weakest branch, whether or not that is light enough; None if the branches do not
    suffice.
    """
    made = [cascade(uplink, downlinks, chosen, light) for chosen in _choices(available, len(downlinks))]
    return max(made, key=lambda one: one.weakest.margin_db, default=None)


def _choices(available: Sequence[Splitter], racks: int) -> Iterator[list[Splitter]]:
    """Selections worth trying: fewest splitters and no wider than needed; fewest; least loss; least loss for its
    width.
    """
    if racks <= 1:
        yield []
        return
    widest = _enough(sorted(available, key=lambda s: -s.fanout), racks)
    if widest is None:
        return
    yield _narrowed(widest, available, racks)
    yield widest
    for key in (lambda s: s.loss_db, lambda s: s.loss_db / math.log2(s.fanout)):
        chosen = _enough(sorted(available, key=key), racks)
        if chosen is not None:
            # Wide ones on top keep the cascade shallow.
            yield sorted(chosen, key=lambda s: -s.fanout)


def _enough(ordered: list[Splitter], racks: int) -> list[Splitter] | None:
    for count in range(1, len(ordered) + 1):
        if branches(ordered[:count]) >= racks:
            return ordered[:count]
    return None


def _narrowed(widest: list[Splitter], available: Sequence[Splitter], racks: int) -> list[Splitter]:
    """The same number of splitters, each replaced by the narrowest that still leaves branches enough."""
    chosen = list(widest)
    names = {splitter.name for splitter in chosen}
    narrow_first = sorted((s for s in available), key=lambda s: s.fanout)
    for index in range(len(chosen) - 1, -1, -1):
        for candidate in narrow_first:
            if candidate.fanout >= chosen[index].fanout:
                break
            trial = [*chosen[:index], candidate, *chosen[index + 1 :]]
            if candidate.name not in names and branches(trial) >= racks:
                names = names - {chosen[index].name} | {candidate.name}
                chosen = trial
                break
    return chosen
