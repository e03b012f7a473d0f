"""Relays do not speak for others (docs/wan.md, "Sites"). Which bytes an object has its origin says, and who has it each
receiver says: they tell the manager which objects they hold, with the digests. Receivers ask whose object a relay sends
them, and take no other; a relay's word that some are done waits for theirs. Pure; times in seconds of the caller's.

What relays were told survives a restart (core/requests/relay_orders.py): `notes` says what has to be remembered.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final

from rostrum.controller.core.requests.relay_orders import RelayPart
from rostrum.controller.core.text import listed

PARTS_MAX: Final = 16_384  # of who has most the oldest is forgotten then, and its relay believed
NAMES_MAX: Final = 1 << 20  # receivers of all of them: the same
WAIT_S: Final = 10.0  # for the word of those of whom a relay says that they are done
AWAY_S: Final = 30.0  # instead, while an agent whose word it takes is not connected: managers restart
OWN_S: Final = 5.0  # a relay that has another object by that id is none; by then another has its orders
KEPT_S: Final = 60.0  # after its relay's last report; reports come each second, and a few after the end
SAID_MOST: Final = 5  # times that its failure is told: the sender may be busy with it still

Held = Callable[[str, bytes, int], str]  # (server, app_id, data_id) -> the digest of what it holds; "": nothing
Tell = Callable[[str, Any], object]  # (server, RelayReport)
Failed = Callable[[RelayPart, str], Any]  # a RelayReport of a part that ends, and why
Noted = tuple[tuple[RelayPart, ...], tuple[str, ...]]  # to be remembered; legs to be forgotten


@dataclass
class Part:
    """What one relay was told to pass on (`order`), and what became of it."""

    order: RelayPart
    receivers: frozenset[str]
    digest: str = ""  # of the origin's object, as soon as that is known
    have: set[str] = field(default_factory=set)  # receivers that told the same
    report: Any = None  # the relay's last
    heard_at: float | None = None
    doubted_since: float | None = None
    other_since: float | None = None  # the relay holds another object by that id
    said: int = 0  # how often the sender was told that the relay lies

    @property
    def object(self) -> tuple[bytes, int]:
        return self.order.app_id, self.order.data_id


class Passing:
    """`there`: whether that server's agent is connected."""

    def __init__(self, held: Held, tell: Tell, there: Callable[[str], bool], failed: Failed) -> None:
        self._held = held
        self._tell = tell
        self._there = there
        self._failed = failed
        self._parts: OrderedDict[str, Part] = OrderedDict()
        self._of: dict[tuple[bytes, int], dict[str, Part]] = {}  # object -> its parts by leg
        self._count = Counter[str]()  # of each sender's parts and their receivers
        self._names = 0
        self._changed: dict[str, None] = {}  # legs that `notes` has to tell
        self._gone: dict[str, None] = {}

    def restored(self, parts: Iterable[RelayPart], now: float) -> None:
        """What the manager before told relays. They report each second."""
        for one in parts:
            self._add(Part(one, frozenset(one.receivers), one.digest, set(one.have), heard_at=now))

    def notes(self) -> Noted:
        """What is to be remembered since the last call."""
        parts = (self._parts[leg_id] for leg_id in self._changed)
        noted = tuple(RelayPart(**{**vars(one.order), "digest": one.digest, "have": tuple(one.have)}) for one in parts)
        gone = tuple(self._gone)
        self._changed, self._gone = {}, {}
        return noted, gone

    def busy(
        self, sender: str, app_id: bytes, data_id: int, receivers: Collection[str], holders: Mapping[str, str]
    ) -> list[str]:
        """Who cannot pass that object on, of those that hold one by that id, with its digest: it is another."""
        digest = self._held(sender, app_id, data_id)
        before = self._part(sender, app_id, data_id, receivers, digest)
        digest = self._digest(before) if before else digest
        return [name for name, other in holders.items() if other != digest]

    def ordered(
        self, leg_id: str, relay: str, sender: str, app_id: bytes, data_id: int, receivers: Iterable[str]
    ) -> None:
        """Before the relay hears of it."""
        names = tuple(receivers)
        before = self._part(sender, app_id, data_id, names, self._held(sender, app_id, data_id))
        origin = before.order.origin if before else sender
        self._add(Part(RelayPart(leg_id, relay, sender, origin, app_id, data_id, names), frozenset(names)))
        self._changed[leg_id] = None
        while len(self._parts) > PARTS_MAX or self._names > NAMES_MAX:
            ((most, _),) = self._count.most_common(1)
            self._forget(next(one for one in self._parts.values() if one.order.sender == most))

    def origin(self, sender: str, receiver: str, app_id: bytes, data_id: int, digest: str = "") -> tuple[str, str]:
        """Whose object that server sends to that receiver, and its digest; "": nobody knows it yet. `digest`: of what
        comes, if that is known. Several may have that server pass on an object by that id.
        """
        part = self._part(sender, app_id, data_id, (receiver,), digest)
        return (part.order.origin, self._digest(part)) if part else (sender, self._held(sender, app_id, data_id))

    def back(self, server: str) -> None:
        """Its agent is connected: it hears what was reported while it was not."""
        for part in list(self._parts.values()) if server in self._count else ():
            if part.order.sender == server and part.report is not None and part.heard_at is not None:
                self._pass(part, part.heard_at)

    def held(self, server: str, app_id: bytes, data_id: int, digest: str) -> None:
        """An agent tells what it holds."""
        for part in list(self._of.get((app_id, data_id), {}).values()):
            if server in part.receivers and digest and digest == self._digest(part) and server not in part.have:
                part.have.add(server)
                self._changed[part.order.leg_id] = None
                if part.report is not None and part.doubted_since is not None:
                    self._pass(part, part.doubted_since)

    def reported(self, report: Any, now: float) -> None:
        """By the relay that it names. Of legs that are not known nothing is believed: their sender takes another way
        when it hears nothing of one.
        """
        part = self._parts.get(report.leg_id)
        if part is not None and (part.order.relay, part.order.sender) == (report.relay, report.origin):
            part.report, part.heard_at = report, now
            self._pass(part, now)

    def due(self, now: float) -> None:
        """Once a second or so: who was said to be done, and is not, makes its relay a liar. What is long over is
        forgotten: by that id its relay may send another object.
        """
        for part in list(self._parts.values()):
            part.heard_at = now if part.heard_at is None else part.heard_at
            if now - part.heard_at > KEPT_S:
                self._forget(part)
            elif self._is_other(part, now):
                text = f"{part.order.relay} holds an object of its own by that id, and cannot pass on another"
                self._tell(part.order.sender, self._failed(part.order, text))
                self._forget(part)
            elif part.said < SAID_MOST and self._lies(part, now):
                part.said += 1
                self._pass(part, now)

    def _is_other(self, part: Part, now: float) -> bool:
        """Nobody's order makes a server's own object wait for long."""
        held = self._held(part.order.relay, *part.object)
        if not held or held == self._digest(part):
            part.other_since = None
        elif part.other_since is None:
            part.other_since = now
        bound = OWN_S if self._there(part.order.origin) else AWAY_S
        return part.other_since is not None and now - part.other_since >= bound

    def _lies(self, part: Part, now: float) -> bool:
        if part.doubted_since is None:
            return False
        all_there = all(self._there(name) for name in self._doubted(part))
        return now - part.doubted_since >= (WAIT_S if all_there else AWAY_S)

    def _part(
        self, relay: str, app_id: bytes, data_id: int, receivers: Collection[str] = (), digest: str = ""
    ) -> Part | None:
        """What that one was told to pass on to them all: with that digest, if it is given and known; or one whose
        digest is not known; or of the origin that came first, the newest. So who asks for a split of what it does not
        have is in nobody's way.
        """
        parts = self._of.get((app_id, data_id), {}).values()
        mine = [one for one in parts if one.order.relay == relay and one.receivers.issuperset(receivers)]
        for wanted in (digest, "") if digest else ():
            if alike := [one for one in mine if self._digest(one) == wanted]:
                return alike[-1]
        return [one for one in mine if one.order.origin == mine[0].order.origin][-1] if mine else None

    def _add(self, part: Part) -> None:
        self._parts[part.order.leg_id] = part
        self._of.setdefault(part.object, {})[part.order.leg_id] = part
        self._count[part.order.sender] += _weight(part)
        self._names += len(part.receivers)

    def _forget(self, part: Part) -> None:
        leg_id, sender = part.order.leg_id, part.order.sender
        del self._parts[leg_id]
        self._changed.pop(leg_id, None)
        self._gone[leg_id] = None
        self._names -= len(part.receivers)
        self._count[sender] -= _weight(part)
        if self._count[sender] == 0:
            del self._count[sender]
        parts = self._of[part.object]
        del parts[leg_id]
        if not parts:
            del self._of[part.object]

    def _digest(self, part: Part) -> str:
        if not part.digest:
            part.digest = self._held(part.order.origin, *part.object)
            if part.digest:
                self._changed[part.order.leg_id] = None
        return part.digest

    def _has(self, part: Part, server: str) -> bool:
        digest = self._digest(part)
        return server in part.have or (digest != "" and self._held(server, *part.object) == digest)

    def _doubted(self, part: Part) -> list[str]:
        return [row.server for row in part.report.receivers if row.state == "done" and not self._has(part, row.server)]

    def _pass(self, part: Part, now: float) -> None:
        """The relay's last report to its sender, without what those that it names have not said themselves."""
        report, doubted = copy(part.report), self._doubted(part)
        report.receivers = [copy(row) for row in part.report.receivers]
        for row in report.receivers:
            row.state = "receiving" if row.server in doubted else row.state
        if not doubted:
            part.doubted_since = None
        elif part.doubted_since is None:
            part.doubted_since = now
        if doubted and part.said:
            report.state = "failed"
            report.cause = f"{part.order.relay} says that {listed(doubted, 4)} have it whole, and they do not say so"
        elif doubted and report.state == "done":
            report.state = "passing"
        self._tell(part.order.sender, report)


def _weight(part: Part) -> int:
    return 1 + len(part.receivers)
