"""P4 switches of a lab: which program plays them, how it is started, and what one holds.

`python -m rostrum.lab.p4switches TOPOLOGY`, where the manager is, shows all that they hold as ovs-ofctl's dumps do.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4r, p4r_grpc
from rostrum.lab.namespace import LabError, buffers_library
from rostrum.lab.processes import Program
from rostrum.topologies import load, rate_bps
from rostrum.topologies.checks import P4_CPU_PORT
from rostrum.topologies.model import Switch, Topology

BMV2, REFERENCE = "bmv2", "p4-reference-target"
OPENFLOW = "openvswitch"
TARGETS = {BMV2: "simple_switch_grpc", REFERENCE: "the reference target that comes with rostrum, slow"}
# What links of a lab are made to carry at most, so that they and not the switches are what is full: all switches of a
# lab share a machine.
RATE_MAX = {BMV2: "100M", REFERENCE: "100M"}
LIGHT_BOUND = "2s"  # agents' patience with the reference target: on a busy machine a rule takes it tenths of a second
QUEUE_DEPTH = 1000  # packets, as at the ports' own queues (network.py)
THRIFT_PORT = 19090  # and up: BMv2's own debugging ports, one for each switch
UNICAST_TABLE = 0x02000001  # docs/p4.md
MULTICAST_TABLES = (ADMISSION, MULTICAST, FIRST_LIGHT) = (0x02000003, 0x02000004, 0x02000007)
GROUP_FIELD = 2  # of these
ASK_BOUND_S = 5.0


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


def program(switch: Switch, interfaces: dict[int, str], number: int, target: str, run: Path) -> Program:
    """The process that is this switch. `interfaces`: port -> name. It listens on the topology's address only."""
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
    # Before other work on this machine: hardware does not wait for its users.
    libraries = [buffers_library(), *([buffers_library("bmv2")] if target == BMV2 else [])]
    buffers = ["env", "LD_PRELOAD=" + ":".join(str(one) for one in libraries)]
    return Program(switch.name, ["nice", "-n", "-10", *buffers, *argv], run / "switches" / f"{switch.name}.log")


def destinations(switch: Switch) -> set[str]:
    """IPv4 addresses that the switch forwards unicast to, as it says itself. Raises LabError."""
    found = _read(switch, p4r.Entity(table_entry=p4r.TableEntry(table_id=UNICAST_TABLE)))
    return {_dotted(field.lpm.value) for one in found for field in one.table_entry.match}


def dump(switch: Switch) -> list[str]:
    """All entries but settings, and all replication groups: each as a line of ovs-ofctl's, as far as it says for which
    group it is and which replication group it uses. Raises LabError.
    """
    asked = [p4r.Entity(table_entry=p4r.TableEntry(table_id=table)) for table in (UNICAST_TABLE, *MULTICAST_TABLES)]
    groups = p4r.PacketReplicationEngineEntry(multicast_group_entry=p4r.MulticastGroupEntry())
    lines = []
    for one in _read(switch, *asked, p4r.Entity(packet_replication_engine_entry=groups)):
        if one.HasField("packet_replication_engine_entry"):
            number = one.packet_replication_engine_entry.multicast_group_entry.multicast_group_id
            lines.append(f"groups {switch.name} group_id={number}")
            continue
        entry = one.table_entry
        if entry.table_id == UNICAST_TABLE:
            lines.append(f"flows {switch.name} table={entry.table_id:#x} actions=forward")
            continue
        (group,) = [_dotted(field.exact.value) for field in entry.match if field.field_id == GROUP_FIELD]
        uses = ""
        if entry.table_id == MULTICAST:
            uses = f"group:{int.from_bytes(entry.action.action.params[0].value, 'big')}"
        lines.append(f"flows {switch.name} table={entry.table_id:#x} nw_dst={group} actions={uses}")
    return lines


def _read(switch: Switch, *asked: p4r.Entity) -> list[p4r.Entity]:
    assert switch.p4 is not None
    request = p4r.ReadRequest(device_id=switch.p4.device_id, entities=asked)
    try:
        with grpc.insecure_channel(f"{switch.p4.address}:{switch.p4.port}") as channel:
            parts = list(p4r_grpc.P4RuntimeStub(channel).Read(request, timeout=ASK_BOUND_S))
    except grpc.RpcError as error:
        raise LabError(f"{switch.name} does not tell its entries: {error}") from error
    return [one for part in parts for one in part.entities]


def _dotted(value: bytes) -> str:
    return ".".join(str(byte) for byte in value.rjust(4, b"\0"))


def main(file: str) -> None:
    for switch in load(file).switches.values():
        if switch.p4 is not None:
            print("\n".join(dump(switch)))


if __name__ == "__main__":
    main(sys.argv[1])
