"""A topology from a Mininet `Topo`: experiments that exist already bring their network along."""

from __future__ import annotations

from typing import Any

from rostrum.lab.namespace import LabError

NOT_EMULATED = ("delay", "loss", "jitter")


def is_topo(value: object) -> bool:
    return all(callable(getattr(value, name, None)) for name in ("hosts", "switches", "links", "nodeInfo"))


def from_mininet(topo: Any) -> dict[str, Any]:
    """The value of a topology file; completion.py adds what Mininet has no word for. Raises LabError.

    Kept: names, ports of switches, dpids, hosts' addresses, links' bandwidth.
    """
    if not topo.hosts() or not topo.switches():
        raise LabError(f"{type(topo).__name__} has no hosts or no switches; a lab needs both")
    servers: dict[str, dict[str, Any]] = {name: {} for name in topo.hosts()}
    switches: dict[str, dict[str, Any]] = {name: {} for name in topo.switches()}
    for name, entry in servers.items():
        if address := topo.nodeInfo(name).get("ip"):
            entry["address"] = str(address).partition("/")[0]
    for name, entry in switches.items():
        if dpid := topo.nodeInfo(name).get("dpid"):
            entry["dpid"] = dpid if isinstance(dpid, int) else int(str(dpid).replace(":", ""), 16)
    return {
        "name": _name(type(topo).__name__),
        "servers": servers,
        "switches": switches,
        "links": [_link(info, servers) for _, _, info in topo.links(withInfo=True)],
    }


def _link(info: dict[str, Any], servers: dict[str, Any]) -> dict[str, Any]:
    a, b = info["node1"], info["node2"]
    if wrong := [key for key in NOT_EMULATED if info.get(key)]:
        raise LabError(
            f"the link of {a} and {b} has {', '.join(wrong)}: the lab's links have a rate only; leave it out"
        )
    ends = [name if name in servers else f"{name}:{info[port]}" for name, port in ((a, "port1"), (b, "port2"))]
    link = {"a": ends[0], "b": ends[1]}
    return {**link, "rate": f"{info['bw']:g}M"} if info.get("bw") else link  # Mininet's are Mbit/s


def _name(kind: str) -> str:
    letters = "".join(one for one in kind.lower() if one.isalnum() and one.isascii()).lstrip("0123456789")
    return letters[:31] or "topo"
