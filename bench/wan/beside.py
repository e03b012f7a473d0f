"""Ours under `congestion=friendly` while a TCP connection sends over the same narrow link, without an end; and what
that TCP has there alone, and beside another that comes when ours would."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass

from rostrum.bench.account import must
from rostrum.bench.cases import Case
from rostrum.bench.run import Plain, Run, ToolFailed
from rostrum.bench.tools.copies import no_congestion
from rostrum.bench.tools.ours import Ours
from rostrum.bench.wan.points import TOLD_BUFFER, Point

PORT = 7101
LOOK_S = 0.5  # TCP has the link for itself until its slow start is over, and then
WARM_S = 3.0  # so long, until in that time
WARM_SHARE = 0.8  # it has carried so much of it;
WARM_MOST_S = 20.0  # or so long in all: marked for its own bursts a CUBIC has half of it after 40 s at 200 ms
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
    """Linux's TCP asks for no marks by itself, its own buffers hold it back at 200 ms, and it learns from a connection
    for the next."""
    marks = isinstance(case, Point) and case.mark > 0
    return {"tcp_ecn": "1" if marks else "2", "tcp_no_metrics_save": "1",
            **{f"tcp_{way}mem": f"4096 131072 {TOLD_BUFFER}" for way in "rw"}}  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """Of a connection, as `ss` tells it."""

    acked: int  # bytes
    started: bool  # slow start (BBR: its startup) is over: there is a threshold

    @classmethod
    def of(cls, said: str) -> Seen | None:
        found = re.search(r"bytes_acked:(\d+)", said)
        return cls(int(found[1]), "ssthresh:" in said) if found else None


class Connection:
    """A TCP that sends without an end to the first receiver."""

    def __init__(self, run: Run, congestion: str, port: int = PORT) -> None:
        self._run, self._congestion, self._port = run, congestion, port
        sink = run.start("receivers", run.receivers[0], [sys.executable, "-uc", SINK.format(port=port)])
        run.ready([sink], "^ready")

    def start(self) -> None:
        text = SOURCE.format(congestion=self._congestion, address=self._run.receivers[0].address, port=self._port)
        self._run.start("sender", self._run.sender, [sys.executable, "-uc", text])

    def seen(self) -> Seen:
        said = must(*self._run.sender.argv("ss", "-tinH", "dport", "=", f":{self._port}"))
        if not (seen := Seen.of(said)):
            raise ToolFailed(f"TCP {self._congestion} carries nothing: {said.strip() or 'no connection'}")
        return seen

    def warm(self) -> float:
        """Starts it, and waits until it has the link; how long that took."""
        self.start()
        began = at = time.monotonic()
        time.sleep(LOOK_S)
        before: Seen | None = None
        while time.monotonic() < began + WARM_MOST_S:
            now = self.seen()
            if not before or not before.started:
                before, at = now, time.monotonic()
            elif (passed := time.monotonic() - at) >= WARM_S:
                if (now.acked - before.acked) * 8 > WARM_SHARE * self._run.case.rate_bps * passed:
                    break
                before, at = now, time.monotonic()
            time.sleep(LOOK_S)
        return time.monotonic() - began


def ready(run: Run, congestion: str) -> Connection:
    """The first connection, not started yet."""
    for host in (run.sender, *run.receivers):
        for key, value in settings(run.case).items():
            must(*host.argv("sysctl", "-q", "-w", f"net.ipv4.{key}={value}"))
    return Connection(run, congestion)


class Beside(Ours):
    """`facts["beside"]`: what either carried while ours ran."""

    _first: Connection

    def __init__(self, congestion: str) -> None:
        super().__init__("auto", told=False, protocol="wan", options="congestion=friendly")
        self.name, self._congestion = f"friendly+{congestion}", congestion

    def unfit(self, case: Case) -> str:
        return super().unfit(case) or no_congestion(self._congestion)

    def prepare(self, run: Run) -> None:
        super().prepare(run)
        self._first = ready(run, self._congestion)
        run.facts["warm_s"] = self._first.warm()

    def send(self, run: Run) -> None:
        before, began = self._first.seen().acked, time.monotonic()
        super().send(run)
        seconds = time.monotonic() - began
        tcp_bps = (self._first.seen().acked - before) * 8 / seconds
        ours_bps = run.case.size * 8 / seconds
        run.facts["beside"] = {"tcp": self._congestion, "tcp_bps": tcp_bps, "ours_bps": ours_bps,
                               "ratio": ours_bps / tcp_bps if tcp_bps else None,
                               "warm_s": run.facts.pop("warm_s")}  # fmt: skip


class Without(Plain):
    """`facts["without"]`: what TCP carries in the time in which ours would have half of the link, and where `second`,
    what another of its kind does that comes when ours would."""

    timed = "that time"
    _first: Connection
    _second: Connection | None = None

    def __init__(self, congestion: str, second: bool) -> None:
        self.name, self._congestion, self._pair = alone_name(congestion), congestion, second
        if second:
            self.name = pair_name(congestion)

    def unfit(self, case: Case) -> str:
        return no_congestion(self._congestion)

    def prepare(self, run: Run) -> None:
        self._first = ready(run, self._congestion)
        self._second = Connection(run, self._congestion, PORT + 1) if self._pair else None
        run.facts["warm_s"] = self._first.warm()

    def send(self, run: Run) -> None:
        assert isinstance(run.case, Point)
        before, began = self._first.seen().acked, time.monotonic()
        if self._second:
            self._second.start()
        time.sleep(2 * run.case.size * 8 / run.case.ideal_bps)  # part of the measurement
        seconds = time.monotonic() - began
        found = {"tcp": self._congestion, "tcp_bps": (self._first.seen().acked - before) * 8 / seconds}
        if self._second:
            found["second_bps"] = self._second.seen().acked * 8 / seconds
        run.facts["without"] = {**found, "warm_s": run.facts.pop("warm_s")}

    def received(self, run: Run, host: object) -> None:
        return None


def alone_name(congestion: str) -> str:
    return f"{congestion}-alone"


def pair_name(congestion: str) -> str:
    return f"{congestion}+{congestion}"
