"""First light, told by switches: when data of a path comes through at the racks of its receivers."""

from __future__ import annotations

from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.state import Core
from rostrum.controller.core.values import MS, FirstLight


def first_light(core: Core, event: ev.FirstLight, now: int) -> None:
    """Keeps and logs it; when every receivers' rack has told, the sender's agent hears so, which may start at high rate
    without waiting for the receivers' own text. Racks whose switches cannot tell leave it waiting for those.
    """
    seen = event.light
    path = next((one for one in reversed(core.paths.values()) if one.granted and one.group == seen.group), None)
    if path is None or seen.switch in path.light:
        return
    if not any(rule.confirm and (rule.switch, rule.in_port) == (seen.switch, seen.in_port) for rule in path.rules):
        return  # of a way the path has left
    path.light[seen.switch] = FirstLight(now, seen.in_port, seen.sn)
    dark = [rule.switch for rule in path.rules if rule.confirm and rule.switch not in path.light]
    core.log(
        "first light", path=path.id, rack=seen.switch, port=seen.in_port, sn=seen.sn, ms=_since(path, now),
        dark=len(dark),
    )  # fmt: skip
    core.emit(act.PathChanged(path.id))
    agent = core.agents.get(path.request.origin)
    if not dark and agent and agent.wants_light:
        core.emit(act.NotifyLight(path.request.origin, path.id))


def _since(path: Path, now: int) -> float:
    return (now - (path.stamps.accepted or now)) / MS
