"""REST's answers, counted for `metrics.py`. Every label has a bounded set of values."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

from rostrum.controller.northbound.metrics.stats import ANSWER_BOUNDS_S, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS")


class RestMeter:
    """ASGI middleware: answers by method, route and status, and the time to their first byte."""

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, str, int]] = Counter()
        self.times: dict[str, Histogram] = defaultdict(lambda: Histogram(ANSWER_BOUNDS_S))  # s, by route
        self.under_way = 0
        self.connections: Callable[[], Mapping[str, int]] = dict  # now, by door
        self.ended: Callable[[], Mapping[str, int]] = dict  # connections, by reason

    def around(self, app: ASGIApp) -> ASGIApp:
        async def metered(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            began = time.perf_counter_ns()

            async def watched(message: Message) -> None:
                if message["type"] == "http.response.start":
                    self._count(scope, message["status"], time.perf_counter_ns() - began)
                await send(message)

            self.under_way += 1
            try:
                await app(scope, receive, watched)
            finally:
                self.under_way -= 1

        return metered

    def _count(self, scope: Scope, status: int, ns: int) -> None:
        route = str(getattr(scope.get("route"), "path", "other"))  # the template, not what was asked for
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.answers[method, route, status] += 1
        self.times[route].add(ns / 1e9)
