"""Shortest remaining time first: least mean completion time, at the cost of the large.

The time a request would take is what is left of it at the rate of the path it would get now, and the reconfiguration
time when no live circuit covers its receivers. Where circuits are faster than servers, several requests share one up to
its capacity: one from the same rack that reaches all the racks that are wanted.

Deadlines: of requests that take equally long the one that is due first goes first, and one that would be late if it
waited as long again as it takes goes before the shorter ones. Nobody is refused for a deadline that cannot be met.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rostrum.controller.core.circuits.plan import CircuitPlan
from rostrum.controller.core.circuits.resources import Resources
from rostrum.controller.core.schedulers.base import LOOK_AHEAD, Decision, Grant, Scheduler, Waiting, accepted
from rostrum.controller.core.values import MS, Obstacle, Wanted

NEVER = 1 << 63


class ShortestRemainingTime(Scheduler):
    name: ClassVar[str] = "srt"
    each_alone: ClassVar[bool] = True

    def schedule(self, queue: Sequence[Waiting], resources: Resources, now: int) -> list[Decision]:
        soonest = sorted(queue[:LOOK_AHEAD], key=lambda waiting: urgency(waiting, resources, now))
        return [self._share(waiting, resources, now) or self.serve(waiting, resources, now) for waiting in soonest]

    def _share(self, waiting: Waiting, resources: Resources, now: int) -> Decision | None:
        """A place on a circuit that carries others, when there is none of its own."""
        request = waiting.request
        if request.wanted is Wanted.PACKET or isinstance(resources.plan_circuit(request, now), CircuitPlan):
            return None
        plan = resources.plan_share(request)
        if plan is None:
            return None
        resources.reserve(waiting.path_id, request, plan, now)
        return Grant(waiting.path_id, plan, accepted(request, self.session_bytes), "shares a circuit with others")


def urgency(waiting: Waiting, resources: Resources, now: int) -> tuple[bool, bool, float, int]:
    """(not servable now, not about to be late, seconds until it would be done, deadline): least first. About to be late
    is who can still be in time, but not if it waits as long again as it takes.
    """
    blocked, seconds = remaining_s(waiting, resources, now)
    due = deadline(waiting)
    needs = round(seconds * 1e9)
    late_soon = now + needs <= due < now + 2 * needs
    return blocked, not late_soon, seconds, due


def deadline(waiting: Waiting) -> int:
    """When the transfer should be done (ns, the manager's clock); NEVER if nobody said."""
    limit_ms = waiting.request.deadline_ms
    return NEVER if limit_ms is None else waiting.since + limit_ms * MS


def remaining_s(waiting: Waiting, resources: Resources, now: int) -> tuple[bool, float]:
    """(not servable now, seconds until the request would be done)."""
    request, servers = waiting.request, resources.topology.servers
    plan = resources.plan_circuit(request, now)
    if isinstance(plan, CircuitPlan):
        return False, plan.reconfiguration_ns / 1e9 + request.remaining_size * 8 / plan.rate_bps
    if request.wanted is not Wanted.PACKET and (share := resources.plan_share(request)):
        return False, request.remaining_size * 8 / share.rate_bps
    tree = resources.plan_packet(request, now)
    if not isinstance(tree, Obstacle):
        return False, request.remaining_size * 8 / tree.rate_bps
    rate_bps = min(servers[name].rate_bps for name in (request.sender, *request.receivers))
    return True, request.remaining_size * 8 / rate_bps
