"""The data model of the Open Compute Project's optical circuit switches (modules ocp-ocs-optical-switch, -connections
and -port, version 0.8.0, with openconfig-platform) as gNMI carries it: what driver and emulator both know of it.

    /connections/port-connection[name=N]/config   {name, input-port-name, output-port-name}
                                        /state    the same, with status, status-reason, last-updated
    /components/component[name=P]/ocp-ocs-port/state   {group, index, status, input-optical-power, ...}
    /optical-switch/state                         {port-groups: [{name, direction}], ...}

A leaf is a path of elements and its value: list entries stand as two elements, their list and their key; module
prefixes are left out. Whatever comes is taken apart within bounds, or a `ModelError` says what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from finsy.proto import gnmi
from rostrum.controller.core.model import CrossConnectState, Pair

MODELS = (
    ("ocp-ocs-optical-switch", "Open Compute Project", "0.8.0"),
    ("ocp-ocs-optical-switch-connections", "Open Compute Project", "0.8.0"),
    ("ocp-ocs-optical-switch-port", "Open Compute Project", "0.8.0"),
)
CONNECTIONS, PORTS, SWITCH = MODELS[1][0], MODELS[2][0], MODELS[0][0]
PORT = 9339  # gNMI's, of IANA
MAX_DEPTH = 12
MAX_LEAVES = 262_144  # of one message
MAX_ELEMENT = 256
MAX_MESSAGE_BYTES = 16 << 20

STATUS = {
    "CONNECTED": CrossConnectState.STEADY,
    "PENDING_CONNECTION": CrossConnectState.TRANSITION,
    "PENDING_DELETION": CrossConnectState.DISCONNECTING,
    "FAILED": CrossConnectState.FAULT,
    "INVALID": CrossConnectState.INVALID,
}
STATUS_OF = {state: name for name, state in STATUS.items()}

Elements = tuple[str, ...]


class ModelError(ValueError):
    """Not of this model, or too much of it."""


def connection_name(pair: Pair) -> str:
    return f"rostrum-{pair.input}-{pair.output}"


def path(*elements: str | tuple[str, str]) -> Any:
    """path("connections", ("port-connection", "x")) -> /connections/port-connection[name=x]"""
    made = gnmi.Path()
    for element in elements:
        if isinstance(element, tuple):
            made.elem.add(name=element[0], key={"name": element[1]})
        else:
            made.elem.add(name=element)
    return made


def elements_of(one: Any) -> Elements:
    """A gNMI path as elements; a key follows its list's name. Raises ModelError."""
    elements: list[str] = []
    for elem in one.elem:
        elements.append(plain(elem.name))
        if len(elem.key) > 1:
            raise ModelError(f"{elem.name} has one key, the name")
        elements += elem.key.values()
    if len(elements) > MAX_DEPTH or any(len(element) > MAX_ELEMENT for element in elements):
        raise ModelError("a path longer than any of this model")
    return tuple(elements)


def plain(name: str) -> str:
    """A name without its module."""
    return name.rpartition(":")[2]


def value_of(typed: Any) -> Any:
    """What a TypedValue says, JSON decoded. Raises ModelError."""
    kind = typed.WhichOneof("value")
    if kind in ("json_ietf_val", "json_val"):
        try:
            return json.loads(getattr(typed, kind))
        except (ValueError, RecursionError) as error:
            raise ModelError(f"not JSON: {error}") from None
    if kind in ("string_val", "ascii_val", "int_val", "uint_val", "bool_val", "double_val", "float_val"):
        return getattr(typed, kind)
    raise ModelError(f"a value of kind {kind}, which nothing in this model has")


def leaves(start: Elements, value: Any) -> Iterator[tuple[Elements, Any]]:
    """The leaves of a value at a path. Raises ModelError."""
    todo, found = [(start, value)], 0
    while todo:
        at, one = todo.pop()
        if len(at) > MAX_DEPTH:
            raise ModelError("nested deeper than anything of this model")
        found += 1
        if found > MAX_LEAVES:
            raise ModelError(f"more than {MAX_LEAVES} values in one message")
        if isinstance(one, Mapping):
            todo += [((*at, plain(str(name))), inner) for name, inner in one.items()]
        elif isinstance(one, list):
            for entry in one:
                name = entry.get("name") if isinstance(entry, Mapping) else None
                if name is None and isinstance(entry, Mapping):
                    name = next((v for k, v in entry.items() if plain(str(k)) in ("name", "peer-name")), None)
                if not isinstance(name, str) or len(name) > MAX_ELEMENT:
                    raise ModelError(f"an entry of {'/'.join(at)} without a name")
                todo.append(((*at, name), entry))
        else:
            yield at, one


def update_leaves(update: Any, prefix: Elements = ()) -> Iterator[tuple[Elements, Any]]:
    return leaves((*prefix, *elements_of(update.path)), value_of(update.val))


def json_value(value: Any) -> Any:
    return gnmi.TypedValue(json_ietf_val=json.dumps(value, separators=(",", ":")).encode())


def dbm(value: Any) -> float | None:
    """A power, which JSON_IETF has as text (RFC 7951, 6.1); None for what is none."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if -200 < number < 200 else None


def text(one: Elements) -> str:
    return "/" + "/".join(one)
