"""Groups mapped to regions: whatever joins and leaves, each group's regions are its members; and under the manager each
server knows the newest views it needs, told once, with addresses and rules for them."""

from __future__ import annotations

import random
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest
from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.groups.regions import Regions, RegionView
from rostrum.controller.core.groups.trees import bits
from rostrum.controller.core.groups.values import Engine, GroupOptions, GroupUse
from rostrum.controller.core.persistence import parts
from rostrum.controller.core.values import MS, Settings
from rostrum.topologies.model import Tenant

from tests.controller.group_network import GroupLine, spine

QSM = (Engine("plain"), Engine("qsm", regions=True))
WITH = GroupOptions("qsm")


def check(regions: Regions, members: dict[str, int]) -> None:
    everybody = 0
    for view in regions.views.values():
        assert view.nodes and not view.nodes & everybody, "a server is in one region"
        everybody |= view.nodes
    for group, mask in members.items():
        reached = sum(regions.views[number].nodes for number in regions.of[group])
        assert mask & ~reached == 0
        assert regions.waste(group) == (reached & ~mask).bit_count()


@pytest.mark.parametrize("most", [0, 1, 3])
def test_any_changes_leave_each_group_in_regions_of_its_members(most: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"SEED={seed}")
    draw = random.Random(seed)
    regions, members = Regions(most=most), dict[str, int]()
    history: dict[tuple[int, int], RegionView] = {}
    for _ in range(60):
        for _ in range(draw.randrange(1, 12)):
            group, server = f"g{draw.randrange(12)}", 1 << draw.randrange(30)
            match draw.randrange(6):
                case 0:
                    for name in members:
                        members[name] &= ~server
                        regions.put(name, "qsm ", members[name])
                case 1:
                    members[group] = members.get(group, 0) & ~server
                    regions.put(group, "qsm ", members[group])
                case 2 if group in members:
                    del members[group]
                    regions.remove(group)
                case _:
                    members[group] = members.get(group, 0) | server
                    regions.put(group, "qsm ", members[group])
        before = dict(regions.views)
        batch = regions.batch()
        check(regions, members)
        changed = {view.region for view in batch.views}
        for view in regions.views.values():
            assert (view.region in changed) == (before.get(view.region) is not view)
            assert history.setdefault((view.region, view.version), view) == view, "a view never changes"
        assert set(batch.gone) == before.keys() - regions.views.keys()
        assert most == 0 or all(len(numbers) <= most for numbers in regions.of.values())
        assert most or all(regions.waste(group) == 0 for group in members), "exact, if there is no bound"
        assert regions.batch().views == (), "nothing changed since"


def test_hints_and_the_cover_make_regions_fewer_and_the_waste_is_told() -> None:
    def build(most: int, hints: tuple[frozenset[str], ...]) -> Regions:
        regions = Regions(most=most, hints=hints)
        regions.put("all", "qsm ", (1 << 64) - 1)
        for bit in range(6):
            regions.put(f"g{bit}", "qsm ", sum(1 << server for server in range(64) if server >> bit & 1))
        regions.batch()
        return regions

    exact = build(0, ())
    assert len(exact.of["all"]) == 64
    assert exact.waste("all") == 0
    hinted = build(0, (frozenset({"g0", "g1", "g2"}), frozenset({"g3", "g4", "g5"})))
    assert len(hinted.of["all"]) == 4
    assert len(build(0, (frozenset({"g*"}),)).of["all"]) == 2
    covered = build(8, ())
    assert len(covered.of["all"]) <= 8
    assert covered.waste("g0") > 0


def test_groups_with_other_options_share_no_region() -> None:
    regions = Regions()
    regions.put("a", "qsm token=5", 0b111)
    regions.put("b", "qsm token=9", 0b111)
    regions.batch()
    assert len(regions.views) == 2


# ------------------------------------------------------------------------------------------------ under the manager


def line_of(servers: int, **settings: object) -> GroupLine:
    line = GroupLine(spine(2, servers // 2, 2), Settings(**settings))  # type: ignore[arg-type]
    line.up(*line.manager.core.topology.servers, knows=QSM)
    return line


def test_sets_of_groups_in_the_topology_file_are_one_region() -> None:
    """What the designer says overlaps is one region also while servers are in some of its groups alone."""
    topology = replace(spine(2, 4, 2), regions=(("blue.*", "news"),))
    line = GroupLine(topology, Settings(group_window_ns=20 * MS))
    line.up(*topology.servers, knows=QSM)
    one, two, three, *rest = sorted(topology.servers)
    line.join("blue.1", one, two, options=WITH)
    line.join("blue.2", two, three, options=WITH)
    line.join("news", one, three, options=WITH)
    line.join("red", *rest, options=WITH)
    line.wait_alive(1000)
    m = line.manager.core.members
    assert m.regions.of["blue.1"] == m.regions.of["blue.2"] == m.regions.of["news"] != m.regions.of["red"]
    assert [m.regions.waste(name) for name in ("blue.1", "blue.2", "news", "red")] == [1, 1, 1, 0]
    agree(line)


def agree(line: GroupLine) -> None:
    """Each server of a group holds the newest views of the group's regions, and the group's members are in these."""
    m = line.manager.core.members
    for name, group in m.groups.items():
        for server in bits(group.everybody):
            listener = line.listeners[m.places.names[server]]
            held = listener.groups[name]
            assert held.facts.regions == m.regions.of[name], f"{listener.server} {name}"
            for number in m.regions.of[name]:
                region, view = listener.regions[number], m.regions.views[number]
                assert (region.version, region.nodes) == (view.version, {one + 1 for one in bits(view.nodes)})
                assert (region.address is None) == (view.nodes.bit_count() == 1)
                assert region.address is None or region.address == m.sharing.at[-number].address


def test_a_crash_that_touches_a_thousand_groups_is_one_flush_one_region_view_and_one_address() -> None:
    line = line_of(8, group_window_ns=20 * MS)
    servers = sorted(line.listeners)
    for number in range(1000):
        line.join(f"g{number}", *servers, options=WITH)
    line.wait_alive(1000)
    m = line.manager.core.members
    assert len(m.regions.views) == 1
    assert len(m.sharing.all) == 1, "one address for a thousand groups"
    agree(line)
    [before] = m.regions.views.values()
    views = line.manager.core.counts["group_region_views"]
    # every other agent goes on; h1 is not heard any more
    for _ in range(7):
        line.wait(1000)
        for server in servers[1:]:
            line.do(ev.KeepAlive(server))
    [after] = m.regions.views.values()
    assert after.region == before.region
    assert after.nodes == before.nodes & ~(1 << m.places.number[servers[0]])
    assert line.manager.core.counts["group_region_views"] == views + 1
    gone = line.listeners.pop(servers[0])
    agree(line)
    # It lived, and speaks again: it is told everything, and is back in the region with all others.
    line.listeners[servers[0]] = gone
    line.do(ev.KeepAlive(servers[0]))
    line.wait_alive(1000)
    assert [view.nodes for view in m.regions.views.values()] == [before.nodes]
    agree(line)


def test_a_program_that_enters_many_groups_everywhere_moves_no_region_of_others() -> None:
    """On each server a program enters 300 groups, in an order of its own, and ends some time later. Regions split and
    merged with each of these changes before, under the messages of all other groups."""
    seed = random.randrange(1 << 32)
    print(f"SEED={seed}")
    draw = random.Random(seed)
    line = line_of(8)
    servers = sorted(line.listeners)
    line.join("busy", *servers, options=WITH)
    line.join("some", *servers[:4], options=WITH)
    line.wait_alive(1000)
    m, counts = line.manager.core.members, line.manager.core.counts
    agree(line)
    before, views = dict(m.regions.views), counts["group_region_views"]
    assert len(before) == 2
    for change in (lambda group, server: line.join(group, server, options=WITH), line.leave):
        turns = [(f"g{number}", server) for server in servers for number in range(300)]
        draw.shuffle(turns)
        for at, (group, server) in enumerate(turns):
            change(group, server)
            if at % 8 == 0:
                line.wait_alive(10)
                assert m.regions.views == before, "the same views"
        line.wait_alive(50)
        agree(line)
        line.wait_alive(1000)
        assert m.regions.views == before
        agree(line)
    assert counts["group_region_views"] == views


def test_a_server_that_enters_a_group_has_its_messages_at_once_and_its_region_when_it_stays_so() -> None:
    line = line_of(8)
    servers = sorted(line.listeners)
    line.join("all", *servers, options=WITH)
    line.wait_alive(1000)
    m = line.manager.core.members
    line.join("few", servers[0], servers[5], options=WITH)
    line.wait_alive(100)
    assert m.regions.of["few"] == m.regions.of["all"] and m.regions.waste("few") == 6
    agree(line)
    line.wait_alive(1000)
    assert len(m.regions.of["all"]) == 2 and m.regions.waste("few") == 0
    agree(line)
    # However often it changes its groups, it is looked at in the end.
    for number in range(60):
        line.join(f"g{number}", servers[0], options=WITH)
        line.wait_alive(200)
    assert len(m.regions.of["all"]) == 3
    # Whose groups are all left is in no region from then on.
    for name in list(m.groups):
        line.leave(name, servers[0])
    line.wait_alive(100)
    assert not any(view.nodes >> m.places.number[servers[0]] & 1 for view in m.regions.views.values())
    agree(line)


@pytest.mark.parametrize("sharing", [True, False])
def test_whatever_overlaps_each_server_holds_the_views_it_needs(sharing: bool) -> None:
    seed = random.randrange(1 << 32)
    print(f"SEED={seed}")
    draw = random.Random(seed)
    line = line_of(10, group_rules=12 if sharing else 1000)
    servers = sorted(line.listeners)
    for _ in range(80):
        group, server = f"g{draw.randrange(6)}", draw.choice(servers)
        match draw.randrange(5):
            case 0:
                line.leave(group, server)
            case 1:
                line.do(ev.GroupJoined(server, GroupUse(group, WITH), sends_only=True))
            case 2 if draw.random() < 0.2:
                line.up(server, boot=line.listeners[server].boot + 1, knows=QSM)
                line.wait_alive(10_000)
            case _:
                line.join(group, server, options=WITH)
        if draw.random() < 0.5:
            line.wait_alive(1000)
    line.wait_alive(1000)
    for name, held in line.manager.core.members.groups.items():
        for server in servers:
            if not held.everybody >> line.manager.core.members.places.number[server] & 1:
                line.listeners[server].groups.pop(name, None)
    agree(line)


def test_what_was_sent_to_a_region_that_has_ended_still_comes() -> None:
    line = line_of(8)
    servers = sorted(line.listeners)
    line.join("a", *servers, options=WITH)
    line.join("b", *servers[:4], options=WITH)
    line.wait_alive(1000)
    m = line.manager.core.members
    before = {m.sharing.at[-number].address for number in m.regions.views}
    assert len(before) == 2
    for server in servers[:4]:
        line.leave("b", server)
    line.wait_alive(1000)
    [only] = m.regions.views

    def reached() -> set[IPv4Address]:
        return {rule.group for switch in line.topology.switches for rule in m.sharing.rules_on(switch)}

    assert reached() == before, "also the address of the region that is no more"
    line.wait_alive(6000)
    assert reached() == {m.sharing.at[-only].address}


def test_regions_outlive_the_manager_by_its_journal() -> None:
    line = line_of(6)
    servers = sorted(line.listeners)
    line.join("a", *servers, options=WITH)
    line.join("b", *servers[:3], options=WITH)
    line.wait_alive(1000)
    core = line.manager.core
    before, at = dict(core.members.regions.views), {one: core.members.sharing.at[-one].address for one in (1, 2)}
    records: dict[str, dict[str, object]] = {}
    for part, key in core.persistence.take():
        if (value := parts._BY_NAME[part].dump(core, key)) is not None:
            records.setdefault(part, {})[key] = value
    next_line = GroupLine(line.topology, Settings(boot_id=77), up=False)
    next_line.manager.restore(records, next_line.now)
    next_line.all_up()
    next_line.up(*servers, knows=QSM)
    next_line.join("a", *servers, options=WITH)
    next_line.join("b", *servers[:3], options=WITH)
    next_line.wait_alive(1000)
    m = next_line.manager.core.members
    assert m.regions.views == before, "nobody starts over"
    assert {one: m.sharing.at[-one].address for one in at} == at
    agree(next_line)


def test_an_agent_without_regions_is_not_let_into_a_group_that_has_them() -> None:
    line = line_of(4)
    first, other, *_ = sorted(line.listeners)
    line.join("a", first, options=WITH)
    line.up(other, boot=2, knows=(Engine("plain"), Engine("qsm")))
    line.join("a", other, options=WITH)
    line.wait_alive(1000)
    assert "travels in regions" in line.listeners[other].refused["a"]
    assert all(isinstance(one, act.PushGroups) for one in line.of(act.PushGroups))


def reached(line: GroupLine, number: int) -> set[str]:
    """Servers that a packet to the region's address gets to, by the rules on switches."""
    m = line.manager.core.members
    shared = m.sharing.at[-number]
    found = set[str]()
    for name, switch in line.topology.switches.items():
        for rule in m.sharing.rules_on(name):
            if rule.group == shared.address:
                ends = {switch.neighbours[port].node for port in rule.out_ports}
                found |= ends & line.topology.servers.keys()
    return found


def test_regions_share_addresses_when_there_are_no_more() -> None:
    """Of three addresses one is for everybody; nothing that a region is sent fails to come."""
    topology = replace(spine(2, 8, 2), multicast=IPv4Network("239.192.0.0/30"))
    line = GroupLine(topology, Settings())
    servers = sorted(topology.servers)
    line.up(*servers, knows=QSM)
    for at in range(0, 16, 2):
        line.join(f"g{at}", *servers[at : at + 2], options=WITH)
    line.wait_alive(1000)
    m = line.manager.core.members
    assert len(m.regions.views) == 8 and len(m.sharing.all) <= 3
    agree(line)
    for number, view in m.regions.views.items():
        assert {m.places.names[server] for server in bits(view.nodes)} <= reached(line, number)


def test_a_region_for_which_no_tree_can_be_had_is_sent_to_by_unicast() -> None:
    """Also one that had an address, whose tree cannot grow to those who join: they would hear nothing of it."""
    base = spine(2, 4, 2)
    line = GroupLine(replace(base, tenants={"all": Tenant("all", tuple(base.servers), ("*",))}))
    servers = list(base.servers)
    line.up(*servers, knows=QSM)
    line.join("g", *servers[:2], options=WITH)
    line.wait_alive(1000)
    m = line.manager.core.members
    [number] = m.regions.views
    assert line.listeners[servers[0]].regions[number].address
    m.sharing.budget = 2 * max(m.sharing.cost.values())  # the switches are full
    line.join("g", *servers[4:6], options=WITH)
    line.wait_alive(1000)
    [number] = m.regions.views
    for server in (*servers[:2], *servers[4:6]):
        assert line.listeners[server].regions[number].address is None
        assert len(line.listeners[server].regions[number].nodes) == 4
    m.sharing.budget *= 50  # there is room again: nobody needs to join for it
    line.wait_alive(5000)
    agree(line)
    addresses = {line.listeners[server].regions[number].address for server in (*servers[:2], *servers[4:6])}
    assert len(addresses) == 1 and None not in addresses
    assert {*servers[:2], *servers[4:6]} <= reached(line, number)


def test_regions_without_an_address_have_their_turn_when_others_end() -> None:
    """Tenants share none: of eight regions some have no address, until those that have one end."""
    base = spine(2, 8, 2)
    servers = sorted(base.servers)
    tenants = {f"t{at}": Tenant(f"t{at}", tuple(servers[at : at + 2]), (f"g{at}",)) for at in range(0, 16, 2)}
    line = GroupLine(replace(base, tenants=tenants, multicast=IPv4Network("239.192.0.0/28")), Settings())
    line.up(*servers, knows=QSM)
    for at in range(0, 16, 2):
        line.join(f"g{at}", *servers[at : at + 2], options=WITH)
    line.wait_alive(1000)
    m = line.manager.core.members

    def without() -> set[int]:
        return {number for number in m.regions.views if -number not in m.sharing.at}

    before = without()
    assert 0 < len(before) < 8
    for at in range(0, 16, 2):
        [number] = m.regions.of[f"g{at}"]
        if number not in before:
            line.leave(f"g{at}", *servers[at : at + 2])
    line.wait_alive(20_000)
    assert before <= set(m.regions.views) and not without()
    agree(line)
    for number in before:
        [*_, server] = bits(m.regions.views[number].nodes)
        assert line.listeners[m.places.names[server]].regions[number].address == m.sharing.at[-number].address


class Recording(GroupLine):
    """`pushes`: what agents were told."""

    def __init__(self, *given: object) -> None:
        self.pushes: list[act.PushGroups] = []
        super().__init__(*given)  # type: ignore[arg-type]

    def do(self, event: ev.Event) -> list[act.Action]:
        done = super().do(event)
        self.pushes += [one for one in done if isinstance(one, act.PushGroups)]
        return done


def test_who_leaves_a_large_region_is_all_that_the_others_are_told() -> None:
    topology = spine(2, 500, 2)
    line = Recording(topology, Settings(group_members_max=1000))
    line.up(*topology.servers, knows=QSM)
    servers = list(line.listeners)
    for name in ("a", "b"):
        line.join(name, *servers, options=WITH)
    line.wait_alive(1000)
    m = line.manager.core.members
    assert [view.nodes.bit_count() for view in m.regions.views.values()] == [1000]
    line.pushes.clear()
    for name in ("a", "b"):
        line.leave(name, servers[7])
    line.wait_alive(1000)
    others, its_id = [push for push in line.pushes if push.server != servers[7]], m.places.number[servers[7]] + 1
    assert {push.server for push in others} == {*servers} - {servers[7]}
    for push in others:
        for region in push.regions:
            assert (region.base_version is not None, region.nodes, region.gone) == (True, (), (its_id,))
        for view in push.views:
            assert (view.base_version is not None, view.members, view.senders, view.gone) == (True, (), (), (its_id,))
        assert not push.peers
    agree(line)
