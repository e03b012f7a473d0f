"""Agents: who is there, whose paths live by keepalives, what they report."""

from __future__ import annotations

import heapq
from dataclasses import replace

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.groups import membership
from rostrum.controller.core.light.darkness import note_light
from rostrum.controller.core.model import PathKind
from rostrum.controller.core.persistence import reconcile
from rostrum.controller.core.rdcm import views
from rostrum.controller.core.requests.path_setup import to_packet
from rostrum.controller.core.requests.paths import Path, Transfer
from rostrum.controller.core.requests.requests import release, run_queue, withdraw
from rostrum.controller.core.state import Agent, Core
from rostrum.controller.core.text import seconds
from rostrum.controller.core.values import REST, LivePath, ReceiverReport, State

REPORT_RECEIVERS_MAX = 16384


def agent_up(core: Core, event: ev.AgentUp, now: int) -> None:
    known = core.agents.get(event.server)
    core.agents[event.server] = Agent(
        event.server,
        event.boot_id,
        event.control_port,
        True,
        now,
        now,
        wants_light=event.wants_light,
        protocols=event.protocols,
        group_engines=event.group_engines,
        round_trip_us=event.round_trip_us,
    )
    core.persistence.mark("agent", event.server)
    membership.agent_up(
        core,
        event,
        known is None or known.boot_id != event.boot_id,
        known is not None and known.control_port != event.control_port,
        now,
    )
    core.schedule_check("leases", now + core.settings.lease_ns)
    named = {live.response_id for live in event.live_paths}
    for path in core.paths.live_of(event.server):
        if path.id in named:
            path.unconfirmed_until = None
            if path.granted:
                core.resources.share_ports(path.id, event.server, path.request.receivers)
        elif known and known.boot_id != event.boot_id:
            _take_back(core, path, f"the agent of {event.server} was restarted", now, given_back=True)
        elif path.granted:
            # Perhaps the grant was lost on its way; a repeated request fetches it.
            path.unconfirmed_until = now + core.settings.lease_ns
            core.expires(path, path.unconfirmed_until)
    for live in event.live_paths:
        _named(core, event.server, live, now)
    views.tell_again(core, event.server)
    core.log("agent up", agent=event.server, boot=event.boot_id, live_paths=len(event.live_paths))
    run_queue(core, now)


def _named(core: Core, server: str, live: LivePath, now: int) -> None:
    """A path that the agent believes it holds: so it does, or it is told that it no longer does."""
    path = core.paths.get(live.response_id)
    if path is not None:
        if path.final and path.request.origin == server:
            core.emit(act.NotifyFailed(server, path.id, path.cause or "it was given back"))
        elif path.granted and path.kind is not None and path.kind is not live.kind:
            core.emit(act.NotifyMoved(server, path.id, path.kind, path.reason))  # the report of it got lost
    elif not core.remembers_all and (server, live.request_id) not in core.by_request:
        reconcile.adopt(core, server, live, now)
    elif core.remembers_all:
        core.warn("path not known", path=live.response_id[:64], agent=server)
        core.emit(act.NotifyFailed(server, live.response_id, "it ended while this agent had no manager"))


def agent_down(core: Core, event: ev.AgentDown, now: int) -> None:
    """Its paths live on until the lease is over: it may come back."""
    agent = core.agents.get(event.server)
    if agent and agent.boot_id == event.boot_id:
        agent.connected, agent.cause = False, event.cause
        if agent.lapsed:
            agent.left = now
        core.schedule_check("leases", max(agent.heard, agent.left) + core.settings.lease_ns)
        core.log("agent down", agent=event.server, cause=event.cause)


def keep_alive(core: Core, event: ev.KeepAlive, now: int) -> None:
    heard(core, event.server, now)


def heard(core: Core, server: str, now: int) -> None:
    agent = core.agents.get(server)
    if agent is None:
        return
    agent.heard = now
    if agent.lapsed:
        agent.lapsed = False
        core.log("agent back", agent=server)
        for path in core.paths.live_of(server):
            if path.granted:
                core.resources.share_ports(path.id, path.request.sender, path.request.receivers)
        membership.agent_back(core, server, now)
        core.schedule_check("leases", now + core.settings.lease_ns)
        run_queue(core, now)


def report_received(core: Core, event: ev.ReportReceived, now: int) -> None:
    report = event.report
    path = core.paths.get(report.response_id)
    if path is None or path.request.origin != event.origin:
        return
    transfer = core.transfers.get(path.transfer_id)
    if transfer is None:
        path.transfer_id = core.next_id("t")
        transfer = Transfer.of(path, report.bytes, now)
        core.add_transfer(transfer)
    receivers = set(transfer.receivers)  # of all its paths
    kept = tuple(one for one in report.receivers[:REPORT_RECEIVERS_MAX] if one.server in receivers)
    was = transfer.report.phase if transfer.report else ""
    if core.resources.health.darkness and not path.stamps.moved and transfer.sessions[0] == path.id:
        note_light(core, path, [one.server for one in kept if _had_light(path, one)])
    transfer.report, transfer.reported = replace(report, receivers=kept), now
    if report.phase != was:
        core.emit(act.PathChanged(path.id))  # for those who follow its transfer
    if report.phase != was and report.phase in ("done", "failed"):
        core.counts[f"transfers_{report.phase}"] += 1
        core.log("transfer", transfer=transfer.id, path=path.id, phase=report.phase, cause=report.cause[:200])
    core.forget_old()


def _had_light(path: Path, one: ReceiverReport) -> bool:
    """Also if its word of that came too late: one that was told to be dark, and got everything without a patch."""
    whole = one.server in path.dark and one.state == "done" and one.patched_fragments == 0
    return one.first_light_ns > 0 or whole


def leases(core: Core, now: int) -> None:
    """Takes back what nobody keeps alive.

    An agent that says nothing though it is connected is stopped, or its machine is: it will go on. So it loses its
    circuits and its share of servers' ports, which others wait for, and keeps its packet paths and its place in the
    queue. One that is not connected either loses all of it.
    """
    lease, freed, due = core.settings.lease_ns, False, []
    for name, agent in core.agents.items():
        if now < agent.heard + lease:
            due.append(agent.heard + lease)
            continue
        paths, first = core.paths.live_of(name), not agent.lapsed
        if first:
            agent.lapsed = freed = True
            membership.agent_silent(core, name, now)
        end = agent.heard + core.settings.away if agent.connected else max(agent.heard, agent.left) + lease
        for path in paths:
            silent = f"the agent of {name} is silent for {seconds(now - agent.heard)}"
            if end <= now:
                path.lapsed = True
                _take_back(core, path, f"lease over: {silent}", now)
                freed = True
            elif path.granted and first:
                core.resources.leave_ports(path.id, path.request.sender, path.request.receivers)
                if path.kind is PathKind.CIRCUIT:
                    core.counts["leases_over"] += 1
                    to_packet(core, path, f"{silent}; its circuit is for others", now)
        if paths and end > now:
            due.append(end)
    while core.expiries and core.expiries[0][0] <= now:
        _, path_id = heapq.heappop(core.expiries)
        freed = _expire(core, path_id, now) or freed
    due += [at for at, _ in core.expiries[:1]]
    if due:
        core.schedule_check("leases", min(due))
    if freed:
        run_queue(core, now)


def _expire(core: Core, path_id: str, now: int) -> bool:
    """Takes a path back whose own lease is over, and was not renewed since that time was set."""
    path = core.paths.get(path_id)
    if path is None or path.final:
        return False
    if path.unconfirmed_until is not None and now >= path.unconfirmed_until:
        _take_back(core, path, f"the agent of {path.request.origin} does not hold it any more", now, given_back=True)
        return True
    if path.lease_until is not None and now >= path.lease_until and path.granted:
        _take_back(core, path, f"lease of {path.request.lease_ms} ms over", now)
        return True
    return False


def _take_back(core: Core, path: Path, cause: str, now: int, given_back: bool = False) -> None:
    """`given_back`: its sender does not use it any more, as far as that can be known. Who may, is told."""
    if path.state is State.QUEUED:
        withdraw(core, path, cause, now)
        return
    core.counts["leases_over"] += 1
    if not given_back and path.request.origin != REST:
        core.emit(act.NotifyFailed(path.request.origin, path.id, cause))
    release(core, path, cause, now, given_back)
