"""What a topology file leaves out, filled in: for labs, where nothing is printed on a device. On a testbed ports, dpids
and addresses are what they are, so that `load` asks for them.

A whole file can be

    servers: {h1: , h2: , h3: }
    links: [{a: h1, b: tor1}, {a: h2, b: tor2}, {a: h3, b: tor2}, {a: tor1, b: core}, {a: tor2, b: core}]
    switches: {tor1: , tor2: , core: }
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from ipaddress import IPv4Address, IPv4Network
from itertools import count
from typing import Any

from rostrum.topologies.kinds import FIRST_PORT

NETWORKS = {"data": "10.0.0.0/16", "management": "10.255.0.0/16", "multicast": "239.192.0.0/16"}
RATE = "1G"
PORTS_LEAST = 32  # of an OCS
LOSS_DB = 3.5  # of a splitter for each doubling: a little more than its share of the light
MANAGER, OCS, SERVERS = 1, 2, 256  # offsets of addresses in the management network
RACK = 256  # data addresses from one rack to the next


def complete(value: Any) -> Any:
    """The same topology with what it lacks. What has not the form of a topology stays as it is, for `load` to name."""
    if not isinstance(value, dict):
        return value
    value = deepcopy(value)
    value.setdefault("rostrum", 1)
    value.setdefault("name", "lab")
    for key in ("switches", "servers", "ocs"):
        nodes = value.get(key)
        if isinstance(nodes, list) and all(isinstance(name, str) for name in nodes):
            nodes = value[key] = dict.fromkeys(nodes)
        if isinstance(nodes, dict):
            value[key] = {name: {} if entry is None else entry for name, entry in nodes.items()}
    network = _inner(value, "network")
    if network is not None:
        for key, default in NETWORKS.items():
            network.setdefault(key, default)
    links = value.get("links")
    if not isinstance(links, list) or not all(_is_link(link) for link in links):
        return value
    _Parts(value, links).fill()
    return value


def _inner(value: dict[str, Any], key: str) -> dict[str, Any] | None:
    """A mapping of the file, made if it is not there; None if something else is."""
    if value.get(key) is None:
        value[key] = {}
    return value[key] if isinstance(value[key], dict) else None


def _is_link(link: Any) -> bool:
    return isinstance(link, dict) and all(isinstance(link.get(side), str) for side in "ab")


def _node(end: str) -> str:
    return end.partition(":")[0]


def _network(text: Any) -> IPv4Network | None:
    try:
        return IPv4Network(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _free(network: IPv4Network, start: int, step: int, taken: set[str]) -> str:
    """An address of the network that nobody has, from an offset on; the file's own mistakes are not made worse."""
    for offset in range(start, network.num_addresses - 1, step):
        text = str(network.network_address + offset)
        if text not in taken:
            taken.add(text)
            return text
    return str(network.network_address)


class _Parts:
    """The parts of one file whose links have a form."""

    def __init__(self, value: dict[str, Any], links: list[dict[str, Any]]) -> None:
        self.value, self.links = value, links
        self.switches = self._nodes("switches")
        self.servers = self._nodes("servers")
        self.ocs = self._nodes("ocs")
        entries = [*self.servers.values(), *self.ocs.values(), value.get("manager")]
        keys = ("address", "management")
        self.taken = {str(one.get(key)) for one in entries if isinstance(one, dict) for key in keys}

    def _nodes(self, key: str) -> dict[str, dict[str, Any]]:
        nodes = self.value.get(key)
        return (
            {name: one for name, one in nodes.items() if isinstance(one, dict)}
            if isinstance(nodes, dict)
            else {}
        )  # fmt: skip

    def fill(self) -> None:
        for link in self.links:
            link.setdefault("rate", RATE)
        self._fill_switches()
        self._fill_ports()
        self._fill_addresses()
        for entry in self.ocs.values():
            self._fill_ocs(entry)

    def _far(self, node: str) -> Iterator[str]:
        for link in self.links:
            a, b = _node(link["a"]), _node(link["b"])
            if node in (a, b):
                yield b if node == a else a

    def _fill_switches(self) -> None:
        dpids = {str(entry.get("dpid")) for entry in self.switches.values()}
        free = (number for number in count(1) if str(number) not in dpids)
        for number, (name, entry) in enumerate(self.switches.items()):
            below = any(far in self.servers or far in self.ocs for far in self._far(name))
            entry.setdefault("role", "tor" if below else "core")
            kind = entry.setdefault("southbound", "p4runtime" if "p4runtime" in entry else "openflow")
            if kind == "openflow":
                entry.setdefault("dpid", next(free) if "dpid" not in entry else entry["dpid"])
            elif kind == "p4runtime":
                target = entry.setdefault("p4runtime", {})
                if isinstance(target, dict) and "address" not in target:
                    target["address"] = "127.0.0.1"
                    target.setdefault("port", FIRST_PORT + number)

    def _fill_ports(self) -> None:
        """Ends without a port get the least that is free, in the order of the links."""
        taken: dict[str, set[int]] = {}
        for link in self.links:
            for end in (link["a"], link["b"]):
                node, _, port = end.partition(":")
                if port.isdigit():
                    taken.setdefault(node, set()).add(int(port))
        for name, entry in self.ocs.items():
            splitters = entry.get("splitters")
            for one in splitters.values() if isinstance(splitters, dict) else ():
                if isinstance(one, dict):
                    outputs = one.get("outputs")
                    fibres = [one.get("input"), *(outputs if isinstance(outputs, list) else [])]
                    taken.setdefault(name, set()).update(fibre for fibre in fibres if isinstance(fibre, int))
        for link in self.links:
            for side in "ab":
                node, colon, _ = link[side].partition(":")
                if not colon and (node in self.switches or node in self.ocs):
                    used = taken.setdefault(node, set())
                    port = next(number for number in count(1) if number not in used)
                    used.add(port)
                    link[side] = f"{node}:{port}"
        self.ports = taken

    def _fill_addresses(self) -> None:
        network = self.value["network"]
        networks = {key: _network(network.get(key)) for key in NETWORKS} if isinstance(network, dict) else {}
        data, management = networks.get("data"), networks.get("management")
        manager = _inner(self.value, "manager")
        if data is None or management is None:
            return
        if manager is not None and "address" not in manager:
            manager["address"] = _free(management, MANAGER, 1, self.taken)
        for entry in self.ocs.values():
            if "address" not in entry:
                entry["address"] = _free(management, OCS, 1, self.taken)
        racks: dict[str, int] = {}
        step = RACK if data.num_addresses > RACK * (len(self.switches) + 1) else 1
        first = SERVERS if management.num_addresses > SERVERS + len(self.servers) else OCS
        for name, entry in self.servers.items():
            tor = next((far for far in self._far(name) if far in self.switches), "")
            rack = racks.setdefault(tor, len(racks) + 1)
            if "address" not in entry:
                start = rack * step + 1 if step == RACK else 1
                entry["address"] = _free(data, start, 1, self.taken)
            if "management" not in entry:
                offset = int(IPv4Address(entry["address"])) - int(data.network_address) if _is_address(entry) else 0
                fits = SERVERS <= offset < management.num_addresses - 1
                entry["management"] = _free(management, offset if fits else first, 1, self.taken)

    def _fill_ocs(self, entry: dict[str, Any]) -> None:
        name = next(name for name, one in self.ocs.items() if one is entry)
        splitters = entry.get("splitters")
        splitters = splitters if isinstance(splitters, dict) else {}
        inputs = set(self.ports.get(name, ()))
        outputs = set(inputs)  # fibres out of the OCS: ports of ToRs, and inputs of splitters
        for key, one in splitters.items():
            one = splitters[key] = {} if one is None else one
            if not isinstance(one, dict):
                continue
            fanout = one.setdefault("fanout", len(one["outputs"]) if isinstance(one.get("outputs"), list) else 4)
            if not isinstance(fanout, int) or not 2 <= fanout <= 1024:
                continue
            one.setdefault("loss_db", round(LOSS_DB * (fanout - 1).bit_length(), 1))
            if "input" not in one:
                one["input"] = next(number for number in count(1) if number not in outputs)
                outputs.add(one["input"])
            if "outputs" not in one:
                free = (number for number in count(1) if number not in inputs)
                one["outputs"] = [next(free) for _ in range(fanout)]
                inputs.update(one["outputs"])
        entry.setdefault("ports", max(PORTS_LEAST, *inputs, *outputs, 0))


def _is_address(entry: dict[str, Any]) -> bool:
    try:
        return isinstance(entry["address"], str) and bool(IPv4Address(entry["address"]))
    except ValueError:
        return False
