"""A fixed quantum of bytes per grant: nobody holds a circuit for longer than the quantum takes.

What is left of a larger object comes again as a request of its own (partial acceptance, Sec. III of the paper) and
queues behind those that came meanwhile, so that small objects do not wait for large ones to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rostrum.controller.core.circuits.resources import Resources
from rostrum.controller.core.schedulers.base import LOOK_AHEAD, Decision, Scheduler, Waiting

QUANTUM_BYTES = 256 << 20  # two seconds at 1 Gbit/s, 0.2 s at 10: some times what a reconfiguration takes


class Quantum(Scheduler):
    """`session_bytes` is the quantum."""

    name: ClassVar[str] = "quantum"
    each_alone: ClassVar[bool] = True

    def __init__(self, session_bytes: int | None = None) -> None:
        super().__init__(session_bytes or QUANTUM_BYTES)

    def schedule(self, queue: Sequence[Waiting], resources: Resources, now: int) -> list[Decision]:
        turns = sorted(queue, key=lambda waiting: waiting.since)[:LOOK_AHEAD]  # stable: then in order of arrival
        return [self.serve(waiting, resources, now) for waiting in turns]
