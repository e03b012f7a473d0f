"""Switches and OCSs come, tell what they have, and go."""

from __future__ import annotations

from collections.abc import Mapping

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.circuits.circuits import FOREVER, Circuit, CircuitState, Conflict, Foreign, OcsState
from rostrum.controller.core.groups import membership
from rostrum.controller.core.groups import rules as membership_rules
from rostrum.controller.core.model import CrossConnect, CrossConnectState, MulticastRule, Pair
from rostrum.controller.core.packet import reroute
from rostrum.controller.core.packet import rules as rule_making
from rostrum.controller.core.packet.rules import RuleKey
from rostrum.controller.core.persistence import reconcile
from rostrum.controller.core.requests.path_setup import lose_circuit, seen_in_place
from rostrum.controller.core.requests.requests import connect, maybe_active, run_queue
from rostrum.controller.core.state import READ_AGAIN_NS, Core, ForeignRule
from rostrum.controller.core.text import listed
from rostrum.topologies.model import Ocs


def switch_up(core: Core, event: ev.SwitchUp, now: int) -> None:
    if event.switch not in core.topology.switches:
        return
    core.resources.switches_down.pop(event.switch, None)
    membership_rules.switch_up(core, event.switch)
    core.silence.from_switch[event.switch] = now
    core.unicast[event.switch] = rule_making.unicast(core.topology, event.switch, reroute.dead_ports(core))
    core.emit(act.InstallUnicast(event.switch, core.unicast[event.switch]))
    core.read_rules(event.switch, now)
    core.log("switch up", switch=event.switch, missing=listed(core.resources.switches_down) or "none")
    run_queue(core, now)


def switch_down(core: Core, event: ev.SwitchDown, now: int) -> None:
    """Rules stay on a switch that lost its controller: granted paths go on, new ones wait or go around."""
    if event.switch in core.topology.switches:
        core.resources.switches_down[event.switch] = event.cause or "its connection was lost"
        core.resources.stale_rules.disconnected(event.switch)
        membership_rules.switch_down(core, event.switch, now)
        core.warn("switch down", switch=event.switch, cause=event.cause)
        run_queue(core, now)


def rules_lost(core: Core, event: ev.RulesLost, now: int) -> None:
    """What is missing is set again once the switch has told what it has."""
    if event.switch in core.topology.switches and event.switch not in core.resources.switches_down:
        core.counts["rules_lost"] += 1
        core.warn("rules removed by somebody else; set again", switch=event.switch)
        core.read_rules(event.switch, now)


def rules_found(core: Core, event: ev.RulesFound, now: int) -> None:
    """What a switch lacks is set again; what it has and nothing explains waits for an agent to claim it."""
    switch = event.switch
    expected = core.expected_rules(switch)
    found = {rule_making.key(rule): rule for rule in event.rules}
    for path in core.paths.values():
        if not path.granted or path.rules_op is not None:
            continue  # what is being set is confirmed, or fails
        if _lacks(found, path.rules, switch):
            core.mend(path, switch, now)
        elif path.unread:
            seen_in_place(core, path, switch, now)
    membership_rules.rules_found(core, switch, found, now)
    membership.finish_if_done(core, now)
    lacking = [one for one in core.idle_rules.all() if one.op is None and _lacks(found, one.rules, switch)]
    for rule_set in lacking:
        core.idle_rules.take(rule_set.hops)
    core.discard(lacking, now)
    for key, held in list(core.foreign_rules.items()):
        if key[0] == switch and key not in found and held.since < event.asked_at:
            del core.foreign_rules[key]
    until = now if core.remembers_all else now + core.settings.grace
    if core.remembers_all and switch in core.resources.stale_rules.unread:
        for held in [one for one in core.foreign_rules.values() if one.rule.switch == switch and one.until > now]:
            held.until = now  # they could not be taken out before it was gone
            core.wake_at(now)
    strange = [rule for key, rule in found.items() if key not in expected and key not in core.foreign_rules]
    for rule in strange:
        owner = next((one for one in core.paths.values() if one.granted and one.group == rule.group), None)
        if owner is None:
            core.foreign_rules[rule_making.key(rule)] = ForeignRule(rule, now, until)
        elif not owner.hops:
            owner.rules = (*owner.rules, rule)
        else:
            core.remove((rule,), owner.id, now)
    if strange:
        core.log("rules found", switch=switch, rules=len(strange), groups=listed(str(rule.group) for rule in strange))
        core.wake_at(until)
    reconcile.match_all(core, now)
    if _note_stale(core, switch, found, now):
        run_queue(core, now)


def _note_stale(core: Core, switch: str, found: Mapping[RuleKey, MulticastRule], now: int) -> bool:
    """Which of these lead into an OCS though nothing says so now. Returns whether a port may be free for circuits."""
    stale = core.resources.stale_rules
    out = {key: rule for key, rule in found.items() if stale.leads_out(rule)}
    expected = core.expected_rules(switch) if out else {}
    soon = now + core.settings.circuit_wait_ns
    left = [(key, rule) for key, rule in out.items() if stale.leads_out(rule, expected.get(key))]
    return stale.found(
        switch,
        [(rule, max(soon, core.foreign_rules[key].until if key in core.foreign_rules else 0)) for key, rule in left],
    )


def read_again(core: Core, now: int) -> None:
    """Switches that were asked for their rules long ago, and are connected, and told nothing."""
    for switch, until in list(core.resources.stale_rules.unread.items()):
        due = until - core.settings.circuit_wait_ns + READ_AGAIN_NS
        if due > now:
            core.schedule_check("unread", due)
            continue
        core.warn("rules not read; asked again", switch=switch)
        core.read_rules(switch, now)


def _lacks(found: Mapping[RuleKey, MulticastRule], rules: tuple[MulticastRule, ...], switch: str) -> bool:
    own = [rule for rule in rules if rule.switch == switch]
    return any(not rule_making.holds(found.get(rule_making.key(rule)), rule) for rule in own)


def ocs_up(core: Core, event: ev.OcsUp, now: int) -> None:
    """Connected; in use once it has told what it has."""
    if event.ocs in core.topology.ocs:
        core.emit(act.ReadCrossConnects(event.ocs))


def ocs_down(core: Core, event: ev.OcsDown, now: int) -> None:
    """Light goes on without a controller: live circuits stay in use, new ones cannot be made."""
    if event.ocs in core.topology.ocs:
        core.resources.set_ocs(event.ocs, OcsState.DOWN, now, event.cause)
        core.warn("ocs down", ocs=event.ocs, cause=event.cause)
        run_queue(core, now)


def cross_connects_found(core: Core, event: ev.CrossConnectsFound, now: int) -> None:
    ocs = core.topology.ocs.get(event.ocs)
    if ocs is None:
        return
    if core.resources.ocs[ocs.name].state is not OcsState.UP:
        core.log("ocs up", ocs=ocs.name, cross_connects=len(event.cross_connects))
    core.resources.set_ocs(ocs.name, OcsState.UP, now)
    found = {one.pair: one for one in event.cross_connects}
    if core.leave_after.get(ocs.name, now) <= now:
        _leave(core, ocs, found)
    for circuit in [one for one in core.resources.circuits if one.ocs == ocs.name]:
        if circuit.id in core.unread_circuits:
            _restored(core, circuit, found, now)
        elif circuit.state is CircuitState.LIVE and circuit.settled_at < event.asked_at:
            _check(core, circuit, found, now)
    for foreign in core.resources.circuits.foreign(ocs.name):
        if foreign.cross_connect.pair not in found and foreign.since < event.asked_at:
            core.resources.circuits.drop_foreign(ocs.name, foreign.cross_connect.pair)
            core.mark_leaving(ocs.name, (foreign.cross_connect.pair,))
    _keep_strange(core, ocs, found, event.asked_at, now)
    reconcile.match_all(core, now)
    run_queue(core, now)


def _leave(core: Core, ocs: Ocs, found: dict[Pair, CrossConnect]) -> None:
    """What could not be taken down, or an earlier manager did not come to, and is still there, goes now."""
    pairs = core.to_leave.pop(ocs.name, set())
    core.mark_leaving(ocs.name, pairs)
    ours = {pair for one in core.resources.circuits if one.ocs == ocs.name for pair in one.cascade.pairs}
    core.disconnect(ocs.name, tuple(sorted(pairs & found.keys() - ours)), "was to be taken down before")


def _restored(core: Core, circuit: Circuit, found: dict[Pair, CrossConnect], now: int) -> None:
    """A circuit of an earlier manager: live if all of it is there, made again where a path needs it, else given up."""
    core.unread_circuits.discard(circuit.id)
    rows = [found.get(pair) for pair in circuit.cascade.pairs]
    steady = tuple(row for row in rows if row and row.state is CrossConnectState.STEADY)
    users = core.users(circuit)
    if len(steady) == len(rows):
        core.resources.circuits.settled(circuit.id, steady, now)
        for path in users:
            path.circuit_op, path.cross_connects = None, steady
            path.stamps.cross_connects_steady = now
            maybe_active(core, path, now)
    elif not users or any(row and row.state is CrossConnectState.FAULT for row in rows):
        lose_circuit(core, circuit, f"it was not whole on {circuit.ocs} after the manager's restart", now)
    else:
        core.counts["mended_cross_connects"] += len(rows) - len(steady)
        core.log("cross-connects set again", path=users[0].id, ocs=circuit.ocs, pairs=len(rows) - len(steady))
        connect(core, users, circuit, now)


def _check(core: Core, circuit: Circuit, found: dict[Pair, CrossConnect], now: int) -> None:
    """A circuit believed live, against what the OCS says."""
    rows = [found.get(pair) for pair in circuit.cascade.pairs]
    powers = tuple(row for row in rows if row and row.state is not CrossConnectState.FAULT)
    if len(powers) == len(rows):
        core.resources.circuits.measured(circuit.id, powers)
        for path in core.users(circuit):
            path.cross_connects = powers
        return
    bad = next(pair for pair, row in zip(circuit.cascade.pairs, rows, strict=True) if row not in powers)
    row = found.get(bad)
    state = f"is {row.state.value.upper()}" if row else "is gone"
    lose_circuit(core, circuit, f"cross-connect {bad.input}>{bad.output} of {circuit.ocs} {state}", now)


def _keep_strange(core: Core, ocs: Ocs, found: dict[Pair, CrossConnect], asked_at: int, now: int) -> None:
    """Cross-connects that nobody here made, on ports of this topology: out of use until claimed or removed; for good
    if they cannot be an earlier manager's.
    """
    inputs = {*ocs.attached, *(port for one in ocs.splitters.values() for port in one.outputs)}
    outputs = {*ocs.attached, *(one.input for one in ocs.splitters.values())}
    leaving = {pair for one in core.disconnect_ops.values() if one.ocs == ocs.name for pair in one.pairs}
    until = FOREVER if core.remembers_all else now + core.settings.grace
    kept: list[Pair] = []
    for pair, one in found.items():
        if pair.input not in inputs or pair.output not in outputs or pair in leaving:
            continue
        try:
            core.resources.circuits.add_foreign(Foreign(ocs.name, one, now, until))
            kept.append(pair)
        except Conflict:
            continue  # held by a circuit of ours, or known already
    if not kept:
        return
    if not core.remembers_all:
        core.wake_at(until)
        core.log("cross-connects found", ocs=ocs.name, pairs=len(kept), kept_ms=core.settings.grace // 1_000_000)
        return
    names = listed(f"{pair.input}>{pair.output}" for pair in kept)
    core.warn("cross-connects of others found; their ports are not used", ocs=ocs.name, pairs=names)
    if core.left.get(ocs.name, -1) >= asked_at:
        core.emit(act.ReadCrossConnects(ocs.name))  # some of them were ours, and went while the OCS was read
