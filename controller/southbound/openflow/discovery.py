"""Discovery frames in OpenFlow messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser
from rostrum.controller.southbound import lldp
from rostrum.controller.southbound.openflow.messages import COOKIE

PRIORITY = 50_000  # above every rule for data
COOKIE_DISCOVERY = COOKIE | 4


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
