"""Families of networks: their sizes and shapes as published."""

from __future__ import annotations

from collections import Counter

import pytest
from rostrum.topologies.families import Graph, bcube, fat_tree, named, vl2


def degrees(graph: Graph) -> dict[str, int]:
    return {name: len(ends) for name, ends in graph.neighbours.items()}


@pytest.mark.parametrize("k", [2, 4, 8])
def test_fat_tree__has_k_cubed_over_4_servers_and_full_switches(k: int) -> None:
    graph = fat_tree(k)
    assert len(graph.servers) == k**3 // 4
    assert len(graph.switches) == 5 * k * k // 4
    degree = degrees(graph)
    assert all(degree[name] == k for name in graph.switches)
    assert all(degree[name] == 1 for name in graph.servers)


def test_vl2__is_bipartite_above_with_two_uplinks_a_rack() -> None:
    graph = vl2(4, 4, per_rack=4)
    kinds = Counter(name.rstrip("0123456789") for name in graph.switches)
    assert kinds == {"agg": 4, "int": 2, "tor": 4} and len(graph.servers) == 16
    degree = degrees(graph)
    assert all(degree[name] == 4 for name in graph.switches if name.startswith(("agg", "int")))
    assert all(degree[name] == 6 for name in graph.switches if name.startswith("tor"))
    assert {graph.links[link] for link in graph.links if not link[0].startswith("h")} == {10**10}


@pytest.mark.parametrize(("n", "k"), [(2, 0), (4, 1), (3, 2)])
def test_bcube__servers_of_a_switch_differ_in_its_digit(n: int, k: int) -> None:
    graph = bcube(n, k)
    assert len(graph.servers) == n ** (k + 1) and len(graph.switches) == (k + 1) * n**k
    for switch in graph.switches:
        level = int(switch[1 : switch.index(":")])
        digits = [name[1:].split(".") for name in graph.neighbours[switch]]
        assert len(digits) == n
        assert len({tuple(d[: k - level] + d[k - level + 1 :]) for d in digits}) == 1
    assert graph.forwards and all(len(graph.neighbours[name]) == k + 1 for name in graph.servers)


def test_named__reads_what_people_write() -> None:
    assert named("fat-tree:4").name == "fat-tree(4)"
    assert len(named("bcube:8,3").servers) == 4096
    assert named("vl2:4,4").name == "vl2(4,4)"
    for wrong in ("", "fat-tree", "fat-tree:3", "fat-tree:4,4", "bcube:8", "torus:4", "bcube:99,9", "vl2:3,4", "x:1;2"):
        with pytest.raises(ValueError, match=r"fat-tree|VL2|BCube"):
            named(wrong)
