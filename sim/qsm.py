"""Workloads of QSM (Ostrowski and Birman): nodes that are all in the same groups, and senders that publish as fast as
they can. What processors need is a model, whose constants real agents gave in the lab (`rostrum lab run qsm-costs`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from rostrum.sim.groups import VIA, GroupParams, Groups, HostCosts, MessagesParams
from rostrum.sim.network import LinkParams, Network
from rostrum.topologies.places import TREE

S, MS, US = 10**9, 10**6, 10**3
MESSAGE_BYTES = 1000  # one in a packet: what packing gains is not in these figures
PACKET_BYTES = 1472
LINK_BPS = 10**10
STORED_COSTS = TREE / "results" / "qsm-costs.json"  # rostrum lab run qsm-costs --json results/qsm-costs.json
# Without a calibration: of a datagram, of a message at either end, of a token, and of state that is in no cache.
GUESSED = HostCosts(receive_ns=12 * US, send_ns=10 * US, message_ns=4 * US, token_ns=10 * US, cold_ns=200,
                    warm_groups=1024, buffer_bytes=2 << 20)  # fmt: skip
CONTROL = {
    "forwarded": ("qsm_packets", ("forwarded", "multicast again")),
    "tokens": ("qsm_tokens", ("sent", "acknowledged")),
    "acks": ("qsm_control", ("acks",)),
    "other": ("qsm_control", ("pulls", "naks", "positions")),
}
WARM_S = 0.5  # before what counts
Row = dict[str, Any]


class CostsError(Exception):
    """A calibration cannot be read; the text says why."""


@dataclass(frozen=True)
class Costs:
    """What processors need. `commit`: of the agents that were measured; empty: nobody was."""

    host: HostCosts = GUESSED
    commit: str = ""

    @property
    def calibrated(self) -> bool:
        return bool(self.commit)


def stored_costs(file: Path | None = None) -> Costs:
    """The calibration in that file, or the stored one; without one, guesses. Raises CostsError."""
    place = file or STORED_COSTS
    if file is None and not place.exists():
        return Costs()
    known = {one.name for one in fields(HostCosts)}
    try:
        given = json.loads(place.read_text())
        costs = {name: int(value) for name, value in given["costs"].items()}
        if not costs.keys() <= known or any(not 0 <= value < 1 << 40 for value in costs.values()):
            raise ValueError(f"costs are {', '.join(sorted(known))}, whole numbers from 0")
        return Costs(HostCosts(**(asdict(GUESSED) | costs)), str(given["manifest"]["commit"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CostsError(f"{place} is no calibration: {error!r}") from error


@dataclass(frozen=True)
class Setting:
    """One run. `token_ms`: between tokens; `seconds`: that count. Rows also tell the rate of each `sample_s`. Who
    freezes or is slow is the node in the middle (`odd_node`)."""

    nodes: int = 25
    groups: int = 1
    senders: int = 1
    regions: int = 1  # of the groups' members, alike in size
    replicas: int = 5
    token_ms: int = 5
    rate: int = 0  # 1: the paper's rate control
    loss_percent: float = 0.0
    freeze_s: float = 0.0  # of one node, when half of the time is over
    slow_host: int = 1  # so many times as long takes one node's processor for everything,
    slow_s: float = 0.0  # ... from the start, so long; 0: always
    slow_link: int = 1  # one node's link has this part of the others' rate
    seconds: float = 1.0
    warm_s: float = WARM_S  # before what counts
    receive_mb: int = 32  # of packets that each node keeps
    sample_s: float = 0.0
    begin: bool = False  # samples are from the first message on, not after warm_s
    seed: int = 1
    costs: HostCosts = field(default_factory=lambda: stored_costs().host)

    @property
    def odd_node(self) -> int:
        return self.nodes // 2


def run(setting: Setting) -> Row:
    """Messages a second that each receiver gets, and what recovery and control took. Raises SimError."""
    net = Network(setting.seed)
    hub = net.switch()
    hosts = [net.server() for _ in range(setting.nodes)]
    odd = hosts[setting.odd_node]
    links = [
        net.link(host, hub, LinkParams(LINK_BPS // (setting.slow_link if host == odd else 1), 20 * US, 4 << 20))
        for host in hosts
    ]
    groups = Groups(net)
    for place, host in enumerate(hosts):
        groups.use(host, MessagesParams(seed=setting.seed * 10_007 + place, packet_bytes=PACKET_BYTES,
                                        receive_bytes=setting.receive_mb << 20, send_bytes=64 << 20,
                                        max_groups=max(16, setting.groups)))  # fmt: skip
        groups.costs(host, slower(setting.costs, setting.slow_host) if host == odd else setting.costs)
        if setting.loss_percent:
            net.loss(links[place][1], "bernoulli", setting.loss_percent / 100, 1)
    options = {"replicas": setting.replicas, "token": setting.token_ms, "rate": setting.rate}
    regions = []
    for first in range(setting.regions):
        places = range(first, setting.nodes, setting.regions)
        regions.append(groups.region([hosts[place] for place in places], GroupParams("qsm", options=options)))
        net.group(hub, regions[-1], [links[place][1] for place in places])
        for place, host in enumerate(hosts):
            net.group(host, regions[-1], [links[place][0]], member=place in places)
    for _ in range(setting.groups):
        groups.group(hosts, GroupParams("qsm", fifo=True, options=options, regions=tuple(regions)))
    start, stop = round(setting.warm_s * S), round((setting.warm_s + setting.seconds) * S)
    for host in hosts[-setting.senders :]:
        groups.publish_all(host, MESSAGE_BYTES, 0, stop)
    if setting.freeze_s:
        middle = (start + stop) // 2
        groups.freeze(odd, middle, middle + round(setting.freeze_s * S))
    groups.count_between(start, stop)
    since, samples = 0 if setting.begin else start, []
    if setting.slow_s:
        again = round(setting.slow_s * S)
        samples = _sampled(net, groups, hosts[-1], since, again, setting.sample_s)
        net.run(again)
        groups.costs(odd, setting.costs)
        since = again
    samples += _sampled(net, groups, hosts[-1], since, stop, setting.sample_s)
    settle = 10 * setting.token_ms * MS + S
    net.run(stop + settle)
    stats, found = groups.stats(), groups.recoveries()
    late = found["known_ns"][(found["via"] == VIA.index("retransmit")) & (found["known_ns"] > 0)]
    sender = hosts[-1]
    control = {
        name: sum(groups.count(sender, counter, kind) for kind in kinds) for name, (counter, kinds) in CONTROL.items()
    }
    spent = sum(control.values())
    acked = groups.count(sender, "qsm_packets", "acknowledged")
    delivered = stats["by_data"] + stats["by_retransmit"]
    return {
        **{name: value for name, value in asdict(setting).items() if name != "costs"},
        "rate_per_s": stats["published"] / setting.seconds,
        "delivered": delivered,
        "expected": stats["expected"],
        "lost": stats["expected"] - delivered,
        "recovered": int(stats["by_retransmit"]),
        "recovery_ms": float(late.mean()) / MS if len(late) else 0.0,
        "recovery_token_rounds": float(late.mean()) / MS / setting.token_ms if len(late) else 0.0,
        "ack_ms": groups.count(sender, "qsm_ack_us", "") / 1000 / max(1, acked),
        "sender_control": control,
        "sender_control_share": spent / max(1, spent + groups.count(sender, "qsm_packets", "sent")),
        "buffer_lost": stats["buffer_lost"],
        "told_lost": stats["lost"],
        "could_per_s": could_take(setting) if max(setting.slow_host, setting.slow_link) > 1 else 0.0,
        "processes_bytes": net.run_stats().get("engine_bytes", 0),
        "samples_per_s": samples,
    }


def could_take(setting: Setting) -> float:
    """Packets a second that the slow node can take: its processor reads them, and a token each interval; or the link
    carries their messages."""
    if setting.slow_link > 1:
        return LINK_BPS / setting.slow_link / 8 / MESSAGE_BYTES
    costs = slower(setting.costs, setting.slow_host)
    free = 1 - (costs.receive_ns + costs.token_ns) / (setting.token_ms * MS)
    return free / (costs.receive_ns + costs.message_ns) * S


def slower(costs: HostCosts, times: int) -> HostCosts:
    """A processor that takes so many times as long."""
    return replace(costs, **{one.name: times * getattr(costs, one.name) for one in fields(costs) if "_ns" in one.name})


def _sampled(net: Network, groups: Groups, sender: int, start: int, stop: int, each_s: float) -> list[float]:
    """Packets a second that the sender sent, in each interval from `start` to `stop`."""
    rates: list[float] = []
    at, before = start, 0
    while each_s > 0 and at <= stop:
        net.run(at)
        sent = groups.count(sender, "qsm_packets", "sent")
        if at > start:
            rates.append((sent - before) / each_s)
        at, before = at + round(each_s * S), sent
    return rates


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
