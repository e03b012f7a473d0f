"""Follows a REST request through the manager, from its bytes at the socket to the FlowMod at a switch's socket.

    python -m tests.controller.walk

A file is *crossed* if it has the request in its hands: one of its functions is on the stack where the request is passed
on (to the runtime, by the core as an order to switches, to a switch's queue, as a FlowMod, as bytes). Files that are
only *asked* on the way, and answer, are listed apart: libraries of the core, observers, what the caller is told.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
from rostrum import controller
from rostrum.controller.app import App
from rostrum.controller.config import Config
from rostrum.controller.core import actions as act
from rostrum.controller.core.values import Settings
from rostrum.controller.speed.compiled import PURE
from rostrum.topologies.loader import load
from rostrum.topologies.model import Switch

from tests.controller.fakes import FakeOcs, until
from tests.controller.network import Network

PRODUCT = next(iter(controller.__path__))
REQUESTS = (["h3", "h5"], ["h4", "h6"], ["h5", "h7"])  # what only one of them meets is not theirs
HELLO, ERROR, ECHO, FEATURES, FLOW_MOD, DESCRIBE, BARRIER, ROLE = 0, 1, 2, 5, 14, 18, 20, 24
FLOWS, GROUPS, PORTS = 1, 7, 13  # of descriptions
BAD_MULTIPART = struct.pack("!HH", 1, 2)
HAND_OVERS = {"Runtime.post", "Core.emit", "RuleWriter._start", "Connection.send"}


@dataclass
class Walk:
    """What one request met. `posted`: events to the core, but for the time's. `ordered`: orders to set rules."""

    crossed: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    posted: list[str] = field(default_factory=list)
    ordered: int = 0
    validated: int = 0


class Follower:
    """`sys.setprofile` from the request's first byte to its first FlowMod."""

    def __init__(self) -> None:
        self.walk = Walk()
        self.done = self.follows = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        name, code = own(frame), frame.f_code
        if event != "call" or name is None or self.done:
            return
        given = frame.f_locals
        if code.co_qualname == "_Protocol.data_received":
            self.follows = self.follows or given["data"][:4] == b"POST"
        if not self.follows:
            return
        if name not in self.walk.asked:
            self.walk.asked.append(name)
        if code.co_qualname == "Runtime.post" and (kind := type(given["event"]).__name__) != "Tick":
            self.walk.posted.append(kind)
        elif code.co_qualname == "Devices.perform":
            self.walk.ordered += isinstance(given["action"], act.InstallRules)
        elif code.co_qualname == "problems" and name.endswith("validation.py"):
            self.walk.validated += 1
        if code.co_qualname in HAND_OVERS or name.endswith("openflow/messages.py"):
            self.hand_over(frame, code.co_qualname, given)

    def hand_over(self, frame: FrameType, where: str, given: dict[str, Any]) -> None:
        if where == "Core.emit" and not isinstance(given["action"], act.InstallRules):
            return
        if where == "Connection.send" and FLOW_MOD not in [kind for kind, _, _ in split(given["buf"])]:
            return
        self.done = where == "Connection.send"
        at: FrameType | None = frame
        found = []
        while at is not None:
            if (name := own(at)) is not None:
                found.append(name)
            at = at.f_back
        for name in reversed(found):
            if name not in self.walk.crossed:
                self.walk.crossed.append(name)


def own(frame: FrameType) -> str | None:
    """The file, if it is the manager's."""
    file = frame.f_code.co_filename
    return file.removeprefix(f"{PRODUCT}/") if file.startswith(f"{PRODUCT}/") else None


def split(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """OpenFlow messages: type, xid, body."""
    while data:
        _, kind, length, xid = struct.unpack_from("!BBHI", data)
        yield kind, xid, data[8:length]
        data = data[length:]


def message(kind: int, xid: int, body: bytes = b"") -> bytes:
    return struct.pack("!BBHI", 4, kind, 8 + len(body), xid) + body


async def switch(one: Switch, port: int) -> None:
    """An OpenFlow switch that has all ports up, no rules, and confirms whatever it is told."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(message(HELLO, 1))
    while True:
        head = await reader.readexactly(8)
        ((kind, xid, body),) = split(head + await reader.readexactly(struct.unpack_from("!H", head, 2)[0] - 8))
        if kind == FEATURES:
            writer.write(message(FEATURES + 1, xid, struct.pack("!QIBBHII", one.dpid, 0, 254, 0, 0, 0, 0)))
        elif kind == ECHO:
            writer.write(message(ECHO + 1, xid))
        elif kind == BARRIER:
            writer.write(message(BARRIER + 1, xid))
        elif kind == ROLE:
            writer.write(message(ROLE + 1, xid, body))
        elif kind == DESCRIBE:
            (what,) = struct.unpack_from("!H", body)
            ports = b"".join(
                struct.pack("!I4x6s2x16s8I", number, bytes(6), b"", *(0,) * 8) for number in one.neighbours
            )
            told = struct.pack("!HHI", what, 0, 0) + (ports if what == PORTS else b"")
            known = what in (FLOWS, GROUPS, PORTS)
            writer.write(message(DESCRIBE + 1, xid, told) if known else message(ERROR, xid, BAD_MULTIPART))


async def follow(run: Path) -> list[Walk]:
    topology = load("hybrid-4x2")
    network = Network(topology)
    config = Config(topology, run, Settings(boot_id=1), ("127.0.0.1",), 0, 0, 0, journal=None)
    app = App(config, None, lambda ocs, up, down, changed: FakeOcs(network, ocs, up, down))
    await app.start()
    port = getattr(app.fabric, "port", 0)
    switches = [asyncio.create_task(switch(one, port)) for one in topology.switches.values()]
    core, walks = app.runtime.manager.core, []
    try:
        await until(lambda: not core.resources.switches_down and not app.devices.busy, "switches are up", 60)
        async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(app.socket))) as client:
            for receivers in REQUESTS:
                follower = Follower()
                sys.setprofile(follower)
                body = {"sender": "h1", "receivers": receivers, "kind": "packet"}
                answer = await client.post("http://manager/v1/paths", json=body)
                await until(lambda follower=follower: follower.done, "a FlowMod", 60)  # type: ignore[misc]
                sys.setprofile(None)
                assert answer.status_code == 201, answer.text
                walks.append(follower.walk)
                await until(lambda: not app.devices.busy, "the rules are in", 60)
    finally:
        sys.setprofile(None)
        for one in switches:
            one.cancel()
        await app.close()
    return walks


def main() -> None:
    if not os.environ.get(PURE):  # compiled modules tell a profiler nothing
        os.execve(sys.executable, [sys.executable, "-m", "tests.controller.walk"], {**os.environ, PURE: "1"})
    with tempfile.TemporaryDirectory() as folder:
        walks = asyncio.run(follow(Path(folder)))
    crossed = [name for name in walks[0].crossed if all(name in one.crossed for one in walks)]
    asked = [name for name in walks[0].asked if name not in crossed and all(name in one.asked for one in walks)]
    counts = [(one.posted, one.ordered, one.validated) for one in walks]
    print(json.dumps({"crossed": crossed, "asked": asked, "counts": counts}, indent=1))


if __name__ == "__main__":
    main()
