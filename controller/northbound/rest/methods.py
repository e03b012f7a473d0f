"""HEAD and OPTIONS, for every path: what a probe, `curl -I` or a client that looks before it writes sends."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send


def of(scope: Scope) -> list[str]:
    """What can be done with a request's path: each operation is a route of its own. Empty: there is no such path."""
    found: set[str] = set()
    for route in scope["app"].routes:
        if route.matches(scope)[0] is not Match.NONE:
            found |= set(getattr(route, "methods", None) or ())
    if "GET" in found:
        found.add("HEAD")
    return sorted(found | {"OPTIONS"}) if found else []


class HeadAndOptions:
    """ASGI middleware. HEAD is answered as GET is, without the body; a stream ends with its headers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"] if scope["type"] == "http" else ""
        if method == "OPTIONS" and (found := of(scope)):
            await Response(status_code=204, headers={"Allow": ", ".join(found)})(scope, receive, send)
        elif method == "HEAD":
            await self._head(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _head(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = {**scope, "method": "GET"}
        ended = False

        async def headers(message: Message) -> None:
            nonlocal ended
            if ended:
                return
            scope["route"] = asked.get("route")  # for who counts answers
            await send(message)
            if message["type"] == "http.response.start":
                ended = True
                await send({"type": "http.response.body", "body": b""})

        await self.app(asked, receive, headers)
