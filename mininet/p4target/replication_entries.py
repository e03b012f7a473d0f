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


Copy = tuple[int, int]  # port, instance
Copies = dict[int, tuple[Copy, ...]]
Backups = dict[int, dict[Copy, tuple[Copy, ...]]]
BACKUPS_MAX = 8  # of a replica


class ReplicationEntries:
    """`groups`: id -> (port, instance) of each copy, for `Switch`; `backups`: id -> copy -> what takes its place while
    its port is down, by preference. The messages are kept too, to give them back as they were written."""

    def __init__(self) -> None:
        self.groups: Copies = {}
        self.backups: Backups = {}
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
            self.backups.pop(number, None)
            return
        if kind == INSERT and len(known) >= GROUPS_MAX:
            raise full(f"there are {GROUPS_MAX} entries already, no room for group {number}")
        self.groups[number], backups = replicas(entry, f"group {number}")
        self.backups.pop(number, None)
        if backups:
            self.backups[number] = backups
        known[number] = type(entry).FromString(entry.SerializeToString())

    def read(self, message: Any) -> Iterator[Any]:
        if message.WhichOneof("type") not in (None, "multicast_group_entry"):
            return
        number = message.multicast_group_entry.multicast_group_id
        for entry in list(self._groups.values()) if not number else filter(None, [self._groups.get(number)]):
            found = p4r.PacketReplicationEngineEntry(multicast_group_entry=entry)
            yield p4r.Entity(packet_replication_engine_entry=found)


def replicas(entry: Any, what: str) -> tuple[tuple[Copy, ...], dict[Copy, tuple[Copy, ...]]]:
    """(port, instance) of each replica, and of the backups of those that have any."""
    if len(entry.replicas) > REPLICAS_MAX:
        raise full(f"{what}: more than {REPLICAS_MAX} replicas")
    copies: list[Copy] = []
    backups: dict[Copy, tuple[Copy, ...]] = {}
    for replica in entry.replicas:
        if replica.WhichOneof("port_kind") == "port":
            port = decode(replica.port, PORT_BITS, f"{what}, port")
        else:
            port = replica.egress_port
        copies.append(_copy(port, replica.instance, what))
        if len(replica.backup_replicas) > BACKUPS_MAX:
            raise full(f"{what}: more than {BACKUPS_MAX} backups of a replica")
        if replica.backup_replicas:
            backups[copies[-1]] = tuple(
                _copy(decode(one.port, PORT_BITS, f"{what}, backup port"), one.instance, what)
                for one in replica.backup_replicas
            )
    every = [*copies, *(one for each in backups.values() for one in each)]
    if len(set(every)) < len(every):
        raise invalid(f"{what}: the same port and instance twice")
    return tuple(copies), backups


def _copy(port: int, instance: int, what: str) -> Copy:
    if port >> PORT_BITS:
        raise invalid(f"{what}: port {port} does not fit into {PORT_BITS} bits")
    if instance > INSTANCE_MAX:
        raise invalid(f"{what}: instance {instance} does not fit into 16 bits")
    return port, instance
