"""What the manager is started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rostrum.controller.access_options import SecurityOptions
from rostrum.controller.core.values import Settings
from rostrum.controller.northbound.rest.access import AccessOptions
from rostrum.topologies.model import Topology


@dataclass(frozen=True)
class Cluster:
    """Managers of one topology that share their records: etcd's URLs; PEM files (CA, certificate, key) for https; this
    one's name; seconds of silence after which another one leads; a file with whom etcd knows it as.
    """

    etcd: tuple[str, ...]
    tls: tuple[Path, Path, Path] | None = None
    member: str | None = None
    lease_s: int = 3
    user: Path | None = None


@dataclass(frozen=True)
class Config:
    """Addresses to listen on default to the topology's. Port None = the topology's, 0 = any free one."""

    topology: Topology
    run: Path
    settings: Settings = field(default_factory=Settings)
    listen: tuple[str, ...] = ()
    thrift_port: int | None = None
    rest_port: int | None = None
    openflow_port: int | None = None
    election_id: int = 1  # at P4 switches: of several managers the highest is primary
    p4_program: Path | None = None  # folder of the compiled program; None = as it comes with rostrum
    journal: Path | None = None  # file; None = nothing is remembered
    journal_sync: str = "normal"  # or "full": journal.py
    cluster: Cluster | None = None  # instead of a journal
    access: AccessOptions = field(default_factory=AccessOptions)  # to REST
    security: SecurityOptions = field(default_factory=SecurityOptions)

    @property
    def addresses(self) -> tuple[str, ...]:
        return self.listen or (str(self.topology.manager.address),)
