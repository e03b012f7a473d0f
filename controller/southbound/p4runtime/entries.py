"""Entities of the P4 program (docs/p4.md) and what they mean to the manager. Pure: p4info in, messages out.

Entries are made and read by the names in p4info; what a switch says that p4info does not know raises SouthboundError.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from finsy import (
    P4CounterData,
    P4CounterEntry,
    P4DigestEntry,
    P4DigestList,
    P4DirectCounterEntry,
    P4MeterConfig,
    P4MeterEntry,
    P4MulticastGroupEntry,
    P4Schema,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
)
from finsy.p4entity import P4PacketIn, P4PacketOut
from finsy.p4entity import P4Replica as Replica
from finsy.proto import p4r
from google.protobuf.message import Message
from rostrum.controller.core.model import (
    ANY_SOURCE,
    DSCP_OF_LEVEL,
    LEVEL_CONTROL,
    Count,
    Light,
    MulticastRule,
    SouthboundError,
    UnicastRule,
)
from rostrum.topologies.model import control_share

RuleKey = tuple[int, IPv4Address]  # (in_port, group): what makes two rules the same entry
PORT_MAX = 509
BURST_MS = 2  # of a port's rate, that control may have at once; and never less than two of the largest frames
BURST_MIN_BYTES = 2 * 9300
DROP_REASONS = (
    "malformed",
    "IPv4 header checksum wrong",
    "neither IPv4 nor ARP",
    "no unicast entry",
    "no grant for a group of the topology",
    "no grant for a group outside it",
    "granted, but no multicast entry",
    "would leave by the port it came by",
)  # reason n + 1
PORT_COUNTERS = ("port_received", "port_sent_multicast", "port_sent_unicast", "refused", "control_excess")


@dataclass(frozen=True)
class Watch:
    """An entry of `first_light`: registers `slot`, armed with `epoch`."""

    slot: int
    epoch: int
    confirm: int


@dataclass
class Found:
    """What a switch holds for multicast, table by table."""

    multicast: dict[RuleKey, tuple[int, int]] = field(default_factory=dict)  # -> (replication group, level)
    grants: dict[RuleKey, list[IPv4Network]] = field(default_factory=lambda: defaultdict(list))
    watches: dict[RuleKey, Watch] = field(default_factory=dict)
    groups: dict[int, dict[int, int]] = field(default_factory=dict)  # replication group -> port -> instance
    backups: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)  # replication group -> its ports'


class Entities:
    """`switch`: whose entities these are, for errors."""

    def __init__(self, switch: str, schema: P4Schema) -> None:
        self.switch, self.schema = switch, schema

    # -- entries -------------------------------------------------------------------------------------------------

    def entry(self, table: str, match: dict[str, Any], action: str = "", /, **arguments: int) -> p4r.Entity:
        act = P4TableAction(action, **arguments) if action else None
        return self._made(P4TableEntry(table, match=P4TableMatch(match), action=act))

    def settings(self, multicast: IPv4Network, queues: int, watched: Iterable[int] = ()) -> list[p4r.Entity]:
        """What does not depend on paths: the range of groups, marks of priority levels and which of `queues` each has,
        ports whose LLDP is wanted.
        """
        tags = [
            self.entry(
                "priority_tags", {"level": level}, "tag",
                dscp=DSCP_OF_LEVEL[level], pcp=level, queue=queue_of(level, queues),
            )
            for level in range(1, len(DSCP_OF_LEVEL))
        ]  # fmt: skip
        ports = [self.entry("discovery", {"ingress_port": self.port(port)}, "hand_up") for port in watched]
        return [self.entry("group_range", {"group": _prefix(multicast)}, "guard"), *tags, *ports]

    def queues(self, count: int) -> p4r.Entity:
        """How many priority queues each port has."""
        act = P4TableAction("set_queues", count=count)
        return self._made(P4TableEntry("egress_queues", action=act, is_default_action=True))

    def control_share(self, port: int, rate_bps: int) -> p4r.Entity:
        """What agents' reports and ARP may have of a port before all else."""
        rate = max(1, control_share(rate_bps) // 8)
        burst = max(BURST_MIN_BYTES, rate_bps // 8 * BURST_MS // 1000)
        config = P4MeterConfig(cir=rate, cburst=burst, pir=rate, pburst=burst)
        return self._made(P4MeterEntry("control_share", index=self.port(port), config=config))

    def digest(self) -> p4r.Entity:
        """The subscription to first light: one at a time, at once."""
        return self._made(
            P4DigestEntry("first_light_t", max_list_size=1, max_timeout_ns=0, ack_timeout_ns=1_000_000_000)
        )

    def unicast(self, rule: UnicastRule) -> p4r.Entity:
        match = {"destination": _prefix(IPv4Network(rule.address))}
        return self.entry("unicast", match, "forward", port=self.port(rule.out_port))

    def multicast(self, key: RuleKey, replication: int, level: int) -> p4r.Entity:
        return self.entry("multicast", _match(key), "replicate", replication=replication, level=level)

    def grant(self, key: RuleKey, source: IPv4Network) -> p4r.Entity:
        match = _match(key)
        if source.prefixlen:  # one that matches everything is left out
            match["source"] = _prefix(source)
        return self.entry("admission", match, "grant")

    def watch(self, key: RuleKey, watch: Watch) -> p4r.Entity:
        return self.entry(
            "first_light", _match(key), "watch",
            slot=watch.slot, epoch=watch.epoch, first_session=0, confirm=watch.confirm,
        )  # fmt: skip

    def group(self, replication: int, instances: dict[int, int], backups: Iterable[tuple[int, int]] = ()) -> p4r.Entity:
        """A multicast group of the packet replication engine: `instances` port -> index of its counter; `backups` port
        -> the one that takes its copies while it is down (P4Runtime 1.5)."""
        replicas = [Replica(port, instance=instance) for port, instance in sorted(instances.items())]
        made = self._made(P4MulticastGroupEntry(replication, replicas=replicas))
        instead, ports = dict(backups), sorted(instances)
        for port, one in zip(ports, made.packet_replication_engine_entry.multicast_group_entry.replicas, strict=True):
            if port in instead:
                one.backup_replicas.add(port=_port(instead[port]), instance=instances[port])
        return made

    def zero(self, instance: int) -> p4r.Entity:
        """A delivery counter set back to nothing."""
        return self._made(P4CounterEntry("delivered", index=instance, data=P4CounterData(byte_count=0, packet_count=0)))

    def port(self, number: int) -> int:
        """Raises SouthboundError for a port that the program has no bits for."""
        if not 1 <= number <= PORT_MAX:
            raise SouthboundError(f"{self.switch}: port {number} is not in 1 ... {PORT_MAX}")
        return number

    def packet_out(self, port: int, frame: bytes) -> p4r.PacketOut:
        message = P4PacketOut(frame, egress_port=self.port(port), padding=0).encode_update(self.schema)
        return message.packet

    # -- questions -----------------------------------------------------------------------------------------------

    def all_of(self, *tables: str) -> list[p4r.Entity]:
        """Wildcards for every entry of these tables."""
        return [self._made(P4TableEntry(table)) for table in tables]

    def all_groups(self) -> p4r.Entity:
        return self._made(P4MulticastGroupEntry(0))

    def ask_direct(self, table: str, match: dict[str, Any]) -> p4r.Entity:
        return p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=self.entry(table, match).table_entry))

    def ask_count(self, counter: str, index: int) -> p4r.Entity:
        return self._made(P4CounterEntry(counter, index=index))

    # -- answers -------------------------------------------------------------------------------------------------

    def found(self, entities: Iterable[p4r.Entity]) -> Found:
        """Entries and groups as read. Raises SouthboundError for what is not of this program."""
        found = Found()
        try:
            for one in entities:
                kind = one.WhichOneof("entity")
                if kind == "packet_replication_engine_entry":
                    group = P4MulticastGroupEntry.decode(one, self.schema)
                    if group.multicast_group_id:
                        ports = {replica.port: replica.instance for replica in _replicas(group)}
                        found.groups[group.multicast_group_id] = ports
                        instead = _backups(one.packet_replication_engine_entry.multicast_group_entry)
                        found.backups[group.multicast_group_id] = instead
                elif kind == "table_entry":
                    self._sort_in(P4TableEntry.decode(one, self.schema), found)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._strange(error) from error
        return found

    def _sort_in(self, entry: P4TableEntry, found: Found) -> None:
        if entry.is_default_action or entry.match is None or not isinstance(entry.action, P4TableAction):
            return
        match, arguments = entry.match, entry.action.args
        if entry.table_id not in ("multicast", "admission", "first_light"):
            return
        key = (int(match["ingress_port"]), IPv4Address(match["group"]))
        if entry.table_id == "multicast":
            found.multicast[key] = (int(arguments["replication"]), int(arguments["level"]))
        elif entry.table_id == "admission":
            address, bits = match.get("source", (0, 0))
            found.grants[key].append(IPv4Network((int(address), int(bits)), strict=False))
        else:
            found.watches[key] = Watch(arguments["slot"], arguments["epoch"], arguments["confirm"])

    def lights(self, digest: p4r.DigestList) -> list[tuple[int, Light]]:
        """(epoch, what was seen) of each message of a digest list; nothing if it is another digest."""
        try:
            found = P4DigestList.decode(p4r.StreamMessageResponse(digest=digest), self.schema)
            if found.digest_id != "first_light_t":
                return []
            rows: list[Any] = list(found.data)
            return [
                (row["epoch"], Light(self.switch, row["port"], IPv4Address(row["group"]), row["session"], row["sn"]))
                for row in rows
            ]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._strange(error) from error

    def packet_in_port(self, packet: p4r.PacketIn) -> int:
        """Where it came in. Raises SouthboundError if it does not say."""
        try:
            found = P4PacketIn.decode(p4r.StreamMessageResponse(packet=packet), self.schema)
            return int(found["ingress_port"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._strange(error) from error

    def counts(self, entities: Iterable[p4r.Entity]) -> dict[tuple[str, int], Count]:
        """(counter, index) -> count, of the indexed counters among these."""
        found = {}
        for one in entities:
            if one.WhichOneof("entity") == "counter_entry":
                counter = self.schema.counters.get(one.counter_entry.counter_id)
                if counter:
                    found[counter.alias, one.counter_entry.index.index] = _count(one.counter_entry.data)
        return found

    def direct_counts(self, entities: Iterable[p4r.Entity]) -> dict[tuple[str, RuleKey], Count]:
        """(table, (in_port, group)) -> count; grants of several sources for one group are added up."""
        found: dict[tuple[str, RuleKey], Count] = defaultdict(Count)
        try:
            for one in entities:
                if one.WhichOneof("entity") == "direct_counter_entry":
                    entry = P4DirectCounterEntry.decode(one, self.schema).table_entry
                    if entry is None or entry.match is None:
                        continue
                    place = (entry.table_id, (int(entry.match["ingress_port"]), IPv4Address(entry.match["group"])))
                    new = _count(one.direct_counter_entry.data)
                    found[place] = Count(found[place].packets + new.packets, found[place].bytes + new.bytes)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._strange(error) from error
        return dict(found)

    def _made(self, one: Any) -> p4r.Entity:
        try:
            made: p4r.Entity = one.encode(self.schema)
            return made
        except (ValueError, KeyError) as error:
            raise SouthboundError(f"{self.switch}: its P4 program does not take this: {str(error)[:200]}") from error

    def _strange(self, error: Exception) -> SouthboundError:
        return SouthboundError(f"{self.switch} says what is not in its p4info: {type(error).__name__}: {error}"[:300])


def queue_of(level: int, queues: int) -> int:
    """The queue of a priority level at ports with so many. Where they are too few for one each, levels below control
    share, so that it has one before theirs; where there are two, it shares with multicast, which shares with no others.
    """
    if level >= LEVEL_CONTROL or queues < 3:
        return min(level, max(queues - 1, 0))
    return min(level, queues - 2)


def differences(desired: Sequence[p4r.Entity], found: Sequence[p4r.Entity]) -> list[p4r.Update]:
    """The updates that turn the table entries found into the desired ones: deletions, modifications, insertions."""
    have = {_identity(one): one for one in found if one.HasField("table_entry")}
    want = {_identity(one): one for one in desired}
    updates = [delete(one) for key, one in have.items() if key not in want]
    for key, one in want.items():
        if key not in have:
            updates.append(insert(one))
        elif have[key].table_entry.action != one.table_entry.action:
            updates.append(modify(one))
    return updates


def insert(entity: p4r.Entity) -> p4r.Update:
    return p4r.Update(type=p4r.Update.INSERT, entity=entity)


def modify(entity: p4r.Entity) -> p4r.Update:
    return p4r.Update(type=p4r.Update.MODIFY, entity=entity)


def delete(entity: p4r.Entity) -> p4r.Update:
    return p4r.Update(type=p4r.Update.DELETE, entity=entity)


def source_of(rule: MulticastRule) -> IPv4Network:
    """Who is granted: the rule's source alone, or everybody."""
    return IPv4Network((int(rule.source), 0 if rule.source == ANY_SOURCE else 32))


def _identity(one: p4r.Entity) -> tuple[int, tuple[bytes, ...]]:
    entry = one.table_entry
    return entry.table_id, tuple(sorted(_bytes(match) for match in entry.match))


def _bytes(message: Message) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))


def _match(key: RuleKey) -> dict[str, Any]:
    return {"ingress_port": key[0], "group": int(key[1])}


def _prefix(network: IPv4Network) -> tuple[int, int]:
    return int(network.network_address), network.prefixlen


def _replicas(group: P4MulticastGroupEntry) -> list[Replica]:
    return [one for one in group.replicas if isinstance(one, Replica)]


def _count(data: p4r.CounterData) -> Count:
    return Count(int(data.packet_count), int(data.byte_count))


def _port(number: int) -> bytes:
    return number.to_bytes(2, "big").lstrip(b"\0") or b"\0"


def _backups(group: p4r.MulticastGroupEntry) -> tuple[tuple[int, int], ...]:
    """(port, its first backup)."""
    return tuple(
        sorted(
            (
                int.from_bytes(one.port, "big") or int(one.egress_port),
                int.from_bytes(one.backup_replicas[0].port, "big"),
            )
            for one in group.replicas
            if one.backup_replicas
        )
    )
