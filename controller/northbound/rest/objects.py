"""Objects over REST: which there are, and which servers hold them. Applications' ids are the right to their objects:
they are not shown, only fingerprints of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

from fastapi import FastAPI, Query, Request
from pydantic import BaseModel, Field
from rostrum.controller.core.objects import KnownObject, fingerprint
from rostrum.controller.core.text import shown
from rostrum.controller.northbound.rest import problems, tenants
from rostrum.controller.northbound.rest.problems import Refused

if TYPE_CHECKING:
    from rostrum.controller.northbound.rest.routes import Rest

LIST_MAX = 1_000


class ObjectRow(BaseModel):
    """An object that is whole at one server at least."""

    id: str = Field(description="The application's fingerprint and the number", examples=["3f9a01bc-7"])
    app: str = Field(description="Fingerprint of the application's id")
    data_id: str = Field(description="The object's number, unsigned, of 64 bits")
    name: str | None = Field(description="By which its program knows it")
    size: int = Field(description="Bytes")
    digest: str = Field(description="<algorithm>:<hexadecimal>")
    others: int = Field(description="Holders of another object by this id, which have another digest")
    holder_count: int
    fetched_by: int = Field(description="Servers that it is being sent to because they fetch it together")


class ObjectShown(ObjectRow):
    holders: list[str]


class ObjectList(BaseModel):
    objects: list[ObjectRow]
    next: str | None
    count: int = Field(description="All objects there are")


def install(app: FastAPI, rest: Rest) -> None:
    @app.get("/v1/objects", tags=["objects"], responses=problems.responses(422))
    async def list_objects(
        request: Request,
        name: Annotated[str | None, Query(max_length=255, description="Only objects with this in their name")] = None,
        holder: Annotated[str | None, Query(max_length=64, description="Only objects that this server holds")] = None,
        app: Annotated[str | None, Query(pattern="^[0-9a-f]{8}$", description="Only this application's")] = None,
        limit: Annotated[int, Query(ge=1, le=LIST_MAX)] = 100,
        after: Annotated[str | None, Query(max_length=64, description="`next` of the page before")] = None,
    ) -> ObjectList:
        """Objects that agents hold, in the order in which they became known."""
        objects = rest.objects
        behind = _behind(objects.known.values(), after)
        found = objects.matching(app or "", holder or "", name or "", behind)
        tenant = tenants.of(rest.core, request)
        seen = (one for one in found if tenant in ("", one.key.tenant))
        rows = [_row(rest, one) for one in itertools.islice(seen, limit + 1)]
        more = rows[limit - 1].id if len(rows) > limit else None
        return ObjectList(
            objects=rows[:limit], next=more, count=sum(tenant in ("", one.key.tenant) for one in objects.known.values())
        )

    @app.get("/v1/objects/{object_id}", tags=["objects"], responses=problems.responses(404, 409))
    async def show_object(object_id: str, request: Request) -> ObjectShown:
        """One of them, by id, number or name, with the servers that hold it."""
        tenant = tenants.of(rest.core, request)
        found = [one for one in rest.objects.find(object_id) if tenant in ("", one.key.tenant)]
        if not found:
            raise Refused(404, f"no agent holds {shown(object_id)}; GET /v1/objects lists what there is")
        if len(found) > 1:
            ids = ", ".join(one.key.shown for one in found[:8])
            raise Refused(409, f"{len(found)} objects are called {shown(object_id)}: {ids}; take one of these ids")
        one = found[0]
        return ObjectShown(**_row(rest, one).model_dump(), holders=sorted(one.holders))


def _behind(objects: Iterable[KnownObject], after: str | None) -> Iterator[KnownObject]:
    found = iter(objects)
    if after is not None and not any(one.key.shown == after for one in found):  # moves on to what is behind it
        raise Refused(422, f"after: there is no object {shown(after)} (any more); begin again without it")
    return found


def _row(rest: Rest, one: KnownObject) -> ObjectRow:
    digests = [held.digest for held in one.holders.values()]
    usual = max(digests, key=digests.count)
    wanted = rest.objects.wanted.get(one.key)
    return ObjectRow(
        id=one.key.shown,
        app=fingerprint(one.key.app),
        data_id=one.key.shown.partition("-")[2],
        name=one.name or None,
        size=one.size,
        digest=usual,
        others=len(digests) - digests.count(usual),
        holder_count=len(digests),
        fetched_by=len(wanted.served) if wanted else 0,
    )
