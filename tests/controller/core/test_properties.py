"""Properties that hold for any topology, any requests and any order of answers."""

from __future__ import annotations

import random
from collections import Counter
from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from rostrum.controller.core import events as ev
from rostrum.controller.core.circuits import splitters
from rostrum.controller.core.circuits.splitters import TorPort
from rostrum.controller.core.groups.addresses import Exhausted, Groups
from rostrum.controller.core.model import Pair, PathKind
from rostrum.controller.core.packet import trees
from rostrum.controller.core.packet.fabric import Fabric
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.text import listed
from rostrum.controller.core.values import Settings, State, Wanted
from rostrum.topologies import generate, loader
from rostrum.topologies.model import Light, Splitter, Topology

from tests.controller.timeline import Timeline

RARE = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LIGHT = Light(0.0, -18.0, 1.0)


def devices(fanouts: list[int], loss_db: float = 3.0) -> list[Splitter]:
    made, port = [], 100
    for number, fanout in enumerate(fanouts):
        outputs = tuple(range(port, port + fanout))
        made.append(Splitter(f"s{number}", "ocs", fanout, loss_db, 1000 + number, outputs))
        port += fanout
    return made


def racks(count: int) -> list[TorPort]:
    return [TorPort(f"tor{number}", 50, number) for number in range(2, count + 2)]


@given(st.integers(1, 60), st.integers(2, 9))
def test_splitters__count_is_the_formula(count: int, fanout: int) -> None:
    have = devices([fanout] * 60, loss_db=0.0)
    made = splitters.fit(TorPort("tor1", 50, 1), racks(count), have, Light(0, -1000, 0))
    assert made is not None
    assert len(made.splitters) == splitters.needed(count, fanout)
    if count > 1:
        assert splitters.branches(have[: len(made.splitters)]) >= count
        if len(made.splitters) > 1:
            assert splitters.branches(have[: len(made.splitters) - 1]) < count


@given(st.lists(st.integers(2, 9), max_size=12), st.integers(1, 40), st.floats(0, 12), st.floats(-60, -1))
def test_splitters__a_cascade_reaches_every_rack_once_with_light(
    fanouts: list[int], count: int, loss_db: float, sensitivity: float
) -> None:
    have = {one.name: one for one in devices(fanouts, loss_db)}
    light = Light(0.0, sensitivity, 1.0)
    made = splitters.fit(TorPort("tor1", 50, 1), racks(count), list(have.values()), light)
    if made is None:
        best = splitters.best_budget(TorPort("tor1", 50, 1), racks(count), list(have.values()), light)
        assert best is None or best.weakest.margin_db < 0
        return
    assert len({pair.input for pair in made.pairs}) == len({pair.output for pair in made.pairs}) == len(made.pairs)
    by_input = {pair.input: pair for pair in made.pairs}
    feeds = {have[name].input: have[name] for name in made.splitters}
    reached: dict[int, float] = {}
    lit = [(1, 0.0)]
    while lit:
        fibre, power = lit.pop()
        pair = by_input.get(fibre)
        if pair is None:
            continue
        if pair.output in feeds:
            lit += [(port, power - 1.0 - loss_db) for port in feeds[pair.output].outputs]
        else:
            assert pair.output not in reached
            reached[pair.output] = power - 1.0
    assert set(reached) == {port.ocs_port for port in racks(count)}
    for budget in made.budgets:
        assert budget.power_dbm == pytest.approx(reached[budget.port], abs=0.01)
        assert budget.power_dbm >= sensitivity - 0.001
    expected = splitters.expected_dbm(made, have, light)
    assert set(expected) == set(made.pairs)


def test_splitters__breadth_first() -> None:
    made = splitters.cascade(TorPort("tor1", 50, 1), racks(9), devices([4, 4, 4]), LIGHT)
    assert made.pairs[:3] == (Pair(1, 1000), Pair(100, 1001), Pair(101, 1002))
    assert [len(budget.splitters) for budget in made.budgets] == [1, 1, 2, 2, 2, 2, 2, 2, 2]


def test_splitters__the_narrowest_that_will_do() -> None:
    have = devices([8, 4, 2])
    assert splitters.fit(TorPort("tor1", 50, 1), racks(3), have, LIGHT).splitters == ("s1",)  # type: ignore[union-attr]
    assert splitters.fit(TorPort("tor1", 50, 1), racks(2), have, LIGHT).splitters == ("s2",)  # type: ignore[union-attr]


@st.composite
def data_centers(draw: st.DrawFn) -> Topology:
    size = generate.Hybrid(
        racks=draw(st.integers(2, 7)),
        servers=draw(st.integers(1, 3)),
        ocs_ports=64,
        splitters=draw(st.integers(0, 5)),
        fanout=draw(st.integers(2, 4)),
    )
    return loader.load_text(generate.hybrid(size))


@RARE
@given(data_centers(), st.integers(0, 2**32 - 1))
def test_trees__each_receiver_one_copy_nobody_else_any(topology: Topology, seed: int) -> None:
    rng = random.Random(seed)
    line = Timeline(topology)
    names = list(topology.servers)
    sender, *receivers = rng.sample(names, rng.randint(2, len(names)))
    path = line.ask(sender, *receivers, wanted=Wanted.PACKET)
    assert path.state is State.ACTIVE
    line.assert_delivers(path)
    fabric = Fabric(topology)
    tree = trees.build(fabric, fabric.ends(sender, receivers))
    assert len(tree.switches) == len(tree.hops)  # one rule per switch
    assert all(out_ports for _, _, out_ports in tree.hops)


@RARE
@given(data_centers(), st.integers(0, 2**32 - 1))
def test_trees_found_before__are_as_if_found_anew_whatever_became_of_earlier_ones(
    topology: Topology, seed: int
) -> None:
    rng = random.Random(seed)
    fabric, kept = Fabric(topology), trees.RackTrees(64)
    for _ in range(8):
        sender, *receivers = rng.sample(list(topology.servers), rng.randint(2, len(topology.servers)))
        ends = fabric.ends(sender, receivers)
        for _ in range(3):  # not known, not kept yet, kept
            tree = trees.build(fabric, ends, kept=kept)
        fresh = trees.build(fabric, ends)
        assert tree == fresh
        assert (tree.nodes.links, tree.nodes.receivers) == (fresh.nodes.links, set(receivers))
        tree.nodes.leave(receivers[0])  # as when a receiver leaves its path


class Chaos:
    """Random requests, releases, failures and late answers, with what must hold after each step."""

    def __init__(self, topology: Topology, seed: int, scheduler: str) -> None:
        self.rng = random.Random(seed)
        self.line = Timeline(
            topology, Settings(scheduler=scheduler, paths_per_server=3, idle_rule_sets=4, boot_id=seed)
        )
        self.names = list(topology.servers)
        self.faulty = self.rng.random() < 0.5
        self.line.network.lenient = self.faulty

    def step(self) -> None:
        actions = [self.request, self.request, self.request, self.release, self.release, self.answer, self.answer]
        actions += [self.time, self.pause] + ([self.fault, self.dark, self.outage, self.refuse] if self.faulty else [])
        self.rng.choice(actions)()
        self.check()

    def request(self) -> None:
        sender, *receivers = self.rng.sample(self.names, self.rng.randint(2, min(len(self.names), 8)))
        wanted = self.rng.choice([Wanted.AUTO, Wanted.AUTO, Wanted.CIRCUIT, Wanted.PACKET])
        if self.rng.random() < 0.3:
            self.line.ask_as_agent(sender, *receivers, wanted=wanted)
        else:
            self.line.ask(sender, *receivers, wanted=wanted, wait_ms=self.rng.choice([None, 0, 500]))

    def open(self) -> list[Path]:
        return [path for path in self.line.manager.core.paths.values() if not path.final]

    def release(self) -> None:
        if self.open():
            self.line.release(self.rng.choice(self.open()))

    def answer(self) -> None:
        """Devices answer in any order."""
        if self.line.held:
            self.line.held.rotate(self.rng.randrange(len(self.line.held)))
            self.line.let(1)

    def pause(self) -> None:
        self.line.devices_answer = not self.line.devices_answer

    def time(self) -> None:
        for server in self.line.manager.core.agents:
            self.line.do(ev.KeepAlive(server))
        self.line.wait(self.rng.choice([1, 100, 1500]))

    def fault(self) -> None:
        ocs = self.line.topology.ocs["ocs"]
        pair = Pair(self.rng.randint(1, ocs.ports), self.rng.randint(1, ocs.ports))
        live = [pair for circuit in self.line.manager.core.resources.circuits for pair in circuit.cascade.pairs]
        self.line.network.faults.add(("ocs", self.rng.choice([pair, *live])))
        self.line.network.dim = {name: self.rng.choice([0.0, 0.0, 20.0]) for name in ocs.splitters}

    def dark(self) -> None:
        granted = [path for path in self.open() if path.granted]
        if granted:
            path = self.rng.choice(granted)
            dark = self.rng.sample(path.request.receivers, 1)
            self.line.do(ev.NoLight(path.id, tuple(dark), path.request.origin))

    def outage(self) -> None:
        """A device's controller connection breaks and comes back."""
        name = self.rng.choice([*self.line.topology.switches, "ocs"])
        if name == "ocs":
            self.line.do(ev.OcsDown(name, "reset"))
            self.line.do(ev.OcsUp(name))
        else:
            self.line.do(ev.SwitchDown(name, "reset"))
            if self.rng.random() < 0.3 and self.line.devices_answer and not self.line.held:
                self.line.network.tables[name].clear()
            self.line.do(ev.SwitchUp(name))

    def refuse(self) -> None:
        """A device does nothing for a while."""
        devices = [*self.line.topology.switches, "ocs"]
        self.line.network.refusing = {name for name in devices if self.rng.random() < 0.15}

    def check(self) -> None:
        core = self.line.manager.core
        users = [circuit.user for circuit in core.resources.circuits if circuit.user]
        assert len(users) == len(set(users))
        taken: Counter[tuple[str, str]] = Counter()
        for circuit in core.resources.circuits:
            taken.update((circuit.ocs, name) for name in circuit.cascade.splitters)
        assert all(count == 1 for count in taken.values()), taken
        groups = [path.group for path in self.open() if path.group]
        assert len(groups) == len(set(groups))
        for path in self.open():
            if path.state is State.ACTIVE:
                self.line.assert_delivers(path)
            if path.state is State.QUEUED:
                assert path.reason
            if path.granted and path.kind is PathKind.CIRCUIT:
                assert path.circuit_id in {circuit.id for circuit in core.resources.circuits}

    def finish(self) -> None:
        self.line.devices_answer = True
        self.line.network.refusing.clear()
        self.line.let()
        self.line.wait(1)
        for path in self.open():
            self.line.release(path)
        self.line.let()
        self.line.wait(20_000)
        assert not self.open()
        self.line.assert_nothing_held()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data_centers(), st.integers(0, 2**32 - 1), st.sampled_from(["fifo", "best-effort"]), st.integers(5, 60))
def test_manager__nothing_granted_twice_nothing_leaks(
    topology: Topology, seed: int, scheduler: str, steps: int
) -> None:
    note(f"seed {seed}")
    chaos = Chaos(topology, seed, scheduler)
    for _ in range(steps):
        chaos.step()
    chaos.finish()


@RARE
@given(data_centers(), st.integers(0, 2**32 - 1))
def test_manager__same_events_same_actions(topology: Topology, seed: int) -> None:
    runs = []
    for _ in range(2):
        chaos = Chaos(topology, seed, "best-effort")
        for _ in range(15):
            chaos.step()
        runs.append(chaos.line.actions)
    assert runs[0] == runs[1]


@given(st.integers(0, 2**62), st.lists(st.booleans(), max_size=60))
def test_groups__no_two_alike(boot: int, takes: list[bool]) -> None:
    groups = Groups(IPv4Network("239.192.4.0/28"), boot)
    held: list[IPv4Address] = []
    for take in takes:
        if take:
            try:
                held.append(groups.take())
            except Exhausted:
                assert len(held) == 15
        elif held:
            groups.give_back(held.pop(0))
        assert len(set(held)) == len(held) == groups.used
        assert all(group in IPv4Network("239.192.4.0/28") and groups.contains(group) for group in held)


def test_groups__boots_begin_apart() -> None:
    network = IPv4Network("239.192.0.0/16")
    begun = {Groups(network, 1_795_000_000_000 + 1000 * boot).take() for boot in range(50)}
    assert len(begun) == 50


@pytest.mark.parametrize("network", ["239.255.71.64/28", "239.127.71.64/28"])
def test_groups__the_ethernet_address_of_discovery_is_nobodys(network: str) -> None:
    groups = Groups(IPv4Network(network), 5)
    taken = [groups.take() for _ in range(groups.room)]
    assert len(taken) == 14 and not any(address.packed[1:] == bytes([127, 71, 72]) for address in taken)
    assert IPv4Address("239.255.71.72") not in taken
    with pytest.raises(Exhausted):
        groups.take()


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["s1", "s2", "s3", "s4"], "s1..s4"),
        (["s4", "s2", "s1"], "s1, s2, s4"),
        (["tor10", "tor9", "tor11", "core"], "core, tor9..tor11"),
        (["p-3", "p-5"], "p-3, p-5"),
        (["p-1", "p-2", "p-3"], "p-1, p-2, p-3"),
        ([], ""),
        (["a1b", "01", "s01"], "01, a1b, s01"),
    ],
)
def test_names__listed(names: list[str], text: str) -> None:
    assert listed(names) == text
