"""Requests in: queue, scheduling, answers; and paths going back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.circuits import technology
from rostrum.controller.core.circuits.circuits import Circuit, CircuitState, Conflict
from rostrum.controller.core.circuits.plan import CircuitPlan
from rostrum.controller.core.circuits.resources import PacketPlan
from rostrum.controller.core.groups.addresses import Exhausted
from rostrum.controller.core.model import PathKind
from rostrum.controller.core.packet import trees
from rostrum.controller.core.rdcm import views
from rostrum.controller.core.requests import protocols, quotas, validation
from rostrum.controller.core.requests.paths import Path, RuleSet, Transfer
from rostrum.controller.core.schedulers.base import LOOK_AHEAD
from rostrum.controller.core.schedulers.offers import Decision as SchedulerDecision
from rostrum.controller.core.schedulers.offers import Deny, Grant, Wait, Waiting
from rostrum.controller.core.state import Core, PendingCircuit
from rostrum.controller.core.text import dotted, listed, seconds
from rostrum.controller.core.values import (
    MS,
    REST,
    Decision,
    Obstacle,
    ObstacleKind,
    PathRequest,
    PathResponse,
    Protocol,
    Stamps,
    State,
    Wanted,
)

LIGHT_MARGIN_MS = 200  # light bound = 3 x reconfiguration time + this
PACKET_LIGHT_BOUND_MS = 1_000
NOTICE_NS = 1_000_000_000  # an agent is not told more often why its request waits


def request_received(core: Core, event: ev.RequestReceived, now: int) -> None:
    request = event.request
    known = core.by_request.get((request.origin, request.request_id))
    if known is not None and not core.paths[known].lapsed:
        core.paths[known].unconfirmed_until = None
        answer(core, core.paths[known])
        return
    path = Path(core.next_id("p"), request, Stamps(now))
    wrong = validation.problems(request, core.topology, core.settings)
    obstacle = Obstacle(ObstacleKind.INVALID, "; ".join(wrong), ever=True) if wrong else None
    if not wrong and len(core.queue) >= core.settings.queue_max:
        full = f"{len(core.queue)} requests are waiting already; ask again later"
        obstacle = Obstacle(ObstacleKind.QUEUE_FULL, full)
    core.paths[path.id] = path
    core.by_request[request.origin, request.request_id] = path.id
    if obstacle:
        deny(core, path, obstacle, now)
        core.forget_old()
        return
    for changed in core.repeats.keep(event.key, event.body, path.id, now) if event.key else ():
        core.persistence.mark("repeat", changed)
    _transfer(core, path, now)
    _begin_to_wait(core, path, now)
    core.queue.append(path.id)
    core.persistence.mark("path", path.id)
    core.counts["requested"] += 1
    run_queue(core, now, news=False)
    core.forget_old()


def _transfer(core: Core, path: Path, now: int) -> None:
    """The path's transfer: a request for all of the object begins one, a request for the rest continues it (paper,
    Sec. III).
    """
    request = path.request
    if request.origin == REST:
        return
    if request.remaining_size < request.data_size or request.splits:
        known = core.newest_transfer.get((request.sender, request.app_id, request.data_id))
        transfer = core.transfers[known] if known is not None else None
        if transfer is not None and not transfer.ended and _continues(request, transfer):
            path.follows = _before(core, transfer)
            transfer.sessions.append(path.id)
            path.transfer_id = transfer.id
            return
    path.transfer_id = core.next_id("t")
    core.add_transfer(Transfer.of(path, request.data_size, now))


def _continues(request: PathRequest, transfer: Transfer) -> bool:
    """With the rest of the object, or with receivers that the path before left out."""
    return request.remaining_size < request.data_size or set(request.receivers) < set(transfer.receivers)


def _begins_transfer(core: Core, path: Path) -> bool:
    transfer = core.transfers.get(path.transfer_id)
    return transfer is None or transfer.sessions[0] == path.id


def _before(core: Core, transfer: Transfer) -> str:
    """The session that another one waits for: of several (parts of the receivers) the last that has a path."""
    for path_id in reversed(transfer.sessions):
        path = core.paths.get(path_id)
        if path is not None and path.granted:
            return path_id
    return transfer.sessions[-1]


def _begin_to_wait(core: Core, path: Path, now: int) -> None:
    wait_ns = core.settings.wait_ns if path.request.wait_ms is None else path.request.wait_ms * MS
    if _before_its_turn(core, path):
        wait_ns = core.settings.wait_max_ns  # the wait proper begins at its turn
    path.waiting_since = now
    path.wait_until = now + wait_ns
    path.circuit_until = now + min(wait_ns, core.settings.circuit_wait_ns)


def _before_its_turn(core: Core, path: Path) -> bool:
    """A further session of a transfer that still has the circuit of the session before. It asks early so that nothing
    is lost in between; its own circuit is in its way, and that must not send it over the packet network.
    """
    before = core.paths.get(path.follows)
    return before is not None and before.granted and before.kind is PathKind.CIRCUIT


def check_queue(core: Core, now: int) -> None:
    """For some that wait a time has come."""
    run_queue(core, now, news=False)


def run_queue(core: Core, now: int, news: bool = True) -> None:
    """Lets the scheduler decide about what waits. `news`: something else changed than what `resources` knows to have
    become free; otherwise those that wait for what is still in use are not looked at again.
    """
    queue = core.queue
    freed = core.resources.take_freed()
    if not queue:
        return
    if news:
        queue.wake_all()
    else:
        queue.wake(freed)
    queue.wake_due(now)
    if core.scheduler.in_order:
        _one_by_one(core, queue.awake(), now)
    else:
        _together(core, queue.awake() if core.scheduler.each_alone else list(queue), now)
    due = queue.wake_due(now)
    if due is not None:
        core.schedule_check("queue", due)


def _one_by_one(core: Core, looked_at: list[str], now: int) -> None:
    """Those that came first first. What one of them takes is taken when the next is looked at."""
    looks, nothing_kept = 0, core.resources.look()
    for path_id in looked_at:
        path = core.paths[path_id]
        blockers = core.queue.blockers(path_id)
        patient = now < path.circuit_until or path.request.wanted is Wanted.CIRCUIT
        if blockers and patient and now < path.wait_until and not core.resources.any_free(blockers):
            core.queue.back(path_id)
            continue
        looks += 1
        one = _waiting(core, path, now) if looks <= LOOK_AHEAD else None
        decisions = core.scheduler.schedule([one], nothing_kept, now) if one else []
        _decided(core, path, decisions[0] if decisions else _undecided(core, path), now)


def _together(core: Core, looked_at: list[str], now: int) -> None:
    waiting = [one for path_id in looked_at if (one := _waiting(core, core.paths[path_id], now))]
    decisions: dict[str, SchedulerDecision] = {}
    if waiting:
        decisions = {one.path_id: one for one in core.scheduler.schedule(waiting, core.resources.fork(), now)}
    for path_id in looked_at:
        path = core.paths[path_id]
        _decided(core, path, decisions.get(path_id) or _undecided(core, path), now)


def _decided(core: Core, path: Path, decision: SchedulerDecision, now: int) -> None:
    if isinstance(decision, Grant):
        carried_out = _grant(core, path, decision, now)
        if carried_out is None:
            return
        core.queue.wake_all()  # what others were said to wait for, nobody took
        decision = carried_out
    if isinstance(decision, Deny):
        core.queue.remove(path.id)
        deny(core, path, decision.obstacle, now)
    elif isinstance(decision, Wait):
        _wait(core, path, decision, now)


def _waiting(core: Core, path: Path, now: int) -> Waiting | None:
    """The path as the scheduler sees it; None if its time has not come, or nobody is there to use it."""
    if is_silent(core, path):
        return None
    if path.follows:
        if _before_its_turn(core, path):
            return None
        path.follows = ""
        _begin_to_wait(core, path, now)
    request = path.request
    if path.over_quota:
        if core.quotas.holds(path, now):
            return None
        if core.quotas.packet_only(path, now):
            request = replace(request, wanted=Wanted.PACKET)
    blockers = core.queue.blockers(path.id)
    return Waiting(
        path.id, request, path.waiting_since, path.circuit_until, blockers, path.obstacle if blockers else None
    )


def is_silent(core: Core, path: Path) -> bool:
    """Its agent has said nothing for its lease."""
    agent = core.agents.get(path.request.origin)
    return agent is not None and agent.lapsed


def _undecided(core: Core, path: Path) -> Wait:
    if is_silent(core, path):
        return _waits(path, ObstacleKind.AGENTS, f"the agent of {path.request.origin} is silent")
    if path.follows:
        return _waits(path, ObstacleKind.BEHIND, f"the session before it still has its circuit ({path.follows})")
    if path.over_quota:
        return Wait(path.id, path.over_quota.obstacle)
    return _waits(path, ObstacleKind.BEHIND, f"behind others in the queue of {len(core.queue)}")


def _waits(path: Path, kind: ObstacleKind, text: str) -> Wait:
    return Wait(path.id, Obstacle(kind, text))


def _wait(core: Core, path: Path, decision: Wait, now: int) -> None:
    obstacle = decision.obstacle
    path.reason, path.obstacle = obstacle.text, obstacle
    if now >= path.wait_until:
        core.queue.remove(path.id)
        text = f"not served within {seconds(now - path.stamps.requested)}: {obstacle.text}"
        deny(core, path, replace(obstacle, text=text), now)
        return
    times = (path.circuit_until, path.wait_until, obstacle.until)
    core.queue.sleep(path.id, obstacle.blockers, min(at for at in times if at is not None and at > now))
    if path.told and now < path.told_at + NOTICE_NS:
        return
    about = (obstacle.kind, obstacle.subject or obstacle.text)
    if path.told != about:
        if not path.told:
            core.counts["queued"] += 1
        path.told, path.told_at = about, now
        core.log("queued", path=path.id, request=path.request.request_id, reason=obstacle.text)
        answer(core, path)
        core.emit(act.PathChanged(path.id))


def deny(core: Core, path: Path, obstacle: Obstacle, now: int) -> None:
    reason = path.reason = path.cause = obstacle.text
    path.obstacle = obstacle
    path.to(State.FAILED, now)
    core.persistence.mark("path", path.id)
    core.counts["denied"] += 1
    request = path.request
    core.warn("denied", path=path.id, request=request.request_id[:64], sender=request.sender[:64], reason=reason)
    answer(core, path)
    core.emit(act.PathChanged(path.id))


def _within_quota(core: Core, path: Path, grant: Grant, now: int) -> Grant | Wait | Deny:
    """The grant, or what becomes of the request because its tenant may not have that, or not now."""
    over = core.quotas.over(path.request.tenant, quotas.need(grant.plan))
    if over is None:
        if path.over_quota and path.over_quota.circuit and path.request.wanted is Wanted.AUTO:
            return replace(grant, reason=f"no circuit: {path.over_quota.obstacle.text}")
        return grant
    path.over_quota = over
    if core.quotas.packet_only(path, now):
        core.wake_at(now)  # at the end of this step, as a packet path
        return Wait(path.id, over.obstacle)
    return Deny(path.id, over.obstacle) if over.ever or over.policy == "deny" else Wait(path.id, over.obstacle)


def _grant(core: Core, path: Path, grant: Grant, now: int) -> Wait | Deny | None:
    """Carries a grant out: the answer first, then switches and OCS in parallel (paper, III-B).

    Returns another decision if the grant cannot be carried out after all.
    """
    if core.quotas.limits:
        within = _within_quota(core, path, grant, now)
        if not isinstance(within, Grant):
            return within
        grant = within
    plan = grant.plan
    kind = PathKind.CIRCUIT if isinstance(plan, CircuitPlan) else PathKind.PACKET
    request = _served(core, path.request, grant)
    if request is None:
        return _waits(path, ObstacleKind.RESOURCES, "waiting for a path to all receivers")
    all_of_it = grant.accepted_size == request.remaining_size == request.data_size
    whole = all_of_it and request is path.request and _begins_transfer(core, path)
    protocol, message = protocols.choose(core, request, kind, plan.hops, whole)
    word = protocol.name.lower()
    demanding = protocol in (Protocol.RDCM, Protocol.WAN) and request.origin != REST
    if demanding and (strange := protocols.without(core, request, word)):
        text = f"waiting for agents that know {word}, which the request demands: {listed(strange, 4)}"
        return _waits(path, ObstacleKind.AGENTS, text)
    rule_set = core.idle_rules.take(plan.hops)
    try:
        group = rule_set.group if rule_set else _group(core, now)
        reservation = core.resources.reserve(path.id, request, plan, now)
    except Exhausted as error:
        return _waits(path, ObstacleKind.GROUPS_USED, f"waiting for a multicast group: {error}")
    except Conflict as conflict:
        if rule_set:
            core.idle_rules.keep(rule_set)
        else:
            core.groups.give_back(group)
        core.warn("scheduler granted what is taken", path=path.id, scheduler=core.scheduler.name, cause=conflict)
        return _waits(path, ObstacleKind.RESOURCES, f"waiting for resources: {conflict}")
    core.queue.remove(path.id)
    core.persistence.mark("path", path.id)
    path.request = request
    path.reason, path.group, path.hops = grant.reason, group, plan.hops
    path.accepted_size, path.rate_bps = grant.accepted_size, plan.rate_bps
    path.kind, path.protocol = kind, protocol
    path.reason = "; ".join(text for text in (path.reason, message) if text)
    if isinstance(plan, PacketPlan):
        path.take_tree(plan.tree)
    path.stamps.accepted = now
    path.to(State.CONFIGURING, now)
    if request.origin == REST and request.lease_ms is not None:
        path.lease_until = now + request.lease_ms * MS
        core.expires(path, path.lease_until)
    if isinstance(plan, CircuitPlan):
        path.ocs, path.reconfiguration_ns = plan.ocs, plan.reconfiguration_ns
        path.reused_circuit = plan.reuse is not None
    core.set_rules(path)
    answer(core, path)
    if protocol is Protocol.RDCM:
        views.begin(core, path, now)
    if isinstance(plan, CircuitPlan):
        circuit = reservation.circuit or core.resources.circuits.of_user(path.id)
        assert circuit is not None
        _set_circuit(core, path, plan, circuit, reservation.evicted, now)
    if rule_set:
        if rule_set.op is None:
            path.rules_in, path.stamps.rules_in = True, now
        else:
            core.take_over(rule_set.op, path)
        switches = core.topology.switches
        watching = tuple(rule for rule in path.rules if rule.confirm and switches[rule.switch].p4)
        if watching:
            core.emit(act.RearmRules(watching, path.id))
    else:
        core.install(path, now)
    _accepted_text(core, path)
    maybe_active(core, path, now)
    return None


def _served(core: Core, request: PathRequest, grant: Grant) -> PathRequest | None:
    """The request as far as the grant serves it. None if whoever asks would not notice who is left out."""
    if not grant.receivers or grant.receivers == request.receivers:
        return request
    if request.splits and set(grant.receivers) < set(request.receivers):
        return replace(request, receivers=grant.receivers)
    core.warn("scheduler split what cannot be", path=grant.path_id, scheduler=core.scheduler.name)
    return None


def _accepted_text(core: Core, path: Path) -> None:
    kind = path.kind_name
    core.counts[f"accepted_{kind}"] += 1
    core.counts["reused_circuits"] += path.reused_circuit
    core.log(
        "accepted",
        path=path.id,
        request=path.request.request_id,
        kind=kind,
        group=dotted(path.group) if path.group else "",
        sender=path.request.sender,
        receivers=len(path.request.receivers),
        bytes=path.accepted_size,
        reused=path.reused_circuit,
        reason=path.reason,
    )


def _group(core: Core, now: int) -> IPv4Address:
    try:
        return core.groups.take()
    except Exhausted:
        oldest = core.idle_rules.oldest()
        if oldest is None:
            raise
        core.discard((oldest,), now)
        return core.groups.take()


def _set_circuit(
    core: Core, path: Path, plan: CircuitPlan, circuit: Circuit, evicted: tuple[Circuit, ...], now: int
) -> None:
    path.ocs, path.circuit_id, path.cascade = circuit.ocs, circuit.id, circuit.cascade
    wanted = set(circuit.cascade.pairs)
    core.persistence.mark("circuit", circuit.id)
    for victim in evicted:
        core.persistence.mark("circuit", victim.id)
        core.discard(core.idle_rules.of_circuit(victim.id), now)
        gone = tuple(pair for pair in victim.cascade.pairs if pair not in wanted)
        core.disconnect(victim.ocs, gone, f"reclaimed for {path.id}")
    if plan.reuse is None:
        connect(core, [path], circuit, now)
    elif circuit.state is CircuitState.LIVE:
        path.cross_connects = circuit.powers
        path.stamps.cross_connects_steady = now
    else:
        path.circuit_op = circuit.op


def connect(core: Core, paths: Sequence[Path], circuit: Circuit, now: int) -> None:
    """Has the OCS make a circuit for these paths."""
    op = core.next_serial()
    circuit = core.resources.circuits.setting(circuit.id, op)
    reconfiguration = technology.delay_ns(core.topology.ocs[circuit.ocs], circuit.cascade)
    until = now + reconfiguration + core.settings.configure_bound_ns
    core.circuit_ops[op] = PendingCircuit(circuit.id, until)
    core.schedule_check("orders", until)
    for path in paths:
        path.circuit_op = op
    core.emit(act.Connect(op, circuit.ocs, circuit.cascade.pairs, paths[0].id))


def maybe_active(core: Core, path: Path, now: int) -> None:
    """Configuring is over when rules are in and, on a circuit, the cross-connects are steady."""
    if path.state is State.CONFIGURING and path.rules_in and path.rules_op is None and path.circuit_op is None:
        path.to(State.ACTIVE, now)
        core.log("active", path=path.id, kind=path.kind_name, ms=(now - path.stamps.requested) / MS)
    core.emit(act.PathChanged(path.id))


def answer(core: Core, path: Path) -> None:
    """Says to the agent how its request stands."""
    request = path.request
    if request.origin == REST:
        return
    if path.state is State.QUEUED:
        response = PathResponse(request.request_id, path.id, Decision.QUEUED, path.reason)
    elif path.granted:
        response = _accepted(core, path)
    else:
        text = path.cause or f"{path.id} was granted for this request and is {path.state.value}; ask with a new id"
        response = PathResponse(request.request_id, path.id, Decision.DENIED, text)
    core.emit(act.Respond(request.origin, response))


def _accepted(core: Core, path: Path) -> PathResponse:
    is_tree = path.protocol is Protocol.WAN and path.kind is PathKind.PACKET
    shape = trees.links_of(core.topology, path.request.sender, path.hops) if is_tree else (0, 0)
    return PathResponse(
        request_id=path.request.request_id,
        response_id=path.id,
        decision=Decision.ACCEPTED,
        reason=path.reason,
        accepted_size=path.accepted_size,
        kind=path.kind or PathKind.PACKET,
        group=dotted(path.group) if path.group else "",
        data_port=core.topology.data_port,
        reconfiguration_ns=path.reconfiguration_ns,
        rate_bps=path.rate_bps,
        lease_ms=core.settings.lease_ns // MS,
        light_bound_ms=_light_bound_ms(core, path),
        receivers=tuple([core.address(name) for name in path.request.receivers]),
        protocol=path.protocol,
        dark=_expected_dark(core, path) if core.resources.health.darkness else (),
        sender_rack=core.address(path.request.sender).rack,
        tree_links=shape[0],
        path_links=shape[1],
    )


def _expected_dark(core: Core, path: Path) -> tuple[str, ...]:
    """Receivers whose light the sender need not wait for."""
    if path.kind is None or path.protocol is Protocol.RDCM:
        return ()
    darkness, request, now = core.resources.health.darkness, path.request, path.stamps.accepted or 0
    return tuple([one for one in request.receivers if darkness.expected(one, path.kind, request.origin, now)])


def _light_bound_ms(core: Core, path: Path) -> int:
    if core.settings.light_bound_ms is not None:
        return core.settings.light_bound_ms
    if path.kind is PathKind.PACKET:
        return PACKET_LIGHT_BOUND_MS
    return 3 * technology.delay_ns(core.topology.ocs[path.ocs], path.cascade) // MS + LIGHT_MARGIN_MS


def released(core: Core, event: ev.Released, now: int) -> None:
    """Table II: release. Unknown ids are ignored, and so is an agent's report about somebody else's path."""
    path = core.paths.get(event.path_id)
    if path is None and event.request_id:
        path = core.paths.get(core.by_request.get((event.origin, event.request_id), ""))
    if path is None or event.origin not in (REST, path.request.origin):
        return
    by_others = event.origin != path.request.origin
    if path.state is State.QUEUED:
        withdraw(core, path, "withdrawn", now)
        answer(core, path)
    elif path.granted:
        cause = "taken back by request over REST" if by_others else ""
        if by_others:
            core.emit(act.NotifyFailed(path.request.origin, path.id, cause))
        release(core, path, cause, now, given_back=not by_others)
    run_queue(core, now, news=False)
    core.forget_old()


def cancelled(core: Core, event: ev.Cancelled, now: int) -> None:
    path = core.paths.get(core.by_request.get((event.origin, event.request_id), ""))
    if path and path.state is State.QUEUED:
        withdraw(core, path, "withdrawn", now)
        run_queue(core, now, news=False)


def renewed(core: Core, event: ev.Renewed, now: int) -> None:
    path = core.paths.get(event.path_id)
    if path and path.granted and path.request.lease_ms is not None:
        path.lease_until = now + path.request.lease_ms * MS
        core.expires(path, path.lease_until)


def quotas_changed(core: Core, event: ev.QuotasChanged, now: int) -> None:
    core.quotas.change(event.quotas, core.paths.values())
    for path_id in core.queue:
        core.paths[path_id].over_quota = None
    core.log("quotas changed", tenants=",".join(sorted(event.quotas)) or "none")
    run_queue(core, now)


def withdraw(core: Core, path: Path, cause: str, now: int) -> None:
    core.queue.remove(path.id)
    path.cause = cause
    path.to(State.RELEASED, now)
    core.persistence.mark("path", path.id)
    core.counts["withdrawn"] += 1
    core.emit(act.PathChanged(path.id))


def release(core: Core, path: Path, cause: str, now: int, given_back: bool = True) -> None:
    """The path's circuit stays live and its rules stay in, for an identical path to come; everything else is free.

    Not `given_back` by its sender, who may still use it: its rules go, and nobody gets its circuit before they have.
    """
    if given_back:
        core.resources.release(path.id, path.request.sender, path.request.receivers, now)
    else:
        core.resources.leave_ports(path.id, path.request.sender, path.request.receivers)
    removal = None
    path.cause = cause
    path.to(State.RELEASED, now)
    core.persistence.mark("path", path.id)
    if path.group is not None:
        may_stay = given_back and path.hops and not path.retired and core.groups.contains(path.group)
        if may_stay and (path.rules_in or path.rules_op is not None):
            circuit_id = path.circuit_id if path.kind is PathKind.CIRCUIT else None
            rule_set = RuleSet(path.hops, path.group, path.rules, circuit_id, path.rules_op)
            core.discard(core.idle_rules.keep(rule_set), now)
        else:
            removal = core.remove((*path.rules, *path.retired), path.id, now)
            core.groups.give_back(path.group)
    if not given_back:
        core.leave_circuit_after(path.id, (removal,), now)
    path.rules_op = path.circuit_op = None
    views.end(path)
    core.counts["released"] += 1
    held_ms = (now - (path.stamps.accepted or now)) / MS
    core.log("released", path=path.id, cause=cause or "its origin is done", held_ms=held_ms)
    core.emit(act.PathChanged(path.id))
