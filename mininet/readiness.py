"""When a starting lab is ready: conditions to wait for, each able to say what is still missing."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rostrum.lab import p4entries
from rostrum.lab.links import bridge_of
from rostrum.lab.namespace import LabError
from rostrum.lab.rest import Rest
from rostrum.topologies.model import Switch, Topology


@dataclass(frozen=True)
class Condition:
    name: str  # what is waited for, as text for a progress line
    missing: Callable[[], str]  # "" when it holds, else what is missing


def listening(topology: Topology, programs: Mapping[str, object]) -> list[Condition]:
    """P4 switches, OCS controllers and the manager take connections."""
    conditions = []
    for switch in topology.switches.values():
        if switch.p4 and switch.name in programs:
            address, port = str(switch.p4.address), switch.p4.port
            conditions.append(Condition(f"{switch.name} to take P4Runtime sessions", _tcp(address, port)))
    if "ocs" in programs:
        for ocs in topology.ocs.values():
            conditions.append(Condition(f"{ocs.name} to take sessions", _tcp(str(ocs.address), ocs.management_port)))
    if "manager" in programs:
        address = str(topology.manager.address)
        conditions.append(Condition("the manager to take agents", _tcp(address, topology.manager.thrift_port)))
        if any(switch.p4 is None for switch in topology.switches.values()):
            conditions.append(Condition("the manager to take switches", _tcp(address, topology.manager.openflow_port)))
        conditions.append(Condition("the manager to take REST calls", _tcp(address, topology.manager.rest_port)))
    return conditions


def working(topology: Topology, run: Path, programs: Mapping[str, object]) -> list[Condition]:
    """Switches forward unicast, agents serve applications, the manager knows the agents."""
    conditions = []
    if "manager" in programs:
        conditions.append(Condition("the manager to have its devices", lambda: _devices(run)))
        conditions.append(Condition("unicast rules in every switch", lambda: _unicast(topology, run)))
    agents = [name for name in topology.servers if name in programs]
    if agents:
        conditions.append(Condition("agents to take applications", lambda: _sockets(agents, run)))
    if agents and "manager" in programs:
        conditions.append(Condition("agents to be known to the manager", lambda: _registered(agents, run)))
    return conditions


def _tcp(address: str, port: int) -> Callable[[], str]:
    def missing() -> str:
        try:
            socket.create_connection((address, port), timeout=1).close()
            return ""
        except OSError as error:
            return f"{address}:{port}: {error.strerror or error}"

    return missing


def _devices(run: Path) -> str:
    try:
        health = Rest(run).get("/v1/health")
    except LabError as error:
        return str(error)
    return "" if health["ready"] else "; ".join(health["missing"]) or str(health["status"])


def _unicast(topology: Topology, run: Path) -> str:
    # Flows are asked, not the connection's state in the database: that one lags by seconds.
    lacking = []
    for switch in topology.switches.values():
        if switch.coexist:
            continue  # another controller's business
        known = _destinations(switch, topology, run)
        sites = {topology.site_of(server.name) for server in topology.servers.values() if server.tor == switch.name}
        near = [one for one in topology.servers.values() if not sites or topology.site_of(one.name) in sites]
        absent = [server.name for server in near if str(server.address) not in known]
        if absent:
            lacking.append(f"{switch.name} has no rule for {', '.join(absent)}")
    return "; ".join(lacking)


def _destinations(switch: Switch, topology: Topology, run: Path) -> set[str]:
    if switch.p4:
        try:
            return p4entries.destinations(switch, run / "certificates" if topology.secure else None)
        except LabError:
            return set()
    flows = subprocess.run(
        ["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", bridge_of(topology, switch.name)],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    ).stdout
    return set(re.findall(r"nw_dst=([0-9.]+)", flows))


def _sockets(agents: list[str], run: Path) -> str:
    absent = []
    for name in agents:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            try:
                probe.connect(str(run / name / "agent.sock"))
            except OSError as error:
                absent.append(f"{name}: {error.strerror or error}")
    return "; ".join(absent)


def _registered(agents: list[str], run: Path) -> str:
    try:
        known = {row["server"] for row in Rest(run).get("/v1/agents")["agents"] if row["connected"]}
    except LabError as error:
        return str(error)
    absent = [name for name in agents if name not in known]
    return f"not yet {', '.join(absent)}" if absent else ""
