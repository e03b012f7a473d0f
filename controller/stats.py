"""How long requests take to be answered."""

from __future__ import annotations

import math
from collections import deque

KEPT = 10_000  # the last so many answers


class Latency:
    """Percentiles of recent durations (ns)."""

    def __init__(self) -> None:
        self._recent: deque[int] = deque(maxlen=KEPT)
        self.count = 0

    def add(self, ns: int) -> None:
        self._recent.append(ns)
        self.count += 1

    def percentile_ms(self, percent: float) -> float | None:
        """The least time that at least `percent` % of the recent ones do not exceed; None if there are none."""
        if not self._recent:
            return None
        ordered = sorted(self._recent)
        return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] / 1e6

    def max_ms(self) -> float | None:
        return max(self._recent) / 1e6 if self._recent else None
