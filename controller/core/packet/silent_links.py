"""Links that pass nothing any more though no port is down, found by discovery frames that stay away.

A direction of a link is *silent* when frames sent into it for `SILENT` intervals of discovery did not come out. Silence
has other causes than links, and they are told apart by what else is silent at the same time:

    most of all directions      nobody but this manager: nothing is done
    all into a switch           it does not hand frames up: nothing is done
    all out of a switch         it does not send them: nothing is done
    all into and out of it      its control channel dies too, and its switch is down; or it stays connected for
                                `SWITCH_DOWN_NS`, and then it forwards nothing
    anything less               the link

A silent link is left alone as one that receivers suspect is (failed_links.py), for as long as it is silent and a while
after; the while doubles when it falls silent again soon. Both directions have to be heard: a link that works one way is
of no use to trees that need the other, and unicast goes both ways.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rostrum.controller.core import actions as act
from rostrum.controller.core.packet import cabling, reroute
from rostrum.controller.core.packet.fabric import Link
from rostrum.controller.core.packet.failed_links import Direction
from rostrum.controller.core.packet.failed_links import key as record_key
from rostrum.controller.core.values import MS, S

if TYPE_CHECKING:
    from rostrum.controller.core.state import Core

SILENT = 2.5  # intervals of discovery without a frame
DOUBTFUL = 1.4  # intervals after which more frames are asked for, so that a busy link is not taken for a dead one
LOOK_NS = 250 * MS
SWITCH_DOWN_NS = 8 * S  # a control channel that died is found out within four
HOLD_NS = 5 * S  # how long a link that is heard again is left alone, the first time
PROBES_MAX = 64  # frames asked for at one look
REFUSED_MAX = 8  # links that nothing else could replace, tried again at one look


def look(core: Core, now: int) -> None:
    if not core.heard:
        return
    core.schedule_check("silence", now + LOOK_NS)
    silence = core.silence
    if not silence.directions:
        silence.directions = tuple(_directions(core))
        silence.interval_ns = cabling.interval_ns(core.topology)
    interval = silence.interval_ns
    ages = _ages(core, now)
    quiet = {one: age for one, age in ages.items() if age > SILENT * interval}
    _probe(core, [one for one, age in ages.items() if age > DOUBTFUL * interval])
    if not quiet:
        silence.ours, silence.told = False, frozenset()
        return
    if 2 * len(quiet) > len(ages):
        if not silence.ours:
            core.counts["silence_of_all"] += 1
            text = f"{len(quiet)} of {len(ages)} directions are silent at once"
            core.warn("discovery hears nothing", cause=f"{text}: it is not the links")
        silence.ours = True
        return
    silence.ours = False
    _leave_alone(core, _blamed(core, ages, quiet), now)


def _directions(core: Core) -> Iterator[Direction]:
    for switch in core.topology.switches.values():
        for port, end in sorted(switch.neighbours.items()):
            if end.node in core.topology.switches:
                yield Direction(switch.name, port, end.node, end.port)


def _ages(core: Core, now: int) -> dict[Direction, int]:
    """Of each direction that can be judged: for how long nothing has come out of it."""
    silence, resources, heard = core.silence, core.resources, core.heard
    hear = {switch for switch, _ in heard}
    speak = {one.sighting.origin.node for one in heard.values()}
    ages = {}
    for one in silence.directions:
        here, there = (one.switch, one.port), (one.origin, one.origin_port)
        if one.switch not in hear or one.origin not in speak:
            continue  # no discovery there, or none yet
        if one.switch in resources.switches_down or one.origin in resources.switches_down:
            continue
        if here in resources.ports_down or there in resources.ports_down:
            continue
        last = heard.get(here)
        if last and last.wrong:
            continue  # plugged in elsewhere: the cabling is to be mended, not gone around
        begin = max(
            silence.from_switch.get(one.switch, 0),
            silence.from_switch.get(one.origin, 0),
            silence.from_port.get(here, 0),
            silence.from_port.get(there, 0),
            core.started,
        )
        ages[one] = now - max(begin, last.at if last else 0)
    return ages


def _probe(core: Core, doubtful: list[Direction]) -> None:
    """Frames out of turn: one that a busy port dropped is no sign."""
    if doubtful:
        core.emit(act.Discover(tuple((one.origin, one.origin_port) for one in doubtful[:PROBES_MAX])))


def _blamed(core: Core, ages: dict[Direction, int], quiet: dict[Direction, int]) -> dict[Link, str]:
    """The links that all this silence points to, and why."""
    into, out_of = Counter(one.switch for one in ages), Counter(one.origin for one in ages)
    quiet_into, quiet_out_of = Counter(one.switch for one in quiet), Counter(one.origin for one in quiet)
    deaf = {name for name, count in quiet_into.items() if count == into[name] > 1}
    mute = {name for name, count in quiet_out_of.items() if count == out_of[name] > 1}
    unreachable = deaf & mute
    told = frozenset(deaf ^ mute)
    for name in sorted(told - core.silence.told):
        what = "hands no discovery frame up" if name in deaf else "sends no discovery frame"
        core.warn("discovery does not work at a switch", switch=name, cause=f"it {what}, at any of its ports")
    core.silence.told = told
    blamed: dict[Link, list[str]] = {}
    for one, age in quiet.items():
        if one.switch in told & deaf or one.origin in told & mute:
            continue
        if age <= SWITCH_DOWN_NS and (one.switch in unreachable or one.origin in unreachable):
            continue
        text = f"{one.switch} port {one.port} hears nothing of {one.origin} port {one.origin_port}"
        blamed.setdefault(one.link, []).append(text)
    return {link: " and ".join(text[:2]) for link, text in blamed.items()}


def _leave_alone(core: Core, blamed: dict[Link, str], now: int) -> None:
    failed = core.resources.failed
    refused = 0
    for link, text in blamed.items():
        known = failed.get(link)
        if known is None:
            if refused >= REFUSED_MAX or failed.is_drained(link):
                continue
            cause = f"silent: {text}, though no port is down"
            if reroute.fail_links(core, [link], cause, now, wait_ns=HOLD_NS):
                core.counts["links_silent"] += 1
            else:
                refused += 1
        elif failed.extend(link, now, HOLD_NS):
            core.persistence.mark_later("failed-link", record_key(link))
            core.schedule_check("links", min(one.until for one in failed))
