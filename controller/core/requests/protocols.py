"""Which protocol carries a path that is to be granted, and why."""

from __future__ import annotations

from collections.abc import Sequence

from rostrum.controller.core.model import PathKind
from rostrum.controller.core.packet.trees import Hop
from rostrum.controller.core.state import Core
from rostrum.controller.core.text import listed
from rostrum.controller.core.values import REST, PathRequest, Protocol

FAR_US = 10_000  # a round trip: no fabric has it, queues of its switches included; wan's rate does not fall with it
STRANGE_NAMED = 4  # servers that cannot have a protocol; more of them are counted


def choose(core: Core, request: PathRequest, kind: PathKind, hops: Sequence[Hop], whole: bool) -> tuple[Protocol, str]:
    """The protocol, and a word on why it or why not RDCM, where that is worth one. `whole`: the grant is for all of the
    object.
    """
    if kind is PathKind.CIRCUIT or request.protocol is Protocol.REPUBLIC:
        return Protocol.REPUBLIC, ""
    if request.protocol is Protocol.RDCM:
        return Protocol.RDCM, "rdcm: asked for"
    if request.protocol is Protocol.WAN:
        return Protocol.WAN, "wan: asked for"
    if request.origin == REST or not whole:
        return Protocol.REPUBLIC, ""
    if far := _far(core, request):
        if not (strange := without(core, request, "wan")):
            return Protocol.WAN, f"wan: {far}"
        return Protocol.REPUBLIC, f"{far}; not wan: {_named(strange)} cannot"
    if len(request.receivers) < 2:
        return Protocol.REPUBLIC, ""
    if len(hops) == 1:
        return Protocol.REPUBLIC, "not rdcm: one switch is no tree"
    if strange := without(core, request, "rdcm"):
        # Just after its own start the manager knows of hardly an agent: that is no word on what they can.
        away = [name for name in strange if name not in core.agents or not core.agents[name].connected]
        which, why = (away, "not connected yet") if away else (strange, "cannot")
        return Protocol.REPUBLIC, f"not rdcm: {_named(which)} {why}"
    return Protocol.RDCM, f"rdcm: {len(request.receivers)} receivers on a packet tree"


def _named(servers: Sequence[str]) -> str:
    return listed(servers) if len(servers) <= STRANGE_NAMED else f"{len(servers)} of the servers"


def _far(core: Core, request: PathRequest) -> str:
    """Why its receivers are too far for protocols of one fabric: by what the sender has measured, or because sender and
    receiver are so differently far from the manager. Empty: they are not, or nobody knows it.
    """
    if request.round_trip_us >= FAR_US:
        return f"a receiver is {_ms(request.round_trip_us)} away"
    sender = core.agents.get(request.sender)
    for name in request.receivers if sender and sender.round_trip_us else ():
        agent = core.agents.get(name)
        least = abs(agent.round_trip_us - sender.round_trip_us) if agent and agent.round_trip_us and sender else 0
        if least >= FAR_US:
            return f"{name} is at least {_ms(least)} away"
    return ""


def _ms(microseconds: int) -> str:
    return f"{round(microseconds / 1000)} ms"


def without(core: Core, request: PathRequest, protocol: str) -> list[str]:
    """Servers of a request whose agents are not there, or do not know that protocol."""
    ends = (request.sender, *request.receivers)
    return [name for name in ends if name not in core.agents or protocol not in core.agents[name].protocols]
