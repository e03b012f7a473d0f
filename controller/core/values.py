"""What the manager's logic is told of: requests, decisions, agents' text, settings. Times are int64 ns of the
manager's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Address
from typing import Final, Literal

from rostrum.controller.core.model import LEVEL_MULTICAST, PathKind

MS: Final = 1_000_000
S: Final = 1_000_000_000
AGENT_BACKOFF_NS = 3 * S  # agents that lost their manager try again at most this far apart
TENANT: Final = "default"  # of whom no token tells another
REST: Final = "rest"  # origin of requests made by people and tools; agents' origin is their server's name


class Wanted(Enum):
    """How a request demands to be carried."""

    AUTO = "auto"
    CIRCUIT = "circuit"
    PACKET = "packet"


class Protocol(Enum):
    """How data and repairs travel; values as in rostrum.thrift. AUTO only in requests."""

    AUTO = 1
    REPUBLIC = 2
    RDCM = 3
    WAN = 4


class State(Enum):
    QUEUED = "queued"
    CONFIGURING = "configuring"
    ACTIVE = "active"
    RELEASED = "released"
    FAILED = "failed"


class Decision(Enum):
    """Values as in rostrum.thrift."""

    ACCEPTED = 1
    DENIED = 2
    QUEUED = 3


@dataclass(frozen=True)
class PathRequest:
    """A multicast path asked for (Republic, Table II: request). Sizes in bytes; `wait_ms` None = the manager's
    default.
    """

    request_id: str
    origin: str
    sender: str
    receivers: tuple[str, ...]
    data_size: int = 0
    remaining_size: int = 0
    app_id: bytes = b""
    data_id: int = 0
    wait_ms: int | None = None
    deadline_ms: int | None = None
    wanted: Wanted = Wanted.AUTO
    lease_ms: int | None = None  # only for REST's: None = until released; an agent's paths live by its keepalives
    protocol: Protocol = Protocol.AUTO
    tenant: str = TENANT  # whose quota it counts against
    round_trip_us: int = 0  # the longest to a receiver, of those that the sender has measured; 0: none
    splits: bool = False  # a path for some of the receivers will do: whoever asks, asks again for the others

    @property
    def streams(self) -> bool:
        """It is for a stream: an agent's request of no size. That goes by RDCM alone, to one receiver too."""
        return self.origin != REST and self.data_size == 0


@dataclass(frozen=True)
class ServerAddress:
    server: str
    address: str
    control_port: int
    rack: int = 0  # the same for servers at one switch; 0: not known


@dataclass(frozen=True)
class PathResponse:
    """Table II: response, and what ours adds. Fields after `reason` matter only with ACCEPTED."""

    request_id: str
    response_id: str
    decision: Decision
    reason: str = ""
    accepted_size: int = 0
    kind: PathKind = PathKind.PACKET
    group: str = ""
    data_port: int = 0
    reconfiguration_ns: int = 0
    rate_bps: int = 0
    lease_ms: int = 0
    light_bound_ms: int = 0
    receivers: tuple[ServerAddress, ...] = ()
    protocol: Protocol = Protocol.REPUBLIC
    dark: tuple[str, ...] = ()  # of the receivers: whose first packet is not expected
    sender_rack: int = 0  # ServerAddress.rack of the sender
    tree_links: int = 0  # of the path's tree, the sender's own included; 0: not known
    path_links: int = 0  # of the ways to each receiver, all together


class RingKind(Enum):
    """Which of a receiver's rings; values as in rostrum.thrift."""

    LEAF = 1
    PROXY = 2


class FailureKind(Enum):
    """Values as in rostrum.thrift."""

    RECEIVER = 1
    LINK = 2
    LINK_WORKS = 3


@dataclass(frozen=True)
class RingPlace:
    """A receiver's neighbours in one of its rings (RDCM, Sec. 3.2)."""

    predecessor: str
    successor: str
    parent: str


@dataclass(frozen=True)
class OverlayView:
    """What one node must know of a path's backup overlay; `addresses` of everybody named."""

    path_id: str
    version: int
    group: str
    app_id: bytes
    data_id: int
    sender: str
    leaf: RingPlace | None
    proxy: RingPlace | None
    children: tuple[str, ...]
    addresses: tuple[ServerAddress, ...]


@dataclass(frozen=True)
class FailureReport:
    """What `origin` found out about its successor `server` in a ring of the view `version` (RDCM, Sec. 3.4)."""

    path_id: str
    version: int
    kind: FailureKind
    ring: RingKind
    server: str


@dataclass(frozen=True)
class LivePath:
    """A path an agent holds, told at hello."""

    request_id: str
    response_id: str
    group: IPv4Address
    kind: PathKind
    receivers: tuple[str, ...]
    accepted_size: int
    protocol: Protocol = Protocol.REPUBLIC


@dataclass(frozen=True)
class ReceiverReport:
    """One receiver's outcome as the sender's agent sees it; wall-clock ns, 0 = not yet. `bytes`: of the object, that it
    has; None = its agent does not tell.
    """

    server: str
    state: str
    cause: str
    initial_sn: int
    patched_fragments: int
    first_light_ns: int
    complete_ns: int
    bytes: int | None = None


@dataclass(frozen=True)
class TransferReport:
    request_id: str
    response_id: str
    phase: str
    cause: str
    bytes: int
    sent_packets: int
    redundant_packets: int
    patched_packets: int
    receivers: tuple[ReceiverReport, ...]


@dataclass(frozen=True)
class Budget:
    """Light along one branch of a circuit: what arrives, and what is to spare above the receiver's sensitivity."""

    tor: str
    port: int
    splitters: tuple[str, ...]
    power_dbm: float
    margin_db: float


@dataclass(frozen=True)
class FirstLight:
    """When a receivers' rack had light (ns), and at which port of its switch; by the data packet `sn`."""

    at: int
    port: int
    sn: int


@dataclass(frozen=True)
class Quota:
    """What a tenant may hold at a time; None = as much as there is. `over`: what becomes of a request beyond it."""

    paths: int | None = None
    circuits: int | None = None
    splitters: int | None = None
    rules: int | None = None
    rate_bps: int | None = None
    over: Literal["wait", "deny"] = "wait"


@dataclass(frozen=True)
class Settings:
    """The manager's bounds. Every wait has one."""

    scheduler: str = "best-effort"
    circuit_wait_ns: int = 2 * S  # how long a request waits for a circuit before it takes a packet path
    wait_ns: int = 30 * S  # how long a request waits for any path before it is denied
    wait_max_ns: int = 3600 * S
    lease_ns: int = 3 * S
    rest_lease_ms: int | None = 600_000  # of a path asked for by REST that names none; None: until it is released
    away_ns: int | None = None  # connected and silent so long, an agent loses packet paths too; None: 2 min, or a lease
    light_bound_ms: int | None = None  # None: from the OCS's reconfiguration time
    configure_bound_ns: int = 5 * S  # beyond the reconfiguration time: devices that do not answer
    grace_ns: int | None = None  # what is found at start and unclaimed lives this long; None: lease + AGENT_BACKOFF_NS
    link_retry_ns: int = 30 * S  # a link that is suspected is left alone so long (RDCM)
    quarantine_ns: int = 30 * S  # a component that failed is kept out of use
    session_bytes: int | None = None  # cap of each grant
    paths_per_server: int = 16  # and per direction
    queue_max: int = 10_000
    history_max: int = 1_000  # paths and transfers remembered after their end
    idle_rule_sets: int = 64  # rules kept for an identical path to come
    light_confirm: int = 3  # packets in a row that are light to switches, on a circuit that is being made
    group_window_ns: int = 20 * MS  # changes of message groups are gathered this long
    region_settle_ns: int = S // 2  # a server gets another region when its groups have not changed this long
    groups_max: int = 16_384
    group_members_max: int = 4_096  # and senders
    groups_per_server: int = 16_384
    group_rules: int = 1_024  # for message groups, on each switch
    group_protocol: str = "plain"  # of groups that are made by a join without options
    fast_failover: bool = False  # switches go around a port that is down by themselves
    level: int = LEVEL_MULTICAST  # priority of multicast at switches; 0 = that of everything else
    boot_id: int = 1
    quotas: Mapping[str, Quota] = field(default_factory=dict)  # by tenant; "*": of those not named

    @property
    def grace(self) -> int:
        return self.lease_ns + AGENT_BACKOFF_NS if self.grace_ns is None else self.grace_ns

    @property
    def away(self) -> int:
        """An agent that is connected, and silent for so long (ns), loses its packet paths too."""
        return max(self.lease_ns, 120 * S) if self.away_ns is None else self.away_ns


class ObstacleKind(Enum):
    """What stands in the way of a request. Programs tell obstacles apart by these, people by their text."""

    INVALID = "invalid"  # the request can never be meant
    QUEUE_FULL = "queue full"
    OVER_QUOTA = "over quota"
    NO_CIRCUIT = "no circuit"  # not by this OCS: a rack has no port there, or too few splitters
    LIGHT_BUDGET = "light budget"
    UNREACHABLE = "unreachable"  # no packet links lead there
    DEVICE_DOWN = "device down"  # a switch or OCS is not connected
    PORT_DOWN = "port down"
    DRAINED = "drained"
    SERVER_PORT = "server port"  # a server sends or receives on as many paths as it may
    CIRCUIT_IN_USE = "circuit in use"  # fibres or splitters
    QUARANTINED = "quarantined"  # failed lately, or gave no light
    OLD_RULES = "old rules"  # of a silent sender, not yet known to be out of a switch
    GROUPS_USED = "groups used"  # no multicast address is left
    AGENTS = "agents"  # one that is silent, or does not know what is demanded
    BEHIND = "behind"  # others come first
    RESOURCES = "resources"  # what was chosen was taken meanwhile
    STORE = "store"  # its record could not be kept
    SCHEDULER = "scheduler"  # what a plug-in says

    def __repr__(self) -> str:
        return f"ObstacleKind.{self.name}"


@dataclass(frozen=True)
class Obstacle:
    """Why something cannot be planned.

    `text`: for people; `subject`: the same without the times in it, which differ at every look (empty = as `text`).
    `ever` = waiting does not help; `until` = when it may be over by itself (ns). `blockers`: what
    is in use by others (queue.py); nothing changes before one of them is free. Empty = not known.
    """

    kind: ObstacleKind
    text: str
    ever: bool = False
    until: int | None = None
    blockers: tuple[tuple[str, str, int], ...] = ()
    subject: str = ""


@dataclass
class Stamps:
    """When a path reached each point (ns, manager's clock); None = not yet."""

    requested: int
    accepted: int | None = None
    cross_connects_steady: int | None = None
    rules_in: int | None = None
    active: int | None = None
    moved: int | None = None
    released: int | None = None
    failed: int | None = None
    notes: list[str] = field(default_factory=list)
