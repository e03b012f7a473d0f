"""A data center as the topology file describes it. Values only: the loader builds and checks them, others read them.

Units: rates in bit/s, power in dBm, losses in dB, times in seconds. Ports are the numbers printed on the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network

CONTROL_SHARE = 50  # of a port's rate: the part that control (DSCP 48) has before all else, and at most
CONTROL_LEAST_BPS = 2_000_000  # a slow link's reports are as large as a fast one's ...
CONTROL_MOST_SHARE = 10  # ... but for at most so large a part


def control_share(rate_bps: int) -> int:
    """What control has of a port of that rate, in bit/s."""
    return max(rate_bps // CONTROL_SHARE, min(CONTROL_LEAST_BPS, rate_bps // CONTROL_MOST_SHARE))


@dataclass(frozen=True)
class End:
    """One end of a link: a node's name and the port on it (a server's single data NIC is port 0)."""

    node: str
    port: int


@dataclass(frozen=True)
class Link:
    a: End
    b: End
    rate_bps: int


@dataclass(frozen=True)
class Server:
    name: str
    address: IPv4Address
    management: IPv4Address
    tor: str
    tor_port: int
    rate_bps: int

    def __hash__(self) -> int:
        return hash(self.name)  # names differ, and addresses are slow to hash


@dataclass(frozen=True)
class P4Target:
    """Where a P4 switch's P4Runtime server listens, and what it is there. `queues`: priority queues of each port."""

    address: IPv4Address
    port: int
    device_id: int
    queues: int


@dataclass(frozen=True)
class Coexist:
    """An OpenFlow switch that another controller drives: which of its entries are ours. `priority`: of rules for one
    port; those for any port have one less."""

    table: int = 0
    priority: int = 40_000


@dataclass(frozen=True)
class Switch:
    name: str
    role: str  # "tor" | "core"
    southbound: str  # "openflow" | "p4runtime" | "none"
    dpid: int  # of an OpenFlow switch; 0 = it has none. Logical switches that share a device have the same
    neighbours: dict[int, End] = field(default_factory=dict)  # own port -> far end
    rates: dict[int, int] = field(default_factory=dict)  # own port -> bit/s
    p4: P4Target | None = None  # of a P4 switch
    server: str = ""  # the server that this is a software switch on, which then forwards; "" = a device of its own
    coexist: Coexist | None = None  # another controller drives it
    queue: int | None = None  # of its ports, for multicast (OpenFlow's set_queue); None = DSCP marks alone


@dataclass(frozen=True)
class Splitter:
    """A passive 1:fanout device: OCS output `input` feeds it, its outputs enter the OCS inputs `outputs`."""

    name: str
    ocs: str
    fanout: int
    loss_db: float
    input: int
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Light:
    transmit_dbm: float
    sensitivity_dbm: float
    cross_connect_loss_db: float


@dataclass(frozen=True)
class Ocs:
    name: str
    ports: int
    dialect: str  # "glimmerglass" | "polatis": TL1; "gnmi": the OCP model
    address: IPv4Address
    management_port: int
    user: str
    password: str = field(repr=False)  # as it stands in the file; secrets.password has the one to use
    reconfiguration_s: float
    light: Light
    splitters: dict[str, Splitter]
    attached: dict[int, End]  # OCS port -> switch end (a pair of fibres: input and output of that number)
    password_file: str = ""  # instead of `password`: its first line
    password_env: str = ""  # instead of `password`: a variable
    tls: bool | None = None  # TL1 inside TLS; None = nothing is said


@dataclass(frozen=True)
class Outside:
    """Where a server is reached from other sites; port 0 = its agent's own."""

    address: IPv4Address
    port: int = 0


@dataclass(frozen=True)
class Site:
    """Servers with multicast among them and none to others. `relays`: who takes objects from other sites, by
    preference; else a receiver does. `nat`: nobody connects to it from outside. `via`: reached through that site.
    """

    name: str
    servers: tuple[str, ...]
    relays: tuple[str, ...] = ()
    outside: dict[str, Outside] = field(default_factory=dict)
    nat: bool = False
    via: str = ""


@dataclass(frozen=True)
class Tenant:
    """Servers that reach each other alone. `groups`: names of message groups that are theirs; one that ends in * is for
    all that begin so. `quota`: what they may hold, as a line of the file of quotas; "" = as that file says.
    """

    name: str
    servers: tuple[str, ...]
    groups: tuple[str, ...] = ()
    quota: str = ""

    def has_group(self, group: str) -> bool:
        return any(group.startswith(one[:-1]) if one.endswith("*") else group == one for one in self.groups)


@dataclass(frozen=True)
class Manager:
    address: IPv4Address
    openflow_port: int
    thrift_port: int
    rest_port: int
    standbys: tuple[IPv4Address, ...] = ()  # further managers, one of which leads at a time; the same ports

    @property
    def addresses(self) -> tuple[IPv4Address, ...]:
        return (self.address, *self.standbys)


@dataclass(frozen=True)
class Reconfiguration:
    """How long one emulated cross-connect takes: fixed | uniform (mean +- spread) | normal (sd = spread)."""

    distribution: str
    mean_s: float
    spread_s: float


@dataclass(frozen=True)
class Emulation:
    reconfiguration: Reconfiguration
    ringing_s: float  # the last part of the reconfiguration time
    ringing_loss: float  # share of frames lost while ringing
    seed: int


@dataclass(frozen=True)
class Topology:
    name: str
    data: IPv4Network
    management: IPv4Network
    multicast: IPv4Network
    mtu: int
    control_port: int
    data_port: int
    manager: Manager
    switches: dict[str, Switch]
    servers: dict[str, Server]
    links: tuple[Link, ...]
    ocs: dict[str, Ocs]
    emulation: Emulation
    sites: dict[str, Site] = field(default_factory=dict)  # empty: all is one
    secure: bool = False  # `security: required`
    tenants: dict[str, Tenant] = field(default_factory=dict)  # empty: all reach all; else every server is in one
    regions: tuple[tuple[str, ...], ...] = ()  # message groups that overlap by design; `blue.*`: all that begin so

    def tenant_of(self, server: str) -> str:
        """Empty where there are no tenants."""
        return self._tenant_names.get(server, "")

    @cached_property
    def _tenant_names(self) -> dict[str, str]:
        return {server: tenant.name for tenant in self.tenants.values() for server in tenant.servers}

    def tenant_of_group(self, group: str) -> str:
        """Whose name that is; empty = whoever uses it first."""
        return next((one.name for one in self.tenants.values() if one.has_group(group)), "")

    def site_of(self, server: str) -> str:
        """Empty where there are no sites."""
        return self._site_names.get(server, "")

    @cached_property
    def _site_names(self) -> dict[str, str]:
        return {server: site.name for site in self.sites.values() for server in site.servers}

    def sharing(self, switch: str) -> list[str]:
        """The logical switches of the device that this one is on, by name; itself alone if it has its own."""
        dpid = self.switches[switch].dpid
        return self._of_device.get(dpid, [switch]) if dpid else [switch]

    @cached_property
    def _of_device(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for name in sorted(self.switches):
            found.setdefault(self.switches[name].dpid, []).append(name)
        return found

    @cached_property
    def not_promised(self) -> dict[str, str]:
        """What switches that others drive, or nobody, keep from being promised: as text, by the switch it is about."""
        plain = [name for name, switch in self.switches.items() if switch.southbound == "none"]
        text = (
            "another controller drives it (coexist): ways of unicast, cabling and priority at its ports are that one's"
        )
        found = {name: text for name, switch in self.switches.items() if switch.coexist}
        if plain:
            found[plain[0]] = (
                f"nobody drives {'it' if len(plain) == 1 else f'it and {len(plain) - 1} more switches'} (southbound: "
                "none): not promised are priority over other traffic, admission (a port that others fill is theirs "
                "too), ways chosen for trees, counters and a look at cabling; multicast has to be flooded or forwarded "
                "by IGMP, with a querier where switches snoop"
            )
        return found

    def servers_of(self, tor: str) -> list[Server]:
        """The servers of a rack, in port order."""
        return sorted((s for s in self.servers.values() if s.tor == tor), key=lambda s: s.tor_port)
