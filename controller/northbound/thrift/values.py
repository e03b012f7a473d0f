"""Between Thrift structs and the core's values. thriftpy2 leaves what is absent or of another type None; required means
required here.
"""

from __future__ import annotations

from enum import Enum
from ipaddress import AddressValueError, IPv4Address
from typing import Any, Final, TypeVar

from rostrum.controller.core.model import PathKind
from rostrum.controller.core.text import shown
from rostrum.controller.core.values import (
    TENANT,
    FailureKind,
    FailureReport,
    LivePath,
    OverlayView,
    PathRequest,
    Protocol,
    ReceiverReport,
    RingKind,
    RingPlace,
    ServerAddress,
    TransferReport,
    Wanted,
)
from rostrum.controller.northbound.thrift.codec import BadMessage, idl

Value = TypeVar("Value")
Choice = TypeVar("Choice", bound=Enum)

TEXT_MAX: Final = 4096
APP_ID_BYTES = 16
_KINDS = {1: PathKind.CIRCUIT, 2: PathKind.PACKET}
_KIND_CODES = {kind: code for code, kind in _KINDS.items()}


def need(struct: Any, name: str, kind: type[Value]) -> Value:
    """A required field of the right type. Raises BadMessage."""
    value = getattr(struct, name)
    if kind is bytes and isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    if not isinstance(value, kind):
        raise BadMessage(f"{type(struct).__name__}.{name} is missing or not of the type in the IDL")
    if isinstance(value, str) and len(value) > TEXT_MAX:
        raise BadMessage(f"{type(struct).__name__}.{name} has {len(value)} characters; at most {TEXT_MAX} are possible")
    return value


def texts(struct: Any, name: str) -> tuple[str, ...]:
    values = need(struct, name, list)
    if not all(isinstance(value, str) and len(value) <= TEXT_MAX for value in values):
        raise BadMessage(f"{type(struct).__name__}.{name} holds something else than short texts")
    return tuple(values)


def path_kind(code: int) -> PathKind:
    kind = _KINDS.get(code)
    if kind is None:
        raise BadMessage(f"there is no path kind {code}")
    return kind


def member(kind: type[Choice], code: int) -> Choice:
    """Of an enumeration whose values are those of the IDL."""
    try:
        return kind(code)
    except ValueError:
        raise BadMessage(f"there is no {kind.__name__} {code}") from None


def wanted(protocol: Protocol) -> Wanted:
    """RDCM and the protocol for wide areas go over packet trees only."""
    return Wanted.PACKET if protocol in (Protocol.RDCM, Protocol.WAN) else Wanted.AUTO


def request(args: Any, origin: str, tenant: str = TENANT) -> PathRequest:
    one = need(args, "request", idl.PathRequest)
    app_id = need(one, "app_id", bytes)
    if len(app_id) > APP_ID_BYTES:
        raise BadMessage(f"app_id has {len(app_id)} bytes; it is a UUID of {APP_ID_BYTES}")
    protocol = Protocol.AUTO if one.protocol is None else member(Protocol, one.protocol)
    return PathRequest(
        request_id=need(one, "request_id", str),
        origin=origin,
        sender=need(one, "sender", str),
        receivers=texts(one, "receivers"),
        data_size=need(one, "data_size", int),
        remaining_size=need(one, "remaining_size", int),
        app_id=app_id,
        data_id=need(one, "data_id", int),
        wait_ms=one.wait_ms,
        deadline_ms=one.deadline_ms,
        protocol=protocol,
        wanted=wanted(protocol),
        tenant=tenant,
        round_trip_us=max(one.round_trip_us or 0, 0),
        splits=bool(one.splits),
    )


def live_paths(info: Any) -> tuple[LivePath, ...]:
    found = []
    for one in need(info, "live_paths", list):
        text = need(one, "group", str)
        try:
            group = IPv4Address(text)
        except AddressValueError:
            raise BadMessage(f"LivePath.group {shown(text)} is no IPv4 address") from None
        found.append(
            LivePath(
                need(one, "request_id", str),
                need(one, "response_id", str),
                group,
                path_kind(need(one, "kind", int)),
                texts(one, "receivers"),
                need(one, "accepted_size", int),
                Protocol.REPUBLIC if one.protocol is None else member(Protocol, one.protocol),
            )
        )
    return tuple(found)


def report(args: Any) -> TransferReport:
    one = need(args, "report", idl.TransferReport)
    receivers = tuple(
        ReceiverReport(
            need(each, "server", str),
            need(each, "state", str),
            need(each, "cause", str),
            need(each, "initial_sn", int),
            need(each, "patched_fragments", int),
            need(each, "first_light_ns", int),
            need(each, "complete_ns", int),
        )
        for each in need(one, "receivers", list)
    )
    return TransferReport(
        need(one, "request_id", str),
        need(one, "response_id", str),
        need(one, "phase", str),
        need(one, "cause", str),
        need(one, "bytes", int),
        need(one, "sent_packets", int),
        need(one, "redundant_packets", int),
        need(one, "patched_packets", int),
        receivers,
    )


def addresses(servers: tuple[ServerAddress, ...]) -> list[Any]:
    """As Thrift structs."""
    return [
        idl.ServerAddress(server=one.server, address=one.address, control_port=one.control_port, rack=one.rack or None)
        for one in servers
    ]


def overlay_view(value: OverlayView) -> Any:
    """As a Thrift struct."""

    def names(ring: str, place: RingPlace | None) -> dict[str, str]:
        if place is None:
            return {}
        known = {"predecessor": place.predecessor, "successor": place.successor, "parent": place.parent}
        return {f"{ring}_{role}": server for role, server in known.items()}

    return idl.OverlayView(
        response_id=value.path_id,
        version=value.version,
        group=value.group,
        app_id=value.app_id,
        data_id=value.data_id,
        sender=value.sender,
        children=list(value.children),
        addresses=addresses(value.addresses),
        **names("leaf", value.leaf),
        **names("proxy", value.proxy),
    )


def failure(args: Any) -> FailureReport:
    one = need(args, "report", idl.FailureReport)
    return FailureReport(
        need(one, "response_id", str),
        need(one, "version", int),
        member(FailureKind, need(one, "kind", int)),
        member(RingKind, need(one, "ring", int)),
        need(one, "server", str),
    )


def kind_code(kind: PathKind) -> int:
    return _KIND_CODES[kind]
