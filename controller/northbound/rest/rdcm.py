"""Overlays of paths and failed links over REST, and receivers that join or leave a path; and what of it is counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from pydantic import BaseModel, ConfigDict, Field
from rostrum.controller.core import events as ev
from rostrum.controller.core.packet import drains, reroute
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.state import Core
from rostrum.controller.core.text import shown
from rostrum.controller.core.values import RingPlace
from rostrum.controller.northbound.rest import problems, schemas
from rostrum.controller.northbound.rest.access import CALLER
from rostrum.controller.northbound.rest.problems import Refused
from rostrum.controller.northbound.rest.views import WallClock

if TYPE_CHECKING:
    from rostrum.controller.northbound.rest.routes import Rest


class PlaceView(BaseModel):
    """It acknowledges to predecessor and parent, and mends its successor."""

    predecessor: str
    successor: str
    parent: str


class NodeView(BaseModel):
    """What a server was told of the overlay last."""

    server: str
    version: int
    used_version: int = Field(description="The newest one that it says it repairs by; 0 = none yet")
    leaf: PlaceView | None
    proxy: PlaceView | None
    children: list[str] = Field(description="Who acknowledge to it as their overlay parent")


class RingView(BaseModel):
    node: str = Field(description="The branching node of the tree: a switch")
    members: list[str] = Field(description="Each mends the next one, the last the first")
    parent: str


class ChangeView(BaseModel):
    """Something happened to tree or overlay."""

    version: int
    at_ns: int
    cause: str
    links_added: int
    links_removed: int
    told: int = Field(description="Agents that got a new view")
    rules_ms: float | None = Field(
        description="Until the switches had the new tree; null = not yet, or no rule changed"
    )


class OverlayShown(BaseModel):
    version: int
    sender: str
    receivers: list[str] = Field(description="Those in the tree now")
    tree: list[list[str]] = Field(description="Its links, [from, to]")
    rings: list[RingView] = Field(description="From the sender down")
    nodes: list[NodeView]
    changes: list[ChangeView]


class FailedLinkView(BaseModel):
    """A link between two switches that is out of service."""

    link: list[str]
    cause: str
    since_ns: int
    until_ns: int = Field(description="Then it is used again")
    times: int = Field(description="How often in a row it was suspected")
    silent: bool = Field(description="Discovery frames do not come through; `until_ns` moves on as long as that is so")


class DrainedLinkView(BaseModel):
    """A link that an operator took out of use."""

    link: list[str]
    reason: str
    since_ns: int


class FailedLinkList(BaseModel):
    failed_links: list[FailedLinkView]
    drained_links: list[DrainedLinkView] = Field(description="Out of use until an operator puts them back")


class Drain(BaseModel):
    """Why a link is taken out of use, for whoever looks later."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: str = Field(default="", max_length=200, examples=["new cable"])


class SuspectedLink(BaseModel):
    """A link that somebody knows does not work."""

    model_config = ConfigDict(extra="forbid", strict=True)

    link: list[str] = Field(min_length=2, max_length=2, examples=[["agg0-0", "core0-1"]])


def install(app: FastAPI, rest: Rest) -> None:
    _draining(app, rest)

    @app.get("/v1/paths/{path_id}/overlay", tags=["paths"], responses=problems.responses(404, 409))
    async def show_overlay(path_id: str) -> OverlayShown:
        """RDCM: the backup overlay of a path's receivers, and what happened to it and to the tree."""
        return _overlay(rest.find(path_id), rest.wall)

    @app.put("/v1/paths/{path_id}/receivers/{server}", tags=["paths"], responses=problems.responses(404, 409))
    async def join_path(path_id: str, server: str) -> schemas.PathView:
        """One more receiver for a packet path that was asked for by REST."""
        path = rest.find(path_id)
        if text := reroute.join_obstacle(rest.core, path, server):
            raise Refused(409, text)
        rest.runtime.post(ev.ReceiverJoins(path_id, server))
        await rest.settled()
        return rest.view(path)

    @app.delete("/v1/paths/{path_id}/receivers/{server}", tags=["paths"], responses=problems.responses(404, 409))
    async def leave_path(path_id: str, server: str) -> schemas.PathView:
        """A packet path goes on without one of its receivers."""
        path = rest.find(path_id)
        if text := reroute.leave_obstacle(path, server):
            raise Refused(409, text)
        rest.runtime.post(ev.ReceiverLeaves(path_id, server))
        await rest.settled()
        return rest.view(path)

    @app.get("/v1/failed-links", tags=["network"])
    async def list_failed_links() -> FailedLinkList:
        """Links between switches out of service because packets did not get through."""
        return _left_alone(rest)

    @app.post("/v1/failed-links", status_code=201, tags=["network"], responses=problems.responses(409, 413, 422))
    async def suspect_link(new: SuspectedLink, request: Request) -> FailedLinkList:
        """Leaves a link alone, for all paths, as if receivers had found out that it failed."""
        link = _link(rest.core, *new.link)
        rest.runtime.post(ev.LinkSuspected(link, f"said {request.scope[CALLER].name}"))
        await rest.settled()
        if link not in rest.core.resources.failed.links:
            raise Refused(409, f"nothing but {'-'.join(link)} leads there; it stays in use")
        return _left_alone(rest)

    @app.delete("/v1/failed-links/{a}/{b}", tags=["network"], responses=problems.responses(404, 422))
    async def use_link_again(a: str, b: str) -> FailedLinkList:
        """A link works: it may be used again at once. Nobody is moved to it."""
        link = _link(rest.core, a, b)
        if link not in rest.core.resources.failed.links:
            raise Refused(404, f"{a}-{b} is in use; GET /v1/failed-links lists those that are not")
        rest.runtime.post(ev.LinkSuspected(link, "", up=True))
        await rest.settled()
        return _left_alone(rest)


def _draining(app: FastAPI, rest: Rest) -> None:
    @app.put("/v1/links/{a}/{b}/drain", tags=["network"], responses=problems.responses(409, 413, 422))
    async def drain_link(a: str, b: str, new: Drain) -> FailedLinkList:
        """Takes a link out of use until it is put back: between two switches, or the fibres of a switch to an OCS. What
        runs over it is led around it; this survives restarts and other managers' takeovers.
        """
        link = _drainable(rest.core, a, b)
        if text := drains.obstacle(rest.core, link):
            raise Refused(409, text)
        rest.runtime.post(ev.LinkDrained(link, new.reason))
        await rest.settled()
        return _left_alone(rest)

    @app.delete("/v1/links/{a}/{b}/drain", tags=["network"], responses=problems.responses(404, 422))
    async def undrain_link(a: str, b: str) -> FailedLinkList:
        """A drained link may be used again. Nobody is moved to it."""
        link = _drainable(rest.core, a, b)
        if not rest.core.resources.failed.is_drained(link):
            raise Refused(404, f"{a}-{b} is not drained; GET /v1/failed-links lists those that are")
        rest.runtime.post(ev.LinkDrained(link, drained=False))
        await rest.settled()
        return _left_alone(rest)


def _drainable(core: Core, a: str, b: str) -> tuple[str, str]:
    for switch, ocs in ((a, b), (b, a)):
        if ocs in core.topology.ocs and (ocs, switch) in core.resources.ports:
            return switch, ocs
    return _link(core, a, b)


def _left_alone(rest: Rest) -> FailedLinkList:
    drained = [
        DrainedLinkView(link=list(one.link), reason=one.reason, since_ns=rest.wall(one.since))
        for one in rest.core.resources.failed.all_drained
    ]
    return FailedLinkList(failed_links=_failed(rest.core, rest.wall), drained_links=drained)


def collect(core: Core) -> Iterator[Metric]:
    """For `GET /metrics`."""
    live = sum(1 for path in core.paths.values() if path.granted and path.backup)
    yield GaugeMetricFamily("rostrum_rdcm_paths", "Paths with a backup overlay now.", live)
    text = "Links between switches out of service now because packets did not get through."
    yield GaugeMetricFamily("rostrum_failed_links", text, len(core.resources.failed))
    text = "Links out of use until an operator puts them back."
    yield GaugeMetricFamily("rostrum_drained_links", text, len(core.resources.failed.all_drained))
    for name, text, key in (
        ("rostrum_rdcm_views", "Views of overlays told to agents.", "views_told"),
        ("rostrum_rdcm_receiver_reports", "Reports of receivers that are gone.", "reports_receiver"),
        ("rostrum_rdcm_link_reports", "Reports of receivers that get everything by repair.", "reports_link"),
        ("rostrum_rdcm_receivers_failed", "Receivers taken out of paths because they failed.", "receivers_failed"),
        ("rostrum_links_silent", "Links out of service because discovery frames stayed away.", "links_silent"),
        ("rostrum_links_failed", "Links taken out of service.", "links_failed"),
        ("rostrum_links_activated", "Failed links that were used again after their time.", "links_activated"),
        ("rostrum_trees_changed", "Trees changed under traffic, confirmed by switches.", "reroutes"),
    ):
        yield CounterMetricFamily(name, text, core.counts[key])


def _link(core: Core, a: str, b: str) -> tuple[str, str]:
    switches = core.topology.switches
    if a not in switches or b not in switches or b not in core.resources.fabric.neighbours[a]:
        raise Refused(422, f"{shown(a)} and {shown(b)} are no two switches with a link between them")
    return a, b


def _failed(core: Core, wall: WallClock) -> list[FailedLinkView]:
    return [
        FailedLinkView(
            link=list(one.link),
            cause=one.cause,
            since_ns=wall(one.since),
            until_ns=wall(one.until),
            times=one.times,
            silent=one.silent,
        )
        for one in core.resources.failed
    ]


def _overlay(path: Path, wall: WallClock) -> OverlayShown:
    backup = path.backup
    if backup is None:
        raise Refused(409, f"{path.id} has no overlay: its protocol is {path.protocol.name.lower()}")
    nodes = [
        NodeView(
            server=name,
            version=view.version,
            used_version=backup.used.get(name, 0),
            leaf=_place(view.leaf),
            proxy=_place(view.proxy),
            children=list(view.children),
        )
        for name, view in sorted(backup.views.items())
    ]
    changes = [
        ChangeView(
            version=one.version,
            at_ns=wall(one.at),
            cause=one.cause,
            links_added=one.links_added,
            links_removed=one.links_removed,
            told=one.told,
            rules_ms=None if one.rules_in is None else (one.rules_in - one.at) / 1e6,
        )
        for one in backup.changes
    ]
    return OverlayShown(
        version=backup.version,
        sender=path.request.sender,
        receivers=sorted(backup.overlay.receivers),
        tree=[list(link) for link in sorted(path.tree.links)] if path.tree else [],
        rings=[
            RingView(node=ring.node, members=list(ring.members), parent=ring.parent) for ring in backup.overlay.rings()
        ],
        nodes=nodes,
        changes=changes,
    )


def _place(place: RingPlace | None) -> PlaceView | None:
    return PlaceView(predecessor=place.predecessor, successor=place.successor, parent=place.parent) if place else None
