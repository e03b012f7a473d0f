"""Multicast groups of the packet replication engine: written and read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r
from rostrum.lab.p4target.status import decode, exists, full, invalid, missing, unsupported
from rostrum.lab.p4target.table_entries import DELETE, INSERT

GROUP_MAX = 0xFFFF
INSTANCE_MAX = 0xFFFF
GROUPS_MAX = 4096
REPLICAS_MAX = 4096
PORT_BITS = 9


Copies = dict[int, tuple[tuple[int, int], ...]]


class ReplicationEntries:
    """`groups`: id -> (port, instance) of each copy, for `Switch`. The messages are kept too, to give them back as they
    were written."""

    def __init__(self) -> None:
        self.groups: Copies = {}
        self._groups: dict[int, Any] = {}

    def write(self, kind: int, message: Any) -> None:
        if message.WhichOneof("type") == "clone_session_entry":
            raise unsupported("clone sessions")
        if message.WhichOneof("type") != "multicast_group_entry":
            raise invalid("an entry of the packet replication engine is a multicast group or a clone session")
        entry, known = message.multicast_group_entry, self._groups
        number = entry.multicast_group_id
        if not 0 < number <= GROUP_MAX:
            raise invalid(f"group {number}: ids are 1 ... {GROUP_MAX}")
        if kind == INSERT and number in known:
            raise exists(f"group {number} is there already")
        if kind != INSERT and number not in known:
            raise missing(f"there is no group {number}")
        if kind == DELETE:
            del self.groups[number], known[number]
            return
        if kind == INSERT and len(known) >= GROUPS_MAX:
            raise full(f"there are {GROUPS_MAX} entries already, no room for group {number}")
        self.groups[number] = replicas(entry, f"group {number}")
        known[number] = type(entry).FromString(entry.SerializeToString())

    def read(self, message: Any) -> Iterator[Any]:
        if message.WhichOneof("type") not in (None, "multicast_group_entry"):
            return
        number = message.multicast_group_entry.multicast_group_id
        for entry in list(self._groups.values()) if not number else filter(None, [self._groups.get(number)]):
            found = p4r.PacketReplicationEngineEntry(multicast_group_entry=entry)
            yield p4r.Entity(packet_replication_engine_entry=found)


def replicas(entry: Any, what: str) -> tuple[tuple[int, int], ...]:
    """(port, instance) of each replica."""
    if len(entry.replicas) > REPLICAS_MAX:
        raise full(f"{what}: more than {REPLICAS_MAX} replicas")
    copies = []
    for replica in entry.replicas:
        if replica.backup_replicas:
            raise unsupported(f"{what}: backup replicas")
        if replica.WhichOneof("port_kind") == "port":
            port = decode(replica.port, PORT_BITS, f"{what}, port")
        else:
            port = replica.egress_port
        if port >> PORT_BITS:
            raise invalid(f"{what}: port {port} does not fit into {PORT_BITS} bits")
        if replica.instance > INSTANCE_MAX:
            raise invalid(f"{what}: instance {replica.instance} does not fit into 16 bits")
        copies.append((port, replica.instance))
    if len(set(copies)) < len(copies):
        raise invalid(f"{what}: the same port and instance twice")
    return tuple(copies)
