"""Multicast groups and clone sessions of the packet replication engine: written and read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r
from rostrum.lab.p4target.status import decode, exists, full, invalid, missing, unsupported
from rostrum.lab.p4target.table_entries import DELETE, INSERT

GROUP_MAX = 0xFFFF
SESSION_MAX = 0x7FFF  # BMv2's
INSTANCE_MAX = 0xFFFF
GROUPS_MAX = 4096
REPLICAS_MAX = 4096
PORT_BITS = 9


Copies = dict[int, tuple[tuple[int, int], ...]]


class ReplicationEntries:
    """`groups`, `sessions`: id -> (port, instance) of each copy, for `Switch`. The messages are kept too, to give them
    back as they were written."""

    def __init__(self) -> None:
        self.groups: Copies = {}
        self.sessions: Copies = {}
        self._groups: dict[int, Any] = {}
        self._sessions: dict[int, Any] = {}

    def write(self, kind: int, message: Any) -> None:
        which = message.WhichOneof("type")
        if which == "multicast_group_entry":
            entry = message.multicast_group_entry
            self._write(kind, entry, entry.multicast_group_id, GROUP_MAX, self._groups, self.groups, "group")
        elif which == "clone_session_entry":
            entry = message.clone_session_entry
            if kind != DELETE and (entry.class_of_service or entry.packet_length_bytes):
                raise unsupported("clone sessions with a class of service or truncation")
            self._write(kind, entry, entry.session_id, SESSION_MAX, self._sessions, self.sessions, "clone session")
        else:
            raise invalid("an entry of the packet replication engine is a multicast group or a clone session")

    def _write(
        self,
        kind: int,
        entry: Any,
        number: int,
        top: int,
        known: dict[int, Any],
        live: Copies,
        what: str,
    ) -> None:
        if not 0 < number <= top:
            raise invalid(f"{what} {number}: ids are 1 ... {top}")
        if kind == INSERT and number in known:
            raise exists(f"{what} {number} is there already")
        if kind != INSERT and number not in known:
            raise missing(f"there is no {what} {number}")
        if kind == DELETE:
            del live[number], known[number]
            return
        if kind == INSERT and len(known) >= GROUPS_MAX:
            raise full(f"there are {GROUPS_MAX} entries already, no room for {what} {number}")
        copies = replicas(entry, f"{what} {number}")
        live[number] = copies
        known[number] = type(entry).FromString(entry.SerializeToString())

    def read(self, message: Any) -> Iterator[Any]:
        which = message.WhichOneof("type")
        if which in (None, "multicast_group_entry"):
            for entry in self._found(self._groups, message.multicast_group_entry.multicast_group_id):
                found = p4r.PacketReplicationEngineEntry(multicast_group_entry=entry)
                yield p4r.Entity(packet_replication_engine_entry=found)
        if which in (None, "clone_session_entry"):
            for entry in self._found(self._sessions, message.clone_session_entry.session_id):
                found = p4r.PacketReplicationEngineEntry(clone_session_entry=entry)
                yield p4r.Entity(packet_replication_engine_entry=found)

    @staticmethod
    def _found(known: dict[int, Any], number: int) -> list[Any]:
        if not number:
            return list(known.values())
        return [known[number]] if number in known else []


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
