"""Split: who cannot have a circuit to all receivers gets one to some of them, and to the others later.

A wide request has to wait until all the downlinks and splitters that it needs are free at once, and holds up nobody
meanwhile, so it may wait for long. Here it takes the most receivers' racks that one circuit can reach now, if that is
most of them, or if it has waited for long, or if no circuit ever reaches all. The others come again as a request of
their own. A grant is for a quantum of bytes at most (preemption as in `quantum`): who is split does not keep what it
got from the others.

Each part takes the sender's uplink for as long as the whole would: small parts cost more than they gain.

Nobody starves: turns go by age, whatever becomes free is offered to the oldest first, and in the end one free downlink
of those that it wants is enough for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import ClassVar

from rostrum.controller.core.circuits.plan import CircuitPlan
from rostrum.controller.core.circuits.resources import Resources
from rostrum.controller.core.schedulers.base import LOOK_AHEAD, Decision, Grant, Scheduler, Wait, Waiting, accepted
from rostrum.controller.core.schedulers.offers import small
from rostrum.controller.core.schedulers.quantum import QUANTUM_BYTES
from rostrum.controller.core.values import Obstacle, PathRequest, Wanted

LEAST_SHARE = 0.75  # of the receivers' racks, for a part that is worth it at once
WAIT_NS = 10_000_000_000  # after that, any part is


class Split(Scheduler):
    """`session_bytes` is the quantum. Requests that do not say that they `splits` are served as by `quantum`."""

    name: ClassVar[str] = "split"
    each_alone: ClassVar[bool] = True

    def __init__(self, session_bytes: int | None = None) -> None:
        super().__init__(session_bytes or QUANTUM_BYTES)

    def schedule(self, queue: Sequence[Waiting], resources: Resources, now: int) -> list[Decision]:
        turns = sorted(queue, key=lambda waiting: waiting.since)[:LOOK_AHEAD]  # stable: then in order of arrival
        return [self._some(waiting, resources, now) or self.serve(waiting, resources, now) for waiting in turns]

    def _some(self, waiting: Waiting, resources: Resources, now: int) -> Decision | None:
        """A circuit to some of the receivers, or the wait for the first of them; None = it is about all of them."""
        request = waiting.request
        if not request.splits or request.wanted is Wanted.PACKET:
            return None
        if waiting.blockers and not resources.any_free(waiting.blockers):
            return None
        whole = resources.plan_circuit(request, now)
        if isinstance(whole, CircuitPlan) or small(request, resources, whole):
            return None
        part, plan, obstacles = largest_part(request, resources, now)
        if plan is None:
            return _wait(waiting, obstacles, now)
        share = len(resources.remote_racks(part)) / len(resources.remote_racks(request))
        until = waiting.since + WAIT_NS
        if share < LEAST_SHARE and now < until and not whole.ever:
            if whole.until is None and (request.wanted is Wanted.CIRCUIT or now < waiting.circuit_until):
                return Wait(waiting.path_id, replace(whole, until=until, blockers=()))
            return None
        resources.reserve(waiting.path_id, part, plan, now)
        count = f"{len(part.receivers)} of {len(request.receivers)} receivers"
        reason = f"split: {count} now, the others later: {whole.text}"
        return Grant(waiting.path_id, plan, accepted(part, self.session_bytes), reason, part.receivers)


def largest_part(
    request: PathRequest, resources: Resources, now: int
) -> tuple[PathRequest, CircuitPlan | None, list[Obstacle]]:
    """The request for the most receivers' racks that one circuit reaches now, those with many receivers first, and its
    plan; or what is in the way of each rack. Receivers in the sender's own rack belong to every part: they need no
    circuit, and alone could not have one.
    """
    servers = resources.topology.servers
    near = servers[request.sender].tor

    def plan_for(racks: Sequence[str]) -> tuple[PathRequest, CircuitPlan | Obstacle]:
        wanted = {near, *racks}
        part = replace(request, receivers=tuple(name for name in request.receivers if servers[name].tor in wanted))
        return part, resources.plan_circuit(part, now)

    alone = {rack: plan_for([rack]) for rack in resources.remote_racks(request)}
    free = [rack for rack, (_, plan) in alone.items() if isinstance(plan, CircuitPlan)]
    free.sort(key=lambda rack: -len(alone[rack][0].receivers))
    best: tuple[PathRequest, CircuitPlan] | None = None
    least, most = 0, len(free)
    while least < most:  # more racks need more splitters and light
        count = (least + most + 1) // 2
        part, plan = plan_for(free[:count])
        if isinstance(plan, CircuitPlan):
            least, best = count, (part, plan)
        else:
            most = count - 1
    if best is None:
        return request, None, [plan for _, plan in alone.values() if isinstance(plan, Obstacle)]
    return *best, []


def _wait(waiting: Waiting, obstacles: Sequence[Obstacle], now: int) -> Wait | None:
    """Until the first rack is free; None if the request may not wait for that, or none ever will be."""
    must = waiting.request.wanted is Wanted.CIRCUIT
    if not must and now >= waiting.circuit_until:
        return None
    ahead = [one for one in obstacles if not one.ever]
    hopeful = [one for one in ahead if must or one.until is None or one.until <= waiting.circuit_until]
    if not hopeful:
        return None
    ends = [one.until for one in ahead if one.until is not None]
    known = all(one.blockers for one in ahead)
    blockers = tuple(dict.fromkeys(chain.from_iterable(one.blockers for one in ahead))) if known else ()
    return Wait(waiting.path_id, replace(hopeful[0], until=min(ends, default=None), blockers=blockers))
