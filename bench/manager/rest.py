"""A connection to the manager's REST interface, as the load generator has it: POST a path, then DELETE it."""

from __future__ import annotations

import json
import re
import socket
from collections import deque

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_PATH = re.compile(rb'"id": ?"([^"]+)"')


class Talk:
    def __init__(self, sock: socket.socket, bodies: list[bytes]) -> None:
        self.sock, self.bodies, self.rest = sock, bodies, b""
        self.releases = True
        self._turn = 0
        self._asked: deque[int] = deque()  # 0 = a DELETE; HTTP answers in the order of requests

    @classmethod
    def connect(cls, port: int, server: str, wanted: list[list[str]], size: int) -> Talk:
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bodies = [json.dumps({"sender": server, "receivers": one, "size": size}).encode() for one in wanted]
        return cls(sock, [_http(b"POST", b"/v1/paths", body) for body in bodies])

    def ask(self, number: int) -> None:
        self._asked.append(number)
        self.sock.sendall(self.bodies[self._turn])
        self._turn = (self._turn + 1) % len(self.bodies)

    def hear(self, data: bytes) -> list[tuple[int, str]]:
        self.rest += data
        found: list[tuple[int, str]] = []
        while (at := self.rest.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self.rest, 0, at)
            end = at + 4 + (int(length[1]) if length else 0)
            if len(self.rest) < end:
                break
            answer, self.rest = self.rest[:end], self.rest[end:]
            number = self._asked.popleft()
            if number == 0:
                continue
            made = answer.startswith(b"HTTP/1.1 201")
            found.append((number, "accepted" if made else "denied"))
            path = _PATH.search(answer, at)
            if made and path and self.releases:
                self._asked.append(0)
                self.sock.sendall(_http(b"DELETE", b"/v1/paths/" + path[1]))
        return found

    def keepalive(self) -> None:
        """HTTP needs none."""


def _http(method: bytes, target: bytes, body: bytes = b"") -> bytes:
    head = b"%b %b HTTP/1.1\r\nHost: manager\r\nContent-Length: %d\r\n" % (method, target, len(body))
    return head + (b"Content-Type: application/json\r\n" if body else b"") + b"\r\n" + body
