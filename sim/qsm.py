"""Workloads of QSM (Ostrowski and Birman): nodes that are all in the same groups, and senders that publish as fast as
they can. What processors need is a model; its constants are yet to be calibrated in the lab."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rostrum.sim.groups import VIA, GroupParams, Groups, HostCosts, MessagesParams
from rostrum.sim.network import LinkParams, Network

S, MS, US = 10**9, 10**6, 10**3
MESSAGE_BYTES = 1000  # one in a packet: what packing gains is not in these figures
PACKET_BYTES = 1472
# To be calibrated: of a datagram, of a message at either end, of a token, and of state that is in no cache.
COSTS = HostCosts(receive_ns=12 * US, send_ns=10 * US, message_ns=4 * US, token_ns=10 * US, cold_ns=200,
                  warm_groups=1024, buffer_bytes=2 << 20)  # fmt: skip
WARM_S = 0.5  # before what counts
Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """One run. `token_ms`: between tokens; `seconds`: that count."""

    nodes: int = 25
    groups: int = 1
    senders: int = 1
    replicas: int = 5
    token_ms: int = 5
    rate: int = 0  # 1: the paper's rate control
    loss_percent: float = 0.0
    freeze_s: float = 0.0  # of one node, when half of the time is over
    seconds: float = 1.0
    seed: int = 1


def run(setting: Setting) -> Row:
    """Messages a second that each receiver gets, and what recovery and control took. Raises SimError."""
    net = Network(setting.seed)
    hub = net.switch()
    hosts = [net.server() for _ in range(setting.nodes)]
    links = [net.link(host, hub, LinkParams(10**9, 20 * US, 4 << 20)) for host in hosts]
    groups = Groups(net)
    for place, host in enumerate(hosts):
        groups.use(host, MessagesParams(seed=setting.seed * 10_007 + place, packet_bytes=PACKET_BYTES,
                                        receive_bytes=32 << 20, send_bytes=64 << 20,
                                        max_groups=max(16, setting.groups)))  # fmt: skip
        groups.costs(host, COSTS)
        if setting.loss_percent:
            net.loss(links[place][1], "bernoulli", setting.loss_percent / 100, 1)
    options = {"replicas": setting.replicas, "token": setting.token_ms, "rate": setting.rate}
    region = groups.region(hosts, GroupParams("qsm", options=options))
    net.group(hub, region, [link[1] for link in links])
    for place, host in enumerate(hosts):
        net.group(host, region, [links[place][0]], member=True)
    for _ in range(setting.groups):
        groups.group(hosts, GroupParams("qsm", fifo=True, options=options, region=region))
    start, stop = round(WARM_S * S), round((WARM_S + setting.seconds) * S)
    for host in hosts[-setting.senders :]:
        groups.publish_all(host, MESSAGE_BYTES, 0, stop)
    if setting.freeze_s:
        middle = (start + stop) // 2
        groups.freeze(hosts[setting.nodes // 2], middle, middle + round(setting.freeze_s * S))
    groups.count_between(start, stop)
    settle = 10 * setting.token_ms * MS + S
    net.run(stop + settle)
    stats, found = groups.stats(), groups.recoveries()
    late = found["known_ns"][(found["via"] == VIA.index("retransmit")) & (found["known_ns"] > 0)]
    sender = hosts[-1]
    sent = groups.count(sender, "qsm_packets", "sent")
    control = sum(groups.count(sender, "qsm_tokens", kind) for kind in ("sent", "acknowledged"))
    control += sum(groups.count(sender, "qsm_control", kind) for kind in ("pulls", "acks", "naks", "positions"))
    control += sum(groups.count(sender, "qsm_packets", kind) for kind in ("forwarded", "multicast again"))
    acked = groups.count(sender, "qsm_packets", "acknowledged")
    delivered = stats["by_data"] + stats["by_retransmit"]
    return {
        **asdict(setting),
        "rate_per_s": stats["published"] / setting.seconds,
        "delivered": delivered,
        "expected": stats["expected"],
        "lost": stats["expected"] - delivered,
        "recovered": int(stats["by_retransmit"]),
        "recovery_ms": float(late.mean()) / MS if len(late) else 0.0,
        "recovery_token_rounds": float(late.mean()) / MS / setting.token_ms if len(late) else 0.0,
        "ack_ms": groups.count(sender, "qsm_ack_us", "") / 1000 / max(1, acked),
        "sender_control_share": control / max(1, control + sent),
        "buffer_lost": stats["buffer_lost"],
        "processes_bytes": net.run_stats().get("engine_bytes", 0),
    }
