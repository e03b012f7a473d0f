"""The links between switches that are left alone because packets do not get through (RDCM, Sec. 3.4): one set for all
paths, whoever found out. A link comes back by itself after a while; if it fails again soon after, that takes twice as
long, up to a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rostrum.controller.core.durable import Json
from rostrum.controller.core.fabric import Fabric, Link

if TYPE_CHECKING:
    from rostrum.controller.core.state import Core

DOUBLINGS_MAX = 5


@dataclass(frozen=True)
class FailedLink:
    """`until`: when it is used again (ns); `times`: how often in a row it was suspected."""

    link: Link  # in alphabetical order
    cause: str
    since: int
    until: int
    times: int = 1


class FailedLinks:
    """`retry_ns`: how long a link is left alone the first time."""

    def __init__(self, fabric: Fabric, retry_ns: int) -> None:
        self._fabric, self._retry_ns = fabric, retry_ns
        self._failed: dict[Link, FailedLink] = {}
        self._recent: dict[Link, FailedLink] = {}  # activated again; forgotten when it has worked as long as it was out
        self.links: frozenset[Link] = frozenset()  # both ways of each

    def __len__(self) -> int:
        return len(self._failed)

    def __iter__(self) -> Iterator[FailedLink]:
        return iter(list(self._failed.values()))

    def get(self, link: Link) -> FailedLink | None:
        return self._failed.get(_sorted(link))

    def add(self, links: Iterable[Link], cause: str, now: int) -> tuple[Link, ...]:
        """Leaves links alone from now on; returns those that are new. What would cut off a rack stays in use: nothing
        else leads there.
        """
        new = []
        for link in dict.fromkeys(map(_sorted, links)):
            if link in self._failed or not all(map(self._fabric.is_switch, link)):
                continue
            if not self._fabric.connected_without(self.links | {link}):
                continue
            before = self._recent.pop(link, None)
            times = before.times + 1 if before and now < before.until + (before.until - before.since) else 1
            wait = self._retry_ns << min(times - 1, DOUBLINGS_MAX)
            self._failed[link] = FailedLink(link, cause, now, now + wait, times)
            self._refresh()
            new.append(link)
        return tuple(new)

    def put_back(self, link: Link) -> bool:
        """Somebody says that it works: at once, and without a memory of its failures."""
        found = self._failed.pop(_sorted(link), None)
        self._recent.pop(_sorted(link), None)
        self._refresh()
        return found is not None

    def activate(self, now: int) -> tuple[FailedLink, ...]:
        """Links whose time is over are used again."""
        due = tuple(one for one in self._failed.values() if one.until <= now)
        for one in due:
            del self._failed[one.link]
            self._recent[one.link] = one
        for link in [one.link for one in self._recent.values() if now >= one.until + (one.until - one.since)]:
            del self._recent[link]
        if due:
            self._refresh()
        return due

    def restore(self, failed: FailedLink) -> None:
        self._failed[failed.link] = failed
        self._refresh()

    def _refresh(self) -> None:
        self.links = frozenset(one for a, b in self._failed for one in ((a, b), (b, a)))


def _sorted(link: Link) -> Link:
    a, b = link
    return (a, b) if a <= b else (b, a)


class Records:
    """What survives a crash. Key: the link's two switches."""

    name = "failed-link"

    def dump(self, core: Core, key: str) -> Json | None:
        a, b = key.split(" ")
        one = core.resources.failed.get((a, b))
        if one is None:
            return None
        wall = core.durable.wall
        return {"cause": one.cause, "since": wall(one.since), "until": wall(one.until), "times": one.times}

    def restore(self, core: Core, records: Mapping[str, Json], now: int) -> None:
        for key, record in records.items():
            a, b = key.split(" ")
            until = core.durable.monotonic(record["until"])
            if until <= now or a not in core.topology.switches or b not in core.topology.switches:
                core.durable.mark(self.name, key)
                continue
            since = core.durable.monotonic(record["since"])
            core.resources.failed.restore(FailedLink((a, b), record["cause"], since, until, record["times"]))
            core.look_at("links", until)


def key(link: Link) -> str:
    """Of a link's record."""
    return " ".join(_sorted(link))
