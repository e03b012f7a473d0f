"""Ours under `congestion=friendly` while a TCP connection sends over the same narrow link, without an end."""

from __future__ import annotations

import re
import sys
import time

from rostrum.bench.account import must
from rostrum.bench.cases import Case
from rostrum.bench.run import Run, ToolFailed
from rostrum.bench.tools.copies import no_congestion
from rostrum.bench.tools.ours import Ours

PORT = 7101
WARM_S = 3.0  # for which TCP has the link for itself
FAIR = 2.0  # neither may have more than that times what the other has

SINK = """
import socket
listener = socket.create_server(("", {port}))
print("ready", flush=True)
connection, _ = listener.accept()
into = bytearray(1 << 20)
while connection.recv_into(into):
    pass
"""
SOURCE = """
import socket
out = socket.socket()
out.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"{congestion}")
out.connect(("{address}", {port}))
data = bytes(1 << 20)
while True:
    out.sendall(data)
"""


class Beside(Ours):
    """`facts["beside"]`: what either carried while ours ran."""

    def __init__(self, congestion: str) -> None:
        super().__init__("auto", told=False, protocol="wan", options="congestion=friendly")
        self.name, self._congestion = f"friendly+{congestion}", congestion

    def unfit(self, case: Case) -> str:
        return super().unfit(case) or no_congestion(self._congestion)

    def prepare(self, run: Run) -> None:
        super().prepare(run)
        sink = run.start("receivers", run.receivers[0], [sys.executable, "-uc", SINK.format(port=PORT)])
        run.ready([sink], "^ready")

    def send(self, run: Run) -> None:
        text = SOURCE.format(congestion=self._congestion, address=run.receivers[0].address, port=PORT)
        run.start("sender", run.sender, [sys.executable, "-uc", text])
        time.sleep(WARM_S)  # part of the measurement
        before, began = self._acknowledged(run), time.monotonic()
        super().send(run)
        seconds = time.monotonic() - began
        tcp_bps = (self._acknowledged(run) - before) * 8 / seconds
        ours_bps = run.case.size * 8 / seconds
        run.facts["beside"] = {"tcp": self._congestion, "tcp_bps": tcp_bps, "ours_bps": ours_bps,
                               "ratio": ours_bps / tcp_bps if tcp_bps else None}  # fmt: skip

    def _acknowledged(self, run: Run) -> int:
        said = must(*run.sender.argv("ss", "-tinH", "dport", "=", f":{PORT}"))
        found = re.search(r"bytes_acked:(\d+)", said)
        if not found:
            raise ToolFailed(f"TCP {self._congestion} beside ours carries nothing: {said.strip() or 'no connection'}")
        return int(found[1])
