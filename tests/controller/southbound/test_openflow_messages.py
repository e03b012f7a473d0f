"""Rules as OpenFlow messages and back, without a switch."""

from __future__ import annotations

import contextlib
import struct
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from os_ken.ofproto import ofproto_protocol, ofproto_v1_3
from rostrum.controller.core.model import ANY_PORT, MulticastRule, SouthboundError, UnicastRule
from rostrum.controller.southbound.openflow import capabilities, messages
from rostrum.controller.southbound.openflow.capabilities import Capabilities
from rostrum.topologies.loader import load
from rostrum.topologies.model import Coexist

DATAPATH = ofproto_protocol.ProtocolDesc(ofproto_v1_3.OFP_VERSION)
GROUPS = st.integers(0, 0xFFFF).map(lambda n: IPv4Address(0xEFC00000 + n))
RULES = st.builds(
    MulticastRule,
    st.just("tor1"),
    st.integers(ANY_PORT, 4095),
    GROUPS,
    st.lists(st.integers(1, 1000), min_size=1, max_size=20, unique=True).map(tuple),
)


def described(rule):
    """What a switch that took the messages of one rule would describe: they hold the same fields."""
    flow, group = messages.add_multicast_flows(DATAPATH, rule)[0], messages.set_group(DATAPATH, rule, exists=False)
    flow.set_xid(1)
    group.set_xid(2)
    assert len(messages.serialize([group, flow])) == group.msg_len + flow.msg_len
    return flow, group


@given(RULES)
def test_multicast_rule__survives_the_switch(rule: MulticastRule) -> None:
    flow, group = described(rule)
    assert messages.multicast_rules("tor1", [flow], [group]) == {rule}


@given(RULES, RULES)
def test_group_id__differs_when_the_rule_does(a: MulticastRule, b: MulticastRule) -> None:
    same = (a.in_port, a.group) == (b.in_port, b.group)
    assert (messages.group_id(a) == messages.group_id(b)) == same
    assert messages.is_ours(messages.group_id(a))
    assert messages.group_id(a) <= ofproto_v1_3.OFPG_MAX


def test_multicast_flow__matches_tags_and_replicates() -> None:
    rule = MulticastRule("tor1", 3, IPv4Address("239.192.1.2"), (1, 50))
    flow, _ = described(rule)
    assert dict(flow.match.items()) == {"in_port": 3, "eth_type": 0x0800, "ipv4_dst": "239.192.1.2"}
    assert flow.priority == 40_000
    tag, replicate = flow.instructions[0].actions
    assert (tag.key, tag.value) == ("ip_dscp", 46)
    assert replicate.group_id == messages.group_id(rule)


@pytest.mark.parametrize(("level", "dscp"), [(0, None), (1, 10), (5, 46), (7, 56)])
def test_levels__are_marks_and_are_read_back(level: int, dscp: int | None) -> None:
    rule = MulticastRule("tor1", 3, IPv4Address("239.192.1.2"), (1, 50), level=level)
    flow, group = described(rule)
    marks = [action.value for action in flow.instructions[0].actions if getattr(action, "key", "") == "ip_dscp"]
    assert marks == ([] if dscp is None else [dscp])
    assert messages.multicast_rules("tor1", [flow], [group]) == {rule}


def test_what_is_not_ours__is_not_read() -> None:
    rule = MulticastRule("tor1", 3, IPv4Address("239.192.1.2"), (1, 50))
    flow, group = described(rule)
    assert messages.multicast_rules("tor1", [flow], []) == set()
    flow.cookie = 42
    assert messages.multicast_rules("tor1", [flow], [group]) == set()
    assert not messages.is_ours(1)


def test_rule_for_any_port__below_those_for_one_port() -> None:
    rule = MulticastRule("tor1", ANY_PORT, IPv4Address("239.192.1.2"), (1, 2))
    other = MulticastRule("tor1", 3, IPv4Address("239.192.1.2"), (1, 2))
    flow = messages.add_multicast_flows(DATAPATH, rule)[0]
    assert dict(flow.match.items()) == {"eth_type": 0x0800, "ipv4_dst": "239.192.1.2"}
    assert flow.priority < messages.add_multicast_flows(DATAPATH, other)[0].priority
    assert flow.priority == messages.delete_multicast_flows(DATAPATH, rule)[0].priority
    assert messages.group_id(rule) != messages.group_id(other)


def test_unicast__ip_and_arp() -> None:
    flows = messages.add_unicast_flows(DATAPATH, UnicastRule("tor1", IPv4Address("10.0.1.1"), 4))
    assert [dict(f.match.items()) for f in flows] == [
        {"eth_type": 0x0800, "ipv4_dst": "10.0.1.1"},
        {"eth_type": 0x0806, "arp_tpa": "10.0.1.1"},
    ]
    assert messages.unicast_addresses(flows) == {IPv4Address("10.0.1.1")}


@pytest.mark.parametrize("rule", [
    MulticastRule("tor1", -1, IPv4Address("239.192.1.2"), (1,)),
    MulticastRule("tor1", 5000, IPv4Address("239.192.1.2"), (1,)),
    MulticastRule("tor1", 1, IPv4Address("239.192.1.2"), ()),
])  # fmt: skip
def test_impossible_rules__refused_with_a_reason(rule: MulticastRule) -> None:
    with pytest.raises(SouthboundError, match="tor1: "):
        messages.set_group(DATAPATH, rule, exists=False)


ENCODINGS = st.builds(
    messages.Encoding,
    table=st.integers(0, 254),
    priority=st.just(77),
    priority_any=st.just(76),
    ports=st.sampled_from([(), (1, 2, 3)]),
    groups=st.booleans(),
    buckets=st.sampled_from([0, 4]),
    failover=st.booleans(),
    dscp=st.booleans(),
    queue=st.sampled_from([None, 5]),
)


@given(RULES, ENCODINGS, st.booleans(), st.integers(0, 7), st.sets(st.sampled_from([1, 2, 3])))
def test_every_encoding__is_read_back(
    rule: MulticastRule, how: messages.Encoding, guarded: bool, level: int, barred: set[int]
) -> None:
    rule = replace(rule, in_port=rule.in_port % 4 if how.ports else rule.in_port, level=level)
    if rule.in_port == ANY_PORT:
        rule = replace(rule, barred=tuple(sorted(barred)))
    if guarded and how.failover:
        rule = replace(rule, backups=((rule.out_ports[0], 1001),))
    flows = messages.add_multicast_flows(DATAPATH, rule, how)
    groups = [messages.set_group(DATAPATH, rule, exists=False)] if how.uses_group(rule) else []
    for number, message in enumerate([*groups, *flows], 1):
        message.set_xid(number)
    messages.serialize([*groups, *flows])
    assert all(flow.table_id == how.table for flow in flows)
    assert {messages.removed_key(flow) for flow in flows} == set(messages.flow_keys(rule, how))
    assert messages.multicast_rules("tor1", flows, groups, how) == {rule}
    if how.ports and rule.in_port == ANY_PORT:
        assert messages.multicast_rules("tor1", flows[1:], groups, how) == set()  # not in every port's


@given(st.binary(max_size=200), st.binary(max_size=80))
def test_table_features__garbage_is_refused_or_read(head: bytes, rest: bytes) -> None:
    with contextlib.suppress(ValueError, struct.error):
        capabilities.TableFeatures.parser(head, 0).can()
    with contextlib.suppress(ValueError, struct.error):
        capabilities.TableFeatures(64 + len(rest), 0, 1, rest).can()


def answered(maker: str, fields: bytes, types: int, queues: dict[int, list[int]]) -> Capabilities:
    """As a switch says that its table 0 can set these fields, and has these group types and queues."""
    parser = DATAPATH.ofproto_parser
    rest = struct.pack("!HH", ofproto_v1_3.OFPTFPT_APPLY_SETFIELD, 4 + len(fields)) + fields
    rest += bytes(-len(rest) % 8) + struct.pack("!HHHHHH", ofproto_v1_3.OFPTFPT_APPLY_ACTIONS, 12, 0, 4, 21, 4)
    table = struct.pack("!HB5x32sQQII", 64 + len(rest), 0, b"t", 0, 0, 0, 1000) + rest
    return capabilities.learned(
        0,
        parser.OFPDescStats(maker.encode(), b"x", b"1", b"", b""),
        [capabilities.TableFeatures.parser(table, 0)],
        [parser.OFPTableStats(0, 950, 0, 0)],
        parser.OFPGroupFeaturesStats(types, 0, [512, 0, 0, 512], [0, 0, 0, 0]),
        [parser.OFPQueueStats(port, number, 0, 0, 0, 0, 0) for port, ids in queues.items() for number in ids],
    )


DSCP = struct.pack("!I", 0x8000 << 16 | 8 << 9 | 1)


def test_capabilities__decide_what_is_used() -> None:
    topology = load(Path(__file__).parents[3] / "topologies" / "hybrid-4x2.yaml")
    tor = replace(topology.switches["tor1"], queue=5)
    ports = tor.neighbours
    everywhere = {port: [0, 5] for port in ports}
    rich = capabilities.encoding(topology, tor, answered("Pica8", DSCP, 0b1001, everywhere))
    assert (rich.groups, rich.failover, rich.dscp, rich.queue, rich.buckets) == (True, True, True, 5, 0)
    capped = capabilities.encoding(topology, tor, answered("Juniper Networks", DSCP, 0b0001, everywhere))
    assert capped.buckets == 32 and not capped.failover
    assert not capped.uses_group(MulticastRule("tor1", 1, IPv4Address("239.192.0.1"), tuple(range(2, 40))))
    can = answered("other", b"", 0b0010, {1: [5]})
    poor = capabilities.encoding(topology, tor, can)
    assert (poor.groups, poor.dscp, poor.queue) == (False, True, None)  # no list of fields: it may be able to
    other = struct.pack("!I", 0x8000 << 16 | 1 << 9 | 6)
    can = answered("other", other, 0b0010, {1: [5]})
    poor = capabilities.encoding(topology, tor, can)
    assert (poor.dscp, poor.queue) == (False, None)
    remarks = capabilities.facts(tor, can, poor, 950).remarks
    assert "does not put multicast into queue 5: its ports 2, 49, 50" in remarks[0].what
    assert "no priority there" in remarks[0].what and "950 of 1000 entries" in remarks[1].what
    silent = capabilities.learned(0, None, [], [], None, [])
    assert capabilities.encoding(topology, replace(tor, queue=None), silent).groups is False
    beside = replace(tor, coexist=Coexist(3, 500))
    theirs = capabilities.encoding(topology, beside, answered("Pica8", DSCP, 0b1001, everywhere))
    assert (theirs.table, theirs.priority, theirs.priority_any, theirs.groups, theirs.failover, theirs.notice) == (
        3, 500, 499, False, False, True)  # fmt: skip


def test_errors__by_the_names_of_the_specification() -> None:
    parser = DATAPATH.ofproto_parser
    known = parser.OFPErrorMsg(
        DATAPATH, type_=ofproto_v1_3.OFPET_GROUP_MOD_FAILED, code=ofproto_v1_3.OFPGMFC_GROUP_EXISTS
    )
    assert messages.explain(known) == "GROUP_MOD_FAILED (6): GROUP_EXISTS (0)"
    assert messages.explain(parser.OFPErrorMsg(DATAPATH, type_=77, code=5)) == "77: 5"
