"""The engine for wide areas in the simulator: small forms of `rostrum sim run wan`."""

from __future__ import annotations

from dataclasses import replace

from rostrum.sim.experiments.wan import GBIT, Case, one

MEMORY_BYTES = 512 << 20


def test_transfers_share_the_link_and_the_memory() -> None:
    row = one(Case("four", rate_bps=4 * GBIT, transfers=4, receivers=3, seconds=2.0), seed=1)
    assert row["jain"] >= 0.98, row
    assert row["share"] >= 0.5, row  # start-up is most of it
    assert 0 < row["memory_most_bytes"] <= MEMORY_BYTES, row


def test_start_up_takes_ten_round_trips_at_most() -> None:
    row = one(Case("far", rtt_s=0.2, receivers=10, seconds=2.0), seed=1)
    assert 0 < row["rate_reached_round_trips"] <= 10, row


def test_a_short_send_finds_its_rate_in_few_round_trips_and_overflows_nothing() -> None:
    """At 2.5 times what was carried for whole round trips it took 5.9 of them, and the queue lost 2,900 packets."""
    for rate, share in ((GBIT, 0.8), (GBIT // 5, 0.82)):
        case = Case("short", rate, 0.2, shared=False, receivers=3, seconds=5.0, nic_bps=10 * rate)
        row = one(case, seed=1)
        assert 0 < row["rate_reached_round_trips"] <= 3.5, row
        assert row["share"] >= share, row
        assert row["overflow"] == 0, row


def test_a_slow_receiver_stops_nobody_and_is_not_forgotten() -> None:
    row = one(Case("slow", receivers=5, seconds=1.0, slow_bps=GBIT // 10), seed=1)
    assert row["seconds"] < 4 < row["all_done_s"], row


def test_rate_does_not_swing_about_that_of_a_link_that_nobody_told() -> None:
    """It went from 160 to 265 Mbit/s and back, as it waited to see what was under way; the share was 0.94."""
    case = Case("untold", GBIT // 5, 0.05, shared=False, receivers=3, seconds=10.0, fragment=1440, nic_bps=GBIT)
    row = one(case, seed=1)
    assert row["share"] >= 0.965, row


def test_a_slow_receiver_is_known_by_start_up_however_long_its_queue() -> None:
    """That queue makes the group's round trip seven times as long, and such round trips were waited for."""
    row = one(Case("slow", seconds=1.5, slow_bps=GBIT // 10), seed=1)
    assert 0 < row["rate_reached_round_trips"] <= 12, row


def test_a_busy_host_is_not_taken_for_a_narrow_path() -> None:
    """A sender that stood still for 10 ms caught up 4 ms, and then took what had come of that for the path: 0.86."""
    case = Case("busy", GBIT // 5, 0.05, 0.0, receivers=3, seconds=10.0, fragment=1440, nic_bps=GBIT, stall_s=0.01)
    shares = [one(case, seed)["share"] for seed in (1, 2, 3)]
    assert sum(shares) / 3 >= 0.895, shares


def test_the_end_of_an_object_costs_few_round_trips() -> None:
    """What was lost of its last round trip was asked for after the end; as XORs that go again it is there before: with
    one second of data 0.54.
    """
    for loss, seconds, least in ((0.05, 4.0, 0.76), (0.01, 4.0, 0.84), (0.01, 1.0, 0.57)):
        case = Case(
            "end", GBIT // 5, 0.2, loss, shared=False, receivers=3, seconds=seconds, fragment=1440, nic_bps=GBIT
        )
        shares = [one(case, seed)["share"] for seed in (1, 2, 3)]
        assert sum(shares) / 3 >= least, (loss, seconds, shares)


def test_a_short_object_is_complete_before_anybody_can_ask() -> None:
    """What a round trip carries goes as XORs: with an eighth of the object a loss cost another one, 0.63, 0.92 and
    1.31 s in the mean.
    """
    seeds = range(1, 11)
    for fragments, most_s, most_packets in ((64, 0.46, 1.5), (1625, 0.83, 1.2), (8125, 1.24, 1.15)):
        seconds = fragments * (1440 + 98) * 8 / 200e6
        case = Case("short", GBIT // 5, 0.2, 0.01, False, 3, seconds=seconds, fragment=1440, nic_bps=GBIT)
        rows = [one(case, seed) for seed in seeds]
        print(fragments, [row["seconds"] for row in rows], [row["packets_each"] for row in rows])
        assert sum(row["seconds"] for row in rows) / len(rows) <= most_s, rows
        assert sum(row["packets_each"] for row in rows) / len(rows) <= most_packets, rows


def test_coded_repairs_are_fewer() -> None:
    """Ten receivers miss different packets: one XOR repairs several. As an option of a send it did nothing."""
    plain = Case("coding", loss=0.05, shared=False, seconds=1.0)
    packets = {
        options: one(replace(plain, options=options), seed=1)["packets_each"] for options in ("", "coding=repairs")
    }
    assert packets["coding=repairs"] - 1 < 0.5 * (packets[""] - 1), packets


def test_losses_in_bursts_do_not_hold_the_rate_down() -> None:
    """Each burst was tried by a lower rate for a round trip: 0.87 at 200 ms, where losses one by one leave 0.92."""
    for rtt, least in ((0.05, 0.97), (0.2, 0.92)):
        case = Case("bursts", GBIT // 5, rtt, 0.01, False, 3, seconds=10.0, fragment=1440, nic_bps=GBIT, burst=10.0)
        shares = [one(case, seed)["share"] for seed in (1, 2, 3)]
        print(shares)
        assert sum(shares) / 3 >= least, shares
