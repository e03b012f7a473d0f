"""What the manager wants done. Actions of one step are carried out in parallel, except that what touches the same
switch or the same OCS port keeps its order.
"""

from __future__ import annotations

from dataclasses import dataclass

from rostrum.controller.core.groups.values import GroupPeer, GroupRegion, GroupView
from rostrum.controller.core.model import MulticastRule, Pair, PathKind, UnicastRule
from rostrum.controller.core.values import OverlayView, PathResponse


@dataclass(frozen=True)
class Respond:
    """To the agent of `server` (origin of the request); nothing to do for REST, which reads the path."""

    server: str
    response: PathResponse


@dataclass(frozen=True)
class NotifyMoved:
    server: str
    path_id: str
    kind: PathKind
    reason: str


@dataclass(frozen=True)
class NotifyFailed:
    server: str
    path_id: str
    reason: str


@dataclass(frozen=True)
class NotifyLight:
    """Every receivers' rack of the path has light, by the report of its switches."""

    server: str
    path_id: str


@dataclass(frozen=True)
class PushView:
    """A node's place in a path's backup overlay, to its agent (RDCM)."""

    server: str
    view: OverlayView


@dataclass(frozen=True)
class InstallRules:
    """Answered by RulesInstalled or RulesFailed."""

    op: int
    rules: tuple[MulticastRule, ...]
    path_id: str


@dataclass(frozen=True)
class RemoveRules:
    """Answered by RulesRemoved."""

    op: int
    rules: tuple[MulticastRule, ...]
    path_id: str


@dataclass(frozen=True)
class RearmRules:
    """Rules that are in, used by another path now: its first light is to be told. Not answered."""

    rules: tuple[MulticastRule, ...]
    path_id: str


@dataclass(frozen=True)
class InstallUnicast:
    switch: str
    rules: tuple[UnicastRule, ...]


@dataclass(frozen=True)
class Discover:
    """Discovery frames out of these ports (switch, port) now. Not answered; what is heard comes as Sighted."""

    ports: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class ReadRules:
    """Answered by RulesFound."""

    switch: str


@dataclass(frozen=True)
class Connect:
    """Answered by CircuitResult."""

    op: int
    ocs: str
    pairs: tuple[Pair, ...]
    path_id: str


@dataclass(frozen=True)
class Disconnect:
    """Answered by DisconnectResult."""

    op: int
    ocs: str
    pairs: tuple[Pair, ...]
    reason: str


@dataclass(frozen=True)
class ReadCrossConnects:
    """Answered by CrossConnectsFound."""

    ocs: str


@dataclass(frozen=True)
class PathChanged:
    """For those who wait for the path's next state."""

    path_id: str


@dataclass(frozen=True)
class PushGroups:
    """Views of groups and regions to the agent of `server`, with the peers they name that it has not been told of."""

    server: str
    peers: tuple[GroupPeer, ...]
    views: tuple[GroupView, ...]
    regions: tuple[GroupRegion, ...] = ()


@dataclass(frozen=True)
class RefuseGroup:
    """The agent of `server` is not in the group (any more)."""

    server: str
    group: str
    reason: str


@dataclass(frozen=True)
class GroupsChanged:
    """For those who follow groups: new views, groups made or gone."""

    groups: tuple[str, ...]


@dataclass(frozen=True)
class Log:
    """A line for the manager's log: what happened and its facts."""

    level: str  # "info" | "warning"
    event: str
    facts: tuple[tuple[str, object], ...] = ()


Action = (
    Respond
    | NotifyMoved
    | NotifyFailed
    | NotifyLight
    | PushView
    | InstallRules
    | RemoveRules
    | RearmRules
    | InstallUnicast
    | Discover
    | ReadRules
    | Connect
    | Disconnect
    | ReadCrossConnects
    | PathChanged
    | PushGroups
    | RefuseGroup
    | GroupsChanged
    | Log
)
