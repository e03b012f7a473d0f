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
from rostrum.bench.wan.points import TOLD_BUFFER, Point

PORT = 7101
FIRST_S = 2.0  # TCP has the link for itself; and
WARM_S = 3.0  # so long, until in that time (slow start is over then)
WARM_SHARE = 0.8  # it has carried so much of it;
WARM_TRIES = 13  # a CUBIC that marks of its own bursts took out of slow start has half of it after 40 s at 200 ms
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


def settings(case: Case) -> dict[str, str]:
    """Linux's TCP asks for no marks by itself, and its own buffers hold it back at 200 ms."""
    marks = isinstance(case, Point) and case.mark > 0
    return {"tcp_ecn": "1" if marks else "2", **{f"tcp_{way}mem": f"4096 131072 {TOLD_BUFFER}" for way in "rw"}}


class Beside(Ours):
    """`facts["beside"]`: what either carried while ours ran."""

    def __init__(self, congestion: str) -> None:
        super().__init__("auto", told=False, protocol="wan", options="congestion=friendly")
        self.name, self._congestion = f"friendly+{congestion}", congestion

    def unfit(self, case: Case) -> str:
        return super().unfit(case) or no_congestion(self._congestion)

    def prepare(self, run: Run) -> None:
        super().prepare(run)
        for host in (run.sender, *run.receivers):
            for key, value in settings(run.case).items():
                must(*host.argv("sysctl", "-q", "-w", f"net.ipv4.{key}={value}"))
        sink = run.start("receivers", run.receivers[0], [sys.executable, "-uc", SINK.format(port=PORT)])
        run.ready([sink], "^ready")
        text = SOURCE.format(congestion=self._congestion, address=run.receivers[0].address, port=PORT)
        run.start("sender", run.sender, [sys.executable, "-uc", text])
        run.facts["warm_s"] = self._warm(run)

    def _warm(self, run: Run) -> float:
        """Until TCP has the link; how long that took."""
        began = time.monotonic()
        time.sleep(FIRST_S)
        for _ in range(WARM_TRIES):
            before, at = self._acknowledged(run), time.monotonic()
            time.sleep(WARM_S)
            if (self._acknowledged(run) - before) * 8 > WARM_SHARE * run.case.rate_bps * (time.monotonic() - at):
                break
        return time.monotonic() - began

    def send(self, run: Run) -> None:
        before, began = self._acknowledged(run), time.monotonic()
        super().send(run)
        seconds = time.monotonic() - began
        tcp_bps = (self._acknowledged(run) - before) * 8 / seconds
        ours_bps = run.case.size * 8 / seconds
        run.facts["beside"] = {"tcp": self._congestion, "tcp_bps": tcp_bps, "ours_bps": ours_bps,
                               "ratio": ours_bps / tcp_bps if tcp_bps else None,
                               "warm_s": run.facts.pop("warm_s")}  # fmt: skip

    def _acknowledged(self, run: Run) -> int:
        said = must(*run.sender.argv("ss", "-tinH", "dport", "=", f":{PORT}"))
        found = re.search(r"bytes_acked:(\d+)", said)
        if not found:
            raise ToolFailed(f"TCP {self._congestion} beside ours carries nothing: {said.strip() or 'no connection'}")
        return int(found[1])
