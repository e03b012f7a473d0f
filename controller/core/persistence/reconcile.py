"""After a restart: what devices and agents still have is made ours again, and what nothing explains is removed after a
grace time.

For a manager without a journal, or with one that lacks the last moments (a power cut): agents tell at hello which paths
they hold, the OCS which cross-connects it has, the switches which rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from rostrum.controller.core import actions as act
from rostrum.controller.core.circuits.circuits import Circuit, CircuitState, OcsState
from rostrum.controller.core.circuits.resources import PacketPlan
from rostrum.controller.core.circuits.splitters import Cascade, TorPort
from rostrum.controller.core.model import CrossConnectState, Pair, PathKind
from rostrum.controller.core.packet import rules as rule_making
from rostrum.controller.core.requests.path_setup import to_packet
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.state import Core
from rostrum.controller.core.text import listed
from rostrum.controller.core.values import Budget, LivePath, PathRequest, Protocol, Stamps, State
from rostrum.topologies.model import Ocs


def adopt(core: Core, server: str, live: LivePath, now: int) -> None:
    """A path that the agent of `server` holds and this manager did not grant."""
    servers = core.topology.servers
    unknown = [name for name in live.receivers if name not in servers]
    if unknown or not live.receivers or server in live.receivers or not core.groups.contains(live.group):
        core.warn("path not adopted", path=live.response_id[:64], agent=server, cause="it does not fit this topology")
        return
    if live.response_id in core.paths or core.group_in_use(live.group):
        cause = f"{live.group} is in use by another path"
        core.warn("path not adopted", path=live.response_id[:64], agent=server, cause=cause)
        return
    core.groups.adopt(live.group)
    receivers = tuple(dict.fromkeys(live.receivers))
    request = PathRequest(live.request_id, server, server, receivers, live.accepted_size, live.accepted_size)
    path = Path(live.response_id, request, Stamps(now, accepted=now), adopted=True)
    path.kind, path.group, path.accepted_size = live.kind, live.group, live.accepted_size
    if live.protocol is Protocol.WAN:  # RDCM's overlay went with the manager that had it
        path.protocol = Protocol.WAN
    path.reason = "adopted from its agent after the manager's restart"
    path.to(State.CONFIGURING, now)
    path.to(State.ACTIVE, now)
    core.paths[path.id] = path
    core.by_request[server, live.request_id] = path.id
    core.persistence.mark("path", path.id)
    core.resources.share_ports(path.id, server, receivers)
    for held in [one for one in core.foreign_rules.values() if one.rule.group == live.group]:
        del core.foreign_rules[rule_making.key(held.rule)]
        path.rules = (*path.rules, held.rule)
    core.counts["adopted"] += 1
    core.log("adopted", path=path.id, request=live.request_id, agent=server, kind=live.kind.value, group=live.group)
    match_up(core, path, now)


def match_up(core: Core, path: Path, now: int) -> None:
    """Finds an adopted path's circuit among the cross-connects found, or its tree, and completes its rules."""
    if not path.adopted or not path.granted or path.hops or path.group is None:
        return
    if path.kind is PathKind.CIRCUIT:
        racks = core.resources.remote_racks(path.request)
        known = [name for name, status in core.resources.ocs.items() if status.state is OcsState.UP]
        for name in known:
            found = _trace_path(core, core.topology.ocs[name], path, racks)
            if found:
                _own(core, core.topology.ocs[name], path, found, now)
                break
        else:
            if len(known) == len(core.topology.ocs):
                to_packet(core, path, "its cross-connects are not on the OCS any more", now)
            return
        path.hops = rule_making.circuit_hops(core.resources.ends(path.request), found)
    else:
        plan = core.resources.packet_tree(path.request)
        if not isinstance(plan, PacketPlan):
            return
        path.hops, path.rate_bps = plan.hops, plan.rate_bps
    core.persistence.mark("path", path.id)
    core.set_rules(path)
    core.install(path, now)  # what is there already is only repeated


def match_all(core: Core, now: int) -> None:
    for path in [one for one in core.paths.values() if one.adopted and one.granted and not one.hops]:
        match_up(core, path, now)


def _trace_path(core: Core, ocs: Ocs, path: Path, racks: Collection[str]) -> Cascade | None:
    tor = core.topology.servers[path.request.sender].tor
    steady = [
        one.cross_connect.pair
        for one in core.resources.circuits.foreign(ocs.name)
        if one.cross_connect.state in (CrossConnectState.STEADY, CrossConnectState.TRANSITION)
    ]
    for uplink in core.resources.ports.get((ocs.name, tor), []):
        found = trace(core, ocs, uplink, steady)
        if found and sorted(port.tor for port in found.downlinks) == sorted(racks):
            return found
    return None


def trace(core: Core, ocs: Ocs, uplink: TorPort, pairs: Collection[Pair]) -> Cascade | None:
    """Follows a ToR's light through cross-connects and splitters to the racks it reaches; None if it reaches none."""
    by_input = {pair.input: pair for pair in pairs}
    feeds = {splitter.input: splitter for splitter in ocs.splitters.values()}
    downlinks: list[TorPort] = []
    budgets: list[Budget] = []
    passed: list[str] = []
    used: list[Pair] = []
    lit: deque[tuple[int, float, tuple[str, ...]]] = deque([(uplink.ocs_port, ocs.light.transmit_dbm, ())])
    while lit:
        fibre, power, through = lit.popleft()
        pair = by_input.get(fibre)
        if pair is None or pair in used:
            continue
        used.append(pair)
        power -= ocs.light.cross_connect_loss_db
        splitter, end = feeds.get(pair.output), ocs.attached.get(pair.output)
        if splitter:
            passed.append(splitter.name)
            lit.extend((port, power - splitter.loss_db, (*through, splitter.name)) for port in splitter.outputs)
        elif end:
            downlinks.append(TorPort(end.node, end.port, pair.output))
            budgets.append(
                Budget(end.node, pair.output, through, round(power, 3), round(power - ocs.light.sensitivity_dbm, 3))
            )
    if not downlinks:
        return None
    return Cascade(uplink, tuple(downlinks), tuple(passed), tuple(used), tuple(budgets))


def _own(core: Core, ocs: Ocs, path: Path, found: Cascade, now: int) -> None:
    """The foreign cross-connects of a cascade become the path's circuit."""
    rows = [core.resources.circuits.drop_foreign(ocs.name, pair) for pair in found.pairs]
    powers = tuple(row.cross_connect for row in rows if row)
    circuit_id = core.resources.next_circuit_id()
    core.resources.circuits.add(
        Circuit(circuit_id, ocs.name, found, CircuitState.LIVE, 0, (path.id,), now, now, powers)
    )
    path.ocs, path.circuit_id, path.cascade, path.cross_connects = ocs.name, circuit_id, found, powers
    core.persistence.mark("circuit", circuit_id)
    path.stamps.cross_connects_steady = now
    topology = core.topology
    rates = [topology.servers[name].rate_bps for name in (path.request.sender, *path.request.receivers)]
    rates += [topology.switches[port.tor].rates[port.tor_port] for port in (found.uplink, *found.downlinks)]
    path.rate_bps = min(rates)


def sweep(core: Core, now: int) -> None:
    """Removes what was found on devices and nobody claimed within the grace time."""
    rules = [key for key, held in core.foreign_rules.items() if held.until <= now]
    if rules:
        gone = tuple(core.foreign_rules.pop(key).rule for key in rules)
        core.remove(gone, "", now)
        core.log("unclaimed rules removed", rules=len(gone), switches=listed({rule.switch for rule in gone}))
    for ocs in [name for name, when in core.leave_after.items() if when <= now]:
        del core.leave_after[ocs]
        core.emit(act.ReadCrossConnects(ocs))  # and what is in to_leave is tried again
    expired = [one for one in core.resources.circuits.foreign() if one.until <= now]
    for ocs in sorted({one.ocs for one in expired}):
        pairs = tuple(one.cross_connect.pair for one in expired if one.ocs == ocs)
        for pair in pairs:
            core.resources.circuits.drop_foreign(ocs, pair)
        core.disconnect(ocs, pairs, "claimed by no path", recheck=True)
        core.log("unclaimed cross-connects removed", ocs=ocs, pairs=len(pairs))
