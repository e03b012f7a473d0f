"""Message groups as agents and people name them: options, uses, views. Values only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address

NAME = re.compile(r"[A-Za-z0-9._:-]{1,128}")
PROTOCOLS = ("plain", "ricochet")  # that this manager can give to groups
ORDERS = ("none", "fifo")
R_MAX, C_MAX, STAGGER_MAX = 32, 64, 64  # what agents can run (agent/core/ricochet/ricochet.c; a test compares)


@dataclass(frozen=True)
class GroupOptions:
    """How a group's messages travel. `r`, `c`: a Ricochet member sends a repair of r data packets to c others;
    `stagger` bins take turns. All three are 0 where the protocol has none.
    """

    protocol: str = "plain"
    order: str = "none"
    r: int = 0
    c: int = 0
    stagger: int = 0


RICOCHET = GroupOptions("ricochet", "none", 8, 5, 1)  # the paper's (r, c), Sec. 5


def options(
    protocol: str, order: str = "none", r: int | None = None, c: int | None = None, stagger: int | None = None
) -> GroupOptions:
    """Options with the protocol's defaults for what is None."""
    default = RICOCHET if protocol == "ricochet" else GroupOptions(protocol)
    return GroupOptions(
        protocol,
        order,
        default.r if r is None else r,
        default.c if c is None else c,
        default.stagger if stagger is None else stagger,
    )


def wrong_options(one: GroupOptions) -> str:
    """What is wrong with options, in words; empty = nothing."""
    if one.protocol not in PROTOCOLS:
        return f"there is no group protocol {one.protocol[:40]!r}; this manager has {', '.join(PROTOCOLS)}"
    if one.order not in ORDERS:
        return f"there is no order {one.order[:40]!r}; it is one of {', '.join(ORDERS)}"
    if one.protocol != "ricochet":
        return f"r, c and stagger are of ricochet; {one.protocol} has none" if one.r or one.c or one.stagger else ""
    if not (1 <= one.r <= R_MAX and 1 <= one.c <= C_MAX):
        return f"(r, c) = ({one.r}, {one.c}) is out of range: r is 1 to {R_MAX}, c 1 to {C_MAX}"
    if not 1 <= one.stagger <= STAGGER_MAX:
        return f"stagger {one.stagger} is out of range: 1 to {STAGGER_MAX}"
    return ""


def wrong_name(name: str) -> str:
    """What is wrong with a group's name, in words; empty = nothing."""
    if NAME.fullmatch(name):
        return ""
    return f"{name[:40]!r} cannot be a group's name: 1 to 128 characters of A-Z a-z 0-9 . _ : -"


@dataclass(frozen=True)
class GroupUse:
    """What an agent wants of a group; the last three are what it holds of it after a reconnect (0, None = nothing)."""

    group: str
    options: GroupOptions | None = None
    id: int = 0
    version: int = 0
    address: IPv4Address | None = None


@dataclass(frozen=True)
class GroupPeer:
    """A server that views name by `id`. `boot_id`: of its agent, differs at each start."""

    id: int
    server: str
    address: IPv4Address
    port: int
    boot_id: int


@dataclass(frozen=True)
class GroupFacts:
    group: str
    address: IPv4Address
    data_port: int
    options: GroupOptions


@dataclass(frozen=True)
class GroupView:
    """As in rostrum.thrift; `base_version` None = full. Ids of peers."""

    id: int
    version: int
    base_version: int | None
    facts: GroupFacts | None
    members: tuple[int, ...]
    senders: tuple[int, ...]
    gone: tuple[int, ...] = ()
