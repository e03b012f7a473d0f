"""What REST takes and gives, as pydantic models: the OpenAPI document is made of them.

Units are in the names. Times `*_ns` are wall-clock ns since the epoch.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

Name = Annotated[str, StringConstraints(min_length=1, max_length=64)]
StateName = Literal["queued", "configuring", "active", "released", "failed"]
KindName = Literal["circuit", "packet"]
Count = Annotated[int, Field(ge=0, le=2**60)]
Span = Annotated[int, Field(ge=0, le=7 * 24 * 3600 * 1000)]


def _no_options(given: Any) -> Any:
    if isinstance(given, dict) and (named := sorted({"options", "congestion", "coding", "slow"} & set(given))):
        raise ValueError(
            f"a path has no {', '.join(named)}: options are a send's, told by whoever sends (rostrum send --option)"
        )
    return given


class NewPath(BaseModel):
    """A multicast path to make. Any UDP sender on `sender` can use it: send to the group that the answer names."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sender: Name = Field(description="Server that sends, as in the topology", examples=["h1"])
    receivers: list[Name] = Field(
        min_length=1, max_length=16384, description="Servers that receive", examples=[["h3", "h5"]]
    )
    size: Count | None = Field(None, description="Bytes to be sent; a hint for the scheduler")
    deadline_ms: Span | None = Field(None, description="When the transfer should be done, from now; a hint")
    wait_ms: Span | None = Field(None, description="Give up when not accepted within this; default: the manager's")
    kind: Literal["auto", "circuit", "packet"] = Field("auto", description="How it must be carried")
    protocol: Literal["auto", "republic", "rdcm", "wan"] = Field(
        "auto", description="rdcm: a packet tree with a backup overlay, which GET .../overlay then shows"
    )
    lease_ms: Span | None = Field(
        None,
        description="Taken back after this unless renewed; default: the manager's, ten minutes; 0: held until released",
    )
    _told = model_validator(mode="before")(_no_options)


class CrossConnectView(BaseModel):
    input: int
    output: int
    state: str
    input_dbm: float | None = None
    output_dbm: float | None = None
    cause: str = ""


class LightView(BaseModel):
    """Light budget of a receiver's branch: power that should arrive, and what is to spare above the sensitivity."""

    receiver: str
    tor: str
    ocs_port: int
    splitters: list[str]
    power_dbm: float
    margin_db: float


class PathCircuitView(BaseModel):
    id: str | None
    ocs: str
    reused: bool
    splitters: list[str]
    cross_connects: list[CrossConnectView]
    light: list[LightView]


class RuleView(BaseModel):
    switch: str
    in_port: int
    group: str
    out_ports: list[int]


class TimelineView(BaseModel):
    """When the path reached each point (wall clock, ns); null = not (yet)."""

    requested_ns: int
    accepted_ns: int | None
    cross_connects_steady_ns: int | None
    rules_in_ns: int | None
    active_ns: int | None
    moved_ns: int | None
    released_ns: int | None
    failed_ns: int | None


class FirstLightView(BaseModel):
    """When a receivers' rack had light, by the report of its switch (P4 switches only)."""

    rack: str
    port: int
    sn: int = Field(description="Of the data packet that made the switch sure")
    at_ns: int
    after_ms: float = Field(description="Since the path was accepted")


class PathView(BaseModel):
    id: str
    request_id: str
    origin: str = Field(description="`rest`, or the server whose agent asked")
    tenant: str = Field(description="Whose quota it counts against")
    state: StateName
    reason: str = Field(description="Why it is queued, or why it is carried as it is")
    cause: str = Field(description="Why it failed or was taken back")
    kind: KindName | None
    wanted: Literal["auto", "circuit", "packet"]
    protocol: Literal["republic", "rdcm", "wan"] = Field(description="How its data and repairs travel")
    sender: str
    receivers: list[str]
    group: str | None = Field(description="IPv4 multicast group: send there, and join it at the receivers")
    data_port: int = Field(description="UDP port that agents use; others may use any")
    size: int
    accepted_size: int
    rate_bps: int = Field(description="Slowest link of the path; 0 = not known yet")
    reconfiguration_ms: float
    lease_ms: int | None
    adopted: bool = Field(description="Granted by an earlier run of the manager")
    circuit: PathCircuitView | None
    rules: list[RuleView]
    first_light: list[FirstLightView]
    timeline: TimelineView
    notes: list[str]


class PathList(BaseModel):
    paths: list[PathView]
    next: str | None = Field(description="There are more: ask again with after= this; null = no more")


class CountView(BaseModel):
    """Frames as received, without FCS."""

    packets: int
    bytes: int


class DeliveryView(CountView):
    port: int
    to: str = Field(description="What is at the port: a server, a switch or an OCS")


class RuleCountersView(BaseModel):
    """What a path did at one switch."""

    switch: str
    in_port: int
    received: CountView
    granted: CountView = Field(description="What its sender sent under the path's grant")
    delivered: list[DeliveryView]


class PathCountersView(BaseModel):
    path: str
    group: str | None
    switches: list[RuleCountersView] = Field(description="Those that count per path: P4 and OpenFlow switches")
    without: list[str] = Field(description="Switches of the path that do not")


class PortCountersView(BaseModel):
    port: int
    to: str
    received: CountView
    sent_multicast: CountView
    sent_unicast: CountView
    refused: CountView = Field(description="Packets to the topology's groups without a grant")
    control_excess: CountView = Field(description="Control that left behind multicast, being beyond the port's share")


class DroppedView(CountView):
    reason: str


class SwitchCountersView(BaseModel):
    switch: str
    ports: list[PortCountersView]
    dropped: list[DroppedView]


class SwitchView(BaseModel):
    name: str
    role: str
    southbound: str
    dpid: int = Field(description="0 = it has none")
    up: bool
    cause: str
    rules: int


class SwitchList(BaseModel):
    switches: list[SwitchView]


class ServerView(BaseModel):
    name: str
    address: str
    management: str
    tor: str
    tor_port: int
    rate_bps: int


class LinkView(BaseModel):
    a: str
    b: str
    rate_bps: int


class SplitterView(BaseModel):
    name: str
    fanout: int
    loss_db: float
    input: int
    outputs: list[int]


class OcsView(BaseModel):
    name: str
    ports: int
    dialect: str
    address: str
    management_port: int
    reconfiguration_ms: float
    transmit_dbm: float
    sensitivity_dbm: float
    cross_connect_loss_db: float
    splitters: list[SplitterView]
    attached: dict[int, str]


class TopologySwitchView(BaseModel):
    name: str
    role: str
    southbound: str
    dpid: int
    ports: dict[int, str]


class SiteView(BaseModel):
    name: str
    servers: list[str]
    relays: list[str] = Field(description="Who takes objects from other sites, by preference; else a receiver does")
    outside: dict[str, str] = Field(description="Addresses by which servers are reached from other sites")
    nat: bool = Field(description="Nobody connects to it from outside")
    via: str | None = Field(description="It is reached through that site")


class TopologyView(BaseModel):
    name: str
    data: str
    management: str
    multicast: str
    mtu: int
    control_port: int
    data_port: int
    switches: list[TopologySwitchView]
    servers: list[ServerView]
    links: list[LinkView]
    ocs: list[OcsView]
    sites: list[SiteView]


class LiveCrossConnectView(CrossConnectView):
    ocs: str
    circuit: str | None
    path: str | None = Field(description="The path that uses it; null = idle, or found at start")
    found_at_start: bool


class SplitterUseView(SplitterView):
    ocs: str
    state: Literal["free", "idle", "in use", "out of use", "found at start"]
    circuit: str | None
    path: str | None
    cause: str


class CircuitView(BaseModel):
    id: str
    ocs: str
    state: Literal["setting", "live"]
    path: str | None = Field(description="Who uses it; null = idle, kept for reuse")
    uplink: str
    downlinks: list[str]
    splitters: list[str]
    cross_connects: list[CrossConnectView]


class OcsStatusView(BaseModel):
    name: str
    state: Literal["starting", "up", "down"]
    cause: str


class CircuitsView(BaseModel):
    ocs: list[OcsStatusView]
    circuits: list[CircuitView]
    cross_connects: list[LiveCrossConnectView]
    splitters: list[SplitterUseView]


class RuleUseView(RuleView):
    path: str | None
    use: Literal["path", "kept for reuse", "found at start"]


class RuleList(BaseModel):
    rules: list[RuleUseView]


class ReceiverView(BaseModel):
    server: str
    state: str
    cause: str
    initial_sn: int
    patched_fragments: int
    first_light_ns: int | None
    complete_ns: int | None


class TransferView(BaseModel):
    """An object on its way, as its sender's agent reports it; `sessions` are the paths it used."""

    id: str
    sender: str
    app_id: str
    data_id: int
    size: int
    phase: str
    cause: str
    bytes: int
    sent_packets: int
    redundant_packets: int
    patched_packets: int
    receivers: list[ReceiverView]
    begun_ns: int
    reported_ns: int | None
    sessions: list[PathView]


class TransferList(BaseModel):
    transfers: list[TransferView]
    next: str | None = Field(description="There are more: ask again with after= this; null = no more")


class AgentView(BaseModel):
    server: str
    connected: bool
    boot_id: int
    control_port: int
    heard_ms_ago: float
    cause: str
    paths: list[str]


class AgentList(BaseModel):
    agents: list[AgentView]


class HealthView(BaseModel):
    status: Literal["ready", "starting", "degraded"]
    ready: bool = Field(description="Every switch and every OCS of the topology is connected")
    topology: str
    scheduler: str
    version: str
    boot_id: int
    uptime_s: float
    switches_up: int
    switches: int
    ocs: list[OcsStatusView]
    agents_connected: int
    queued: int
    missing: list[str]


class LatencyView(BaseModel):
    count: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


class StatsView(BaseModel):
    thrift_response: LatencyView = Field(description="From a request's arrival to the answer handed to the socket")
    rest_response: LatencyView
    counts: dict[str, int]
    paths: dict[str, int]
    queued: int
    idle_rule_sets: int
    groups_in_use: int
    device_orders_under_way: int
    connections_refused: int


class Problem(BaseModel):
    """RFC 9457."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str = Field(description="What is wrong and what to do")
    path: str | None = Field(None, description="The path this is about, if there is one")
