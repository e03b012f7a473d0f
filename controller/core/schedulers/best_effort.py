"""The first that fits: in order of arrival, but a request that cannot be served does not hold up those behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rostrum.controller.core.circuits.resources import Resources
from rostrum.controller.core.schedulers.base import LOOK_AHEAD, Decision, Scheduler, Waiting


class BestEffort(Scheduler):
    name: ClassVar[str] = "best-effort"
    each_alone: ClassVar[bool] = True
    in_order: ClassVar[bool] = True

    def schedule(self, queue: Sequence[Waiting], resources: Resources, now: int) -> list[Decision]:
        return [self.serve(waiting, resources, now) for waiting in queue[:LOOK_AHEAD]]
