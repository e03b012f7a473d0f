"""Shortest remaining time first: least mean completion time, at the cost of the large.

The time a request would take is what is left of it at the rate of the path it would get now, and the reconfiguration
time when no live circuit covers its receivers. Requests that cannot be served now come after those that can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rostrum.controller.core.circuit_plan import CircuitPlan
from rostrum.controller.core.resources import Resources
from rostrum.controller.core.schedulers.base import LOOK_AHEAD, Decision, Scheduler, Waiting
from rostrum.controller.core.values import Obstacle


class ShortestRemainingTime(Scheduler):
    name: ClassVar[str] = "srt"
    each_alone: ClassVar[bool] = True

    def schedule(self, queue: Sequence[Waiting], resources: Resources, now: int) -> list[Decision]:
        soonest = sorted(queue[:LOOK_AHEAD], key=lambda waiting: remaining_s(waiting, resources, now))
        return [self.serve(waiting, resources, now) for waiting in soonest]


def remaining_s(waiting: Waiting, resources: Resources, now: int) -> tuple[bool, float]:
    """(not servable now, seconds until the request would be done)."""
    request, servers = waiting.request, resources.topology.servers
    plan = resources.plan_circuit(request, now)
    if isinstance(plan, CircuitPlan):
        return False, plan.reconfiguration_ns / 1e9 + request.remaining_size * 8 / plan.rate_bps
    tree = resources.plan_packet(request, now)
    if not isinstance(tree, Obstacle):
        return False, request.remaining_size * 8 / tree.rate_bps
    rate_bps = min(servers[name].rate_bps for name in (request.sender, *request.receivers))
    return True, request.remaining_size * 8 / rate_bps
