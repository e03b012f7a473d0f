"""Points of the study: one wide area each; and what each tool carries over it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from rostrum.bench.cases import Case

WIRE = 20 + 8 + 38  # bytes of a packet on the wire beside what UDP carries: IP, UDP, frame, preamble and gap
OUR_HEADER = 32
TOLD_BUFFER = 64 << 20  # bytes a TCP connection may keep: more than any rate here times its round trip
FULL = {"rtts": (0.0, 10.0, 50.0, 100.0, 200.0), "losses": (0.0, 0.1, 0.3, 1.0, 5.0), "bursts": (1.0, 10.0)}
BESIDE_TCP = {"rtts": (10.0, 50.0, 100.0, 200.0), "losses": (0.0,), "bursts": (1.0,)}
QUICK = {"rtts": (0.0, 50.0), "losses": (0.0, 0.3), "bursts": (1.0,)}


@dataclass(frozen=True, order=True)
class Point(Case):
    """A wide area: the sender's link has the rate; losses on each receiver's link, both ways (or on the sender's)."""

    rtt_ms: float = 0.0
    burst: float = 1.0  # packets lost in a row, in the mean
    common: bool = False  # packets are lost on the sender's link: all receivers miss the same
    queue: int = 1 << 20
    mark: int = 0
    give_up_s: float = 60.0

    @property
    def name(self) -> str:
        """`50ms/0.3`: round trip, loss in percent; `50ms/0.3x10`: in bursts of ten; `50ms/0+marks`: a switch marks."""
        bursts = f"x{self.burst:g}" if self.burst > 1 and self.loss_percent else ""
        return f"{self.rtt_ms:g}ms/{self.loss_percent:g}{bursts}{'+marks' if self.mark else ''}"

    @property
    def bound_s(self) -> float:
        return self.give_up_s

    @property
    def payload_share(self) -> float:
        """Of the link's rate, what our packets carry."""
        return (self.mtu - 28 - OUR_HEADER) / (self.mtu - 28 + WIRE)

    @property
    def ideal_bps(self) -> float:
        """What could be carried: nothing is sent that was not lost, and what was lost by any is sent again."""
        return self.rate_bps * self.payload_share / resend_factor(self.loss_percent / 100, self.heads)

    @property
    def heads(self) -> int:
        return 1 if self.common else self.receivers


def resend_factor(loss: float, receivers: int) -> float:
    """How often a packet is sent until each has it, at least: the mean of the most of so many geometric numbers."""
    factor, power = 0.0, 1.0
    while loss < 1 and power > 1e-12:
        factor += 1 - (1 - power) ** receivers
        power *= loss
    return factor


def grid(
    rtts: tuple[float, ...],
    losses: tuple[float, ...],
    bursts: tuple[float, ...],
    base: Point,
    marks: tuple[int, ...] = (0,),
) -> Iterator[Point]:
    """Every round trip with every mark and loss; bursts where there is any."""
    values = {name: getattr(base, name) for name in Point.__dataclass_fields__}
    for rtt, mark, loss in itertools.product(rtts, marks, losses):
        for burst in bursts if loss else bursts[:1]:
            yield Point(**{**values, "rtt_ms": rtt, "mark": mark, "loss_percent": loss, "burst": burst})
