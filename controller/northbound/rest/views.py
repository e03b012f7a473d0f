"""The core's state as REST shows it."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from rostrum.controller.core.circuits.circuits import Circuit, Foreign, OcsState
from rostrum.controller.core.circuits.splitters import TorPort
from rostrum.controller.core.model import CrossConnect, MulticastRule, Pair
from rostrum.controller.core.requests.paths import Path, Transfer
from rostrum.controller.core.state import Core
from rostrum.controller.core.values import MS, Protocol, S
from rostrum.controller.northbound.rest import schemas as view
from rostrum.controller.runtime.run_clock import CLOCK
from rostrum.topologies.model import Ocs, Splitter, Topology


@dataclass(frozen=True)
class WallClock:
    """Turns the manager's clock into wall-clock ns, by the difference at start and by the time in which the manager did
    not run: a stepped wall clock does not tear timelines apart."""

    offset_ns: int = field(default_factory=lambda: time.time_ns() - CLOCK.ns() - CLOCK.paused_ns)

    def __call__(self, stamp: int) -> int:
        return stamp + self.offset_ns + CLOCK.lost_before(stamp)

    def maybe(self, stamp: int | None) -> int | None:
        return None if stamp is None else self(stamp)


def path(core: Core, one: Path, wall: WallClock) -> view.PathView:
    request, stamps = one.request, one.stamps
    return view.PathView(
        id=one.id,
        request_id=request.request_id,
        origin=request.origin,
        tenant=request.tenant,
        state=one.state.value,
        reason=one.reason,
        cause=one.cause,
        kind=one.kind.value if one.kind else None,
        wanted=request.wanted.value,
        protocol="rdcm" if one.protocol is Protocol.RDCM else "wan" if one.protocol is Protocol.WAN else "republic",
        sender=request.sender,
        receivers=_receivers(one),
        group=str(one.group) if one.group else None,
        data_port=core.topology.data_port,
        size=request.data_size,
        accepted_size=one.accepted_size,
        rate_bps=one.rate_bps,
        reconfiguration_ms=one.reconfiguration_ns / 1e6,
        lease_ms=request.lease_ms,
        adopted=one.adopted,
        circuit=_path_circuit(core, one),
        rules=[rule(each) for each in one.rules],
        first_light=[
            view.FirstLightView(
                rack=rack,
                port=seen.port,
                sn=seen.sn,
                at_ns=wall(seen.at),
                after_ms=(seen.at - (stamps.accepted or seen.at)) / MS,
            )
            for rack, seen in one.light.items()
        ],
        timeline=view.TimelineView(
            requested_ns=wall(stamps.requested),
            accepted_ns=wall.maybe(stamps.accepted),
            cross_connects_steady_ns=wall.maybe(stamps.cross_connects_steady),
            rules_in_ns=wall.maybe(stamps.rules_in),
            active_ns=wall.maybe(stamps.active),
            moved_ns=wall.maybe(stamps.moved),
            released_ns=wall.maybe(stamps.released),
            failed_ns=wall.maybe(stamps.failed),
        ),
        notes=list(stamps.notes),
    )


def _receivers(one: Path) -> list[str]:
    """As asked for; of a packet path that goes on without some, or with more of them, as they are now."""
    asked = list(one.request.receivers)
    if one.tree is None or one.tree.receivers == set(asked):
        return asked
    now = one.tree.receivers
    return [name for name in asked if name in now] + sorted(now - set(asked))


def _path_circuit(core: Core, one: Path) -> view.PathCircuitView | None:
    if one.cascade is None:
        return None
    budgets = {budget.tor: budget for budget in one.cascade.budgets}
    light = []
    for name in one.request.receivers:
        budget = budgets.get(core.topology.servers[name].tor)
        if budget:
            light.append(
                view.LightView(
                    receiver=name,
                    tor=budget.tor,
                    ocs_port=budget.port,
                    splitters=list(budget.splitters),
                    power_dbm=budget.power_dbm,
                    margin_db=budget.margin_db,
                )
            )
    return view.PathCircuitView(
        id=one.circuit_id,
        ocs=one.ocs,
        reused=one.reused_circuit,
        splitters=list(one.cascade.splitters),
        cross_connects=rows(one.cascade.pairs, one.cross_connects),
        light=light,
    )


def rows(pairs: Iterable[Pair], known: Iterable[CrossConnect]) -> list[view.CrossConnectView]:
    """The pairs with what the OCS last said of them; nothing yet = on their way."""
    by_pair = {one.pair: one for one in known}
    return [cross_connect(by_pair[pair]) if pair in by_pair else _on_its_way(pair) for pair in pairs]


def cross_connect(one: CrossConnect) -> view.CrossConnectView:
    return view.CrossConnectView(
        input=one.pair.input,
        output=one.pair.output,
        state=one.state.value,
        input_dbm=one.input_dbm,
        output_dbm=one.output_dbm,
        cause=one.cause,
    )


def _on_its_way(pair: Pair) -> view.CrossConnectView:
    return view.CrossConnectView(input=pair.input, output=pair.output, state="transition")


def rule(one: MulticastRule) -> view.RuleView:
    return view.RuleView(switch=one.switch, in_port=one.in_port, group=str(one.group), out_ports=list(one.out_ports))


def circuits(core: Core, now: int) -> view.CircuitsView:
    crossed = []
    for circuit in core.resources.circuits:
        for row in rows(circuit.cascade.pairs, circuit.powers):
            crossed.append(
                view.LiveCrossConnectView(
                    **row.model_dump(), ocs=circuit.ocs, circuit=circuit.id, path=circuit.user, found_at_start=False
                )
            )
    for foreign in core.resources.circuits.foreign():
        row = cross_connect(foreign.cross_connect)
        crossed.append(
            view.LiveCrossConnectView(**row.model_dump(), ocs=foreign.ocs, circuit=None, path=None, found_at_start=True)
        )
    return view.CircuitsView(
        ocs=ocs_status(core),
        circuits=[_circuit(one) for one in core.resources.circuits],
        cross_connects=sorted(crossed, key=lambda one: (one.ocs, one.input)),
        splitters=[_use(core, ocs, one, now) for ocs in core.topology.ocs.values() for one in ocs.splitters.values()],
    )


def _circuit(one: Circuit) -> view.CircuitView:
    return view.CircuitView(
        id=one.id,
        ocs=one.ocs,
        state=one.state.value,
        path=one.user,
        uplink=_port(one.cascade.uplink),
        downlinks=[_port(port) for port in one.cascade.downlinks],
        splitters=list(one.cascade.splitters),
        cross_connects=rows(one.cascade.pairs, one.powers),
    )


def _port(port: TorPort) -> str:
    return f"{port.tor}:{port.tor_port}"


def _use(core: Core, ocs: Ocs, one: Splitter, now: int) -> view.SplitterUseView:
    made = view.SplitterUseView(
        **splitter(one).model_dump(), ocs=ocs.name, state="free", circuit=None, path=None, cause=""
    )
    holder = core.resources.circuits.holder(ocs.name, "output", one.input)
    ill = core.resources.health.splitter(ocs, one.name, now)
    if isinstance(holder, Circuit):
        made.circuit, made.path = holder.id, holder.user
        made.state = "in use" if holder.user else "idle"
    elif isinstance(holder, Foreign):
        made.state = "found at start"
    elif ill:
        made.state, made.cause = "out of use", ill[0]
    return made


def splitter(one: Splitter) -> view.SplitterView:
    return view.SplitterView(
        name=one.name, fanout=one.fanout, loss_db=one.loss_db, input=one.input, outputs=list(one.outputs)
    )


def ocs_status(core: Core) -> list[view.OcsStatusView]:
    return [
        view.OcsStatusView(name=name, state=status.state.value, cause=status.cause)
        for name, status in core.resources.ocs.items()
    ]


def rules(core: Core) -> view.RuleList:
    found = []
    for one in core.paths.values():
        if one.granted:
            found += [_rule_use(each, one.id, "path") for each in one.rules]
    for kept in core.idle_rules.all():
        found += [_rule_use(each, None, "kept for reuse") for each in kept.rules]
    found += [_rule_use(held.rule, None, "found at start") for held in core.foreign_rules.values()]
    return view.RuleList(rules=sorted(found, key=lambda one: (one.switch, one.group, one.in_port)))


def _rule_use(one: MulticastRule, path_id: str | None, use: str) -> view.RuleUseView:
    return view.RuleUseView.model_validate({**rule(one).model_dump(), "path": path_id, "use": use})


def transfer(core: Core, one: Transfer, wall: WallClock) -> view.TransferView:
    report = one.report
    told = {each.server: each for each in report.receivers} if report else {}
    receivers = []
    for name in one.receivers:
        each = told.get(name)
        receivers.append(
            view.ReceiverView(
                server=name,
                state=each.state if each else "waiting",
                cause=each.cause if each else "",
                initial_sn=each.initial_sn if each else 0,
                patched_fragments=each.patched_fragments if each else 0,
                first_light_ns=(each.first_light_ns or None) if each else None,
                complete_ns=(each.complete_ns or None) if each else None,
            )
        )
    return view.TransferView(
        id=one.id,
        sender=one.sender,
        app_id=str(uuid.UUID(bytes=one.app_id)) if len(one.app_id) == 16 else one.app_id.hex(),
        data_id=one.data_id % 2**64,
        size=one.size,
        phase=report.phase if report else "waiting for a path",
        cause=report.cause if report else "",
        bytes=report.bytes if report else 0,
        sent_packets=report.sent_packets if report else 0,
        redundant_packets=report.redundant_packets if report else 0,
        patched_packets=report.patched_packets if report else 0,
        receivers=receivers,
        begun_ns=wall(one.begun),
        reported_ns=wall.maybe(one.reported),
        sessions=[path(core, core.paths[each], wall) for each in one.sessions if each in core.paths],
    )


def find_transfer(core: Core, wanted: str) -> Transfer | None:
    """By its own id, or by the id of a path it used."""
    if wanted in core.transfers:
        return core.transfers[wanted]
    return next((one for one in core.transfers.values() if wanted in one.sessions), None)


def agents(core: Core, now: int) -> view.AgentList:
    held: dict[str, list[str]] = {}
    for one in core.paths.values():
        if not one.final:
            held.setdefault(one.request.origin, []).append(one.id)
    return view.AgentList(
        agents=[
            view.AgentView(
                server=agent.server,
                connected=agent.connected,
                boot_id=agent.boot_id,
                control_port=agent.control_port,
                heard_ms_ago=(now - agent.heard) / 1e6,
                cause=agent.cause,
                paths=held.get(agent.server, []),
            )
            for agent in sorted(core.agents.values(), key=lambda one: one.server)
        ]
    )


def switches(core: Core) -> view.SwitchList:
    down = core.resources.switches_down
    return view.SwitchList(
        switches=[
            view.SwitchView(
                name=one.name,
                role=one.role,
                southbound=one.southbound,
                dpid=one.dpid,
                up=one.name not in down,
                cause=down.get(one.name, ""),
                rules=len(core.expected_rules(one.name)),
            )
            for one in core.topology.switches.values()
        ]
    )


def health(core: Core, now: int, started: int, version: str) -> view.HealthView:
    missing = sorted(core.resources.switches_down)
    missing += [name for name, status in core.resources.ocs.items() if status.state is not OcsState.UP]
    fresh = now - started < 10 * S
    return view.HealthView(
        status="ready" if not missing else "starting" if fresh else "degraded",
        ready=not missing,
        topology=core.topology.name,
        scheduler=core.scheduler.name,
        version=version,
        boot_id=core.settings.boot_id,
        uptime_s=(now - started) / S,
        switches_up=len(core.topology.switches) - len(core.resources.switches_down),
        switches=len(core.topology.switches),
        ocs=ocs_status(core),
        agents_connected=sum(agent.connected for agent in core.agents.values()),
        queued=len(core.queue),
        missing=missing,
    )


def states(core: Core) -> dict[str, int]:
    return dict(Counter(one.state.value for one in core.paths.values()))


def topology(one: Topology) -> view.TopologyView:
    """The OCS's user and password stay here."""
    return view.TopologyView(
        name=one.name,
        data=str(one.data),
        management=str(one.management),
        multicast=str(one.multicast),
        mtu=one.mtu,
        control_port=one.control_port,
        data_port=one.data_port,
        switches=[
            view.TopologySwitchView(
                name=each.name,
                role=each.role,
                southbound=each.southbound,
                dpid=each.dpid,
                ports={port: f"{end.node}:{end.port}" for port, end in sorted(each.neighbours.items())},
            )
            for each in one.switches.values()
        ],
        servers=[
            view.ServerView(
                name=each.name,
                address=str(each.address),
                management=str(each.management),
                tor=each.tor,
                tor_port=each.tor_port,
                rate_bps=each.rate_bps,
            )
            for each in one.servers.values()
        ],
        links=[
            view.LinkView(a=f"{each.a.node}:{each.a.port}", b=f"{each.b.node}:{each.b.port}", rate_bps=each.rate_bps)
            for each in one.links
        ],
        ocs=[_ocs(each) for each in one.ocs.values()],
        sites=[
            view.SiteView(
                name=each.name,
                servers=list(each.servers),
                relays=list(each.relays),
                outside={server: f"{at.address}:{at.port or one.control_port}" for server, at in each.outside.items()},
                nat=each.nat,
                via=each.via or None,
            )
            for each in one.sites.values()
        ],
    )


def _ocs(one: Ocs) -> view.OcsView:
    return view.OcsView(
        name=one.name,
        ports=one.ports,
        dialect=one.dialect,
        address=str(one.address),
        management_port=one.management_port,
        reconfiguration_ms=one.reconfiguration_s * 1e3,
        transmit_dbm=one.light.transmit_dbm,
        sensitivity_dbm=one.light.sensitivity_dbm,
        cross_connect_loss_db=one.light.cross_connect_loss_db,
        splitters=[splitter(each) for each in one.splitters.values()],
        attached={port: f"{end.node}:{end.port}" for port, end in sorted(one.attached.items())},
    )
