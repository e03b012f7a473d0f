"""The console's stream: parts of the overview as server-sent events, each when it changed.

Nothing is made while nobody looks. One view serves all who look at the same time, and the next one is made when the
cost of the last is a twentieth of the time since. A viewer who reads slowly skips what is out of date: nothing waits
for it but the latest of each part; one who takes nothing is cut off.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from rostrum.controller.core.state import Core
from rostrum.controller.northbound.console import overview
from rostrum.controller.northbound.rest.events import STOPS, encode
from rostrum.controller.northbound.rest.views import WallClock
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

VIEWERS_MAX = 64
INTERVAL_S = 1.0  # between two views at least
SHARE = 20  # a view that cost t is followed by the next one after SHARE * t at the earliest
HEARTBEAT_S = 15.0
SEND_BOUND_S = 10.0  # a viewer that takes nothing for so long is cut off
LIFE_S = 3600.0  # of one stream: whose token was taken back is asked again then
ANEW = "an hour is over; connect again"


class Viewer:
    """One open stream. `seen`: the version of each part that it was sent."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}
        self.news = asyncio.Event()
        self.end = ""


class Board:
    """The latest view, and who looks at it. `now`: the manager's clock."""

    def __init__(self, core: Callable[[], Core], now: Callable[[], int], started: int, wall: WallClock) -> None:
        self._core, self._now, self._started, self._wall = core, now, started, wall
        self.viewers: set[Viewer] = set()
        self._task: asyncio.Task[None] | None = None
        self._texts: dict[str, bytes] = {}  # as JSON, by part
        self._versions: dict[str, int] = {}
        self._made_at = float("-inf")  # monotonic s
        self._cost_s = 0.0  # of the last one
        self.made = 0
        self.seconds = 0.0  # what all views together cost
        self.cut_off = 0

    @property
    def full(self) -> bool:
        return len(self.viewers) >= VIEWERS_MAX

    @property
    def pause_s(self) -> float:
        """From the last view to the next."""
        return max(INTERVAL_S, SHARE * self._cost_s)

    def latest(self) -> bytes:
        """The whole overview as JSON; not older than `pause_s`."""
        self._refresh()
        return b"{" + b",".join(b'"%b":%b' % (name.encode(), self._texts[name]) for name in overview.PARTS) + b"}"

    def news(self, viewer: Viewer) -> bytes:
        """Events of the parts that changed since it was sent some; empty if none has."""
        told = b""
        for name in overview.PARTS:
            if viewer.seen.get(name) != self._versions[name]:
                viewer.seen[name] = self._versions[name]
                told += b"event: %b\ndata: %b\n\n" % (name.encode(), self._texts[name])
        return told

    @contextmanager
    def viewer(self) -> Iterator[Viewer]:
        made = Viewer()
        self._refresh()
        made.news.set()
        self.viewers.add(made)
        if self._task is None:
            self._task = asyncio.create_task(self._look())
        try:
            yield made
        finally:
            self.viewers.discard(made)
            if not self.viewers and self._task:
                self._task.cancel()
                self._task = None

    def close(self) -> None:
        """Everybody is told that the manager stops."""
        for one in self.viewers:
            one.end = STOPS
            one.news.set()

    def collect(self) -> Iterator[Metric]:
        """For `GET /metrics`."""
        yield GaugeMetricFamily("rostrum_console_viewers", "Who follows the console's stream.", len(self.viewers))
        text = "Viewers of the console that were cut off because they took nothing."
        yield CounterMetricFamily("rostrum_console_cut_off", text, self.cut_off)
        yield CounterMetricFamily("rostrum_console_views", "Overviews made for those who look.", self.made)
        yield CounterMetricFamily("rostrum_console_seconds", "Time that making them took.", self.seconds)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self.pause_s)
            self._refresh()
            for one in self.viewers:
                if one.seen != self._versions:
                    one.news.set()

    def _refresh(self) -> None:
        """Makes a new view if the last one is old enough."""
        began = time.monotonic()
        if began - self._made_at < 0.9 * self.pause_s:
            return
        cost = time.thread_time()
        for name, part in overview.parts(self._core(), self._now(), self._started, self._wall).items():
            text = json.dumps(part, separators=(",", ":")).encode()
            if self._texts.get(name) != text:
                self._texts[name] = text
                self._versions[name] = self._versions.get(name, 0) + 1
        self._made_at, self._cost_s = began, time.thread_time() - cost
        self.made += 1
        self.seconds += self._cost_s


class BoardStream(Response):
    """The answer to one viewer."""

    media_type = "text/event-stream"

    def __init__(self, board: Board, status_code: int = 200) -> None:  # FastAPI documents the default
        super().__init__(status_code=status_code, headers={"Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._board = board

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = asyncio.ensure_future(_gone(receive))
        until = time.monotonic() + LIFE_S
        try:
            with self._board.viewer() as viewer:
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                while not left.done():
                    if not viewer.end and time.monotonic() > until:
                        viewer.end = ANEW
                    text = encode("end", {"detail": viewer.end}) if viewer.end else self._board.news(viewer)
                    async with asyncio.timeout(SEND_BOUND_S):
                        more = {"body": text or b": nothing new\n\n", "more_body": not viewer.end}
                        await send({"type": "http.response.body", **more})
                    if viewer.end:
                        return
                    viewer.news.clear()
                    await _news(viewer, left)
        except TimeoutError:
            self._board.cut_off += 1  # it takes nothing, not even why
        finally:
            left.cancel()


async def _news(viewer: Viewer, left: asyncio.Future[None]) -> None:
    """Returns when there are some, when the viewer has left, or after a while without."""
    coming = asyncio.ensure_future(viewer.news.wait())
    try:
        await asyncio.wait((coming, left), timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        coming.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
