"""Message groups between Thrift structs and the core's values."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import AddressValueError, IPv4Address
from typing import Any

from rostrum.controller.core.groups.values import (
    PROTOCOL,
    Engine,
    EngineOption,
    GroupFacts,
    GroupOptions,
    GroupPeer,
    GroupRegion,
    GroupUse,
    GroupView,
    SlowProgram,
)
from rostrum.controller.northbound.thrift.codec import BadMessage, idl
from rostrum.controller.northbound.thrift.values import need, texts

PROTOCOLS_MAX = 16  # an agent may have
OPTIONS_MAX = 16  # of each
MEANING_MAX = 100  # characters of what people are told of either
TROUBLE_MAX = 64  # slow programs, or silent servers, of a group as one member tells


def protocols(info: Any, field: str) -> tuple[str, ...]:
    """What an agent has engines for, from a list in its hello."""
    named = getattr(info, field)
    if not isinstance(named, list):
        return ()
    if len(named) > PROTOCOLS_MAX or not all(isinstance(one, str) and len(one) <= 64 for one in named):
        raise BadMessage(f"AgentInfo.{field} holds something else than up to {PROTOCOLS_MAX} short texts")
    return tuple(named)


def engines(info: Any) -> tuple[Engine, ...]:
    """The engines of groups that an agent tells in its hello. Raises BadMessage."""
    told = info.group_engines
    if not isinstance(told, list):
        return ()
    if len(told) > PROTOCOLS_MAX or not all(isinstance(one, idl.Engine) for one in told):
        raise BadMessage(f"AgentInfo.group_engines holds something else than up to {PROTOCOLS_MAX} engines")
    return tuple(map(_engine, told))


def _engine(one: Any) -> Engine:
    options = tuple(map(_option, need(one, "options", list)[:OPTIONS_MAX]))
    return Engine(_word(one, "name"), options, one.regions is True, _meaning(one))


def _option(one: Any) -> EngineOption:
    if not isinstance(one, idl.EngineOption):
        raise BadMessage("Engine.options holds something else than options")
    least, most, usual = (need(one, field, int) for field in ("least_milli", "most_milli", "usual_milli"))
    if not 0 <= least <= usual <= most < 1 << 32:
        raise BadMessage(f"option {one.name!r}: {usual} is not from {least} to {most} thousandths")
    fraction = need(one, "fraction", bool)
    return EngineOption(_word(one, "name"), least, most, usual, fraction, _meaning(one), one.later is True)


def _meaning(one: Any) -> str:
    """What people are told of it; whatever else stands there is left out."""
    said = one.meaning if isinstance(one.meaning, str) else ""
    return said[:MEANING_MAX] if said.isprintable() else ""


def _word(one: Any, field: str) -> str:
    word = str(need(one, field, str))
    if not PROTOCOL.fullmatch(word):
        raise BadMessage(f"{type(one).__name__}.{field} {word[:40]!r} is not 1 to 31 characters of a-z 0-9 . _ -")
    return word


def use(args: Any) -> GroupUse:
    """Raises BadMessage."""
    one = need(args, "group", idl.GroupUse)
    text = one.address if isinstance(one.address, str) else ""
    try:
        address = IPv4Address(text) if text else None
    except AddressValueError as error:
        raise BadMessage(f"GroupUse.address {text[:40]!r} is no IPv4 address") from error
    return GroupUse(
        group=need(one, "group", str),
        options=_options(one.options) if one.options is not None else None,
        id=one.id if isinstance(one.id, int) else 0,
        version=one.version if isinstance(one.version, int) else 0,
        address=address,
    )


def trouble(args: Any) -> tuple[str, tuple[SlowProgram, ...], tuple[str, ...]]:
    """Group, slow programs, silent servers. Raises BadMessage."""
    one = need(args, "trouble", idl.GroupTrouble)
    told = need(one, "slow", list)
    if len(told) > TROUBLE_MAX or len(texts(one, "silent")) > TROUBLE_MAX:
        raise BadMessage(f"GroupTrouble has more than {TROUBLE_MAX} rows")
    slow = []
    for row in told:
        program, state = need(row, "program", str), need(row, "state", str)
        if len(program) > 255 or state not in ("waited-for", "loses", "put-out"):
            raise BadMessage(f"{program[:40]!r}, {state[:40]!r} is no slow program")
        slow.append(SlowProgram(program, state, max(0, need(row, "lost", int))))
    return need(one, "group", str), tuple(slow), texts(one, "silent")


def _options(one: Any) -> GroupOptions:
    return GroupOptions(need(one, "protocol", str), need(one, "order", str), need(one, "options", str))


def views(peers: Sequence[GroupPeer], known: Sequence[GroupView]) -> dict[str, Any]:
    """Arguments of Agent.group_view."""
    return {
        "peers": _peers(peers),
        "views": [
            idl.GroupView(
                one.id,
                one.version,
                one.base_version,
                _facts(one.facts) if one.facts else None,
                list(one.members),
                list(one.senders),
                list(one.gone),
                None if one.listens is None else list(one.listens),
                one.rejoined or None,
            )
            for one in known
        ],
    }


def _peers(peers: Sequence[GroupPeer]) -> list[Any]:
    return [idl.GroupPeer(one.id, one.server, str(one.address), one.port, one.boot_id) for one in peers]


def regions(peers: Sequence[GroupPeer], known: Sequence[GroupRegion]) -> dict[str, Any]:
    """Arguments of Agent.group_regions."""
    return {
        "peers": _peers(peers),
        "regions": [
            idl.GroupRegion(
                one.region,
                one.version,
                str(one.address) if one.address else None,
                one.data_port,
                one.protocol,
                one.options,
                list(one.nodes),
                one.base_version,
                list(one.gone) if one.gone else None,
            )
            for one in known
        ],
    }


def _facts(one: GroupFacts) -> Any:
    of = one.options
    options = idl.GroupOptions(of.protocol, of.order, of.options)
    more = [str(address) for address in one.more] or None
    regions = None if one.regions is None else list(one.regions)
    return idl.GroupFacts(one.group, str(one.address), one.data_port, options, more, regions)
