"""Orders to several devices at once, whose failures become one error."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Sequence
from typing import Protocol, TypeVar

from rostrum.controller.core.model import SouthboundError

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
