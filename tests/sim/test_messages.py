"""Message groups in the simulator: what is published comes, once, and losses are mended as the workload says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from rostrum.sim import network as sim
from rostrum.sim import qsm
from rostrum.sim.groups import GroupParams, Groups
from rostrum.sim.network import LinkParams, Network, SimError
from rostrum.sim.ricochet import Setting, grouping, run

SMALL = Setting(nodes=12, degree=6, size=4, seconds=2.0, settle_s=1.5, loss_percent=5.0)


def test_without_losses_nothing_is_recovered() -> None:
    row = run(replace(SMALL, loss_percent=0.0))
    assert row["expected"] > 5000
    assert row["lost_on_the_way"] == 0


def test_with_naks_everything_comes() -> None:
    row = run(replace(SMALL, naks=True))
    assert row["lost_on_the_way"] > 100
    assert row["recovered_share"] == 1.0
    assert row["lec_recovery_share"] > 0.8, "most of it by repairs"


@pytest.mark.parametrize(("rate", "link_bps"), [(1000.0, 100_000_000), (450.0, 12_000_000)])
def test_with_a_fifth_of_all_lost_everything_comes_within_250_ms(rate: float, link_bps: int) -> None:
    """Requests and answers are lost as well (Ricochet, figure 8); answers take their time where links are half full."""
    row = run(Setting(nodes=16, loss_percent=20.0, naks=True, seconds=8.0, rate=rate, link_bps=link_bps))
    assert row["lost_on_the_way"] > 7_500
    assert row["recovered_share"] == 1.0
    assert row["lec_recovery_share"] > 0.84, "as many as the paper has by repairs"
    assert row["later_share"] < 0.0005  # 0.0021 where the first request waits 100 ms
    assert row["heartbeats_per_data"] < 2.2  # 3.7 where each group has its own


@pytest.mark.parametrize("link_bps", [6_000_000, 3_000_000])
def test_a_network_that_is_overloaded_is_not_asked_for_more(link_bps: int) -> None:
    """What is missing is missing because there is too much: each packet was asked for 130 times."""
    row = run(Setting(nodes=16, loss_percent=20.0, naks=True, rate=450.0, seconds=4.0, link_bps=link_bps,
                      queue_bytes=256 << 10))  # fmt: skip
    assert row["lost_on_the_way"] > 5_000
    assert row["naks_per_missing"] < 0.5
    assert row["answers_per_missing"] < 0.5


def test_a_plain_group_recovers_nothing_and_finds_losses_late() -> None:
    row = run(replace(SMALL, protocol="plain"))
    assert row["recovered_share"] == 0.0
    # Each node publishes 250 a second to 18 groups: a stream has one in 72 ms.
    assert 30 < row["discovery_ms"]["mean"] < 150


def test_repairs_cost_what_the_rate_of_fire_says() -> None:
    """c / r repairs for each packet received, in groups that have more than c other members."""
    row = run(replace(SMALL, nodes=20, size=16, degree=8, r=8, c=2.0))
    assert row["repairs_per_data"] == pytest.approx(2 / 8, rel=0.1)


def test_few_large_overlaps_leave_no_more_than_many_small_ones() -> None:
    """Two losses near each other, in groups whose members all receive the same: not in the same repairs everywhere."""
    row = run(Setting(nodes=64, degree=2, seconds=12.0))
    assert row["lost_on_the_way"] > 6_000
    assert row["lec_recovery_share"] > 0.995  # 0.989 where a bin puts every packet into its one repair
    assert row["lec_latency_ms"]["mean"] < 8


def test_the_same_seed_gives_the_same_bits() -> None:
    def bits(seed: int) -> tuple[object, ...]:
        row = run(replace(SMALL, seed=seed))
        return tuple(row[name] for name in ("expected", "lost_on_the_way", "events", "recoveries_ms", "lec_latency_ms"))

    assert bits(3) == bits(3)
    assert bits(3) != bits(4)


def test_a_grouping_is_what_its_numbers_say() -> None:
    setting = Setting(nodes=64, degree=128, size=10)
    members = grouping(setting)
    assert len(members) == setting.groups == 819
    assert all(sum(node in group for group in members) == 128 for node in range(64))
    assert all(len(set(group)) == len(group) for group in members)


def test_a_group_of_a_host_without_the_engine_is_refused() -> None:
    net = Network()
    hub, host, other = net.switch(), net.server(), net.server()
    for node in (host, other):
        net.link(node, hub, LinkParams())
    groups = Groups(net)
    groups.use(host)
    with pytest.raises(SimError, match=f"node {other} is no host with message groups"):
        groups.group([host, other])
    with pytest.raises(SimError, match="has an engine already"):
        groups.use(host)
    with pytest.raises(SimError, match="at least 8 bytes"):
        groups.publish(host, 1.0, 4, 0, 10**9)
    with pytest.raises(SimError, match=r"refuses group .*: r 1000 is out of range: r of ricochet is .* 1 to 32"):
        groups.group([host], GroupParams(options={"r": 1000}))


RESEND = """
import json, sys
from rostrum.sim.groups import GroupParams, Groups
from rostrum.sim.network import LinkParams, Network, SimError
net = Network(7)
hub, hosts = net.switch(), [net.server() for _ in range(6)]
links = [net.link(host, hub, LinkParams(100_000_000, 20_000, 4 << 20)) for host in hosts]
groups = Groups(net)
for place, host in enumerate(hosts):
    groups.use(host)
    net.loss(links[place][1], "bernoulli", 0.05, 1)
try:
    number = groups.group(hosts, GroupParams(sys.argv[1], options={}))
except SimError as error:
    sys.exit(str(error))
for channel in (number, number + (1 << 24)):
    net.group(hub, channel, [link[1] for link in links])
    for host, link in zip(hosts, links):
        net.group(host, channel, [link[0]], member=True)
for host in hosts:
    groups.publish(host, 200.0, 1000, 0, 2 * 10**9)
net.run(4 * 10**9)
print(json.dumps(groups.stats()))
"""


def test_an_engine_of_groups_that_the_agent_does_not_have() -> None:
    """tests/agent/core/engines/resend.c, by nothing but a row in its own library's table of engines."""
    library = sim.LIBRARY.parent.parent / "tests/agent/core/engines/librostrum_sim_plainseq.so"
    told = {}
    for engine, loaded in (("resend", library), ("plain", library), ("resend", sim.LIBRARY)):
        environment = os.environ | {"ROSTRUM_SIM_LIBRARY": str(loaded)}
        command = [sys.executable, "-c", RESEND, engine]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        if loaded == library:
            assert done.returncode == 0, done.stderr
            told[engine] = json.loads(done.stdout)
        else:
            assert "there is no group protocol 'resend' here; there is plain, ricochet" in done.stderr
    expected = told["resend"]["expected"]
    assert expected > 10_000 and told["resend"]["lost"] == 0
    assert told["resend"]["by_data"] + told["resend"]["by_retransmit"] == expected
    assert told["resend"]["by_retransmit"] > expected * 0.03
    assert told["plain"]["by_data"] < told["plain"]["expected"]


def setting(**given: Any) -> qsm.Setting:
    """With processors that are the same whatever was measured last."""
    return qsm.Setting(costs=qsm.GUESSED, **given)


def test_regions_that_many_groups_share_deliver_all_and_recover_by_tokens() -> None:
    row = qsm.run(setting(nodes=12, groups=64, senders=2, loss_percent=2.0, seconds=0.2))
    assert row["delivered"] == row["expected"] > 10_000
    assert row["recovered"] > 100
    assert row["recovery_token_rounds"] < 10


def test_a_token_a_second_recovers_within_a_few_rounds() -> None:
    row = qsm.run(setting(nodes=10, loss_percent=1.0, token_ms=1000, rate=1, seconds=8.0))
    assert row["delivered"] == row["expected"] > 5_000
    assert 0.5 < row["recovery_token_rounds"] < 5


def test_losses_and_many_senders_cost_little_rate() -> None:
    """Late packets were taken for lost once, and of two leaders the tokens multiplied: half of the rate was left."""
    one = qsm.run(setting(nodes=12, seconds=0.2))
    losing = qsm.run(setting(nodes=12, loss_percent=1.0, seconds=0.2))
    crowd = qsm.run(setting(nodes=12, senders=6, seconds=0.2))
    for row in (one, losing, crowd):
        assert row["delivered"] == row["expected"] > 50_000
    assert losing["rate_per_s"] > 0.9 * one["rate_per_s"]
    assert losing["recovery_ms"] < 30
    assert crowd["rate_per_s"] > 0.8 * one["rate_per_s"]


def test_more_than_receivers_can_hold_is_not_sent_ahead_of_what_is_missing() -> None:
    """With a token in 100 ms a packet is mended after a quarter of a second: receivers overwrote what waited for it."""
    row = qsm.run(setting(loss_percent=1.0, token_ms=100, seconds=0.8))
    assert row["delivered"] == row["expected"] > 300_000
    assert row["recovery_token_rounds"] < 3


def test_after_a_node_stood_still_all_have_everything_and_the_rate_is_back_soon() -> None:
    """The node asked for the same packets in each round until they came: their doubles held up what it missed; the
    sender took its losses for overload; and what came behind them did not fit what a receiver keeps."""
    fast = replace(qsm.GUESSED, receive_ns=7000, send_ns=9000, message_ns=50)
    row = qsm.run(qsm.Setting(nodes=10, seconds=2.6, freeze_s=0.5, sample_s=0.1, costs=fast))
    assert row["delivered"] == row["expected"] > 1_000_000
    assert row["buffer_lost"] > 1000, "the node had something to recover"
    before, after = row["samples_per_s"][2:12], row["samples_per_s"][24:]
    assert min(after) > 0.9 * qsm.mean(before)


def test_with_a_slow_receiver_all_go_as_fast_as_it_can_and_fast_again_once_it_is() -> None:
    """A tenth of the others' processor: it misses nothing, it is not left behind, and all are as fast as before 1 s
    after it is."""
    row = qsm.run(setting(nodes=16, slow_host=10, slow_s=0.8, warm_s=0.2, seconds=1.8, sample_s=0.1))
    assert row["delivered"] == row["expected"] > 100_000
    fast = qsm.could_take(setting())
    while_slow, after = row["samples_per_s"][2:6], row["samples_per_s"][16:]
    assert 0.5 * row["could_per_s"] < qsm.mean(while_slow) < 1.1 * row["could_per_s"] < 0.2 * fast
    assert min(after) > 0.8 * fast


def test_with_a_slow_link_all_go_as_fast_as_it_carries() -> None:
    row = qsm.run(setting(nodes=16, slow_link=50, warm_s=1.0, seconds=0.4))
    assert row["delivered"] == row["expected"] > 50_000
    assert 0.5 * row["could_per_s"] < row["rate_per_s"] < row["could_per_s"]


def test_the_paper_s_rate_control_follows_a_slow_receiver_too() -> None:
    """It grows by 0.05 a second from 1,000 a second; the slow one reads 1,040."""
    row = qsm.run(setting(nodes=6, slow_host=60, rate=1, token_ms=1000, warm_s=15.0, seconds=15.0))
    assert row["delivered"] == row["expected"]
    assert 0.5 * row["could_per_s"] < row["rate_per_s"] < 1.3 * row["could_per_s"]


def test_a_group_in_several_regions_reaches_all_of_them() -> None:
    row = qsm.run(setting(nodes=9, regions=3, loss_percent=1.0, seconds=0.2))
    assert row["delivered"] == row["expected"] > 10_000
