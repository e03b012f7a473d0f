"""Multicast trees in the families of data center networks: right, small, and calm."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rostrum.controller.core.packet.steiner import SteinerTree, Unreachable
from rostrum.topologies.families import Graph, bcube, fat_tree, vl2

GRAPHS = {graph.name: graph for graph in (fat_tree(4), vl2(4, 4, per_rack=3), bcube(4, 1), bcube(2, 2))}


def tree_of(graph: Graph, sender: str, receivers: list[str]) -> SteinerTree:
    return SteinerTree.build(sender, receivers, graph.neighbours, graph.passes)


def check(graph: Graph, tree: SteinerTree) -> None:
    """Spans its receivers, has no loop, no link twice, no node in vain, no server that must not forward."""
    assert len(tree.links) == len(tree.parents)
    for name in tree.receivers:
        way = tree.way(name)
        assert way[0] == tree.sender and len(way) == len(set(way))
        assert all(b in graph.neighbours[a] for a, b in pairwise(way))
        assert all(graph.passes(node) for node in way[1:-1])
    needed = {node for name in tree.receivers for node in tree.way(name)}
    assert set(tree.parents) == needed - {tree.sender}


def least(graph: Graph, sender: str, receivers: list[str]) -> int:
    """The true optimum, by trying sets of extra nodes in order of size (small graphs only)."""
    terminals = {sender, *receivers}
    others = [name for name in graph.neighbours if name not in terminals and graph.passes(name)]
    for extra in range(len(others) + 1):
        for chosen in combinations(others, extra):
            if connected(graph, terminals | set(chosen), sender):
                return len(terminals) + extra - 1
    raise AssertionError("not connected at all")


def connected(graph: Graph, nodes: set[str], start: str) -> bool:
    seen, waiting = {start}, [start]
    while waiting:
        node = waiting.pop()
        if node != start and not graph.passes(node):
            continue
        for neighbour in graph.neighbours[node]:
            if neighbour in nodes and neighbour not in seen:
                seen.add(neighbour)
                waiting.append(neighbour)
    return seen >= nodes


@pytest.mark.parametrize("name", GRAPHS)
@given(data=st.data())
def test_build__is_a_tree_that_spans_its_receivers(name: str, data: st.DataObject) -> None:
    graph = GRAPHS[name]
    sender, *receivers = data.draw(st.lists(st.sampled_from(graph.servers), min_size=2, unique=True))
    check(graph, tree_of(graph, sender, receivers))


@pytest.mark.parametrize("name", GRAPHS)
@given(data=st.data())
def test_join_and_leave__touch_only_what_they_must(name: str, data: st.DataObject) -> None:
    graph = GRAPHS[name]
    sender = data.draw(st.sampled_from(graph.servers))
    tree = SteinerTree(sender, graph.neighbours, graph.passes)
    others = [server for server in graph.servers if server != sender]
    for receiver in data.draw(st.lists(st.sampled_from(others), max_size=30)):
        before = tree.links
        if receiver in tree.receivers:
            removed = tree.leave(receiver)
            assert tree.links == before - removed and removed <= before
        else:
            added = tree.join(receiver)
            assert tree.links == before | added and not added & before
        check(graph, tree)


def test_fat_tree__takes_one_core_and_one_way_into_each_pod() -> None:
    """The least: each receiver's link, one to each edge switch, one to each pod, and the way up."""
    graph = fat_tree(4)
    rng = random.Random(3)
    for _ in range(50):
        sender, *receivers = rng.sample(graph.servers, rng.randint(2, 16))
        tree = tree_of(graph, sender, receivers)
        edges = {graph.neighbours[name][0] for name in receivers} | {graph.neighbours[sender][0]}
        pods = {name.partition(".")[0] for name in edges}
        switches = len(edges) + (len(pods) if len(edges) > 1 else 0) + (1 if len(pods) > 1 else 0)
        assert len(tree.links) == len(receivers) + switches, (sender, receivers)


@pytest.mark.parametrize("name", ["bcube(2,2)"])
def test_bcube__is_near_the_optimum_on_small_cases(name: str) -> None:
    graph = GRAPHS[name]
    rng = random.Random(4)
    ratios = []
    for _ in range(25):
        sender, *receivers = rng.sample(graph.servers, rng.randint(2, 5))
        ratios.append(len(tree_of(graph, sender, receivers).links) / least(graph, sender, receivers))
    assert max(ratios) <= 1.34 and sum(ratios) / len(ratios) < 1.07, ratios


def test_bcube__whole_network_is_spanned_with_one_link_a_server_and_switch() -> None:
    graph = bcube(4, 1)
    tree = tree_of(graph, graph.servers[0], graph.servers[1:])
    assert len(tree.links) <= len(graph.servers) - 1 + len(graph.switches)


def test_fail__goes_around_the_link_and_leaves_others_alone() -> None:
    graph = fat_tree(4)
    tree = tree_of(graph, "h0.0.0", ["h1.0.0", "h2.1.1", "h3.0.1"])
    calm = tree.way("h3.0.1")
    link = tuple(tree.way("h1.0.0")[-4:-2])
    added, removed = tree.fail([(link[0], link[1])])
    assert added and link in removed and link not in tree.links
    assert tree.way("h3.0.1") == calm
    check(graph, tree)
    edge = ("h2.1.1", "edge2.1")
    with pytest.raises(Unreachable, match=r"h2\.1\.1"):
        tree.fail([edge])
    assert tree.receivers == {"h1.0.0", "h3.0.1"}
    tree.restore([edge])
    tree.join("h2.1.1")
    check(graph, tree)


def test_spread__other_cores_and_never_a_larger_tree() -> None:
    """Trees of different senders share the fabric; each is as small as can be."""
    graph = fat_tree(8)
    sender, *receivers = random.Random(7).sample(graph.servers, 20)
    cores, sizes = set(), set()
    for spread in range(1, 40):
        tree = SteinerTree(sender, graph.neighbours, graph.passes, spread=spread)
        tree.join_all(receivers)
        check(graph, tree)
        sizes.add(len(tree.links))
        cores.add(next(name for name in tree.parents if name.startswith("core")))
    assert len(sizes) == 1 and len(cores) >= 4


def test_of__is_the_tree_that_it_is_told_and_goes_on_from_there() -> None:
    graph = bcube(4, 1)
    built = tree_of(graph, "h0.0", ["h1.1", "h2.2", "h3.0"])
    again = SteinerTree.of("h0.0", built.parents, built.receivers, graph.neighbours, graph.passes)
    assert again.links == built.links and again.way("h2.2") == built.way("h2.2")
    assert again.leave("h2.2") == built.leave("h2.2")
    again.join("h3.3")
    check(graph, again)


def test_join__of_the_sender_is_refused() -> None:
    graph = bcube(2, 0)
    with pytest.raises(Unreachable, match="is the sender"):
        tree_of(graph, "h0", ["h0"])


@pytest.mark.parametrize("name", GRAPHS)
@given(data=st.data())
def test_shortest__is_a_tree_of_shortest_ways(name: str, data: st.DataObject) -> None:
    graph = GRAPHS[name]
    sender, *receivers = data.draw(st.lists(st.sampled_from(graph.servers), min_size=2, unique=True))
    tree = SteinerTree.shortest(sender, receivers, graph.neighbours, graph.passes)
    check(graph, tree)
    for receiver in receivers:
        alone = SteinerTree.build(sender, [receiver], graph.neighbours, graph.passes)
        assert len(tree.way(receiver)) == len(alone.way(receiver)), "of one receiver, the nearest way is a shortest one"


def test_shortest__a_large_bcube_costs_few_links_more() -> None:
    graph = bcube(8, 3)
    draw = random.Random(1)
    for _ in range(3):
        sender, *receivers = draw.sample(graph.servers, 1001)
        tree = SteinerTree.shortest(sender, receivers, graph.neighbours, graph.passes)
        assert max(len(tree.way(name)) - 1 for name in receivers) <= 8, "two links for each of four digits"
        least = len(SteinerTree.build(sender, receivers, graph.neighbours, graph.passes).links)
        assert len(tree.links) < 1.2 * least


def test_shortest__avoids_failed_links_and_names_who_is_cut_off() -> None:
    graph = fat_tree(4)
    sender, near, far = graph.servers[0], graph.servers[1], graph.servers[-1]
    (edge,) = graph.neighbours[far]
    with pytest.raises(Unreachable) as caught:
        SteinerTree.shortest(sender, [near, far], graph.neighbours, graph.passes, failed=[(edge, far)])
    assert caught.value.receivers == (far,)
    up = [(graph.neighbours[sender][0], node) for node in graph.neighbours[graph.neighbours[sender][0]]
          if node not in graph.servers]  # fmt: skip
    tree = SteinerTree.shortest(sender, [far], graph.neighbours, graph.passes, failed=up[:1])
    assert up[0] not in tree.links and up[1] in tree.links
