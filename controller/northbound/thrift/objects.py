"""What agents tell of the objects they hold, and their questions who holds one (rostrum.thrift, Manager.holds and
Manager.fetch): from and to core/objects.py, which decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rostrum.controller.core.objects import NAME_MAX, Answer, Held, HeldKey, Objects, Serve
from rostrum.controller.keyvalue import line
from rostrum.controller.northbound.thrift import values
from rostrum.controller.northbound.thrift.codec import BadMessage, idl
from rostrum.topologies.model import Topology

log = logging.getLogger("rostrum.thrift")

HELD_MAX = 256  # of one call
DIGEST_MAX = 255

Call = Callable[[str, str, dict[str, Any]], bool]  # (server, method, arguments) -> whether its agent is there


class ObjectsDoor:
    """`call` says something to an agent; `ports`: where those that are there give pieces."""

    def __init__(
        self, topology: Topology, clock: Callable[[], int], call: Call, ports: Callable[[], Mapping[str, int]]
    ) -> None:
        self.objects = Objects()
        self._topology = topology
        self._clock = clock
        self._call = call
        self._ports = ports
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()

    def holds(self, server: str, args: Any) -> None:
        """Manager.holds."""
        rows = values.need(args, "objects", list)
        if len(rows) > HELD_MAX:
            raise BadMessage(f"{len(rows)} objects in one call; at most {HELD_MAX} are possible")
        tenant = self._topology.tenant_of(server)
        told = [(_key(row, tenant), _held(row), row.gone is True) for row in rows]
        if values.need(args, "reset", bool):
            self.objects.forget(server)
        for key, held, gone in told:
            if gone and held.name:  # it is on its way
                self.objects.named(key, held.name)
            elif gone:
                self.objects.went(server, key)
            else:
                self.objects.came(server, key, held)
        self._look()

    def digest(self, server: str, app_id: bytes, data_id: int) -> str:
        """Of the object that this server's agent has told to hold by that id; "": none."""
        found = self.objects.known.get(HeldKey(app_id, data_id, self._topology.tenant_of(server)))
        held = found.holders.get(server) if found else None
        return held.digest if held else ""

    def holders(self, server: str, app_id: bytes, data_id: int) -> dict[str, str]:
        """Who has told to hold an object by that id, in this server's tenant, with its digest."""
        found = self.objects.known.get(HeldKey(app_id, data_id, self._topology.tenant_of(server)))
        return {name: held.digest for name, held in found.holders.items()} if found else {}

    def fetch(self, server: str, args: Any) -> None:
        """Manager.fetch."""
        one = values.need(args, "request", idl.FetchRequest)
        key = _key(one, self._topology.tenant_of(server))
        self._say(self.objects.fetch(server, key, values.need(one, "together", bool), self._clock()))
        self._look()

    def _look(self) -> None:
        self._say(self.objects.due(self._clock()))
        due = self.objects.next_due()
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            wait_s = max(0, due - self._clock()) / 1e9
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _say(self, said: Iterable[Answer | Serve]) -> None:
        ports = self._ports()
        for one in said:
            key = one.key
            if isinstance(one, Serve):
                log.info(line("fetched together", object=key.shown, sender=one.holder, receivers=len(one.receivers)))
                self._call(one.holder, "serve", {"order": idl.ServeOrder(key.app, key.data_id, list(one.receivers))})
                continue
            holders = [
                idl.Holder(name, str(self._topology.servers[name].address), ports[name])
                for name in one.holders
                if ports.get(name)
            ]
            answer = idl.FetchAnswer(key.app, key.data_id, holders, one.sent_within_ms, one.reason)
            self._call(one.server, "holders", {"answer": answer})


def fetched(args: Any) -> str:
    """Which object one asks for, for the audit: without the right to it."""
    return _key(args.request, "").shown


def _key(row: Any, tenant: str) -> HeldKey:
    app = values.need(row, "app_id", bytes)
    if len(app) != values.APP_ID_BYTES:
        raise BadMessage(f"an app_id of {len(app)} bytes; it has {values.APP_ID_BYTES}")
    return HeldKey(app, values.need(row, "data_id", int), tenant)


def _held(row: Any) -> Held:
    size, digest = values.need(row, "size", int), values.need(row, "digest", str)
    if size < 0 or len(digest) > DIGEST_MAX:
        raise BadMessage("HeldObject: a size below 0, or a digest that is none")
    name = row.name if isinstance(row.name, str) else ""
    return Held(size, digest, name[:NAME_MAX])
