"""P4 switches of a lab: which program plays them, and how it is started."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from rostrum.lab.namespace import LabError, buffers_library, preloaded
from rostrum.lab.processes import Program, tls
from rostrum.topologies import rate_bps
from rostrum.topologies.checks import P4_CPU_PORT
from rostrum.topologies.model import Switch, Topology

BMV2, REFERENCE = "bmv2", "p4-reference-target"
OPENFLOW = "openvswitch"
TARGETS = {BMV2: "simple_switch_grpc", REFERENCE: "the reference target that comes with rostrum, slow"}
# What links of a lab are made to carry at most, so that they and not the switches are what is full: all switches of a
# lab share a machine.
RATE_MAX = {BMV2: "100M", REFERENCE: "100M"}
LIGHT_BOUND = "2s"  # agents' bound for the reference target: on a busy machine a rule takes it tenths of a second
QUEUE_DEPTH = 1000  # packets, as at the ports' own queues (network.py)
THRIFT_PORT = 19090  # and up: BMv2's own debugging ports, one for each switch


def choose() -> str:
    """BMv2 where it is on the PATH, else the reference target; ROSTRUM_P4_TARGET=bmv2 or p4-reference-target decides
    otherwise. Raises LabError.
    """
    wanted = os.environ.get("ROSTRUM_P4_TARGET", "")
    here = shutil.which("simple_switch_grpc")
    if wanted not in ("", *TARGETS):
        raise LabError(f"ROSTRUM_P4_TARGET={wanted}: there are {', '.join(TARGETS)}")
    if wanted == BMV2 and not here:
        raise LabError("ROSTRUM_P4_TARGET=bmv2, but simple_switch_grpc is not on the PATH")
    return wanted or (BMV2 if here else REFERENCE)


def slowed(links: list[dict[str, Any]], target: str) -> list[dict[str, Any]]:
    """Links of a topology file, none of them faster than this target can take."""
    most = RATE_MAX[target]
    return [{**link, "rate": most} if rate_bps(link["rate"]) > rate_bps(most) else link for link in links]


def forwarding(topology: Topology, target: str) -> str:
    """What forwards in a lab: `openvswitch`, `bmv2`, `p4-reference-target`, or two of them joined by `+`."""
    kinds = {switch.p4 is not None for switch in topology.switches.values()}
    return "+".join([*([target] if True in kinds else []), *([OPENFLOW] if False in kinds else [])])


def program(
    switch: Switch, interfaces: dict[int, str], number: int, target: str, run: Path, certificates: str = ""
) -> Program:
    """The process that is this switch. `interfaces`: port -> name. It listens on the topology's address only, by TLS
    with `certificates`, a folder.
    """
    assert switch.p4 is not None
    thrift = str(THRIFT_PORT + number)
    argv = [sys.executable, "-m", "rostrum.lab.p4target"]
    if target == BMV2:
        argv = [sys.executable, "-m", "rostrum.lab.bmv2", str(QUEUE_DEPTH), thrift, "--", "simple_switch_grpc"]
    argv += ["--no-p4", "--device-id", str(switch.p4.device_id), "--thrift-port", thrift]
    for port, name in sorted(interfaces.items()):
        argv += ["-i", f"{port}@{name}"]
    argv += ["--", "--grpc-server-addr", f"{switch.p4.address}:{switch.p4.port}"]
    argv += ["--priority-queues", str(switch.p4.queues), "--cpu-port", str(P4_CPU_PORT)]
    if certificates:
        _, certificate, key, ca = tls("", certificates, switch.name)
        argv += ["--grpc-server-ssl", "--grpc-server-cert", certificate, "--grpc-server-key", key]
        argv += ["--grpc-server-cacert", ca, "--grpc-server-with-client-auth"]
    # Before other work on this machine: hardware does not wait for its users.
    libraries = [buffers_library(), *([buffers_library("bmv2")] if target == BMV2 else [])]
    buffers = ["env", "LD_PRELOAD=" + ":".join(map(preloaded, libraries))]
    return Program(switch.name, ["nice", "-n", "-10", *buffers, *argv], run / "switches" / f"{switch.name}.log")
