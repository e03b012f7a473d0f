"""What can be done with a path."""

from __future__ import annotations

from starlette.routing import Match
from starlette.types import Scope


def of(scope: Scope) -> list[str]:
    """What can be done with a request's path: each operation is a route of its own. Empty: there is no such path."""
    found: set[str] = set()
    for route in scope["app"].routes:
        if route.matches(scope)[0] is not Match.NONE:
            found |= set(getattr(route, "methods", None) or ())
    if "GET" in found:
        found.add("HEAD")
    return sorted(found | {"OPTIONS"}) if found else []
