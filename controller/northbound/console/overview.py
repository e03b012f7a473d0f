"""What the console and `rostrum top` show of the core, in parts that are bounded whatever the core holds: servers by
rack, light, transfers, groups. Made when somebody looks, and not more often than costs little.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from typing import Any

from pydantic import BaseModel, Field
from rostrum.controller.core.circuits.circuits import OcsState
from rostrum.controller.core.groups.state import Group
from rostrum.controller.core.requests.paths import Path, Transfer
from rostrum.controller.core.state import Core
from rostrum.controller.core.values import S, State
from rostrum.controller.northbound.rest import views
from rostrum.controller.northbound.rest.views import WallClock
from rostrum.topologies.version import VERSION

LIVE_MAX = 200  # transfers and paths that are under way, in one view
ENDED_MAX = 50  # transfers that ended, the newest
LOOK_MAX = 2_000  # of all that are remembered, so many are looked at
GROUPS_MAX = 200
CIRCUITS_MAX = 200
LINKS_MAX = 200
FAILED_MAX = 8  # receivers named with a transfer
TEXT_MAX = 300  # characters of a cause: more is in the thing's own view
SILENT_AFTER = 2 * S
ENDED_PHASES = ("done", "failed")
STATES = {"o": "up", "s": "silent", "-": "never heard", "x": "gone", "d": "dark"}
PARTS = ("health", "fabric", "light", "transfers", "groups")


class RackView(BaseModel):
    switch: str
    up: bool
    cause: str
    servers: list[str]
    states: str = Field(description="A letter each: o up, s silent, d dark, x gone, - never heard")
    sending: int = Field(description="Servers that send now")
    receiving: int


class LinkOutView(BaseModel):
    link: list[str]
    why: str
    drained: bool


class FabricView(BaseModel):
    racks: list[RackView]
    switches: list[dict[str, Any]] = Field(description="Those without servers: name, role, up, cause")
    links_out: list[LinkOutView]
    links_out_count: int


class OverviewTransfer(BaseModel):
    """`why`: what it waits for, why it goes as it goes, or why it ended."""

    id: str
    path: str | None
    sender: str
    size: int
    phase: str
    live: bool
    kind: str | None
    why: str
    bytes: int | None = Field(description="That the slowest receiver has which still gets it; null = not told")
    receivers: int
    states: dict[str, int]
    failed: list[str] = Field(description="Some of the receivers that failed")
    begun_ns: int


class TransfersView(BaseModel):
    rows: list[OverviewTransfer]
    live_count: int
    queued: int


class OverviewView(BaseModel):
    """The parts as GET /v1/overview/events tells them, each when it changed."""

    health: dict[str, Any]
    fabric: FabricView
    light: dict[str, Any] = Field(description="OCSs, circuits and splitters, as GET /v1/circuits has them")
    transfers: TransfersView
    groups: dict[str, Any] = Field(description="The first groups, those with slow subscribers before all others")


def _short(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


def _health(core: Core, now: int, started: int) -> dict[str, Any]:
    missing = [*sorted(core.resources.switches_down), *_ocs_down(core)]
    return {
        "topology": core.topology.name,
        "version": VERSION,
        "boot_id": core.settings.boot_id,
        "scheduler": core.scheduler.name,
        "status": "ready" if not missing else "starting" if now - started < 10 * S else "degraded",
        "missing": missing[:LINKS_MAX],
        "switches": len(core.topology.switches),
        "switches_up": len(core.topology.switches) - len(core.resources.switches_down),
        "servers": len(core.topology.servers),
        "agents_connected": sum(agent.connected for agent in core.agents.values()),
        "queued": len(core.queue),
        "groups": len(core.members.groups),
    }


def _ocs_down(core: Core) -> list[str]:
    return [name for name, status in core.resources.ocs.items() if status.state is not OcsState.UP]


def _fabric(core: Core, now: int) -> dict[str, Any]:
    down = core.resources.switches_down
    sending, receiving = set[str](), set[str]()
    for path in itertools.islice(core.paths.live(), LOOK_MAX):
        if path.granted:
            sending.add(path.request.sender)
            receiving.update(path.request.receivers)
    dark = core.resources.health.darkness.dark_servers(now)
    racks: dict[str, list[str]] = {}
    for server in core.topology.servers.values():
        racks.setdefault(server.tor, []).append(server.name)
    failed = core.resources.failed
    out = [{"link": list(one.link), "why": _short(one.reason), "drained": True} for one in failed.all_drained]
    out += [{"link": list(one.link), "why": _short(one.cause), "drained": False} for one in failed]
    return {
        "racks": [
            {
                "switch": name,
                "up": name not in down,
                "cause": _short(down.get(name, "")),
                "servers": servers,
                "states": "".join(_server(core, one, dark, now) for one in servers),
                "sending": sum(one in sending for one in servers),
                "receiving": sum(one in receiving for one in servers),
            }
            for name, servers in racks.items()
        ],
        "switches": [
            {"name": one.name, "role": one.role, "up": one.name not in down, "cause": _short(down.get(one.name, ""))}
            for one in core.topology.switches.values()
            if one.name not in racks
        ],
        "links_out": out[:LINKS_MAX],
        "links_out_count": len(out),
    }


def _server(core: Core, name: str, dark: set[str], now: int) -> str:
    agent = core.agents.get(name)
    if agent is None:
        return "-"
    if not agent.connected:
        return "x"
    if agent.lapsed or now - agent.heard > SILENT_AFTER:
        return "s"
    return "d" if name in dark else "o"


def _light(core: Core, now: int) -> dict[str, Any]:
    if not core.topology.ocs:
        return {"ocs": [], "circuits": [], "splitters": [], "circuit_count": 0}
    whole = views.circuits(core, now)
    splitters = [one.model_dump(exclude={"loss_db"}) for one in whole.splitters]
    for one in splitters:
        # How long it stays out of use changes with the clock; the part would be told each second for that.
        one["cause"] = _short(one["cause"].partition(" more after: ")[2] or one["cause"])
    return {
        "ocs": [one.model_dump() for one in whole.ocs],
        "circuits": [one.model_dump() for one in whole.circuits[:CIRCUITS_MAX]],
        "circuit_count": len(whole.circuits),
        "splitters": splitters[:CIRCUITS_MAX],
    }


def _transfers(core: Core, wall: WallClock) -> dict[str, Any]:
    live: list[dict[str, Any]] = []
    ended: list[dict[str, Any]] = []
    carried = set[str]()
    live_count = 0
    for one in itertools.islice(reversed(core.transfers.values()), LOOK_MAX):
        path = next((core.paths[each] for each in reversed(one.sessions) if each in core.paths), None)
        carried.update(one.sessions)
        if _goes_on(one, path):
            live_count += 1
            if len(live) < LIVE_MAX:
                live.append(_transfer(one, path, True, wall))
        elif len(ended) < ENDED_MAX:
            ended.append(_transfer(one, path, False, wall))
    for path in itertools.islice(core.paths.live(), LOOK_MAX):
        if path.id not in carried and path.transfer_id not in core.transfers:
            live_count += 1
            if len(live) < LIVE_MAX:
                live.append(_path(path, wall))
    return {"rows": live + ended, "live_count": live_count, "queued": len(core.queue)}


def _goes_on(one: Transfer, path: Path | None) -> bool:
    if one.report and one.report.phase in ENDED_PHASES:
        return False
    return path is not None and not path.final


def _transfer(one: Transfer, path: Path | None, live: bool, wall: WallClock) -> dict[str, Any]:
    report = one.report
    rows = report.receivers if report else ()
    states = Counter(each.state for each in rows)
    states["waiting"] += max(0, len(one.receivers) - len(rows))
    waits = path is not None and path.state is State.QUEUED
    why = (path.cause or path.reason) if path and (waits or live) else ""
    getting = [each.bytes for each in rows if each.state not in ENDED_PHASES and each.bytes is not None]
    return {
        "id": one.id,
        "path": path.id if path else None,
        "sender": one.sender,
        "size": one.size,
        "phase": "queued" if waits and live else report.phase if report else "waiting for a path",
        "live": live,
        "kind": path.kind_name or None if path else None,
        "why": _short((report.cause if report else "") or why),
        "bytes": min(getting) if getting else None,
        "receivers": len(one.receivers),
        "states": {state[:20]: count for state, count in itertools.islice(states.items(), 8) if count},
        "failed": [each.server for each in rows if each.state == "failed"][:FAILED_MAX],
        "begun_ns": wall(one.begun),
    }


def _path(path: Path, wall: WallClock) -> dict[str, Any]:
    """A path without a transfer: asked for by REST."""
    return {
        "id": path.id,
        "path": path.id,
        "sender": path.request.sender,
        "size": path.request.data_size,
        "phase": path.state.value,
        "live": True,
        "kind": path.kind_name or None,
        "why": _short(path.cause or path.reason),
        "bytes": None,
        "receivers": len(path.request.receivers),
        "states": {"waiting": len(path.request.receivers)},
        "failed": [],
        "begun_ns": wall(path.stamps.requested),
    }


def _groups(core: Core, now: int) -> dict[str, Any]:
    """A member is slow here when its agent says nothing: what it loses for want of time its own agent tells."""
    m = core.members
    silent = 0
    for name, agent in core.agents.items():
        if name in m.places.number and (agent.lapsed or not agent.connected or now - agent.heard > SILENT_AFTER):
            silent |= 1 << m.places.number[name]

    def late(group: Group) -> int:
        return (group.members & silent).bit_count()

    some = heapq.nlargest(GROUPS_MAX, itertools.islice(m.groups.values(), LOOK_MAX), key=late)
    return {
        "rows": [
            {
                "name": group.name,
                "protocol": group.options.protocol,
                "members": group.members.bit_count(),
                "senders": group.senders.bit_count(),
                "silent": m.places.named(group.members & silent)[:FAILED_MAX],
                "silent_count": late(group),
                "kept": group.kept,
            }
            for group in some
        ],
        "count": len(m.groups),
        "addresses": len(m.sharing.all),
    }


def parts(core: Core, now: int, started: int, wall: WallClock) -> dict[str, dict[str, Any]]:
    """By name, as PARTS has them."""
    return {
        "health": _health(core, now, started),
        "fabric": _fabric(core, now),
        "light": _light(core, now),
        "transfers": _transfers(core, wall),
        "groups": _groups(core, now),
    }
