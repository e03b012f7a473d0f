"""What a scheduler sees of a request, what it may decide, and the decision that suits most."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rostrum.controller.core.circuits import technology
from rostrum.controller.core.circuits.plan import CircuitPlan
from rostrum.controller.core.circuits.resources import Plan, Resources
from rostrum.controller.core.requests.queue import Key
from rostrum.controller.core.text import seconds
from rostrum.controller.core.values import REST, Obstacle, ObstacleKind, PathRequest, Wanted

PACKET_SHARE = 16  # of the packet network's rate a transfer is sure to have one part in so many: others use it too


@dataclass(frozen=True)
class Waiting:
    """A request in the queue. `since`: its arrival, or when the session before it gave its path back. After
    `circuit_until` it takes a packet path instead of waiting for a circuit.
    """

    path_id: str
    request: PathRequest
    since: int
    circuit_until: int
    blockers: tuple[Key, ...] = ()  # what was in its way at the last look
    obstacle: Obstacle | None = None  # with `blockers`: as it was told then


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


class Wait:
    """The request waits. `obstacle`: for what; a plug-in may say so in a text of its own."""

    def __init__(self, path_id: str, obstacle: Obstacle | str, until: int | None = None) -> None:
        self.path_id = path_id
        self.obstacle = _obstacle(obstacle, until)

    @property
    def reason(self) -> str:
        return self.obstacle.text


class Deny:
    """The request is refused. `obstacle`: for what; a plug-in may say so in a text of its own."""

    def __init__(self, path_id: str, obstacle: Obstacle | str) -> None:
        self.path_id = path_id
        self.obstacle = _obstacle(obstacle, None)

    @property
    def reason(self) -> str:
        return self.obstacle.text


def _obstacle(what: Obstacle | str, until: int | None) -> Obstacle:
    return Obstacle(ObstacleKind.SCHEDULER, what, until=until) if isinstance(what, str) else what


Decision = Grant | Wait | Deny


def offer(waiting: Waiting, resources: Resources, now: int, session_bytes: int | None = None) -> Decision:
    """How a request can be served now: a circuit if it may, else the packet network when waiting has no sense or took
    too long.
    """
    request = waiting.request
    reason = "a packet path was asked for"
    patient = request.wanted is Wanted.CIRCUIT or now < waiting.circuit_until
    if waiting.obstacle and waiting.blockers and patient and not resources.any_free(waiting.blockers):
        return Wait(waiting.path_id, waiting.obstacle)
    if request.wanted is not Wanted.PACKET:
        plan = resources.plan_circuit(request, now)
        soon = small(request, resources, plan)
        if soon and (tree := resources.plan_packet(request, now)) and not isinstance(tree, Obstacle):
            return Grant(waiting.path_id, tree, accepted(request, session_bytes), soon)
        if not isinstance(plan, Obstacle):
            return Grant(waiting.path_id, plan, accepted(request, session_bytes))
        if request.wanted is Wanted.CIRCUIT:
            return Deny(waiting.path_id, plan) if plan.ever else Wait(waiting.path_id, plan)
        if plan.ever:
            reason = plan.text
        elif now >= waiting.circuit_until:
            reason = f"no circuit within {seconds(now - waiting.since)}: {plan.text}"
        elif plan.until is not None and plan.until > waiting.circuit_until:
            reason = f"no circuit in time: {plan.text}"
        else:
            return Wait(waiting.path_id, plan)
    tree = resources.plan_packet(request, now)
    if not isinstance(tree, Obstacle):
        return Grant(waiting.path_id, tree, accepted(request, session_bytes), reason)
    if tree.ever:
        text = tree.text if request.wanted is Wanted.PACKET else f"{tree.text}; {reason}"
        return Deny(waiting.path_id, replace(tree, text=text))
    return Wait(waiting.path_id, tree)


def small(request: PathRequest, resources: Resources, plan: CircuitPlan | Obstacle) -> str:
    """Why packets are there sooner than a circuit is made; empty if they are not, or a live circuit is free.

    The size is unknown (0) where people ask; an agent's object may be empty. Who asks for a circuit gets one.
    """
    known = request.data_size > 0 or request.origin != REST
    if request.wanted is not Wanted.AUTO or not known:
        return ""
    if isinstance(plan, Obstacle):
        if plan.ever or not resources.topology.ocs:
            return ""
        ahead_ns = min(technology.delay_ns(one) for one in resources.topology.ocs.values())
    elif plan.reconfiguration_ns == 0:
        return ""
    else:
        ahead_ns = plan.reconfiguration_ns
    rate_bps = resources.ends(request).rate_bps  # of the slowest server, which either has to serve
    circuit_ns = ahead_ns + request.remaining_size * 8e9 / rate_bps
    packets_ns = request.remaining_size * 8e9 * PACKET_SHARE / rate_bps
    if packets_ns > circuit_ns:
        return ""
    return f"{request.remaining_size} bytes get there by packets before a circuit is made ({seconds(round(ahead_ns))})"


def accepted(request: PathRequest, session_bytes: int | None) -> int:
    """Bytes that one grant allows."""
    return request.remaining_size if session_bytes is None else min(request.remaining_size, session_bytes)
