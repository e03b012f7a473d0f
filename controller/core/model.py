"""Values that the manager's pure logic and its southbound drivers exchange."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Address

from rostrum.topologies.model import End

DSCP_OF_LEVEL = (0, 10, 18, 26, 34, 46, 48, 56)  # of priority levels 0 ... 7, higher is more urgent; 0: as it came
LEVEL_MULTICAST = 5  # DSCP 46, expedited forwarding: strictly before other unicast at ToR egress queues
LEVEL_CONTROL = 6  # DSCP 48: what agents tell one another, and ARP; before multicast, but a small share of the port
ANY_SOURCE = IPv4Address(0)
ANY_PORT = 0  # as a rule's in_port; ports are numbered from 1
PRIORITY_MULTICAST = 40_000
PRIORITY_ANY_PORT = 30_000
PRIORITY_UNICAST = 100


class PathKind(Enum):
    CIRCUIT = "circuit"
    PACKET = "packet"


@dataclass(frozen=True, order=True)
class MulticastRule:
    """On `switch`: what enters `in_port` for `group` gets the marks of priority `level` and is copied to all of
    `out_ports` (an OpenFlow 1.3 ALL group, a multicast group of P4's packet replication engine).

    in_port ANY_PORT: whichever port it enters, and the copies go to all of `out_ports` but that one.
    `source`: who may send it; switches that cannot tell take it from anybody on the port, and report ANY_SOURCE.
    `confirm`: this many data packets with sns in a row are reported as first light (where the switch can); 0 = none.
    `backups`: (out port, the port that takes its copies while it is down), where the switch can change over by itself.
    `barred`: with ANY_PORT, ports that it does not hold for: of servers of other tenants.
    """

    switch: str
    in_port: int
    group: IPv4Address
    out_ports: tuple[int, ...]
    source: IPv4Address = ANY_SOURCE
    level: int = LEVEL_MULTICAST
    confirm: int = field(default=0, compare=False)
    backups: tuple[tuple[int, int], ...] = ()
    barred: tuple[int, ...] = ()

    def __hash__(self) -> int:
        # Nearly always tells rules apart, and costs a fraction of hashing all fields (addresses are slow to hash).
        return hash((self.switch, self.in_port, int(self.group)))


@dataclass(frozen=True, order=True)
class UnicastRule:
    """On `switch`: IPv4 packets to, and ARP requests for, `address` leave by `out_port`."""

    switch: str
    address: IPv4Address
    out_port: int


@dataclass(frozen=True)
class Light:
    """A switch saw data come through for a rule it watches: `session` and `sn` of the packet that made it sure."""

    switch: str
    in_port: int
    group: IPv4Address
    session: int
    sn: int


@dataclass(frozen=True)
class Sighting:
    """A discovery frame that left by `origin` came in at `port` of `switch`."""

    switch: str
    port: int
    origin: End


@dataclass(frozen=True)
class Count:
    packets: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class RuleCounters:
    """What a rule did on a switch that counts: what came in for it, what the source sent under its grant, and what
    each out port was given. Frames as received, without FCS.
    """

    rule: MulticastRule
    received: Count
    granted: Count
    delivered: tuple[tuple[int, Count], ...]  # (out port, copies)


@dataclass(frozen=True)
class PortCounters:
    port: int
    received: Count
    sent_multicast: Count
    sent_unicast: Count
    refused: Count  # packets to groups of the topology without a grant
    control_excess: Count  # control that left by the port behind multicast, being beyond its share


@dataclass(frozen=True)
class SwitchCounters:
    ports: tuple[PortCounters, ...]
    dropped: tuple[tuple[str, Count], ...]  # (reason, frames)


@dataclass(frozen=True)
class Remark:
    """Something that a switch cannot do, or has too little of, for rostrum doctor."""

    severity: str  # "warning" | "note"
    what: str
    mend: str


@dataclass(frozen=True)
class SwitchFacts:
    """What a switch said it is and can do when it connected, and what of it is used. 0 entries: it does not say."""

    device: str = ""
    entries: int = 0
    entries_used: int = 0
    copies: str = ""  # "groups" | "action lists"
    marks: str = ""  # "DSCP" | "DSCP, queue 5" | "nothing"
    failover: bool = False
    remarks: tuple[Remark, ...] = ()


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
