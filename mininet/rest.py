"""The manager's REST interface over its unix socket, with the standard library alone."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rostrum.lab.namespace import LabError


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("manager", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def page(socket_path: Path, url: str = "/metrics", timeout_s: float = 10.0) -> str:
    """What is served there over a unix socket, as text. Raises LabError."""
    connection = _UnixConnection(socket_path, timeout_s)
    try:
        connection.request("GET", url)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise LabError(f"nobody answers at {socket_path}: {error}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise LabError(f"{socket_path}: GET {url}: {answer.status}: {text[:200]}")
    return text


class Rest:
    """Calls to a manager at `<run>/manager.sock`."""

    def __init__(self, run: Path, timeout_s: float = 10.0) -> None:
        self.path, self.timeout_s = run / "manager.sock", timeout_s

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """(HTTP status, decoded JSON). Raises LabError if the manager cannot be reached."""
        connection = _UnixConnection(self.path, self.timeout_s)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"} if text else {})
            answer = connection.getresponse()
            content = answer.read()
            return answer.status, json.loads(content) if content else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LabError(f"the manager does not answer at {self.path}: {error}") from error
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """The answer to GET. Raises LabError on any status but 200."""
        status, value = self.call("GET", path)
        if status != 200:
            raise LabError(f"manager: GET {path}: {status}: {value}")
        return value


async def forward(address: str, port: int, target: Path, ready: Callable[[str], None]) -> None:
    """Takes TCP connections to the manager's unix socket, until it is cancelled. Raises LabError: no such address."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_manager, to_manager = await asyncio.open_unix_connection(target)
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\nthe lab's manager does not answer\n")
            writer.close()
            return
        await asyncio.gather(copy(reader, to_manager), copy(from_manager, writer))

    try:
        server = await asyncio.start_server(serve, address, port)
    except OSError as error:
        raise LabError(f"{address}:{port}: {error.strerror or error}") from error
    ready("{}:{}".format(*server.sockets[0].getsockname()[:2]))
    async with server:
        await server.serve_forever()
