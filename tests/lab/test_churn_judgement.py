"""What churn holds against the product, and what it excuses: made-up runs, so that each verdict is known beforehand."""

from __future__ import annotations

from rostrum.lab.churn.disruptions import Disruption
from rostrum.lab.churn.inventory import Inventory, leaks, tables
from rostrum.lab.churn.workload import Failure, Messages, Published, Subscribed, judge

RACKS = {"h1": "tor1", "h3": "tor2", "h5": "tor3"}


def verdicts(failure: Failure, *disruptions: Disruption) -> list[str | None]:
    rows = judge([failure], list(disruptions), RACKS)
    return [row["excused_by"] and row["excused_by"]["kind"] for row in rows]


def failed(server: str = "h3", cause: str = "said nothing for 5 s", never_excused: bool = False) -> Failure:
    return Failure("object 1", server, ("h1", "h3", "h5"), 10.0, 20.0, cause, never_excused)


def test_killed_receiver_excuses_itself__but_nobody_else() -> None:
    killed = Disruption("kill-agent", "h3", 12.0, 13.0)
    assert verdicts(failed("h3"), killed) == ["kill-agent"]
    assert verdicts(failed("h5"), killed) == [None]


def test_killed_receivers_excuse_a_sender_that_lost_all_of_them__but_no_fewer() -> None:
    one, other = Disruption("kill-agent", "h3", 12.0, 13.0), Disruption("kill-agent", "h5", 14.0, 15.0)
    lost = failed("h1", cause="stream 1: 2 of 2 receivers failed; the first: aborted: the agent of h3 is ending")
    assert verdicts(lost, one, other) == ["kill-agent"]
    assert verdicts(lost, one) == [None]
    assert verdicts(failed("h1", cause="1 of 2 receivers failed"), one, other) == [None]


def test_killed_sender_excuses_all() -> None:
    assert verdicts(failed("h5"), Disruption("kill-agent", "h1", 9.0, 9.5)) == ["kill-agent"]


def test_pauses_shorter_than_the_bound_on_silence_excuse_nobody() -> None:
    assert verdicts(failed("h3"), Disruption("pause-agent", "h3", 11.0, 12.0)) == [None]
    assert verdicts(failed("h3"), Disruption("pause-agent", "h3", 11.0, 19.0)) == ["pause-agent"]


def test_a_manager_or_an_ocs_that_is_away_excuses_nobody() -> None:
    for kind in ("kill-manager", "pause-manager", "kill-ocs", "pause-ocs", "ocs-fault", "clock-step", "drop-sessions"):
        assert verdicts(failed("h3"), Disruption(kind, "manager", 9.0, 21.0)) == [None]


def test_cut_link_excuses_its_rack_if_it_was_long() -> None:
    assert verdicts(failed("h3"), Disruption("cut-link", "core tor2", 10.0, 17.0)) == ["cut-link"]
    assert verdicts(failed("h5"), Disruption("cut-link", "core tor2", 10.0, 17.0)) == [None]
    assert verdicts(failed("h3"), Disruption("cut-link", "core tor2", 10.0, 11.0)) == [None]


def test_p4_switch_that_was_away_excuses_its_racks_if_it_was_long() -> None:
    assert verdicts(failed("h3"), Disruption("kill-switch", "tor2", 12.0, 15.0)) == ["kill-switch"]
    assert verdicts(failed("h3"), Disruption("pause-switch", "core tor1 tor2 tor3", 12.0, 16.0)) == ["pause-switch"]
    assert verdicts(failed("h5"), Disruption("kill-switch", "tor2", 12.0, 15.0)) == [None]
    assert verdicts(failed("h3"), Disruption("kill-switch", "tor2", 12.0, 13.0)) == [None]


def test_wrong_bytes_and_failures_without_a_reason_are_never_excused() -> None:
    killed = Disruption("kill-agent", "h3", 12.0, 13.0)
    assert verdicts(failed("h3", never_excused=True), killed) == [None]
    assert verdicts(failed("h3", cause=""), killed) == [None]


def test_what_is_over_long_before_excuses_nothing() -> None:
    assert verdicts(failed("h3"), Disruption("kill-agent", "h3", 1.0, 2.0)) == [None]


def heard(*numbers: int, losses: tuple[tuple[float, str], ...] = ()) -> list[Failure]:
    group = Messages("churn-plain", [Published("h1", 7, 3, 20.0, 22.0)])
    group.subscribed.append(Subscribed("h3", 5.0, 60.0, [(21.0, 7, number) for number in numbers], list(losses)))
    return group.silent_losses()


def test_messages_that_are_lost_unreported_are_found() -> None:
    assert not heard(0, 1, 2)
    assert [one.cause for one in heard()] == ["3 of 3 messages did not come, and nobody said so"]
    assert [one.cause for one in heard(0, 2)] == ["1 of 3 messages did not come, and nobody said so"]
    assert not heard(0, 2, losses=((21.5, "h1"),))
    assert heard(0, 2, losses=((21.5, "h5"),))  # of another sender
    assert [one.cause for one in heard(1, 0, 2)] == ["messages out of order"]


def test_subscriber_that_was_there_for_a_part_only_is_not_judged() -> None:
    group = Messages("churn-plain", [Published("h1", 7, 3, 20.0, 22.0)], [Subscribed("h3", 19.0, 60.0)])
    assert not group.silent_losses()


def test_leaks_are_named() -> None:
    before = Inventory(descriptors={"h1": 20}, memory_bytes={"h1": 20 << 20}, flows=1, objects=2, meters=1)
    assert not leaks(before, Inventory(descriptors={"h1": 22}, memory_bytes={"h1": 30 << 20}, flows=1, objects=1))
    after = Inventory(
        descriptors={"h1": 40}, memory_bytes={"h1": 90 << 20}, flows=3, openflow_groups=1, meters=2, objects=2,
        journal_bytes=1 << 20,
        unexplained=["cross-connect 1-2 of ocs is in no circuit"],
    )  # fmt: skip
    assert leaks(before, after) == [
        "cross-connect 1-2 of ocs is in no circuit",
        "flows: 1 at the start, 3 at the end",
        "openflow_groups: 0 at the start, 1 at the end",
        "meters: 1 at the start, 2 at the end",
        "journal: 0 bytes at the start, 1048576 at the end",
        "descriptors of h1: 20 at the start, 40 at the end",
        "memory of h1: 20 MiB at the start, 90 MiB at the end",
    ]


SHOWN = """
flows tor1 OFPST_FLOW reply (OF1.3) (xid=0x2):
flows tor1  cookie=0x1, n_packets=3, priority=40000,ip,in_port=1,nw_dst=239.192.0.1 actions=set_queue:1,group:77
flows tor1  cookie=0x1, n_packets=3, priority=40000,ip,in_port=2,nw_dst=239.192.0.2 actions=group:78
flows tor1  cookie=0x2, n_packets=9, priority=100,ip,nw_dst=10.0.1.1 actions=output:1
groups tor1 OFPST_GROUP_DESC reply (OF1.3) (xid=0x2):
groups tor1  group_id=77,type=all,bucket=actions=output:2
groups tor1  group_id=78,type=all,bucket=actions=output:3
groups core  group_id=77,type=all,bucket=actions=output:2
meters tor1 OFPST_METER_CONFIG reply (OF1.3) (xid=0x2):
meters tor1 meter=1 kbps bands=
"""


def test_tables_of_switches_are_counted__and_what_nobody_uses_is_named() -> None:
    known = {("tor1", "239.192.0.1"), ("tor1", "239.192.0.2")}
    found = Inventory()
    tables(SHOWN, known, {("tor1", "239.192.0.1")}, found)  # the other one is kept for reuse
    assert (found.flows, found.openflow_groups, found.other_flows, found.meters) == (1, 1, 1, 1)
    assert found.unexplained == ["entry 77 of core's group table, which no flow uses"]
    found = Inventory()
    tables(SHOWN, set(), set(), found)
    assert len(found.unexplained) == 3 and not found.flows


def test_quiet_is_when_nothing_is_used_or_being_taken_away() -> None:
    assert not Inventory(other_flows=97, message_groups=2, objects=3).busy
    assert Inventory(flows=1).busy and Inventory(paths=1).busy and Inventory(unexplained=["a flow"]).busy
