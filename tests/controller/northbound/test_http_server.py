"""REST's connections: who says nothing, too little or too much keeps nobody else out."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import random
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from rostrum.controller.northbound.rest import http_server
from rostrum.controller.northbound.rest.access import LOOPBACK
from starlette.types import Message, Receive, Scope, Send

from tests.controller.fakes import Running, running, until

BOUND_S = 60.0
GET = b"GET /v1/paths HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as made:
        yield made


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def dial(cls, manager: Running, data: bytes = b"", source: str = "127.0.0.1") -> Peer:
        found = await asyncio.open_connection("127.0.0.1", manager.app.rest_port, local_addr=(source, 0))
        found[1].write(data)
        return cls(*found)

    async def answered(self) -> bytes:
        async with asyncio.timeout(BOUND_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await self.reader.readexactly(length)
        return head.split(b" ")[1]

    async def ended(self) -> bytes:
        """What it still said."""
        async with asyncio.timeout(BOUND_S):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    def close(self) -> None:
        self.writer.close()


def taken(manager: Running) -> int:
    return len(manager.app.http.places["tcp"].taken)


async def answers(manager: Running) -> bool:
    async with httpx.AsyncClient(base_url=manager.url, trust_env=False, timeout=BOUND_S) as http:
        return (await http.get("/v1/paths")).status_code == 200


async def test_silent_connections__by_the_thousand_keep_nobody_out(manager: Running) -> None:
    """As a scanner leaves them: there was 503 for everybody, for as long as they liked."""
    crowd = [await Peer.dial(manager) for _ in range(1124)]
    assert await answers(manager)
    assert taken(manager) <= http_server.SOURCE_MAX
    for one in crowd:
        one.close()


async def test_places_of_all__the_longest_idle_makes_room(manager: Running) -> None:
    places = manager.app.http.places["tcp"]
    places.most, places.of_source = 4, 3
    first = await Peer.dial(manager, GET)
    await first.answered()
    others = [await Peer.dial(manager, source=f"127.0.0.{number}") for number in (2, 3, 4)]
    await until(lambda: taken(manager) == 4, "four are there")
    last = await Peer.dial(manager, GET, source="127.0.0.5")
    assert await last.answered() == b"200"
    await first.ended()
    assert places.turned_away["crowded out"] == 1 and taken(manager) == 4
    for one in [*others, last]:
        one.close()


async def test_places_of_a_source__it_pays_for_its_own_crowd(manager: Running) -> None:
    places = manager.app.http.places["tcp"]
    places.of_source = 3
    bystander = await Peer.dial(manager, source="127.0.0.9")
    await until(lambda: taken(manager) == 1, "the bystander is there")
    crowd = [await Peer.dial(manager, source="127.0.0.2") for _ in range(4)]
    await crowd[0].ended()
    bystander.writer.write(GET)
    await bystander.answered()
    for one in [*crowd, bystander]:
        one.close()


async def test_requests_under_way__are_not_ended_for_others(manager: Running) -> None:
    places = manager.app.http.places["tcp"]
    places.most = 2
    readers = [await Peer.dial(manager, b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(2)]
    for one in readers:
        async with asyncio.timeout(BOUND_S):
            await one.reader.readuntil(b"\r\n\r\n")
    late = await Peer.dial(manager, GET)
    said = await late.ended()
    assert said.startswith(b"HTTP/1.1 503") and b"all connections are busy" in said
    assert not any(one.reader.at_eof() for one in readers)
    async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(manager.app.socket))) as http:
        assert (await http.get("http://manager/v1/paths")).status_code == 200  # the unix socket has places of its own
    readers[0].close()
    await until(lambda: taken(manager) == 1, "a place is free")
    assert await answers(manager)
    readers[1].close()


@pytest.mark.parametrize(
    ("begin", "drop"),
    [
        (b"", b""),
        (b"", b"\r\n"),
        (b"GET /v1/paths HTTP/1.1\r\nX: ", b"x"),
        (b"POST /v1/paths HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n", b"{"),
        (GET, b""),
        (GET, b"\r\n"),
    ],
)
async def test_slow_requests__are_ended_whatever_dribbles_in(
    manager: Running, monkeypatch: pytest.MonkeyPatch, begin: bytes, drop: bytes
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_BOUND_S", 0.3)
    monkeypatch.setattr(http_server, "IDLE_S", 0.3)
    peer = await Peer.dial(manager, begin)

    async def dribble() -> None:
        while drop:
            peer.writer.write(drop)
            await asyncio.sleep(0.02)

    task = asyncio.create_task(dribble())
    try:
        await peer.ended()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await task
    assert manager.app.http.places["tcp"].turned_away["late"] == 1
    await until(lambda: taken(manager) == 0, "its place is free")


async def test_endless_headers__are_ended(manager: Running) -> None:
    peer = await Peer.dial(manager, b"GET / HTTP/1.1\r\nX: ")
    with contextlib.suppress(OSError):
        async with asyncio.timeout(BOUND_S):
            while not peer.reader.at_eof():
                peer.writer.write(b"x" * 10_000)
                await peer.writer.drain()
                await asyncio.sleep(0)
    assert manager.app.http.places["tcp"].turned_away["not HTTP"] == 1
    assert await answers(manager)


async def test_garbage__random_requests_disturb_nobody(manager: Running) -> None:
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    good = [
        GET,
        b'POST /v1/paths HTTP/1.1\r\nHost: x\r\nContent-Length: 38\r\n\r\n{"sender": "h1", "receivers": ["h3"]}\n',
        b"GET /v1/paths?limit=3 HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b'POST /v1/paths HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"a":\r\n0\r\n\r\n',
    ]
    for _ in range(300):
        data = bytearray(rng.choice(good) * rng.randrange(1, 4) if rng.random() < 0.9 else rng.randbytes(400))
        for _ in range(rng.randrange(0, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        peer = await Peer.dial(manager, bytes(data[: rng.randrange(1, len(data) + 1)]))
        with contextlib.suppress(OSError):
            peer.writer.write_eof()
        peer.close()
    await until(lambda: taken(manager) == 0, "all places are free")
    assert await answers(manager)


class Cycle:
    """uvicorn's end of a request, when its transport has closed and connection_lost is still to come."""

    def __init__(self, closing: bool) -> None:
        self.transport = self
        self.closing = closing

    def is_closing(self) -> bool:
        return self.closing

    async def send(self, message: Message) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")


async def test_clients_that_hang_up_in_the_middle__are_no_failure() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.body", "body": b"x", "more_body": True})

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    app = http_server._behind(LOOPBACK, answer)
    await app({"type": "http"}, receive, Cycle(closing=True).send)
    with pytest.raises(RuntimeError):
        await app({"type": "http"}, receive, Cycle(closing=False).send)


async def test_unix_socket__is_for_our_user_and_group(manager: Running) -> None:
    assert stat.S_IMODE(manager.app.socket.stat().st_mode) == 0o660


async def test_metrics__tell_of_connections(manager: Running) -> None:
    manager.app.http.places["tcp"].most = 1
    idle = await Peer.dial(manager)
    await until(lambda: taken(manager) == 1, "it is there")
    async with httpx.AsyncClient(base_url=manager.url, trust_env=False, timeout=BOUND_S) as http:
        page = (await http.get("/metrics")).text
    assert 'rostrum_rest_connections{door="tcp"} 1.0' in page
    assert 'rostrum_rest_connections_ended_total{reason="crowded out"} 1.0' in page
    idle.close()


@pytest.mark.parametrize(
    "path", ["/v1/paths", "/v1/health", "/metrics", "/openapi.json", "/console", "/v1/paths/p-none"]
)
async def test_head__is_get_without_its_body(manager: Running, path: str) -> None:
    async with httpx.AsyncClient(base_url=manager.url, trust_env=False, timeout=BOUND_S) as http:
        got, head = await http.get(path), await http.head(path)
        assert head.status_code == got.status_code and not head.content
        assert head.headers["content-type"] == got.headers["content-type"]
        if path not in ("/v1/health", "/metrics"):  # they change
            assert head.headers["content-length"] == got.headers["content-length"]
        assert (await http.get(path)).content  # the connection goes on


@pytest.mark.parametrize("path", ["/v1/events", "/v1/overview/events"])
async def test_head__of_a_stream_ends(manager: Running, path: str) -> None:
    async with httpx.AsyncClient(base_url=manager.url, trust_env=False, timeout=BOUND_S) as http:
        answer = await http.head(path)
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        rest = manager.app.rest
        await until(lambda: not rest.events.readers and not rest.board.viewers, "no readers")


async def test_options__tells_what_can_be_done(manager: Running) -> None:
    async with httpx.AsyncClient(base_url=manager.url, trust_env=False, timeout=BOUND_S) as http:
        answer = await http.options("/v1/paths")
        assert answer.status_code == 204 and answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"
        assert (await http.options("/v1/paths/p-none")).headers["allow"] == "DELETE, GET, HEAD, OPTIONS"
        assert (await http.options("/v1/nothing")).status_code == 404
        refused = await http.put("/v1/paths", json={})
        assert refused.status_code == 405 and refused.headers["allow"] == "GET, HEAD, OPTIONS, POST"


async def test_head__is_counted_by_its_route(manager: Running) -> None:
    async with httpx.AsyncClient(base_url=manager.url, trust_env=False, timeout=BOUND_S) as http:
        await http.head("/v1/paths/p-none")
    assert manager.app.rest.meter.answers["HEAD", "/v1/paths/{path_id}", 404] == 1


@pytest.mark.parametrize(
    "said", [b"\x16\x03\x01junk\r\n\r\n", GET[:-2] + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"]
)
async def test_strangers__do_not_fill_the_log(
    manager: Running, said: bytes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had a line for each of them."""
    monkeypatch.setattr(logging, "_srcfile", None)  # as the manager has it
    for _ in range(20):
        one = await Peer.dial(manager, said)
        await one.answered()
        one.close()
    assert len(caplog.records) <= http_server.LINES[0]


async def test_turns__the_loop_has_a_round_between_any_two_requests() -> None:
    """Those of hundreds of connections were all answered before agents and devices were heard again."""
    loop = asyncio.get_running_loop()
    rounds, begun = 0, list[tuple[int, int]]()

    def tick() -> None:
        nonlocal rounds
        rounds += 1
        if len(begun) < 19:
            loop.call_soon(tick)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append((scope["number"], rounds))
        await asyncio.sleep(3600 if scope["number"] == 3 else 0)  # one that waits keeps nobody

    turns: Any = http_server.Turns(app)
    tasks = [asyncio.create_task(turns({"number": number}, None, None)) for number in range(20)]
    loop.call_soon(lambda: tasks[7].cancel())  # its client goes
    loop.call_soon(tick)
    await asyncio.wait([*tasks[:3], *tasks[4:]], timeout=BOUND_S)
    assert not tasks[3].done()
    tasks[3].cancel()
    assert [number for number, _ in begun] == [one for one in range(20) if one != 7]
    times = [when for _, when in begun]
    assert all(earlier < later for earlier, later in itertools.pairwise(times[1:])), begun
