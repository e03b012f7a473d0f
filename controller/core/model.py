"""Values that the manager's pure logic and its southbound drivers exchange."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address

DSCP_MULTICAST = 46  # expedited forwarding: the class ToR egress queues serve first
PRIORITY_MULTICAST = 40_000
PRIORITY_UNICAST = 100


class PathKind(Enum):
    CIRCUIT = "circuit"
    PACKET = "packet"


@dataclass(frozen=True, order=True)
class MulticastRule:
    """On `switch`: what enters `in_port` for `group` gets the DSCP tag and is copied to all of `out_ports` (an
    OpenFlow 1.3 ALL group).
    """

    switch: str
    in_port: int
    group: IPv4Address
    out_ports: tuple[int, ...]


@dataclass(frozen=True, order=True)
class UnicastRule:
    """On `switch`: IPv4 packets to, and ARP requests for, `address` leave by `out_port`."""

    switch: str
    address: IPv4Address
    out_port: int


@dataclass(frozen=True, order=True)
class Pair:
    """One cross-connect of the OCS: light entering input fibre `input` leaves by output fibre `output`."""

    input: int
    output: int


class CrossConnectState(Enum):
    SINGLE = "single"
    TRANSITION = "transition"
    STEADY = "steady"
    FAULT = "fault"
    DISCONNECTING = "disconnecting"
    INVALID = "invalid"


@dataclass(frozen=True)
class CrossConnect:
    """A cross-connect as the OCS reports it. Powers in dBm; None = the switch does not say (or no light)."""

    pair: Pair
    state: CrossConnectState
    input_dbm: float | None = None
    output_dbm: float | None = None
    cause: str = ""


class SouthboundError(Exception):
    """A device could not do what was asked; the text says which, what, and what it answered."""
