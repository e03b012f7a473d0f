"""Message groups between Thrift structs and the core's values."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import AddressValueError, IPv4Address
from typing import Any

from rostrum.controller.core.groups.values import GroupFacts, GroupOptions, GroupPeer, GroupUse, GroupView
from rostrum.controller.northbound.thrift.codec import BadMessage, idl
from rostrum.controller.northbound.thrift.values import need

PROTOCOLS_MAX = 16  # an agent may have


def protocols(info: Any, field: str) -> tuple[str, ...]:
    """What an agent has engines for, from a list in its hello."""
    named = getattr(info, field)
    if not isinstance(named, list):
        return ()
    if len(named) > PROTOCOLS_MAX or not all(isinstance(one, str) and len(one) <= 64 for one in named):
        raise BadMessage(f"AgentInfo.{field} holds something else than up to {PROTOCOLS_MAX} short texts")
    return tuple(named)


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


def _options(one: Any) -> GroupOptions:
    return GroupOptions(
        need(one, "protocol", str),
        need(one, "order", str),
        need(one, "r", int),
        need(one, "c", int),
        need(one, "stagger", int),
    )


def views(peers: Sequence[GroupPeer], known: Sequence[GroupView]) -> dict[str, Any]:
    """Arguments of Agent.group_view."""
    return {
        "peers": [idl.GroupPeer(one.id, one.server, str(one.address), one.port, one.boot_id) for one in peers],
        "views": [
            idl.GroupView(
                one.id,
                one.version,
                one.base_version,
                _facts(one.facts) if one.facts else None,
                list(one.members),
                list(one.senders),
                list(one.gone),
            )
            for one in known
        ],
    }


def _facts(one: GroupFacts) -> Any:
    of = one.options
    return idl.GroupFacts(
        one.group, str(one.address), one.data_port, idl.GroupOptions(of.protocol, of.order, of.r, of.c, of.stagger)
    )
