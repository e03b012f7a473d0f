"""What happens to the manager. Times are not in the events: the caller hands `now` in with each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rostrum.controller.core.groups.values import Engine, GroupOptions, GroupUse, SlowProgram
from rostrum.controller.core.model import CrossConnect, Light, MulticastRule, Sighting
from rostrum.controller.core.requests.relay_orders import RelayPart
from rostrum.controller.core.values import FailureReport, LivePath, PathRequest, Quota, TransferReport


@dataclass(frozen=True)
class RequestReceived:
    """`key`, `body`: of a request by REST with an Idempotency-Key, as idempotency.py has them; empty = it has none."""

    request: PathRequest
    key: str = ""
    body: str = ""


@dataclass(frozen=True)
class ClockStood:
    """The manager's clock stood still for so long (ns), while that of people went on."""

    lost: int


@dataclass(frozen=True)
class Released:
    """The path goes back. `origin`: who says so (an agent's server, or REST); an agent may release only what is its
    own.
    """

    path_id: str
    request_id: str
    origin: str


@dataclass(frozen=True)
class Cancelled:
    request_id: str
    origin: str


@dataclass(frozen=True)
class Renewed:
    """REST: the lease of a path starts over."""

    path_id: str


@dataclass(frozen=True)
class QuotasChanged:
    quotas: Mapping[str, Quota]


@dataclass(frozen=True)
class AgentUp:
    server: str
    boot_id: int
    control_port: int
    live_paths: tuple[LivePath, ...] = ()
    wants_light: bool = False  # to hear when every receivers' rack of a path has light
    group_engines: tuple[Engine, ...] = ()  # that it has
    protocols: tuple[str, ...] = ()  # of objects, it has engines for
    round_trip_us: int = 0  # of its connection; 0: not known


@dataclass(frozen=True)
class AgentDown:
    server: str
    boot_id: int
    cause: str


@dataclass(frozen=True)
class KeepAlive:
    server: str


@dataclass(frozen=True)
class NoLight:
    path_id: str
    receivers: tuple[str, ...]
    origin: str


@dataclass(frozen=True)
class ReportReceived:
    report: TransferReport
    origin: str


@dataclass(frozen=True)
class ViewUsed:
    """A node repairs by the view of this version now (RDCM)."""

    path_id: str
    version: int
    origin: str


@dataclass(frozen=True)
class ReceiverJoins:
    """REST: a granted packet path gets one more receiver. `reroute.join_obstacle` says before whether it can.

    `origin`: by the report of the path's sender a server hears it, which is in no overlay.
    """

    path_id: str
    server: str
    origin: str = ""


@dataclass(frozen=True)
class ReceiverLeaves:
    """REST, or the path's sender: a granted packet path goes on without one of its receivers."""

    path_id: str
    server: str
    origin: str = ""


@dataclass(frozen=True)
class LinkSuspected:
    """REST: somebody knows that packets do not get through between two switches (`up`: that they do again)."""

    link: tuple[str, str]
    cause: str
    up: bool = False


@dataclass(frozen=True)
class LinkDrained:
    """REST: an operator takes a link out of use until he says otherwise (`drained` False). Between two switches, or a
    switch and an OCS.
    """

    link: tuple[str, str]
    reason: str = ""
    drained: bool = True


@dataclass(frozen=True)
class FailureReported:
    report: FailureReport
    origin: str


@dataclass(frozen=True)
class SwitchUp:
    switch: str


@dataclass(frozen=True)
class SwitchDown:
    switch: str
    cause: str


@dataclass(frozen=True)
class RulesLost:
    """Somebody else removed rules of ours from a switch."""

    switch: str


@dataclass(frozen=True)
class PortChanged:
    """A switch says that one of its ports has light and is enabled (up), or not."""

    switch: str
    port: int
    up: bool


@dataclass(frozen=True)
class Sighted:
    """A discovery frame came in somewhere."""

    sighting: Sighting


@dataclass(frozen=True)
class RulesFound:
    """The multicast rules that are on a switch, asked for by action ReadRules. What changed after `asked_at` (ns) may
    be missing from it.
    """

    switch: str
    rules: frozenset[MulticastRule]
    asked_at: int


@dataclass(frozen=True)
class FirstLight:
    """A switch saw data come through for one of its rules that is watched."""

    light: Light


@dataclass(frozen=True)
class OcsUp:
    ocs: str


@dataclass(frozen=True)
class OcsDown:
    ocs: str
    cause: str


@dataclass(frozen=True)
class CrossConnectsFound:
    """All cross-connects of an OCS, asked for by action ReadCrossConnects. What changed after `asked_at` (ns) may be
    missing from it.
    """

    ocs: str
    cross_connects: tuple[CrossConnect, ...]
    asked_at: int


@dataclass(frozen=True)
class CrossConnectChanged:
    """A cross-connect changed by itself (nobody had asked)."""

    ocs: str
    cross_connect: CrossConnect


@dataclass(frozen=True)
class CircuitResult:
    """Outcome of action Connect `op`: every cross-connect's state, or an error when nothing can be known."""

    op: int
    cross_connects: tuple[CrossConnect, ...]
    error: str = ""


@dataclass(frozen=True)
class DisconnectResult:
    op: int
    error: str = ""


@dataclass(frozen=True)
class RulesInstalled:
    op: int


@dataclass(frozen=True)
class RulesFailed:
    """`failures`: per switch, what went wrong; rules on the other switches are in."""

    op: int
    failures: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RulesRemoved:
    op: int
    failures: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class GroupJoined:
    """An agent wants to receive a group's messages, or (`sends_only`) to publish without receiving."""

    server: str
    use: GroupUse
    sends_only: bool = False


@dataclass(frozen=True)
class GroupLeft:
    """An agent no longer receives, or (`sends_only`) no longer publishes without receiving."""

    server: str
    group: str
    sends_only: bool = False


@dataclass(frozen=True)
class GroupTroubled:
    """Who holds a group up, as a member sees it: slow programs of its own, servers that it hears nothing of."""

    server: str
    group: str
    slow: tuple[SlowProgram, ...]
    silent: tuple[str, ...]


@dataclass(frozen=True)
class GroupMade:
    """REST: a group that stays until it is deleted."""

    group: str
    options: GroupOptions


@dataclass(frozen=True)
class GroupDeleted:
    """REST: the group goes; those in it are told `reason`."""

    group: str
    reason: str


@dataclass(frozen=True)
class RelaysNoted:
    """What relays are told to pass on, or what is known of that by now (`later`: nothing waits for its record), and
    the legs that are over.
    """

    parts: tuple[RelayPart, ...]
    gone: tuple[str, ...] = ()
    later: bool = False


@dataclass(frozen=True)
class NotRecorded:
    """A record could not be made (parts.py): what it is of has to end."""

    part: str
    key: str
    cause: str


@dataclass(frozen=True)
class Tick:
    """Nothing happened but time."""


Event = (
    RequestReceived
    | ClockStood
    | Released
    | Cancelled
    | Renewed
    | QuotasChanged
    | AgentUp
    | AgentDown
    | KeepAlive
    | NoLight
    | ReportReceived
    | ViewUsed
    | FailureReported
    | ReceiverJoins
    | ReceiverLeaves
    | LinkSuspected
    | LinkDrained
    | SwitchUp
    | RulesLost
    | SwitchDown
    | PortChanged
    | Sighted
    | RulesFound
    | FirstLight
    | OcsUp
    | OcsDown
    | CrossConnectsFound
    | CrossConnectChanged
    | CircuitResult
    | DisconnectResult
    | RulesInstalled
    | RulesFailed
    | RulesRemoved
    | GroupJoined
    | GroupLeft
    | GroupTroubled
    | GroupMade
    | GroupDeleted
    | RelaysNoted
    | NotRecorded
    | Tick
)
