"""Sends to several sites: an agent asks for its ways, relays get their orders, and what they report goes to the sender.
Nothing is kept here but, where certificates are asked for, what relays were told, so that they do not speak for others
(passing.py).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rostrum.controller.core.requests import sites
from rostrum.controller.core.requests.validation import ID_MAX, unknown_servers
from rostrum.controller.core.values import ServerAddress
from rostrum.controller.keyvalue import line
from rostrum.controller.northbound.thrift import values
from rostrum.controller.northbound.thrift.codec import BadMessage, idl
from rostrum.controller.northbound.thrift.passing import Held, Passing
from rostrum.topologies.model import Topology

log = logging.getLogger("rostrum.thrift")

Call = Callable[[str, str, dict[str, Any]], bool]  # (server, method, arguments) -> whether its agent is there
Present = Callable[[], Mapping[str, sites.Present]]


class Sites:
    """`call` says something to an agent, `present` says who could be a relay, `held` what an agent holds."""

    def __init__(self, topology: Topology, call: Call, present: Present, held: Held) -> None:
        self.topology = topology
        self._call = call
        self._present = present
        self._passing = Passing(held, self._report) if topology.secure else None

    def split(self, sender: str, args: Any) -> None:
        """Manager.split: orders to all relays on the ways first, so that they know what comes, and connect."""
        one = values.need(args, "request", idl.SplitRequest)
        request_id, receivers = values.need(one, "request_id", str), values.texts(one, "receivers")
        if not 0 < len(request_id) <= ID_MAX:
            raise BadMessage(f"request_id must have 1 to {ID_MAX} characters")
        answer = self._answer(sender, receivers, values.texts(one, "avoid"))
        legs = self._ordered(answer.legs, one, sender)
        where = ", ".join(leg.reason or f"site {leg.site} is the sender's own" for leg in answer.legs)
        log.info(line("split", sender=sender, request=request_id, legs=len(legs), text=answer.reason or where))
        self._call(sender, "legs", {"answer": idl.SplitAnswer(request_id, legs, answer.reason, answer.ever)})

    def _answer(self, sender: str, receivers: tuple[str, ...], avoid: tuple[str, ...]) -> sites.Split:
        wrong = unknown_servers(receivers, self.topology, "receivers")
        if not receivers:
            wrong = ["there are no receivers; name at least one server"]
        elif sender in receivers:
            wrong = [f"{sender} is sender and receiver; a server already has what it sends"]
        elif len(set(receivers)) < len(receivers):
            wrong = ["receivers are named more than once; name each one once"]
        if wrong:
            return sites.Split((), "; ".join(wrong), ever=True)
        return sites.split(self.topology, sender, receivers, avoid, self._present())

    def _ordered(self, legs: Sequence[sites.Leg], request: Any, sender: str) -> list[Any]:
        """That server's legs as they are told, when their relays and those behind them have their orders."""
        told = []
        for leg in legs:
            leg_id = str(uuid.uuid4())
            if leg.relay is not None and leg.origin is not None:
                self._order(leg_id, leg, request, sender)
            told.append(
                idl.Leg(leg_id, leg.site, _address(leg.relay), list(leg.receivers), leg.relay_dials, leg.reason)
            )
        return told

    def _order(self, leg_id: str, leg: sites.Leg, request: Any, sender: str) -> None:
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
            self._ordered(leg.onward, request, relay) or None,
        )
        self._call(relay, "relay", {"order": order})

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
        sender = values.need(args, "sender", str)
        found = self._passing.origin(sender, receiver, app_id, data_id) if self._passing else (sender, "")
        self._call(receiver, "origin", {"origin": idl.ObjectOrigin(app_id, data_id, sender, *found)})

    def held(self, server: str, args: Any) -> None:
        """Manager.holds, when the directory of objects has it."""
        for row in args.objects if self._passing else ():
            if not row.gone and self._passing:
                self._passing.held(server, values.need(row, "app_id", bytes), row.data_id, row.digest)

    def due(self, now: float) -> None:
        if self._passing:
            self._passing.due(now)


def _address(one: ServerAddress | None) -> Any:
    return None if one is None else idl.ServerAddress(one.server, one.address, one.control_port)
