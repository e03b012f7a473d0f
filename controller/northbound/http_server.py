"""uvicorn on the manager's own loop: TCP addresses and a unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from rostrum.controller.northbound.access import DOOR, LOOPBACK, PEER, SOCKET, Door
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

BACKLOG = 512
STARTUP_BOUND_S = 10.0


class _Server(uvicorn.Server):
    """Signals are the manager's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Protocol(HttpToolsProtocol):
    """Keeps what a client's certificate says."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"][PEER] = self.transport.get_extra_info("peercert")


class HttpServer:
    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._running: list[tuple[_Server, asyncio.Task[None]]] = []

    async def listen_tcp(
        self, host: str, port: int, door: Door = LOOPBACK, tls: Mapping[str, Any] | None = None
    ) -> int:
        """Returns the port. `tls`: uvicorn's ssl options. Raises OSError if the address cannot be had."""
        bound = socket.create_server(
            (host, port), backlog=BACKLOG, family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
        bound.setblocking(False)
        number: int = bound.getsockname()[1]
        await self._serve(_Server(self._config(door, **(tls or {}))), [bound])
        return number

    async def listen_unix(self, path: Path) -> None:
        """A socket left behind by a manager that was killed is replaced. Raises OSError."""
        _remove(path)
        await self._serve(_Server(self._config(SOCKET, uds=str(path))), None)

    async def close(self) -> None:
        """Requests under way have a moment to end."""
        for server, _ in self._running:
            server.should_exit = True
        for _, task in self._running:
            await asyncio.wait((task,), timeout=3.0)
            task.cancel()
        self._running.clear()

    def _config(self, door: Door, **more: Any) -> uvicorn.Config:
        return uvicorn.Config(
            _behind(door, self._app),
            **more,
            loop="none",
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
            limit_concurrency=1024,
        )

    async def _serve(self, server: _Server, sockets: list[socket.socket] | None) -> None:
        task = asyncio.create_task(server.serve(sockets))
        self._running.append((server, task))
        async with asyncio.timeout(STARTUP_BOUND_S):
            while not server.started:
                if task.done():
                    task.result()
                    raise OSError("the HTTP server ended at once")
                await asyncio.sleep(0.005)


def _behind(door: Door, app: ASGIApp) -> ASGIApp:
    async def marked(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, DOOR: door}, receive, send)

    return marked


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
