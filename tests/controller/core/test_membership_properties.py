"""Whatever comes, goes, fails and comes back: every member gets every sender's packet once, nothing loops, no switch
holds more than its budget, and everybody holds the newest view.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from rostrum.controller.core import events as ev
from rostrum.controller.core.groups.trees import Places, Spanning, roots
from rostrum.controller.core.model import ANY_PORT
from rostrum.controller.core.values import Settings
from rostrum.topologies import loader
from rostrum.topologies.model import Topology

from tests.controller.group_network import GroupLine, fat_tree, spine
from tests.controller.timeline import hybrid

RARE = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TOPOLOGIES = {
    "hybrid": hybrid(),
    "spine": spine(5, 3, 3),
    "P4 spine": spine(3, 2, 2, "p4runtime"),
    "one rack": spine(1, 4, 0),
    "fat tree": fat_tree(4),
    "BCube": loader.load("bcube-4-1"),
}


@pytest.mark.parametrize("kind", TOPOLOGIES)
@given(data=st.data())
@RARE
def test_tree__reaches_every_receiver_once_from_anyone(kind: str, data: st.DataObject) -> None:
    topology = TOPOLOGIES[kind]
    places = Places(topology)
    count = len(places.names)
    receivers = data.draw(st.integers(0, (1 << count) - 1))
    senders = data.draw(st.integers(0, (1 << count) - 1)) & ~receivers
    root = data.draw(st.sampled_from(roots(topology)))
    ports = Spanning(places, root).ports(receivers, senders)
    for sender in places.named(receivers | senders) if ports else ():
        copies = walk(topology, ports, sender)
        assert sorted(copies) == sorted(set(places.named(receivers)) - {sender})
    if (receivers | senders).bit_count() > 1 and receivers:
        assert ports


def walk(topology: Topology, ports: dict[str, tuple[int, ...]], sender: str) -> list[str]:
    server = topology.servers[sender]
    flying, copies = [(server.tor, server.tor_port)], []
    for _ in range(10_000):
        if not flying:
            return copies
        switch, came = flying.pop()
        for port in ports.get(switch, ()):
            end = topology.switches[switch].neighbours[port]
            if port != came and end.node in topology.servers:
                copies.append(end.node)
            elif port != came:
                flying.append((end.node, end.port))
    raise AssertionError("the packet loops")


@pytest.mark.parametrize("kind", TOPOLOGIES)
@given(seed=st.integers(0, 2**32 - 1))
@settings(RARE, max_examples=25)
def test_life__every_member_gets_every_packet_once_within_the_budget(kind: str, seed: int) -> None:
    note(f"seed {seed}")
    rng = random.Random(seed)
    topology = TOPOLOGIES[kind]
    least = 2 * max(
        len(one.neighbours) if one.southbound == "p4runtime" else 1 for one in topology.switches.values()
    )  # fmt: skip
    budget = rng.choice([least, 2 * least, 6 * least, 1000])
    line = GroupLine(topology, Settings(group_rules=budget, boot_id=seed % 1000 + 1))
    line.up(*topology.servers)
    line.wait_alive(7000)  # what is found on switches at the start is an earlier manager's, perhaps
    for _ in range(rng.randint(20, 60)):
        disturb(line, rng)
        line.wait(rng.choice([0, 0, 5, 100]))
        check_loops(line)
        line.assert_within_budget()
    for name, cause in list(line.manager.core.resources.switches_down.items()):
        assert cause
        line.do(ev.SwitchUp(name))
    for switch, port in list(line.manager.core.resources.ports_down):
        line.do(ev.PortChanged(switch, port, True))
    line.wait_alive(12_000)
    line.assert_told()
    line.assert_delivered()
    line.assert_within_budget()


def disturb(line: GroupLine, rng: random.Random) -> None:
    servers, groups = list(line.topology.servers), [f"g{i}" for i in range(14)]
    some = rng.sample(servers, rng.randint(1, min(6, len(servers))))
    kind = rng.random()
    if kind < 0.5:
        line.join(rng.choice(groups), *some)
    elif kind < 0.7:
        line.leave(rng.choice(groups), *some)
    elif kind < 0.8:
        line.use(rng.choice(groups), *some[:2])
    elif kind < 0.85:
        line.leave(rng.choice(groups), *some, sends_only=True)
    elif kind < 0.9:
        line.alive()
        line.up(some[0], boot=rng.choice([1, 2, 3]))
    elif kind < 0.95:
        line.wait_alive(rng.choice([1000, 7000]))
    elif kind < 0.975:
        switch = rng.choice(list(line.topology.switches.values()))
        port = rng.choice(sorted(switch.neighbours))
        down = line.manager.core.resources.ports_down
        line.do(ev.PortChanged(switch.name, port, (switch.name, port) in down))
    else:
        switch = rng.choice(list(line.topology.switches))
        up = switch in line.manager.core.resources.switches_down
        line.do(ev.SwitchUp(switch) if up else ev.SwitchDown(switch, "pulled"))


def check_loops(line: GroupLine) -> None:
    """With whatever is on the switches now; `deliver` fails when a packet walks on."""
    addresses = {group for table in line.network.tables.values() for in_port, group in table if in_port == ANY_PORT}
    for address in addresses:
        for sender in line.topology.servers:
            line.network.deliver(sender, address)


@given(seed=st.integers(0, 2**32 - 1))
@settings(RARE, max_examples=30)
def test_changing_trees__mixtures_of_old_and_new_rules_do_not_loop(seed: int) -> None:
    """Some switches have done what they were told, others not yet."""
    note(f"seed {seed}")
    rng = random.Random(seed)
    topology = TOPOLOGIES["fat tree"]
    line = GroupLine(topology, Settings(group_rules=rng.choice([3, 1000])))
    line.up(*topology.servers)
    for _ in range(15):
        old = {name: dict(table) for name, table in line.network.tables.items()}
        line.join(f"g{rng.randrange(3)}", *rng.sample(list(topology.servers), 4))
        line.leave(f"g{rng.randrange(3)}", *rng.sample(list(topology.servers), 4))
        line.wait(100)
        new = line.network.tables
        line.network.tables = {name: rng.choice([old[name], new[name]]) for name in new}
        check_loops(line)
        line.network.tables = new


def test_roots__are_at_the_top_of_the_network() -> None:
    assert roots(TOPOLOGIES["fat tree"]) == ["core0", "core1", "core2", "core3"]
    assert roots(TOPOLOGIES["spine"]) == ["core0", "core1", "core2"]
    assert roots(TOPOLOGIES["one rack"]) == ["tor0"]


def test_many_groups__share_addresses_by_the_racks_of_their_receivers() -> None:
    """Groups in the same two racks get one another's messages, not those of the rest of the data center."""
    rng = random.Random(7)
    line = GroupLine(spine(8, 4, 2), Settings(group_rules=40))
    racks = [[server.name for server in line.topology.servers_of(f"tor{i}")] for i in range(8)]
    for number in range(300):
        near = [name for rack in (2 * (number % 4), 2 * (number % 4) + 1) for name in racks[rack]]
        line.join(f"g{number}", *rng.sample(near, 4))
    line.wait_alive(2000)
    sharing = line.manager.core.members.sharing
    line.assert_delivered()
    line.assert_within_budget()
    assert len(sharing.all) < 100
    assert sum(shared.everybody for shared in sharing.at.values()) == 0
    assert max(sharing.waste(group.id) for group in line.manager.core.members.groups.values()) <= 4


def test_room_again__groups_that_share_get_addresses_of_their_own() -> None:
    rng = random.Random(7)
    line = GroupLine(spine(4, 4, 1), Settings(group_rules=16))
    for number in range(60):
        line.join(f"g{number}", *rng.sample(list(line.topology.servers), 3))
    line.wait_alive(1000)
    sharing, groups = line.manager.core.members.sharing, line.manager.core.members.groups
    assert sum(sharing.waste(one.id) for one in groups.values()) > 0
    for number in range(56):
        line.leave(f"g{number}", *line.topology.servers)
    line.wait_alive(60_000)
    assert len(groups) == 4
    assert sum(sharing.waste(one.id) for one in groups.values()) == 0
    line.assert_told()
    line.assert_delivered()
