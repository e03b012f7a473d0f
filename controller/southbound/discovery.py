"""Which port hears which: LLDP frames sent out of every port between devices, and what comes in of them.

Only what the switches say; what it means is core/packet/cabling.py's business. How a frame gets to a port, and from
one, the driver knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

from rostrum.controller.core.model import Sighting
from rostrum.controller.core.packet import cabling
from rostrum.controller.southbound import lldp
from rostrum.topologies.model import End, Switch, Topology

Frames = Sequence[tuple[int, bytes]]  # (port, what leaves by it)
Send = Callable[[str, Frames], None]  # (switch, frames): best effort


def watched_ports(topology: Topology, switch: Switch) -> list[int]:
    """Those to other devices. Servers' ports are left out: nothing that a server sends gets to the manager."""
    return sorted(port for port, end in switch.neighbours.items() if end.node not in topology.servers)


class Discovery:
    """`up()`: names of the driver's switches that are up; `seen`: what was heard. `key`: of this manager's run; all its
    drivers have the same, as frames go from switches of one kind to those of another.
    """

    def __init__(
        self,
        topology: Topology,
        key: bytes,
        up: Callable[[], Iterable[str]],
        send: Send,
        seen: Callable[[Sighting], None],
    ) -> None:
        self._up, self._send, self._seen, self._key = up, send, seen, key
        self._ports = {one.name: watched_ports(topology, one) for one in topology.switches.values()}
        self._interval_s = cabling.interval_ns(topology) / 1e9
        self._sender: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._sender = asyncio.create_task(self._rounds())

    def close(self) -> None:
        if self._sender:
            self._sender.cancel()

    def ports(self, switch: str) -> list[int]:
        return self._ports[switch]

    def round(self, ports: Collection[tuple[str, int]] | None = None) -> None:
        """One frame out of every port of every switch that is up, or out of those of `ports` that are theirs."""
        wanted: dict[str, list[int]] | None = None
        if ports is not None:
            wanted = {}
            for switch, port in ports:
                wanted.setdefault(switch, []).append(port)
        for switch in list(self._up()):
            own = self._ports[switch] if wanted is None else wanted.get(switch, ())
            frames = [(port, lldp.frame(self._key, lldp.Origin(switch, port))) for port in own]
            if frames:
                self._send(switch, frames)

    def packet_in(self, switch: str, port: int, data: bytes) -> None:
        """A frame that a switch hands up."""
        origin = lldp.origin(self._key, data)
        if origin is not None:
            self._seen(Sighting(switch, port, End(origin.switch, origin.port)))

    async def _rounds(self) -> None:
        while True:
            self.round()
            await asyncio.sleep(self._interval_s)
