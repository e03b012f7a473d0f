"""REST's errors: application/problem+json (RFC 9457), with a detail that says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.values import ObstacleKind, State
from rostrum.controller.northbound.rest import methods, words
from rostrum.controller.northbound.rest.schemas import Problem
from starlette.exceptions import HTTPException

MEDIA_TYPE = "application/problem+json"
TITLES = {
    307: "Elsewhere",
    401: "Not known",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Denied",
    410: "Gone",
    413: "Too large",
    415: "Unsupported media type",
    422: "Unprocessable content",
    500: "Fault of the manager",
    503: "Busy",
}


DENIED = {ObstacleKind.INVALID: 422, ObstacleKind.QUEUE_FULL: 503}  # any other obstacle is 409


class Refused(Exception):
    """Answered with a problem document."""

    def __init__(self, status: int, detail: str, path: str | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.path = status, detail, path


def not_denied(path: Path) -> None:
    """Raises Refused with what was in its request's way."""
    if path.state is State.FAILED and path.stamps.accepted is None:
        raise Refused(DENIED.get(path.obstacle.kind, 409) if path.obstacle else 409, path.cause, path.id)


def answer(status: int, detail: str, path: str | None = None) -> Response:
    made = Problem(title=TITLES.get(status, "Error"), status=status, detail=detail, path=path)
    return JSONResponse(made.model_dump(), status, media_type=MEDIA_TYPE)


def responses(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The problems of an operation, for the OpenAPI document."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {code: {"description": TITLES[code], "content": content} for code in codes}


def install(app: FastAPI) -> None:
    """Every error of the application becomes a problem document, and the OpenAPI document says so."""
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> Response:
        return answer(error.status, error.detail, error.path)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        detail = str(error.detail)
        if error.status_code == 400:  # how FastAPI calls bytes that are no text, or are nested too deep
            return answer(422, "the body cannot be read as JSON in UTF-8")
        if error.status_code in (404, 405):
            detail = f"{detail}: {request.method} {request.url.path[:100]}; /docs lists what there is"
        made = answer(error.status_code, detail)
        made.headers.update(error.headers or {})
        if error.status_code == 405:
            made.headers["Allow"] = ", ".join(methods.of(request.scope))
        return made

    @app.exception_handler(Exception)
    async def fault(request: Request, _: Exception) -> Response:
        message = (
            "the manager could not do this because of a fault of its own; paths and transfers go on. Its log has the "
            "cause: please report it with that"
        )
        return answer(500, f"{request.method} {request.url.path[:100]}: {message}")

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        given = request.headers.get("content-type", "none")
        if error.body is not None and "json" not in given and any(one["loc"] == ("body",) for one in error.errors()):
            return answer(415, f"the body's Content-Type is {given[:60]}; send Content-Type: application/json")
        return answer(422, "; ".join(_text(error.errors())) or "the request cannot be read")


def operation_id(route: APIRoute) -> str:
    """The name of its function, for clients made from the OpenAPI document."""
    return route.name


def _document(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document, with problem documents in place of its own form of errors."""
    if not app.openapi_schema:
        made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for operations in made["paths"].values():
            for method, operation in operations.items():
                if method != "get":
                    operation["responses"]["403"] = responses(403)[403]
                operation["responses"]["401"] = responses(401)[401]
                if "requestBody" in operation:
                    operation["responses"]["415"] = responses(415)[415]
                if "422" in operation["responses"]:
                    operation["responses"]["422"] = responses(422)[422]
        known = made["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            known.pop(name, None)
        schemes = {"bearer": {"type": "http", "scheme": "bearer"}, "certificate": {"type": "mutualTLS"}}
        made["components"]["securitySchemes"] = schemes
        made["servers"] = [{"url": "/", "description": "the manager that this document comes from"}]
        made["security"] = [{"bearer": []}, {"certificate": []}, {}]  # the last: unix socket and loopback
        known["Problem"] = Problem.model_json_schema()
        words.complete(made)
        app.openapi_schema = made
    return app.openapi_schema


def _text(errors: Sequence[Any]) -> list[str]:
    fields = []
    for error in errors[:8]:
        place = ".".join(str(part) for part in error["loc"] if part not in ("body", "query", "path"))
        if error["type"] == "json_invalid":
            fields.append(f"the body is no JSON: {error.get('ctx', {}).get('error', '')}")
        elif error["type"] == "extra_forbidden":
            fields.append(f"{place[:60]}: there is no such field; /docs lists them")
        else:
            fields.append(f"{place[:60] or 'body'}: {error['msg'][:200]}")
    if len(errors) > 8:
        fields.append(f"and {len(errors) - 8} more")
    return fields
