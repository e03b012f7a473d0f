"""The network of a bench: a sender and receivers on a Linux bridge, and the real manager for our own agents.

Built inside private namespaces, once; `configure` makes it what a case says. Hosts h1 (the sender) ... h8:
h<n>/eth0 - port<n> on br0 carries data, h<n>/mgmt the agents' link to the manager. What a host has on its disk is the
tmpfs <place>/h<n>.

The manager drives OpenFlow switches. It gets one, tor1, whose ports lead nowhere: the bridge floods multicast,
for every tool alike.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rostrum.bench.account import compiled, must, pinned
from rostrum.bench.cases import Case
from rostrum.lab import processes
from rostrum.lab.namespace import LabError
from rostrum.lab.ocs import bpf
from rostrum.lab.rest import Rest
from rostrum.topologies.loader import load

RECEIVERS_MAX = 7
MANAGER = "10.255.0.1"
THRIFT_PORT, OPENFLOW_PORT, REST_PORT = 9090, 6653, 8080
DPID = 11
FREE_BPS = 100_000_000_000  # what the topology says of a link that is not limited: more than this machine can
BURST, LIMIT = "32kb", "1mb"  # of the token bucket
UP_BOUND_S = 20.0
OFFLOADS = ("tso", "gso", "gro", "tx-udp-segmentation")


@dataclass(frozen=True)
class Host:
    name: str
    address: str
    management: str
    folder: Path
    inode: int  # of its network namespace

    def argv(self, *command: str) -> list[str]:
        """The command line that runs a command on this host."""
        return ["ip", "netns", "exec", self.name, *command]


class Fabric:
    """The network. `folder`: for logs and sockets; `place`: where the hosts' disks are mounted."""

    receivers_max = RECEIVERS_MAX

    def __init__(self, folder: Path, place: Path, cache: Path) -> None:
        self.folder, self.place = folder, place
        self.case: Case | None = None
        self._manager: subprocess.Popen[bytes] | None = None
        self._told: tuple[int, int, bool] | None = None
        self.certificates = folder / "manager" / "certificates"
        must("ip", "link", "add", "mgmt", "type", "bridge", "mcast_snooping", "0")
        must("ip", "address", "add", f"{MANAGER}/24", "dev", "mgmt")
        must("ip", "link", "set", "mgmt", "up")
        # A switch knows no iptables, which the kernel otherwise asks about each packet on a bridge.
        for path in Path("/proc/sys/net/bridge").glob("bridge-nf-call-*tables"):
            path.write_text("0")
        self.hosts = [self._host(number) for number in range(1, self.receivers_max + 2)]
        self._join(cache)
        must("ovs-vsctl", "add-br", "tor1", "--", "set", "bridge", "tor1", "datapath_type=netdev",
             "protocols=OpenFlow13", "fail_mode=secure", f"other-config:datapath-id={DPID:016x}", "--",
             "set-controller", "tor1", f"tcp:{MANAGER}:{OPENFLOW_PORT}")  # fmt: skip
        # What the topology says of it must be there: the manager takes no path over a port that is down.
        for number in range(1, len(self.hosts) + 1):
            must("ovs-vsctl", "add-port", "tor1", f"tor1-{number}", "--", "set", "interface", f"tor1-{number}",
                 "type=internal", f"ofport_request={number}")  # fmt: skip
            must("ip", "link", "set", f"tor1-{number}", "up")

    @property
    def sender(self) -> Host:
        return self.hosts[0]

    def receivers(self, case: Case) -> list[Host]:
        return self.hosts[1 : case.receivers + 1]

    def _host(self, number: int) -> Host:
        name = f"h{number}"
        folder = self.place / name
        folder.mkdir(parents=True)
        _mount_memory(folder)
        must("ip", "netns", "add", name)
        for port, inner in ((f"port{number}", "eth0"), (f"mgmt{number}", "mgmt")):
            must("ip", "link", "add", port, "type", "veth", "peer", "name", inner, "netns", name)
            must("ip", "link", "set", port, "up")
        must("ip", "link", "set", f"mgmt{number}", "master", "mgmt")
        host = Host(name, f"10.0.0.{number}", f"10.255.0.{10 + number}", folder, os.stat(f"/run/netns/{name}").st_ino)
        inside = ["ip", "-n", name]
        must(*inside, "link", "set", "lo", "up")
        for interface, address in (("eth0", host.address), ("mgmt", host.management)):
            must(*inside, "address", "add", f"{address}/24", "broadcast", "+", "dev", interface)
            must(*inside, "link", "set", interface, "up")
        must(*inside, "route", "add", "224.0.0.0/4", "dev", "eth0")
        return host

    def _join(self, cache: Path) -> None:
        """Makes the hosts' data interfaces one network."""
        must("ip", "link", "add", "br0", "mtu", "9000", "type", "bridge", "mcast_snooping", "0")
        for number in range(1, len(self.hosts) + 1):
            must("ip", "link", "set", f"port{number}", "master", "br0")
        must("ip", "link", "set", "br0", "up")
        with pinned(compiled("drop.bpf.c", cache), "load", "type", "classifier") as pins:
            self._loss, self._frames = bpf.Map(pins / "loss"), bpf.Map(pins / "frames")
            for number in range(2, RECEIVERS_MAX + 2):
                port = f"port{number}"
                must("tc", "qdisc", "add", "dev", port, "clsact")
                must("tc", "filter", "add", "dev", port, "egress", "bpf", "direct-action", "object-pinned",
                     str(pins / "program"))  # fmt: skip

    def lost_frames(self) -> tuple[int, int]:
        """(frames that passed, frames dropped on purpose) on the way to all receivers; both 0 while loss is off."""
        sums = []
        for key in (0, 1):
            raw = self._frames.lookup(struct.pack("=I", key), 8 * bpf.possible_cpus())
            sums.append(sum(struct.unpack(f"={bpf.possible_cpus()}Q", raw)))
        return sums[0], sums[1]

    def sent_bytes(self) -> int:
        """What left the sender so far, with Ethernet headers. Offload on: headers of joined packets count once."""
        return int(Path("/sys/class/net/port1/statistics/rx_bytes").read_text())

    def overflows(self, case: Case) -> int:
        """Datagrams that receivers' sockets had no room for, so far."""
        total = 0
        for host in self.receivers(case):
            lines = [line.split() for line in must(*host.argv("cat", "/proc/net/snmp")).splitlines()]
            names, values = (line for line in lines if line[0] == "Udp:")
            total += int(values[names.index("RcvbufErrors")])
        return total

    # -- what a case says ----------------------------------------------------------------------------------------

    def configure(self, case: Case) -> None:
        """Sets MTU, offloads, rate, who is there, and loss. Raises LabError."""
        before = self.case
        if before is None or before.mtu != case.mtu:
            for number, host in enumerate(self.hosts, 1):
                must("ip", "link", "set", f"port{number}", "mtu", str(case.mtu))
                must("ip", "-n", host.name, "link", "set", "eth0", "mtu", str(case.mtu))
            must("ip", "link", "set", "br0", "mtu", str(case.mtu))
        if before is None or before.offload != case.offload:
            state = [word for offload in OFFLOADS for word in (offload, "on" if case.offload else "off")]
            for number, host in enumerate(self.hosts, 1):
                must("ethtool", "-K", f"port{number}", *state)
                must(*host.argv("ethtool", "-K", "eth0", *state))
        if before is None or before.rate_bps != case.rate_bps:
            self._limit(case.rate_bps, limited=bool(before and before.rate_bps))
        if before is None or before.receivers != case.receivers:
            # The bridge floods: hosts that take no part would cost what receivers cost.
            for number in range(2, RECEIVERS_MAX + 2):
                must("ip", "link", "set", f"port{number}", "up" if number <= case.receivers + 1 else "down")
        self._loss.update(struct.pack("=I", 0), struct.pack("=I", round(case.loss_percent * 10_000)))
        self.case = case

    def _limit(self, rate_bps: int, limited: bool) -> None:
        tc = ["tc", "-n", self.sender.name, "qdisc"]
        if rate_bps:
            shape = ("tbf", "rate", f"{rate_bps}bit", "burst", BURST, "limit", LIMIT)
            must(*tc, "replace", "dev", "eth0", "root", *shape)
        elif limited:
            must(*tc, "del", "dev", "eth0", "root")

    # -- the manager ---------------------------------------------------------------------------------------------

    @property
    def manager_address(self) -> str:
        return f"{MANAGER}:{THRIFT_PORT}"

    def manager(self, mtu: int, rate_bps: int, secure: bool = False) -> None:
        """Has the manager run, with a topology of this MTU whose links have this rate (0: not limited). `secure`: it
        asks for TLS and sealed packets; `certificates` are there then.
        """
        if self._told == (mtu, rate_bps, secure) and self._manager and self._manager.poll() is None:
            return
        self.stop_manager()
        run = self.folder / "manager"
        run.mkdir(exist_ok=True)
        file = run / "topology.yaml"
        said = self._topology(mtu, rate_bps or FREE_BPS) | ({"security": "required"} if secure else {})
        file.write_text(yaml.safe_dump(said, sort_keys=False))
        topology = load(file)
        if secure and not self.certificates.exists():
            processes.certificates(topology, run)
        if secure:
            own = [str(self.certificates / f"{processes.OPEN_VSWITCH}.{ending}") for ending in ("key", "pem")]
            must("ovs-vsctl", "set-ssl", *own, str(self.certificates / "ca.pem"))
        must("ovs-vsctl", "set-controller", "tor1", f"{'ssl' if secure else 'tcp'}:{MANAGER}:{OPENFLOW_PORT}")
        program = processes.managers(topology, file, run, [], str(self.certificates) if secure else "")[0]
        with program.log.open("ab") as log:
            self._manager = subprocess.Popen(program.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._await_manager(run, self._manager)
        self._told = (mtu, rate_bps, secure)

    def _await_manager(self, run: Path, manager: subprocess.Popen[bytes]) -> None:
        until, missing = time.monotonic() + UP_BOUND_S, ""
        while time.monotonic() < until:
            with contextlib.suppress(LabError):
                health = Rest(run).get("/v1/health")
                if health["ready"]:
                    return
                missing = "; ".join(health["missing"])
            if manager.poll() is not None:
                text = (run / "manager.log").read_text(errors="replace").strip().splitlines()[-1:]
                raise LabError(f"the manager ended: {' '.join(text)}")
            time.sleep(0.05)
        raise LabError(f"the manager is not ready after {UP_BOUND_S:.0f} s: {missing}; its log: {run / 'manager.log'}")

    def _topology(self, mtu: int, rate_bps: int) -> dict[str, Any]:
        return {
            "rostrum": 1,
            "name": "bench",
            "network": {
                "data": "10.0.0.0/24",
                "management": "10.255.0.0/24",
                "multicast": "239.192.0.0/16",
                "mtu": mtu,
            },
            "manager": {
                "address": MANAGER,
                "openflow_port": OPENFLOW_PORT,
                "thrift_port": THRIFT_PORT,
                "rest_port": REST_PORT,
            },
            "switches": {"tor1": {"role": "tor", "southbound": "openflow", "dpid": DPID}},
            "servers": {host.name: {"address": host.address, "management": host.management} for host in self.hosts},
            "links": [{"a": f"h{n}", "b": f"tor1:{n}", "rate": rate_bps} for n in range(1, len(self.hosts) + 1)],
        }

    def stop_manager(self) -> None:
        if self._manager:
            for number in (signal.SIGTERM, signal.SIGKILL):
                self._manager.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._manager.wait(5)
                    break
            self._manager = None


def _mount_memory(folder: Path) -> None:
    """A tmpfs of huge pages where the kernel has them for tmpfs, as a server's object store should be."""
    try:
        must("mount", "-t", "tmpfs", "-o", "huge=within_size,size=90%", "tmpfs", str(folder))
    except LabError:
        must("mount", "-t", "tmpfs", "-o", "size=90%", "tmpfs", str(folder))
