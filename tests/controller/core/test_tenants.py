"""Nobody reaches another tenant's paths, groups and objects: by what the manager takes, and what switches let pass."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from rostrum.controller.core import actions as act
from rostrum.controller.core import events as ev
from rostrum.controller.core.groups.values import Engine, GroupOptions
from rostrum.controller.core.model import ANY_PORT
from rostrum.controller.core.objects import Held, HeldKey, Objects
from rostrum.controller.core.values import REST, Settings, State
from rostrum.topologies.model import Tenant, Topology

from tests.controller.group_network import ENGINES, GroupLine, spine
from tests.controller.timeline import Timeline, hybrid

QUARTER_S = 250


def with_tenants(made: Topology, *groups: str) -> Topology:
    """Servers are of blue and red by turns, so that each rack has both."""
    names = sorted(made.servers)
    blue, red = Tenant("blue", tuple(names[::2]), groups), Tenant("red", tuple(names[1::2]))
    return replace(made, tenants={"blue": blue, "red": red})


def refusals(line: GroupLine) -> list[str]:
    return [one.reason for one in line.of(act.RefuseGroup)]  # type: ignore[attr-defined]


def test_path__stays_within_a_tenant() -> None:
    line = Timeline(with_tenants(hybrid()))
    assert line.ask("h1", "h3", "h5").state is not State.FAILED
    for receivers in (("h2",), ("h3", "h4"), ("h3", "h5", "h8")):
        denied = line.ask_as_agent("h1", *receivers)
        assert denied.state is State.FAILED and "stays within a tenant" in denied.reason


def test_path__takes_no_receiver_of_another_tenant_later() -> None:
    line = Timeline(with_tenants(hybrid()))
    path = line.ask("h1", "h3")
    line.wait(100)
    line.do(ev.ReceiverJoins(path.id, "h4", ""))
    line.do(ev.ReceiverJoins(path.id, "h4", REST))
    assert path.request.receivers == ("h3",)
    assert "h4" not in (path.tree.receivers if path.tree else ())


def test_group__is_of_the_tenant_that_its_name_or_its_first_member_says() -> None:
    line = GroupLine(with_tenants(hybrid(), "blue.*"))
    line.up(*line.topology.servers)
    line.join("ours", "h2")
    line.join("ours", "h1")
    line.use("ours", "h3")
    line.join("blue.x", "h4")
    line.join("blue.x", "h5")
    line.wait(QUARTER_S)
    assert line.members("ours") == {"h2"} and line.members("blue.x") == {"h5"}
    assert len(refusals(line)) == 3 and all("another tenant" in one for one in refusals(line))


@pytest.mark.parametrize("southbound", ["openflow", "p4runtime"])
def test_group__switches_take_its_packets_from_its_tenant_alone(southbound: str) -> None:
    topology = with_tenants(spine(4, 4, 2, southbound))
    line = GroupLine(topology)
    names = sorted(topology.servers)
    line.up(*names)
    line.join("blue", *names[::2])
    line.join("red", *names[1::2])
    line.wait(QUARTER_S)
    m = line.manager.core.members
    for group, tenant in (("blue", "blue"), ("red", "red")):
        address = m.sharing.at[m.groups[group].id].address
        for at, switch in topology.switches.items():
            for rule in (one for one in m.sharing.rules_on(at) if one.group == address):
                assert rule.in_port == ANY_PORT
                ends = switch.neighbours.items()
                foreign = {
                    p for p, end in ends if end.node in topology.servers and topology.tenant_of(end.node) != tenant
                }
                assert set(rule.barred) == foreign and not foreign & set(rule.out_ports)
    line.assert_within_budget()


@pytest.mark.parametrize("protocol", ["plain", "qsm"])
def test_group__tenants_share_no_address_however_full_switches_are(protocol: str) -> None:
    topology = with_tenants(spine(2, 4, 1))
    line = GroupLine(topology, Settings(group_rules=60))
    names = sorted(topology.servers)
    line.up(*names, knows=(*ENGINES, Engine("qsm", regions=True)))
    seed = 7
    print("seed", seed)
    draw = random.Random(seed)
    options = GroupOptions(protocol)
    for number in range(60):
        of = names[number % 2 :: 2]
        line.join(f"g{number}", *draw.sample(of, draw.randint(2, len(of))), options=options)
    line.wait(4 * QUARTER_S)
    m = line.manager.core.members
    assert m.sharing.all or m.regions.views
    for shared in m.sharing.all.values():
        reached = {topology.tenant_of(name) for name in m.places.named(shared.receivers | shared.senders)}
        assert len(reached) <= 1 and not shared.everybody
    for view in m.regions.views.values():
        assert len({topology.tenant_of(name) for name in m.places.named(view.nodes)}) <= 1


def test_objects__are_told_to_their_tenant_alone() -> None:
    objects, held = Objects(), Held(10, "sha256:00", "model")
    for server, tenant in (("h1", "blue"), ("h2", "red")):
        objects.agent_up(server, True, True)
        objects.came(server, HeldKey(b"a" * 16, 1, tenant), held)
    (answer,) = objects.fetch("h3", HeldKey(b"a" * 16, 1, "blue"), False, 0)
    assert answer.holders == ("h1",)  # type: ignore[union-attr]
    (answer,) = objects.fetch("h9", HeldKey(b"a" * 16, 1, "green"), False, 0)
    assert answer.holders == () and "no agent" in answer.reason  # type: ignore[union-attr]
