"""Rules as OpenFlow 1.3 messages, and what switches answer as rules and text again. Pure: no sockets, no state.

A multicast rule is one flow entry and, where the switch has them, one group-table entry of type ALL:

    in_port, IPv4 dst = group   --priority 40000-->   set DSCP (46), group G      G: ALL, one bucket per out port
             IPv4 dst = group   --priority 30000-->   the same, for any in_port; no copy goes back where it came from

Where it has no such groups, caps their buckets, or belongs to another controller, the outputs stand in the flow's own
action list (`Encoding`). A port with a backup is a group of type FAST_FAILOVER, shared by all rules that need that pair
of ports: the switch itself changes over when the port goes down.

Entries of ours carry COOKIE in the cookie's upper half and their kind below; group ids of ours carry GROUP_MARK. So
what belongs to someone else is neither read nor removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser
from rostrum.controller.core.model import (
    ANY_PORT,
    DSCP_OF_LEVEL,
    PRIORITY_ANY_PORT,
    PRIORITY_MULTICAST,
    PRIORITY_UNICAST,
    Count,
    MulticastRule,
    RuleCounters,
    SouthboundError,
    UnicastRule,
)

COOKIE = 0x526F7374 << 32  # "Rost"
COOKIE_MULTICAST = COOKIE | 1
COOKIE_UNICAST = COOKIE | 2
COOKIE_MISS = COOKIE | 3
COOKIE_EXACT = 0xFFFF_FFFF_FFFF_FFFF
COOKIE_KIND = COOKIE_EXACT ^ 0xFF00  # without the bits that hold the level of rules that set no DSCP
COOKIE_LEVEL_SHIFT = 8

GROUP_MARK = 0x5 << 28
FAILOVER_MARK = 0x6 << 28
GROUP_MARK_MASK = 0xF << 28
GROUP_ADDRESS_BITS = 16  # multicast networks down to a /16 give every group an id of its own
GROUP_PORT_BITS = 12
FAILOVER_PORT_BITS = 14

ETH_TYPE_IP = 0x0800
ETH_TYPE_ARP = 0x0806


@dataclass(frozen=True)
class Encoding:
    """How rules are written on one switch: what it can do and whose it is (capabilities.py decides).

    `ports`: of a logical switch that shares its device with others, whose entries are told apart by in_port; empty = it
    has the device alone. `groups`: ALL groups; else outputs are in the action list. `buckets`: most of a group; 0 = no
    bound. `failover`: groups of type FAST_FAILOVER. `notice`: the switch tells when somebody removes our entries.
    """

    table: int = 0
    priority: int = PRIORITY_MULTICAST
    priority_any: int = PRIORITY_ANY_PORT
    ports: tuple[int, ...] = ()
    groups: bool = True
    buckets: int = 0
    failover: bool = False
    dscp: bool = True
    queue: int | None = None
    notice: bool = False

    def uses_group(self, rule: MulticastRule) -> bool:
        """Whether an ALL group makes this rule's copies."""
        if not self.groups or (self.ports and rule.in_port == ANY_PORT) or (self.failover and rule.backups):
            return False
        return not self.buckets or len(rule.out_ports) <= self.buckets

    def in_ports(self, rule: MulticastRule) -> tuple[int, ...]:
        """One flow entry for each of these."""
        return self.ports if self.ports and rule.in_port == ANY_PORT else (rule.in_port,)


ALONE = Encoding()


def group_id(rule: MulticastRule) -> int:
    """The group-table id of a rule: from its multicast address' low bits and its in_port, so that the manager and its
    successor after a crash agree without asking. Raises SouthboundError for a port that has no room in it."""
    if not ANY_PORT <= rule.in_port < 1 << GROUP_PORT_BITS:
        raise SouthboundError(f"{rule.switch}: in_port {rule.in_port} is not in 1 ... {(1 << GROUP_PORT_BITS) - 1}")
    low = int(rule.group) & ((1 << GROUP_ADDRESS_BITS) - 1)
    return GROUP_MARK | low << GROUP_PORT_BITS | rule.in_port


def failover_id(port: int, backup: int) -> int:
    """Of the group that sends by `port`, or by `backup` while that is down."""
    return FAILOVER_MARK | port << FAILOVER_PORT_BITS | backup


def _failover_ports(group: int) -> tuple[int, int]:
    mask = (1 << FAILOVER_PORT_BITS) - 1
    return group >> FAILOVER_PORT_BITS & mask, group & mask


def is_ours(group: int) -> bool:
    return group & GROUP_MARK_MASK in (GROUP_MARK, FAILOVER_MARK)


def is_failover(group: int) -> bool:
    return group & GROUP_MARK_MASK == FAILOVER_MARK


def port_of_group(group: int) -> int:
    """The port by which a group of ours is a logical switch's: where its packets come in, or leave."""
    return _failover_ports(group)[0] if is_failover(group) else group & ((1 << GROUP_PORT_BITS) - 1)


def _output(datapath: Any, port: int) -> Any:
    return parser.OFPActionOutput(port, 0)


def set_group(datapath: Any, rule: MulticastRule, exists: bool) -> Any:
    """The group-table entry of a rule: added, or its buckets replaced if it exists."""
    _check_ports(rule)
    command = ofp.OFPGC_MODIFY if exists else ofp.OFPGC_ADD
    buckets = [parser.OFPBucket(actions=[_output(datapath, port)]) for port in rule.out_ports]
    return parser.OFPGroupMod(datapath, command, ofp.OFPGT_ALL, group_id(rule), buckets)


def set_failover(datapath: Any, port: int, backup: int) -> Any:
    """The group that sends by `port`, or by `backup` while that is down: added."""
    buckets = [
        parser.OFPBucket(watch_port=one, watch_group=ofp.OFPG_ANY, actions=[_output(datapath, one)])
        for one in (port, backup)
    ]
    return parser.OFPGroupMod(datapath, ofp.OFPGC_ADD, ofp.OFPGT_FF, failover_id(port, backup), buckets)


def delete_group(datapath: Any, group: int) -> Any:
    kind = ofp.OFPGT_FF if is_failover(group) else ofp.OFPGT_ALL
    return parser.OFPGroupMod(datapath, ofp.OFPGC_DELETE, kind, group, [])


def _check_ports(rule: MulticastRule) -> None:
    if not rule.out_ports:
        raise SouthboundError(f"{rule.switch}: the rule for {rule.group} has no out ports")


def _multicast_match(rule: MulticastRule, in_port: int) -> Any:
    port = {} if in_port == ANY_PORT else {"in_port": in_port}
    return parser.OFPMatch(**port, eth_type=ETH_TYPE_IP, ipv4_dst=str(rule.group))


def _multicast_priority(rule: MulticastRule, how: Encoding) -> int:
    return how.priority_any if rule.in_port == ANY_PORT else how.priority


def flow_keys(rule: MulticastRule, how: Encoding = ALONE) -> list[tuple[int, int, IPv4Address]]:
    """(priority, in_port, group) of each of a rule's flow entries, as `removed_key` gives them back."""
    priority = _multicast_priority(rule, how)
    keys = [(priority, port, rule.group) for port in how.in_ports(rule)]
    return keys + [(how.priority, port, rule.group) for port in rule.barred]


def removed_key(message: Any) -> tuple[int, int, IPv4Address] | None:
    """Of a flow-removed message or a flow's description: the entry, if it is a multicast one of ours."""
    address = message.match.get("ipv4_dst")
    if address is None or message.cookie & COOKIE_KIND != COOKIE_MULTICAST:
        return None
    return message.priority, int(message.match.get("in_port", ANY_PORT)), IPv4Address(address)


def _outputs(datapath: Any, rule: MulticastRule, how: Encoding) -> list[Any]:
    if how.uses_group(rule):
        return [parser.OFPActionGroup(group_id(rule))]
    backups = dict(rule.backups) if how.failover else {}
    return [
        parser.OFPActionGroup(failover_id(port, backups[port])) if port in backups else _output(datapath, port)
        for port in rule.out_ports
    ]


def add_multicast_flows(datapath: Any, rule: MulticastRule, how: Encoding = ALONE) -> list[Any]:
    _check_ports(rule)
    actions, cookie = [], COOKIE_MULTICAST
    if rule.level and how.dscp:
        actions.append(parser.OFPActionSetField(ip_dscp=DSCP_OF_LEVEL[rule.level]))
    elif rule.level:
        cookie |= rule.level << COOKIE_LEVEL_SHIFT
    if rule.level and how.queue is not None:
        actions.append(parser.OFPActionSetQueue(how.queue))
    actions += _outputs(datapath, rule, how)
    return [
        parser.OFPFlowMod(
            datapath,
            cookie=cookie,
            table_id=how.table,
            priority=_multicast_priority(rule, how),
            flags=ofp.OFPFF_SEND_FLOW_REM if how.notice else 0,
            match=_multicast_match(rule, port),
            instructions=[parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions)],
        )
        for port in how.in_ports(rule)
    ] + [
        parser.OFPFlowMod(  # no instructions: what comes there is dropped
            datapath,
            cookie=COOKIE_MULTICAST,
            table_id=how.table,
            priority=how.priority,
            flags=ofp.OFPFF_SEND_FLOW_REM if how.notice else 0,
            match=_multicast_match(rule, port),
        )
        for port in rule.barred
    ]


def delete_multicast_flows(datapath: Any, rule: MulticastRule, how: Encoding = ALONE) -> list[Any]:
    return [
        parser.OFPFlowMod(
            datapath,
            cookie=COOKIE_MULTICAST,
            cookie_mask=COOKIE_KIND,
            table_id=how.table,
            command=ofp.OFPFC_DELETE_STRICT,
            priority=priority,
            out_port=ofp.OFPP_ANY,
            out_group=ofp.OFPG_ANY,
            match=_multicast_match(rule, port),
        )
        for priority, port, _ in flow_keys(rule, how)
    ]


def delete_flow(datapath: Any, flow: Any) -> Any:
    """This entry of ours, as the switch described it, and no other."""
    return parser.OFPFlowMod(
        datapath,
        cookie=flow.cookie,
        cookie_mask=COOKIE_EXACT,
        table_id=flow.table_id,
        command=ofp.OFPFC_DELETE_STRICT,
        priority=flow.priority,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        match=flow.match,
    )


def _unicast_matches(address: IPv4Address, how: Encoding) -> list[Any]:
    return [
        parser.OFPMatch(**port, **what)
        for port in ([{"in_port": one} for one in how.ports] or [{}])
        for what in (
            {"eth_type": ETH_TYPE_IP, "ipv4_dst": str(address)},
            {"eth_type": ETH_TYPE_ARP, "arp_tpa": str(address)},
        )
    ]


def add_unicast_flows(datapath: Any, rule: UnicastRule, how: Encoding = ALONE) -> list[Any]:
    actions = [_output(datapath, rule.out_port)]
    return [
        parser.OFPFlowMod(
            datapath,
            cookie=COOKIE_UNICAST,
            priority=PRIORITY_UNICAST,
            match=match,
            instructions=[parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions)],
        )
        for match in _unicast_matches(rule.address, how)
    ]


def delete_unicast_flows(datapath: Any, address: IPv4Address, how: Encoding = ALONE) -> list[Any]:
    return [
        parser.OFPFlowMod(
            datapath,
            cookie=COOKIE_UNICAST,
            cookie_mask=COOKIE_EXACT,
            command=ofp.OFPFC_DELETE_STRICT,
            priority=PRIORITY_UNICAST,
            out_port=ofp.OFPP_ANY,
            out_group=ofp.OFPG_ANY,
            match=match,
        )
        for match in _unicast_matches(address, how)
    ]


def drop_the_rest(datapath: Any) -> Any:
    """The table-miss entry: what no rule names is dropped, not flooded and not sent to the manager."""
    return parser.OFPFlowMod(datapath, cookie=COOKIE_MISS, priority=0, match=parser.OFPMatch(), instructions=[])


def ask_flows(datapath: Any, cookie: int) -> Any:
    return parser.OFPFlowStatsRequest(
        datapath, 0, ofp.OFPTT_ALL, ofp.OFPP_ANY, ofp.OFPG_ANY, cookie, COOKIE_KIND, parser.OFPMatch()
    )


def ask_groups(datapath: Any) -> Any:
    return parser.OFPGroupDescStatsRequest(datapath, 0)


def ask_group_counters(datapath: Any) -> Any:
    return parser.OFPGroupStatsRequest(datapath, 0, ofp.OFPG_ALL)


def group_ports(groups: Iterable[Any]) -> dict[int, tuple[int, ...]]:
    """Group descriptions -> out ports of each ALL group of ours."""
    return {
        g.group_id: tuple(a.port for b in g.buckets for a in b.actions if isinstance(a, parser.OFPActionOutput))
        for g in groups
        if g.type == ofp.OFPGT_ALL and is_ours(g.group_id)
    }


def _actions(flow: Any) -> list[Any]:
    return [action for instruction in flow.instructions for action in getattr(instruction, "actions", ())]


def groups_used(flows: Iterable[Any]) -> set[int]:
    """Groups of ours that these flows send to."""
    found = {int(a.group_id) for flow in flows for a in _actions(flow) if isinstance(a, parser.OFPActionGroup)}
    return {group for group in found if is_ours(group)}


def _level_of(flow: Any) -> int:
    """The level whose DSCP it sets, or that the cookie tells; one of none of ours counts as unmarked."""
    told = flow.cookie >> COOKIE_LEVEL_SHIFT & 0xFF
    if told:
        return int(told) if told < len(DSCP_OF_LEVEL) else 0
    marks = (one.value for one in _actions(flow) if isinstance(one, parser.OFPActionSetField) and one.key == "ip_dscp")
    mark = next(marks, 0)
    return DSCP_OF_LEVEL.index(mark) if mark in DSCP_OF_LEVEL else 0


def _copies(flow: Any, ports: Mapping[int, tuple[int, ...]]) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """(out ports, backups) of a flow; no ports if a group of it is not there."""
    out: list[int] = []
    backups: list[tuple[int, int]] = []
    for action in _actions(flow):
        if isinstance(action, parser.OFPActionOutput):
            out.append(int(action.port))
        elif isinstance(action, parser.OFPActionGroup):
            group = int(action.group_id)
            if is_failover(group):
                backups.append(_failover_ports(group))
                out.append(backups[-1][0])
            elif group in ports:
                out += ports[group]
            else:
                return (), ()
    return tuple(out), tuple(backups)


def multicast_rules(
    switch: str, flows: Iterable[Any], groups: Iterable[Any], how: Encoding = ALONE
) -> set[MulticastRule]:
    """Flow and group descriptions of one switch -> the rules of ours in them. A flow without its group is no rule, nor
    is one for any port of a logical switch that is not there for all of its ports.
    """
    ports = group_ports(groups)
    rules: set[MulticastRule] = set()
    for_any: dict[MulticastRule, set[int]] = {}
    barred: dict[IPv4Address, list[int]] = {}
    for flow in flows:
        address, in_port = flow.match.get("ipv4_dst"), flow.match.get("in_port", ANY_PORT)
        if flow.cookie & COOKIE_KIND != COOKIE_MULTICAST or address is None:
            continue
        out, backups = _copies(flow, ports)
        if not flow.instructions and flow.priority == how.priority and in_port != ANY_PORT:
            barred.setdefault(IPv4Address(address), []).append(in_port)
            continue
        if not out or (how.ports and in_port not in how.ports):
            continue
        any_port = bool(how.ports) and flow.priority == how.priority_any
        rule = MulticastRule(
            switch,
            ANY_PORT if any_port else in_port,
            IPv4Address(address),
            out,
            level=_level_of(flow),
            backups=backups,
        )
        if any_port:
            for_any.setdefault(rule, set()).add(in_port)
        else:
            rules.add(rule)
    rules |= {rule for rule, there in for_any.items() if there == set(how.ports)}
    return {
        replace(rule, barred=tuple(sorted(barred[rule.group])))
        if rule.in_port == ANY_PORT and rule.group in barred
        else rule
        for rule in rules
    }


def unicast_addresses(flows: Iterable[Any], how: Encoding = ALONE) -> set[IPv4Address]:
    """The destinations that unicast flows of ours serve."""
    found = (
        flow.match.get("ipv4_dst")
        for flow in flows
        if flow.cookie == COOKIE_UNICAST and (not how.ports or flow.match.get("in_port") in how.ports)
    )
    return {IPv4Address(address) for address in found if address is not None}


def counters(
    rules: Collection[MulticastRule], flows: Iterable[Any], group_stats: Iterable[Any], how: Encoding = ALONE
) -> list[RuleCounters]:
    """What each of these rules did, by the counters of its flows and of its group's buckets. Copies that no bucket
    counts are those that came in, by each port.
    """
    by_key = {(f.priority, f.match.get("in_port", ANY_PORT), f.match.get("ipv4_dst")): f for f in flows}
    by_group = {one.group_id: one for one in group_stats}
    found = []
    for rule in rules:
        keys = flow_keys(replace(rule, barred=()), how)
        entries = [by_key.get((p, port, str(group))) for p, port, group in keys]
        there = [one for one in entries if one is not None]
        if not there:
            continue
        received = Count(sum(one.packet_count for one in there), sum(one.byte_count for one in there))
        delivered = dict.fromkeys(rule.out_ports, received)
        group = by_group.get(group_id(rule)) if how.uses_group(rule) else None
        if group is not None and len(group.bucket_stats) == len(rule.out_ports):
            for port, bucket in zip(rule.out_ports, group.bucket_stats, strict=True):
                if bucket.packet_count != COOKIE_EXACT:  # all ones: not counted
                    delivered[port] = Count(bucket.packet_count, bucket.byte_count)
        if how.ports and rule.in_port == ANY_PORT:
            for one in there:  # no copy goes back where it came from
                port = one.match.get("in_port")
                if port in delivered:
                    was = delivered[port]
                    delivered[port] = Count(was.packets - one.packet_count, was.bytes - one.byte_count)
        found.append(RuleCounters(rule, received, received, tuple(delivered.items())))
    return found


def serialize(messages: Sequence[Any]) -> bytes:
    """Messages -> their bytes, one after another. Each must have its xid."""
    out = bytearray()
    for message in messages:
        message.serialize()
        out += message.buf
    return bytes(out)


PREFIXES = {
    ofp.OFPET_HELLO_FAILED: "OFPHFC_",
    ofp.OFPET_BAD_REQUEST: "OFPBRC_",
    ofp.OFPET_BAD_ACTION: "OFPBAC_",
    ofp.OFPET_BAD_INSTRUCTION: "OFPBIC_",
    ofp.OFPET_BAD_MATCH: "OFPBMC_",
    ofp.OFPET_FLOW_MOD_FAILED: "OFPFMFC_",
    ofp.OFPET_GROUP_MOD_FAILED: "OFPGMFC_",
    ofp.OFPET_PORT_MOD_FAILED: "OFPPMFC_",
    ofp.OFPET_TABLE_MOD_FAILED: "OFPTMFC_",
    ofp.OFPET_QUEUE_OP_FAILED: "OFPQOFC_",
    ofp.OFPET_SWITCH_CONFIG_FAILED: "OFPSCFC_",
    ofp.OFPET_ROLE_REQUEST_FAILED: "OFPRRFC_",
    ofp.OFPET_METER_MOD_FAILED: "OFPMMFC_",
    ofp.OFPET_TABLE_FEATURES_FAILED: "OFPTFFC_",
}


def explain(message: Any) -> str:
    """A switch's error message in the words of the OpenFlow 1.3 specification."""
    if message.type == ofp.OFPET_EXPERIMENTER:
        return f"an experimenter error ({message.experimenter:#x}, type {message.exp_type})"
    kind = _name("OFPET_", message.type)
    prefix = PREFIXES.get(message.type)
    code = _name(prefix, message.code) if prefix else str(message.code)
    return f"{kind}: {code}"


def _name(prefix: str, value: int) -> str:
    for name in dir(ofp):
        if name.startswith(prefix) and getattr(ofp, name) == value:
            return f"{name.removeprefix(prefix)} ({value})"
    return str(value)
