"""What an OpenFlow switch can do, as it says when it connects, and what of it we use. Pure: no sockets, no state.

A switch that does not answer a question is taken for what most are: no bound on its table, DSCP can be set, no groups.
What descriptions of models say and OpenFlow cannot is in `QUIRKS`; docs/switches.md has the same as a matrix.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser
from rostrum.controller.core.model import Remark, SwitchFacts
from rostrum.controller.southbound.openflow.messages import Encoding
from rostrum.topologies.model import Switch, Topology

HEADER = struct.Struct("!HB5x32sQQII")  # of a table in a table-features reply
PROPERTY = struct.Struct("!HH")  # type, length
OXM_IP_DSCP = 0x8000 << 7 | ofp.OFPXMT_OFB_IP_DSCP
ACTIONS = {ofp.OFPTFPT_APPLY_ACTIONS}
SET_FIELDS = {ofp.OFPTFPT_APPLY_SETFIELD}
NEARLY_FULL = 0.9  # of a table: worth a note


@dataclass(frozen=True)
class Quirk:
    """What a maker's manual says of groups; `buckets`: most of one."""

    maker: str  # in the switch's description of itself
    buckets: int = 0
    groups: bool = True


QUIRKS = (Quirk("juniper", buckets=32),)


class TableFeatures:
    """One table of a table-features reply; takes the place of os-ken's, which spends half a second on the 254 tables of
    an Open vSwitch."""

    def __init__(self, length: int, table: int, entries: int, rest: bytes) -> None:
        self.length, self.table, self.entries, self._rest = length, table, entries, rest

    @classmethod
    def parser(cls, buf: bytes, offset: int) -> TableFeatures:
        """Raises ValueError and struct.error."""
        length, table, _, _, _, _, entries = HEADER.unpack_from(buf, offset)
        if length < HEADER.size:
            raise ValueError("a table is shorter than its header")
        return cls(length, table, entries, bytes(buf[offset + HEADER.size : offset + length]))

    def can(self) -> tuple[frozenset[int], frozenset[int]]:
        """(types of actions, OXM classes and fields that can be set) on packets here. Raises ValueError."""
        actions: set[int] = set()
        fields: set[int] = set()
        at = 0
        while at + PROPERTY.size <= len(self._rest):
            kind, length = PROPERTY.unpack_from(self._rest, at)
            if length < PROPERTY.size:
                raise ValueError("a property is shorter than its header")
            body = self._rest[at + PROPERTY.size : at + length]
            if kind in ACTIONS:
                actions |= set(_action_types(body))
            elif kind in SET_FIELDS:
                fields |= {struct.unpack_from("!I", body, place)[0] >> 9 for place in range(0, len(body) - 3, 4)}
            at += (length + 7) // 8 * 8
        return frozenset(actions), frozenset(fields)


def _action_types(body: bytes) -> list[int]:
    found, at = [], 0
    while at + 4 <= len(body):
        kind, length = PROPERTY.unpack_from(body, at)
        found.append(kind)
        at += max(length, 4)
    return found


parser.OFPTableFeaturesStatsReply.cls_stats_body_cls = TableFeatures


@dataclass(frozen=True)
class Capabilities:
    """As the switch said. None: it did not answer. `queues`: ids by port."""

    maker: str = ""
    device: str = ""
    entries: int = 0
    entries_used: int = 0
    actions: frozenset[int] | None = None
    fields: frozenset[int] | None = None
    group_types: int | None = None
    groups_most: int = 0  # of type ALL; 0: not said
    queues: Mapping[int, Collection[int]] = field(default_factory=dict)

    @property
    def sets_dscp(self) -> bool:
        return self.fields is None or OXM_IP_DSCP in self.fields

    @property
    def sets_queue(self) -> bool:
        return self.actions is None or ofp.OFPAT_SET_QUEUE in self.actions


def learned(
    table: int,
    description: Any,
    tables: Sequence[Any],
    counts: Sequence[Any],
    groups: Any,
    queues: Sequence[Any],
) -> Capabilities:
    """From the switch's answers: its description, features of its tables, their use, of its groups, its queues; each
    empty or None where it gave none."""
    maker, device = "", ""
    if description is not None:
        parts = [_text(getattr(description, name)) for name in ("mfr_desc", "hw_desc", "sw_desc")]
        maker, device = parts[0], " ".join(word for word in parts if word)
    ours = next((one for one in tables if one.table == table), None)
    actions, fields = None, None
    if ours is not None:
        try:
            actions, fields = ours.can()
        except ValueError:
            ours = None
    by_port: dict[int, set[int]] = {}
    for one in queues:
        by_port.setdefault(int(one.port_no), set()).add(int(one.queue_id))
    used = next((one.active_count for one in counts if one.table_id == table), 0)
    return Capabilities(
        maker,
        device[:200],
        ours.entries if ours is not None else 0,
        int(used),
        actions or None,
        fields or None,
        None if groups is None else int(groups.types),
        0 if groups is None else int(groups.max_groups[ofp.OFPGT_ALL]),
        by_port,
    )


def _text(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace").strip("\0 ")
    return "" if text == "None" else text


def encoding(topology: Topology, switch: Switch, can: Capabilities) -> Encoding:
    """How rules are written on it."""
    shared = len(topology.sharing(switch.name)) > 1
    ports = tuple(sorted(switch.neighbours)) if shared else ()
    dscp = can.sets_dscp
    queue = switch.queue if switch.queue is not None and can.sets_queue and not _lacking(switch, can) else None
    if switch.coexist:
        where = switch.coexist
        return Encoding(
            where.table, where.priority, where.priority - 1, ports, groups=False, dscp=dscp, queue=queue, notice=True
        )
    quirk = next((one for one in QUIRKS if one.maker in can.maker.lower()), Quirk(""))
    types = can.group_types or 0
    return Encoding(
        ports=ports,
        groups=quirk.groups and bool(types >> ofp.OFPGT_ALL & 1),
        buckets=quirk.buckets,
        failover=bool(types >> ofp.OFPGT_FF & 1),
        dscp=dscp,
        queue=queue,
    )


def _lacking(switch: Switch, can: Capabilities) -> list[int]:
    """Ports without the queue that the topology file names."""
    return [port for port in sorted(switch.neighbours) if switch.queue not in can.queues.get(port, ())]


def facts(switch: Switch, can: Capabilities, how: Encoding, used: int) -> SwitchFacts:
    """For people: what is used, and what stands against it. `used`: entries of its table now."""
    marks = [*(["DSCP"] if how.dscp else []), *([f"queue {how.queue}"] if how.queue is not None else [])]
    return SwitchFacts(
        can.device,
        can.entries,
        used,
        "groups" if how.groups else "action lists",
        ", ".join(marks) or "nothing",
        how.failover,
        tuple(_remarks(switch, can, how, used)),
    )


def _remarks(switch: Switch, can: Capabilities, how: Encoding, used: int) -> list[Remark]:
    name, found = switch.name, []
    if switch.queue is not None and how.queue is None:
        lacking = _lacking(switch, can)
        why = "it offers no set_queue action"
        if can.sets_queue:
            names = ", ".join(map(str, lacking[:8])) + (" ..." if len(lacking) > 8 else "")
            why = f"its ports {names} have no such queue"
        instead = "DSCP marks are set instead" if how.dscp else "multicast has no priority there"
        mend = f"make queue {switch.queue} at each port of {name}, or correct `queue` in the topology file"
        found.append(
            Remark("warning", f"{name} does not put multicast into queue {switch.queue}: {why}; {instead}", mend)
        )
    elif not how.dscp and how.queue is None:
        what = f"{name} cannot set DSCP, and no queue is named: multicast has no priority on its ports"
        found.append(Remark("warning", what, f"name a queue of its ports in the topology file (switches.{name}.queue)"))
    if can.entries and used > NEARLY_FULL * can.entries:
        what = f"table {how.table} of {name} holds {used} of {can.entries} entries"
        mend = "paths that need more take the place of rules that are kept idle, and then fail; remove others' entries"
        found.append(Remark("warning", what, mend))
    return found
