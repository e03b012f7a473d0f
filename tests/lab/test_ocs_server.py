"""The emulator's TL1 server and control socket as a person, a program and a vandal meet them. No light, no root."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from rostrum.lab.ocs import server as tl1
from rostrum.lab.ocs import witness
from rostrum.lab.ocs.control import Control, ask
from rostrum.lab.ocs.engine import Engine
from rostrum.lab.ocs.glimmerglass import GlimmerglassServer
from rostrum.lab.ocs.gnmi import GnmiServer
from rostrum.lab.ocs.light import NoLight
from rostrum.lab.ocs.model import Model
from rostrum.lab.ocs.polatis import PolatisServer
from rostrum.topologies.loader import load
from rostrum.topologies.model import Reconfiguration

from tests.controller.fakes import until

TOPOLOGY = Path(__file__).parents[2] / "topologies" / "hybrid-4x2.yaml"
BOUND_S = 60.0


@dataclass
class Telnet:
    """A person at a terminal."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def say(self, text: str | bytes) -> str:
        """Send, and return what comes back up to the prompt."""
        self.writer.write(text if isinstance(text, bytes) else f"{text}\r\n".encode())
        return await self.hear(b"\n< ")

    async def hear(self, until: bytes) -> str:
        async with asyncio.timeout(BOUND_S):
            return (await self.reader.readuntil(until)).decode()

    async def rest(self) -> bytes:
        async with asyncio.timeout(BOUND_S):
            return await self.reader.read()


Dial = Callable[..., Awaitable[Telnet]]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[tuple[tl1.Server, Dial]]]]:
    made: list[tuple[tl1.Server, Engine, Control]] = []
    writers: list[asyncio.StreamWriter] = []

    async def start(dialect: str = "glimmerglass", ms: float = 20) -> tuple[tl1.Server, Dial]:
        ocs = replace(load(TOPOLOGY).ocs["ocs"], dialect=dialect)
        engine = Engine(Model(ocs, Reconfiguration("fixed", ms / 1000, 0.0), ms / 5000, 0.5, 1), NoLight())
        server = tl1.Server(engine, PolatisServer() if dialect == "polatis" else GlimmerglassServer())
        await server.start("127.0.0.1", 0)
        control = Control(engine, server, tmp_path / "ocs-ocs.ctl")
        await control.start()
        made.append((server, engine, control))

        async def dial(login: bool = True, greeted: bool = True) -> Telnet:
            telnet = Telnet(*await asyncio.open_connection("127.0.0.1", server.port, limit=2**22))
            writers.append(telnet.writer)
            if greeted:
                await telnet.hear(b"\n< ")
            if login:
                assert "COMPLD" in await telnet.say("ACT-USER::admin:1::rostrum;")
            return telnet

        return server, dial

    yield start
    for writer in writers:
        writer.close()
    for server, engine, control in made:
        await control.close()
        await server.close()
        engine.close()


async def test_control__has_the_model_of_a_switch_that_speaks_gnmi(make: Dial, tmp_path: Path) -> None:
    await make()
    with pytest.raises(ValueError, match="ocs speaks TL1; a switch with dialect: gnmi has a model"):
        await asyncio.to_thread(ask, tmp_path / "ocs-ocs.ctl", {"op": "model"})
    ocs = replace(load(TOPOLOGY).ocs["ocs"], dialect="gnmi")
    engine = Engine(Model(ocs, Reconfiguration("fixed", 0.02, 0.0), 0.004, 0.5, 1), NoLight())
    control = Control(engine, GnmiServer(engine), tmp_path / "gnmi.ctl")
    await control.start()
    told = await asyncio.to_thread(ask, tmp_path / "gnmi.ctl", {"op": "model"})
    assert told["ok"] and any("connections" in name for name in told["model"])
    await control.close()
    engine.close()


async def test_greeting__tells_a_person_what_to_do(make: Dial) -> None:
    _, dial = await make()
    telnet = await dial(login=False, greeted=False)
    greeting = await telnet.hear(b"\n< ")
    assert "ACT-USER::user:1::password;" in greeting
    assert "HELP;" in greeting
    assert "ENT-CRS-FIBER" in await telnet.say("help;")


async def test_telnet__ends_lines_in_every_way_it_may(make: Dial) -> None:
    """CR LF as a terminal's Enter, CR NUL, LF alone; negotiation before and between."""
    _, dial = await make()
    telnet = await dial(login=False)
    assert "COMPLD" in await telnet.say(b"\xff\xfd\x03\xff\xfb\x00ACT-USER::admin:1::rostrum;\r\0")
    for number, end in enumerate((b"\r\0", b"\r\n", b"\n", b"\r\0\r\n", b""), 2):
        assert f"M  {number} COMPLD" in await telnet.say(b"RTRV-HDR:::%d;" % number + end)


async def test_without_login__nothing_but_refusals(make: Dial) -> None:
    _, dial = await make()
    telnet = await dial(login=False)
    assert "PLNA\r\n   /* log in first" in await telnet.say("RTRV-CRS-FIBER::ALL:9;")
    assert "M  2 DENY\r\n   PIUC" in await telnet.say("ACT-USER::admin:2::guess;")
    assert "DENY" in await telnet.say("ACT-USER::nobody:3::rostrum;")


async def test_sync__answers_when_steady_and_counts_ranges(make: Dial) -> None:
    server, dial = await make()
    telnet = await dial()
    answer = await telnet.say("ENT-CRS-FIBER::10001&10005&&10007,20005&20002&20003&20004:4:::OPMODE=SYNC;")
    assert answer.count("REPT EVT") == 4
    assert "M  4 COMPLD" in answer
    assert answer.split("M  4 COMPLD")[1].count("CONNSTATE=steady") == 4
    assert len(server.engine.cross_connects()) == 4


async def test_async__answers_at_once_and_reports_later(make: Dial) -> None:
    _, dial = await make(ms=300)  # longer than this process may stand still before it answers
    telnet, other = await dial(), await dial()
    answer = await telnet.say("ENT-CRS-FIBER::10001,20002:4:::OPMODE=ASYNC;")
    assert "M  4 COMPLD" in answer
    assert "CONNSTATE=transition" in answer
    for listener in (telnet, other):
        assert "REPT EVT CRS-FIBER" in await listener.hear(b"CONNSTATE=steady")


async def test_partial_failure__prtl_with_a_row_and_a_cause_per_pair(make: Dial) -> None:
    _, dial = await make()
    telnet = await dial()
    await telnet.say("ENT-CRS-FIBER::10001,20002:1;")
    answer = await telnet.say("ENT-CRS-FIBER::10001&10003,20003&20004:2;")
    assert "M  2 PRTL\r\n   SROF" in answer
    assert "IPORTID=10001" in answer.split("PRTL")[1]
    assert "CONNCAUSE=input 1 is in use" in answer
    assert "/* 1 to 3: input 1 is in use: it goes to output 2 */" in answer
    assert "M  3 DENY" in await telnet.say("ENT-CRS-FIBER::10001,20003:3;")


async def test_delete__by_input_by_pair_and_all(make: Dial) -> None:
    server, dial = await make(ms=0)
    telnet = await dial()
    await telnet.say("ENT-CRS-FIBER::10001&&10004,20004&20003&20002&20001:1;")
    assert "M  2 COMPLD" in await telnet.say("DLT-CRS-FIBER::10001:2;")
    assert "M  3 COMPLD" in await telnet.say("DLT-CRS-FIBER::10002,20003:3;")
    assert "M  4 DENY" in await telnet.say("DLT-CRS-FIBER::10003,20009:4;")
    assert "M  5 PRTL" in await telnet.say("DLT-CRS-FIBER::10001&10003:5;")
    assert [c.pair.input for c in server.engine.cross_connects()] == [4]
    assert "M  6 COMPLD" in await telnet.say("dlt-crs-fiber::all:6;")
    assert not server.engine.cross_connects()


async def test_retrieve__some_or_all(make: Dial) -> None:
    _, dial = await make(ms=0)
    telnet = await dial()
    await telnet.say("ENT-CRS-FIBER::10001&10002,20003&20004:1;")
    assert (await telnet.say("RTRV-CRS-FIBER::ALL:2;")).count("IPORTID") == 2
    some = await telnet.say("RTRV-CRS-FIBER::20003:3;")
    assert "CONNID=1>3" in some
    assert some.count("IPORTID") == 1


async def test_polatis__patches_and_powers(make: Dial) -> None:
    server, dial = await make("polatis", ms=0)
    telnet = await dial()
    assert "COMPLD" in await telnet.say("ENT-PATCH::1,34:2:;")
    assert "COMPLD" in await telnet.say("ENT-PATCH::2&3,33&36:3:;")
    assert '"1,34"' in await telnet.say("RTRV-PATCH:::4:;")
    power = await telnet.say("RTRV-PORT-POWER::1&20&34&40:5:;")
    assert '"1:0.00"' in power
    assert '"34:-1.00"' in power
    assert '"20:NONE"' in power
    assert (await telnet.say("RTRV-PORT-POWER::1&&64:6:;")).count(":") > 64
    assert "in use" in await telnet.say("ENT-PATCH::1,35:7:;")
    assert "COMPLD" in await telnet.say("DLT-PATCH::1:8:;")
    assert "no patch at port 1" in await telnet.say("DLT-PATCH::1:9:;")
    assert "ICNV" in await telnet.say("ENT-CRS-FIBER::10001,20001:10;")
    assert len(server.engine.cross_connects()) == 2


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("ENT-CRS-FIBER::10001:1;", "1 inputs and 0 outputs"),
        ("ENT-CRS-FIBER::10001&10002,20001:1;", "2 inputs and 1 outputs"),
        ("ENT-CRS-FIBER::10000,20001:1;", "10000 is not within 10001 ... 10032"),
        ("ENT-CRS-FIBER::10001,20033:1;", "not within"),
        ("ENT-CRS-FIBER::,:1;", "no ports"),
        ("ENT-CRS-FIBER::a,b:1;", "no list of ports"),
        ("ENT-CRS-FIBER::10001,20002:1:::OPMODE=LATER;", "SYNC or ASYNC"),
        ("ENT-CRS-FIBER;", "no ports"),
        ("MAKE-COFFEE:::1;", "not a command of this switch"),
        (";", "empty command"),
        ("%$!;", "no command word"),
        ("RTRV-HDR:::not a ctag;", "no ctag"),
        (b"RTRV-HDR:::\xf0\x9f\x92\xa1;", "TL1 does not have"),
        (b"A" * 100_000 + b";", "longer than 16384"),
    ],
)
async def test_mistakes__end_the_command_not_the_session(make: Dial, command: str | bytes, text: str) -> None:
    server, dial = await make()
    telnet = await dial()
    answer = await telnet.say(command)
    assert "DENY" in answer
    assert text in answer
    assert "M  7 COMPLD" in await telnet.say("RTRV-HDR:::7;")
    assert not server.engine.cross_connects()


async def test_sessions__sixteen_and_no_more_until_one_leaves(make: Dial) -> None:
    _, dial = await make()
    people = [await dial() for _ in range(tl1.MAX_SESSIONS)]
    late = await dial(login=False)
    assert "all 16 sessions are in use" in await late.say("ACT-USER::admin:1::rostrum;")
    assert "COMPLD" in await people[0].say("CANC-USER::admin:9;")
    assert await people[0].rest() == b""
    assert "COMPLD" in await late.say("ACT-USER::admin:2::rostrum;")


async def test_connections__bounded(make: Dial) -> None:
    server, dial = await make()
    for _ in range(tl1.MAX_CONNECTIONS):
        await dial(login=False)
    one_more = await dial(login=False, greeted=False)
    assert b"connections are open already" in await one_more.rest()
    assert len(server.sessions) == tl1.MAX_CONNECTIONS


async def test_commands_in_progress__bounded(make: Dial) -> None:
    _, dial = await make(ms=200)
    telnet = await dial()
    flood = b"ENT-CRS-FIBER::10001,20002:5:::OPMODE=SYNC;" * (tl1.MAX_IN_PROGRESS + 1)
    assert "wait for their answers" in await telnet.say(flood)
    for _ in range(tl1.MAX_IN_PROGRESS):
        assert "M  5 COMPLD" in await telnet.hear(b"\n< ")


async def test_slow_client__is_dropped_and_others_are_served(make: Dial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tl1, "MAX_UNREAD_BYTES", 100_000)
    server, dial = await make("polatis", ms=0)
    slow, other = await dial(), await dial()
    slow.writer.transport.pause_reading()
    async with asyncio.timeout(BOUND_S):
        while len(server.sessions) == 2:
            slow.writer.write(b"RTRV-PORT-POWER::1&&64:5:;" * 50)
            await asyncio.sleep(0)
    assert "COMPLD" in await other.say("RTRV-HDR:::6;")


async def test_no_login__the_door_closes(make: Dial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tl1, "LOGIN_S", 0.05)
    _, dial = await make()
    idle = await dial(login=False)
    assert b"no login within" in await idle.rest()


async def test_garbage__many_vandals_and_the_switch_goes_on(make: Dial) -> None:
    server, dial = await make(ms=0)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    telnet = await dial()
    await telnet.say("ENT-CRS-FIBER::10001,20002:1;")
    alphabet = b'ENT-CRS-FIBER::10001&&20,:;"\\<>\r\n/*=\xff\xfb\x00'
    for _ in range(40):
        vandal = await dial(login=rng.random() < 0.3)
        size = rng.randrange(1, 20_000)
        noise = rng.randbytes(size) if rng.random() < 0.5 else bytes(rng.choices(alphabet, k=size))
        vandal.writer.write(noise + b"\r\n;CANC-USER:::1;ACT-USER::admin:1::rostrum;CANC-USER:::1;")
        if rng.random() < 0.5:
            vandal.writer.close()
        else:
            await vandal.rest()
    assert "M  2 COMPLD" in await telnet.say("RTRV-HDR:::2;")
    assert server.engine.ocs.ports == 32


async def test_control__faults_timing_state(make: Dial, tmp_path: Path) -> None:
    _, dial = await make()
    telnet, path = await dial(), tmp_path / "ocs-ocs.ctl"

    async def control(**request: object) -> dict:
        return await asyncio.to_thread(ask, path, request)

    await control(op="timing", reconfiguration="uniform:1ms:3ms", ringing="1ms:0.25", seed=5)
    fault = await control(op="fault", kind="stuck", input=1)
    assert "M  4 DENY" in await telnet.say("ENT-CRS-FIBER::10001,20002:4;")
    state = await control(op="state")
    assert state["sessions"] == 1
    assert state["cross_connects"][0]["state"] == "fault"
    assert state["faults"] == {fault["id"]: {"kind": "Stuck", "input": 1, "output": None}}
    assert state["reconfiguration"]["distribution"] == "uniform"
    await control(op="clear", id=fault["id"])
    assert "COMPLD" in await telnet.say("ENT-CRS-FIBER::10001,20002:5;")
    assert [b["output"] for b in (await control(op="state"))["paths"]["1"]] == [2]
    assert (await control(op="drop-sessions"))["dropped"] == 1
    await telnet.rest()


async def test_control__mistakes_are_answered_with_a_reason(make: Dial, tmp_path: Path) -> None:
    await make()
    reader, writer = await asyncio.open_unix_connection(tmp_path / "ocs-ocs.ctl")
    mistakes = [
        b"not json", b"[1]", b"{}", b'{"op": []}', b'{"op": "fault"}', b'{"op": "clear", "id": []}',
        b'{"op": "timing", "reconfiguration": "soon"}', b'{"op": "timing", "ringing": 5}',
        b'{"op": "timing", "seed": "x"}', b'{"op": "timing", "ringing": "5ms:2"}', b"[" * 5000, b"\xff\xfe",
    ]  # fmt: skip
    for mistake in mistakes:
        writer.write(mistake + b"\n")
        reply = json.loads(await asyncio.wait_for(reader.readline(), BOUND_S))
        assert reply["ok"] is False, mistake
        assert len(reply["error"]) > 10
    writer.write(b"x" * 100_000 + b"\n")
    assert b"longer than" in await asyncio.wait_for(reader.read(), BOUND_S)
    writer.close()


async def test_log__who_ordered_what_and_what_became_of_it(make: Dial, tmp_path: Path) -> None:
    server, dial = await make(ms=20)
    first, second = await dial(), await dial()
    await first.say("ENT-CRS-FIBER::10001,20002:2;")
    await second.say("ENT-CRS-FIBER::10001&10003,20003&20004:3;")
    await second.say("ENT-CRS-FIBER::10001,20003:4;")
    await second.say("DLT-CRS-FIBER::10001:5;")
    await second.say("RTRV-CRS-FIBER::ALL:6;")
    await second.say("%$!;")
    slow = {"op": "timing", "reconfiguration": "fixed:60s"}  # it waits for its answer until its connection is gone
    await asyncio.to_thread(ask, tmp_path / "ocs-ocs.ctl", slow)
    first.writer.write(b"ENT-CRS-FIBER::10009,20009:7:::OPMODE=SYNC;")
    await until(lambda: "10009" in server.commands[-1].command, "the command came")
    assert server.commands[-1].verdict == "pending"
    first.writer.transport.abort()
    await until(lambda: server.commands[-1].verdict != "pending", "its connection is gone")
    log = await asyncio.to_thread(ask, tmp_path / "ocs-ocs.ctl", {"op": "log"})
    rows = [one for one in log["commands"] if not one["command"].startswith("ACT-USER")]
    assert [(one["verdict"], one["made"], one["removed"]) for one in rows] == [
        ("done", [[1, 2]], []),
        ("partly", [[3, 4]], []),
        ("refused", [], []),
        ("done", [], [[1, 2]]),
        ("done", [], []),
        ("refused", [], []),
        ("lost", [[9, 9]], []),
    ]
    assert "input 1 is in use: it goes to output 2" in rows[1]["error"] and "no command word" in rows[5]["error"]
    assert rows[0]["session"] == rows[6]["session"] < rows[1]["session"]
    times = [when for one in rows for when in (one["at_ns"], one["answered_ns"])]
    assert all(0 < when <= log["now_ns"] for when in times) and rows[0]["answered_ns"] > rows[0]["at_ns"]
    assert witness.crossed(rows) == {(one.pair.input, one.pair.output) for one in server.engine.cross_connects()}
    wrong = witness.wrong_orders(rows)
    assert len(wrong) == 3, wrong
    assert sum("is in use" in one for one in wrong) == 2  # ordered although they were another's
    assert sum("after the first order of session" in one for one in wrong) == 1  # by who had been followed


def test_witness__a_fibre_that_two_have() -> None:
    def row(session: int, made: list[list[int]], removed: list[list[int]]) -> witness.Row:
        return {"session": session, "from": "x", "command": "ENT-PATCH", "error": "", "made": made, "removed": removed}

    assert witness.wrong_orders([row(1, [[1, 2], [3, 4]], []), row(1, [], [[1, 2]]), row(2, [[1, 5]], [])]) == []
    assert "1>5 was made while 1>2 was there" in witness.wrong_orders([row(1, [[1, 2]], []), row(1, [[1, 5]], [])])[0]
    assert len(witness.wrong_orders([row(1, [[7, 2]], [])], before=frozenset({(1, 2)}))) == 1


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "rostrum.lab.ocs", "--run", str(tmp_path), *arguments]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_program__serves_until_told_to_stop(program: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    process = program("--topology", str(TOPOLOGY), "--no-light", "--listen", "127.0.0.1:0", "--seed", "7")
    assert process.stdout is not None
    assert "seed 7" in process.stdout.readline()
    assert process.stdout.readline() == "ready\n"
    assert ask(tmp_path / "ocs-ocs.ctl", {"op": "state"})["name"] == "ocs"
    process.send_signal(signal.SIGTERM)
    assert process.wait(BOUND_S) == 0
    assert not (tmp_path / "ocs-ocs.ctl").exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--topology", "/nowhere.yaml"), "/nowhere.yaml"),
        (("--topology", str(TOPOLOGY), "--ocs", "other"), "there are: ocs"),
        (("--topology", str(TOPOLOGY), "--no-light", "--listen", "here"), "ADDRESS:PORT"),
        (("--topology", str(TOPOLOGY), "--no-light", "--listen", "192.0.2.1:10034"), "cannot listen on"),
        (("--topology", str(TOPOLOGY), "--no-light", "--reconfiguration", "fast"), "fixed:MEAN"),
        (("--topology", str(TOPOLOGY), "--no-light", "--ringing", "5ms"), "DURATION:LOSS"),
        (("--topology", str(TOPOLOGY), "--listen", "127.0.0.1:0"), "ocs-p1"),
    ],
)
def test_program__mistakes_end_it_with_one_line(
    program: Callable[..., subprocess.Popen[str]], arguments: tuple[str, ...], text: str
) -> None:
    process = program(*arguments)
    _, errors = process.communicate(timeout=BOUND_S)
    assert process.returncode == 1
    assert text in errors
    assert "Traceback" not in errors
