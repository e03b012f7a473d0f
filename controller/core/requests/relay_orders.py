"""What relays were told to pass on, as it survives a restart of the manager: one that forgot it would take a relay's
object for its own (northbound/thrift/passing.py, which decides, and whose records these are).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rostrum.controller.core import events as ev
    from rostrum.controller.core.persistence.persistence import Json
    from rostrum.controller.core.state import Core


@dataclass(frozen=True)
class RelayPart:
    """`sender`: from whom the relay has the object; `origin`: whose it is. `digest`: of the origin's, "" until it has
    told it; `have`: receivers that told the same.
    """

    leg_id: str
    relay: str
    sender: str
    origin: str
    app_id: bytes
    data_id: int
    receivers: tuple[str, ...]
    digest: str = ""
    have: tuple[str, ...] = ()


def noted(core: Core, event: ev.RelaysNoted, now: int) -> None:
    """Orders are in the journal before relays hear of them; what is known of them later, some time after."""
    for part in event.parts:
        core.relay_parts[part.leg_id] = part
        (core.persistence.mark_later if event.later else core.persistence.mark)(Records.name, part.leg_id)
    for leg_id in event.gone:
        if core.relay_parts.pop(leg_id, None) is not None:
            core.persistence.mark_later(Records.name, leg_id)


class Records:
    """Key: the leg's id."""

    name = "relay"

    def dump(self, core: Core, key: str) -> Json | None:
        one = core.relay_parts.get(key)
        if one is None:
            return None
        return {
            "relay": one.relay,
            "sender": one.sender,
            "origin": one.origin,
            "app": one.app_id.hex(),
            "data": one.data_id,
            "receivers": list(one.receivers),
            "digest": one.digest,
            "have": list(one.have),
        }

    def restore(self, core: Core, records: Mapping[str, Json], now: int) -> None:
        servers = core.topology.servers
        for key, record in records.items():
            names = (record["relay"], record["sender"], record["origin"])
            receivers = tuple(name for name in record["receivers"] if name in servers)
            if not receivers or any(name not in servers for name in names):
                core.persistence.mark_later(self.name, key)
                core.warn("relay's order not restored", leg=key, cause="its servers are not in this topology")
                continue
            core.relay_parts[key] = RelayPart(
                key, *names, bytes.fromhex(record["app"]), record["data"], receivers, record["digest"],
                tuple(record["have"]),
            )  # fmt: skip
