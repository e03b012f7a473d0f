"""What discovery frames say of the cabling, compared with the topology file: which port is plugged in somewhere else.

A frame that left tor1:49 and came in at core:3 says that these are joined. One that went through the OCS says it of the
ToRs' fibres: light that enters the OCS where the sender's port should be leaves it where its cross-connects lead, and
there the port that heard it is plugged in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rostrum.controller.core import events as ev
from rostrum.controller.core.circuits.circuits import Circuit, CircuitState
from rostrum.controller.core.model import Sighting
from rostrum.controller.core.state import Core
from rostrum.controller.core.values import S
from rostrum.topologies.model import End, Ocs, Topology

INTERVAL_S = 1.0  # between two discovery frames out of a port
FRAMES_PER_S = 400  # of all ports: large networks are asked less often
STALE_NS = 20 * S  # not heard for so long: nothing is said of the port any more
SETTLE_NS = 1 * S  # after a circuit changed, frames on the way before prove nothing

State = Literal["as expected", "miscabled", "silent", "down", "not looked at", "not heard"]


def interval_ns(topology: Topology) -> int:
    """Between two discovery frames out of each port to another device."""
    ends = [end for one in topology.switches.values() for end in one.neighbours.values()]
    ports = sum(end.node not in topology.servers for end in ends)
    return round(max(INTERVAL_S, ports / FRAMES_PER_S) * S)


@dataclass(frozen=True)
class Heard:
    """What a port heard last. `wrong`: the mis-cabling as text; empty = as the topology file says."""

    sighting: Sighting
    at: int
    wrong: str


@dataclass(frozen=True)
class Link:
    """A port and what discovery knows of it. `sees`: node and port at the other end, as heard."""

    switch: str
    port: int
    expected: End
    state: State
    sees: str
    text: str


def sighted(core: Core, event: ev.Sighted, now: int) -> None:
    """A discovery frame came in."""
    seen = event.sighting
    switch = core.topology.switches.get(seen.switch)
    expected = switch.neighbours.get(seen.port) if switch else None
    if expected is None:
        return
    wrong = _judge(core, seen, expected, now)
    if wrong is None:
        return
    before = core.heard.get((seen.switch, seen.port))
    if "silence" not in core.check_timers:
        core.schedule_check("silence", now)  # from the first frame on, silence means something
    core.heard[seen.switch, seen.port] = Heard(seen, now, wrong)
    was = before.wrong if before else ""
    if wrong and wrong != was:
        core.counts["miscabled"] += 1
        core.warn("miscabled", switch=seen.switch, port=seen.port, text=wrong)
    elif was and not wrong:
        core.log("cabling mended", switch=seen.switch, port=seen.port, to=f"{expected.node}:{expected.port}")


def _judge(core: Core, seen: Sighting, expected: End, now: int) -> str | None:
    """Empty = right; None = it cannot be told."""
    origin = core.topology.switches.get(seen.origin.node)
    meant = origin.neighbours.get(seen.origin.port) if origin else None
    if meant is None:
        return None
    here = f"{seen.switch} port {seen.port}"
    there = f"{seen.origin.node}:{seen.origin.port}"
    if expected.node in core.topology.ocs and meant.node == expected.node:
        return _through(core, core.topology.ocs[expected.node], seen, expected.port, meant.port, now)
    if expected == seen.origin:
        return ""
    return f"{here} expected {expected.node}:{expected.port}, sees {there}"


def _through(core: Core, ocs: Ocs, seen: Sighting, expected: int, entered: int, now: int) -> str | None:
    """Light that should have entered the OCS at `entered` came out at a port that should be at `expected`."""
    if any(one.ocs == ocs.name and not _steady(one, now) for one in core.resources.circuits):
        return None
    outputs = _outputs(core, ocs, entered)
    if expected in outputs:
        return ""
    here = f"{seen.switch} port {seen.port}"
    if outputs:
        free = sorted(outputs - _confirmed(core, ocs, seen, now)) or sorted(outputs)
        return f"{here} expected {ocs.name}:{expected}, sees {_or(ocs, free)}"
    feeding = sorted(port for port in ocs.attached if expected in _outputs(core, ocs, port))
    if feeding:
        return (
            f"{seen.origin.node} port {seen.origin.port} expected {ocs.name}:{entered}, its light comes from "
            f"{_or(ocs, feeding)} (seen at {here})"
        )
    return None  # through cross-connects that are not known here


def _steady(circuit: Circuit, now: int) -> bool:
    return circuit.state is CircuitState.LIVE and circuit.settled_at + SETTLE_NS < now


def _or(ocs: Ocs, ports: list[int]) -> str:
    return " or ".join(f"{ocs.name}:{port}" for port in ports)


def _outputs(core: Core, ocs: Ocs, entered: int) -> set[int]:
    """Ports of ToRs that are lit by what enters there, through splitters too."""
    crossed = {
        pair.input: pair.output for one in core.resources.circuits if one.ocs == ocs.name for pair in one.cascade.pairs
    }
    for foreign in core.resources.circuits.foreign(ocs.name):
        crossed[foreign.cross_connect.pair.input] = foreign.cross_connect.pair.output
    splitters = {one.input: one.outputs for one in ocs.splitters.values()}
    lit, reached = [entered], set()
    for _ in range(ocs.ports):
        if not lit:
            break
        output = crossed.get(lit.pop())
        if output in splitters:
            lit += splitters[output]
        elif output is not None:
            reached.add(output)
    return reached


def _confirmed(core: Core, ocs: Ocs, seen: Sighting, now: int) -> set[int]:
    """OCS ports whose own ToR port hears what it should: nobody else can be plugged in there."""
    sure = set()
    for (switch, port), heard in core.heard.items():
        end = core.topology.switches[switch].neighbours[port]
        if end.node == ocs.name and not heard.wrong and heard.at + STALE_NS > now and switch != seen.switch:
            sure.add(end.port)
    return sure


def links(core: Core, now: int) -> list[Link]:
    """Every port between devices, and what is known of it."""
    found = []
    part = _take_part(core)
    for switch in core.topology.switches.values():
        for port, end in sorted(switch.neighbours.items()):
            if end.node not in core.topology.servers:
                found.append(_link(core, switch.name, port, end, part, now))
    return found


def _take_part(core: Core) -> set[str]:
    """Switches that send and hand up frames. A P4 switch without its port to the manager does neither, and nobody knows
    before something was heard.
    """
    known = {switch for switch, _ in core.heard} | {one.sighting.origin.node for one in core.heard.values()}
    return {
        one.name
        for one in core.topology.switches.values()
        if (one.p4 is None or one.name in known) and one.name not in core.resources.switches_down
    }


def _link(core: Core, switch: str, port: int, end: End, part: set[str], now: int) -> Link:
    heard = core.heard.get((switch, port))
    fresh = heard is not None and heard.at + STALE_NS > now
    down = core.resources.ports_down.get((switch, port))
    state: State
    sees, text = "", ""
    if heard and fresh:
        sees = f"{heard.sighting.origin.node}:{heard.sighting.origin.port}"
    if down:
        state, text = "down", down
    elif switch not in part:
        state = "not looked at"
    elif heard and fresh:
        state, text = ("miscabled", heard.wrong) if heard.wrong else ("as expected", "")
    elif end.node in core.topology.ocs:
        state = "not heard"  # dark, or nobody sends into the circuit: no news
    else:
        settled = core.started + STALE_NS < now
        state = "silent" if end.node in part and settled else "not looked at"
        if state == "silent":
            text = f"{switch} port {port} expected {end.node}:{end.port}, hears nothing"
    return Link(switch, port, end, state, sees, text)
