"""What preflight concludes from what probes found."""

from __future__ import annotations

from dataclasses import replace

from rostrum.controller.core.diagnostics.preflight import Evidence, judge
from rostrum.controller.core.values import Budget

GOOD = Evidence("h3", 5, 9000, "", 5, 5, 5, 5, 9000, "")


def checks(evidence: Evidence, send_cause: str = "") -> list[tuple[str, str]]:
    return [(one.severity, one.check) for one in judge(evidence, "h1", send_cause).findings]


def test_judge__a_good_receiver_works_and_nothing_is_said() -> None:
    verdict = judge(GOOD, "h1")
    assert verdict.works and verdict.multicast and verdict.full_sized and verdict.reachable and not verdict.findings


def test_judge__an_agent_that_cannot_look_is_the_finding() -> None:
    verdict = judge(replace(GOOD, listen_cause="the agent of h3 is not connected"), "h1")
    assert not verdict.works
    assert verdict.findings[0].what == "the agent of h3 is not connected" and "rostrumd" in verdict.findings[0].mend


def test_judge__multicast_that_is_filtered_is_told_from_a_broken_network() -> None:
    filtered = judge(replace(GOOD, group_small=0, group_full=0), "h1").findings
    assert [one.check for one in filtered] == ["group"] and "IGMP" in filtered[0].mend
    broken = judge(replace(GOOD, group_small=0, group_full=0, unicast_small=0, unicast_full=0), "h1").findings
    assert "nor does unicast" in broken[0].mend


def test_judge__a_small_mtu_on_the_way_or_at_an_end() -> None:
    assert checks(replace(GOOD, group_full=0, unicast_full=0)) == [("error", "mtu"), ("error", "mtu")]
    at_end = judge(replace(GOOD, group_full=0, unicast_full=0, nic_mtu=1500), "h1").findings
    assert [one.what for one in at_end] == ["the data NIC of h3 has an MTU of 1500, the topology says 9000"]
    text = "the data NIC does not take packets of 9000 bytes: its MTU is smaller"
    at_sender = judge(replace(GOOD, group_full=0, unicast_full=0), "h1", text).findings
    assert [one.subject for one in at_sender] == ["h1"]


def test_judge__loss_and_little_light_are_warnings() -> None:
    assert checks(replace(GOOD, group_small=3)) == [("warning", "group")]
    weak = replace(GOOD, budget=Budget("tor2", 2, ("s1",), -15.6, 0.4))
    assert checks(weak) == [("warning", "light")] and judge(weak, "h1").works


def test_judge__a_closed_control_port_is_not_the_network() -> None:
    verdict = judge(replace(GOOD, reach_cause="Connection refused"), "h1")
    assert not verdict.reachable and "firewall" in verdict.findings[0].mend
