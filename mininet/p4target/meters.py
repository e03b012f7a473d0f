"""Meters: two rates, three colours, as BMv2 has them (RFC 2698 with tokens counted from the start)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

GREEN, YELLOW, RED = 0, 1, 2


class Meter:
    """Colours packets. Not configured, it finds all of them green."""

    def __init__(self, unit: str, clock_us: Callable[[], int]) -> None:
        self.unit, self._clock_us, self._since_us = unit, clock_us, 0
        # For committed and peak rate: units a second, burst, tokens left, tokens ever given.
        self._rates: list[list[int]] = []

    def set(self, rates: Sequence[tuple[int, int]]) -> None:
        """Committed, then peak: (units a second, burst). Nothing: as when new."""
        if rates and rates[0][0] > rates[1][0]:
            raise ValueError("the committed rate is above the peak rate")
        self._since_us = self._clock_us()
        self._rates = [[rate, burst, burst, 0] for rate, burst in rates]

    def rates(self) -> list[tuple[int, int]]:
        return [(rate[0], rate[1]) for rate in self._rates]

    def colour(self, length_bytes: int) -> int:
        if not self._rates:
            return GREEN
        elapsed_us = self._clock_us() - self._since_us
        amount = 1 if self.unit == "packets" else length_bytes
        # From the peak rate down: a packet beyond the peak takes no tokens of the committed rate.
        for rate, colour in ((self._rates[1], RED), (self._rates[0], YELLOW)):
            given = elapsed_us * rate[0] // 1_000_000
            rate[2] = min(rate[1], rate[2] + given - rate[3])
            rate[3] = given
            if rate[2] < amount:
                return colour
            rate[2] -= amount
        return GREEN


class Meters:
    """The meters of an array, made when first used."""

    def __init__(self, unit: str, size: int, clock_us: Callable[[], int] | None = None) -> None:
        self.unit, self.size = unit, size
        self._clock_us = clock_us or monotonic_us
        self._meters: dict[int, Meter] = {}

    def at(self, index: int) -> Meter:
        if index not in self._meters:
            self._meters[index] = self.new()
        return self._meters[index]

    def configured(self, index: int) -> bool:
        return index in self._meters and bool(self._meters[index].rates())

    def new(self) -> Meter:
        return Meter(self.unit, self._clock_us)

    def colour(self, index: int, length_bytes: int) -> int | None:
        """None: there is no such meter, as BMv2 leaves the result alone then."""
        if index >= self.size:
            return None
        meter = self._meters.get(index)
        return meter.colour(length_bytes) if meter else GREEN


def monotonic_us() -> int:
    return time.monotonic_ns() // 1000
