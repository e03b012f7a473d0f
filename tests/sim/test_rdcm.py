"""Sessions of RDCM and its rivals in simulated data centers, and the experiments about them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from rostrum.sim import hierarchies, multicast, views
from rostrum.sim.experiments import commands
from rostrum.sim.multicast import CONSTANTS, PROTOCOLS, Group, Load, Session, rdcm_of
from rostrum.sim.network import LinkParams, RdcmParams
from rostrum.topologies.families import named

FAMILIES = ("bcube:3,2", "fat-tree:4", "vl2:4,2")


@pytest.fixture(autouse=True)
def seed() -> Iterator[int]:
    value = random.SystemRandom().randrange(1 << 20)
    print(f"seed {value}")
    yield value


def group_of(family: str, receivers: int, seed: int) -> Group:
    return Group.drawn(named(family), receivers, seed)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_session__delivers_all_under_losses(protocol: str, family: str, seed: int) -> None:
    group = group_of(family, 10, seed)
    outcome = Session(group, protocol, Load(packets=200, loss=0.01), seed).run()
    assert 0 < outcome.worst <= outcome.completion <= 1
    assert 0 < outcome.goodput <= 1
    assert outcome.footprint > 0.9


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_session__without_loss_takes_the_tree_alone(protocol: str, seed: int) -> None:
    outcome = Session(group_of("bcube:3,2", 12, seed), protocol, Load(packets=400), seed).run()
    assert outcome.footprint == pytest.approx(1.0)
    assert outcome.goodput > 0.85


def test_session__same_seed_same_figures(seed: int) -> None:
    group = group_of("bcube:3,2", 12, seed)
    runs = [Session(group, "rdcm", Load(packets=200, loss=0.01), seed).run() for _ in range(2)]
    figures = [(one.goodput, one.worst, one.footprint, one.control, one.events, one.memory_bytes) for one in runs]
    assert figures[0] == figures[1]


def test_rdcm__agents_constants_and_the_papers_both_deliver(seed: int) -> None:
    """The agents' are read from the core; the paper's overlay has its proxies at random, the manager's the nearest."""
    for constants in CONSTANTS:
        group = Group.drawn(named("bcube:4,2"), 30, seed)
        group.random_proxies = constants == "paper"
        params = rdcm_of(constants)
        outcome = Session(group, "rdcm", Load(packets=200, loss=0.01), seed, params).run()
        assert outcome.worst > 0
        assert params.no_congestion_control
    assert rdcm_of("agents") == replace(RdcmParams.of_agents(), no_congestion_control=True) != rdcm_of("paper")
    late = RdcmParams(loss_delay_ns=7)  # a study's own condition stays with the agents' constants, too
    assert rdcm_of("paper", late) == late
    assert rdcm_of("agents", late) == replace(RdcmParams.of_agents(), loss_delay_ns=7)


def test_rdcm__a_thousand_receivers_have_all_sooner_than_by_rmtp() -> None:
    """With the agents' constants, at 1 % loss of each link, in the mean of three groups; the last one, too. And not
    at any price: repairs are 2 % of the bytes more than RMTP's."""
    seeds = (1, 2, 3)
    groups = {seed: Group.drawn(named("bcube:8,3"), 1000, seed) for seed in seeds}
    load = Load(packets=1024, loss=0.01)
    ours = [Session(groups[seed], "rdcm", load, seed, rdcm_of("agents")).run() for seed in seeds]
    best = [Session(groups[seed], "rmtp", load, seed).run() for seed in seeds]
    assert sum(o.completion for o in ours) > sum(o.completion for o in best)
    assert min(o.worst for o in ours) > 0.65
    assert all(a.footprint < b.footprint + 0.03 for a, b in zip(ours, best, strict=True))


# The worst seed of 1 to 8: 0.195 doubles a loss (0.03 to 0.11 elsewhere) by the paper's constants, 0.066 by agents'
# (0.01 to 0.06). In virtual time that is the same anywhere. More than one in five, or ten, means repairs upon repairs.
@pytest.mark.parametrize(("constants", "seed_of_it", "most"), [("paper", 7, 0.2), ("agents", 3, 0.1)])
def test_rdcm__a_long_session_at_full_load_does_not_drown_in_its_own_repairs(
    constants: str, seed_of_it: int, most: float
) -> None:
    """Without congestion control queues grow, and answers come later and later: they are not taken for losses."""
    group = group_of("bcube:4,2", 30, seed_of_it)
    session = Session(group, "rdcm", Load(packets=8192, loss=0.01), seed_of_it, rdcm_of(constants))
    outcome = session.run()
    stats = [session.stats(name) for name in group.receivers]
    lost, doubled = (sum(one[name] for one in stats) for name in ("losses", "peer_repairs_old"))
    assert doubled < most * lost
    assert outcome.completion > 0.85


def test_rdcm__who_is_behind_narrow_links_gets_what_they_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has most children, and all wait for it: those above pass its window on as often as it needs that."""
    monkeypatch.setattr(multicast, "LINK", LinkParams(delay_ns=1_000, queue_bytes=64 * 1100))
    group = group_of("bcube:4,2", 30, 2)
    narrow = max(group.receivers, key=lambda name: len(group.overlay.view(name).children))
    links = {ends: rate // 10 if narrow in ends else rate for ends, rate in group.graph.links.items()}
    group = Group(replace(group.graph, links=links), group.sender, group.receivers)
    rdcm = replace(rdcm_of("agents"), no_congestion_control=False)
    session = Session(group, "rdcm", Load(packets=1024, loss=0.005), 2, rdcm)
    outcome = session.run()
    stats = [session.stats(name) for name in group.receivers]
    lost, sent, doubled = (
        sum(one[name] for one in stats) for name in ("losses", "peer_repairs_sent", "peer_repairs_old")
    )
    assert outcome.completion > 0.05  # of 0.1; it had been 0.0035
    assert sent < 1.1 * lost
    assert doubled < 0.05 * lost


def test_rdcm__repairs_take_fewer_links_than_srms(seed: int) -> None:
    group = group_of("bcube:4,2", 40, seed)
    rdcm, srm = (Session(group, name, Load(packets=512, loss=0.01), seed).run() for name in ("rdcm", "srm"))
    assert rdcm.footprint < 1.15 < srm.footprint
    assert rdcm.goodput > srm.goodput
    assert rdcm.completion > 1.3 * srm.completion


@pytest.mark.parametrize("family", FAMILIES)
def test_regions__each_receiver_has_one_parent_and_the_sender_reaches_all(family: str, seed: int) -> None:
    group = group_of(family, 12, seed)
    for found in (group.regions, group.sites):
        parents = {member: region.mender for region in found for member in region.members}
        assert set(parents) == set(group.receivers)
        assert sum(len(region.members) for region in found) == len(parents)
        for name in parents:
            for _ in range(len(parents)):
                name = parents.get(name, name)
            assert name == group.sender


def test_way__leads_along_the_tree(seed: int) -> None:
    group = group_of("bcube:3,2", 10, seed)
    for a in group.receivers:
        for b in group.receivers:
            if a == b:
                continue
            nodes = hierarchies.way(group.tree, a, b)
            assert nodes[0] == a and nodes[-1] == b and len(set(nodes)) == len(nodes)
            up_or_down = {*group.tree.links, *((b, a) for a, b in group.tree.links)}
            assert all(link in up_or_down for link in pairwise(nodes))


def test_views__say_to_each_what_others_expect_of_it(seed: int) -> None:
    """Successors and predecessors agree; parents know exactly those who acknowledge to them."""
    group = group_of("bcube:3,2", 12, seed)
    nodes = {name: number for number, name in enumerate(group.graph.servers)}
    seen = {nodes[name]: view for name, view in views.of_overlay(group.overlay, nodes, 1)}
    children: dict[int, set[int]] = {node: set() for node in seen}
    for node, view in seen.items():
        for ring in ("leaf", "proxy"):
            place = getattr(view, ring)
            if place.successor is None:
                continue
            assert node in {seen[place.successor].leaf.predecessor, seen[place.successor].proxy.predecessor}
            assert node in {seen[place.predecessor].leaf.successor, seen[place.predecessor].proxy.successor}
            if place.parent is not None:
                children[place.parent].add(node)
    assert {node: set(view.children) for node, view in seen.items()} == children


@pytest.mark.parametrize(
    ("name", "options", "path"),
    [
        ("rdcm-goodput", ["--network", "bcube:3,2", "-n", "9", "--packets", "128", "--loss", "1"],
         ["goodput_over_capacity", "rdcm", "1.0"]),
        ("rdcm-footprint", ["--network", "bcube:3,2", "-n", "9", "--packets", "128", "--loss", "0.2"],
         ["footprint_over_tree", "srm", "0.2"]),
        ("rdcm-burden", ["--network", "bcube:3,2", "-n", "4", "-n", "9", "--packets", "128"],
         ["peers_mended_most", "9"]),
        ("rdcm-congestion", ["--seconds", "1", "-n", "3"], ["mean_mbps", "2", "400 Mbit/s"]),
        ("rdcm-failure", ["--seconds", "1"], ["link_detection_ms"]),
        ("rdcm-burden", ["--network", "bcube:3,2", "-n", "9", "--packets", "128", "--constants", "agents"],
         ["acks_sent", "9"]),
        ("rdcm-congestion", ["--seconds", "1", "-n", "3", "--constants", "agents"], ["mean_mbps", "2", "400 Mbit/s"]),
        ("rdcm-failure", ["--seconds", "1", "--constants", "agents"], ["link_detection_ms"]),
    ],
)  # fmt: skip
def test_experiments__write_their_figures(name: str, options: list[str], path: list[str], tmp_path: Path) -> None:
    json_file, png = tmp_path / "x.json", tmp_path / "x.png"
    result = CliRunner().invoke(commands()[name], [*options, "--json", str(json_file), "--png", str(png)])
    assert result.exit_code == 0, result.output
    report = json.loads(json_file.read_text())
    value = report["summary"]
    for key in path:
        value = value[key]
    assert value > 0
    assert report["instrument"] == "sim" and report["manifest"]["seed"] == 1
    assert png.read_bytes().startswith(b"\x89PNG")


def test_joins_and_leaves__those_who_stay_do_not_wait_for_the_senders_answer(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    options = ["--network", "bcube:3,2", "-n", "20", "--packets", "2048", "--share", "0.2", "--seeds", "2"]
    result = CliRunner().invoke(commands()["rdcm-joins"], [*options, "--json", str(file)])
    assert result.exit_code == 0, result.output
    report = json.loads(file.read_text())
    assert len(report["runs"]) == 2 * 2 * 4
    for row in report["runs"]:
        assert (row["joiners_ms"] != {}) == (row["changes"] in ("joins", "both"))
        assert row["changes"] != "leaves" or row["requests"] == 0
