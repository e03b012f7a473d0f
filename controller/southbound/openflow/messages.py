"""Rules as OpenFlow 1.3 messages, and what switches answer as rules and words again. Pure: no sockets, no state.

A multicast rule is one flow entry and one group-table entry of type ALL:

    in_port, IPv4 dst = group   --priority 40000-->   set DSCP (46), group G      G: ALL, one bucket per out port
             IPv4 dst = group   --priority 30000-->   the same, for any in_port; no copy goes back where it came from

Entries of ours carry COOKIE in the cookie's upper half and their kind below; group ids of ours carry GROUP_MARK. So
what belongs to someone else is neither read nor removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    MulticastRule,
    SouthboundError,
    UnicastRule,
)

COOKIE = 0x526F7374 << 32  # "Rost"
COOKIE_MULTICAST = COOKIE | 1
COOKIE_UNICAST = COOKIE | 2
COOKIE_MISS = COOKIE | 3
COOKIE_EXACT = 0xFFFF_FFFF_FFFF_FFFF

GROUP_MARK = 0x5 << 28
GROUP_MARK_MASK = 0xF << 28
GROUP_ADDRESS_BITS = 16  # multicast networks down to a /16 give every group an id of its own
GROUP_PORT_BITS = 12

ETH_TYPE_IP = 0x0800
ETH_TYPE_ARP = 0x0806


def group_id(rule: MulticastRule) -> int:
    """The group-table id of a rule: from its multicast address' low bits and its in_port, so that the manager and its
    successor after a crash agree without asking. Raises SouthboundError for a port that has no room in it."""
    if not ANY_PORT <= rule.in_port < 1 << GROUP_PORT_BITS:
        raise SouthboundError(f"{rule.switch}: in_port {rule.in_port} is not in 1 ... {(1 << GROUP_PORT_BITS) - 1}")
    low = int(rule.group) & ((1 << GROUP_ADDRESS_BITS) - 1)
    return GROUP_MARK | low << GROUP_PORT_BITS | rule.in_port


def is_ours(group: int) -> bool:
    return group & GROUP_MARK_MASK == GROUP_MARK


def _output(datapath: Any, port: int) -> Any:
    return parser.OFPActionOutput(port, 0)


def set_group(datapath: Any, rule: MulticastRule, exists: bool) -> Any:
    """The group-table entry of a rule: added, or its buckets replaced if it exists."""
    if not rule.out_ports:
        raise SouthboundError(f"{rule.switch}: the rule for {rule.group} has no out ports")
    command = ofp.OFPGC_MODIFY if exists else ofp.OFPGC_ADD
    buckets = [parser.OFPBucket(actions=[_output(datapath, port)]) for port in rule.out_ports]
    return parser.OFPGroupMod(datapath, command, ofp.OFPGT_ALL, group_id(rule), buckets)


def delete_group(datapath: Any, group: int) -> Any:
    return parser.OFPGroupMod(datapath, ofp.OFPGC_DELETE, ofp.OFPGT_ALL, group, [])


def _multicast_match(rule: MulticastRule) -> Any:
    port = {} if rule.in_port == ANY_PORT else {"in_port": rule.in_port}
    return parser.OFPMatch(**port, eth_type=ETH_TYPE_IP, ipv4_dst=str(rule.group))


def _multicast_priority(rule: MulticastRule) -> int:
    return PRIORITY_ANY_PORT if rule.in_port == ANY_PORT else PRIORITY_MULTICAST


def add_multicast_flow(datapath: Any, rule: MulticastRule) -> Any:
    mark = [parser.OFPActionSetField(ip_dscp=DSCP_OF_LEVEL[rule.level])] if rule.level else []
    actions = [*mark, parser.OFPActionGroup(group_id(rule))]
    return parser.OFPFlowMod(
        datapath,
        cookie=COOKIE_MULTICAST,
        priority=_multicast_priority(rule),
        match=_multicast_match(rule),
        instructions=[parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions)],
    )


def delete_multicast_flow(datapath: Any, rule: MulticastRule) -> Any:
    return parser.OFPFlowMod(
        datapath,
        cookie=COOKIE_MULTICAST,
        cookie_mask=COOKIE_EXACT,
        command=ofp.OFPFC_DELETE_STRICT,
        priority=_multicast_priority(rule),
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        match=_multicast_match(rule),
    )


def _unicast_matches(address: IPv4Address) -> list[Any]:
    return [
        parser.OFPMatch(eth_type=ETH_TYPE_IP, ipv4_dst=str(address)),
        parser.OFPMatch(eth_type=ETH_TYPE_ARP, arp_tpa=str(address)),
    ]


def add_unicast_flows(datapath: Any, rule: UnicastRule) -> list[Any]:
    actions = [_output(datapath, rule.out_port)]
    return [
        parser.OFPFlowMod(
            datapath,
            cookie=COOKIE_UNICAST,
            priority=PRIORITY_UNICAST,
            match=match,
            instructions=[parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions)],
        )
        for match in _unicast_matches(rule.address)
    ]


def delete_unicast_flows(datapath: Any, address: IPv4Address) -> list[Any]:
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
        for match in _unicast_matches(address)
    ]


def drop_the_rest(datapath: Any) -> Any:
    """The table-miss entry: what no rule names is dropped, not flooded and not sent to the manager."""
    return parser.OFPFlowMod(datapath, cookie=COOKIE_MISS, priority=0, match=parser.OFPMatch(), instructions=[])


def ask_flows(datapath: Any, cookie: int) -> Any:
    return parser.OFPFlowStatsRequest(
        datapath, 0, ofp.OFPTT_ALL, ofp.OFPP_ANY, ofp.OFPG_ANY, cookie, COOKIE_EXACT, parser.OFPMatch()
    )


def ask_groups(datapath: Any) -> Any:
    return parser.OFPGroupDescStatsRequest(datapath, 0)


def group_ports(groups: Iterable[Any]) -> dict[int, tuple[int, ...]]:
    """Group descriptions -> out ports of each ALL group of ours."""
    return {
        g.group_id: tuple(a.port for b in g.buckets for a in b.actions if isinstance(a, parser.OFPActionOutput))
        for g in groups
        if g.type == ofp.OFPGT_ALL and is_ours(g.group_id)
    }


def _actions(flow: Any) -> list[Any]:
    return [action for instruction in flow.instructions for action in getattr(instruction, "actions", ())]


def _group_of(flow: Any) -> int | None:
    return next((int(one.group_id) for one in _actions(flow) if isinstance(one, parser.OFPActionGroup)), None)


def _level_of(flow: Any) -> int:
    """The level whose DSCP it sets; one of none of ours counts as unmarked."""
    marks = (one.value for one in _actions(flow) if isinstance(one, parser.OFPActionSetField) and one.key == "ip_dscp")
    mark = next(marks, 0)
    return DSCP_OF_LEVEL.index(mark) if mark in DSCP_OF_LEVEL else 0


def multicast_rules(switch: str, flows: Iterable[Any], groups: Iterable[Any]) -> set[MulticastRule]:
    """Flow and group descriptions of one switch -> the rules of ours in them. A flow without its group is no rule."""
    ports = group_ports(groups)
    rules = set()
    for flow in flows:
        group = _group_of(flow)
        if flow.cookie != COOKIE_MULTICAST or group not in ports:
            continue
        address, in_port = flow.match.get("ipv4_dst"), flow.match.get("in_port", ANY_PORT)
        if address is not None:
            rules.add(MulticastRule(switch, in_port, IPv4Address(address), ports[group], level=_level_of(flow)))
    return rules


def unicast_addresses(flows: Iterable[Any]) -> set[IPv4Address]:
    """The destinations that unicast flows of ours serve."""
    found = (flow.match.get("ipv4_dst") for flow in flows if flow.cookie == COOKIE_UNICAST)
    return {IPv4Address(address) for address in found if address is not None}


def serialize(messages: Sequence[Any]) -> bytes:
    """Messages -> their bytes, one after another. Each must have its xid."""
    out = bytearray()
    for message in messages:
        message.serialize()
        out += message.buf
    return bytes(out)


def explain(message: Any) -> str:
    """A switch's error message in the words of the OpenFlow 1.3 specification."""
    if message.type == ofp.OFPET_EXPERIMENTER:
        return f"an experimenter error ({message.experimenter:#x}, type {message.exp_type})"
    kind = _name("OFPET_", message.type)
    prefixes = {
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
    prefix = prefixes.get(message.type)
    code = _name(prefix, message.code) if prefix else str(message.code)
    return f"{kind}: {code}"


def _name(prefix: str, value: int) -> str:
    for name in dir(ofp):
        if name.startswith(prefix) and getattr(ofp, name) == value:
            return f"{name.removeprefix(prefix)} ({value})"
    return str(value)
