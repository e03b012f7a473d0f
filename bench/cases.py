"""What is measured: a case is one network and one object; the plan says which cases a bench has, and who takes part."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rostrum.topologies.units import SIZES, size_bytes

MB, GB = SIZES["M"], SIZES["G"]
USUAL_SIZE = 512 * MB
# Of the sender's link where it is limited. The goals' figures: what multicast is for is a link slower than the servers.
LIMITED_BPS = {1500: 300_000_000, 9000: 1_000_000_000}

RAW = ("raw-udp", "raw-udp-gso", "raw-packet", "raw-xdp")
OURS = ("rostrum", "rostrum-udp", "rostrum-udp-gso", "rostrum-packet", "rostrum-xdp")
TCP = ("tcp-cubic", "tcp-bbr")
MULTICAST = ("uftp", "udpcast", "norm", "pgm", "aeron")
PEERS = (*MULTICAST, *TCP, "http")
TOOLS = (*RAW, *OURS, *PEERS)
# Variants: to scratch memory instead of files; told nothing of the limit of the sender's link; by RDCM.
SCRATCH = tuple(f"{name}-scratch" for name in RAW)
UNTOLD = "rostrum-untold"
BY_RDCM = "rostrum-rdcm"
ON_LAN = "rostrum-lan"  # without a manager, beside those who have none either
SECURE = "rostrum-secure"  # `security: required`
SIGNED = "rostrum-signed"  # the same, agents with --security signed
READY = ("rostrum-ready", "tcp-cubic-ready")  # what receivers write to is in memory before the start
CHECKED = ("tcp-cubic-checked", "tcp-cubic-ready-checked")  # TCP's copies with digests as agents take them
PARTS = "parts"  # ciphers and digests alone, beside those two
LAN_TOOLS = (ON_LAN, "udpcast", "uftp")
EVERY = (*TOOLS, *SCRATCH, *READY, *CHECKED, UNTOLD, BY_RDCM, ON_LAN, SECURE, SIGNED, PARTS)


@dataclass(frozen=True, order=True)
class Case:
    """One network and one object. `rate_bps` 0: the sender's link is not limited. `loss_percent` at each receiver."""

    mtu: int
    offload: bool
    rate_bps: int
    loss_percent: float
    receivers: int
    size: int

    @property
    def name(self) -> str:
        """`9000-off-free-loss1-r3-512M`: MTU, offload, link (free, or its rate), loss in %, receivers, size."""
        link = f"{self.rate_bps // 1_000_000}mbit" if self.rate_bps else "free"
        size = f"{self.size // GB}G" if self.size % GB == 0 else f"{self.size / MB:g}M"
        offload = "on" if self.offload else "off"
        return f"{self.mtu}-{offload}-{link}-loss{self.loss_percent:g}-r{self.receivers}-{size}"

    @property
    def ideal_s(self) -> float:
        """Payload alone at the link's rate; 0 if it is not limited."""
        return self.size * 8 / self.rate_bps if self.rate_bps else 0.0

    @property
    def bound_s(self) -> float:
        """How long a tool may take before it is given up: six times what a slow one needs, and starting."""
        return 20 + 6 * self.size * 8 / min(self.rate_bps or 500_000_000, 500_000_000)


def parse(name: str) -> Case:
    """The case of that name. Raises ValueError with the remedy."""
    pattern = r"(\d+)-(on|off)-(free|(\d+)mbit)-loss([\d.]+)-r(\d+)-([\d.]+[MG])"
    found = re.fullmatch(pattern, name)
    if not found:
        raise ValueError(
            f"{name!r} is no case; write one like 9000-off-free-loss1-r3-512M or 1500-on-300mbit-loss0-r7-64M"
        )
    mtu, offload, _, mbit, loss, receivers, size = found.groups()
    case = Case(int(mtu), offload == "on", int(mbit or 0) * 1_000_000, float(loss), int(receivers), size_bytes(size))
    if not (576 <= case.mtu <= 9000 and case.loss_percent <= 50 and 1 <= case.receivers <= 7 and case.size > 0):
        raise ValueError(f"{name!r}: MTU 576 to 9000, at most 50 % loss, 1 to 7 receivers, a size")
    return case


@dataclass(frozen=True)
class Entry:
    """A case and the tools that run it, `repeat` times by turns."""

    case: Case
    tools: tuple[str, ...]
    repeat: int


def base(mtu: int, **changes: object) -> Case:
    """The case others are variations of: not limited, offload off, no loss, one to three, 512 MB."""
    return replace(Case(mtu, False, 0, 0.0, 3, USUAL_SIZE), **changes)  # type: ignore[arg-type]


def limited(mtu: int, loss_percent: float, size: int) -> Case:
    """The sender's link is limited, offload off."""
    return base(mtu, rate_bps=LIMITED_BPS[mtu], loss_percent=loss_percent, size=size)


def full(repeat: int) -> list[Entry]:
    """Every axis around the base case. `repeat` rounds where a goal is measured, at most three elsewhere."""
    entries = []
    few = min(repeat, 3)
    reliable = tuple(tool for tool in (*OURS, *PEERS) if tool != "rostrum-xdp")  # AF_XDP passes the limit by
    for mtu in (9000, 1500):
        for loss in (0.0, 0.1, 1.0, 5.0):
            tools = (*reliable, UNTOLD, BY_RDCM)
            entries.append(Entry(limited(mtu, loss, 128 * MB), tools, few if loss == 0.1 else repeat))
        entries.append(Entry(base(mtu), (*TOOLS, *SCRATCH, *READY, *CHECKED, BY_RDCM, ON_LAN), repeat))
        entries.append(
            Entry(base(mtu, offload=True), (*TOOLS, *SCRATCH, *READY, *CHECKED), repeat if mtu == 9000 else few)
        )
        for loss in (0.1, 1.0, 5.0):
            goal = mtu == 9000 and loss >= 1.0
            entries.append(Entry(base(mtu, loss_percent=loss), (*OURS, BY_RDCM, *PEERS), repeat if goal else few))
        for receivers in (1, 7):
            entries.append(Entry(base(mtu, receivers=receivers), (*RAW, *OURS, *PEERS), few))
    entries.append(Entry(base(9000, receivers=7, loss_percent=1.0), (*OURS, *PEERS), few))
    for size in (64 * MB, 4 * GB):
        entries.append(Entry(base(9000, size=size), TOOLS, few))
    return entries


def quick() -> list[Entry]:
    """Fills every figure of the summary in some four minutes: smaller objects, and only who is needed. Who is fast has
    more rounds: short transfers scatter."""
    entries = []
    auto = OURS[:1]
    for mtu in (9000, 1500):
        for loss in (0.0, 1.0, 5.0):
            entries.append(Entry(limited(mtu, loss, 128 * MB), (UNTOLD,), 2))
    size = 256 * MB
    for case, fast, rounds in (
        (base(9000, size=size), (*RAW, *OURS, *TCP), 3),
        (base(9000, size=size, offload=True), (*OURS, *TCP), 3),
        (base(9000, size=size, loss_percent=1.0), auto, 3),
        (base(1500, size=128 * MB), (*RAW, *OURS), 2),
    ):
        entries += [Entry(case, fast, rounds), Entry(case, MULTICAST, 1)]
    entries.append(Entry(base(9000, size=size, loss_percent=5.0), auto, 3))
    entries += [Entry(base(mtu, size=size // (1 if mtu == 9000 else 2)), (ON_LAN,), 3) for mtu in (9000, 1500)]
    for receivers in (1, 7):
        entries.append(Entry(base(9000, size=size, receivers=receivers), (*auto, "raw-udp-gso"), 3))
    return entries


def chosen(
    entries: Iterable[Entry], *, only: Iterable[str] = (), tools: Iterable[str] = (), repeat: int | None = None
) -> list[Entry]:
    """The entries whose case's name holds every word of one of `only` (text joined by commas), with those tools."""
    wanted, patterns = list(tools), [pattern.split(",") for pattern in only]
    found = []
    for entry in entries:
        fields = entry.case.name.split("-")
        if patterns and not any(all(word in fields for word in pattern) for pattern in patterns):
            continue
        names = tuple(tool for tool in entry.tools if not wanted or tool in wanted)
        if names:
            found.append(Entry(entry.case, names, repeat or entry.repeat))
    return found


def ordered(entries: Iterable[Entry]) -> list[Entry]:
    """Cases that share network and manager come one after another."""
    return sorted(
        entries, key=lambda entry: (entry.case.rate_bps == 0, -entry.case.mtu, entry.case.offload, entry.case)
    )
