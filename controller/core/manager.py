"""The manager's logic: one event in, actions out.

No I/O, no clock: the same events at the same times give the same actions.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import islice
from typing import Any

from rostrum.controller.core import actions as act
from rostrum.controller.core import agents, devices
from rostrum.controller.core import events as ev
from rostrum.controller.core.circuits import technology
from rostrum.controller.core.circuits.circuits import FOREVER
from rostrum.controller.core.groups import membership
from rostrum.controller.core.light import first_light as light
from rostrum.controller.core.packet import cabling, drains, ports, reroute, silent_links
from rostrum.controller.core.persistence import parts, reconcile
from rostrum.controller.core.persistence.persistence import Change, Persistence
from rostrum.controller.core.rdcm import failures, views
from rostrum.controller.core.requests import path_setup, relay_orders, requests
from rostrum.controller.core.requests.path_setup import fail, lose_circuit
from rostrum.controller.core.state import Core
from rostrum.controller.core.text import seconds
from rostrum.controller.core.values import MS, Settings
from rostrum.topologies.model import Topology


def _clock_stood(core: Core, event: ev.ClockStood, now: int) -> None:
    """Records name times by the clock of people."""
    core.persistence.later_by(event.lost)


_HANDLERS: dict[type[Any], Callable[[Core, Any, int], None]] = {
    ev.RequestReceived: requests.request_received,
    ev.Released: requests.released,
    ev.Cancelled: requests.cancelled,
    ev.Renewed: requests.renewed,
    ev.QuotasChanged: requests.quotas_changed,
    ev.AgentUp: agents.agent_up,
    ev.AgentDown: agents.agent_down,
    ev.KeepAlive: agents.keep_alive,
    ev.ReportReceived: agents.report_received,
    ev.NoLight: path_setup.no_light,
    ev.SwitchUp: devices.switch_up,
    ev.SwitchDown: devices.switch_down,
    ev.RulesLost: devices.rules_lost,
    ev.ViewUsed: views.view_used,
    ev.FailureReported: failures.failure_reported,
    ev.ReceiverJoins: reroute.receiver_joins,
    ev.ReceiverLeaves: reroute.receiver_leaves,
    ev.LinkSuspected: reroute.link_suspected,
    ev.LinkDrained: drains.link_drained,
    ev.PortChanged: ports.port_changed,
    ev.Sighted: cabling.sighted,
    ev.RulesFound: devices.rules_found,
    ev.FirstLight: light.first_light,
    ev.OcsUp: devices.ocs_up,
    ev.OcsDown: devices.ocs_down,
    ev.CrossConnectsFound: devices.cross_connects_found,
    ev.CrossConnectChanged: path_setup.cross_connect_changed,
    ev.CircuitResult: path_setup.circuit_result,
    ev.DisconnectResult: path_setup.disconnect_result,
    ev.RulesInstalled: path_setup.rules_installed,
    ev.RulesFailed: path_setup.rules_failed,
    ev.RulesRemoved: path_setup.rules_removed,
    ev.GroupJoined: membership.joined,
    ev.GroupLeft: membership.left,
    ev.GroupTroubled: membership.troubled,
    ev.GroupMade: membership.made,
    ev.GroupDeleted: membership.deleted,
    ev.RelaysNoted: relay_orders.noted,
    ev.NotRecorded: parts.not_recorded,
    ev.ClockStood: _clock_stood,
}


class Manager:
    """(state, event, now) -> actions; `now` in ns of one clock that never goes back, `offset` behind that of people.

    Nobody else changes the state: others read `core`.
    """

    def __init__(self, topology: Topology, settings: Settings | None = None, now: int = 0, offset: int = 0) -> None:
        self.core = Core.new(topology, settings or Settings(), now)
        self.core.persistence = Persistence(offset)

    def step(self, event: ev.Event, now: int) -> list[act.Action]:
        """What to do about one event."""
        handler = _HANDLERS.get(type(event))
        if handler:
            handler(self.core, event, now)
        self._expire(now)
        return self.take_actions()

    def take_actions(self) -> list[act.Action]:
        """What the last step led to; of one that raised, as far as it came."""
        actions, self.core.out = self.core.out, []
        return actions

    def take_records(self) -> tuple[list[Change], list[parts.Unrecorded]]:
        """What has to be written because of the steps since the last call, and what of it cannot be."""
        return parts.changes(self.core)

    def drop_records(self) -> None:
        """Instead of `take_records`, where nothing is remembered."""
        self.core.persistence.take()

    def restore(self, records: parts.Records, now: int, complete: bool = True) -> list[act.Action]:
        """Before the first event: goes on where an earlier manager was. `complete`: the records are all of what it
        remembered, so that anything on the devices which they do not explain is stale (rules of ours) or not ours
        (cross-connects).
        """
        self.core.remembers_all = complete
        parts.restore(self.core, records, now)
        return self.take_actions()

    def deadline(self) -> int | None:
        """When to call `step(Tick(), ...)` at the latest; None = nothing is due."""
        core = self.core
        return min((*core.timers[:1], *core.members.timers[:1], *core.check_timers.values()), default=None)

    def _expire(self, now: int) -> None:
        """Whatever is due by `now`: waits, leases, grace times, devices that do not answer."""
        core = self.core
        if core.members.timers:
            membership.expire(core, now)
        timers, due_at = core.timers, core.check_timers
        if timers and timers[0] <= now:
            while timers and timers[0] <= now:
                heapq.heappop(timers)
            due = list(CHECKS)
            core.queue.wake_all()
        elif core.check_at > now:
            return
        else:
            due = [what for what in CHECKS if due_at.get(what, now + 1) <= now]
        for what in due:
            due_at.pop(what, None)
            CHECKS[what](core, now)
        core.check_at = min(due_at.values(), default=FOREVER)


def _unclaimed(core: Core, now: int) -> None:
    reconcile.sweep(core, now)
    core.resources.health.expire(now)
    if not core.resources.health.spotless:
        core.schedule_check("unclaimed", now + max(core.settings.quarantine_ns, MS))


def _silent_devices(core: Core, now: int) -> None:
    for op, pending in list(core.circuit_ops.items()):
        circuit = core.resources.circuits.get(pending.circuit_id)
        if circuit is None or circuit.op != op:
            del core.circuit_ops[op]
        elif pending.until <= now:
            del core.circuit_ops[op]
            reconfiguration = technology.delay_ns(core.topology.ocs[circuit.ocs], circuit.cascade)
            waited = core.settings.configure_bound_ns + reconfiguration
            lose_circuit(core, circuit, f"{circuit.ocs} did not answer within {seconds(waited)}", now)
    while core.rule_ops:
        op, rules = next(iter(core.rule_ops.items()))
        if rules.until > now:
            break  # those after it were given later, and have as long
        del core.rule_ops[op]
        path_setup.lift_fence(core, op, "no answer", now)
        if rules.removal:
            path_setup.rules_stuck(core, rules.rules, {rule.switch: "no answer" for rule in rules.rules}, now)
            continue
        core.discard(core.idle_rules.failed(op), now)
        path = core.paths.get(rules.path_id)
        if rules.mends and rules.mends not in core.resources.switches_down:
            core.emit(act.ReadRules(rules.mends))  # and what it lacks is set once more
        if path and path.granted and op == path.rules_op:
            switches = ", ".join(sorted({rule.switch for rule in rules.rules}))
            waited = core.settings.configure_bound_ns
            fail(core, path, f"rules not confirmed within {seconds(waited)} by {switches}", now)
    due = [pending.until for pending in core.circuit_ops.values()]
    due += [rules.until for rules in islice(core.rule_ops.values(), 1)]
    if due:
        core.schedule_check("orders", min(due))


CHECKS: dict[str, Callable[[Core, int], None]] = {  # in this order when several are due
    "leases": agents.leases,
    "orders": _silent_devices,
    "unclaimed": _unclaimed,
    "silence": silent_links.look,
    "links": reroute.activate,
    "suspected receivers": failures.judge,
    "suspected links": failures.weigh,
    "unread": devices.read_again,
    "queue": requests.check_queue,
}
