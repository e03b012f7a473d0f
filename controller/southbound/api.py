"""What the manager asks of switches and optical circuit switches, whatever protocol carries it.

`OpenFlowFabric` (openflow/switches.py), `P4RuntimeFabric` (p4runtime/switches.py) and `MixedFabric` (fabric.py: both in
one network) are `SwitchFabric`s; `OcsDriver` (ocs/driver.py) is a `CircuitSwitch`. Everything runs on the caller's
asyncio loop, callbacks too; a callback must not block. Errors are `SouthboundError`s whose text names the device.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Protocol, TypeVar

from rostrum.controller.core.model import (
    CrossConnect,
    Light,
    MulticastRule,
    Pair,
    RuleCounters,
    Sighting,
    SouthboundError,
    SwitchCounters,
    SwitchFacts,
    UnicastRule,
)

OnSwitchUp = Callable[[str], None]  # (switch)
OnSwitchDown = Callable[[str, str], None]  # (switch, cause)
OnPort = Callable[[str, int, bool], None]  # (switch, port, up)
OnRulesLost = Callable[[str], None]  # (switch): somebody else removed rules of ours
OnSighting = Callable[[Sighting], None]  # a discovery frame came in
OnLight = Callable[[Light], None]  # data came through for a rule that is watched; P4 switches only
OnOcsUp = Callable[[], None]
OnOcsDown = Callable[[str], None]  # (cause)
OnCrossConnect = Callable[[CrossConnect], None]  # a cross-connect changed state with nobody waiting for it


class SwitchFabric(Protocol):
    """All packet switches of a topology, by name."""

    async def start(self, host: str, port: int) -> None:
        """Listen for switches on `host`:`port` only, or connect to them. Raises SouthboundError if the address cannot
        be had."""

    async def close(self) -> None:
        """Drop every switch and stop. What is installed stays on the switches."""

    async def install(self, rules: Sequence[MulticastRule]) -> None:
        """Set these rules, each switch in parallel; returns when every switch has confirmed. Repeating a rule, or
        replacing the out_ports of one with the same (switch, in_port, group), is allowed. Raises SouthboundError naming
        every switch that failed and what it answered; rules on the other switches are in."""

    async def remove(self, rules: Sequence[MulticastRule]) -> None:
        """Take these rules out (absent ones are no error). Raises like `install`."""

    async def rearm(self, rules: Sequence[MulticastRule]) -> None:
        """These rules are in, and first light of them (`confirm`) is to be told again. Raises like `install`."""

    async def install_unicast(self, rules: Sequence[UnicastRule]) -> None:
        """Set the static unicast rules and the drop of everything else on their switches. Raises like `install`."""

    async def read(self, switch: str) -> set[MulticastRule]:
        """The multicast rules of ours that are on `switch` now."""

    async def rule_counters(self, rules: Sequence[MulticastRule]) -> list[RuleCounters]:
        """What those of these rules did that are on switches which count."""

    async def switch_counters(self, switch: str) -> SwitchCounters | None:
        """Of a switch's ports, and why it dropped; None from a switch that is not asked for them."""

    def facts(self, switch: str) -> SwitchFacts | None:
        """What a switch said of itself when it connected; None of one that is not asked, or not connected."""

    def discover(self, ports: Collection[tuple[str, int]] | None = None) -> None:
        """Have discovery frames sent now, besides those that go out now and then, by all ports between devices or by
        these (switch, port); what comes of it is told."""


class CircuitSwitch(Protocol):
    """One optical circuit switch."""

    async def start(self) -> None:
        """Connect and log in; keeps trying in the background. Returns at once: `on_up` tells when it works."""

    async def close(self) -> None:
        """Log out and stop. Cross-connects stay."""

    async def connect(self, pairs: Sequence[Pair]) -> list[CrossConnect]:
        """Make cross-connects. Returns one result per pair, in order, when each is settled: STEADY, or with a cause
        FAULT (it holds its ports until disconnected) or INVALID (refused; nothing was made). A pair that exists already
        is STEADY at once. STEADY with an output_dbm below the receiver's sensitivity carries no light worth the name.
        Raises SouthboundError if nothing can be known."""

    async def disconnect(self, pairs: Sequence[Pair]) -> None:
        """Take cross-connects down (absent ones are no error). Raises SouthboundError naming what stayed."""

    async def read(self) -> list[CrossConnect]:
        """All cross-connects on the switch, with the powers it reports (dBm)."""


T = TypeVar("T")


class OfSwitch(Protocol):
    """A rule of either kind."""

    @property
    def switch(self) -> str: ...


R = TypeVar("R", bound=OfSwitch)


async def together(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Waits for all, then returns what they gave or raises one SouthboundError that names every device that failed."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    failed = [result for result in results if isinstance(result, BaseException)]
    for error in failed:
        if not isinstance(error, SouthboundError):
            raise error
    if failed:
        raise SouthboundError("; ".join(str(error) for error in failed))
    return [result for result in results if not isinstance(result, BaseException)]


def by_switch(rules: Sequence[R]) -> dict[str, list[R]]:
    """Each switch's share, in order."""
    shares: dict[str, list[R]] = defaultdict(list)
    for rule in rules:
        shares[rule.switch].append(rule)
    return shares
