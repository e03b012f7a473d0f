"""The same topology, group and losses in the lab and in the simulator: what protocols count agrees.

The lab's agents lose one data packet in a hundred by their lossy interceptor, the simulator as many on the links to the
receivers. Chance differs, so numbers of losses agree within four standard deviations of a binomial; what follows from a
loss (a repair for each) is compared with the losses that are to be expected.
"""

from __future__ import annotations

import itertools
import math

import pytest
from rostrum.client import Agent
from rostrum.controller.core.overlay import BackupOverlay
from rostrum.lab.lab import Lab
from rostrum.sim import views
from rostrum.sim.fabric import Fabric
from rostrum.sim.network import HostParams, LinkParams, PathParams
from rostrum.topologies import load

from tests.lab.objects import SEND_BOUND_S, check, data_of, forget

pytestmark = pytest.mark.lab

TOPOLOGY, SENDER = "fat-tree-4", "h0-0-0"
RECEIVERS = ["h0-0-1", "h0-1-0", "h1-0-0", "h1-1-1", "h2-0-0", "h3-1-0"]
LOSS, SIZE = 0.01, 12_000_000
GROUP = 7
_ids = itertools.count(1 << 21)


@pytest.fixture(scope="module")
def lab():
    options = ("--loss", f"uniform:{LOSS}", "--repairs", "patches")
    with Lab.start(TOPOLOGY, name="t-conform", seed=1, reserve="32M", quota="512M", agent_options=options) as lab:
        yield lab


def in_lab(lab: Lab, protocol: str, seed: int) -> dict[str, int]:
    """Data packets by multicast, and those sent again, of one object."""
    data = data_of(SIZE, seed)
    with Agent(lab.agent_socket(SENDER)) as agent:
        number = next(_ids)
        agent.add(number, data)
        result = agent.send(number, RECEIVERS, protocol=protocol).wait(SEND_BOUND_S)
    check(lab, result, RECEIVERS, data)
    assert (result.path, result.protocol) == ("packet", protocol)
    forget(lab, [SENDER, *RECEIVERS], result.data_id)
    return {
        "fragments": -(-SIZE // result.fragment_size),
        "fragment_size": result.fragment_size,
        "sent": result.packets_sent,
        "patched": result.packets_patched,
    }


def simulated(protocol: str, fragment_size: int, seed: int) -> dict[str, int]:
    topology = load(TOPOLOGY)
    params = HostParams(fragment_size=fragment_size, patches_only=True)
    fabric = Fabric.of_topology(topology, seed, LinkParams(delay_ns=20_000), lambda name: params)
    net, nodes = fabric.network, fabric.nodes
    fabric.tree(GROUP, SENDER, RECEIVERS)
    for name in RECEIVERS:
        net.loss(fabric.last_link(GROUP, name), "bernoulli", LOSS)
    if protocol == "rdcm":
        overlay = BackupOverlay.build(SENDER, {a: list(b) for a, b in fabric.copies(GROUP).items()}, RECEIVERS)
        for name, view in views.of_overlay(overlay, nodes, 1):
            net.view(nodes[name], 1, view)
    net.path(nodes[SENDER], PathParams(GROUP, rdcm=protocol == "rdcm", rate_bps=fabric.rate(SENDER)))
    number = net.send(nodes[SENDER], 1, SIZE, [nodes[name] for name in RECEIVERS])
    net.run_until_noted("complete", len(RECEIVERS), 60 * 10**9)
    stats = net.transfer(nodes[SENDER], number)
    totals = [net.transfer(nodes[name], net.receiving(nodes[name], 1)) for name in RECEIVERS]
    return {
        "fragments": stats["fragments"],
        "sent": stats["packets_sent"],
        "patched": stats["patches_sent"],
        "repairs": sum(one["peer_repairs_received"] for one in totals),
        "acks": sum(one["acks_sent"] for one in totals),
    }


def tolerance(expected: float) -> float:
    """Of two binomial numbers of rare events with this mean: four standard deviations of their difference."""
    return 4 * math.sqrt(2 * expected)


def test_republic__data_and_patches_agree(lab: Lab, seed: int) -> None:
    real = in_lab(lab, "republic", seed)
    model = simulated("republic", real["fragment_size"], seed)
    assert real["fragments"] == model["fragments"]
    expected = real["fragments"] * len(RECEIVERS) * LOSS
    # Both send each fragment once, and a round of what receivers missed before their first packet.
    for run in (real, model):
        assert run["fragments"] <= run["sent"] <= 1.1 * run["fragments"] + 40, (real, model)
        assert abs(run["patched"] - expected) <= tolerance(expected), (real, model)


def test_rdcm__data_and_repairs_agree(lab: Lab, seed: int) -> None:
    real = in_lab(lab, "rdcm", seed)
    model = simulated("rdcm", real["fragment_size"], seed)
    assert real["fragments"] == model["fragments"]
    expected = model["fragments"] * len(RECEIVERS) * LOSS
    # Peers mend nearly everything: the sender repeats next to nothing, to nobody alone and to all.
    for run in (real, model):
        assert run["fragments"] <= run["sent"] <= 1.03 * run["fragments"] + 4, (real, model)
        assert run["patched"] <= 4, (real, model)
    assert abs(model["repairs"] - expected) <= tolerance(expected) + 0.3 * expected, (real, model)
    # At most one ACK for each packet in each of a receiver's places, at least one for each 64.
    assert model["fragments"] * len(RECEIVERS) / 64 <= model["acks"] <= 4 * model["fragments"] * len(RECEIVERS)
