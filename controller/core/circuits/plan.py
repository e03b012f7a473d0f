"""How a request can be carried by a circuit: reuse an identical live one, or find an uplink, downlinks and splitters,
reclaiming idle circuits (least recently used first) where they are in the way.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from rostrum.controller.core.circuits import technology
from rostrum.controller.core.circuits.circuits import FOREVER, Circuit, CircuitState, Foreign, OcsState
from rostrum.controller.core.circuits.splitters import Cascade, TorPort, needed
from rostrum.controller.core.model import Pair, PathKind
from rostrum.controller.core.packet.fabric import Ends
from rostrum.controller.core.packet.rules import circuit_hops
from rostrum.controller.core.packet.trees import Hop
from rostrum.controller.core.text import listed, seconds
from rostrum.controller.core.values import Obstacle, ObstacleKind, PathRequest, Wanted
from rostrum.topologies.model import Ocs, Splitter

if TYPE_CHECKING:
    from rostrum.controller.core.circuits.resources import Resources


Racks = tuple[str, ...]


@dataclass(frozen=True)
class CircuitPlan:
    ocs: str
    cascade: Cascade
    reuse: str | None  # id of the live circuit this is
    evict: tuple[str, ...]  # idle circuits to take down first
    hops: tuple[Hop, ...]
    rate_bps: int
    reconfiguration_ns: int  # 0 = live
    share: bool = False  # others use it too, and may go on


@dataclass(frozen=True)
class _Taken:
    """A ToR's port chosen, and the idle circuit that holds it, if one does."""

    port: TorPort
    victim: str | None


def plan(resources: Resources, request: PathRequest, now: int) -> CircuitPlan | Obstacle:
    """The plan that disturbs least, or the obstacle that is over soonest."""
    ends = resources.ends(request)
    if not ends.remote:
        return Obstacle(ObstacleKind.NO_CIRCUIT, "all receivers are in the sender's rack", ever=True)
    if not resources.topology.ocs:
        return Obstacle(ObstacleKind.NO_CIRCUIT, "the topology has no optical circuit switch", ever=True)
    if resources.health.darkness and (dark := _all_dark(resources, request, ends, now)):
        return dark
    found = [_on_ocs(resources, ocs, ends, now) for ocs in resources.topology.ocs.values()]
    plans = [one for one in found if isinstance(one, CircuitPlan)]
    if plans:
        return min(plans, key=lambda one: (one.reconfiguration_ns > 0, len(one.evict)))
    obstacles = [one for one in found if isinstance(one, Obstacle)]
    least = min(obstacles, key=lambda one: (one.ever, one.until is not None, one.until or 0))
    if len(obstacles) == 1:
        return least
    waiting = [one.blockers for one in obstacles if not one.ever]
    return replace(least, blockers=tuple(chain(*waiting)) if all(waiting) else ())


def _all_dark(resources: Resources, request: PathRequest, ends: Ends, now: int) -> Obstacle | None:
    """No circuit for receivers that saw no light of earlier ones, unless it is demanded."""
    if request.wanted is Wanted.CIRCUIT:
        return None
    names = [place.server for rack in ends.remote for place in ends.below[rack]]
    until = 0
    for name in names:
        one = resources.health.darkness.expected(name, PathKind.CIRCUIT, request.sender, now)
        if one is None:
            return None
        until = max(until, one)
    subject = f"{listed(names, 6)} saw no light of earlier circuits"
    text = f"{subject}; they are tried again in {seconds(until - now)}"
    return Obstacle(ObstacleKind.QUARANTINED, text, until=now + 2**62, subject=subject)


def share(resources: Resources, request: PathRequest) -> CircuitPlan | None:
    """As `Resources.plan_share`; of several circuits the one that reaches the fewest racks for nothing."""
    topology, ends = resources.topology, resources.ends(request)
    source, racks, rate_bps = ends.sender.tor, set(ends.remote), ends.rate_bps
    found = []
    for circuit in resources.circuits:
        cascade = circuit.cascade
        if not racks or not circuit.users or cascade.uplink.tor != source:
            continue
        if circuit.state is not CircuitState.LIVE or not racks <= {port.tor for port in cascade.downlinks}:
            continue
        ports = (cascade.uplink, *cascade.downlinks)
        capacity_bps = min(topology.switches[port.tor].rates[port.tor_port] for port in ports)
        if resources.circuits.load_bps(circuit) + rate_bps <= capacity_bps and not _stale(resources, circuit, 0):
            found.append(circuit)
    if not found:
        return None
    best = min(found, key=lambda one: (len(one.cascade.downlinks), one.id))
    plan = _finish(resources, topology.ocs[best.ocs], ends, best.cascade, best.id, (), 0)
    return replace(plan, share=True)


def _on_ocs(resources: Resources, ocs: Ocs, ends: Ends, now: int) -> CircuitPlan | Obstacle:
    source, racks = ends.sender.tor, ends.remote
    never = _never(resources, ocs, source, racks)
    if never:
        return never
    status = resources.ocs[ocs.name]
    if status.state is OcsState.STARTING and now < status.since + resources.settings.circuit_wait_ns:
        return Obstacle(ObstacleKind.DEVICE_DOWN, f"waiting for {ocs.name} to connect")
    if status.state is not OcsState.UP:
        text = f"{ocs.name} is not connected: {status.cause or 'it has not answered yet'}"
        return Obstacle(ObstacleKind.DEVICE_DOWN, text, until=now + 2**62)
    live = _reusable(resources, ocs, ends, racks, now)
    if live:
        reconfiguration = 0 if live.state is CircuitState.LIVE else technology.delay_ns(ocs, live.cascade)
        return _finish(resources, ocs, ends, live.cascade, live.id, (), reconfiguration)
    asker = ends.sender.server
    uplink = _take(resources, ocs, source, "input", asker, now)
    if isinstance(uplink, Obstacle):
        return uplink
    downlinks = []
    for tor in racks:
        taken = _take(resources, ocs, tor, "output", asker, now)
        if isinstance(taken, Obstacle):
            return taken
        downlinks.append(taken)
    return _with_splitters(resources, ocs, ends, uplink, downlinks, now)


def _never(resources: Resources, ocs: Ocs, source: str, racks: Racks) -> Obstacle | None:
    """What cannot be even with the whole OCS free."""
    if ocs.name not in resources.everywhere:
        cut_off = [tor for tor in (source, *racks) if not resources.ports.get((ocs.name, tor))]
        if cut_off:
            return Obstacle(ObstacleKind.NO_CIRCUIT, f"{listed(cut_off)} has no port on {ocs.name}", ever=True)
    count = len(racks)
    if (ocs.name, count) in resources.never:
        return resources.never[ocs.name, count]
    # Too few splitters or too little light: depends on the number of racks only.
    everything, kind = list(ocs.splitters.values()), technology.of(ocs)
    stand_ins = [TorPort(tor, 0, index) for index, tor in enumerate(racks, 1)]
    obstacle = None
    if count > 1 and kind.reaches(ocs) < count:
        text = f"{count} receiver racks cannot be reached through {ocs.name}: {kind.shortage(ocs)}"
        obstacle = Obstacle(ObstacleKind.NO_CIRCUIT, text, ever=True)
    elif kind.fit(ocs, TorPort("", 0, 0), stand_ins, everything) is None:
        best = kind.best(ocs, TorPort("", 0, 0), stand_ins, everything)
        power = best.weakest.power_dbm if best else float("nan")
        stages = len(best.weakest.splitters) if best else 0
        obstacle = Obstacle(
            ObstacleKind.LIGHT_BUDGET,
            f"light budget of {ocs.name}: {power:.1f} dBm would arrive behind {stages} splitters in a row, "
            f"{ocs.light.sensitivity_dbm:.1f} dBm are needed",
            ever=True,
        )
    resources.never[ocs.name, count] = obstacle
    return obstacle


def _reusable(resources: Resources, ocs: Ocs, ends: Ends, racks: Racks, now: int) -> Circuit | None:
    """The idle circuit from this rack to exactly these racks, live ones and the last used first."""
    same = [one for one in resources.circuits.on_route((ocs.name, ends.sender.tor, racks)) if not one.users]
    if resources.stale_rules:
        same = [one for one in same if not _stale(resources, one, now)]
    if resources.health.darkness:
        asker, suspected = ends.sender.server, resources.health.suspected
        same = [one for one in same if not any(suspected(ocs, s, now, asker) for s in one.cascade.splitters)]
    if not same:
        return None
    return max(same, key=lambda one: (one.state is CircuitState.LIVE, one.last_used))


def _stale(resources: Resources, circuit: Circuit, now: int) -> bool:
    """Somebody who was granted it before may still send there."""
    uplink = circuit.cascade.uplink
    return resources.stale_rules.obstacle(uplink.tor, uplink.tor_port, now) is not None


def _take(resources: Resources, ocs: Ocs, tor: str, side: str, asker: str, now: int) -> _Taken | Obstacle:
    """A port of `tor` whose fibre on this side is free, else one that an idle circuit holds."""
    idle: list[tuple[int, _Taken]] = []
    busy: list[str] = []
    until: list[int] = []
    kinds: list[ObstacleKind] = []
    health, down, rules = resources.health, resources.ports_down, resources.stale_rules
    if (ocs.name, tor) in resources.failed.links:
        text = f"waiting for {tor}'s fibres to {ocs.name}: they are drained"
        return Obstacle(ObstacleKind.DRAINED, text, until=FOREVER)
    for port in resources.ports[ocs.name, tor]:
        verdict = health.input if side == "input" else health.output
        ill = None if health.spotless else verdict(ocs, port.ocs_port, now, asker)
        holder = resources.circuits.holder(ocs.name, side, port.ocs_port)
        stale = rules.obstacle(tor, port.tor_port, now) if rules and side == "input" else None
        if down and (tor, port.tor_port) in down:
            kinds.append(ObstacleKind.PORT_DOWN)
            busy.append(f"port {port.tor_port} is down")
            until.append(FOREVER)
        elif ill:
            kinds.append(ObstacleKind.QUARANTINED)
            busy.append(f"port {port.tor_port} ({ocs.name} {side} {port.ocs_port}) is {ill[0]}")
            until.append(ill[1])
        elif isinstance(holder, Foreign):
            kinds.append(ObstacleKind.CIRCUIT_IN_USE)
            busy.append(f"port {port.tor_port} {_found(holder, now)}")
            until.append(holder.until)
        elif holder is not None and holder.users:
            kinds.append(ObstacleKind.CIRCUIT_IN_USE)
            busy.append(f"port {port.tor_port} in use by {holder.user}")
        elif stale:
            kinds.append(ObstacleKind.OLD_RULES)
            busy.append(f"port {port.tor_port} {stale[0]}")
            until.append(stale[1])
        elif holder is None:
            return _Taken(port, None)
        else:
            idle.append((holder.last_used, _Taken(port, holder.id)))
    if idle:
        return min(idle, key=lambda one: one[0])[1]
    name = "uplink" if side == "input" else "downlink"
    return Obstacle(
        ObstacleKind.CIRCUIT_IN_USE if ObstacleKind.CIRCUIT_IN_USE in kinds else kinds[0],
        f"waiting for {tor}'s {name}: {'; '.join(busy)}",
        until=min(until) if len(until) == len(busy) else None,
        blockers=tuple((ocs.name, side, port.ocs_port) for port in resources.ports[ocs.name, tor]) if not until else (),
        subject=f"{tor} {side}" if until else "",
    )


def _found(foreign: Foreign, now: int) -> str:
    pair = foreign.cross_connect.pair
    if foreign.until >= FOREVER:
        return f"held by cross-connect {pair.input}>{pair.output}, which is not this manager's"
    return (
        f"held by cross-connect {pair.input}>{pair.output} found at start, kept for {seconds(foreign.until - now)} more"
    )


def _with_splitters(
    resources: Resources, ocs: Ocs, ends: Ends, uplink: _Taken, downlinks: Sequence[_Taken], now: int
) -> CircuitPlan | Obstacle:
    ports = [taken.port for taken in downlinks]
    if len(ports) == 1:
        ill = resources.health.pair(ocs, Pair(uplink.port.ocs_port, ports[0].ocs_port), now, ends.sender.server)
        if ill:
            pair = f"{uplink.port.ocs_port}>{ports[0].ocs_port}"
            text = f"cross-connect {pair} of {ocs.name} is {ill[0]}"
            return Obstacle(ObstacleKind.QUARANTINED, text, until=ill[1], subject=pair)
    evict = {taken.victim: None for taken in (uplink, *downlinks) if taken.victim}
    reclaimable = [
        one.id
        for one in resources.circuits.idle()
        if one.ocs == ocs.name and one.cascade.splitters and one.id not in evict
    ]
    while True:
        available = _available(resources, ocs, evict.keys(), ends.sender.server, now)
        made = _fit_unsuspected(resources, ocs, ends, uplink.port, ports, available, now)
        if made:
            spared = _spare(resources, ocs, evict, made, [taken.victim for taken in (uplink, *downlinks)])
            return _finish(resources, ocs, ends, made, None, spared, technology.delay_ns(ocs, made))
        if not reclaimable:
            return _no_splitter(resources, ocs, ends, len(ports), available, now)
        evict[reclaimable.pop(0)] = None


def _fit(
    resources: Resources, ocs: Ocs, uplink: TorPort, ports: list[TorPort], available: list[Splitter]
) -> Cascade | None:
    """As `fit`, remembered: the same racks are asked for again and again."""
    key = (ocs.name, uplink, tuple(ports), tuple(splitter.name for splitter in available))
    found = resources.cascades.get(key)
    if found is None:
        found = (technology.of(ocs).fit(ocs, uplink, ports, available),)
        resources.cascades.put(key, found)
    return found[0]


def _fit_unsuspected(
    resources: Resources,
    ocs: Ocs,
    ends: Ends,
    uplink: TorPort,
    ports: list[TorPort],
    available: list[Splitter],
    now: int,
) -> Cascade | None:
    """Without splitters under suspicion if the others will do."""
    if resources.health.darkness:
        asker, suspected = ends.sender.server, resources.health.suspected
        better = [one for one in available if not suspected(ocs, one.name, now, asker)]
        if len(better) < len(available) and (made := _fit(resources, ocs, uplink, ports, better)):
            return made
    return _fit(resources, ocs, uplink, ports, available)


def _available(resources: Resources, ocs: Ocs, evicted: Collection[str], asker: str, now: int) -> list[Splitter]:
    free = []
    for splitter in ocs.splitters.values():
        holders = _splitter_holders(resources, ocs, splitter)
        gone = all(isinstance(one, Circuit) and one.id in evicted for one in holders)
        if gone and resources.health.splitter(ocs, splitter.name, now, asker) is None:
            free.append(splitter)
    return free


def _splitter_holders(resources: Resources, ocs: Ocs, splitter: Splitter) -> list[Circuit | Foreign]:
    held = [resources.circuits.holder(ocs.name, "output", splitter.input)]
    held += [resources.circuits.holder(ocs.name, "input", port) for port in splitter.outputs]
    return [one for one in held if one is not None]


def _spare(
    resources: Resources, ocs: Ocs, evict: dict[str, None], made: Cascade, forced: list[str | None]
) -> tuple[str, ...]:
    """Of the circuits given up while searching, those whose ports or splitters are really needed."""
    wanted = set(made.splitters)
    kept = []
    for circuit_id in evict:
        circuit = resources.circuits.get(circuit_id)
        if circuit_id in forced or (circuit and wanted & set(circuit.cascade.splitters)):
            kept.append(circuit_id)
    return tuple(kept)


def _no_splitter(
    resources: Resources, ocs: Ocs, ends: Ends, racks: int, available: list[Splitter], now: int
) -> Obstacle:
    users: set[str] = set()
    busy: list[str] = []
    ill: list[tuple[str, int]] = []
    until: list[int] = []
    for splitter in ocs.splitters.values():
        verdict = resources.health.splitter(ocs, splitter.name, now, ends.sender.server)
        holders = _splitter_holders(resources, ocs, splitter)
        users.update(*(one.users for one in holders if isinstance(one, Circuit)))
        until += [one.until for one in holders if isinstance(one, Foreign)]
        if verdict:
            ill.append((f"{splitter.name} {verdict[0]}", verdict[1]))
        elif holders and splitter not in available:
            busy.append(splitter.name)
    fanout = min((splitter.fanout for splitter in ocs.splitters.values()), default=2)
    count = needed(racks, fanout)
    what = "a splitter" if count == 1 else f"{count} splitters ({len(available)} free)"
    parts = []
    if busy:
        by = f"in use by {listed(users)}" if users else "held by cross-connects found at start"
        parts.append(f"{listed(busy)} {by}")
    parts += [text for text, _ in ill]
    if not parts:
        parts.append(f"the light budget fails with the free ones ({listed(s.name for s in available)})")
    waits_for_users = bool(users)
    over = until + [end for _, end in ill]
    return Obstacle(
        ObstacleKind.CIRCUIT_IN_USE if busy else ObstacleKind.QUARANTINED if ill else ObstacleKind.LIGHT_BUDGET,
        f"waiting for {what}: {'; '.join(parts)}",
        until=min(over) if over and not waits_for_users else None,
        blockers=tuple((ocs.name, "output", ocs.splitters[name].input) for name in busy) if not over else (),
        subject=f"{what} {listed(busy)} {listed(users)}" if ill else "",
    )


def _finish(
    resources: Resources,
    ocs: Ocs,
    ends: Ends,
    cascade: Cascade,
    reuse: str | None,
    evict: tuple[str, ...],
    reconfiguration_ns: int,
) -> CircuitPlan:
    topology = resources.topology
    hops = circuit_hops(ends, cascade)
    rates = [topology.switches[port.tor].rates[port.tor_port] for port in (cascade.uplink, *cascade.downlinks)]
    return CircuitPlan(ocs.name, cascade, reuse, evict, hops, min(ends.rate_bps, *rates), reconfiguration_ns)
