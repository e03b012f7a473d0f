"""The simulated network: what links, routes and hosts do to packets, seen from outside."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rostrum.sim import network as sim
from rostrum.sim.fabric import Fabric
from rostrum.sim.network import HostParams, LinkParams, Network, PathParams, SimError
from rostrum.topologies import load
from rostrum.topologies.families import named

S, MS, US = 10**9, 10**6, 10**3
G = 10**9
FRAGMENT = 8896
SIZE = 1000 * FRAGMENT
HOST = HostParams(fragment_size=FRAGMENT, nic_rate_bps=10 * G)
LINK = LinkParams(rate_bps=10 * G, delay_ns=2 * US)


class Star:
    """Host 0 sends through one switch to the others."""

    def __init__(self, receivers: int = 3, seed: int = 1, link: LinkParams = LINK, host: HostParams = HOST) -> None:
        self.net = Network(seed)
        self.switch = self.net.switch()
        self.hosts = [self.net.host(host) for _ in range(receivers + 1)]
        self.links = [self.net.link(node, self.switch, link) for node in self.hosts]
        self.down = [there for _, there in self.links]
        self.net.group(self.hosts[0], 7, [self.links[0][0]])
        self.net.group(self.switch, 7, self.down[1:])
        for node in self.hosts[1:]:
            self.net.group(node, 7, [], member=True)
        self.net.path(self.hosts[0], PathParams(group=7, rate_bps=link.rate_bps))

    def send(self, size: int = SIZE) -> int:
        return self.net.send(self.hosts[0], 1, size, self.hosts[1:])

    def whole(self) -> list[int]:
        """Hosts that have an object whole."""
        notes = self.net.notes_of("receive_done")
        return sorted(int(note["host"]) for note in notes if note["value"])


@pytest.fixture(autouse=True)
def seed() -> Iterator[int]:
    value = random.SystemRandom().randrange(1 << 31)
    print(f"seed {value}")
    yield value


def test_without_loss__each_link_carries_each_fragment_once() -> None:
    star = Star()
    xfer = star.send()
    star.net.run_until_sent(10 * S)
    stats = star.net.transfer(star.hosts[0], xfer)
    assert star.whole() == star.hosts[1:]
    assert stats["receivers_done"] == 3 and stats["patches_sent"] == 0
    for link in (star.links[0][0], *star.down[1:]):
        assert star.net.link_stats(link)["group_packets"] == stats["packets_sent"]
    wire_s = SIZE * 8 / (10 * G)
    assert wire_s < star.net.now_ns / S < 2 * wire_s


def test_loss__is_mended_and_only_losses_are(seed: int) -> None:
    star = Star(seed=seed)
    star.net.loss(star.down[2], "bernoulli", 0.02)
    xfer = star.send()
    star.net.run_until_sent(10 * S)
    assert star.whole() == star.hosts[1:]
    lost = star.net.link_stats(star.down[2])["lost"]
    assert lost > 0
    assert [star.net.link_stats(link)["lost"] for link in (star.down[1], star.down[3])] == [0, 0]
    assert star.net.transfer(star.hosts[0], xfer)["receivers_done"] == 3


def test_same_seed__same_run_to_the_bit(seed: int) -> None:
    runs = []
    for _ in range(2):
        star = Star(5, seed)
        for link in star.down[1:]:
            star.net.loss(link, "gilbert", 0.01, 4)
        star.send()
        star.net.run(2 * S)
        runs.append((star.net.notes().tobytes(), star.net.run_stats()))
    assert runs[0] == runs[1]


@pytest.mark.parametrize(("model", "p", "burst"), [("bernoulli", 0.1, 1), ("gilbert", 0.1, 5), ("bursty", 0.1, 5)])
def test_loss_models__lose_their_share_in_their_runs(
    tmp_path: Path, model: str, p: float, burst: float, seed: int
) -> None:
    """The first arrivals of 40,000 small packets; an 0.1 share of them is known to within 0.01 (bursts: 0.02)."""
    star = Star(1, seed, host=HostParams(fragment_size=64, nic_rate_bps=10 * G))
    star.net.loss(star.down[1], model, p, burst)
    star.send(64 * 40_000)
    star.net.trace(tmp_path / "trace.jsonl")
    star.net.run_until_sent(10 * S)
    star.net.trace(None)
    rows = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    came = {row["payload_offset"] for row in rows if row["kind"] == "group" and row["node"] == star.hosts[1]}
    lost = [offset not in came for offset in range(0, 64 * 40_000, 64)]
    runs = [len(list(run)) for value, run in itertools.groupby(lost) if value]
    assert sum(lost) / len(lost) == pytest.approx(p, abs=0.02)
    expected = burst if model != "bernoulli" else 1 / (1 - p)
    assert sum(runs) / len(runs) == pytest.approx(expected, rel=0.15)
    if model == "bursty":
        assert sum(length % 5 == 0 for length in runs) >= 0.9 * len(runs)  # the control channel has its share of some


def test_queue__that_is_full_drops_and_priority_protects_the_group() -> None:
    """9 Gbit/s of other traffic into a 1 Gbit/s port that the group shares."""
    losses = {}
    for classes in (1, 2):
        star = Star(1, link=LinkParams(rate_bps=G, delay_ns=2 * US, queue_bytes=200_000, classes=classes))
        other = star.net.host(HOST)
        star.net.link(other, star.switch, LINK)
        star.net.flow(other, star.hosts[1], 9 * G, 1518, 0, 10 * MS)
        star.send(100 * FRAGMENT)
        star.net.run(30 * MS)
        sent = star.net.link_stats(star.links[0][0])["group_packets"]
        came = star.net.link_stats(star.down[1])["group_packets"]
        assert sent > 0
        losses[classes] = 1 - came / sent
        assert star.net.link_stats(star.down[1])["overflow"] > 1000
    assert losses[2] == 0
    assert losses[1] > 0.1


def test_dark_link__delays_first_light_until_it_is_lit() -> None:
    star = Star()
    star.net.dark(star.down[2], 30 * MS, 32 * MS, 0.5)
    path = PathParams(7, circuit=True, reconfiguration_ns=30 * MS, rate_bps=10 * G, light_bound_ns=S)
    star.net.path(star.hosts[0], path)
    star.send()
    star.net.run_until_sent(10 * S)
    lights = {int(note["peer"]): int(note["at"]) for note in star.net.notes_of("first_light")}
    assert lights[star.hosts[1]] < 10 * MS < 30 * MS < lights[star.hosts[2]] < 60 * MS
    assert star.whole() == star.hosts[1:]


def test_crash__of_a_receiver_fails_it_alone() -> None:
    star = Star(host=HostParams(fragment_size=FRAGMENT, nic_rate_bps=10 * G, receiver_silence_ns=200 * MS))
    star.send(20 * SIZE)
    star.net.run(5 * MS)
    star.net.crash(star.hosts[2])
    star.net.run_until_sent(10 * S)
    assert star.whole() == [star.hosts[1], star.hosts[3]]
    assert [int(note["peer"]) for note in star.net.notes_of("peer_failed")] == [star.hosts[2]]


def test_link_down__unicast_goes_around_it() -> None:
    """Two switches between sender and receiver; the tree's link breaks, patches take the other way."""
    net = Network(1)
    sender, receiver = net.host(HOST), net.host(HOST)
    first, second = net.switch(), net.switch()
    for middle in (first, second):
        net.link(sender, middle, LINK)
        net.link(middle, receiver, LINK)
    net.group(sender, 7, [net.link_between(sender, first)])
    net.group(first, 7, [net.link_between(first, receiver)])
    net.group(receiver, 7, [], member=True)
    net.path(sender, PathParams(group=7, rate_bps=10 * G))
    net.send(sender, 1, SIZE, [receiver])
    net.run(3 * MS)
    for a, b in itertools.permutations((first, receiver), 2):
        net.up(net.link_between(a, b), False)
    net.run_until_sent(30 * S)
    done = net.notes_of("receive_done")
    assert len(done) == 1 and done[0]["value"] == 1
    assert net.link_stats(net.link_between(second, receiver))["packets"] > 0


def test_equal_paths__are_shared_among_pairs_and_each_pair_keeps_its_own() -> None:
    net = Network(1)
    left, right = net.switch(), net.switch()
    middles = [net.switch() for _ in range(4)]
    for middle in middles:
        net.link(left, middle, LINK)
        net.link(middle, right, LINK)
    pairs = []
    for _ in range(32):
        a, b = net.host(HOST), net.host(HOST)
        net.link(a, left, LINK)
        net.link(b, right, LINK)
        pairs.append((a, b))
    for a, b in pairs:
        net.flow(a, b, G // 1000, 1500, 0, S)
    net.run(2 * S)
    per_middle = [net.link_stats(net.link_between(left, middle))["packets"] for middle in middles]
    per_pair = net.link_stats(net.link_between(pairs[0][0], left))["packets"]
    assert sum(per_middle) == 32 * per_pair
    assert all(packets > 0 and packets % per_pair == 0 for packets in per_middle)


def test_route__is_taken_instead_of_the_shortest_path_until_it_is_given_up() -> None:
    """Three hosts around a switch, and a detour: flows of host 0 to host 1 go where they are told."""
    net = Network(1)
    near, far = net.switch(), net.switch()
    a, b = net.host(HOST), net.host(HOST)
    for node in (a, b, far):
        net.link(node, near, LINK)
    net.link(far, b, LINK)
    detour = [net.link_between(x, y) for x, y in itertools.pairwise((a, near, far, b))]
    counts = []
    for way in (detour, []):
        net.route(a, b, way)
        begin = net.now_ns
        net.flow(a, b, G // 1000, 1500, begin, begin + S)
        net.run(begin + 2 * S)
        counts.append(net.link_stats(detour[-1])["packets"])
    assert counts[0] > 0 and counts[1] == counts[0]
    with pytest.raises(SimError, match="do not follow"):
        net.route(a, b, detour[1:])


def test_control_channel__is_reliable_over_a_lossy_network(seed: int) -> None:
    star = Star(seed=seed)
    for there, back in star.links:
        star.net.loss(there, "bernoulli", 0.2)
        star.net.loss(back, "bernoulli", 0.2)
    star.send(100 * FRAGMENT)
    star.net.run_until_sent(60 * S)
    assert star.whole() == star.hosts[1:]
    assert star.net.run_stats()["control_again"] > 0


def test_fabric__of_a_topology_file_delivers_along_the_managers_tree() -> None:
    topology = load("hybrid-4x2")
    fabric = Fabric.of_topology(
        topology, 1, LinkParams(delay_ns=2 * US), lambda name: HostParams(fragment_size=FRAGMENT)
    )
    receivers = ["h2", "h3", "h5", "h8"]
    links = fabric.tree(7, "h1", receivers)
    fabric.network.path(fabric.nodes["h1"], PathParams(group=7, rate_bps=G))
    fabric.network.send(fabric.nodes["h1"], 1, SIZE, [fabric.nodes[name] for name in receivers])
    fabric.network.run_until_sent(10 * S)
    done = {int(note["host"]) for note in fabric.network.notes_of("receive_done") if note["value"]}
    assert done == {fabric.nodes[name] for name in receivers}
    counts = {fabric.network.link_stats(link)["group_packets"] for link in links}
    assert len(counts) == 1
    assert len(links) == len(set(links)) == 9  # the sender's, four to receivers, one up to the core, three down


@pytest.mark.parametrize("family", ["fat-tree:4", "vl2:4,2", "bcube:3,1"])
def test_fabric__of_a_family_delivers_once_over_each_link(family: str) -> None:
    graph = named(family)
    fabric = Fabric.of_graph(graph, 1, LinkParams(delay_ns=2 * US), lambda name: HostParams(fragment_size=FRAGMENT))
    sender, *receivers = graph.servers[:8]
    links = fabric.tree(7, sender, receivers)
    fabric.network.loss(fabric.last_link(7, receivers[2]), "bernoulli", 0.05)
    fabric.network.path(fabric.nodes[sender], PathParams(group=7, rate_bps=G))
    xfer = fabric.network.send(fabric.nodes[sender], 1, SIZE, [fabric.nodes[name] for name in receivers])
    fabric.network.run_until_sent(10 * S)
    stats = fabric.network.transfer(fabric.nodes[sender], xfer)
    assert stats["receivers_done"] == 7 and len(links) == len(set(links))
    assert fabric.network.link_stats(links[0])["group_packets"] >= stats["fragments"]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda net: net.link(0, 0), "no link can be from node 0 to node 0"),
        (lambda net: net.link(0, 9), "no such node"),
        (lambda net: net.loss(77, "bernoulli", 0.1), "there is no link 77"),
        (lambda net: net.loss(0, "bernoulli", 1.0), "share p"),
        (lambda net: net.loss(0, "solar", 0.1), "bernoulli, gilbert"),
        (lambda net: net.crash(0), "node 0 is no host"),
        (lambda net: net.group(0, 7, [99]), "link 99 does not leave node 0"),
        (lambda net: net.group(0, 7, [], member=True), "cannot be a member"),
        (lambda net: net.send(0, 1, 10, [1]), "node 0 is no host that can send"),
        (lambda net: net.send(1, 1, 10, []), "cannot send"),
        (lambda net: net.use_node(0), "node 0 is no host"),
        (lambda net: net.use_node(1), "host 1 has an engine already"),
        (lambda net: net.send(net.server(), 1, 10, [1]), "no host that can send"),
        (lambda net: net.flow(0, 5, G, 1500, 0, S), "a flow has two nodes"),
        (lambda net: net.trace(Path("/nowhere/at/all")), "cannot be written"),
        (lambda net: net.link_stats(77), "there is no link 77"),
    ],
)  # fmt: skip
def test_wrong_calls__are_errors_with_a_reason(call, text: str) -> None:  # type: ignore[no-untyped-def]
    net = Network()
    switch, host = net.switch(), net.host(HOST)
    net.link(switch, host)
    with pytest.raises(SimError, match=text):
        call(net)


def test_library_missing__says_how_to_make_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROSTRUM_SIM_LIBRARY", "/nowhere/librostrum_sim.so")
    loaded = sim._library.__wrapped__
    with pytest.raises(SimError, match="make build"):
        loaded()


def test_loss_pattern__is_that_of_the_agents() -> None:
    """The fixed vectors of tests/agent/core/base/test_loss_pattern.c: h0-0-1 loses eight of its first 750 fragments."""
    star = Star(2)
    first, other = star.hosts[1:]
    star.net.loss_pattern(first, "h0-0-1", 1, 0.01)
    number = star.send(750 * FRAGMENT)
    star.net.run_until_sent(S)
    assert star.whole() == [first, other]
    assert (star.net.losses(first), star.net.losses(other)) == (8, 0)
    assert star.net.transfer(star.hosts[0], number)["patches_sent"] == 8


def test_loss_pattern__nonsense_is_refused() -> None:
    star = Star(1)
    host = star.hosts[1]
    for node, p, run in ((star.switch, 0.1, 1), (host, 1.5, 1), (host, 0.1, 0), (host, 0.1, 65)):
        with pytest.raises(SimError):
            star.net.loss_pattern(node, "h1", 1, p, run)


def test_an_engine_that_the_agent_does_not_have__carries_a_transfer(tmp_path: Path) -> None:
    """tests/agent/core/engines/plainseq.c, by nothing but a row in its own library's table of engines."""
    library = sim.LIBRARY.parent.parent / "tests/agent/core/engines/librostrum_sim_plainseq.so"
    told = {}
    for engine, loaded in (("plainseq", library), ("republic", library), ("plainseq", sim.LIBRARY)):
        report = tmp_path / "report.json"
        report.unlink(missing_ok=True)
        command = [
            sys.executable,
            "-c",
            "from rostrum.client.cli import main; main()",
            "sim",
            "run",
            "broadcast",
            "-n",
            "5",
            "--size",
            "2M",
        ]
        command += ["--loss", "1", "--engine", engine, "--json", str(report)]
        environment = os.environ | {"ROSTRUM_SIM_LIBRARY": str(loaded)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        if loaded == library:
            assert done.returncode == 0, done.stderr
            told[engine] = json.loads(report.read_text())["runs"][0]
        else:
            assert "no engine is called plainseq" in done.stderr
    assert told["plainseq"]["packets_over_fragments"] == 1.0
    assert told["plainseq"]["patches"] > 0
    assert told["plainseq"]["events"] != told["republic"]["events"]
