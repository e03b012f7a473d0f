"""The manager's REST interface over its unix socket, with the standard library alone."""

from __future__ import annotations

import http.client
import json
import socket
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
