"""How long things take: percentiles of the last ones for people, histograms since the start for monitoring."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

KEPT = 10_000  # the last so many answers
ANSWER_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0)


class Histogram:
    """Counts of values per bucket; `bounds` are the buckets' upper ends, ascending, each within its bucket."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper end, values up to it) as Prometheus wants it; the last end is +Inf."""
        rows, so_far = [], 0
        for bound, count in zip((*self.bounds, math.inf), self._counts, strict=True):
            so_far += count
            rows.append(("+Inf" if bound == math.inf else repr(bound), float(so_far)))
        return rows


class Latency:
    """Percentiles of recent durations (ns), and the histogram of all."""

    def __init__(self) -> None:
        self._recent: deque[int] = deque(maxlen=KEPT)
        self.count = 0
        self.histogram = Histogram(ANSWER_BOUNDS_S)  # s

    def add(self, ns: int) -> None:
        self._recent.append(ns)
        self.count += 1
        self.histogram.add(ns / 1e9)

    def percentile_ms(self, percent: float) -> float | None:
        """The least time that at least `percent` % of the recent ones do not exceed; None if there are none."""
        if not self._recent:
            return None
        ordered = sorted(self._recent)
        return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] / 1e6

    def max_ms(self) -> float | None:
        return max(self._recent) / 1e6 if self._recent else None
