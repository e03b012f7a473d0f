"""A stand-in for an agent in lab tests of message groups: `group_member.py MANAGER PORT SERVER join|use GROUP...`.

Says hello as SERVER, joins the groups, or uses them, and prints each view and refusal as a JSON line until it is ended.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from typing import Any

from rostrum.controller.northbound.thrift.codec import decode, encode, idl

KEEPALIVE_S = 0.5


def main(manager: str, port: str, server: str, how: str, *groups: str) -> None:
    link = socket.create_connection((manager, int(port)), timeout=10)
    link.settimeout(None)
    engines = [idl.Engine("plain", []), idl.Engine("ricochet", [])]
    hello = idl.AgentInfo(1, server, time.time_ns(), 7071, [], group_engines=engines)
    link.sendall(encode("Manager", "hello", {"info": hello}))
    for group in groups:
        link.sendall(encode("Manager", f"{how}_group", {"group": idl.GroupUse(group=group)}))
    threading.Thread(target=keep_alive, args=(link,), daemon=True).start()
    stream = link.makefile("rb")
    names: dict[int, str] = {}
    peers: dict[int, str] = {}
    while header := stream.read(4):
        method, said = decode("Agent", stream.read(*struct.unpack(">I", header)))
        if method == "group_refused":
            print(json.dumps({"refused": said.group, "reason": said.reason}), flush=True)
        if method == "group_view":
            peers |= {peer.id: peer.server for peer in said.peers}
            for view in said.views:
                print(json.dumps(described(view, names, peers)), flush=True)


def described(view: Any, names: dict[int, str], peers: dict[int, str]) -> dict[str, Any]:
    if view.facts:
        names[view.id] = view.facts.group
    return {
        "group": names[view.id],
        "version": view.version,
        "address": view.facts.address if view.facts else None,
        "port": view.facts.data_port if view.facts else None,
        "members": sorted(peers[one] for one in view.members),
        "gone": sorted(peers[one] for one in view.gone),
    }


def keep_alive(link: socket.socket) -> None:
    while True:
        time.sleep(KEEPALIVE_S)
        link.sendall(encode("Manager", "keepalive", {}))


if __name__ == "__main__":
    main(*sys.argv[1:])
