"""The console's web page and the documentation of REST, as files that a browser gets from here and nowhere else; and
what these pages read besides the rest of REST.

The pages themselves are for everybody who reaches the address, since they hold nothing: what they show they read from
REST, with the token that is entered there.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from fastapi import FastAPI, Request
from pydantic import BaseModel, Field
from rostrum.controller.northbound.console.board import BoardStream
from rostrum.controller.northbound.console.overview import OverviewView
from rostrum.controller.northbound.rest import problems
from rostrum.controller.northbound.rest.access import CALLER, DOOR, GUARDED
from rostrum.controller.northbound.rest.problems import Refused
from starlette.responses import RedirectResponse, Response

if TYPE_CHECKING:
    from rostrum.controller.northbound.rest.routes import Rest

OWN, SWAGGER = "rostrum.controller.northbound.console", "fastapi_swagger"
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "png": "image/png"}
FILES = {
    **{f"/console/{name}": (OWN, f"static/{name}") for name in ("console.css", "console.js", "panels.js", "parts.js")},
    "/console/icon.svg": (OWN, "static/icon.svg"),
    "/console": (OWN, "static/console.html"),
    "/docs": (OWN, "static/docs.html"),
    "/docs/docs.js": (OWN, "static/docs.js"),
    "/docs/swagger-ui.css": (SWAGGER, "resources/swagger-ui.css"),
    "/docs/swagger-ui-bundle.js": (SWAGGER, "resources/swagger-ui-bundle.js"),
}
OPEN_TO_ALL = frozenset({"/", *FILES})
STRICT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": STRICT,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class CallerView(BaseModel):
    name: str
    role: Literal["read", "write"]
    asked: bool = Field(description="Whether this address asks who calls")
    token: Literal["read", "write"] | None = Field(description="Role of the token sent, if it is known here")


def install(app: FastAPI, rest: Rest) -> None:
    board = rest.board

    @app.get("/v1/caller", tags=["state"])
    async def show_caller(request: Request) -> CallerView:
        """Who calls, and what they may do."""
        caller = request.scope[CALLER]
        known = rest.access.by_token(request.scope)
        asked = request.scope.get(DOOR, GUARDED).caller is None
        return CallerView(name=caller.name, role=caller.role, asked=asked, token=known.role if known else None)

    @app.get("/v1/overview", tags=["state"], response_model=OverviewView)
    async def show_overview() -> Response:
        """The state in short: servers by rack, light, transfers, groups; what the console and `rostrum top` show. As
        old as a second, or more where it costs much.
        """
        return Response(board.latest(), media_type="application/json")

    @app.get("/v1/overview/events", tags=["state"], response_class=BoardStream, responses=problems.responses(503))
    async def follow_overview() -> Response:
        """Server-sent events: the parts of the overview, each as a whole when it changed, at most once a second; `end`
        with the reason."""
        if board.full:
            raise Refused(503, f"{len(board.viewers)} viewers look already; close one, or poll GET /v1/overview")
        return BoardStream(board)

    app.add_api_route("/", lambda: RedirectResponse("/console"), include_in_schema=False)
    for path, (package, name) in FILES.items():
        app.add_api_route(path, _file(package, name), include_in_schema=False, methods=["GET", "HEAD"])


def _file(package: str, name: str) -> Callable[[], Response]:
    """Read once, when it is asked for first."""
    content: list[bytes] = []

    def answer() -> Response:
        if not content:
            content.append(importlib.resources.files(package).joinpath(name).read_bytes())
        return Response(content[0], media_type=TYPES[name.rpartition(".")[2]], headers=HEADERS)

    return answer
