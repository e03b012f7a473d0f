"""What callers of a tenant may do by REST: look at, make and give back what is their tenant's, and nothing else.
Whoever has no tenant of the topology looks after the whole network.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rostrum.controller.core.groups.state import Group
from rostrum.controller.core.groups.trees import bits
from rostrum.controller.core.requests.paths import Path
from rostrum.controller.core.state import Core
from rostrum.controller.core.text import shown
from rostrum.controller.northbound.rest.access import CALLER, Caller
from starlette.requests import Request
from starlette.types import Scope

if TYPE_CHECKING:
    from rostrum.controller.northbound.rest.routes import Rest

LISTS = ("/v1/paths", "/v1/groups", "/v1/objects", "/v1/tenants")  # which their handlers shorten
SAME_FOR_ALL = ("/v1/caller", "/v1/engines", "/openapi.json")
_PATH = re.compile(r"/v1/paths/([^/]+)(/[a-z]+(/[^/]+)?)?")
_GROUP = re.compile(r"/v1/groups/([^/]+)")
_OBJECT = re.compile(r"/v1/objects/[^/]+")


def install(rest: Rest) -> None:
    """Has REST's access ask."""
    if rest.core.topology.tenants:
        rest.access.beyond = lambda scope, caller: _beyond(rest, scope, caller)


def of(core: Core, request: Request) -> str:
    """The tenant whose things the caller sees; empty = all."""
    caller = request.scope.get(CALLER)
    return caller.tenant if caller and caller.tenant in core.topology.tenants else ""


def of_path(core: Core, path: Path) -> str:
    return core.topology.tenant_of(path.request.sender)


def of_group(core: Core, group: Group) -> str:
    """By its name; else of those who are in it; empty = nobody's."""
    first = next(iter(bits(group.everybody)), None)
    named = core.topology.tenant_of_group(group.name)
    return named or ("" if first is None else core.topology.tenant_of(core.members.places.names[first]))


def _beyond(rest: Rest, scope: Scope, caller: Caller) -> str:
    """Why this is not for the caller; empty = it is."""
    core, place = rest.core, scope["path"]
    if caller.tenant not in core.topology.tenants:
        return (
            f"the topology file has no tenant {caller.tenant}, which the token or certificate of {caller.name} names"
            if caller.listed and caller.tenant != NETWORK
            else ""
        )
    if place in SAME_FOR_ALL or place in LISTS or _OBJECT.fullmatch(place):
        return ""
    if found := _PATH.fullmatch(place):
        path = rest.runtime.path(found[1])
        other = path is None or of_path(core, path) != caller.tenant
        return f"there is no path {shown(found[1])} of tenant {caller.tenant}" if other else ""
    if found := _GROUP.fullmatch(place):
        group = core.members.groups.get(found[1])
        other = group is None or of_group(core, group) != caller.tenant
        return f"there is no group {shown(found[1])} of tenant {caller.tenant}" if other else ""
    return f"{caller.name} is of tenant {caller.tenant}, and {place[:100]} is for those who look after the network"


NETWORK = "network"  # the tenant of tokens whose holders look after all
