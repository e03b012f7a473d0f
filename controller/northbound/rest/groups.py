"""Message groups over REST: which there are, who is in them, what address they share, and what that wastes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import FastAPI, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from rostrum.controller.core import events as ev
from rostrum.controller.core.groups import values as groups
from rostrum.controller.core.groups.membership import described
from rostrum.controller.core.groups.state import Group, Membership
from rostrum.controller.core.state import Core
from rostrum.controller.core.text import shown
from rostrum.controller.northbound.rest import problems, tenants
from rostrum.controller.northbound.rest.access import CALLER
from rostrum.controller.northbound.rest.problems import Refused

if TYPE_CHECKING:
    from rostrum.controller.northbound.rest.routes import Rest

LIST_MAX = 1_000
GroupName = Annotated[str, StringConstraints(pattern=f"^{groups.NAME.pattern}$")]


class NewGroup(BaseModel):
    """A group to make before anybody joins it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: GroupName = Field(examples=["ticks.eu"])
    protocol: str = Field("plain", max_length=64, description="plain (unreliable) or ricochet: GET /v1/engines")
    order: Literal["none", "fifo", "sender", "agreed", "total"] = Field(
        "none",
        description="As messages come; of each sender; guaranteed: of each sender, one for all, and once all have it",
    )
    guarantee: Literal["best-effort", "reliable", "virtual-synchrony"] | None = Field(
        None, description="Of an order with guarantees: virtual-synchrony [usual] or reliable: the same without views"
    )
    slow: Literal["wait", "drop", "disconnect"] | None = Field(
        None, description="A program that does not take its messages: all wait [usual], it loses some, or is put out"
    )
    keep: str | None = Field(
        None,
        pattern=f"^{groups.KEEP.pattern}$",
        description="Of order total: messages that each member keeps for replay: so many bytes, or so long",
        examples=["64M", "10m"],
    )
    keep_on: Literal["memory", "disk"] | None = Field(None, description="With keep; disk: rostrumd --to-disk")
    options: str = Field(
        "",
        max_length=groups.OPTIONS_BYTES,
        description="The protocol's own, name=value,name=value; what is not named is as usual: GET /v1/engines",
        examples=["r=4,c=2"],
    )


class GroupRow(BaseModel):
    """`waste`: servers outside the group that each of its messages is delivered to, because it shares its address."""

    name: str
    id: int
    version: int
    protocol: str
    order: str
    guarantee: str
    slow: str = Field(description="What becomes of a program that does not take its messages in time")
    keep: str = Field(description="Messages kept for replay: so many bytes, or so long; empty: none", examples=["64M"])
    keep_on: str = Field(description="memory or disk; empty: nothing is kept")
    options: str = Field(description="The protocol's own, all of them", examples=["r=8,c=5,stagger=1,naks=1"])
    kept: bool = Field(description="Made by REST: it stays when nobody is in it")
    address: str | None = Field(description="IPv4 multicast; none while nobody has been in it")
    data_port: int
    member_count: int
    sender_count: int
    shares_with: int = Field(description="Other groups at its address")
    waste: int


class RegionShown(BaseModel):
    """Servers that are in the same groups, whose messages travel together."""

    id: int
    version: int
    address: str | None = Field(description="IPv4 multicast; none: by unicast")
    servers: list[str]
    groups: int = Field(description="Groups that have it")


class SlowShown(BaseModel):
    """A program that does not take the messages of a group with guarantees in time."""

    server: str
    program: str
    state: str = Field(description="waited-for (all wait for it), loses (messages), or put-out")
    lost: int = Field(description="Messages that it has lost so")


class GroupShown(GroupRow):
    members: list[str]
    senders: list[str] = Field(description="Servers that publish without having joined")
    root: str | None = Field(description="Switch where the tree has its root")
    switches: list[str] = Field(description="Those with a rule for its address")
    slow_programs: list[SlowShown] = Field([], description="Those of now, and such as were put out a moment ago")
    regions: list[RegionShown] = Field([], description="Of protocols that have them; the address is theirs")


class OptionShown(BaseModel):
    name: str
    least: float
    most: float
    usual: float = Field(description="Where nobody says anything")
    whole: bool = Field(description="A whole number; else up to three digits behind the point")
    meaning: str = Field(description="For people, with its unit; empty: the agents are of an older release")


class EngineShown(BaseModel):
    """A protocol that agents have told of, and what can be chosen of it."""

    name: str
    meaning: str
    options: list[OptionShown]


class EngineList(BaseModel):
    groups: list[EngineShown] = Field(description="Protocols of message groups, as the agent last connected has them")


class GroupList(BaseModel):
    groups: list[GroupRow]
    next: str | None
    count: int = Field(description="All groups there are")
    addresses: int = Field(description="Multicast addresses they have")


def install(app: FastAPI, rest: Rest) -> None:
    @app.get("/v1/groups", tags=["groups"], responses=problems.responses(404, 422))
    async def list_groups(
        request: Request,
        server: Annotated[str | None, Query(max_length=64, description="Only groups that this server is in")] = None,
        limit: Annotated[int, Query(ge=1, le=LIST_MAX)] = 100,
        after: Annotated[str | None, Query(max_length=128, description="`next` of the page before")] = None,
    ) -> GroupList:
        """Message groups, the oldest first."""
        m = rest.core.members
        tenant, core = tenants.of(rest.core, request), rest.core
        names = _behind(_of(core, server), after)
        seen = (name for name in names if tenant in ("", tenants.of_group(core, m.groups[name])))
        found = itertools.islice(seen, limit + 1)
        rows = [_row(rest.core, m.groups[name]) for name in found]
        more = rows[limit - 1].name if len(rows) > limit else None
        return GroupList(groups=rows[:limit], next=more, count=len(m.groups), addresses=len(m.sharing.all))

    @app.get("/v1/engines", tags=["groups"])
    async def list_engines() -> EngineList:
        """Protocols that agents have told of, and their options with ranges; empty before the first agent."""
        known = rest.core.members.engines
        return EngineList(groups=[_engine(known[name]) for name in sorted(known)])

    @app.get("/v1/groups/{name}", tags=["groups"], responses=problems.responses(404))
    async def show_group(name: str) -> GroupShown:
        """One of them, with its members and what its address reaches."""
        return _shown(rest.core, _find(rest.core, name))

    @app.post("/v1/groups", status_code=201, tags=["groups"], responses=problems.responses(409, 413, 422, 503))
    async def make_group(new: NewGroup, request: Request, response: Response) -> GroupShown:
        """Makes a group that stays until it is deleted. Repeating it does no harm."""
        tenant = tenants.of(rest.core, request)
        if tenant and rest.core.topology.tenant_of_group(new.name) != tenant:
            raise Refused(403, f"{new.name} is no name of tenant {tenant}'s groups; the topology file says which are")
        try:
            delivery = groups.Delivery(
                new.order, new.guarantee or "", new.slow or "", new.keep or "", new.keep_on or ""
            )
            order = delivery.text()
        except groups.WrongOptions as error:
            raise Refused(422, str(error)) from error
        options = _complete(rest.core, groups.GroupOptions(new.protocol, order, new.options))
        if wrong := rest.core.members.sharing.wrong_budget:
            raise Refused(422, wrong)
        there = rest.core.members.groups.get(new.name)
        if there and there.options != options and (there.everybody or there.kept):
            raise Refused(409, f"{new.name} is there with other options: {described(there.options)}")
        if there is None and len(rest.core.members.groups) >= rest.core.settings.groups_max:
            raise Refused(503, f"{rest.core.settings.groups_max} groups are there already; delete one")
        rest.runtime.post(ev.GroupMade(new.name, options))
        await rest.settled()
        response.headers["Location"] = f"/v1/groups/{new.name}"
        return _shown(rest.core, _find(rest.core, new.name))

    @app.delete("/v1/groups/{name}", tags=["groups"], responses=problems.responses(404, 409))
    async def delete_group(
        name: str, request: Request, force: Annotated[bool, Query(description="Even if servers are in it")] = False
    ) -> GroupShown:
        """Deletes a group. Those in it are told, with `force`; without, a group that is in use stays."""
        group = _find(rest.core, name)
        used = group.everybody.bit_count()
        if used and not force:
            raise Refused(409, f"{used} servers are in {name}; they are told and put out with force=true")
        last = _shown(rest.core, group)
        rest.runtime.post(ev.GroupDeleted(name, f"{name} was deleted by {request.scope[CALLER].name}"))
        await rest.settled()
        return last


def _complete(core: Core, asked: groups.GroupOptions) -> groups.GroupOptions:
    """All options of a new group, by what agents have told of its protocol. Raises Refused."""
    known = core.members.engines
    if wrong := groups.wrong_options(asked):
        raise Refused(422, wrong)
    if not known:
        raise Refused(503, "no agent has told yet which protocols of groups it has; ask again when one is connected")
    if asked.protocol not in known:
        has = ", ".join(sorted(known))
        raise Refused(422, f"there is no group protocol {shown(asked.protocol)}; agents have {has}")
    try:
        return groups.GroupOptions(asked.protocol, asked.order, known[asked.protocol].complete(asked.options))
    except groups.WrongOptions as error:
        raise Refused(422, str(error)) from error


def _find(core: Core, name: str) -> Group:
    group = core.members.groups.get(name)
    if group is None:
        raise Refused(404, f"there is no group {shown(name)}; GET /v1/groups lists those there are")
    return group


def _of(core: Core, server: str | None) -> Iterable[str]:
    m = core.members
    if server is None:
        return m.groups
    if server not in m.places.number:
        raise Refused(404, f"there is no server {shown(server)}; GET /v1/topology lists those there are")
    return m.of_server.get(m.places.number[server], {})


def _behind(names: Iterable[str], after: str | None) -> Iterable[str]:
    if after is None:
        return names
    found = iter(names)
    if after not in found:  # moves on to what is behind it
        raise Refused(422, f"after: there is no group {shown(after)} (any more); begin again without it")
    return found


def _engine(one: groups.Engine) -> EngineShown:
    options = [
        OptionShown(
            name=each.name,
            least=each.least_milli / 1000,
            most=each.most_milli / 1000,
            usual=each.usual_milli / 1000,
            whole=not each.fraction,
            meaning=each.meaning,
        )
        for each in one.options
    ]
    return EngineShown(name=one.name, meaning=one.meaning, options=options)


def _row(core: Core, group: Group) -> GroupRow:
    shared, of = core.members.sharing.at.get(group.id), group.options
    delivery = groups.delivery_of(of.order)
    return GroupRow(
        name=group.name,
        id=group.id,
        version=group.version,
        protocol=of.protocol,
        order=delivery.order,
        guarantee=delivery.guarantee,
        slow=delivery.slow,
        keep=delivery.keep,
        keep_on=delivery.keep_on,
        options=of.options,
        kept=group.kept,
        address=str(shared.address) if shared else None,
        data_port=core.topology.data_port,
        member_count=group.members.bit_count(),
        sender_count=group.senders.bit_count(),
        shares_with=len(shared.groups) - 1 if shared else 0,
        waste=core.members.regions.waste(group.name) if group.regional else core.members.sharing.waste(group.id),
    )


def _shown(core: Core, group: Group) -> GroupShown:
    m = core.members
    shared = m.sharing.at.get(group.id)
    return GroupShown(
        **_row(core, group).model_dump(),
        members=m.places.named(group.members),
        senders=m.places.named(group.senders),
        root=shared.root if shared else None,
        switches=sorted(shared.ports) if shared else [],
        slow_programs=slow_programs(core, group.name),
        regions=[_region(m, number) for number in m.regions.of.get(group.name, ()) if number in m.regions.views],
    )


def slow_programs(core: Core, name: str) -> list[SlowShown]:
    trouble, names = core.members.trouble.get(name), core.members.places.names
    return [
        SlowShown(server=names[server], program=one.program, state=one.state, lost=one.lost)
        for server, rows in (trouble.slow() if trouble else {}).items()
        for one in rows
    ]


def _region(m: Membership, number: int) -> RegionShown:
    view, place = m.regions.views[number], m.sharing.at.get(-number)
    return RegionShown(
        id=number,
        version=view.version,
        address=str(place.address) if place else None,
        servers=m.places.named(view.nodes),
        groups=len(m.regions.within.get(number, ())),
    )
