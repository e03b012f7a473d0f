"""What a scheduling algorithm is: a pure function from the waiting requests and the resources to decisions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from rostrum.controller.core.circuits.resources import Resources
from rostrum.controller.core.schedulers.offers import Decision, Deny, Grant, Wait, Waiting, accepted, offer

__all__ = ["LOOK_AHEAD", "Decision", "Deny", "Grant", "Scheduler", "Wait", "Waiting", "accepted", "offer"]

LOOK_AHEAD = 256  # requests considered in one run; bounds a run's time when the queue is long


class Scheduler(ABC):
    """A plug-in. It keeps no state of the network: `resources` has it, and what is reserved there is a proposal."""

    name: ClassVar[str]
    # Whether a request that waits for what is in use waits on, whatever else waits: then it is not in the queue that
    # `schedule` gets until one of its blockers is free or its time has come.
    each_alone: ClassVar[bool] = False
    # Whether, besides, those that came first decide first: then `schedule` gets one at a time.
    in_order: ClassVar[bool] = False

    def __init__(self, session_bytes: int | None = None) -> None:
        self.session_bytes = session_bytes

    @abstractmethod
    def schedule(self, queue: Sequence[Waiting], resources: Resources, now: int) -> list[Decision]:
        """Decisions for requests of `queue` (in order of arrival); those without one wait. Called at every arrival,
        whenever something becomes free, and when a wait is over. `resources` is a fork: reserve on it what is granted,
        so that nothing is granted twice.
        """

    def serve(self, waiting: Waiting, resources: Resources, now: int) -> Decision:
        """Serves one request if that is possible now, and reserves what it takes."""
        decision = offer(waiting, resources, now, self.session_bytes)
        if isinstance(decision, Grant):
            resources.reserve(waiting.path_id, waiting.request, decision.plan, now)
        return decision


class BestEffort(Scheduler):
    """The first that fits: in order of arrival, but one that cannot be served does not hold up those behind it."""

    name: ClassVar[str] = "best-effort"
    each_alone: ClassVar[bool] = True
    in_order: ClassVar[bool] = True

    def schedule(self, queue: Sequence[Waiting], resources: Resources, now: int) -> list[Decision]:
        return [self.serve(waiting, resources, now) for waiting in queue[:LOOK_AHEAD]]
