"""A P4 fabric, a switch it drives, what it called back, and what is on the switch by an outsider's reading."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import grpc
from finsy import P4MulticastGroupEntry, P4TableEntry
from finsy.proto import p4r, p4r_grpc
from rostrum.controller.core.model import Light, MulticastRule, UnicastRule
from rostrum.controller.southbound.p4runtime import errors
from rostrum.controller.southbound.p4runtime import pipeline as p4runtime_pipeline
from rostrum.controller.southbound.p4runtime.switches import P4RuntimeFabric
from rostrum.topologies.kinds import with_kind
from rostrum.topologies.loader import load_text
from rostrum.topologies.model import P4Target, Topology

from tests.controller.southbound.p4_servers import DEVICE, Server

TEXT = (Path(__file__).parents[3] / "topologies" / "hybrid-4x2.yaml").read_text()
PIPELINE = p4runtime_pipeline.load()
GROUP = IPv4Address("239.192.0.5")
SENDER = IPv4Address("10.0.1.1")
RULE = MulticastRule("tor1", 1, GROUP, (2, 50), SENDER)
UNICAST = [UnicastRule("tor1", IPv4Address("10.0.1.1"), 1), UnicastRule("tor1", IPv4Address("10.0.2.1"), 49)]
BOUND_S = 60.0
TABLES = ("unicast", "group_range", "admission", "multicast", "priority_tags", "first_light")
# What every switch of ours holds before there are paths.
SETTINGS = [
    "group_range group=239.192.0.0/16 -> guard()",
    *(
        f"priority_tags level={level} -> tag(dscp={dscp}, pcp={level}, queue={level})"
        for level, dscp in enumerate((10, 18, 26, 34, 46, 48, 56), 1)
    ),
]


def topology(**ports: int) -> Topology:
    """hybrid-4x2 with these switches (name=port) as P4 ones on loopback, and no others."""
    plain = load_text(with_kind(TEXT, "p4"))
    switches = {
        name: replace(plain.switches[name], p4=P4Target(IPv4Address("127.0.0.1"), port, DEVICE, 8))
        for name, port in ports.items()
    }
    return replace(plain, switches=switches)


class World:
    """`async with World(server) as world`: a fabric for one switch, tor1."""

    def __init__(self, server: Server, election_id: int = 1) -> None:
        self.server = server
        self.ups: list[str] = []
        self.downs: list[tuple[str, str]] = []
        self.lights: list[Light] = []
        self.fabric = P4RuntimeFabric(
            topology(tor1=server.port),
            self.ups.append,
            lambda *a: self.downs.append(a),
            self.lights.append,
            election_id=election_id,
            pipeline=PIPELINE,
        )

    async def __aenter__(self) -> World:
        await self.fabric.start("", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.fabric.close()

    async def up(self, times: int = 1) -> None:
        await self.until(lambda: len(self.ups) >= times)

    async def until(self, happened: Callable[[], Any]) -> None:
        end = time.monotonic() + BOUND_S
        while not happened():
            assert time.monotonic() < end, f"up {self.ups}, down {self.downs}, lights {self.lights}"
            await asyncio.sleep(0.005)

    async def holds(self) -> list[str]:
        """Everything on the switch but its settings, one line each, in order."""
        lines = await read_all(self.server.port)
        assert [line for line in lines if line.startswith(("group_range", "priority_tags"))] == SETTINGS
        return [line for line in lines if line not in SETTINGS]


async def read_all(port: int) -> list[str]:
    """As somebody else sees the switch who only reads."""
    schema = PIPELINE.schema
    questions = [P4TableEntry(name).encode(schema) for name in TABLES] + [P4MulticastGroupEntry(0).encode(schema)]
    return sorted(say(one) for one in await ask(port, questions))


async def ask(port: int, questions: Sequence[p4r.Entity]) -> list[p4r.Entity]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = p4r_grpc.P4RuntimeStub(channel)
        answer = stub.Read(p4r.ReadRequest(device_id=DEVICE, entities=questions), timeout=BOUND_S)
        return [one async for part in answer for one in part.entities]


def say(one: p4r.Entity) -> str:
    """`multicast ingress_port=1 group=239.192.0.5 -> replicate(replication=1, level=5)`."""
    if one.HasField("packet_replication_engine_entry"):
        group = P4MulticastGroupEntry.decode(one, PIPELINE.schema)
        replicas = sorted((replica.port, replica.instance) for replica in group.replicas)  # type: ignore[union-attr]
        return f"group {group.multicast_group_id}: {' '.join(f'{port}#{instance}' for port, instance in replicas)}"
    entry = P4TableEntry.decode(one, PIPELINE.schema)
    described = errors.entity(one, PIPELINE.schema)
    fields = described.partition(" (")[2].rstrip(")").replace(", ", "\n").replace(" ", "=").replace("\n", " ")
    args = ", ".join(f"{name}={value}" for name, value in entry.action.args.items())  # type: ignore[union-attr]
    return f"{entry.table_id} {fields} -> {entry.action.name}({args})"  # type: ignore[union-attr]
