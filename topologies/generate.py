"""Generators of topology files."""

from __future__ import annotations

from dataclasses import dataclass

from rostrum.topologies.loader import MANAGEMENT_PORTS


@dataclass(frozen=True)
class Hybrid:
    """Racks around packet cores and one OCS, whose splitters hang on the ports the racks leave free. Without ports
    there is no OCS.
    """

    racks: int = 4
    servers: int = 2  # per rack
    ocs_ports: int = 32
    splitters: int = 4
    fanout: int = 4
    rate: str = "1G"
    mtu: int = 9000
    reconfiguration_ms: float = 70
    dialect: str = "glimmerglass"
    name: str = ""
    cores: int = 1

    def problems(self) -> list[str]:
        """Why no such data center can be built; empty if it can."""
        found = []
        if not 1 <= self.racks <= 200:
            found.append(f"{self.racks} racks: 1 to 200 are possible (one /24 of 10.0.0.0/16 each)")
        if not 1 <= self.servers <= 250:
            found.append(f"{self.servers} servers a rack: 1 to 250 are possible")
        if not 1 <= self.cores <= 64:
            found.append(f"{self.cores} cores: 1 to 64 are possible")
        if self.splitters < 0 or not 2 <= self.fanout <= 64:
            found.append(
                f"{self.splitters} splitters 1x{self.fanout}: 0 or more with a fan-out of 2 to 64 are possible"
            )
        need = self.racks + max(self.splitters * self.fanout, self.splitters)
        if self.ocs_ports and need > self.ocs_ports:
            found.append(
                f"{self.racks} racks and {self.splitters} splitters 1x{self.fanout} need an OCS of {need} ports, "
                f"not {self.ocs_ports}"
            )
        return found


def hybrid(size: Hybrid) -> str:
    """The topology file of such a data center, YAML. Raises ValueError with all that does not fit."""
    if problems := size.problems():
        raise ValueError("; ".join(problems))
    racks = range(1, size.racks + 1)
    uplink = max(49, size.servers + 1)
    cores = ["core"] if size.cores == 1 else [f"core{number}" for number in range(1, size.cores + 1)]
    many = "a core" if size.cores == 1 else f"{size.cores} cores"
    light = f"one OCS, {size.splitters} splitters 1x{size.fanout}" if size.ocs_ports else "no OCS"
    lines = [
        f"# {size.racks} racks x {size.servers} servers, {many}, {light}.",
        "rostrum: 1",
        f"name: {size.name or f'hybrid-{size.racks}x{size.servers}'}",
        "network:",
        "  data: 10.0.0.0/16",
        "  management: 10.255.0.0/16",
        "  multicast: 239.192.0.0/16",
        f"  mtu: {size.mtu}",
        "manager: {address: 10.255.0.1, openflow_port: 6653, thrift_port: 9090, rest_port: 8080}",
        "agent: {control_port: 7071, data_port: 7070}",
        "switches:",
    ]
    lines += [f"  {core}: {{role: core, southbound: openflow, dpid: {1000 * n + 1}}}" for n, core in enumerate(cores)]
    lines += [f"  tor{rack}: {{role: tor, southbound: openflow, dpid: {10 + rack}}}" for rack in racks]
    hosts = [((rack - 1) * size.servers + slot, rack, slot) for rack in racks for slot in range(1, size.servers + 1)]
    lines.append("servers:")
    lines += [f"  h{n}: {{address: 10.0.{rack}.{slot}, management: 10.255.{rack}.{slot}}}" for n, rack, slot in hosts]
    lines.append("links:")
    lines += [f'  - {{a: h{n}, b: "tor{rack}:{slot}", rate: {size.rate}}}' for n, rack, slot in hosts]
    for number, core in enumerate(cores):
        lines += [f'  - {{a: "tor{rack}:{uplink + number}", b: "{core}:{rack}", rate: {size.rate}}}' for rack in racks]
    if not size.ocs_ports:
        return "\n".join(lines) + "\n"
    uplink += len(cores)
    lines += [f'  - {{a: "tor{rack}:{uplink}", b: "ocs:{rack}", rate: {size.rate}}}' for rack in racks]
    return "\n".join([*lines, *_ocs(size)]) + "\n"


def _ocs(size: Hybrid) -> list[str]:
    # A real splitter loses a little more than its share of the light: 3.5 dB for each doubling.
    loss_db = round(3.5 * max(1, (size.fanout - 1).bit_length()), 1)
    lines = [
        "ocs:",
        "  ocs:",
        f"    ports: {size.ocs_ports}",
        f"    dialect: {size.dialect}",
        "    address: 10.255.0.2",
        f"    management_port: {MANAGEMENT_PORTS[size.dialect]}",
        "    user: admin",
        "    password: rostrum",
        f"    reconfiguration_ms: {size.reconfiguration_ms:g}",
        "    light: {transmit_dbm: 0.0, sensitivity_dbm: -18.0, cross_connect_loss_db: 1.0}",
    ]
    if size.splitters:
        lines.append("    splitters:")
    for index in range(size.splitters):
        first = size.racks + 1 + index * size.fanout
        outputs = ", ".join(str(port) for port in range(first, first + size.fanout))
        lines.append(
            f"      s{index + 1}: {{fanout: {size.fanout}, loss_db: {loss_db}, "
            f"input: {size.racks + 1 + index}, outputs: [{outputs}]}}"
        )
    ringing_ms = min(5.0, size.reconfiguration_ms)
    return [
        *lines,
        "emulation:",
        f"  reconfiguration: {{distribution: fixed, mean_ms: {size.reconfiguration_ms:g}, spread_ms: 0}}",
        f"  ringing: {{duration_ms: {ringing_ms:g}, loss: 0.5}}",
        "  seed: 1",
    ]
