"""Switches and OCS at work for a path: their answers, and the way out when something fails."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.circuits import technology
from rostrum.controller.core.circuits.circuits import Circuit, CircuitState, Conflict, Foreign
from rostrum.controller.core.circuits.splitters import expected_dbm
from rostrum.controller.core.groups import membership
from rostrum.controller.core.light.darkness import note_dark
from rostrum.controller.core.model import CrossConnect, CrossConnectState, MulticastRule, Pair, PathKind
from rostrum.controller.core.packet import reroute
from rostrum.controller.core.packet import rules as rule_making
from rostrum.controller.core.rdcm import views
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.requests.requests import LIGHT_MARGIN_MS, maybe_active, run_queue
from rostrum.controller.core.state import Core, ForeignRule, PendingRules
from rostrum.controller.core.text import listed, seconds
from rostrum.controller.core.values import MS, REST, Obstacle, State, Wanted
from rostrum.topologies.model import Ocs

DIM_DB = 3.0  # a power this far below the budget's tells which component is dim
COMPLAINTS_MAX = 2  # reports of "no light" on the packet path before a receiver counts as unreachable


def circuit_result(core: Core, event: ev.CircuitResult, now: int) -> None:
    pending = core.circuit_ops.pop(event.op, None)
    circuit = core.resources.circuits.get(pending.circuit_id) if pending else None
    if pending is None or circuit is None or circuit.op != event.op:
        return  # given up meanwhile; its pairs were disconnected in order
    ocs = core.topology.ocs[circuit.ocs]
    cause = event.error or _faults(core, ocs, circuit, event.cross_connects, now)
    if cause:
        lose_circuit(core, circuit, cause, now)
        run_queue(core, now)
        return
    core.resources.circuits.settled(circuit.id, event.cross_connects, now)
    if pending.doubted:
        core.emit(act.ReadCrossConnects(circuit.ocs))
    for pair in circuit.cascade.pairs:
        core.resources.health.works(ocs, pair)
    for path in core.users(circuit):
        if path.circuit_op != event.op:
            continue
        path.circuit_op = None
        path.cross_connects = event.cross_connects
        path.stamps.cross_connects_steady = now
        core.log("cross-connects steady", path=path.id, pairs=len(event.cross_connects), ms=_since_accepted(path, now))
        maybe_active(core, path, now)


def _faults(core: Core, ocs: Ocs, circuit: Circuit, found: tuple[CrossConnect, ...], now: int) -> str:
    """What is wrong with a circuit just set, as text; empty = steady everywhere with light enough."""
    by_pair = {one.pair: one for one in found}
    bad = []
    for pair in circuit.cascade.pairs:
        one = by_pair.get(pair)
        if one is None or one.state is not CrossConnectState.STEADY:
            state = one.state.value.upper() if one else "not reported"
            cause = f": {one.cause}" if one and one.cause else ""
            text = f"cross-connect {pair.input}>{pair.output} of {ocs.name} is {state}{cause}"
            core.resources.health.fault(ocs, pair, text, now)
            bad.append(text)
    return "; ".join(bad[:4]) or _dim(core, ocs, circuit, by_pair, now)


def _dim(core: Core, ocs: Ocs, circuit: Circuit, by_pair: dict[Pair, CrossConnect], now: int) -> str:
    """Power rows against the receivers' sensitivity; the component to blame is where power first falls short of the
    budget.
    """
    floor = ocs.light.sensitivity_dbm
    powers = [(pair, by_pair[pair]) for pair in circuit.cascade.pairs]
    if all(power is None or power >= floor for _, one in powers for power in (one.input_dbm, one.output_dbm)):
        return ""
    expected, kind = expected_dbm(circuit.cascade, ocs.splitters, ocs.light), technology.of(ocs)
    for pair, one in powers:
        if one.input_dbm is not None and one.input_dbm < expected[pair] - DIM_DB:
            splitter = next((s for s in ocs.splitters.values() if pair.input in s.outputs), None)
            text = (
                f"{splitter.name if splitter else circuit.cascade.uplink.tor + ' transmitter'} is dim: "
                f"{one.input_dbm:.1f} dBm enter {ocs.name} at {pair.input}, "
                f"{expected[pair]:.1f} dBm are expected, receivers need {floor:.1f} dBm"
            )
            if splitter:
                core.resources.health.suspect_splitter(ocs, splitter.name, text, now)
            else:
                core.resources.health.fault(ocs, pair, text, now)
            return text
        loss = kind.loss_db(ocs, circuit.cascade, pair)
        if one.output_dbm is not None and one.output_dbm < expected[pair] - loss - DIM_DB:
            text = (
                f"cross-connect {pair.input}>{pair.output} of {ocs.name} is dim: {one.output_dbm:.1f} dBm leave it, "
                f"{expected[pair] - loss:.1f} dBm are expected, receivers need {floor:.1f} dBm"
            )
            core.resources.health.fault(ocs, pair, text, now)
            return text
    pair, one = min(powers, key=lambda row: row[1].output_dbm if row[1].output_dbm is not None else 0.0)
    powers_seen = f"in {one.input_dbm}, out {one.output_dbm} dBm"
    return f"light at {ocs.name} {pair.input}>{pair.output} is below {floor:.1f} dBm: {powers_seen}"


def lose_circuit(core: Core, circuit: Circuit, cause: str, now: int) -> None:
    """A circuit is of no use any more: it is taken down, and its path goes on over the packet network."""
    core.resources.circuits.drop(circuit.id)
    core.unread_circuits.discard(circuit.id)
    core.persistence.mark("circuit", circuit.id)
    core.circuit_ops.pop(circuit.op, None)
    core.disconnect(circuit.ocs, circuit.cascade.pairs, cause, recheck=True)
    core.discard(core.idle_rules.of_circuit(circuit.id), now)
    core.counts["circuits_lost"] += 1
    core.warn("circuit lost", circuit=circuit.id, path=" ".join(circuit.users) or "-", cause=cause)
    for path in core.users(circuit):
        if path.granted:
            to_packet(core, path, cause, now)


def to_packet(core: Core, path: Path, cause: str, now: int, avoid: frozenset[str] = frozenset()) -> None:
    """Moves a granted path, with its group, to a tree through the packet network; fails it if that cannot be."""
    if path.request.wanted is Wanted.CIRCUIT:
        fail(core, path, f"{cause}; the request demands a circuit", now)
        return
    plan = core.resources.packet_tree(path.request, avoid)
    if isinstance(plan, Obstacle):
        fail(core, path, f"{cause}; and not over the packet network: {plan.text}", now)
        return
    assert path.group is not None
    core.persistence.mark("path", path.id)
    old, path.hops = path.rules, plan.hops
    path.kind, path.rate_bps, path.reconfiguration_ns = PathKind.PACKET, plan.rate_bps, 0
    path.take_tree(plan.tree)
    path.dark.clear()
    core.set_rules(path)
    replaced = {rule_making.key(rule) for rule in path.rules}
    path.reason, path.circuit_op, path.circuit_id, path.cascade = cause, None, None, None
    path.cross_connects = ()
    path.stamps.moved = now
    if path.state is State.ACTIVE:
        path.to(State.CONFIGURING, now)
    if path.request.origin != REST:
        core.emit(act.NotifyMoved(path.request.origin, path.id, PathKind.PACKET, cause))
    removal = core.remove(tuple(rule for rule in old if rule_making.key(rule) not in replaced), path.id, now)
    core.leave_circuit_after(path.id, (removal, core.install(path, now)), now)
    reroute.follow(core, path, cause, now)
    core.counts["moved"] += 1
    core.warn("moved to the packet network", path=path.id, request=path.request.request_id, cause=cause)
    core.emit(act.PathChanged(path.id))


def fail(core: Core, path: Path, cause: str, now: int) -> None:
    """A granted path is gone; all that it held is free, its circuit when its rules are out."""
    core.resources.leave_ports(path.id, path.request.sender, path.request.receivers)
    path.cause = cause
    path.to(State.FAILED, now)
    core.persistence.mark("path", path.id)
    path.rules_op = path.circuit_op = None
    core.leave_circuit_after(path.id, (core.remove((*path.rules, *path.retired), path.id, now),), now)
    views.end(path)
    if path.group is not None:
        core.groups.give_back(path.group)
    if path.request.origin != REST:
        core.emit(act.NotifyFailed(path.request.origin, path.id, cause))
    core.counts["failed"] += 1
    core.warn("failed", path=path.id, request=path.request.request_id, cause=cause)
    core.emit(act.PathChanged(path.id))


def rules_installed(core: Core, event: ev.RulesInstalled, now: int) -> None:
    membership.rules_answered(core, event.op, (), now)
    core.idle_rules.installed(event.op)
    pending = core.rule_ops.pop(event.op, None)
    lift_fence(core, event.op, "", now)
    carried_out(core, pending, (), now)
    path = core.paths.get(pending.path_id) if pending else None
    if path and pending and pending.mends:
        seen_in_place(core, path, pending.mends, now)
    if path is None or path.rules_op != event.op:
        return
    path.rules_op, path.rules_in, path.stamps.rules_in = None, True, now
    core.log("rules in", path=path.id, rules=len(path.rules), ms=_since_accepted(path, now))
    reroute.rules_in(core, path, now)
    maybe_active(core, path, now)


def lift_fence(core: Core, op: int, failed: str, now: int) -> None:
    """An order to switches is answered (`failed`: those that did not carry it out). With the last one that a path's
    circuit is kept for, it is free; if its old rules may still be there, it is taken down, so that what a sender that
    was not reached sends by them gets nowhere.
    """
    path_id = core.fences.pop(op, None)
    circuit = core.resources.circuits.of_user(path_id) if path_id else None
    if path_id is None or circuit is None:
        return
    if failed:
        lose_circuit(core, circuit, f"the rules of {path_id} may still lead there: {failed} did not change them", now)
        if (tor := circuit.cascade.uplink.tor) not in core.resources.switches_down:
            core.read_rules(tor, now)
    elif path_id not in core.fences.values():
        core.resources.leave_circuit(path_id, now)
    else:
        return
    run_queue(core, now, news=False)


def carried_out(core: Core, order: PendingRules | None, failed: Collection[str], now: int) -> None:
    """Switches did what they were told with rules, but those in `failed`: what was stale of these is gone."""
    stale = core.resources.stale_rules
    if order and stale and stale.gone([rule_making.key(one) for one in order.rules if one.switch not in failed]):
        run_queue(core, now)


def seen_in_place(core: Core, path: Path, switch: str, now: int) -> None:
    """One more switch of a restored path has its rules; with the last one they are in."""
    if switch not in path.unread:
        return
    path.unread.discard(switch)
    if not path.unread and path.granted and path.rules_op is None:
        path.rules_in, path.stamps.rules_in = True, now
        maybe_active(core, path, now)


def rules_failed(core: Core, event: ev.RulesFailed, now: int) -> None:
    membership.rules_answered(core, event.op, event.failures, now)
    core.discard(core.idle_rules.failed(event.op), now)
    pending = core.rule_ops.pop(event.op, None)
    lift_fence(core, event.op, listed([switch for switch, _ in event.failures]), now)
    carried_out(core, pending, dict(event.failures), now)
    path = core.paths.get(pending.path_id) if pending else None
    if path is None or pending is None or not path.granted:
        return
    if pending.mends and (path.rules_op is not None or pending.mends in core.resources.switches_down):
        return  # all of them are being set, or it will be read when it is back
    if not pending.mends and path.rules_op != event.op:
        return
    path.rules_op = None
    cause = "; ".join(f"rules not set on {switch}: {text}" for switch, text in event.failures[:4])
    servers = core.topology.servers
    ends = {servers[name].tor for name in (path.request.sender, *path.request.receivers)}
    failed = {switch for switch, _ in event.failures}
    if not path.room_made and (room := core.idle_rules.of_switches(failed)):
        path.room_made = True
        core.discard(room, now)  # whatever the switch's text were: a full table is the likeliest cause that passes
        core.warn("rules not set; kept ones go to make room", path=path.id, sets=len(room), cause=cause)
        core.install(path, now)
        return
    if path.kind is PathKind.PACKET and not failed & ends and not path.rules_retried:
        path.rules_retried = True
        to_packet(core, path, cause, now, frozenset(failed))
    else:
        fail(core, path, cause, now)
    run_queue(core, now)


def rules_removed(core: Core, event: ev.RulesRemoved, now: int) -> None:
    """What stayed is tried again after the grace time, like anything of ours that nothing explains."""
    pending = core.rule_ops.pop(event.op, None)
    lift_fence(core, event.op, listed([switch for switch, _ in event.failures]), now)
    carried_out(core, pending, dict(event.failures), now)
    if pending is not None and event.failures:
        rules_stuck(core, pending.rules, dict(event.failures), now)


def rules_stuck(core: Core, rules: tuple[MulticastRule, ...], stuck: Mapping[str, str], now: int) -> None:
    """Rules that could not be removed from the switches in `stuck` (switch -> cause)."""
    until = now + core.settings.grace
    expected = {switch: core.expected_rules(switch) for switch in stuck}
    for rule in rules:
        if rule.switch in stuck and rule_making.key(rule) not in expected[rule.switch]:
            core.foreign_rules[rule_making.key(rule)] = ForeignRule(rule, now, until)
    core.wake_at(until)
    core.warn("rules not removed", switches=listed(stuck), cause=next(iter(stuck.values())))


def disconnect_result(core: Core, event: ev.DisconnectResult, now: int) -> None:
    pending = core.disconnected(event.op)
    if pending is None:
        return
    if pending.recheck or event.error:
        core.emit(act.ReadCrossConnects(pending.ocs))
    if not event.error:
        core.mark_left(pending.ocs, pending.pairs)
        core.left[pending.ocs] = now
        return
    core.mark_leaving(pending.ocs, pending.pairs)
    core.warn("cross-connects not taken down", ocs=pending.ocs, cause=event.error)
    until = now + core.settings.grace
    for pair in pending.pairs:
        left = CrossConnect(pair, CrossConnectState.INVALID, cause=event.error)
        try:
            core.resources.circuits.add_foreign(Foreign(pending.ocs, left, now, until))
        except Conflict:
            # A newer circuit holds these fibres; it will fault, and what is there be read.
            core.to_leave.setdefault(pending.ocs, set()).add(pair)
            core.leave_after[pending.ocs] = until
    core.wake_at(until)


def cross_connect_changed(core: Core, event: ev.CrossConnectChanged, now: int) -> None:
    """A live cross-connect went bad by itself."""
    one = event.cross_connect
    if one.state not in (CrossConnectState.FAULT, CrossConnectState.INVALID):
        return
    held = core.resources.circuits.holder(event.ocs, "input", one.pair.input)
    if not isinstance(held, Circuit) or one.pair not in held.cascade.pairs:
        return
    if pending := core.circuit_ops.get(held.op):
        pending.doubted = True  # its answer may be older than this, or newer
        return
    cause = f"cross-connect {one.pair.input}>{one.pair.output} of {event.ocs} is {one.state.value.upper()}"
    cause += f": {one.cause}" if one.cause else ""
    core.resources.health.fault(core.topology.ocs[event.ocs], one.pair, cause, now)
    lose_circuit(core, held, cause, now)
    run_queue(core, now)


def no_light(core: Core, event: ev.NoLight, now: int) -> None:
    """Receivers without a first packet: the circuit is given up for the packet network; there the rules are set once
    more, and a path that reaches nobody is failed.
    """
    path = core.paths.get(event.path_id)
    if path is None or not path.granted or event.origin not in (REST, path.request.origin):
        return
    mine = set(path.request.receivers)
    dark = [name for name in dict.fromkeys(event.receivers) if name in mine]
    if not dark:
        return
    since = path.stamps.moved or path.stamps.accepted or now
    bound_ms = core.settings.light_bound_ms
    if path.stamps.moved and now - since < (LIGHT_MARGIN_MS if bound_ms is None else bound_ms) * MS:
        return  # no sender waits less: this was said of the circuit, before it heard that the path had moved
    waited = seconds(now - since)
    cause = f"no light at {listed(dark)} within {waited}"
    if path.kind is PathKind.CIRCUIT:
        _dark_circuit(core, path, dark, cause, since, now)
        return
    darkness, origin = core.resources.health.darkness, path.request.origin
    news = not all(darkness.expected(name, PathKind.PACKET, origin, now) for name in dark)
    if path.rules_in:
        there = [name for name in dark if not _is_gone(core, name)]
        path.dark.update(there)
        note_dark(core, path, there, _with_light(core, path, dark), now)
    for name in dark:
        path.complaints[name] = path.complaints.get(name, 0) + 1
    path.stamps.notes.append(cause)
    del path.stamps.notes[:-16]
    if all(path.complaints.get(name, 0) >= COMPLAINTS_MAX for name in path.request.receivers):
        fail(core, path, f"{cause}, over the packet network too", now)
        run_queue(core, now)
    elif news and path.rules_op is None and max(path.complaints.values()) < COMPLAINTS_MAX:
        core.warn("no light on the packet path; its rules are set again", path=path.id, receivers=listed(dark))
        core.install(path, now)


def _is_gone(core: Core, server: str) -> bool:
    """Its agent is known not to be there."""
    return server in core.agents and not core.agents[server].connected


def _with_light(core: Core, path: Path, dark: Collection[str]) -> set[str]:
    """Receivers that have light of the path, by its sender's last report."""
    transfer = core.transfers.get(path.transfer_id)
    report = transfer.report if transfer else None
    reports = report.receivers if report and report.response_id == path.id else ()
    return {one.server for one in reports if one.first_light_ns and one.server in core.topology.servers} - {*dark}


def _made_late(core: Core, path: Path, since: int, now: int) -> str:
    """What a circuit lacked for most of the time that its sender waited for light, as far as devices have confirmed it,
    as text; empty = nothing.
    """
    circuit = core.resources.circuits.get(path.circuit_id or "")
    steady = circuit.settled_at if circuit and circuit.state is CircuitState.LIVE else None
    for who, what, made in (
        (path.ocs, "the circuit", steady),
        ("switches", "the rules", (path.stamps.rules_in or since) if path.rules_in else None),
    ):
        if made is None:
            return f"{who} did not confirm {what}"
        if 2 * (now - made) < now - since:
            return f"{who} confirmed {what} only after {seconds(made - since)}"
    return ""


def _dark_circuit(core: Core, path: Path, dark: Collection[str], cause: str, since: int, now: int) -> None:
    """The path moves if most of its receivers are dark. Otherwise those that have light go on undisturbed, and its
    sender serves the others by unicast. Devices that were slow are no evidence against fibres and servers.
    """
    path.dark.update(name for name in dark if not _is_gone(core, name))
    lit = _with_light(core, path, path.dark)
    late = _made_late(core, path, since, now)
    cause += f": {late}" if late else ""
    if path.dark and not late:
        note_dark(core, path, path.dark, lit, now)
        core.counts["dark_receivers"] += len(dark)
    if len(path.dark) <= len(lit) or not path.dark:
        why = f"{len(lit)} others have light" if path.dark else "their agents are gone"
        path.stamps.notes.append(f"{cause}; not moved: {why}")
        del path.stamps.notes[:-16]
        core.warn("no light, but not the circuit's fault", path=path.id, receivers=listed(dark), lit=len(lit))
        return
    circuit = core.resources.circuits.get(path.circuit_id or "")
    if circuit is not None and circuit.users == (path.id,):
        lose_circuit(core, circuit, cause, now)
    else:
        to_packet(core, path, cause, now)  # others use it, and may have light
    run_queue(core, now)


def _since_accepted(path: Path, now: int) -> float:
    return (now - (path.stamps.accepted or now)) / MS
