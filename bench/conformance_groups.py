"""The part of `rostrum conformance` that is of group messages: one publisher, six others, by each engine.

Each receiver loses the same multicast data packets in the lab and in virtual time, by their number as they come
(core/base/loss_pattern.h). What comes of them must agree: plain has lost just these, the others mend them all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from rostrum.client import Agent, Group, TimedOut
from rostrum.lab.lab import Lab
from rostrum.lab.namespace import LabError
from rostrum.sim.fabric import Fabric
from rostrum.sim.groups import GroupParams, Groups, MessagesParams
from rostrum.sim.network import LinkParams
from rostrum.topologies import load

PROTOCOLS = {"plain": "", "ricochet": "r=8,c=5,naks=1", "qsm": ""}
MESSAGES, QUICK_MESSAGES = 4000, 1000
# Each message has a packet for itself, being more than half of one: of a lab's MTU of 9,000 bytes, and of what the
# simulator carries.
LAB_BYTES = 5000
BYTES, PACKET_BYTES = 1000, 1472
RATE = 500.0  # messages a second: little for a loaded machine
TAIL = 4  # packets at the end whose loss a plain group need not notice
BOUND_S = 60.0
MS, S = 10**6, 10**9
Order = tuple[str, ...]


@dataclass(frozen=True)
class Counts:
    """Of all receivers together."""

    published: int
    packets: int  # data packets that the publisher multicast
    lost: int  # by the pattern
    by_data: int  # messages, by how they came
    by_repair: int
    by_retransmit: int
    told: int  # as lost
    repairs: int  # that receivers sent to each other
    dropped: int = 0  # by full sockets: not part of the pattern
    order: Order = ()  # what came first at a receiver, and whether anything came out of turn at any

    @property
    def mended(self) -> int:
        return self.by_repair + self.by_retransmit


Check = Callable[[str, str, float, float, float], Any]


class _Reader:
    """One receiver's messages."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.by = {"multicast": 0, "repair": 0, "retransmit": 0}
        self.told, self.last, self.in_turn = 0, 0, True

    @property
    def seen(self) -> int:
        return sum(self.by.values()) + self.told

    def take(self, wait_s: float) -> bool:
        """One of them; False if none comes in time."""
        try:
            message = self.group.next(wait_s)
        except TimedOut:
            return False
        if message.lost is not None:
            self.told += message.lost
        else:
            self.by[message.via] += 1
            number = int.from_bytes(message.data[:8], "little")
            self.in_turn &= number > self.last
            self.last = number
        return True


def in_lab(
    lab: Lab, protocol: str, count: int, sender: str, receivers: Sequence[str], scrape: Callable[[str], Any]
) -> Counts:
    """Publishes to a new group and reads for all. Raises LabError, RostrumError."""
    name = f"conformance-{protocol}-{time.monotonic_ns():x}"
    with ExitStack() as stack:
        agents = {one: stack.enter_context(Agent(lab.agent_socket(one))) for one in (sender, *receivers)}
        groups = {
            one: stack.enter_context(agent.join(name, protocol=protocol, order="fifo", options=PROTOCOLS[protocol]))
            for one, agent in agents.items()
        }
        _wait_for_views(agents, name)
        before = {one: scrape(one) for one in agents}
        readers = [_Reader(groups[one]) for one in receivers]
        began = time.monotonic()
        for number in range(1, count + 1):
            groups[sender].publish(number.to_bytes(8, "little") + bytes(LAB_BYTES - 8))
            for reader in readers:
                while reader.take(0):
                    pass
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))
        bound = time.monotonic() + BOUND_S
        least = count - (TAIL if protocol == "plain" else 0)
        for reader in readers:
            while reader.seen < least and time.monotonic() < bound:
                reader.take(0.1)
        for reader in readers:  # what is too much comes within the first one's time
            while reader.take(0.5 if reader is readers[0] else 0):
                pass

        def more(which: Sequence[str], metric: str, labels: str = "") -> int:
            key = (f"rostrum_agent_{metric}", labels)
            return sum(int(scrape(one).get(key, 0) - before[one].get(key, 0)) for one in which)

        sent = ("qsm_packets_total", 'kind="sent"') if protocol == "qsm" else ("packets_total", 'direction="sent"')
        by_data, by_repair, by_retransmit = (sum(reader.by[via] for reader in readers) for via in readers[0].by)
        return Counts(
            count, more([sender], f"group_{sent[0]}", sent[1]), more(receivers, "group_datagrams_intercepted_total"),
            by_data, by_repair, by_retransmit, sum(reader.told for reader in readers),
            more(receivers, "group_repairs_total", 'kind="sent"') if protocol == "ricochet" else 0,
            more(receivers, "group_socket_drops_total"), _order(all(reader.in_turn for reader in readers)),
        )  # fmt: skip


def _order(in_turn: bool) -> Order:
    return ("published", "in turn" if in_turn else "out of turn")


def _wait_for_views(agents: dict[str, Agent], name: str) -> None:
    """Until all know all. Raises LabError."""
    bound = time.monotonic() + BOUND_S
    while any(
        [one.members for one in agent.status().groups if one.name == name] != [len(agents)]
        for agent in agents.values()
    ):  # fmt: skip
        if time.monotonic() > bound:
            raise LabError(f"after {BOUND_S:g} s some agents still do not know all members of {name}")
        time.sleep(0.05)


def simulated(
    topology: str, protocol: str, count: int, sender: str, receivers: Sequence[str], loss: tuple[float, int], seed: int
) -> Counts:
    """The same here; at random times, so that `count` is what is published in the mean. Raises SimError."""
    fabric = Fabric.of_topology(load(topology), seed, LinkParams(delay_ns=20_000), None)
    net, nodes, members = fabric.network, fabric.nodes, (sender, *receivers)
    groups = Groups(net)
    for place, name in enumerate(members):
        groups.use(nodes[name], MessagesParams(seed=seed * 10_007 + place, packet_bytes=PACKET_BYTES,
                                               receive_bytes=4 << 20, send_bytes=4 << 20))  # fmt: skip
    for name in receivers:
        net.loss_pattern(nodes[name], name, seed, *loss)
    options = dict(one.split("=") for one in PROTOCOLS[protocol].split(",") if one)
    params = GroupParams(protocol, fifo=True, options={name: float(value) for name, value in options.items()})
    hosts = [nodes[name] for name in members]
    channels = []
    if protocol == "qsm":
        channels.append(groups.region(hosts, params))
        groups.group(hosts, GroupParams(protocol, fifo=True, options=params.options, regions=(channels[0],)))
    else:
        channels.append(groups.group(hosts, params))
    for number in channels:
        fabric.tree(number, sender, receivers)
        fabric.lay(number, sender, receivers, fabric.copies(number), shared=True)
    stop = round(count / RATE * S)
    groups.publish(nodes[sender], RATE, BYTES, 0, stop, own_groups=True)
    net.run(stop + 5 * S)
    stats = groups.stats()
    packets = groups.count(nodes[sender], "qsm_packets", "sent") if protocol == "qsm" else stats["data_sent"]
    return Counts(
        stats["published"], packets, sum(net.losses(nodes[name]) for name in receivers), stats["by_data"],
        stats["by_repair"], stats["by_retransmit"], stats["lost"], stats["repairs_sent"], order=_order(True),
    )  # fmt: skip


def checks(protocol: str, real: Counts, model: Counts, receivers: int, check: Check) -> list[Any]:
    """What must hold of both runs; of what random draws decide about, against the other."""
    found = []
    for name, run in (("lab", real), ("simulator", model)):
        due = run.published * receivers
        # A busy machine may drop some besides: as many as it counts, and a few that nobody does. A receiver that it
        # keeps waiting gets from others what is in its own socket already.
        slack, early = (run.dropped + 0.002 * due, 0.1 * due) if name == "lab" else (0, 0)
        missed = run.lost + slack
        again = 0.02 * run.published if protocol == "qsm" else 0
        found.append(check("data packets", name, run.published, run.packets, run.published + again))
        if protocol == "plain":
            found.append(check("told as lost", name, run.lost - TAIL * receivers, run.told, missed))
            found.append(check("mended", name, 0, run.mended, 0))
            found.append(check("came by multicast", name, due - missed, run.by_data, due - run.lost))
        else:
            found.append(check("told as lost", name, 0, run.told, slack))
            found.append(check("delivered", name, due - run.told, run.by_data + run.mended, due - run.told))
            found.append(check("mended", name, 0.9 * run.lost - slack, run.mended, 1.1 * run.lost + slack + early))
    # Of as many packets the same numbers are lost; one that was dropped, or came again, moves what follows by one.
    apart = 0.1 * model.lost
    found.append(check("lost by the pattern", "lab", model.lost - apart, real.lost, model.lost + apart))
    if protocol == "ricochet":
        found.append(check("repairs", "lab", 0.9 * model.repairs, real.repairs, 1.1 * model.repairs))
        lec = model.by_repair / max(1, model.mended)
        share = real.by_repair / max(1, real.mended)
        found.append(check("of what is mended, by repairs", "lab", lec - 0.3, share, 1))
    found.append(check("order of events", "lab", 1, float(real.order == model.order), 1))
    return found
