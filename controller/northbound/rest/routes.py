"""REST for people and tools. The OpenAPI document is served at /openapi.json, a page to try it at /docs, the
console at /console."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Annotated, Literal, TypeVar

from fastapi import FastAPI, Header, Query, Request, Response
from fastapi.responses import PlainTextResponse
from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.model import SouthboundError
from rostrum.controller.core.objects import Objects
from rostrum.controller.core.requests import idempotency
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.state import Core
from rostrum.controller.core.text import shown
from rostrum.controller.core.values import REST, PathRequest, Protocol, State, Wanted
from rostrum.controller.keyvalue import line
from rostrum.controller.northbound.console import pages
from rostrum.controller.northbound.console.board import Board
from rostrum.controller.northbound.metrics.meters import Meters
from rostrum.controller.northbound.metrics.metrics import Metrics
from rostrum.controller.northbound.metrics.stats import Latency
from rostrum.controller.northbound.rest import counters, diagnostics, problems, schemas, tenants, views
from rostrum.controller.northbound.rest import groups as groups_rest
from rostrum.controller.northbound.rest import objects as objects_rest
from rostrum.controller.northbound.rest import rdcm as rdcm_rest
from rostrum.controller.northbound.rest.access import CALLER, Access, AccessOptions, Caller
from rostrum.controller.northbound.rest.events import Events, EventStream
from rostrum.controller.northbound.rest.http_server import BodyLimit, HeadAndOptions, RestMeter, Turns
from rostrum.controller.northbound.rest.problems import Refused
from rostrum.controller.northbound.thrift.probes import Probes
from rostrum.controller.runtime import waiting
from rostrum.controller.runtime.execution import Devices
from rostrum.controller.runtime.runtime import Runtime
from rostrum.controller.runtime.store import StoreError
from rostrum.topologies.version import VERSION

log = logging.getLogger("rostrum.rest")

POLL_MAX_MS = 60_000
LIST_MAX = 1_000
KEY_PATTERN = r"^[\x21-\x7e]{1,128}$"  # of an Idempotency-Key
REFRESH_BOUND_S = 5.0

T = TypeVar("T")
After = Annotated[str | None, Query(max_length=64, description="Go on behind this: `next` of the page before")]
Wait = Literal["active", "ended"]
DESCRIPTION = "Multicast paths through packet switches and optical circuits: ask for one, look at it, give it back."


class Rest:
    """The application and what its handlers share."""

    def __init__(
        self,
        runtime: Runtime,
        thrift_latency: Latency,
        connections_refused: Callable[[], int],
        access: Access | None = None,
        probes: Probes | None = None,
        certificates: Callable[[], Mapping[str, float]] = dict,
        objects: Objects | None = None,
    ) -> None:
        """`certificates`: as diagnosis.Evidence has them, now."""
        self.runtime = runtime
        self.probes = probes
        self.objects = objects or Objects()
        self.certificates = certificates
        self.access = access or Access(AccessOptions())
        self.wall = views.WallClock()
        self.started = runtime.clock()
        self.latency = Latency()
        self.thrift_latency = thrift_latency
        self.refused = connections_refused
        self.meter = RestMeter()
        self.meters = Meters(self.core, self.wall)
        runtime.subscribers.setdefault(act.Log, []).append(self.meters.hear)
        self.board = Board(lambda: self.core, runtime.clock, self.started, self.wall)
        self.metrics = Metrics(
            runtime,
            self.meters,
            self.meter,
            thrift_latency,
            connections_refused,
            VERSION,
            self.started,
            certificates,
            self.board.collect,
        )
        self.events = Events(self.core)
        for kind in (act.PathChanged, act.GroupsChanged):
            runtime.subscribers.setdefault(kind, []).append(self.events.hear)
        self._numbers = itertools.count(1)

    @property
    def core(self) -> Core:
        return self.runtime.manager.core

    def view(self, path: Path) -> schemas.PathView:
        return views.path(self.core, path, self.wall)

    def find(self, path_id: str) -> Path:
        path = self.runtime.path(path_id)
        if path is None:
            raise Refused(404, f"there is no path {shown(path_id)}; GET /v1/paths lists those there are")
        return path

    async def settled(self) -> None:
        """What was done is remembered: it may be told. Raises Refused when the manager lost its memory, and ends."""
        try:
            await waiting.settled(self.runtime)
        except StoreError as error:
            raise Refused(503, f"{error}; this manager stops, ask again when there is one") from error

    def request(self, new: schemas.NewPath, tenant: str, key: str = "", body: str = "") -> Path:
        """Puts a request into the manager's queue; `key` and `body` as the event has them."""
        began = time.perf_counter_ns()
        number = f"rest-{self.core.settings.boot_id}-{next(self._numbers)}"
        size = new.size or 0
        wanted = PathRequest(
            number,
            REST,
            new.sender,
            tuple(new.receivers),
            size,
            size,
            wait_ms=new.wait_ms,
            deadline_ms=new.deadline_ms,
            wanted=Wanted.PACKET if new.protocol == "rdcm" and new.kind == "auto" else Wanted(new.kind),
            lease_ms=self._lease_ms(new),
            protocol=Protocol[new.protocol.upper()],
            tenant=tenant,
        )
        self.runtime.post(ev.RequestReceived(wanted, key, body))
        self.latency.add(time.perf_counter_ns() - began)
        made = self.core.by_request.get((REST, number))
        if made is None:  # it takes nothing any more: its memory is lost, or another manager leads
            raise Refused(503, "this manager stops, ask again when there is one")
        return self.find(made)

    def _lease_ms(self, new: schemas.NewPath) -> int | None:
        """None = held until it is released, which only those get who ask for it: who forgets a path would keep others
        from its circuit for ever.
        """
        if new.lease_ms == 0:
            log.warning(line("path without a lease, held until somebody releases it", sender=new.sender))
            return None
        return self.core.settings.rest_lease_ms if new.lease_ms is None else new.lease_ms

    def request_once(self, new: schemas.NewPath, caller: Caller, key: str | None) -> Path:
        """As `request`, but a repetition with the same key finds the path that the first one made."""
        path = self._repeated(new, caller, key) if key else self.request(new, caller.tenant)
        problems.not_denied(path)
        return path

    def _repeated(self, new: schemas.NewPath, caller: Caller, key: str) -> Path:
        body, name = new.model_dump_json(), idempotency.name_of(caller.name, key)
        try:
            known = self.core.repeats.find(name, body, self.runtime.clock())
        except idempotency.Misused as error:
            raise Refused(422, str(error)) from error
        if known is None:
            return self.request(new, caller.tenant, name, body)
        found = self.runtime.path(known)
        if found is None:
            raise Refused(410, f"this Idempotency-Key made {known}, which ended; take a new key to make another path")
        return found


def create(rest: Rest) -> FastAPI:
    """The ASGI application."""
    app = FastAPI(
        title="rostrum manager",
        version=VERSION,
        description=DESCRIPTION,
        separate_input_output_schemas=False,
        generate_unique_id_function=problems.operation_id,
        docs_url=None,  # these would have a browser load their scripts from elsewhere: see console/pages.py
        redoc_url=None,
    )
    problems.install(app)
    tenants.install(rest)
    app.add_middleware(HeadAndOptions)
    app.add_middleware(BodyLimit)
    app.add_middleware(rest.access.around, open_to_all=pages.OPEN_TO_ALL)
    app.add_middleware(rest.meter.around)
    app.add_middleware(Turns)
    _paths(app, rest)
    _network(app, rest)
    _state(app, rest)
    groups_rest.install(app, rest)
    objects_rest.install(app, rest)
    diagnostics.install(app, rest)
    rdcm_rest.install(app, rest)
    pages.install(app, rest)
    return app


def _paths(app: FastAPI, rest: Rest) -> None:
    @app.post("/v1/paths", status_code=201, tags=["paths"], responses=problems.responses(409, 410, 413, 422, 503))
    async def request_path(
        new: schemas.NewPath,
        request: Request,
        response: Response,
        idempotency_key: Annotated[
            str | None, Header(pattern=KEY_PATTERN, description="The same key and body again: the same path")
        ] = None,
    ) -> schemas.PathView:
        """Asks for a multicast path. Answered at once: look at `state` (and `reason` while it is queued)."""
        path = rest.request_once(new, request.scope[CALLER], idempotency_key)
        await rest.settled()
        response.headers["Location"] = f"/v1/paths/{path.id}"
        return rest.view(path)

    @app.get("/v1/paths", tags=["paths"], responses=problems.responses(422))
    async def list_paths(
        request: Request,
        state: Annotated[schemas.StateName | None, Query(description="Only paths in this state")] = None,
        limit: Annotated[int, Query(ge=1, le=LIST_MAX)] = 100,
        after: After = None,
    ) -> schemas.PathList:
        """Paths, the newest first; those that ended are remembered for a while."""
        older = _older(rest.core.paths, after, "path")
        tenant = tenants.of(rest.core, request)
        seen = (one for one in older if tenant in ("", tenants.of_path(rest.core, one)))
        found = itertools.islice((one for one in seen if state in (None, one.state.value)), limit + 1)
        shown_now, more = _page(found, limit)
        return schemas.PathList(paths=[rest.view(one) for one in shown_now], next=shown_now[-1].id if more else None)

    @app.get("/v1/paths/{path_id}", tags=["paths"], responses=problems.responses(404, 422))
    async def show_path(
        path_id: str,
        wait: Annotated[Wait | None, Query(description="Answer when it is active (or has ended)")] = None,
        timeout_ms: Annotated[int, Query(ge=0, le=POLL_MAX_MS, description="With wait: answer then anyway")] = 10_000,
    ) -> schemas.PathView:
        """A path: its state, how it is carried, and when it reached each point."""
        path: Path | None = rest.find(path_id)
        if wait:
            path = await waiting.path_until(rest.runtime, path_id, _reached(wait), timeout_ms / 1e3)
        return rest.view(path or rest.find(path_id))

    @app.get("/v1/paths/{path_id}/counters", tags=["paths"], responses=problems.responses(404, 503))
    async def show_path_counters(path_id: str) -> schemas.PathCountersView:
        """What the path's switches counted, read from them now: packets and bytes, per receiver's port too; since the
        rules were set, which a path over a live circuit takes over from the path before it.
        """
        path = rest.find(path_id)
        return counters.path(rest.core.topology, path, await _read(rest, lambda to: to.rule_counters(path.rules)) or ())

    @app.post("/v1/paths/{path_id}/renew", tags=["paths"], responses=problems.responses(404, 409))
    async def renew_path(path_id: str) -> schemas.PathView:
        """Renews the path's lease."""
        path = rest.find(path_id)
        if path.request.lease_ms is None:
            raise Refused(409, f"{path.id} has no lease: it is held until it is released", path.id)
        if not path.granted:
            raise Refused(409, f"{path.id} is {path.state.value}; only a granted path has a lease to renew", path.id)
        rest.runtime.post(ev.Renewed(path.id))
        await rest.settled()
        return rest.view(path)

    @app.delete("/v1/paths/{path_id}", tags=["paths"], responses=problems.responses(404))
    async def release_path(path_id: str) -> schemas.PathView:
        """Gives a path back, or withdraws one that is queued. Repeating it does no harm."""
        path = rest.find(path_id)
        rest.runtime.post(ev.Released(path.id, path.request.request_id, REST))
        await rest.settled()
        return rest.view(path)


def _older(known: dict[str, T], after: str | None, what: str) -> Iterator[T]:
    """Newest first, from behind `after` on. Raises Refused if that is not known (any more)."""
    if after is not None and after not in known:
        raise Refused(422, f"after: {what} {shown(after)} is not remembered (any more); begin again without it")
    older = reversed(known.items())
    if after is not None:
        for key, _ in older:
            if key == after:
                break
    return (one for _, one in older)


def _page(found: Iterable[T], limit: int) -> tuple[list[T], bool]:
    """The first `limit`, and whether there are more."""
    rows = list(found)
    return rows[:limit], len(rows) > limit


def _reached(wait: Wait) -> Callable[[Path], bool]:
    return (lambda path: path.state is State.ACTIVE) if wait == "active" else (lambda path: path.final)


def _network(app: FastAPI, rest: Rest) -> None:
    @app.get("/v1/topology", tags=["network"])
    async def show_topology() -> schemas.TopologyView:
        """The data center as its topology file describes it."""
        return views.topology(rest.core.topology)

    @app.get("/v1/circuits", tags=["network"], responses=problems.responses(503))
    async def show_circuits(
        fresh: Annotated[bool, Query(description="Read powers from the OCS first")] = False,
    ) -> schemas.CircuitsView:
        """Live cross-connects with their powers, circuits and splitters, and who uses them."""
        if fresh and rest.runtime.devices:
            try:
                async with asyncio.timeout(REFRESH_BOUND_S):
                    for name in rest.core.topology.ocs:
                        await rest.runtime.devices.refresh(name)
            except (SouthboundError, TimeoutError) as error:
                detail = str(error) or f"the OCS did not answer within {REFRESH_BOUND_S:g} s"
                raise Refused(503, f"{detail}; without fresh=true you get what is known") from error
        return views.circuits(rest.core, rest.runtime.clock())

    @app.get("/v1/rules", tags=["network"])
    async def list_rules() -> schemas.RuleList:
        """Multicast rules that should be on the switches."""
        return views.rules(rest.core)

    @app.get("/v1/switches", tags=["network"])
    async def list_switches() -> schemas.SwitchList:
        """Switches of the topology, connected or not."""
        return views.switches(rest.core)

    @app.get("/v1/switches/{name}/counters", tags=["network"], responses=problems.responses(404, 409, 503))
    async def show_switch_counters(name: str) -> schemas.SwitchCountersView:
        """What a P4 switch counted at its ports, read from it now: multicast, unicast, refused, excess, dropped."""
        if name not in rest.core.topology.switches:
            raise Refused(404, f"there is no switch {shown(name)}; GET /v1/switches lists those there are")
        found = await _read(rest, lambda to: to.switch_counters(name))
        if found is None:
            raise Refused(409, f"{name} is no P4 switch; its counters are read on the switch itself")
        return counters.switch(rest.core.topology, name, found)


async def _read(rest: Rest, ask: Callable[[Devices], Awaitable[T]]) -> T | None:
    """An answer of the devices. Raises Refused when there is none."""
    if rest.runtime.devices is None:
        return None
    try:
        return await ask(rest.runtime.devices)
    except (SouthboundError, TimeoutError) as error:
        raise Refused(503, str(error) or "the switches did not answer in time") from error


def _state(app: FastAPI, rest: Rest) -> None:
    @app.get("/v1/transfers", tags=["state"], responses=problems.responses(422))
    async def list_transfers(
        limit: Annotated[int, Query(ge=1, le=LIST_MAX)] = 100, after: After = None
    ) -> schemas.TransferList:
        """Objects that agents send or sent, the newest first."""
        found = itertools.islice(_older(rest.core.transfers, after, "transfer"), limit + 1)
        shown_now, more = _page(found, limit)
        rows = [views.transfer(rest.core, one, rest.wall) for one in shown_now]
        return schemas.TransferList(transfers=rows, next=rows[-1].id if more else None)

    @app.get("/v1/transfers/{transfer_id}", tags=["state"], responses=problems.responses(404))
    async def show_transfer(transfer_id: str) -> schemas.TransferView:
        """One of them, by its id or by the id of a path it used."""
        found = views.find_transfer(rest.core, transfer_id)
        if found is None:
            raise Refused(404, f"there is no transfer {shown(transfer_id)}; GET /v1/transfers lists those there are")
        return views.transfer(rest.core, found, rest.wall)

    @app.get("/v1/agents", tags=["state"])
    async def list_agents() -> schemas.AgentList:
        """Agents that have said hello."""
        return views.agents(rest.core, rest.runtime.clock())

    @app.get("/v1/health", tags=["state"])
    async def show_health() -> schemas.HealthView:
        """Whether the manager has all its devices."""
        return views.health(rest.core, rest.runtime.clock(), rest.started, VERSION)

    @app.get("/v1/stats", tags=["state"])
    async def show_stats() -> schemas.StatsView:
        """Response times and counts since the start."""
        core = rest.core
        return schemas.StatsView(
            thrift_response=_latency(rest.thrift_latency),
            rest_response=_latency(rest.latency),
            counts=dict(core.counts),
            paths=views.states(core),
            queued=len(core.queue),
            idle_rule_sets=len(core.idle_rules),
            groups_in_use=core.groups.used,
            device_orders_under_way=rest.runtime.devices.busy if rest.runtime.devices else 0,
            connections_refused=rest.refused(),
        )

    @app.get(
        "/v1/events",
        tags=["state"],
        response_class=EventStream,
        responses=problems.responses(503),
    )
    async def follow_events() -> Response:
        """Server-sent events: `path`, `transfer`, `groups` with what is new as they change, `end` with the reason."""
        if rest.events.full:
            raise Refused(503, f"{len(rest.events.readers)} readers follow the events already; close one, or poll")
        return EventStream(rest.events)

    @app.get("/metrics", tags=["state"], response_class=PlainTextResponse)
    async def show_metrics(request: Request) -> Response:
        """Everything a monitoring system wants, in Prometheus' text format."""
        page, media_type = rest.metrics.page(request.headers.get("accept", ""))
        return Response(page, media_type=media_type)


def _latency(latency: Latency) -> schemas.LatencyView:
    return schemas.LatencyView(
        count=latency.count,
        p50_ms=latency.percentile_ms(50),
        p99_ms=latency.percentile_ms(99),
        max_ms=latency.max_ms(),
    )
