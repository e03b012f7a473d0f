"""REST for who looks after the fabric: preflight, doctor, cabling, tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field
from rostrum.controller.core.diagnostics.findings import Finding, healthy
from rostrum.controller.core.packet import cabling
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.requests.quotas import EVERYBODY, Use
from rostrum.controller.core.state import Core
from rostrum.controller.core.values import MS, ObstacleKind, State, Wanted
from rostrum.controller.diagnostics.doctor import Doctor
from rostrum.controller.diagnostics.preflight import Flight, Preflight
from rostrum.controller.northbound.rest import problems, schemas, tenants
from rostrum.controller.northbound.rest.access import CALLER
from rostrum.controller.northbound.rest.problems import Refused
from rostrum.controller.northbound.thrift.probes import SERVERS_MAX

if TYPE_CHECKING:
    from rostrum.controller.northbound.rest.routes import Rest

WAIT_MAX_MS = 60_000


class NewPreflight(BaseModel):
    """A path to try before anything is sent on it: it is made, probed and given back."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sender: schemas.Name = Field(description="Server that would send", examples=["h1"])
    receivers: list[schemas.Name] = Field(
        min_length=1, max_length=SERVERS_MAX, description="Servers that would receive", examples=[["h3", "h5"]]
    )
    kind: Literal["auto", "circuit", "packet"] = Field("auto", description="How the path is to be carried")
    wait_ms: int = Field(5_000, ge=0, le=WAIT_MAX_MS, description="How long it may wait for the path")


class FindingView(BaseModel):
    severity: Literal["error", "warning", "note"]
    check: str = Field(description="Which check found it: a short fixed name")
    subject: str
    what: str
    mend: str = Field(description="What to do")
    because: str = Field("", description="Subject of the finding that explains this one; empty = none does")


class PreflightReceiverView(BaseModel):
    receiver: str
    works: bool = Field(description="Nothing was found that would stop a transfer to it")
    reachable: bool = Field(description="The sender's agent can connect to its control port")
    multicast: bool = Field(description="Packets to the path's group get through")
    full_sized: bool = Field(description="Packets of the topology's MTU get through, by multicast and unicast")
    power_dbm: float | None = Field(description="Light that should arrive at its rack; null = no circuit")
    margin_db: float | None
    findings: list[FindingView]


class PreflightView(BaseModel):
    works: bool = Field(description="For the sender and every receiver")
    sender: str
    path: str | None
    kind: schemas.KindName | None
    reason: str = Field(description="Why the path was carried as it was, or why there was none")
    mtu: int = Field(description="Bytes of the full-sized packets that were sent")
    findings: list[FindingView] = Field(description="That are about no single receiver")
    receivers: list[PreflightReceiverView]


class DoctorView(BaseModel):
    healthy: bool = Field(description="No errors and no warnings")
    findings: list[FindingView] = Field(description="Causes first, the worst of them first; below each its symptoms")


class CableView(BaseModel):
    switch: str
    port: int
    expected: str = Field(description="Node and port at the other end, by the topology file")
    state: cabling.State
    use: Literal["in use", "failed", "silent", "drained"] = Field(
        description="Whether paths are led over it; the reasons are in /v1/failed-links"
    )
    sees: str = Field(description="The port whose discovery frames come in; empty = none lately")
    text: str


class CableList(BaseModel):
    links: list[CableView]


class WhyView(BaseModel):
    """Why a path is not there (yet), or is as it is. Spans are null when it is not queued."""

    path: str
    state: schemas.StateName
    why: str
    do: str = Field(description="What one can do about it")
    ahead: int | None = Field(description="Requests before it in the queue")
    waited_ms: float | None
    packet_path_in_ms: float | None = Field(description="Then it takes a packet path if it may")
    denied_in_ms: float | None = Field(description="Then it is denied")
    over_quota: bool


class UseView(BaseModel):
    paths: int
    circuits: int
    splitters: int
    rules: int
    rate_bps: int


class QuotaView(BaseModel):
    """null = as much as there is."""

    paths: int | None
    circuits: int | None
    splitters: int | None
    rules: int | None
    rate_bps: int | None
    over: Literal["wait", "deny"] = Field(description="What becomes of a request beyond it")


class TenantView(BaseModel):
    name: str
    quota: QuotaView | None
    used: UseView
    waiting: int = Field(description="Requests in the queue that are beyond the quota")


class TenantList(BaseModel):
    default: QuotaView | None = Field(description="The quota of tenants that are not named")
    tenants: list[TenantView]


def _link_use(core: Core, switch: str, node: str) -> Literal["in use", "failed", "silent", "drained"]:
    found = core.resources.failed.get((switch, node))
    if core.resources.failed.is_drained((switch, node)):
        return "drained"
    return "in use" if found is None else "silent" if found.silent else "failed"


def install(app: FastAPI, rest: Rest) -> None:
    _probing(app, rest)

    @app.get("/v1/links", tags=["network"])
    async def list_links() -> CableList:
        """The cabling between devices: what discovery (LLDP) hears at each port, beside the topology file."""
        found = cabling.links(rest.core, rest.runtime.clock())
        return CableList(
            links=[
                CableView(
                    switch=one.switch,
                    port=one.port,
                    expected=f"{one.expected.node}:{one.expected.port}",
                    state=one.state,
                    use=_link_use(rest.core, one.switch, one.expected.node),
                    sees=one.sees,
                    text=one.text,
                )
                for one in found
            ]
        )

    @app.get("/v1/paths/{path_id}/why", tags=["paths"], responses=problems.responses(404))
    async def explain_path(path_id: str) -> WhyView:
        """Why a request waits, was denied, or is carried as it is; how long it still waits; what to do about it."""
        return _why(rest.core, rest.find(path_id), rest.runtime.clock())

    @app.get("/v1/tenants", tags=["state"])
    async def list_tenants(request: Request) -> TenantList:
        """Tenants with quotas, what they hold, and how many of their requests wait for it."""
        return _tenants(rest.core, tenants.of(rest.core, request))


def _probing(app: FastAPI, rest: Rest) -> None:
    preflight = Preflight(rest.runtime, rest.probes) if rest.probes else None
    doctor = Doctor(rest.runtime, rest.probes, app.version, rest.certificates) if rest.probes else None

    @app.post("/v1/preflight", tags=["network"], responses=problems.responses(413, 422, 503))
    async def fly(new: NewPreflight, request: Request) -> PreflightView:
        """Makes a path, has the agents send and receive probe packets on it, and says of each receiver whether a
        transfer would work, and if not, why and what to do. Takes `wait_ms` and some 5 s at most."""
        if preflight is None:
            raise Refused(503, "this manager has no agents to probe with")
        tenant = request.scope[CALLER].tenant
        if preflight.full:
            raise Refused(503, "as many preflights as may be are under way; ask again in a few seconds")
        flight = await preflight.run(new.sender, new.receivers, Wanted(new.kind), new.wait_ms / 1e3, tenant)
        if flight.path and flight.path.obstacle and flight.path.obstacle.kind is ObstacleKind.INVALID:
            problems.not_denied(flight.path)
        return _flight(rest.core, new.sender, flight)

    @app.get("/v1/doctor", tags=["network"], responses=problems.responses(503))
    async def examine() -> DoctorView:
        """What is wrong with the fabric and how to fix it: devices, cabling, ports, rules, light, agents, versions.
        Asks switches, OCSs and agents now; takes some 3 s."""
        if doctor is None:
            raise Refused(503, "this manager has no agents to ask")
        found = await doctor.examine()
        return DoctorView(healthy=healthy(found), findings=[_finding(one) for one in found])


def _finding(one: Finding) -> FindingView:
    return FindingView(
        severity=one.severity,
        check=one.check,
        subject=one.subject,
        what=one.what,
        mend=one.mend,
        because=one.because,
    )


def _flight(core: Core, sender: str, flight: Flight) -> PreflightView:
    path = flight.path
    budgets = {one.tor: one for one in path.budgets} if path else {}
    receivers = []
    for one in flight.receivers:
        budget = budgets.get(core.topology.servers[one.receiver].tor)
        receivers.append(
            PreflightReceiverView(
                receiver=one.receiver,
                works=one.works and healthy_enough(flight),
                reachable=one.reachable,
                multicast=one.multicast,
                full_sized=one.full_sized,
                power_dbm=budget.power_dbm if budget else None,
                margin_db=budget.margin_db if budget else None,
                findings=[_finding(each) for each in one.findings],
            )
        )
    return PreflightView(
        works=healthy_enough(flight) and all(one.works for one in receivers),
        sender=sender,
        path=path.id if path else None,
        kind=path.kind.value if path and path.kind else None,
        reason=(path.cause or path.reason) if path else "",
        mtu=core.topology.mtu,
        findings=[_finding(one) for one in flight.general],
        receivers=receivers,
    )


def healthy_enough(flight: Flight) -> bool:
    """Nothing about the sender or the path itself stands in the way."""
    return not any(one.severity == "error" for one in flight.general)


def _why(core: Core, path: Path, now: int) -> WhyView:
    queued = path.state is State.QUEUED

    def until(at: int) -> float | None:
        return max(at - now, 0) / MS if queued else None

    return WhyView(
        path=path.id,
        state=path.state.value,
        why=path.cause or path.reason or "nothing was in the way",
        do=_advice(path),
        ahead=list(core.queue).index(path.id) if queued else None,
        waited_ms=(now - path.waiting_since) / MS if queued else None,
        packet_path_in_ms=until(path.circuit_until) if path.request.wanted is Wanted.AUTO else None,
        denied_in_ms=until(path.wait_until),
        over_quota=path.over_quota is not None,
    )


def _advice(path: Path) -> str:
    if path.over_quota:
        return "release paths of the tenant, or raise its quota (--quotas, then SIGHUP)"
    advice = _ADVICE.get(path.obstacle.kind) if path.obstacle else None
    return advice or ("nothing: it is served as soon as it can be" if path.state is State.QUEUED else "")


_ADVICE = {
    ObstacleKind.DEVICE_DOWN: "see why the device is not connected: rostrum doctor",
    ObstacleKind.PORT_DOWN: "mend the port: rostrum doctor; other ways are taken as soon as there are some",
    ObstacleKind.DRAINED: "give the link back (rostrum links undrain), or ask with kind packet",
    ObstacleKind.QUARANTINED: "the component is tried again by itself; rostrum doctor says what it did",
    ObstacleKind.OLD_RULES: "nothing: the switch tells soon which rules it has; rostrum doctor says if it does not",
    ObstacleKind.CIRCUIT_IN_USE: "wait for that path to end, release it, or ask with kind packet",
    ObstacleKind.SERVER_PORT: "wait for one of these paths, or start the manager with a higher --paths-per-server",
    ObstacleKind.GROUPS_USED: "release paths; or give the topology a larger multicast network",
    ObstacleKind.BEHIND: "nothing: it is its turn later; another --scheduler may order the queue otherwise",
    ObstacleKind.LIGHT_BUDGET: "use a topology with fewer splitters in a row, or take the packet network",
    ObstacleKind.NO_CIRCUIT: "ask with kind packet, or let the manager choose",
}


def _use(one: Use) -> UseView:
    return UseView.model_validate(one, from_attributes=True)


def _quota(core: Core, tenant: str) -> QuotaView | None:
    quota = core.quotas.limits.get(EVERYBODY) if tenant == EVERYBODY else core.quotas.quota(tenant)
    return QuotaView.model_validate(quota, from_attributes=True) if quota else None


def _tenants(core: Core, only: str) -> TenantList:
    waiting: dict[str, int] = {}
    for path_id in core.queue:
        path = core.paths[path_id]
        if path.over_quota:
            waiting[path.request.tenant] = waiting.get(path.request.tenant, 0) + 1
    names = sorted({*core.quotas.tenants(), *waiting, *core.topology.tenants})
    names = [name for name in names if only in ("", name)]
    return TenantList(
        default=_quota(core, EVERYBODY),
        tenants=[
            TenantView(
                name=name, quota=_quota(core, name), used=_use(core.quotas.used(name)), waiting=waiting.get(name, 0)
            )
            for name in names
        ],
    )
