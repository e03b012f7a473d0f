"""Rules for any port on switches that match the port exactly."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

from hypothesis import given
from hypothesis import strategies as st
from rostrum.controller.core.model import ANY_PORT, MulticastRule
from rostrum.controller.southbound.p4runtime.any_port import collapse, expand

PORTS = [1, 2, 5]
RULES = st.lists(
    st.builds(
        MulticastRule,
        st.just("tor1"),
        st.sampled_from([ANY_PORT, 1, 2]),
        st.integers(1, 6).map(lambda n: IPv4Address(0xEFC00000 + n)),
        st.lists(st.sampled_from(PORTS), min_size=1, unique=True).map(sorted).map(tuple),
    ),
    unique_by=lambda rule: rule.group,
)


@given(RULES)
def test_rules__are_the_same_when_read_back(rules: list[MulticastRule]) -> None:
    there = expand(rules, PORTS)
    assert all(rule.in_port in PORTS for rule in there)
    assert len({(rule.in_port, rule.group) for rule in there}) == len(there)
    assert collapse(there, PORTS) == set(rules)


@given(RULES, st.lists(st.sampled_from([1, 2]), unique=True).map(sorted).map(tuple))
def test_barred_ports__are_read_back(rules: list[MulticastRule], barred: tuple[int, ...]) -> None:
    """Where there are tenants: ports 1 and 2 lead to servers, 5 to another switch, and each rule's tenant is at one."""
    barred = barred[:1]
    rules = [replace(rule, barred=barred) if rule.in_port == ANY_PORT else rule for rule in rules]
    there = expand(rules, PORTS)
    assert not any(rule.in_port in barred for rule in there if rule.group in {r.group for r in rules if r.barred})
    assert collapse(there, PORTS, [1, 2]) == set(rules)
    gone = {(rule.in_port, rule.group) for rule in expand(rules, PORTS, barred=True)}
    assert gone >= {(rule.in_port, rule.group) for rule in there}


def test_half_of_a_rule__is_read_as_what_it_is() -> None:
    """So that it is found to lack what it lacks, and set again."""
    there = expand([MulticastRule("tor1", ANY_PORT, IPv4Address("239.192.0.1"), (1, 2))], PORTS)[:2]
    assert collapse(there, PORTS) == set(there)
