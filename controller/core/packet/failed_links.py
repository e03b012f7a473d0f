"""The links between switches that are left alone because packets do not get through (RDCM, Sec. 3.4): one set for all
paths, whoever found out. A link comes back by itself after a while; if it fails again soon after, that takes twice as
long, up to a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rostrum.controller.core.packet.fabric import Fabric, Link
from rostrum.controller.core.persistence.persistence import Json

if TYPE_CHECKING:
    from rostrum.controller.core.state import Core

DOUBLINGS_MAX = 5
RELISTEN_NS = 10_000_000_000  # a manager that starts hears switches again within this


@dataclass(frozen=True)
class FailedLink:
    """`until`: when it is used again (ns); `times`: how often in a row it was suspected."""

    link: Link  # in alphabetical order
    cause: str
    since: int
    until: int
    times: int = 1
    silent: bool = False  # nothing comes out of it: `until` moves on as long as that is so


@dataclass(frozen=True)
class Drained:
    """A link that an operator took out of use, until he puts it back: between switches, or to an OCS."""

    link: Link  # in alphabetical order
    reason: str
    since: int


@dataclass(frozen=True)
class Direction:
    """Into `switch` at `port`, from `origin` at `origin_port`."""

    switch: str
    port: int
    origin: str
    origin_port: int

    @property
    def link(self) -> Link:
        return (self.switch, self.origin) if self.switch <= self.origin else (self.origin, self.switch)


@dataclass
class Silence:
    """`from_switch`, `from_port`: since when a switch is connected, a port up; silence counts from then."""

    directions: tuple[Direction, ...] = ()
    interval_ns: int = 0  # of discovery, in this topology
    from_switch: dict[str, int] = field(default_factory=dict)
    from_port: dict[tuple[str, int], int] = field(default_factory=dict)
    told: frozenset[str] = frozenset()  # switches whose discovery is dead, as said in the log
    ours: bool = False  # most is silent, as said in the log


class FailedLinks:
    """`retry_ns`: how long a link is left alone the first time."""

    def __init__(self, fabric: Fabric, retry_ns: int) -> None:
        self._fabric, self._retry_ns = fabric, retry_ns
        self._failed: dict[Link, FailedLink] = {}
        self._recent: dict[Link, FailedLink] = {}  # activated again; forgotten when it has worked as long as it was out
        self._drained: dict[Link, Drained] = {}
        self.links: frozenset[Link] = frozenset()  # both ways of each that is left alone, drained ones too

    def __len__(self) -> int:
        return len(self._failed)

    def __iter__(self) -> Iterator[FailedLink]:
        return iter(list(self._failed.values()))

    def get(self, link: Link) -> FailedLink | None:
        return self._failed.get(_sorted(link))

    def add(self, links: Iterable[Link], cause: str, now: int, hold_ns: int | None = None) -> tuple[Link, ...]:
        """Leaves links alone from now on; returns those that are new. What would cut off a rack stays in use: nothing
        else leads there. `hold_ns`: they are silent, and are left alone so long after the silence ends.
        """
        new = []
        for link in dict.fromkeys(map(_sorted, links)):
            if link in self._failed or link in self._drained or not all(map(self._fabric.is_switch, link)):
                continue
            if not self._fabric.connected_without(self.links | {link}):
                continue
            before = self._recent.pop(link, None)
            times = before.times + 1 if before and now < before.until + (before.until - before.since) else 1
            wait = (hold_ns or self._retry_ns) << min(times - 1, DOUBLINGS_MAX)
            self._failed[link] = FailedLink(link, cause, now, now + wait, times, hold_ns is not None)
            self._refresh()
            new.append(link)
        return tuple(new)

    def extend(self, link: Link, now: int, hold_ns: int) -> bool:
        """It is silent still; whether its time was moved on."""
        link = _sorted(link)
        one = self._failed.get(link)
        if one is None:
            return False
        wait = hold_ns << min(one.times - 1, DOUBLINGS_MAX)
        if one.until >= now + wait // 2:
            return False
        self._failed[link] = replace(one, until=now + wait, silent=True)
        return True

    def can_spare(self, link: Link) -> bool:
        """Whether every rack is still reached without it, and without those that are drained."""
        drained = {one for a, b in self._drained for one in ((a, b), (b, a))}
        return self._fabric.connected_without(drained | {_sorted(link)})

    def drain(self, link: Link, reason: str, now: int) -> tuple[Link, ...]:
        """Takes a link out of use for good. Returns failed ones that have to be used again, as nothing else is left."""
        link = _sorted(link)
        self._failed.pop(link, None)
        self._drained[link] = Drained(link, reason, now)
        self._refresh()
        needed = []
        for one in list(self._failed):
            if not self._fabric.connected_without(self.links):
                needed.append(one)
                self.put_back(one)
        return tuple(needed)

    def undrain(self, link: Link) -> bool:
        found = self._drained.pop(_sorted(link), None)
        self._recent.pop(_sorted(link), None)
        self._refresh()
        return found is not None

    def is_drained(self, link: Link) -> bool:
        return _sorted(link) in self._drained

    def drained(self, link: Link) -> Drained | None:
        return self._drained.get(_sorted(link))

    @property
    def all_drained(self) -> list[Drained]:
        return list(self._drained.values())

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

    def restore(self, one: FailedLink | Drained) -> None:
        if isinstance(one, Drained):
            self._drained[one.link] = one
        else:
            self._failed[one.link] = one
        self._refresh()

    def _refresh(self) -> None:
        out = (*self._failed, *self._drained)
        self.links = frozenset(one for a, b in out for one in ((a, b), (b, a)))


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
        wall = core.persistence.wall
        record = {"cause": one.cause, "since": wall(one.since), "until": wall(one.until), "times": one.times}
        return {**record, "silent": True} if one.silent else record

    def restore(self, core: Core, records: Mapping[str, Json], now: int) -> None:
        for key, record in records.items():
            a, b = key.split(" ")
            until, silent = core.persistence.monotonic(record["until"]), record.get("silent", False)
            if silent:
                until = max(until, now + RELISTEN_NS)
            if until <= now or a not in core.topology.switches or b not in core.topology.switches:
                core.persistence.mark(self.name, key)
                continue
            since = core.persistence.monotonic(record["since"])
            core.resources.failed.restore(FailedLink((a, b), record["cause"], since, until, record["times"], silent))
            core.schedule_check("links", until)


class DrainRecords:
    """What operators drained, across restarts. Key: the link's two ends."""

    name = "drained-link"

    def dump(self, core: Core, key: str) -> Json | None:
        a, b = key.split(" ")
        one = core.resources.failed.drained((a, b))
        return None if one is None else {"reason": one.reason, "since": core.persistence.wall(one.since)}

    def restore(self, core: Core, records: Mapping[str, Json], now: int) -> None:
        nodes = {*core.topology.switches, *core.topology.ocs}
        for key, record in records.items():
            a, b = key.split(" ")
            if a not in nodes or b not in nodes:
                core.persistence.mark(self.name, key)
                core.warn("drained link not restored", link=f"{a}-{b}", cause="it is not in this topology")
                continue
            core.resources.failed.restore(
                Drained((a, b), record["reason"], core.persistence.monotonic(record["since"]))
            )


def key(link: Link) -> str:
    """Of a link's record."""
    return " ".join(_sorted(link))
