"""Relays do not speak for others (docs/wan.md, "Sites"). Which bytes an object has its origin says, and who has it each
receiver says: they tell the manager which objects they hold, with the digests. Receivers ask whose object a relay sends
them, and take no other; a relay's word that some are done waits for theirs. Pure; times in seconds of the caller's.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final

from rostrum.controller.core.text import listed

PARTS_MAX: Final = 16_384  # of who has most the oldest is forgotten then, and its relay believed
WAIT_S: Final = 10.0  # for the word of those of whom a relay says that they are done
KEPT_S: Final = 60.0  # after its relay's last report; reports come each second, and a few after the end
SAID_MOST: Final = 5  # times that its failure is told: the sender may be busy with it still

Held = Callable[[str, bytes, int], str]  # (server, app_id, data_id) -> the digest of what it holds; "": nothing
Tell = Callable[[str, Any], object]  # (server, RelayReport)


@dataclass
class Part:
    """What one relay was told to pass on. `sender`: from whom it has the object; `origin`: whose it is."""

    leg_id: str
    relay: str
    sender: str
    origin: str
    app_id: bytes
    data_id: int
    receivers: frozenset[str]
    digest: str = ""  # of the origin's object, as soon as that is known
    have: set[str] = field(default_factory=set)  # receivers that told the same
    report: Any = None  # the relay's last
    heard_at: float | None = None
    doubted_since: float | None = None
    said: int = 0  # how often the sender was told that the relay lies


class Passing:
    def __init__(self, held: Held, tell: Tell) -> None:
        self._held = held
        self._tell = tell
        self._parts: OrderedDict[str, Part] = OrderedDict()
        self._of: dict[tuple[bytes, int], dict[str, Part]] = {}  # object -> its parts by leg
        self._count = Counter[str]()  # of each sender's parts

    def ordered(
        self, leg_id: str, relay: str, sender: str, app_id: bytes, data_id: int, receivers: Iterable[str]
    ) -> None:
        """Before the relay hears of it."""
        before = self._part(sender, app_id, data_id)
        origin = before.origin if before else sender
        part = Part(leg_id, relay, sender, origin, app_id, data_id, frozenset(receivers))
        self._parts[leg_id] = part
        self._of.setdefault((app_id, data_id), {})[leg_id] = part
        self._count[sender] += 1
        if len(self._parts) > PARTS_MAX:
            ((most, _),) = self._count.most_common(1)
            self._forget(next(one for one in self._parts.values() if one.sender == most))

    def origin(self, sender: str, receiver: str, app_id: bytes, data_id: int) -> tuple[str, str]:
        """Whose object that server sends to that receiver, and its digest; "": nobody knows it yet."""
        part = self._part(sender, app_id, data_id, receiver)
        return (part.origin, self._digest(part)) if part else (sender, self._held(sender, app_id, data_id))

    def held(self, server: str, app_id: bytes, data_id: int, digest: str) -> None:
        """An agent tells what it holds."""
        for part in list(self._of.get((app_id, data_id), {}).values()):
            if server in part.receivers and digest and digest == self._digest(part):
                part.have.add(server)
                if part.report is not None and part.doubted_since is not None:
                    self._pass(part, part.doubted_since)

    def reported(self, report: Any, now: float) -> None:
        """By the relay that it names."""
        part = self._parts.get(report.leg_id)
        if part is None:  # of before this manager's start
            self._tell(report.origin, report)
        elif (part.relay, part.sender) == (report.relay, report.origin):
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
                continue
            lies = part.doubted_since is not None and now - part.doubted_since >= WAIT_S
            if lies and part.said < SAID_MOST:
                part.said += 1
                self._pass(part, now)

    def _part(self, relay: str, app_id: bytes, data_id: int, receiver: str = "") -> Part | None:
        """The newest; with a receiver: that is for it, too."""
        parts = self._of.get((app_id, data_id), {})
        mine = [one for one in parts.values() if one.relay == relay and (not receiver or receiver in one.receivers)]
        return mine[-1] if mine else None

    def _forget(self, part: Part) -> None:
        del self._parts[part.leg_id]
        self._count[part.sender] -= 1
        if self._count[part.sender] == 0:
            del self._count[part.sender]
        parts = self._of[part.app_id, part.data_id]
        del parts[part.leg_id]
        if not parts:
            del self._of[part.app_id, part.data_id]

    def _digest(self, part: Part) -> str:
        part.digest = part.digest or self._held(part.origin, part.app_id, part.data_id)
        return part.digest

    def _has(self, part: Part, server: str) -> bool:
        digest = self._digest(part)
        return server in part.have or (digest != "" and self._held(server, part.app_id, part.data_id) == digest)

    def _pass(self, part: Part, now: float) -> None:
        """The relay's last report to its sender, without what those that it names have not said themselves."""
        report, doubted = copy(part.report), list[str]()
        report.receivers = [copy(row) for row in part.report.receivers]
        for row in report.receivers:
            if row.state == "done" and not self._has(part, row.server):
                row.state = "receiving"
                doubted.append(row.server)
        if not doubted:
            part.doubted_since = None
        elif part.doubted_since is None:
            part.doubted_since = now
        if doubted and part.said:
            report.state = "failed"
            report.cause = f"{part.relay} says that {listed(doubted, 4)} have it whole, and they do not say so"
        elif doubted and report.state == "done":
            report.state = "passing"
        self._tell(part.sender, report)
