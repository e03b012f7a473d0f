"""The same topology, group and lost fragments in the lab and in the simulator: what protocols count agrees.

Each receiver loses the first copies of the same fragments there and here (core/base/loss_pattern.h), in runs of three.
docs/sim.md, "Conformance", says what may differ by how much, and why.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from rostrum.client import Agent
from rostrum.controller.core.rdcm.overlay import BackupOverlay
from rostrum.lab.lab import Lab
from rostrum.sim import views
from rostrum.sim.fabric import Fabric
from rostrum.sim.network import HostParams, LinkParams, PathParams, RdcmParams
from rostrum.topologies import load

from tests.lab.metrics import scrape
from tests.lab.objects import SEND_BOUND_S, check, data_of, forget, until

pytestmark = pytest.mark.lab

TOPOLOGY, SENDER = "fat-tree-4", "h0-0-0"
RECEIVERS = ["h0-0-1", "h0-1-0", "h1-0-0", "h1-1-1", "h2-0-0", "h3-1-0"]
LOSS, RUN, SIZE = 0.01, 3, 12_000_000
PATTERN_SEED = 1  # of the lab's agents
# As agent/daemon/agent.c sets the engine.
AGENTS = RdcmParams(ack_timeout_least_ns=4_000_000, ack_every=64, ack_delay_ns=8_000_000)
GROUP = 7
_ids = itertools.count(1 << 21)


@dataclass(frozen=True)
class Counts:
    """Of one object: at the sender, and of all receivers together."""

    fragments: int
    fragment_size: int
    data: int  # packets that the sender multicast
    patches: int  # fragments that it sent again to single receivers
    lost: int  # by the pattern
    patched: int  # fragments that receivers got so
    repaired: int  # and from each other, for the first time
    repairs: int  # packets that they sent to each other
    acks: int  # packets that they sent
    dropped: int = 0  # by full sockets of receivers: not part of the pattern
    began: int = 0  # the highest of the receivers' first fragments

    @property
    def acks_each(self) -> float:
        """For each fragment and receiver."""
        return self.acks / self.fragments / len(RECEIVERS)


@pytest.fixture(scope="module")
def lab():
    options = ("--loss", f"pattern:{LOSS}:{RUN}", "--repairs", "patches")
    with Lab.start(
        TOPOLOGY, name="t-conform", seed=PATTERN_SEED, reserve="32M", quota="512M", agent_options=options
    ) as lab:
        yield lab


METRICS = {
    "lost": ("data_packets_intercepted_total", ""),
    "dropped": ("data_socket_drops_total", ""),
    "patched": ("patches_received_total", ""),
    "received": ("peer_repairs_total", 'kind="received"'),
    "old": ("peer_repairs_total", 'kind="old"'),
    "repairs": ("peer_repairs_total", 'kind="sent"'),
    "acks": ("acks_total", 'direction="sent"'),
}


def counted(lab: Lab) -> dict[str, int]:
    """What all receivers counted so far, once none has a transfer under way: receivers that are whole repair others."""

    def pages() -> list[dict[tuple[str, str], float]] | None:
        found = [scrape(lab, name) for name in RECEIVERS]
        under_way = ("rostrum_agent_transfers_under_way", 'direction="receive"')
        return None if any(page[under_way] for page in found) else found

    found = until(pages, "the receivers' transfers to end", 60)
    return {key: sum(int(page[f"rostrum_agent_{name}", labels]) for page in found)
            for key, (name, labels) in METRICS.items()}  # fmt: skip


def in_lab(lab: Lab, protocol: str, seed: int) -> Counts:
    data = data_of(SIZE, seed)
    before = counted(lab)
    with Agent(lab.agent_socket(SENDER)) as agent:
        number = next(_ids)
        agent.add(number, data)
        result = agent.send(number, RECEIVERS, protocol=protocol).wait(SEND_BOUND_S)
    check(lab, result, RECEIVERS, data)
    assert (result.path, result.protocol) == ("packet", protocol)
    more = {key: value - before[key] for key, value in counted(lab).items()}
    forget(lab, [SENDER, *RECEIVERS], result.data_id)
    # ACKs to the sender are a part of all.
    assert (protocol == "rdcm") == (result.acks_received > 0) and result.acks_received <= more["acks"]
    return Counts(
        -(-SIZE // result.fragment_size), result.fragment_size, result.packets_sent, result.packets_patched,
        more["lost"], more["patched"], more["received"] - more["old"], more["repairs"], more["acks"],
        more["dropped"], max(row.initial_sn or 0 for row in result.receivers),
    )  # fmt: skip


def simulated(protocol: str, fragment_size: int) -> Counts:
    topology = load(TOPOLOGY)
    params = HostParams(fragment_size=fragment_size, patches_only=True, rdcm=AGENTS)
    fabric = Fabric.of_topology(topology, PATTERN_SEED, LinkParams(delay_ns=20_000), lambda name: params)
    net, nodes = fabric.network, fabric.nodes
    fabric.tree(GROUP, SENDER, RECEIVERS)
    for name in RECEIVERS:
        net.loss_pattern(nodes[name], name, PATTERN_SEED, LOSS, RUN)
    if protocol == "rdcm":
        overlay = BackupOverlay.build(SENDER, {a: list(b) for a, b in fabric.copies(GROUP).items()}, RECEIVERS)
        for name, view in views.of_overlay(overlay, nodes, 1):
            net.view(nodes[name], 1, view)
    net.path(nodes[SENDER], PathParams(GROUP, protocol, rate_bps=fabric.rate(SENDER)))
    number = net.send(nodes[SENDER], 1, SIZE, [nodes[name] for name in RECEIVERS])
    net.run_until_noted("receive_done", len(RECEIVERS), 60 * 10**9)
    stats = net.transfer(nodes[SENDER], number)
    each = [net.transfer(nodes[name], net.receiving(nodes[name], 1)) for name in RECEIVERS]

    def total(key: str) -> int:
        return sum(one[key] for one in each)

    return Counts(
        stats["fragments"], fragment_size, stats["packets_sent"], stats["patches_sent"],
        sum(net.losses(nodes[name]) for name in RECEIVERS), total("patches_received"),
        total("peer_repairs_received") - total("peer_repairs_old"), total("peer_repairs_sent"), total("acks_sent"),
    )  # fmt: skip


def agree(real: Counts, model: Counts) -> None:
    """What holds of both protocols."""
    told = f"seed of the pattern {PATTERN_SEED}; lab {real}; simulator {model}"
    assert real.fragments == model.fragments, told
    for run in (real, model):
        again = run.data - run.fragments
        # Nothing is lost that the pattern does not have. What a receiver misses before its first packet cannot be lost
        # in its turn; that is as much as the sender says again at most.
        assert model.lost - 2 * LOSS * again * len(RECEIVERS) - RUN * 2 <= run.lost <= model.lost, told
        # Each loss is mended once, by the protocol's own way or by what the sender multicasts again.
        mended = run.patched + run.repaired
        slack = 0.1 * run.lost + run.dropped
        assert run.lost - again * len(RECEIVERS) - slack <= mended <= run.lost + slack, told


def test_republic(lab: Lab, seed: int) -> None:
    real = in_lab(lab, "republic", seed)
    model = simulated("republic", real.fragment_size)
    agree(real, model)
    for run in (real, model):
        # Once each, and a round up to where the last receiver came in.
        assert 0 <= run.data - run.fragments - run.began <= 0.02 * run.fragments, (real, model)
        assert run.patched <= run.patches <= 1.1 * run.patched, (real, model)
        assert run.repairs == run.acks == 0, (real, model)


def test_rdcm(lab: Lab, seed: int) -> None:
    real = in_lab(lab, "rdcm", seed)
    model = simulated("rdcm", real.fragment_size)
    agree(real, model)
    for run in (real, model):
        # Peers mend nearly everything: the sender repeats next to nothing, to all or to one.
        assert 0 <= run.data - run.fragments <= 0.1 * run.fragments, (real, model)
        assert run.patches <= 4, (real, model)
        # Repairs that were not needed, of all packets that were due.
        assert run.repaired <= run.repairs <= run.repaired + 0.1 * run.fragments * len(RECEIVERS), (real, model)
    assert model.acks_each / 3 <= real.acks_each <= 3 * model.acks_each, (real, model)
