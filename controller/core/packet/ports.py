"""Switch ports go down and come up: what runs through one that is down moves, or fails, with that as its cause."""

from __future__ import annotations

from rostrum.controller.core import events as ev
from rostrum.controller.core.circuits.circuits import Circuit
from rostrum.controller.core.circuits.splitters import TorPort
from rostrum.controller.core.groups import rules
from rostrum.controller.core.model import PathKind
from rostrum.controller.core.packet import reroute
from rostrum.controller.core.requests.path_setup import fail, lose_circuit, to_packet
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.requests.requests import run_queue
from rostrum.controller.core.state import Core
from rostrum.topologies.model import End


def port_changed(core: Core, event: ev.PortChanged, now: int) -> None:
    switch = core.topology.switches.get(event.switch)
    end = switch.neighbours.get(event.port) if switch else None
    key = event.switch, event.port
    if end is None or event.up == (key not in core.resources.ports_down):
        return
    if event.up:
        del core.resources.ports_down[key]
        core.silence.from_port[key] = now
        core.log("port up", switch=event.switch, port=event.port, to=f"{end.node}:{end.port}")
    else:
        cause = f"{event.switch} port {event.port} (to {end.node}:{end.port}) is down"
        core.resources.ports_down[key] = cause
        core.counts["ports_lost"] += 1
        core.warn("port down", switch=event.switch, port=event.port, to=f"{end.node}:{end.port}")
        _lost(core, event, end, cause, now)
    if end.node in core.topology.switches:
        reroute.reroute_unicast(core)
        rules.links_changed(core, now)
    run_queue(core, now)


def _lost(core: Core, event: ev.PortChanged, end: End, cause: str, now: int) -> None:
    if end.node in core.topology.ocs:
        for circuit in [one for one in core.resources.circuits if _uses(one, event.switch, event.port)]:
            lose_circuit(core, circuit, cause, now)
    elif end.node in core.topology.switches:
        for path in [one for one in core.paths.values() if one.granted and one.kind is PathKind.PACKET]:
            crosses = _crosses(path, event.switch, event.port) or _crosses(path, end.node, end.port)
            if crosses and not reroute.around(core, path, cause, now):
                path.stamps.notes.append(cause)
                to_packet(core, path, cause, now)
    else:
        _server_cut_off(core, end.node, cause, now)


def _uses(circuit: Circuit, switch: str, port: int) -> bool:
    ends: tuple[TorPort, ...] = (circuit.cascade.uplink, *circuit.cascade.downlinks)
    return any((one.tor, one.tor_port) == (switch, port) for one in ends)


def _crosses(path: Path, switch: str, port: int) -> bool:
    return any(at == switch and (in_port == port or port in out_ports) for at, in_port, out_ports in path.hops)


def _server_cut_off(core: Core, server: str, cause: str, now: int) -> None:
    """Its paths end; those that it only receives by end when they have nobody else, as its sender will find."""
    for path in [one for one in core.paths.values() if one.granted]:
        request = path.request
        if request.sender == server:
            fail(core, path, cause, now)
        elif server in request.receivers:
            path.stamps.notes.append(f"{server} cannot receive: {cause}")
            del path.stamps.notes[:-16]
            if all(core.resources.cut_off(name) for name in request.receivers):
                fail(core, path, f"no receiver can be reached: {cause}", now)
