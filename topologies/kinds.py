"""Switches of another kind in a topology file: the same data center, driven by OpenFlow, by P4Runtime, or by both."""

from __future__ import annotations

from typing import Any

import yaml
from rostrum.topologies.document import DUMPER, LOADER

KINDS = ("openflow", "p4", "mixed")
FIRST_PORT = 9559  # of P4Runtime servers that share an address


def with_kind(text: str, kind: str, address: str = "127.0.0.1", queues: int = 8) -> str:
    """The topology file `text` with its switches made OpenFlow ones, P4 ones, or (`mixed`) P4 top-of-rack switches
    around an OpenFlow core. P4 switches get a P4Runtime server at `address` each, on ports of their own. Software
    switches on servers stay OpenFlow ones.

    Raises ValueError for another kind.
    """
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is no kind of switches; there are {', '.join(KINDS)}")
    value: dict[str, Any] = yaml.load(text, LOADER)
    for number, entry in enumerate(value["switches"].values()):
        if kind == "openflow" or "server" in entry or (kind == "mixed" and entry["role"] != "tor"):
            entry.pop("p4runtime", None)
            entry["southbound"] = "openflow"
            entry.setdefault("dpid", 1 << 32 | number)
        else:
            entry.pop("dpid", None)
            entry["southbound"] = "p4runtime"
            entry["p4runtime"] = {"address": address, "port": FIRST_PORT + number, "device_id": 1, "queues": queues}
    return str(yaml.dump(value, Dumper=DUMPER, sort_keys=False))
