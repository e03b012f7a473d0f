"""What a P4 switch of a lab holds, by its own report.

`python -m rostrum.lab.p4entries TOPOLOGY`, where the manager is, shows all that they hold as ovs-ofctl's dumps do.
A module of its own: gRPC takes longer to import than most commands of `rostrum lab` take.
"""

from __future__ import annotations

import sys
from pathlib import Path

import grpc
from finsy.proto import p4r, p4r_grpc
from rostrum.lab.namespace import LabError
from rostrum.topologies import load
from rostrum.topologies.model import Switch

UNICAST_TABLE = 0x02000001  # docs/p4.md
MULTICAST_TABLES = (ADMISSION, MULTICAST, FIRST_LIGHT) = (0x02000003, 0x02000004, 0x02000007)
GROUP_FIELD = 2  # of these
ASK_BOUND_S = 5.0


def destinations(switch: Switch, certificates: Path | None = None) -> set[str]:
    """IPv4 addresses that the switch forwards unicast to, as it says itself. `certificates`: of a lab with security
    required. Raises LabError.
    """
    found = _read(switch, certificates, p4r.Entity(table_entry=p4r.TableEntry(table_id=UNICAST_TABLE)))
    return {_dotted(field.lpm.value) for one in found for field in one.table_entry.match}


def dump(switch: Switch, certificates: Path | None = None) -> list[str]:
    """All entries but settings, and all replication groups: each as a line of ovs-ofctl's, as far as it says for which
    group it is and which replication group it uses. Raises LabError.
    """
    asked = [p4r.Entity(table_entry=p4r.TableEntry(table_id=table)) for table in (UNICAST_TABLE, *MULTICAST_TABLES)]
    groups = p4r.PacketReplicationEngineEntry(multicast_group_entry=p4r.MulticastGroupEntry())
    lines = []
    for one in _read(switch, certificates, *asked, p4r.Entity(packet_replication_engine_entry=groups)):
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


def _read(switch: Switch, certificates: Path | None, *asked: p4r.Entity) -> list[p4r.Entity]:
    assert switch.p4 is not None
    request = p4r.ReadRequest(device_id=switch.p4.device_id, entities=asked)
    address = f"{switch.p4.address}:{switch.p4.port}"
    try:
        with _channel(address, certificates) as channel:
            parts = list(p4r_grpc.P4RuntimeStub(channel).Read(request, timeout=ASK_BOUND_S))
    except grpc.RpcError as error:
        raise LabError(f"{switch.name} does not tell its entries: {error}") from error
    return [one for part in parts for one in part.entities]


def _channel(address: str, certificates: Path | None) -> grpc.Channel:
    if certificates is None:
        return grpc.insecure_channel(address)
    ca, key, own = (certificates / file for file in ("ca.pem", "manager.key", "manager.pem"))
    return grpc.secure_channel(
        address, grpc.ssl_channel_credentials(ca.read_bytes(), key.read_bytes(), own.read_bytes())
    )


def _dotted(value: bytes) -> str:
    return ".".join(str(byte) for byte in value.rjust(4, b"\0"))


def main(file: str) -> None:
    topology = load(file)
    certificates = Path(file).parent / "certificates" if topology.secure else None
    for switch in topology.switches.values():
        if switch.p4 is not None:
            print("\n".join(dump(switch, certificates)))


if __name__ == "__main__":
    main(sys.argv[1])
