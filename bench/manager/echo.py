"""Answers every request at once, with what a manager might say: what the load generator can do at most."""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from pathlib import Path

from rostrum.bench.manager import frames
from rostrum.controller.northbound.thrift.codec import encode, idl

_BLANK = "?" * frames.ID_BYTES


def answer(receivers: int) -> list[bytes]:
    """What comes before and after the request's id."""
    addresses = [idl.ServerAddress(server=f"h{n}", address=f"10.0.0.{n}", control_port=7071) for n in range(receivers)]
    response = idl.PathResponse(
        request_id=_BLANK, response_id="p-abcd-1234567", decision=frames.ACCEPTED, reason="", accepted_size=1,
        kind=1, group="239.192.0.1", data_port=7070, reconfiguration_ns=0, rate_bps=10**10, lease_ms=3000,
        light_bound_ms=410, receivers=addresses,
    )  # fmt: skip
    return encode("Agent", "response", {"response": response}).split(_BLANK.encode())


def serve(listener: socket.socket, receivers: int) -> None:
    """Until stdin ends."""
    head, tail = answer(receivers)
    poll = select.epoll()
    poll.register(listener.fileno(), select.EPOLLIN)
    poll.register(sys.stdin.fileno(), select.EPOLLIN | select.EPOLLHUP)
    open_: dict[int, tuple[socket.socket, bytearray]] = {}
    while True:
        for fd, _ in poll.poll():
            if fd == sys.stdin.fileno():
                return
            if fd == listener.fileno():
                sock, _ = listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                open_[sock.fileno()] = (sock, bytearray())
                poll.register(sock.fileno(), select.EPOLLIN)
                continue
            sock, buffer = open_[fd]
            data = sock.recv(1 << 16)
            if not data:
                poll.unregister(fd)
                open_.pop(fd)[0].close()
                continue
            buffer += data
            back = []
            while len(buffer) >= 4 and len(buffer) - 4 >= (length := int.from_bytes(buffer[:4], "big")):
                if buffer[12:19] == b"request":
                    at = 4 + 4 + 4 + 7 + 4 + 3 + 3 + 4
                    back += [head, bytes(buffer[at : at + frames.ID_BYTES]), tail]
                del buffer[: 4 + length]
            if back:
                sock.sendall(b"".join(back))


def main() -> None:
    case = json.loads(Path(sys.argv[1]).read_text())["case"]
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    print(json.dumps({"thrift": port, "rest": 0, "pid": os.getpid()}), flush=True)
    serve(listener, sum(case["receivers"]) // 2)


if __name__ == "__main__":
    main()
