"""Groups mapped to regions: whatever joins, leaves and crashes, each group's regions are its members, and each node
knows what it needs of the newest views, told once."""

from __future__ import annotations

import random

import pytest
from rostrum.controller.core.groups.regions import NO_ADDRESS, Regions, RegionView


class Pool:
    def __init__(self, size: int) -> None:
        self.free = list(range(size, 0, -1))

    def take(self) -> int | None:
        return self.free.pop() if self.free else None

    def give(self, address: int) -> None:
        assert address not in self.free
        self.free.append(address)


def service(size: int = 1000, most: int = 0, hints: tuple[frozenset[str], ...] = ()) -> tuple[Regions, Pool]:
    pool = Pool(size)
    return Regions(pool.take, pool.give, most, hints), pool


def check(regions: Regions, pool: Pool, size: int) -> None:
    nodes = [node for view in regions.regions.values() for node in view.nodes]
    assert len(nodes) == len(set(nodes)), "a node is in one region"
    addresses = [view.address for view in regions.regions.values() if view.address != NO_ADDRESS]
    assert len(set(addresses)) == len(addresses)
    assert sorted([*addresses, *pool.free]) == list(range(1, size + 1)), "no address is lost"
    for view in regions.groups.values():
        reached = {node for number, version in view.regions for node in regions.regions[number].nodes}
        assert all(regions.regions[number].version == version for number, version in view.regions)
        assert view.members <= reached
        assert view.waste == len(reached - view.members)


@pytest.mark.parametrize("most", [0, 1, 3])
def test_any_changes_leave_every_node_with_the_newest_views_it_needs(most: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"SEED={seed}")
    draw = random.Random(seed)
    regions, pool = service(40, most)
    names = [f"g{number}" for number in range(12)]
    alive: set[int] = set()
    groups: dict[int, dict[str, int]] = {}
    seen: dict[int, dict[int, RegionView]] = {}
    history: dict[tuple[int, int], RegionView] = {}
    for _ in range(60):
        for _ in range(draw.randrange(1, 12)):
            node, some = draw.randrange(30), draw.sample(names, draw.randrange(1, 5))
            match draw.randrange(5):
                case 0:
                    regions.crash(node)
                    alive.discard(node)
                    groups.pop(node, None)
                    seen.pop(node, None)
                case 1:
                    regions.leave(node, some)
                case 2:
                    regions.publish(node, some)
                    alive.add(node)
                case 3:
                    regions.unpublish(node, some)
                case _:
                    regions.join(node, some)
                    alive.add(node)
        told = regions.batch()
        check(regions, pool, 40)
        for node, news in told.items():
            if node not in alive:
                continue
            mine, views = groups.setdefault(node, {}), seen.setdefault(node, {})
            for gone in news.gone_groups:
                del mine[gone]
            for number in news.gone_regions:
                del views[number]
            for group in news.groups:
                assert mine.get(group.group) != group.version, "told once"
                mine[group.group] = group.version
            for view in news.regions:
                assert history.setdefault((view.region, view.version), view) == view, "a view never changes"
                views[view.region] = view
        for name, group_view in regions.groups.items():
            assert most == 0 or len(group_view.regions) <= most
            for node in group_view.members | group_view.publishers:
                assert groups[node][name] == group_view.version
                assert all(seen[node][number].version == version for number, version in group_view.regions)
        assert regions.batch() == {}, "nothing changed since"


def test_nodes_with_the_same_groups_are_one_region_whatever_their_number() -> None:
    regions, _ = service()
    names = [f"g{number}" for number in range(1000)]
    for node in range(20):
        regions.join(node, names)
    told = regions.batch()
    assert len(regions.regions) == 1
    assert all(len(news.groups) == 1000 and len(news.regions) == 1 for news in told.values())
    regions.crash(3)
    told = regions.batch()
    [view] = regions.regions.values()
    assert view.version == 2, "a crash that touches 1,000 groups makes one new region view"
    assert all(len(news.regions) == 1 for news in told.values())
    regions.join(3, names)
    assert len(regions.batch()[3].groups) == 1000, "one that was excluded and lives is told all"


def test_a_region_of_one_node_has_no_address_and_a_pool_that_is_empty_is_no_failure() -> None:
    regions, pool = service(1)
    regions.join(1, ["a"])
    regions.join(2, ["b"])
    regions.join(3, ["b"])
    regions.join(4, ["c"])
    regions.join(5, ["c"])
    regions.batch()
    by_nodes = {view.nodes: view.address for view in regions.regions.values()}
    assert by_nodes[(1,)] == NO_ADDRESS
    assert sorted((by_nodes[(2, 3)], by_nodes[(4, 5)])) == [NO_ADDRESS, 1]
    check(regions, pool, 1)


def test_hints_and_the_cover_make_regions_fewer_and_the_waste_is_told() -> None:
    def build(most: int, hints: tuple[frozenset[str], ...]) -> Regions:
        regions, _ = service(1000, most, hints)
        for node in range(64):
            regions.join(node, ["all", *(f"g{bit}" for bit in range(6) if node >> bit & 1)])
        regions.batch()
        return regions

    exact = build(0, ())
    assert len(exact.groups["all"].regions) == 64
    assert exact.groups["all"].waste == 0
    hinted = build(0, (frozenset({"g0", "g1", "g2"}), frozenset({"g3", "g4", "g5"})))
    assert len(hinted.groups["all"].regions) == 4
    covered = build(8, ())
    assert len(covered.groups["all"].regions) <= 8
    assert covered.groups["g0"].waste > 0
