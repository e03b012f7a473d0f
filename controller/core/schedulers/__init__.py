"""Scheduling algorithms, as plug-ins chosen by name: those here, and any that a package offers under the entry point
group `rostrum.schedulers`.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from rostrum.controller.core.schedulers.base import BestEffort, Scheduler
from rostrum.controller.core.schedulers.blast import Blast
from rostrum.controller.core.schedulers.fifo import Fifo
from rostrum.controller.core.schedulers.quantum import Quantum
from rostrum.controller.core.schedulers.split import Split
from rostrum.controller.core.schedulers.srt import ShortestRemainingTime

BUILT_IN: dict[str, type[Scheduler]] = {
    scheduler.name: scheduler for scheduler in (Fifo, BestEffort, Quantum, Blast, ShortestRemainingTime, Split)
}
ENTRY_POINTS = "rostrum.schedulers"


class UnknownScheduler(Exception):
    """No scheduler has that name."""


def names() -> list[str]:
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINTS))})


def create(name: str, session_bytes: int | None = None) -> Scheduler:
    """A new scheduler by its name. Raises UnknownScheduler."""
    kind = BUILT_IN.get(name)
    if kind is None:
        point = next((point for point in entry_points(group=ENTRY_POINTS) if point.name == name), None)
        if point is None:
            raise UnknownScheduler(f"there is no scheduler {name!r}; known are {', '.join(names())}")
        kind = point.load()
    return kind(session_bytes)
