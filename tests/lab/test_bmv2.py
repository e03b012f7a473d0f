"""How BMv2 is asked for deeper queues: what it is told, and what comes of answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from rostrum.lab import bmv2


class Debugger:
    """A Thrift port that answers one call."""

    def __init__(self, answer: bytes) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.heard = b""
        self._answer = answer
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        link, _ = self.listener.accept()
        with link:
            self.heard = link.recv(4096)
            link.sendall(self._answer)

    def close(self) -> None:
        self.listener.close()
        self._thread.join(5)


@pytest.fixture(params=[bytes.fromhex("80010002"), bytes.fromhex("80010003"), b"", b"HTTP/1.1 400"])
def debugger(request: pytest.FixtureRequest) -> Iterator[Debugger]:
    made = Debugger(request.param)
    yield made
    made.close()


def test_set_depth__asks_all_egress_queues_and_believes_only_a_reply(debugger: Debugger) -> None:
    if debugger._answer == bytes.fromhex("80010002"):
        bmv2.set_depth(debugger.port, 1000)
    else:
        with pytest.raises(ValueError, match="it answered"):
            bmv2.set_depth(debugger.port, 1000)
    assert debugger.heard[:4] == bytes.fromhex("80010001")
    assert b"simple_switch:set_all_egress_queue_depths" in debugger.heard
    assert debugger.heard.endswith(bytes.fromhex("08 0001 000003e8 00"))


def test_set_depth__nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(OSError):
            bmv2.set_depth(free.getsockname()[1], 1000)
