"""Which port hears which: LLDP frames sent out of every port between devices, and what comes in of them (OpenFlow).

Only what the switches say; what it means is core/cabling.py's business. P4 switches take no part: their program has no
port to the manager (docs/p4.md).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser
from rostrum.controller.core.model import Sighting
from rostrum.controller.southbound import lldp
from rostrum.controller.southbound.openflow_messages import COOKIE
from rostrum.topologies.model import End, Switch, Topology

INTERVAL_S = 5.0
PRIORITY = 50_000  # above every rule for data
COOKIE_DISCOVERY = COOKIE | 4

Send = Callable[[str, Sequence[Any]], None]  # (switch, messages): best effort


def watched_ports(topology: Topology, switch: Switch) -> list[int]:
    """Those to other devices. Servers' ports are left out: nothing that a server sends gets to the manager."""
    return sorted(port for port, end in switch.neighbours.items() if end.node not in topology.servers)


def rules(datapath: Any, ports: Iterable[int]) -> list[Any]:
    """LLDP from these ports goes to the manager, whole."""
    actions = [parser.OFPActionOutput(ofp.OFPP_CONTROLLER, ofp.OFPCML_NO_BUFFER)]
    return [
        parser.OFPFlowMod(
            datapath,
            cookie=COOKIE_DISCOVERY,
            priority=PRIORITY,
            match=parser.OFPMatch(in_port=port, eth_type=lldp.ETH_TYPE),
            instructions=[parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions)],
        )
        for port in ports
    ]


def packet_out(datapath: Any, port: int, data: bytes) -> Any:
    actions = [parser.OFPActionOutput(port, 0)]
    return parser.OFPPacketOut(datapath, ofp.OFP_NO_BUFFER, ofp.OFPP_CONTROLLER, actions, data)


class Discovery:
    """`connections()`: the switches that are up, by name; `send`: to one of them; `seen`: what was heard."""

    def __init__(
        self,
        topology: Topology,
        connections: Callable[[], dict[str, Any]],
        send: Send,
        seen: Callable[[Sighting], None],
    ) -> None:
        self._connections, self._send, self._seen = connections, send, seen
        self._key = os.urandom(32)
        self._ports = {one.name: watched_ports(topology, one) for one in topology.switches.values()}
        self._sender: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._sender = asyncio.create_task(self._rounds())

    def close(self) -> None:
        if self._sender:
            self._sender.cancel()

    def ports(self, switch: str) -> list[int]:
        return self._ports[switch]

    def round(self) -> None:
        """One frame out of every port of every switch that is up."""
        for switch, connection in self._connections().items():
            frames = [(port, lldp.frame(self._key, lldp.Origin(switch, port))) for port in self._ports[switch]]
            if frames:
                self._send(switch, [packet_out(connection, port, data) for port, data in frames])

    def packet_in(self, switch: str, message: Any) -> None:
        """A packet that a switch hands up."""
        origin = lldp.origin(self._key, message.data)
        in_port = message.match.get("in_port")
        if origin is not None and in_port is not None:
            self._seen(Sighting(switch, int(in_port), End(origin.switch, origin.port)))

    async def _rounds(self) -> None:
        while True:
            self.round()
            await asyncio.sleep(INTERVAL_S)
