"""What a scheduler sees of a request, what it may decide, and the decision that suits most."""

from __future__ import annotations

from dataclasses import dataclass

from rostrum.controller.core.queue import Key
from rostrum.controller.core.resources import Plan, Resources
from rostrum.controller.core.values import Obstacle, PathRequest, Wanted
from rostrum.controller.core.words import seconds


@dataclass(frozen=True)
class Waiting:
    """A request in the queue. `since`: its arrival, or when the session before it gave its path back. After
    `circuit_until` it takes a packet path instead of waiting for a circuit.
    """

    path_id: str
    request: PathRequest
    since: int
    circuit_until: int
    blockers: tuple[Key, ...] = ()  # what was in its way at the last look, in the words of `reason`
    reason: str = ""


@dataclass(frozen=True)
class Grant:
    """`accepted_size` below the remaining size = partial acceptance (paper, Sec.

    III). `reason`: why a packet path was chosen. `receivers`: those that the plan is for, if not all (only for requests
    that `splits`); the others come again as a request of their own.
    """

    path_id: str
    plan: Plan
    accepted_size: int
    reason: str = ""
    receivers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wait:
    path_id: str
    reason: str
    until: int | None = None  # when it may be over by itself
    blockers: tuple[Key, ...] = ()  # nothing changes before one of these is free (or `until`); empty = not known


@dataclass(frozen=True)
class Deny:
    path_id: str
    reason: str


Decision = Grant | Wait | Deny


def offer(waiting: Waiting, resources: Resources, now: int, session_bytes: int | None = None) -> Decision:
    """How a request can be served now: a circuit if it may, else the packet network when waiting has no sense or took
    too long.
    """
    request = waiting.request
    reason = "a packet path was asked for"
    patient = request.wanted is Wanted.CIRCUIT or now < waiting.circuit_until
    if waiting.blockers and patient and not resources.any_free(waiting.blockers):
        return Wait(waiting.path_id, waiting.reason, None, waiting.blockers)
    if request.wanted is not Wanted.PACKET:
        plan = resources.plan_circuit(request, now)
        if not isinstance(plan, Obstacle):
            return Grant(waiting.path_id, plan, accepted(request, session_bytes))
        if request.wanted is Wanted.CIRCUIT:
            return Deny(waiting.path_id, plan.reason) if plan.ever else _wait(waiting, plan)
        if plan.ever:
            reason = plan.reason
        elif now >= waiting.circuit_until:
            reason = f"no circuit within {seconds(now - waiting.since)}: {plan.reason}"
        elif plan.until is not None and plan.until > waiting.circuit_until:
            reason = f"no circuit in time: {plan.reason}"
        else:
            return _wait(waiting, plan)
    tree = resources.plan_packet(request, now)
    if not isinstance(tree, Obstacle):
        return Grant(waiting.path_id, tree, accepted(request, session_bytes), reason)
    if tree.ever:
        return Deny(waiting.path_id, tree.reason if request.wanted is Wanted.PACKET else f"{tree.reason}; {reason}")
    return _wait(waiting, tree)


def _wait(waiting: Waiting, obstacle: Obstacle) -> Wait:
    return Wait(waiting.path_id, obstacle.reason, obstacle.until, obstacle.blockers)


def accepted(request: PathRequest, session_bytes: int | None) -> int:
    """Bytes that one grant allows."""
    return request.remaining_size if session_bytes is None else min(request.remaining_size, session_bytes)
