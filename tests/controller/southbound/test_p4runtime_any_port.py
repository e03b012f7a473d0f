"""Rules for any port on switches that match the port exactly."""

from __future__ import annotations

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


def test_half_of_a_rule__is_read_as_what_it_is() -> None:
    """So that it is found to lack what it lacks, and set again."""
    there = expand([MulticastRule("tor1", ANY_PORT, IPv4Address("239.192.0.1"), (1, 2))], PORTS)[:2]
    assert collapse(there, PORTS) == set(there)
