"""An agent's connection, as the load generator has it."""

from __future__ import annotations

import socket

from rostrum.bench.manager import frames

OUTCOMES = {frames.ACCEPTED: "accepted", frames.DENIED: "denied", frames.QUEUED: "queued"}


class Talk:
    def __init__(self, sock: socket.socket, requests: list[tuple[bytes, bytes]]) -> None:
        self.sock, self.requests, self.rest = sock, requests, b""
        self.releases = True
        self._turn = 0
        self._keepalive = frames.keepalive()

    @classmethod
    def connect(cls, port: int, server: str, wanted: list[list[str]], size: int) -> Talk:
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(frames.hello(server, 1))
        return cls(sock, [frames.request(server, receivers, size) for receivers in wanted])

    def ask(self, number: int) -> None:
        head, tail = self.requests[self._turn]
        self._turn = (self._turn + 1) % len(self.requests)
        self.sock.sendall(b"%b%b%b" % (head, frames.request_id(number), tail))

    def hear(self, data: bytes) -> list[tuple[int, str]]:
        found, self.rest = frames.answers(self.rest + data)
        if self.releases:
            back = [frames.release(wanted, path) for wanted, path, decision in found if decision == frames.ACCEPTED]
            if back:
                self.sock.sendall(b"".join(back))
        return [(int(wanted, 16), OUTCOMES[decision]) for wanted, _, decision in found]

    def keepalive(self) -> None:
        self.sock.sendall(self._keepalive)
