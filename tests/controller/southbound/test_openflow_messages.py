"""Rules as OpenFlow messages and back, without a switch."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from os_ken.ofproto import ofproto_protocol, ofproto_v1_3
from rostrum.controller.core.model import ANY_PORT, MulticastRule, SouthboundError, UnicastRule
from rostrum.controller.southbound.openflow import messages

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
    flow, group = messages.add_multicast_flow(DATAPATH, rule), messages.set_group(DATAPATH, rule, exists=False)
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
    flow = messages.add_multicast_flow(DATAPATH, rule)
    assert dict(flow.match.items()) == {"eth_type": 0x0800, "ipv4_dst": "239.192.1.2"}
    assert flow.priority < messages.add_multicast_flow(DATAPATH, other).priority
    assert flow.priority == messages.delete_multicast_flow(DATAPATH, rule).priority
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
def test_impossible_rules__refused_in_words(rule: MulticastRule) -> None:
    with pytest.raises(SouthboundError, match="tor1: "):
        messages.set_group(DATAPATH, rule, exists=False)


def test_errors__in_the_words_of_the_specification() -> None:
    parser = DATAPATH.ofproto_parser
    known = parser.OFPErrorMsg(
        DATAPATH, type_=ofproto_v1_3.OFPET_GROUP_MOD_FAILED, code=ofproto_v1_3.OFPGMFC_GROUP_EXISTS
    )
    assert messages.explain(known) == "GROUP_MOD_FAILED (6): GROUP_EXISTS (0)"
    assert messages.explain(parser.OFPErrorMsg(DATAPATH, type_=77, code=5)) == "77: 5"
