"""What a P4 vector is: what is installed, what goes in, what shall come out. Targets are told apart in `target.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from finsy import P4MeterConfig, P4MeterEntry, P4MulticastGroupEntry, P4TableAction, P4TableEntry, P4TableMatch

Entry = P4TableEntry | P4MulticastGroupEntry | P4MeterEntry


@dataclass(frozen=True)
class Send:
    """A frame enters the switch by a port."""

    port: int
    frame: bytes


@dataclass(frozen=True)
class Write:
    """Changes while packets flow: each is +insert, -delete or ~modify of an entry."""

    updates: tuple[Entry, ...]

    def __init__(self, *updates: Entry) -> None:
        object.__setattr__(self, "updates", updates)


@dataclass(frozen=True)
class Light:
    """A first_light_t digest."""

    port: int
    group: str
    source: str
    epoch: int
    session: int
    sn: int


@dataclass(frozen=True)
class Vector:
    """One behaviour.

    `out`: port -> frames that leave by it, in order. No other frame leaves, by any port.
    `counters`: (counter, index) -> packets, or (packets, bytes); of the indirect counters every other index stays as it
    was. `direct`: (an entry, packets that it counted).
    `digests`: all that are raised, in order.
    """

    name: str
    block: str
    entries: tuple[Entry, ...]
    steps: tuple[Send | Write, ...]
    out: Mapping[int, tuple[bytes, ...]] = field(default_factory=dict)
    counters: Mapping[tuple[str, int], int | tuple[int, int]] = field(default_factory=dict)
    direct: tuple[tuple[P4TableEntry, int], ...] = ()
    digests: tuple[Light, ...] = ()


# -- entries, by the names of docs/p4.md -------------------------------------------------------------------------


def forward(destination: str, port: int) -> P4TableEntry:
    return P4TableEntry(
        "unicast", match=P4TableMatch(destination=destination), action=P4TableAction("forward", port=port)
    )


def guard(network: str) -> P4TableEntry:
    return P4TableEntry("group_range", match=P4TableMatch(group=network), action=P4TableAction("guard"))


def grant(port: int, group: str, source: str = "") -> P4TableEntry:
    """`source`: an address or network; none: any."""
    match = P4TableMatch(ingress_port=port, group=group)
    if source:
        match["source"] = source
    return P4TableEntry("admission", match=match, action=P4TableAction("grant"))


def replicate(port: int, group: str, replication: int, level: int = 0) -> P4TableEntry:
    action = P4TableAction("replicate", replication=replication, level=level)
    return P4TableEntry("multicast", match=P4TableMatch(ingress_port=port, group=group), action=action)


def replicas(replication: int, *ports: int | tuple[int, int]) -> P4MulticastGroupEntry:
    """`ports`: each a port, or (port, instance)."""
    pairs = [port if isinstance(port, tuple) else (port, 0) for port in ports]
    return P4MulticastGroupEntry(replication, replicas=pairs)


def tag(level: int, dscp: int, pcp: int, queue: int) -> P4TableEntry:
    action = P4TableAction("tag", dscp=dscp, pcp=pcp, queue=queue)
    return P4TableEntry("priority_tags", match=P4TableMatch(level=level), action=action)


def queues(count: int) -> P4TableEntry:
    """To be modified (~): a default action is always there."""
    return P4TableEntry("egress_queues", action=P4TableAction("set_queues", count=count), is_default_action=True)


def share(port: int, rate: int | None = None, burst: int = 0) -> P4MeterEntry:
    """What control may have of a port, in bytes a second and bytes; no rate: no bound. To be modified (~)."""
    config = None if rate is None else P4MeterConfig(cir=rate, cburst=burst, pir=rate, pburst=burst)
    return P4MeterEntry("control_share", index=port, config=config)


def watch(port: int, group: str, *, slot: int, epoch: int, first_session: int = 0, confirm: int = 1) -> P4TableEntry:
    action = P4TableAction("watch", slot=slot, epoch=epoch, first_session=first_session, confirm=confirm)
    return P4TableEntry("first_light", match=P4TableMatch(ingress_port=port, group=group), action=action)


def path(
    port: int,
    group: str,
    replication: int,
    ports: tuple[int | tuple[int, int], ...],
    *,
    source: str = "",
    level: int = 0,
) -> tuple[Entry, ...]:
    """Everything that one multicast rule needs."""
    return (replicas(replication, *ports), replicate(port, group, replication, level), grant(port, group, source))
