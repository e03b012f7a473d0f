"""What is measured: so many messages of one sender, as fast as it can or at a rate, with losses at every receiver."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rostrum.bench.cases import Case

MTU = 1500
BYTES = 1024
RECEIVERS = 3
FLOODS = {0.0: 300_000, 1.0: 150_000}  # messages, by loss in %
LEAST = 100  # messages of a flood
SECONDS = 8  # of a case with a rate
TIMEOUT_S = 40.0


@dataclass(frozen=True, order=True)
class MessageCase:
    """`rate` messages a second, 0 = as many as can be; `loss_percent` at each receiver."""

    rate: int
    loss_percent: float
    count: int
    bytes: int = BYTES
    receivers: int = RECEIVERS

    @property
    def name(self) -> str:
        """`flood-loss1`, `10000-loss0`: the rate, the loss in %; `flood-loss1-200B`: of other than BYTES."""
        size = "" if self.bytes == BYTES else f"-{self.bytes}B"
        return f"{self.rate or 'flood'}-loss{self.loss_percent:g}{size}"

    @property
    def network(self) -> Case:
        """The network of the benches, as this case wants it."""
        return Case(MTU, True, 0, self.loss_percent, self.receivers, self.bytes * self.count)

    @property
    def bound_s(self) -> float:
        return TIMEOUT_S + (self.count / self.rate if self.rate else 0.0)


def case(rate: int, loss_percent: float, quick: bool = False, size: int = BYTES) -> MessageCase:
    """A flood of large messages has fewer of them."""
    if rate:
        return MessageCase(rate, loss_percent, rate * (SECONDS // 4 if quick else SECONDS), size)
    count = FLOODS.get(loss_percent, FLOODS[1.0]) // (3 if quick else 1)
    return MessageCase(0, loss_percent, max(count * BYTES // max(size, BYTES), LEAST), size)


def planned(quick: bool, size: int = BYTES) -> list[MessageCase]:
    """The cases of the issue's figures; all of them also when quick, with fewer messages."""
    found = [case(rate, loss, quick, size) for rate in (0, 10_000) for loss in (0.0, 1.0)]
    return found if quick else [*found, case(1_000, 0.0, size=size), case(1_000, 1.0, size=size)]


def parse(name: str, quick: bool = False, size: int = BYTES) -> MessageCase:
    """The case of that name. Raises ValueError with the remedy."""
    found = re.fullmatch(r"(flood|\d{1,7})-loss(\d{1,2}(?:\.\d+)?)", name)
    if not found or (found[1] != "flood" and int(found[1]) == 0) or float(found[2]) > 50:
        raise ValueError(f"{name!r} is no case; write one like flood-loss0 or 10000-loss1 (at most 50 % loss)")
    return case(0 if found[1] == "flood" else int(found[1]), float(found[2]), quick, size)
