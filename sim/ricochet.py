"""Workloads and figures of Ricochet (Balakrishnan et al., NSDI 2007, Sec. 5), for the experiments of that name.

A grouping is (n, d, s): n nodes, each in d groups of s nodes on average, drawn at random: n * d = g * s for g groups.
Any node publishes to any group, 1 KB messages, so many that each node receives `rate` a second. Losses are each
receiver's own.
"""

from __future__ import annotations

import random
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rostrum.sim.groups import VIA, GroupParams, Groups, MessagesParams
from rostrum.sim.network import LinkParams, Network

S, MS, US = 10**9, 10**6, 10**3
MESSAGE_BYTES = 1024
PACKET_BYTES = 1472
MODELS = {"uniform": "bernoulli", "bursty": "bursty", "markov": "gilbert"}
LINK_DELAY_NS = 20 * US  # the paper's cluster: some 50 us from socket to socket, 100 Mbit/s
LATE_MS = 250  # what Fig. 8 has recovered by then
EDGE_S = 1.0  # at both ends of a run, that does not count
Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """One run. `rate`: messages that each node receives a second, of all its groups."""

    nodes: int = 64
    degree: int = 128
    size: int = 10
    rate: float = 1000.0
    loss_percent: float = 1.0
    model: str = "uniform"
    burst: int = 1
    protocol: str = "ricochet"
    r: int = 8
    c: float = 5.0
    stagger: int = 1
    naks: bool = False
    session: float = 0.05  # SRM: session messages' share of each group's data
    seconds: float = 30.0  # of publishing
    settle_s: float = 2.0  # after it, until the run ends
    link_bps: int = 100_000_000
    queue_bytes: int = 4 << 20
    seed: int = 1

    @property
    def groups(self) -> int:
        return max(1, round(self.nodes * self.degree / self.size))


def grouping(setting: Setting) -> list[list[int]]:
    """Members of each group: each node in `degree` of them, drawn at random."""
    draw = random.Random(setting.seed)
    members: list[list[int]] = [[] for _ in range(setting.groups)]
    for node in range(setting.nodes):
        for group in draw.sample(range(setting.groups), min(setting.degree, setting.groups)):
            members[group].append(node)
    return members


def build(setting: Setting) -> tuple[Groups, list[int]]:
    """A switch, the nodes around it, the groups' forwarding, losses and publishers; and the links to the nodes."""
    net = Network(setting.seed)
    hub = net.switch()
    hosts = [net.server() for _ in range(setting.nodes)]
    link = LinkParams(setting.link_bps, LINK_DELAY_NS, setting.queue_bytes)
    links = [net.link(host, hub, link) for host in hosts]
    groups = Groups(net)
    for place, host in enumerate(hosts):
        give_up = 20 * MS if setting.protocol == "plain" else 0
        params = MessagesParams(
            seed=setting.seed * 10_007 + place, packet_bytes=PACKET_BYTES, receive_bytes=4 << 20, send_bytes=1 << 20,
            give_up_plain_ns=give_up, max_groups=setting.groups,
        )  # fmt: skip
        groups.use(host, params)
        if setting.loss_percent:
            net.loss(links[place][1], MODELS[setting.model], setting.loss_percent / 100, setting.burst)
    chosen: dict[str, dict[str, float]] = {
        "ricochet": {"r": setting.r, "c": setting.c, "stagger": setting.stagger, "naks": int(setting.naks)},
        "srm": {"session": setting.session},
    }
    options = GroupParams(setting.protocol, options=chosen.get(setting.protocol, {}))
    for members in grouping(setting):
        number = groups.group([hosts[node] for node in members], options)
        net.group(hub, number, [links[node][1] for node in members])
        for node, host in enumerate(hosts):
            net.group(host, number, [links[node][0]], member=node in members)
    stop = round(setting.seconds * S)
    edge = round(min(EDGE_S, setting.seconds / 4) * S)
    for host in hosts:
        groups.publish(host, setting.rate / setting.size, MESSAGE_BYTES, 0, stop)
    # Discovery may take as long again as a run of what was lost early.
    groups.count_between(edge, stop - edge if setting.protocol == "ricochet" else stop // 2)
    return groups, [down for _, down in links]


def run(setting: Setting) -> Row:
    """One run; what came of it. Raises SimError."""
    groups, down = build(setting)
    net = groups.network
    began = time.process_time()
    net.run(round(setting.seconds * S))
    carried = sum(net.link_stats(link)["bytes"] for link in down)
    net.run(round((setting.seconds + setting.settle_s) * S))
    took = time.process_time() - began
    stats, found, events = groups.stats(), groups.recoveries(), net.run_stats()["events"]
    missed = stats["expected"] - stats["by_data"]
    known = found["known_ns"] / MS
    late = {name: found["late_ns"][found["via"] == number] / MS for number, name in enumerate(VIA)}
    later = missed - sum(np.count_nonzero(late[name] <= LATE_MS) for name in ("repair", "retransmit"))
    return {
        **asdict(setting),
        "expected": stats["expected"],
        "lost_on_the_way": missed,
        "lost_share": missed / max(1, stats["expected"]),
        "lec_recovery_share": stats["by_repair"] / missed if missed else 1.0,
        "recovered_share": (stats["by_repair"] + stats["by_retransmit"]) / missed if missed else 1.0,
        "lec_latency_ms": _spread(late["repair"]),
        "lec_since_discovery_ms": _spread(known[found["via"] == VIA.index("repair")]),
        "since_discovery_ms": _spread(known[found["via"] != VIA.index("given up")]),
        "latency_ms": _spread(np.concatenate([late["repair"], late["retransmit"]])),
        "later_share": later / missed if missed else 0.0,
        "discovery_ms": _spread(late["given up"] if setting.protocol == "plain" else (found["late_ns"] / MS - known)),
        "bytes_per_message": carried / (setting.nodes * setting.rate * setting.seconds),
        "overhead": stats["repairs_sent"] / max(1, stats["repairs_sent"] + stats["data_received"]),
        "repairs_per_data": stats["repairs_sent"] / max(1, stats["data_received"]),
        "naks_per_data": stats["naks_sent"] / max(1, stats["data_sent"]),
        "naks_per_missing": stats["naks_sent"] / max(1, stats["discovered"]),
        "answers_per_missing": stats["retransmits_sent"] / max(1, stats["discovered"]),
        "heartbeats_per_data": stats["heartbeats_sent"] / max(1, stats["data_sent"]),
        "xors_per_data": stats["xors"] / max(1, stats["data_received"]),
        "regions_most": stats["regions_most"],
        "bins_most": stats["bins_most"],
        "recoveries_ms": _histogram(late),
        "events": events,
        "events_per_s": events / max(took, 1e-9),
        "cpu_s": took,
    }


def _spread(values: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float]:
    if not len(values):
        return {}
    p50, p99 = np.percentile(values, [50, 99])
    return {"mean": float(values.mean()), "p50": float(p50), "p99": float(p99), "max": float(values.max())}


def _histogram(late: dict[str, np.ndarray[Any, np.dtype[np.float64]]]) -> dict[str, list[int]]:
    """By how they came: counts of 10 ms each, the last one of all that is later than 500 ms."""
    edges = np.append(np.arange(0, 501, 10), np.inf)
    return {name: np.histogram(late[name], edges)[0].tolist() for name in ("repair", "retransmit")}
