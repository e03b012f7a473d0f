"""Which agents hold which objects, by their own report, and who fetches what: fetches of one object that come within a
moment of each other are served by one send to all of them. Pure; nothing of it is durable, as agents tell again on each
connection.

A holder that lies is found out by who fetches from it: pieces are checked against the object's digest, and a send that
does not begin is not waited for. What one agent tells is bounded, and harms nobody else's.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from rostrum.controller.core.text import listed
from rostrum.controller.core.values import MS

HELD_MAX: Final = 4096  # objects of one agent, as many as its store has
HOLDERS_MAX: Final = 32  # named to one that fetches
WANTED_MAX: Final = 4096  # objects that are fetched at a time
TOGETHER_FROM: Final = 4 << 20  # bytes; smaller ones are there sooner than a path
WINDOW_NS: Final = 50 * MS  # in which others may ask for the same
SENT_WITHIN_MS: Final = 2000  # what is not being sent by then is fetched in pieces
WAIT_MOST_NS: Final = 5000 * MS  # for the end of another send of the same
SEND_MOST_NS: Final = 120_000 * MS  # a send that never seems to end does not keep others waiting
SERVED_MAX: Final = 1024  # by one send
NAME_MAX: Final = 255
NAMES_MAX: Final = 16_384  # of objects that may come


@dataclass(frozen=True)
class HeldKey:
    """`app` is the right to the object: it is not shown (`shown` is). Tenants share none, whatever their ids."""

    app: bytes
    data_id: int
    tenant: str = ""

    @property
    def shown(self) -> str:
        """Names it for people and REST, without giving the right to it away."""
        return f"{fingerprint(self.app)}-{self.data_id & 0xFFFF_FFFF_FFFF_FFFF}"


def fingerprint(app: bytes) -> str:
    """Of an application's id: 8 hexadecimal digits."""
    return hashlib.blake2b(app, digest_size=4, person=b"rostrum app").hexdigest()


@dataclass(frozen=True)
class Held:
    """What an agent said of an object that it has."""

    size: int
    digest: str
    name: str = ""


@dataclass
class KnownObject:
    """An object that somebody holds."""

    key: HeldKey
    holders: dict[str, Held] = field(default_factory=dict)
    name: str = ""

    @property
    def size(self) -> int:
        return max((held.size for held in self.holders.values()), default=0)

    @property
    def digests(self) -> tuple[str, ...]:
        """More than one: some holder has another object by that id."""
        return tuple(sorted({held.digest for held in self.holders.values()}))


@dataclass(frozen=True)
class Answer:
    """To one that fetches: `reason` says why there are no holders, or who sends it."""

    server: str
    key: HeldKey
    holders: tuple[str, ...]
    sent_within_ms: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Serve:
    """To a holder: it sends the object to all of them."""

    holder: str
    key: HeldKey
    receivers: tuple[str, ...]


@dataclass
class _Wanted:
    """`waiting`: who asked, in order; until `due`. `served`: to whom it is being sent, by `holder`, until `until`."""

    waiting: list[str] = field(default_factory=list)
    due: int = 0
    first: int = 0
    holder: str = ""
    served: set[str] = field(default_factory=set)
    until: int = 0


class Objects:
    """The directory. Times in ns of the caller's clock."""

    def __init__(self) -> None:
        self.known: OrderedDict[HeldKey, KnownObject] = OrderedDict()
        self.names: OrderedDict[HeldKey, str] = OrderedDict()  # told; of objects that are on their way, too
        self.of: dict[str, set[HeldKey]] = {}  # server -> what it holds
        self.serves: set[str] = set()  # servers that send on request
        self.gives: set[str] = set()  # servers that give pieces
        self.wanted: dict[HeldKey, _Wanted] = {}
        self.sends: dict[str, int] = {}  # holder -> orders it was given, for fairness
        self.left_out = 0  # of what agents told, beyond what one may hold

    def agent_up(self, server: str, gives: bool, serves: bool) -> None:
        (self.gives.add if gives else self.gives.discard)(server)
        (self.serves.add if serves else self.serves.discard)(server)

    def agent_down(self, server: str) -> None:
        self.gives.discard(server)
        self.serves.discard(server)
        self.sends.pop(server, None)
        self.forget(server)
        for wanted in self.wanted.values():
            wanted.served.discard(server)
            if server in wanted.waiting:
                wanted.waiting.remove(server)
            if wanted.holder == server:
                wanted.served.clear()

    def forget(self, server: str) -> None:
        """What it told is void."""
        for key in self.of.pop(server, ()):
            self._drop(server, key)

    def came(self, server: str, key: HeldKey, held: Held) -> None:
        mine = self.of.setdefault(server, set())
        if key not in mine and len(mine) >= HELD_MAX:
            self.left_out += 1
            return
        mine.add(key)
        one = self.known.get(key)
        if one is None:
            one = self.known[key] = KnownObject(key)
        one.holders[server] = held
        if held.name:
            self.named(key, held.name)
        one.name = one.name or self.names.get(key, "")
        wanted = self.wanted.get(key)
        if wanted is not None:
            wanted.served.discard(server)

    def named(self, key: HeldKey, name: str) -> None:
        """The first name is the object's while somebody holds it."""
        self.names[key] = name
        self.names.move_to_end(key)
        if len(self.names) > NAMES_MAX:
            self.names.popitem(last=False)
        one = self.known.get(key)
        if one is not None and not one.name:
            one.name = name

    def went(self, server: str, key: HeldKey) -> None:
        mine = self.of.get(server)
        if mine and key in mine:
            mine.discard(key)
            self._drop(server, key)

    def _drop(self, server: str, key: HeldKey) -> None:
        one = self.known.get(key)
        if one is not None and one.holders.pop(server, None) is not None and not one.holders:
            del self.known[key]

    def fetch(self, server: str, key: HeldKey, together: bool, now: int) -> Iterator[Answer | Serve]:
        """`server` wants it: what is to be said now. The rest `due` says."""
        one = self.known.get(key)
        holders = self._giving(one, server)
        if one is None or not holders:
            yield Answer(server, key, (), reason=self._nobody(one, server))
            return
        wanted = self.wanted.get(key)
        may = together and one.size >= TOGETHER_FROM and self._sender(one, ()) is not None
        if not may or (wanted is None and len(self.wanted) >= WANTED_MAX):
            yield Answer(server, key, holders)
            return
        if wanted is None:
            wanted = self.wanted[key] = _Wanted()
        if server in wanted.served:  # it was not sent what it should have been
            wanted.served.discard(server)
            yield Answer(server, key, holders)
            return
        if not wanted.waiting:
            wanted.first, wanted.due = now, now + WINDOW_NS
        if server not in wanted.waiting:
            wanted.waiting.append(server)

    def due(self, now: int) -> Iterator[Answer | Serve]:
        """What is to be said by now."""
        for key, wanted in list(self.wanted.items()):
            if wanted.until <= now:
                wanted.served.clear()
            if wanted.waiting and wanted.due <= now:
                if wanted.served and now < wanted.first + WAIT_MOST_NS:
                    wanted.due = min(now + WINDOW_NS, wanted.first + WAIT_MOST_NS)
                    continue
                yield from self._begin(key, wanted, now)
            if not wanted.waiting and not wanted.served:
                del self.wanted[key]

    def next_due(self) -> int | None:
        """When `due` has something to say or to forget."""
        times = [wanted.due for wanted in self.wanted.values() if wanted.waiting]
        times += [wanted.until for wanted in self.wanted.values() if wanted.served and not wanted.waiting]
        return min(times, default=None)

    def _begin(self, key: HeldKey, wanted: _Wanted, now: int) -> Iterator[Answer | Serve]:
        one = self.known.get(key)
        servers, wanted.waiting = tuple(wanted.waiting[:SERVED_MAX]), wanted.waiting[SERVED_MAX:]
        holder = self._sender(one, servers) if one is not None and len(servers) > 1 else None
        if holder is None:
            for server in servers:
                holders = self._giving(one, server)
                yield Answer(server, key, holders, reason="" if holders else self._nobody(one, server))
            return
        self.sends[holder] = self.sends.get(holder, 0) + 1
        wanted.holder, wanted.served, wanted.until = holder, set(servers), now + SEND_MOST_NS
        yield Serve(holder, key, servers)
        reason = f"{holder} sends it to {len(servers)} servers that fetch it together"
        for server in servers:
            yield Answer(server, key, self._giving(one, server), SENT_WITHIN_MS, reason)

    def _sender(self, one: KnownObject, but: Collection[str]) -> str | None:
        """Who sends it: of those that hold what most say it is, the one that was asked least."""
        held = [held.digest for held in one.holders.values()]
        usual = max(held, key=held.count, default="")
        alike = (name for name, own in one.holders.items() if own.digest == usual)
        may = [name for name in alike if name in self.serves and name not in but]
        return min(may, key=lambda name: (self.sends.get(name, 0), name), default=None)

    def _giving(self, one: KnownObject | None, server: str) -> tuple[str, ...]:
        if one is None:
            return ()
        names = (name for name in one.holders if name in self.gives and name != server)
        return tuple(sorted(names, key=lambda name: (self.sends.get(name, 0), name))[:HOLDERS_MAX])

    def _nobody(self, one: KnownObject | None, server: str) -> str:
        others = [] if one is None else [name for name in one.holders if name != server]
        if others:
            return f"{listed(others, 4)} hold it, and give nothing (--piece-port)"
        return "no agent that is connected holds it"

    def find(self, text: str) -> list[KnownObject]:
        """By what `shown` says, by number, or by name."""
        return [one for one in self.known.values() if text in (one.key.shown, one.key.shown.split("-")[1], one.name)]

    def matching(
        self, app: str = "", holder: str = "", name: str = "", objects: Iterable[KnownObject] | None = None
    ) -> Iterator[KnownObject]:
        """Those that match, in the order in which they became known."""
        for one in self.known.values() if objects is None else objects:
            if app and fingerprint(one.key.app) != app:
                continue
            if holder and holder not in one.holders:
                continue
            if name and name not in one.name:
                continue
            yield one
