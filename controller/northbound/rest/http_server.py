"""uvicorn on the manager's own loop: TCP addresses and a unix socket; what a request may take, and how long answers
took.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import socket
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from rostrum.controller.certificates import Trust
from rostrum.controller.keyvalue import Sparing, line
from rostrum.controller.northbound.metrics.stats import ANSWER_BOUNDS_S, Histogram
from rostrum.controller.northbound.rest import methods, problems
from rostrum.controller.northbound.rest.access import DOOR, LOOPBACK, PEER, SOCKET, Door
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

log = logging.getLogger("rostrum.rest")

BACKLOG = 512
STARTUP_BOUND_S = 10.0
CONNECTIONS_MAX = 1024  # by TCP, at all addresses together; as many by the unix socket
SOURCE_MAX = 256  # of these from one address
REQUEST_BOUND_S = 10.0  # from connecting, or from a request's first byte, until it is there as a whole
BODY_MAX = 256 << 10  # bytes of a request's body
HEAD_MAX = 64 << 10  # bytes of a request's line and headers
IDLE_S = 30.0  # between an answer and the next request
TLS_HANDSHAKE_S = 5.0
LATE_S = 0.5  # a timer this late tells that this process stood still, and has requests to read
LINES = (5, 10.0)  # in so many seconds, about connections that were turned away
_FULL = b"all connections are busy; ask again later\n"
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 1\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_FULL), _FULL)
)
METHODS = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS")
REASONS = ("crowded out", "no room", "late", "not HTTP")


class _Told(logging.Filter):
    """uvicorn warns of each request that is no HTTP, or wants another protocol: as often as strangers like. What of
    that is worth a line `Places` says, a few times.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno != logging.WARNING


_TOLD = _Told()


class Places:
    """Who is connected. Room is made by the connection that has waited the longest for its client's next request: one
    of the same source if that has too many, of any otherwise. A request under way is not ended for another.
    """

    def __init__(self, most: int = CONNECTIONS_MAX, of_source: int = SOURCE_MAX) -> None:
        self.most, self.of_source = most, of_source
        self.taken: dict[_Protocol, str] = {}  # by source
        self.turned_away: Counter[str] = Counter()
        self._sources: Counter[str] = Counter()
        self._idle: dict[_Protocol, None] = {}  # the longest first
        self._lines = Sparing(*LINES)

    def enter(self, new: _Protocol, source: str) -> bool:
        """False: there is no room, all are busy."""
        crowded = self._sources[source] >= self.of_source
        if crowded or len(self.taken) >= self.most:
            oldest = next((one for one in self._idle if not crowded or self.taken[one] == source), None)
            if oldest is None:
                self.turn_away("no room", source)
                return False
            self.turn_away("crowded out", self.taken[oldest])
            self.leave(oldest)
            oldest.transport.abort()
        self.taken[new] = source
        self._sources[source] += 1
        self._idle[new] = None
        return True

    def leave(self, one: _Protocol) -> None:
        self._idle.pop(one, None)
        source = self.taken.pop(one, None)
        if source is not None:
            self._sources[source] -= 1
            if not self._sources[source]:
                del self._sources[source]

    def busy(self, one: _Protocol) -> None:
        self._idle.pop(one, None)

    def idle(self, one: _Protocol) -> None:
        if one in self.taken:
            self._idle[one] = None

    def turn_away(self, reason: str, source: str) -> None:
        self.turned_away[reason] += 1
        left_out = self._lines.may(time.monotonic())
        if left_out is not None:
            more = {"not_logged": left_out} if left_out else {}
            log.warning(line("connection ended", peer=source or "unix socket", cause=reason, **more))


class _Server(uvicorn.Server):
    """Signals are the manager's business, and so are the sockets: with bounds of ours, and modes that we set."""

    def __init__(self, config: uvicorn.Config, tls: Trust | None = None) -> None:
        super().__init__(config)
        self._tls = tls
        self._shared: socket.socket | None = None  # the port, of those by TLS
        self._make: Callable[[], Any] = list  # a connection
        self._watching: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        config, loop = self.config, asyncio.get_running_loop()
        make = functools.partial(
            config.http_protocol_class, config=config, server_state=self.server_state, app_state=self.lifespan.state
        )  # type: ignore[call-arg]
        self.servers = []
        for sock in sockets or []:
            create: Any = loop.create_unix_server if sock.family == socket.AF_UNIX else loop.create_server
            self.servers.append(await create(make, sock=sock, backlog=BACKLOG, **self._secured()))
        if self._tls:
            self._shared, self._make = (sockets or [])[0].dup(), make
            self._watching = asyncio.create_task(self._tls.watch(self._renew))
        self.started = True

    def _secured(self) -> dict[str, Any]:
        return {"ssl": self._tls.context, "ssl_handshake_timeout": TLS_HANDSHAKE_S} if self._tls else {}

    async def _renew(self, authority: bool) -> None:
        """A server of asyncio's keeps the context that it began with: another takes its place at the same port. Where
        the CA's file is another, connections are ended after what they are at, and certificates looked at anew.
        """
        assert self._shared
        shared = self._shared.dup()
        shared.setblocking(False)
        made = await asyncio.get_running_loop().create_server(
            self._make, sock=shared, backlog=BACKLOG, **self._secured()
        )
        for server in self.servers:
            server.close()
        self.servers = [made]
        if authority:
            for connection in list(self.server_state.connections):
                connection.shutdown()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._watching:
            self._watching.cancel()
        if self._shared:
            self._shared.close()
        await super().shutdown(sockets)


class _Protocol(HttpToolsProtocol):
    """Keeps what a client's certificate says, and the bounds above."""

    def __init__(self, places: Places, **given: Any) -> None:
        super().__init__(**given)
        self._places = places
        self._source = ""
        self._timer: asyncio.TimerHandle | None = None
        self._unanswered = 0  # requests
        self._head: int | None = None  # bytes of a request whose headers have begun to come

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._source = self.client[0] if self.client else ""
        if self._places.enter(self, self._source):
            self._expect(REQUEST_BOUND_S)
        else:
            transport.write(FULL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._places.leave(self)
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        before = self._head
        super().data_received(data)
        if self._head is not None and before is not None:
            self._head += len(data)
            if self._head > HEAD_MAX:
                self._end("not HTTP")

    def send_400_response(self, msg: str) -> None:
        self._places.turn_away("not HTTP", self._source)
        super().send_400_response(msg)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"][PEER] = self.transport.get_extra_info("peercert")
        self._head = 0
        self._expect(REQUEST_BOUND_S)

    def on_headers_complete(self) -> None:
        self._head = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self.cycle.response_complete:  # some are answered before they are there as a whole
            self._unanswered += 1
            self._places.busy(self)
            self._expect_nothing()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unanswered = max(0, self._unanswered - 1)
        if not self._unanswered and not self.transport.is_closing():
            self._places.idle(self)
            self._expect(IDLE_S)

    def _expect(self, bound_s: float) -> None:
        """A whole request within the bound. (uvicorn's own timer ends at the first byte, whatever follows.)"""
        self._expect_nothing()
        due = self.loop.time() + bound_s
        self._timer = self.loop.call_later(bound_s, lambda: self._late(due))

    def _expect_nothing(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _late(self, due: float) -> None:
        if self.loop.time() - due > LATE_S:  # it was we who stood still: what has come is read first
            self._expect(1.0)
        else:
            self._end("late")

    def _end(self, reason: str) -> None:
        if not self.transport.is_closing():
            self._places.turn_away(reason, self._source)
            self.transport.close()


class HttpServer:
    def __init__(self, app: FastAPI) -> None:
        logging.getLogger("uvicorn.error").addFilter(_TOLD)
        self._app = app
        self._running: list[tuple[_Server, asyncio.Task[None]]] = []
        self.places = {"tcp": Places(), "unix": Places(of_source=CONNECTIONS_MAX)}

    def connections(self) -> dict[str, int]:
        """By door."""
        return {door: len(places.taken) for door, places in self.places.items()}

    def ended(self) -> dict[str, int]:
        """Connections that were turned away since the start, by reason."""
        return {reason: sum(one.turned_away[reason] for one in self.places.values()) for reason in REASONS}

    async def listen_tcp(self, host: str, port: int, door: Door = LOOPBACK, tls: Trust | None = None) -> int:
        """Returns the port. `tls`: None: plain HTTP. Raises OSError if the address cannot be had."""
        bound = socket.create_server(
            (host, port), backlog=BACKLOG, family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
        bound.setblocking(False)
        number: int = bound.getsockname()[1]
        await self._serve(_Server(self._config(door, self.places["tcp"]), tls), bound)
        return number

    async def listen_unix(self, path: Path) -> None:
        """For our user and group. A socket left behind by a manager that was killed is replaced. Raises OSError."""
        _remove(path)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bound.bind(str(path))
            os.chmod(path, 0o660)
        except OSError as error:  # of a socket the system does not say which
            bound.close()
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        bound.setblocking(False)
        await self._serve(_Server(self._config(SOCKET, self.places["unix"])), bound)

    async def close(self) -> None:
        """Requests under way have a moment to end."""
        for server, _ in self._running:
            server.should_exit = True
        for _, task in self._running:
            await asyncio.wait((task,), timeout=3.0)
            task.cancel()
        self._running.clear()

    def _config(self, door: Door, places: Places) -> uvicorn.Config:
        protocol: Any = functools.partial(_Protocol, places)
        return uvicorn.Config(
            _behind(door, self._app),
            loop="none",
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=round(IDLE_S),
            timeout_graceful_shutdown=1,
        )

    async def _serve(self, server: _Server, bound: socket.socket) -> None:
        task = asyncio.create_task(server.serve([bound]))
        self._running.append((server, task))
        async with asyncio.timeout(STARTUP_BOUND_S):
            while not server.started:
                if task.done():
                    task.result()
                    raise OSError("the HTTP server ended at once")
                await asyncio.sleep(0.005)


def _behind(door: Door, app: ASGIApp) -> ASGIApp:
    async def marked(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, DOOR: door}, receive, _unless_gone(send))

    return marked


class BodyLimit:
    """Refuses bodies over BODY_MAX, whether announced or not."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not announced.isdigit() or int(announced[:20]) > BODY_MAX:
            await problems.answer(413, f"the body is larger than {BODY_MAX >> 10} KiB")(scope, receive, send)
            return
        taken = 0

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > BODY_MAX:
                raise problems.Refused(413, "the body is too large")
            return message

        async def watched(message: Message) -> None:
            if taken <= BODY_MAX:  # else the application answers to what it could not read; ours is better
                await send(message)

        with contextlib.suppress(problems.Refused):
            await self.app(scope, limited, watched)
        if taken > BODY_MAX:
            await problems.answer(413, f"the body is larger than {BODY_MAX >> 10} KiB")(scope, receive, send)


class HeadAndOptions:
    """ASGI middleware: what a probe, `curl -I` or a client that looks first sends. HEAD is answered as GET is, without
    the body; a stream ends with its headers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"] if scope["type"] == "http" else ""
        if method == "OPTIONS" and (found := methods.of(scope)):
            await Response(status_code=204, headers={"Allow": ", ".join(found)})(scope, receive, send)
        elif method == "HEAD":
            await self._head(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _head(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = {**scope, "method": "GET"}
        ended = False

        async def headers(message: Message) -> None:
            nonlocal ended
            if ended:
                return
            scope["route"] = asked.get("route")  # for who counts answers
            await send(message)
            if message["type"] == "http.response.start":
                ended = True
                await send({"type": "http.response.body", "body": b""})

        await self.app(asked, receive, headers)


class Turns:
    """ASGI middleware: of all requests that are there one begins in each round of the loop, in the order in which they
    came. Who asks all the time, by hundreds of connections, does not have the manager to itself: agents and devices are
    heard between any two of its requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._begun = False  # one did in this round

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        if self._begun:
            turn = loop.create_future()
            self._waiting.append(turn)
            await turn
        else:
            self._begun = True
            loop.call_soon(self._next)
        await self.app(scope, receive, send)

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # its client may have gone
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._begun = False


class RestMeter:
    """ASGI middleware: answers by method, route and status, and the time to their first byte; for `metrics.py`. Every
    label has a bounded set of values.
    """

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, str, int]] = Counter()
        self.times: dict[str, Histogram] = defaultdict(lambda: Histogram(ANSWER_BOUNDS_S))  # s, by route
        self.under_way = 0
        self.connections: Callable[[], Mapping[str, int]] = dict  # now, by door
        self.ended: Callable[[], Mapping[str, int]] = dict  # connections, by reason

    def around(self, app: ASGIApp) -> ASGIApp:
        async def metered(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            began = time.perf_counter_ns()

            async def watched(message: Message) -> None:
                if message["type"] == "http.response.start":
                    self._count(scope, message["status"], time.perf_counter_ns() - began)
                await send(message)

            self.under_way += 1
            try:
                await app(scope, receive, watched)
            finally:
                self.under_way -= 1

        return metered

    def _count(self, scope: Scope, status: int, ns: int) -> None:
        route = str(getattr(scope.get("route"), "path", "other"))  # the template, not what was asked for
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.answers[method, route, status] += 1
        self.times[route].add(ns / 1e9)


def _unless_gone(send: Send) -> Send:
    """Nothing is sent to a client that has gone. uvicorn does so once it is told; until then uvloop's transport raises,
    and each client that hangs up in the middle of an answer would be worth a page of the log.
    """
    transport = getattr(getattr(send, "__self__", None), "transport", None)

    async def sent(message: Message) -> None:
        try:
            await send(message)
        except RuntimeError:
            if transport is None or not transport.is_closing():
                raise

    return sent


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
