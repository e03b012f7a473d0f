"""gNMI at the emulated OCS, by an independent client (pygnmi's), and the driver against switches that lie or are laid
out in another way. What TL1 and gNMI share is in test_ocs_driver.py."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any

import grpc
import pytest
from pygnmi.client import gNMIclient
from pygnmi.spec.v080 import gnmi_pb2, gnmi_pb2_grpc
from rostrum.controller.core.model import CrossConnectState, Pair, SouthboundError
from rostrum.controller.southbound.ocs import dialect, ocp
from rostrum.topologies.model import Ocs

Make = Callable[..., Awaitable[Any]]
NONSENSE = (b"", b"[" * 5000, b"{}", b'{"name":3}', b"[1]", b'"x"', b"nul", b'{"config":{"input-port-name":"in-0"}}')
REFUSED = tuple(getattr(grpc.StatusCode, name) for name in
                ("INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "UNIMPLEMENTED"))  # fmt: skip
STEADY, FAULT, INVALID = CrossConnectState.STEADY, CrossConnectState.FAULT, CrossConnectState.INVALID


def config(name: str, source: str, target: str, key: str = "") -> tuple[str, dict[str, str]]:
    where = f"connections/port-connection[name={key or name}]/config"
    return where, {"name": name, "input-port-name": source, "output-port-name": target}


def connection(source: int, target: int) -> tuple[str, dict[str, str]]:
    return config(f"c{source}", f"in-{source}", f"out-{target}")


async def client(switch: Any, work: Callable[[Any], Any], **options: Any) -> Any:
    """`work(gc)` with pygnmi's client, which blocks, in a thread."""
    given = {"username": "admin", "password": "rostrum", "insecure": True, "gnmi_timeout": 10, **options}

    def run() -> Any:
        with gNMIclient(target=("127.0.0.1", switch.ocs.management_port), **given) as gc:
            return work(gc)

    return await asyncio.to_thread(run)


def refusal(gc: Any, **request: Any) -> str:
    with pytest.raises(Exception) as caught:
        gc.set(**request)
    return str(caught.value)


async def test_client__finds_models_ports_and_connections(make_switch: Make) -> None:
    switch = await make_switch("gnmi")
    switch.engine.connect([Pair(1, 2)])

    def look(gc: Any) -> Any:
        models = [one["name"] for one in gc.capabilities()["supported_models"]]
        ports = gc.get(path=["components"], encoding="json_ietf")
        state = gc.get(path=["connections/port-connection[name=rostrum-1-2]/state"], encoding="json_ietf")
        return models, ports["notification"][0]["update"][0]["val"], state["notification"][0]["update"][0]["val"]

    models, ports, state = await client(switch, look)
    assert "ocp-ocs-optical-switch-connections" in models
    assert len(ports["component"]) == 64
    (first,) = [one for one in ports["component"] if one["name"] == "in-1"]
    assert first["ocp-ocs-optical-switch-port:ocp-ocs-port"]["state"]["group"] == "inputs"
    assert (state["input-port-name"], state["output-port-name"]) == ("in-1", "out-2")
    assert state["status"] in ("PENDING_CONNECTION", "CONNECTED")


async def test_client__sixteen_connects_in_one_set_and_news_as_they_change(make_switch: Make) -> None:
    switch = await make_switch("gnmi")
    wanted = [connection(n, 33 - n) for n in range(1, 17)]

    def work(gc: Any) -> set[str]:
        subscription = {
            "subscription": [{"path": "connections", "mode": "on_change"}],
            "mode": "stream",
            "encoding": "json_ietf",
        }
        stream = gc.subscribe2(subscribe=subscription)
        gc.set(update=wanted, encoding="json_ietf")
        connected: set[str] = set()
        for news in stream:
            for update in news.get("update", {}).get("update", []):
                if update["path"].endswith("state/status") and update["val"] == "CONNECTED":
                    connected.add(update["path"])
            if len(connected) == len(wanted):
                break
        stream.close()
        return connected

    async with asyncio.timeout(30):
        connected = await client(switch, work)
    assert len(connected) == 16
    assert sorted(c.pair for c in switch.engine.cross_connects()) == [Pair(n, 33 - n) for n in range(1, 17)]
    assert len([row for row in switch.server.commands if row.command.startswith("Set")]) == 1


async def test_client__a_set_is_refused_whole_and_disturbs_nobody(make_switch: Make, until: Make) -> None:
    switch = await make_switch("gnmi")
    switch.engine.connect([Pair(1, 2)])
    await until(lambda: switch.engine.find(Pair(1, 2)).state is STEADY)
    lit = switch.engine.model.paths(switch.engine.now())
    bad = {
        "input 1 is in use: it goes to output 2": [connection(3, 4), config("x", "in-1", "out-9")],
        "output 2 is in use: input 1 goes to it": [connection(3, 2)],
        "'out-33' is no output: out-1 to out-32 are": [connection(3, 4), connection(5, 33)],
        "'in-07' is no input": [config("x", "in-07", "out-9")],
        "'y' under the key 'x'": [config("y", "in-7", "out-9", key="x")],
        "is not to be set": [("components/component[name=in-1]/ocp-ocs-port/state", {"status": "TUNED"})],
    }

    def work(gc: Any) -> list[tuple[str, str]]:
        return [(words, refusal(gc, update=update, encoding="json_ietf")) for words, update in bad.items()]

    for words, said in await client(switch, work):
        assert words in said
    assert [c.pair for c in switch.engine.cross_connects()] == [Pair(1, 2)]
    assert switch.engine.model.paths(switch.engine.now()) == lit


async def test_client__replace_of_the_table_keeps_what_stays(make_switch: Make, until: Make) -> None:
    switch = await make_switch("gnmi")
    rows = [{"name": "c1", "config": connection(1, 2)[1]}, {"name": "c3", "config": connection(3, 4)[1]}]
    table = [("connections", {"port-connection": rows})]
    await client(switch, lambda gc: gc.set(replace=table, encoding="json_ietf"))
    await until(lambda: all(c.state is STEADY for c in switch.engine.cross_connects()))
    rows[1] = {"name": "c5", "config": connection(5, 6)[1]}
    await client(switch, lambda gc: gc.set(replace=table, encoding="json_ietf"))
    states = {c.pair: c.state for c in switch.engine.cross_connects()}
    assert set(states) == {Pair(1, 2), Pair(5, 6)}
    assert states[Pair(1, 2)] is STEADY  # its light was not touched
    await client(
        switch,
        lambda gc: gc.set(delete=["connections/port-connection[name=c1]", "connections/port-connection[name=none]"]),
    )
    assert [c.pair for c in switch.engine.cross_connects()] == [Pair(5, 6)]


async def test_client__without_the_password_nothing_is_told_or_done(make_switch: Make) -> None:
    switch = await make_switch("gnmi")
    with pytest.raises(Exception, match="user or password is wrong"):
        await client(switch, lambda gc: gc.set(update=[connection(1, 2)], encoding="json_ietf"), password="no")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{switch.ocs.management_port}") as channel:
        stub = gnmi_pb2_grpc.gNMIStub(channel)
        stream = stub.Subscribe(iter([gnmi_pb2.SubscribeRequest()]))
        for call in (stub.Get(gnmi_pb2.GetRequest()), stub.Set(gnmi_pb2.SetRequest()), stream.read()):
            with pytest.raises(grpc.aio.AioRpcError, match="UNAUTHENTICATED"):
                await call
    assert switch.engine.cross_connects() == []


async def test_garbage__is_refused_and_the_switch_goes_on(make_switch: Make, make_driver: Make) -> None:
    switch = await make_switch("gnmi")
    drives, _ = await make_driver(switch.ocs)
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    words = ["connections", "port-connection", "config", "name", "components", "*", "", "x" * 300, "in-1", "state"]
    metadata = (("username", "admin"), ("password", "rostrum"))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{switch.ocs.management_port}") as channel:
        stub = gnmi_pb2_grpc.gNMIStub(channel)
        for _ in range(300):
            path = gnmi_pb2.Path()
            for _ in range(dice.randrange(16)):
                elem = path.elem.add(name=dice.choice(words))
                for _ in range(dice.choice((0, 0, 0, 1, 1, 2))):
                    elem.key[dice.choice(words)] = dice.choice(words)
            value = gnmi_pb2.TypedValue(json_ietf_val=dice.choice((*NONSENSE, dice.randbytes(40))))
            change = gnmi_pb2.SetRequest(update=[gnmi_pb2.Update(path=path, val=value)])
            for verb, request in (
                ("Set", change),
                ("Get", gnmi_pb2.GetRequest(path=[path], encoding=dice.randrange(5))),
            ):
                try:
                    await getattr(stub, verb)(request, metadata=metadata, timeout=10)
                except grpc.aio.AioRpcError as error:
                    assert error.code() in REFUSED, error
    _, writer = await asyncio.open_connection("127.0.0.1", switch.ocs.management_port)
    writer.write(dice.randbytes(5000))
    await writer.drain()
    writer.close()
    assert drives.up
    assert await drives.read() == []
    (made,) = await drives.connect([Pair(1, 2)])
    assert made.state is STEADY


async def test_a_manager_that_leads_no_more__is_refused_by_itself_and_by_the_switch(
    make_switch: Make, make_driver: Make
) -> None:
    switch = await make_switch("gnmi")
    leads = True
    first, _ = await make_driver(switch.ocs, may_order=lambda: leads, election_id=1)
    second, _ = await make_driver(switch.ocs, election_id=2)
    await first.connect([Pair(1, 2)])
    await second.connect([Pair(3, 4)])
    with pytest.raises(SouthboundError, match="election id 1: 2 is the master's"):
        await first.connect([Pair(5, 6)])
    leads = False
    with pytest.raises(SouthboundError, match="Set not sent: this manager may lead no more"):
        await first.disconnect([Pair(1, 2)])
    assert sorted(c.pair for c in await first.read()) == [Pair(1, 2), Pair(3, 4)]


class Scripted(gnmi_pb2_grpc.gNMIServicer):
    """A switch of four ports, named otherwise, that says what it is told to."""

    def __init__(self, rows: list[dict[str, str]], models: tuple[str, ...] = (ocp.CONNECTIONS,)) -> None:
        self.rows, self.models, self.sets = rows, models, []
        self.components = [
            {"name": f"port {letter}", "openconfig:ocp-ocs-port": {"state": {"index": n, "group": "all"}}}
            for n, letter in enumerate("abcdefgh", 1)
        ]

    def tree(self, words: tuple[str, ...]) -> Any:
        if words[:1] == ("connections",):
            return {"port-connection": [{"name": one.get("name", ""), "state": one} for one in self.rows]}
        if words == ("components",):
            return {"component": self.components}
        return {"port-groups": [{"name": "all", "direction": "ANY"}]} if words[:1] == ("optical-switch",) else {}

    async def Capabilities(self, request: Any, context: Any) -> Any:
        answer = gnmi_pb2.CapabilityResponse()
        for name in self.models:
            answer.supported_models.add(name=name)
        return answer

    async def Get(self, request: Any, context: Any) -> Any:
        answer = gnmi_pb2.GetResponse()
        for path in request.path:
            value = ocp.json_value(self.tree(ocp.words_of(path)))
            answer.notification.add(update=[gnmi_pb2.Update(path=path, val=value)])
        return answer

    async def Set(self, request: Any, context: Any) -> Any:
        self.sets.append(request)
        return gnmi_pb2.SetResponse()

    async def Subscribe(self, requests: Any, context: Any) -> Any:
        answer = gnmi_pb2.SubscribeResponse()
        answer.update.update.add(path=ocp.path("connections"), val=ocp.json_value(self.tree(("connections",))))
        yield answer
        yield gnmi_pb2.SubscribeResponse(sync_response=True)
        await asyncio.sleep(3600)


@pytest.fixture
async def scripted(make_switch: Make, make_driver: Make) -> Any:
    servers = []

    async def serve(servicer: Scripted, wait: bool = True) -> Any:
        server = grpc.aio.server()
        gnmi_pb2_grpc.add_gNMIServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        servers.append(server)
        ocs: Ocs = (await make_switch("gnmi")).ocs
        here = replace(ocs, ports=4, address=IPv4Address("127.0.0.1"), management_port=port)
        return await make_driver(here, wait=wait)

    yield serve
    for server in servers:
        await server.stop(None)


def row(name: str, source: str, target: str, status: str = "CONNECTED") -> dict[str, str]:
    return {"name": name, "input-port-name": source, "output-port-name": target, "status": status}


async def test_layout__one_kind_of_ports_for_both_sides(scripted: Any) -> None:
    """Outputs follow the inputs, as on switches of 2 x N ports; names are the switch's own."""
    switch = Scripted([row("x", "port a", "port f")])
    drives, _ = await scripted(switch)
    assert [(c.pair, c.state) for c in await drives.read()] == [(Pair(1, 2), STEADY)]
    await drives.connect([Pair(1, 2)])
    assert not switch.sets  # it is there
    await drives.disconnect([Pair(3, 4)])
    assert not switch.sets  # it is not


async def test_liar__success_without_a_row_is_no_circuit(scripted: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(dialect, "SETTLE_MORE_S", 0.05)
    switch = Scripted([row("x", "port b", "port f")])
    drives, _ = await scripted(switch)
    (result,) = await drives.connect([Pair(1, 1)])
    assert (result.state, result.cause) == (INVALID, "the switch does not list it")
    assert len(switch.sets) == 1


async def test_liar__rows_of_ports_that_are_not_there_are_left_out_and_told(scripted: Any, caplog: Any) -> None:
    switch = Scripted([row("x", "port z", "port f"), row("y", "port b", "port e", "GLOWING")])
    drives, _ = await scripted(switch)
    assert [(c.pair, c.state) for c in await drives.read()] == [(Pair(2, 1), CrossConnectState.TRANSITION)]
    assert [line for line in caplog.messages if "lists port z->port f (x)" in line]


async def test_liar__more_connections_than_ports_end_the_session(scripted: Any, until: Make) -> None:
    drives, heard = await scripted(Scripted([row(f"x{n}", "port a", "port f") for n in range(100)]), wait=False)
    await until(lambda: "more than 16 connections" in str(drives._cause))
    assert not heard.ups


async def test_another_device__is_told_apart_in_words(scripted: Any, until: Make) -> None:
    drives, heard = await scripted(Scripted([], models=("openconfig-interfaces",)), wait=False)
    await until(lambda: "speaks gNMI without the model ocp-ocs-optical-switch-connections" in str(drives._cause))
    assert not heard.ups
