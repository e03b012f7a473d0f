"""Sends to several sites: an agent asks for its ways, relays get their orders, and what they report goes to the sender.
Nothing is kept here but, where certificates are asked for, what relays were told, so that they do not speak for others
(passing.py); that is in the journal before they are told it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rostrum.controller.core.events import RelaysNoted
from rostrum.controller.core.requests import sites
from rostrum.controller.core.requests.relay_orders import RelayPart
from rostrum.controller.core.requests.validation import ID_MAX, unknown_servers
from rostrum.controller.core.text import listed
from rostrum.controller.core.values import ServerAddress
from rostrum.controller.keyvalue import line
from rostrum.controller.northbound.thrift import values
from rostrum.controller.northbound.thrift.codec import BadMessage, idl
from rostrum.controller.northbound.thrift.objects import DIGEST_MAX
from rostrum.controller.northbound.thrift.passing import Held, Passing
from rostrum.topologies.model import Topology

log = logging.getLogger("rostrum.thrift")

TERM_MAX = 255  # bytes of each text of SendTerms, as agents take them

Call = Callable[[str, str, dict[str, Any]], bool]  # (server, method, arguments) -> whether its agent is there
Present = Callable[[], Mapping[str, sites.Present]]
Note = Callable[[RelaysNoted], asyncio.Future[None] | None]  # done when it is remembered; None: it is
Said = tuple[str, str, dict[str, Any]]  # as Call


class Sites:
    """`call` says something to an agent, `present` says who could be a relay, `there` whose agent is connected; `held`
    what an agent holds, `holders` who holds an object in a server's tenant; `note` has it remembered what relays are
    told.
    """

    def __init__(
        self,
        topology: Topology,
        call: Call,
        present: Present,
        there: Callable[[str], bool],
        held: Held,
        holders: Callable[[str, bytes, int], Mapping[str, str]],
        note: Note,
    ) -> None:
        self.topology = topology
        self._call = call
        self._present = present
        self._note = note
        self._holders = holders
        self._passing = Passing(held, self._report, there, _failed) if topology.secure else None

    def restored(self, parts: Iterable[RelayPart], now: float) -> None:
        """What the manager before told relays."""
        if self._passing:
            self._passing.restored(parts, now)

    def split(self, sender: str, args: Any) -> None:
        """Manager.split: orders to all relays on the ways first, so that they know what comes, and connect."""
        one = values.need(args, "request", idl.SplitRequest)
        request_id, receivers = values.need(one, "request_id", str), values.texts(one, "receivers")
        if not 0 < len(request_id) <= ID_MAX:
            raise BadMessage(f"request_id must have 1 to {ID_MAX} characters")
        _check(one.terms)
        app_id, data_id = values.need(one, "app_id", bytes), values.need(one, "data_id", int)
        answer = self._answer(sender, receivers, values.texts(one, "avoid"), (app_id, data_id), _binding(one.terms))
        said: list[Said] = []
        legs = self._ordered(answer.legs, one, sender, said)
        where = ", ".join(leg.reason or f"site {leg.site} is the sender's own" for leg in answer.legs)
        log.info(line("split", sender=sender, request=request_id, legs=len(legs), text=answer.reason or where))
        told = idl.SplitAnswer(request_id, legs, answer.reason, answer.ever, one.terms is not None or None)
        said.append((sender, "legs", {"answer": told}))
        self._say(said)

    def _say(self, said: Sequence[Said]) -> None:
        """When it is remembered what relays are told: else the next manager would believe them."""
        parts, gone = self._passing.notes() if self._passing else ((), ())
        written = self._note(RelaysNoted(parts, gone)) if parts or gone else None
        if written is None:
            self._say_now(said)
        else:
            written.add_done_callback(
                lambda done: None if done.cancelled() or done.exception() else self._say_now(said)
            )

    def _say_now(self, said: Sequence[Said]) -> None:
        for one in said:
            self._call(*one)

    def _answer(
        self,
        sender: str,
        receivers: tuple[str, ...],
        avoid: tuple[str, ...],
        an_object: tuple[bytes, int],
        terms: bool,
    ) -> sites.Split:
        wrong = unknown_servers(receivers, self.topology, "receivers")
        if not receivers:
            wrong = ["there are no receivers; name at least one server"]
        elif sender in receivers:
            wrong = [f"{sender} is sender and receiver; a server already has what it sends"]
        elif len(set(receivers)) < len(receivers):
            wrong = ["receivers are named more than once; name each one once"]
        if wrong:
            return sites.Split((), "; ".join(wrong), ever=True)
        present = self._present()
        holders = self._holders(sender, *an_object)
        busy = self._passing.busy(sender, *an_object, receivers, holders) if self._passing else []
        free = {name: one for name, one in present.items() if name not in busy}
        found = sites.split(self.topology, sender, receivers, avoid, free, terms=terms)
        if not found.legs and busy and not found.ever:
            text = f"{found.reason}; or have an object of their own by that id: {listed(busy, 4)}"
            return sites.Split((), text)
        return found

    def _ordered(self, legs: Sequence[sites.Leg], request: Any, sender: str, said: list[Said]) -> list[Any]:
        """That server's legs as they are told, when their relays and those behind them have their orders."""
        told = []
        for leg in legs:
            leg_id = str(uuid.uuid4())
            if leg.relay is not None and leg.origin is not None:
                self._order(leg_id, leg, request, sender, said)
            told.append(
                idl.Leg(leg_id, leg.site, _address(leg.relay), list(leg.receivers), leg.relay_dials, leg.reason)
            )
        return told

    def _order(self, leg_id: str, leg: sites.Leg, request: Any, sender: str, said: list[Said]) -> None:
        assert leg.relay is not None
        relay = leg.relay.server
        others = [name for name in leg.receivers if name != relay]
        if not others and not leg.relay_dials:
            return  # it is an ordinary receiver
        app_id, data_id = values.need(request, "app_id", bytes), values.need(request, "data_id", int)
        if self._passing:
            self._passing.ordered(leg_id, relay, sender, app_id, data_id, others)
        order = idl.RelayOrder(
            leg_id,
            app_id,
            data_id,
            _address(leg.origin),
            others,
            leg.relay_dials,
            relay in leg.receivers,
            self._ordered(leg.onward, request, relay, said) or None,
            request.terms,
        )
        said.append((relay, "relay", {"order": order}))

    def relayed(self, relay: str, args: Any, now: float) -> None:
        """Manager.relayed: to the sender. Nobody speaks for another relay."""
        one = values.need(args, "report", idl.RelayReport)
        if values.need(one, "relay", str) != relay:
            raise BadMessage(f"the agent of {relay} reports as relay {one.relay[:40]}")
        values.need(one, "origin", str)
        for row in values.need(one, "receivers", list):
            values.need(row, "server", str)
        if self._passing:
            self._passing.reported(one, now)
        else:
            self._report(one.origin, one)

    def _report(self, sender: str, report: Any) -> None:
        self._call(sender, "relayed", {"report": report})

    def whose(self, receiver: str, args: Any) -> None:
        """Manager.whose."""
        app_id, data_id = values.need(args, "app_id", bytes), values.need(args, "data_id", int)
        sender, digest = values.need(args, "sender", str), values.need(args, "digest", str)
        if len(digest) > DIGEST_MAX:
            raise BadMessage("whose: a digest that is none")
        found = self._passing.origin(sender, receiver, app_id, data_id, digest) if self._passing else (sender, "")
        self._call(receiver, "origin", {"origin": idl.ObjectOrigin(app_id, data_id, sender, *found, digest)})

    def back(self, server: str) -> None:
        """Its agent is connected."""
        if self._passing:
            self._passing.back(server)

    def held(self, server: str, args: Any) -> None:
        """Manager.holds, when the directory of objects has it."""
        for row in args.objects if self._passing else ():
            if not row.gone and self._passing:
                self._passing.held(server, values.need(row, "app_id", bytes), row.data_id, row.digest)

    def due(self, now: float) -> None:
        if self._passing:
            self._passing.due(now)
            parts, gone = self._passing.notes()
            if parts or gone:
                self._note(RelaysNoted(parts, gone, later=True))


def _check(terms: Any) -> None:
    """Relays get them as they are: what an agent's codec would not take ends here. Raises BadMessage."""
    if terms is None:
        return
    for field in ("options", "stragglers"):
        text = values.need(terms, field, str)
        if len(text) > TERM_MAX or not (text.isascii() and (text.isprintable() or not text)):
            raise BadMessage(f"terms.{field} is not {TERM_MAX} printable characters of ASCII at most")
    for field in ("wait_ms", "deadline_ms"):
        if values.need(terms, field, int) < 0:
            raise BadMessage(f"terms.{field} is below 0")


def _binding(terms: Any) -> bool:
    """A relay has to know them: times alone are hints."""
    return terms is not None and bool(terms.options or terms.stragglers)


def _address(one: ServerAddress | None) -> Any:
    return None if one is None else idl.ServerAddress(one.server, one.address, one.control_port)


def _failed(part: RelayPart, cause: str) -> Any:
    return idl.RelayReport(part.leg_id, part.sender, part.relay, "failed", cause, 0, [])
