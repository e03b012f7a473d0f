"""What a P4Runtime server answers when it cannot do something, as text: table, field, value, cause. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Any

import grpc
from finsy import P4Schema
from finsy.proto import p4r, rpc_code, rpc_status
from google.protobuf.message import DecodeError

SHOWN_MAX = 4  # failed updates told one by one
TEXT_MAX = 200
DETAILS_KEY = "grpc-status-details-bin"
_VERBS = {p4r.Update.INSERT: "insert", p4r.Update.MODIFY: "modify", p4r.Update.DELETE: "delete"}


def text(error: grpc.aio.AioRpcError, schema: P4Schema | None = None, updates: Sequence[p4r.Update] = ()) -> str:
    """The cause of a failed call. Of a batch of updates, those that failed and why (p4.v1.Error, one per update)."""
    failed = [
        f"{describe(updates[number], schema)}: {_code(one.canonical_code)}{_said(one.message)}"
        for number, one in enumerate(_details(error))
        if one.canonical_code != rpc_code.OK and number < len(updates)
    ]
    if failed:
        more = f"; and {len(failed) - SHOWN_MAX} more of {len(updates)}" if len(failed) > SHOWN_MAX else ""
        return "; ".join(failed[:SHOWN_MAX]) + more
    return f"{error.code().name}{_said(error.details() or '')}"


def _details(error: grpc.aio.AioRpcError) -> list[p4r.Error]:
    """The server's account of each update; nothing if it gave none that can be read."""
    status = rpc_status.Status()
    try:
        for key, value in error.trailing_metadata() or ():
            if key == DETAILS_KEY:
                status.ParseFromString(value)
        found = []
        for packed in status.details:
            one = p4r.Error()
            found.append(one if packed.Unpack(one) else p4r.Error())
        return found
    except (DecodeError, TypeError, ValueError):
        return []


def describe(update: p4r.Update, schema: P4Schema | None = None) -> str:
    """`insert admission (ingress_port 1, group 239.192.0.5, source 10.0.1.1/32)`."""
    return f"{_VERBS.get(update.type, 'change')} {entity(update.entity, schema)}"


def entity(one: p4r.Entity, schema: P4Schema | None = None) -> str:
    """An entity by its names in p4info, or by its numbers where p4info does not know it."""
    match one.WhichOneof("entity"):
        case "table_entry":
            return _table_entry(one.table_entry, schema)
        case "packet_replication_engine_entry":
            group = one.packet_replication_engine_entry.multicast_group_entry
            ports = ", ".join(str(_port(replica)) for replica in group.replicas)
            return f"multicast group {group.multicast_group_id}" + (f" (ports {ports})" if ports else "")
        case "counter_entry":
            counter = schema.counters.get(one.counter_entry.counter_id) if schema else None
            name = counter.alias if counter else f"{one.counter_entry.counter_id:#x}"
            return f"counter {name}[{one.counter_entry.index.index}]"
        case "digest_entry":
            digest = schema.digests.get(one.digest_entry.digest_id) if schema else None
            return f"digest {digest.alias if digest else f'{one.digest_entry.digest_id:#x}'}"
        case other:
            return str(other or "nothing").replace("_", " ")


def _port(replica: p4r.Replica) -> int:
    return int.from_bytes(replica.port, "big") if replica.HasField("port") else replica.egress_port


def _table_entry(entry: p4r.TableEntry, schema: P4Schema | None) -> str:
    table = schema.tables.get(entry.table_id) if schema else None
    if table is None:
        return f"an entry of table {entry.table_id:#x}"
    if entry.is_default_action:
        return f"the default action of {table.alias}"
    fields = []
    for match in entry.match:
        field = table.match_fields.get(match.field_id)
        name = field.alias if field else f"field {match.field_id}"
        fields.append(f"{name} {_value(match, field.bitwidth if field else 0)}")
    return f"{table.alias} ({', '.join(fields)})"


def _value(match: p4r.FieldMatch, bits: int) -> str:
    match match.WhichOneof("field_match_type"):
        case "exact":
            return _number(match.exact.value, bits)
        case "lpm":
            return f"{_number(match.lpm.value, bits)}/{match.lpm.prefix_len}"
        case "ternary":
            return f"{_number(match.ternary.value, bits)} & {_number(match.ternary.mask, bits)}"
        case "range":
            return f"{_number(match.range.low, bits)} ... {_number(match.range.high, bits)}"
        case other:
            return str(other)


def _number(value: bytes, bits: int) -> str:
    number = int.from_bytes(value, "big")
    return str(IPv4Address(number)) if bits == 32 and number < 1 << 32 else str(number)


def _code(number: int) -> str:
    try:
        return str(rpc_code.Code.Name(number))
    except ValueError:
        return f"code {number}"


def _said(text: Any) -> str:
    """A server's own text, made safe and short."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return f": {plain[:TEXT_MAX]}" if plain else ""
