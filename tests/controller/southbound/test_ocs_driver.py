"""The OCS driver against the emulator: both dialects, both modes, and everything that may go wrong on the way."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
import uvloop
from rostrum.controller.core.model import CrossConnect, CrossConnectState, Pair, SouthboundError
from rostrum.controller.southbound.ocs import connection, device, dialect, driver, tl1
from rostrum.controller.southbound.ocs.connection import UNSENT_MS
from rostrum.controller.southbound.ocs.device import Device
from rostrum.lab.ocs import server as emulator
from rostrum.lab.ocs.engine import Engine
from rostrum.lab.ocs.glimmerglass import GlimmerglassServer
from rostrum.lab.ocs.light import NoLight
from rostrum.lab.ocs.model import Model
from rostrum.topologies.loader import load
from rostrum.topologies.model import Ocs, Reconfiguration

STEADY, FAULT, INVALID = CrossConnectState.STEADY, CrossConnectState.FAULT, CrossConnectState.INVALID
CIRCUIT = [Pair(1, 5), Pair(5, 2), Pair(6, 3), Pair(7, 4)]  # tor1 -> splitter s1 -> tor2, tor3, tor4
WAYS: list[tuple[str, dict[str, str]]] = [
    ("glimmerglass", {"mode": "SYNC"}),
    ("glimmerglass", {"mode": "ASYNC"}),
    ("polatis", {}),
    ("gnmi", {}),
]

Make = Callable[..., Awaitable[Any]]


@pytest.fixture(params=WAYS, ids=lambda way: "-".join([way[0], *way[1].values()]))
def way(request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    return request.param


@pytest.fixture
async def world(way: tuple[str, dict[str, str]], make_switch: Make, make_driver: Make) -> Any:
    switch = await make_switch(way[0])
    drives, heard = await make_driver(switch.ocs, **way[1])
    return switch, drives, heard


def trouble(drives: Device) -> str:
    """What a call would fail with now; empty if the switch is connected."""
    try:
        drives.check_up()
    except SouthboundError as error:
        return str(error)
    return ""


def states(results: list[CrossConnect]) -> list[tuple[Pair, CrossConnectState]]:
    return [(r.pair, r.state) for r in results]


async def test_connect__returns_when_all_are_steady_with_powers(world: Any) -> None:
    switch, drives, _ = world
    results = await drives.connect(CIRCUIT)
    assert states(results) == [(pair, STEADY) for pair in CIRCUIT]
    assert [round(r.output_dbm or 0) for r in results] == [-1, -9, -9, -9]
    assert all(c.state is STEADY for c in switch.engine.cross_connects())


async def test_connect__does_not_take_ringing_for_steady(
    way: tuple[str, dict[str, str]], make_switch: Make, make_driver: Make
) -> None:
    switch = await make_switch(way[0], reconfiguration_s=0.1, ringing_s=0.06)
    drives, _ = await make_driver(switch.ocs, **way[1])
    results = await drives.connect(CIRCUIT)
    assert states(results) == [(pair, STEADY) for pair in CIRCUIT]
    assert all(c.state is STEADY for c in switch.engine.cross_connects())


async def test_connect__ends_with_the_news_not_with_a_timeout(
    way: tuple[str, dict[str, str]], make_switch: Make, make_driver: Make, monkeypatch: Any
) -> None:
    monkeypatch.setattr(dialect, "SETTLE_MORE_S", 1000.0)
    switch = await make_switch(way[0])
    drives, _ = await make_driver(switch.ocs, **way[1])
    async with asyncio.timeout(30):
        results = await drives.connect(CIRCUIT)
    assert states(results) == [(pair, STEADY) for pair in CIRCUIT]


async def test_connect__what_exists_already_is_steady_and_keeps_its_light(world: Any) -> None:
    switch, drives, _ = world
    await drives.connect(CIRCUIT)
    before = switch.engine.model.paths(switch.engine.now())
    assert states(await drives.connect(CIRCUIT)) == [(pair, STEADY) for pair in CIRCUIT]
    assert switch.engine.model.paths(switch.engine.now()) == before


class Strict:
    """The switch denies what exists already, as real ones do. `ordered`: what it was asked to make."""

    def __init__(self, switch: Any, monkeypatch: Any) -> None:
        self.ordered: list[Pair] = []
        model = switch.engine.model
        make = model._connect

        def strictly(now: int, pair: Pair) -> CrossConnect:
            self.ordered.append(pair)
            if pair in {one.pair for one in model.cross_connects(now)}:
                return CrossConnect(pair, INVALID, cause=f"{pair.input} and {pair.output} are connected already")
            return make(now, pair)

        monkeypatch.setattr(model, "_connect", strictly)


async def test_connect__only_the_difference_to_what_is_there_is_ordered(world: Any, monkeypatch: Any) -> None:
    switch, drives, _ = world
    await drives.connect(CIRCUIT[:2])
    strict = Strict(switch, monkeypatch)
    assert states(await drives.connect(CIRCUIT)) == [(pair, STEADY) for pair in CIRCUIT]
    assert sorted(strict.ordered) == CIRCUIT[2:]
    assert states(await drives.connect(CIRCUIT)) == [(pair, STEADY) for pair in CIRCUIT]
    assert sorted(strict.ordered) == CIRCUIT[2:]


@pytest.mark.parametrize("way", WAYS[:3], indirect=True, ids=lambda way: way[0])  # a Set by gNMI repeats nothing
async def test_connect__a_denial_of_what_is_there_is_no_loss(world: Any, monkeypatch: Any) -> None:
    """Made by an order whose answer was lost, between the look and the next order."""
    switch, drives, _ = world
    await drives.connect(CIRCUIT[:2])
    strict = Strict(switch, monkeypatch)
    ask, looks = connection.Tl1Connection.ask, []

    async def blind(self: Any, command: Any, *more: Any) -> Any:
        answer = await ask(self, command, *more)
        if command.verb in ("RTRV-CRS-FIBER", "RTRV-PATCH"):
            looks.append(command)
            return replace(answer, rows=()) if len(looks) == 1 else answer
        return answer

    monkeypatch.setattr(connection.Tl1Connection, "ask", blind)
    assert states(await drives.connect(CIRCUIT)) == [(pair, STEADY) for pair in CIRCUIT]
    assert set(strict.ordered) == set(CIRCUIT) and len(looks) > 1


async def test_connect__what_is_on_its_way_already_is_waited_for(
    way: tuple[str, dict[str, str]], make_switch: Make, make_driver: Make, monkeypatch: Any
) -> None:
    switch = await make_switch(way[0], reconfiguration_s=0.1)
    drives, _ = await make_driver(switch.ocs, **way[1])
    switch.engine.connect(CIRCUIT)
    strict = Strict(switch, monkeypatch)
    assert states(await drives.connect(CIRCUIT)) == [(pair, STEADY) for pair in CIRCUIT]
    assert not strict.ordered


async def test_connect__one_that_is_there_in_fault_is_made_again(make_switch: Make, make_driver: Make) -> None:
    switch = await make_switch("glimmerglass")
    drives, _ = await make_driver(switch.ocs)
    fault = switch.fault(kind="stuck", input=1)
    assert states(await drives.connect(CIRCUIT[:1])) == [(CIRCUIT[0], FAULT)]
    switch.engine.clear_fault(fault)
    assert states(await drives.connect(CIRCUIT)) == [(pair, STEADY) for pair in CIRCUIT]


async def test_connect__a_stuck_cross_connect_fails_alone(world: Any) -> None:
    switch, drives, _ = world
    switch.fault(kind="stuck", input=6)
    results = {r.pair: r for r in await drives.connect(CIRCUIT)}
    assert {p for p, r in results.items() if r.state is STEADY} == {Pair(1, 5), Pair(5, 2), Pair(7, 4)}
    assert results[Pair(6, 3)].state is FAULT
    assert results[Pair(6, 3)].cause


async def test_connect__a_port_in_use_is_refused_and_says_by_whom(world: Any) -> None:
    _, drives, _ = world
    await drives.connect([Pair(1, 2)])
    results = await drives.connect([Pair(1, 3), Pair(3, 4)])
    assert states(results) == [(Pair(1, 3), INVALID), (Pair(3, 4), STEADY)]
    assert "input 1 is in use" in results[0].cause
    (alone,) = await drives.connect([Pair(1, 3)])
    assert alone.state is INVALID
    assert "it goes to output 2" in alone.cause


async def test_connect__impossible_pairs_are_refused_here(world: Any) -> None:
    _, drives, _ = world
    for pairs, text in (
        ([Pair(0, 1)], "ports are 1 to 32"),
        ([Pair(1, 33)], "ports are"),
        ([Pair(1, 2)] * 2, "twice"),
    ):
        with pytest.raises(SouthboundError, match=text):
            await drives.connect(pairs)
    assert await drives.connect([]) == []


async def test_read__tells_what_is_on_the_switch_and_disconnect_takes_it_off(world: Any) -> None:
    _, drives, _ = world
    await drives.connect(CIRCUIT)
    assert sorted(states(await drives.read())) == sorted((p, STEADY) for p in CIRCUIT)
    await drives.disconnect(CIRCUIT[1:])
    assert [c.pair for c in await drives.read()] == [Pair(1, 5)]
    await drives.disconnect(CIRCUIT)  # some are gone: no error
    assert await drives.read() == []


async def test_disconnect__spares_a_cross_connect_that_replaced_ours(world: Any) -> None:
    switch, drives, _ = world
    await drives.connect([Pair(1, 2)])
    switch.engine.disconnect([Pair(1, 2)])
    switch.engine.connect([Pair(1, 3)])
    await drives.disconnect([Pair(1, 2)])
    assert [c.pair for c in switch.engine.cross_connects()] == [Pair(1, 3)]


async def test_connect__many_at_once_do_not_disturb_each_other(world: Any) -> None:
    _, drives, _ = world
    pairs = [Pair(1, 2), Pair(2, 3), Pair(3, 4), Pair(4, 1)]
    results = await asyncio.gather(*(drives.connect([pair]) for pair in pairs))
    assert [states(r) for r in results] == [[(pair, STEADY)] for pair in pairs]


async def test_connection_cut_meanwhile__an_error_now_and_service_again_soon(
    way: tuple[str, dict[str, str]], make_switch: Make, make_driver: Make, until: Make
) -> None:
    switch = await make_switch(way[0], reconfiguration_s=60.0)
    drives, heard = await make_driver(switch.ocs, **way[1])
    work = asyncio.create_task(drives.connect([Pair(1, 2)]))
    await until(lambda: switch.engine.cross_connects())
    switch.server.drop_sessions()
    with pytest.raises(SouthboundError, match=r"connection|connected"):
        await work
    await heard.until(lambda h: h.ups == 2)
    assert len(heard.downs) == 1
    switch.engine.model.set_timing(Reconfiguration("fixed", 0.02, 0.0), None, None)
    assert states(await drives.connect([Pair(3, 4)])) == [(Pair(3, 4), STEADY)]


async def test_fault_later__is_reported(world: Any) -> None:
    switch, drives, heard = world
    await drives.connect([Pair(1, 2)])
    switch.fault(kind="dead-port", port=2, side="output")
    await heard.until(lambda h: h.changes)
    assert heard.changes[0].pair == Pair(1, 2)
    assert heard.changes[0].state is FAULT
    assert "output 2 is dead" in heard.changes[0].cause
    (left,) = await drives.read()
    assert left.state is FAULT


async def test_polatis__a_patch_without_light_is_a_fault_that_says_so(
    make_switch: Make, make_driver: Make, monkeypatch: Any
) -> None:
    monkeypatch.setattr(dialect, "SETTLE_MORE_S", 0.05)
    switch = await make_switch("polatis")
    drives, _ = await make_driver(switch.ocs)
    (result,) = await drives.connect([Pair(20, 2)])
    assert result.state is FAULT
    assert "no light enters input 20" in result.cause


async def test_wrong_password__says_so_and_stays_down(make_switch: Make, make_driver: Make, until: Make) -> None:
    switch = await make_switch()
    drives, heard = await make_driver(replace(switch.ocs, password="wrong"), wait=False)
    await until(lambda: "not connected: connecting" not in trouble(drives))
    assert "refused the login of user admin: PIUC user or password is wrong" in trouble(drives)
    assert not heard.ups


async def test_session_limit__the_seventeenth_waits_until_one_logs_out(
    make_switch: Make, make_driver: Make, until: Make
) -> None:
    switch = await make_switch()
    first = [await make_driver(switch.ocs) for _ in range(emulator.MAX_SESSIONS)]
    extra, heard = await make_driver(switch.ocs, wait=False)
    await until(lambda: "all 16 sessions are in use" in trouble(extra))
    await first[0][0].close()
    await heard.until(lambda h: h.ups)
    assert await extra.read() == []


async def test_nobody_there__calls_fail_with_the_address_and_succeed_once_it_is_there(
    make_switch: Make, make_driver: Make, until: Make
) -> None:
    gone = await make_switch()
    await gone.server.close()
    drives, heard = await make_driver(gone.ocs, wait=False)
    await until(lambda: "cannot connect" in trouble(drives))
    with pytest.raises(SouthboundError, match=f"127.0.0.1:{gone.ocs.management_port} is not connected"):
        await drives.connect([Pair(1, 2)])
    await make_switch(port=gone.ocs.management_port)
    await heard.until(lambda h: h.ups)
    assert states(await drives.connect([Pair(1, 2)])) == [(Pair(1, 2), STEADY)]


@pytest.mark.parametrize("dialect", ["glimmerglass", "polatis"])
async def test_a_manager_that_leads_no_more__sends_no_command_that_changes_anything(
    make_switch: Make, make_driver: Make, dialect: str
) -> None:
    """Asked as late as can be: when a command leaves, not when a driver begins to think about it."""
    switch = await make_switch(dialect)
    leads = True
    drives, _ = await make_driver(switch.ocs, may_order=lambda: leads)
    assert states(await drives.connect([Pair(1, 2)])) == [(Pair(1, 2), STEADY)]
    assert drives._link and drives._link._transport
    socket_of = drives._link._transport.get_extra_info("socket")
    assert socket_of.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == UNSENT_MS  # nor later, by the kernel
    leads = False
    with pytest.raises(SouthboundError, match=r"DLT-\S+ not sent: this manager may lead no more"):
        await drives.disconnect([Pair(1, 2)])
    with pytest.raises(SouthboundError, match=r"ENT-\S+ not sent: this manager may lead no more"):
        await drives.connect([Pair(3, 4)])
    assert [one.pair for one in await drives.read()] == [Pair(1, 2)]


def test_on_uvloop__as_the_manager_runs_it() -> None:
    ocs = load(Path(__file__).parents[3] / "topologies" / "hybrid-4x2.yaml").ocs["ocs"]

    async def scenario() -> list[CrossConnect]:
        engine = Engine(Model(ocs, Reconfiguration("fixed", 0.01, 0.0), 0.0, 0.0, seed=1), NoLight())
        server = emulator.Server(engine, GlimmerglassServer())
        await server.start("127.0.0.1", 0)
        up = asyncio.Event()
        here = replace(ocs, address=IPv4Address("127.0.0.1"), management_port=server.port)
        drives = driver.OcsDriver(here, up.set, lambda cause: None)
        await drives.start()
        async with asyncio.timeout(10):
            await up.wait()
            results = await drives.connect(CIRCUIT)
        await drives.close()
        await server.close()
        engine.close()
        return results

    assert states(uvloop.run(scenario())) == [(pair, STEADY) for pair in CIRCUIT]


async def scripted(make_driver: Make, ocs: Ocs, serve: Any, **options: Any) -> Any:
    """A driver whose switch answers by `serve(reader, writer)`."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    made = await make_driver(
        replace(ocs, address=IPv4Address("127.0.0.1"), management_port=port), wait=False, **options
    )
    return server, *made


async def login(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    line = (await reader.readuntil(b";")).decode()
    writer.write(f"\r\n   x 26-01-01 00:00:00\r\nM  {line.split(':')[3]} COMPLD\r\n;\r\n<".encode())


@pytest.fixture
def plain(make_switch: Make) -> Any:
    async def ocs() -> Ocs:
        return (await make_switch()).ocs

    return ocs


async def test_garbage_from_the_switch__ends_that_connection_only(plain: Any, make_driver: Make) -> None:
    garbage = [
        b"\x00\xff\xfe" * 1000,
        b'"' * 5000,
        b"X" * (tl1.MAX_MESSAGE_BYTES + 10) + b";",
        b"M 1 COMPL;;;;>>>",
    ]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if garbage:
            writer.write(garbage.pop())
            await writer.drain()
            writer.close()
            return
        await login(reader, writer)
        await reader.read()

    server, drives, heard = await scripted(make_driver, await plain(), serve)
    await heard.until(lambda h: h.ups == 1)
    assert drives.up
    server.close()


async def test_a_switch_that_hangs_up_at_once__is_as_one_that_is_not_there(
    plain: Any, make_driver: Make, monkeypatch: Any
) -> None:
    """It took the login 3,000 times a second, and with it the manager's core."""
    monkeypatch.setattr(device, "BACKOFF_S", (0.0, 0.0, 3600.0))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await login(reader, writer)
        await writer.drain()
        writer.close()

    server, drives, heard = await scripted(make_driver, await plain(), serve)
    await heard.until(lambda h: len(h.downs) == 3)
    for _ in range(100):
        await asyncio.sleep(0.002)
    assert heard.ups == 3 and not drives.up
    server.close()


async def test_a_connection_that_held__is_made_again_at_once(plain: Any, make_driver: Make, monkeypatch: Any) -> None:
    monkeypatch.setattr(device, "BACKOFF_S", (3600.0,))
    monkeypatch.setattr(device, "STEADY_S", 0.0)
    server, drives, heard = await scripted(make_driver, await plain(), hang_up_once())
    await heard.until(lambda h: h.ups == 2)
    assert drives.up
    server.close()


def hang_up_once() -> Any:
    left = [True]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await login(reader, writer)
        await writer.drain()
        if left.pop() if left else False:
            writer.close()
        await reader.read()

    return serve


async def test_silence_after_a_command__an_error_within_a_bound(
    plain: Any, make_driver: Make, monkeypatch: Any
) -> None:
    monkeypatch.setattr(dialect, "SETTLE_MORE_S", 0.05)
    monkeypatch.setattr(connection.Tl1Connection.ask, "__defaults__", (0.05,))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await login(reader, writer)
        await reader.read()

    server, drives, heard = await scripted(make_driver, await plain(), serve)
    await heard.until(lambda h: h.ups)
    with pytest.raises(SouthboundError, match=r"ocs did not answer .* within"):
        await drives.connect([Pair(1, 2)])
    server.close()


async def test_a_dead_connection__is_noticed_and_replaced(plain: Any, make_driver: Make, monkeypatch: Any) -> None:
    monkeypatch.setattr(driver, "KEEPALIVE_S", 0.05)
    monkeypatch.setattr(connection.Tl1Connection.ask, "__defaults__", (0.1,))
    connections = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await login(reader, writer)
        await reader.read()

    server, _, heard = await scripted(make_driver, await plain(), serve)
    await heard.until(lambda h: h.ups >= 2)
    assert "did not answer RTRV-HDR" in heard.downs[0]
    server.close()


async def test_answer_in_parts__counts_as_one(plain: Any, make_driver: Make) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await login(reader, writer)
        ctag = (await reader.readuntil(b";")).decode().split(":")[3].rstrip(";")
        for port, end in ((1, ">"), (2, ">"), (3, ";")):
            row = f"IPORTID={10000 + port},OPORTID={20010 + port},CONNSTATE=steady,INPWR=NONE,OUTPWR=-3.5"
            writer.write(f'\r\n   x 26-01-01 00:00:00\r\nM  {ctag} COMPLD\r\n   "{row}"\r\n{end}\r\n'.encode())
        await reader.read()

    server, drives, heard = await scripted(make_driver, await plain(), serve)
    await heard.until(lambda h: h.ups)
    found = await drives.read()
    assert [c.pair for c in found] == [Pair(1, 11), Pair(2, 12), Pair(3, 13)]
    assert found[0].input_dbm is None
    assert found[0].output_dbm == -3.5
    server.close()


def row(source: int, target: int, state: str = "steady") -> str:
    return f"IPORTID={10000 + source},OPORTID={20000 + target},CONNSTATE={state},INPWR=0.0,OUTPWR=NONE"


def lying(rows: Callable[[str], list[str]], ctag: Callable[[str], str] = str) -> Any:
    """A switch that answers every command with success, and with these rows, whatever it was asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await login(reader, writer)
        with contextlib.suppress(asyncio.IncompleteReadError):
            while line := (await reader.readuntil(b";")).decode().strip():
                verb, tag = line.split(":")[0], line.split(":")[3].rstrip(";")
                said = "".join(f'   "{one}"\r\n' for one in rows(verb))
                writer.write(f"\r\n   x 26-01-01 00:00:00\r\nM  {ctag(tag)} COMPLD\r\n{said};\r\n<".encode())

    return serve


async def test_liar__rows_of_what_was_not_asked_make_no_circuit(plain: Any, make_driver: Make, caplog: Any) -> None:
    """Other pairs, ports that it does not have, twice the same: none of these is ours, and the one that was asked is
    not there."""
    rows = [row(2, 9), row(9999, 5), row(1, 9999), row(2, 9, "fault"), *(row(3, 7) for _ in range(500))]
    server, drives, heard = await scripted(make_driver, await plain(), lying(lambda verb: rows))
    await heard.until(lambda h: h.ups)
    (result,) = await drives.connect([Pair(1, 5)])
    assert (result.pair, result.state) == (Pair(1, 5), INVALID)
    assert result.cause == "the switch does not list it"
    ports = range(1, drives.ocs.ports + 1)
    assert all(one.pair.input in ports and one.pair.output in ports for one in await drives.read())
    told = [line for line in caplog.messages if "but its ports are 1 to" in line]
    assert len(told) == 1  # though it lies each time
    assert told[0].startswith(f"{drives.ocs.name} lists 9999->5 steady")
    server.close()


async def test_liar__answers_to_another_tag_are_no_answer(plain: Any, make_driver: Make, monkeypatch: Any) -> None:
    monkeypatch.setattr(connection.Tl1Connection.ask, "__defaults__", (0.05,))
    serve = lying(lambda verb: [row(1, 5)], lambda tag: str(int(tag) + 1000))
    server, drives, heard = await scripted(make_driver, await plain(), serve)
    await heard.until(lambda h: h.ups)
    with pytest.raises(SouthboundError, match=r"ocs did not answer RTRV-CRS-FIBER within"):
        await drives.read()
    server.close()


@pytest.mark.parametrize(("length", "text"), [(10, "more than 65536 rows"), (60_000, "more than 16 MiB")])
async def test_liar__an_answer_without_end_ends_that_connection(
    plain: Any, make_driver: Make, length: int, text: str
) -> None:
    """Whether it is of many rows, or of long ones."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await login(reader, writer)
        tag = (await reader.readuntil(b";")).decode().split(":")[3].rstrip(";")
        rows = f'   "{"A" * length}"\r\n' * max(1, 60_000 // length // 4)
        part = f"\r\n   x 26-01-01 00:00:00\r\nM  {tag} COMPLD\r\n{rows}>\r\n".encode()
        with contextlib.suppress(OSError):
            while True:
                writer.write(part)
                await writer.drain()

    server, drives, heard = await scripted(make_driver, await plain(), serve)
    await heard.until(lambda h: h.ups)
    with pytest.raises(SouthboundError, match=rf"ocs: it sent an answer of {text}"):
        await drives.read()
    server.close()
