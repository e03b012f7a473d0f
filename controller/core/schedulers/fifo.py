"""Strict order of arrival: nobody overtakes a request that waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rostrum.controller.core.circuits.resources import Resources
from rostrum.controller.core.schedulers.base import LOOK_AHEAD, Decision, Scheduler, Wait, Waiting
from rostrum.controller.core.values import Obstacle, ObstacleKind


class Fifo(Scheduler):
    name: ClassVar[str] = "fifo"

    def schedule(self, queue: Sequence[Waiting], resources: Resources, now: int) -> list[Decision]:
        decisions: list[Decision] = []
        head: Wait | None = None
        for waiting in queue[:LOOK_AHEAD]:
            if head:
                text, subject = f"behind {head.path_id} (fifo), which is {head.reason}", f"behind {head.path_id}"
                decisions.append(Wait(waiting.path_id, Obstacle(ObstacleKind.BEHIND, text, subject=subject)))
                continue
            decision = self.serve(waiting, resources, now)
            decisions.append(decision)
            if isinstance(decision, Wait):
                head = decision
        return decisions
