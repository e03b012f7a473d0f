"""gNMI at the emulated OCS, by an independent client (pygnmi's), and the driver against switches that lie or are laid
out in another way. What TL1 and gNMI share is in test_ocs_driver.py."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import grpc
import pytest
from finsy.proto import gnmi, gnmi_grpc
from rostrum.controller.core.model import CrossConnectState, Pair, SouthboundError
from rostrum.controller.southbound import tls
from rostrum.controller.southbound.ocs import dialect, ocp, yang
from rostrum.topologies.model import Ocs

from tests.controller.certificates import Authority

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


async def client(switch: Any, script: str, **options: Any) -> Any:
    """What `script` leaves in `out`, run with pygnmi's client as `gc`: in a process of its own, for its protocol code
    and finsy's have the same names."""
    given = {"username": "admin", "password": "rostrum", "insecure": True, "gnmi_timeout": 10, **options}
    program = (
        "import json\nfrom pygnmi.client import gNMIclient\n"
        "def refusal(**request):\n"
        "    try:\n        gc.set(encoding='json_ietf', **request)\n"
        "    except Exception as error:\n        return str(error)\n"
        f"with gNMIclient(target=('127.0.0.1', {switch.ocs.management_port}), **{given!r}) as gc:\n"
        f"{indent(dedent(script), '    ')}\n    print(json.dumps(out), flush=True)\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    said, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return json.loads(said.splitlines()[-1])


async def test_client__finds_models_ports_and_connections(make_switch: Make) -> None:
    switch = await make_switch("gnmi")
    switch.engine.connect([Pair(1, 2)])

    script = """
        models = [one["name"] for one in gc.capabilities()["supported_models"]]
        def get(path):
            return gc.get(path=[path], encoding="json_ietf")["notification"][0]["update"][0]["val"]
        out = [models, get("components"), get("connections/port-connection[name=rostrum-1-2]/state")]
    """
    models, ports, state = await client(switch, script)
    assert "ocp-ocs-optical-switch-connections" in models
    assert len(ports["component"]) == 64
    (first,) = [one for one in ports["component"] if one["name"] == "in-1"]
    assert first["ocp-ocs-optical-switch-port:ocp-ocs-port"]["state"]["group"] == "inputs"
    assert (state["input-port-name"], state["output-port-name"]) == ("in-1", "out-2")
    assert state["status"] in ("PENDING_CONNECTION", "CONNECTED")


async def test_tls__driver_and_client_show_certificates_and_others_stay_out(
    make_switch: Make, make_driver: Make, until: Make, tmp_path: Path
) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    root = ours.folder / "ours-ours.pem"
    certificate, key = ours.sign("ocs")
    secured = grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())], root.read_bytes(), True)
    switch = await make_switch("gnmi", credentials=secured)
    mine = ours.sign("manager")
    trust = tls.way_trust((*mine, root))
    driver, _ = await make_driver(switch.ocs, tls=trust)
    assert [row.state for row in await driver.connect([Pair(1, 2)])] == [STEADY]
    script = 'out = gc.get(path=["connections/port-connection[name=rostrum-1-2]/state"], encoding="json_ietf")'
    files = {"path_root": str(root), "path_cert": str(mine[0]), "path_key": str(mine[1]), "insecure": False}
    found = await client(switch, script, override="localhost", **files)
    assert found["notification"][0]["update"][0]["val"]["status"] == "CONNECTED"
    stranger = tls.way_trust((*theirs.sign("manager"), root))
    for strange in (stranger, None):
        refused, heard = await make_driver(switch.ocs, wait=False, tls=strange)
        await until(lambda one=refused: "cannot connect" in one._cause)
        assert not heard.ups


async def test_client__64_connects_in_one_set_and_news_as_they_change(make_switch: Make) -> None:
    switch = await make_switch("gnmi", ports=64)
    wanted = [connection(n, 65 - n) for n in range(1, 65)]

    script = f"""
        stream = gc.subscribe2(subscribe={{"subscription": [{{"path": "connections", "mode": "on_change"}}],
                                          "mode": "stream", "encoding": "json_ietf"}})
        gc.set(update={wanted!r}, encoding="json_ietf")
        out = []
        for news in stream:
            for update in news.get("update", {{}}).get("update", []):
                if update["path"].endswith("state/status") and update["val"] == "CONNECTED":
                    out.append(update["path"])
            if len(out) == {len(wanted)}:
                break
    """
    async with asyncio.timeout(60):
        connected = await client(switch, script)
    assert len(set(connected)) == 64
    assert sorted(c.pair for c in switch.engine.cross_connects()) == [Pair(n, 65 - n) for n in range(1, 65)]
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

    said = await client(switch, f"out = [refusal(update=update) for update in {list(bad.values())!r}]")
    for text, why in zip(bad, said, strict=True):
        assert text in why
    assert [c.pair for c in switch.engine.cross_connects()] == [Pair(1, 2)]
    assert switch.engine.model.paths(switch.engine.now()) == lit


async def test_client__replace_of_the_table_keeps_what_stays(make_switch: Make, until: Make) -> None:
    switch = await make_switch("gnmi")
    rows = [{"name": "c1", "config": connection(1, 2)[1]}, {"name": "c3", "config": connection(3, 4)[1]}]
    table = [("connections", {"port-connection": rows})]
    await client(switch, f"out = gc.set(replace={table!r}, encoding='json_ietf') and 1")
    await until(lambda: all(c.state is STEADY for c in switch.engine.cross_connects()))
    rows[1] = {"name": "c5", "config": connection(5, 6)[1]}
    await client(switch, f"out = gc.set(replace={table!r}, encoding='json_ietf') and 1")
    states = {c.pair: c.state for c in switch.engine.cross_connects()}
    assert set(states) == {Pair(1, 2), Pair(5, 6)}
    assert states[Pair(1, 2)] is STEADY  # its light was not touched
    gone = [f"connections/port-connection[name={name}]" for name in ("c1", "none")]
    await client(switch, f"out = gc.set(delete={gone!r}) and 1")
    assert [c.pair for c in switch.engine.cross_connects()] == [Pair(5, 6)]


STAND_INS = {  # as little of each module as a switch's answer needs
    "ocp-ocs-optical-switch": "anydata optical-switch;",
    "ocp-ocs-optical-switch-port": """import openconfig-platform { prefix p; }
        augment "/p:components/p:component" { anydata ocp-ocs-port; }""",
    "openconfig-platform": """container components { list component { key name; leaf name { type string; }
        anydata config; anydata state; } }""",
    "ocp-ocs-optical-switch-connections": """container connections { list port-connection { key name;
        leaf name { type string; } anydata config; container state { config false;
            leaf name { type string; } leaf input-port-name { type string; } leaf output-port-name { type string; }
            leaf status { type enumeration { enum CONNECTED; enum PENDING_CONNECTION; } }
            leaf last-updated { type string; } } } }""",
}


def stand_ins(directory: Path) -> Path:
    for name, body in STAND_INS.items():
        text = f'module {name} {{ yang-version 1.1; namespace "urn:{name}"; prefix own; {body} }}'
        (directory / f"{name}.yang").write_text(text)
    return directory


async def test_yang__answers_are_checked_against_modules(make_switch: Make, tmp_path: Path) -> None:
    switch = await make_switch("gnmi")
    with pytest.raises(yang.YangError, match=r"has no module ocp-ocs-optical-switch, .*connections, .*port"):
        yang.check(switch.server.tree(), tmp_path)
    modules = stand_ins(tmp_path)
    switch.engine.connect([Pair(1, 2)])

    assert yang.check(switch.server.tree(), modules) == ""
    wrong = switch.server.tree()
    wrong[f"{ocp.CONNECTIONS}:connections"]["port-connection"][0]["state"]["status"] = "PERHAPS"
    assert "state/status" in yang.check(wrong, modules)
    (modules / "openconfig-platform.yang").write_text("module openconfig-platform { nonsense")
    with pytest.raises(yang.YangError, match="do not fit together"):
        yang.check(wrong, modules)


async def test_yang__the_emulated_switch_answers_as_the_modules_have_it(
    make_switch: Make, until: Make, request: pytest.FixtureRequest
) -> None:
    modules = request.config.getoption("--yang")
    if modules is None:
        pytest.skip("the Open Compute Project's YANG modules are not part of this project: pytest --yang DIR")
    switch = await make_switch("gnmi")
    switch.engine.connect([Pair(1, 2), Pair(3, 4)])
    assert yang.check(switch.server.tree(), Path(modules)) == ""
    await until(lambda: all(one.state is STEADY for one in switch.engine.cross_connects()))
    assert yang.check(switch.server.tree(), Path(modules)) == ""
    switch.engine.disconnect([Pair(1, 2)])
    assert yang.check(switch.server.tree(), Path(modules)) == ""


async def test_client__without_the_password_nothing_is_told_or_done(make_switch: Make) -> None:
    switch = await make_switch("gnmi")
    with pytest.raises(AssertionError, match="user or password is wrong"):
        await client(switch, "out = 1", password="no")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{switch.ocs.management_port}") as channel:
        stub = gnmi_grpc.gNMIStub(channel)
        stream = stub.Subscribe(iter([gnmi.SubscribeRequest()]))
        for call in (stub.Get(gnmi.GetRequest()), stub.Set(gnmi.SetRequest()), stream.read()):
            with pytest.raises(grpc.aio.AioRpcError, match="UNAUTHENTICATED"):
                await call
    assert switch.engine.cross_connects() == []


async def test_garbage__is_refused_and_the_switch_goes_on(make_switch: Make, make_driver: Make) -> None:
    switch = await make_switch("gnmi")
    drives, _ = await make_driver(switch.ocs)
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    text = ["connections", "port-connection", "config", "name", "components", "*", "", "x" * 300, "in-1", "state"]
    metadata = (("username", "admin"), ("password", "rostrum"))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{switch.ocs.management_port}") as channel:
        stub = gnmi_grpc.gNMIStub(channel)
        for _ in range(300):
            path = gnmi.Path()
            for _ in range(dice.randrange(16)):
                elem = path.elem.add(name=dice.choice(text))
                for _ in range(dice.choice((0, 0, 0, 1, 1, 2))):
                    elem.key[dice.choice(text)] = dice.choice(text)
            value = gnmi.TypedValue(json_ietf_val=dice.choice((*NONSENSE, dice.randbytes(40))))
            change = gnmi.SetRequest(update=[gnmi.Update(path=path, val=value)])
            for verb, request in (
                ("Set", change),
                ("Get", gnmi.GetRequest(path=[path], encoding=dice.randrange(5))),
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
    first, _ = await make_driver(switch.ocs, may_order=lambda: leads, term=1)
    second, _ = await make_driver(switch.ocs, term=2)
    await first.connect([Pair(1, 2)])
    await second.connect([Pair(3, 4)])
    with pytest.raises(SouthboundError, match="election id 1: 2 is the master's"):
        await first.connect([Pair(5, 6)])
    leads = False
    with pytest.raises(SouthboundError, match="Set not sent: this manager may lead no more"):
        await first.disconnect([Pair(1, 2)])
    assert sorted(c.pair for c in await first.read()) == [Pair(1, 2), Pair(3, 4)]


class Scripted(gnmi_grpc.gNMIServicer):
    """A switch of four ports, named otherwise, that says what it is told to."""

    def __init__(self, rows: list[dict[str, str]], models: tuple[str, ...] = (ocp.CONNECTIONS,)) -> None:
        self.rows, self.models, self.sets = rows, models, []
        self.components = [
            {"name": f"port {letter}", "openconfig:ocp-ocs-port": {"state": {"index": n, "group": "all"}}}
            for n, letter in enumerate("abcdefgh", 1)
        ]

    def tree(self, fields: tuple[str, ...]) -> Any:
        if fields[:1] == ("connections",):
            return {"port-connection": [{"name": one.get("name", ""), "state": one} for one in self.rows]}
        if fields == ("components",):
            return {"component": self.components}
        return {"port-groups": [{"name": "all", "direction": "ANY"}]} if fields[:1] == ("optical-switch",) else {}

    async def Capabilities(self, request: Any, context: Any) -> Any:
        answer = gnmi.CapabilityResponse()
        for name in self.models:
            answer.supported_models.add(name=name)
        return answer

    async def Get(self, request: Any, context: Any) -> Any:
        answer = gnmi.GetResponse()
        for path in request.path:
            value = ocp.json_value(self.tree(ocp.elements_of(path)))
            answer.notification.add(update=[gnmi.Update(path=path, val=value)])
        return answer

    async def Set(self, request: Any, context: Any) -> Any:
        self.sets.append(request)
        return gnmi.SetResponse()

    async def Subscribe(self, requests: Any, context: Any) -> Any:
        answer = gnmi.SubscribeResponse()
        answer.update.update.add(path=ocp.path("connections"), val=ocp.json_value(self.tree(("connections",))))
        yield answer
        yield gnmi.SubscribeResponse(sync_response=True)
        await asyncio.sleep(3600)


@pytest.fixture
async def scripted(make_switch: Make, make_driver: Make) -> Any:
    servers = []

    async def serve(servicer: Scripted, wait: bool = True) -> Any:
        server = grpc.aio.server()
        gnmi_grpc.add_gNMIServicer_to_server(servicer, server)
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


async def test_another_device__is_told_apart_with_a_reason(scripted: Any, until: Make) -> None:
    drives, heard = await scripted(Scripted([], models=("openconfig-interfaces",)), wait=False)
    await until(lambda: "speaks gNMI without the model ocp-ocs-optical-switch-connections" in str(drives._cause))
    assert not heard.ups
