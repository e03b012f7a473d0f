"""What is wrong with a request, as text its maker can act on."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable

from rostrum.controller.core.requests import sites
from rostrum.controller.core.text import listed, seconds, shown
from rostrum.controller.core.values import REST, PathRequest, Protocol, Settings, Wanted
from rostrum.topologies.model import Topology

ID_MAX = 128  # characters
SIZE_MAX = 1 << 60  # bytes
SPAN_MAX_MS = 7 * 24 * 3600 * 1000


def problems(request: PathRequest, topology: Topology, settings: Settings) -> list[str]:
    """Empty when the request can be taken."""
    found: list[str] = []
    if not 0 < len(request.request_id) <= ID_MAX:
        found.append(f"request_id must have 1 to {ID_MAX} characters")
    found += unknown_servers([request.sender], topology, "sender")
    if not request.receivers:
        found.append("there are no receivers; name at least one server")
    if len(request.receivers) > len(topology.servers):
        found.append(
            f"{len(request.receivers)} receivers, but {topology.name} has {len(topology.servers)} servers; "
            "name each one once"
        )
    else:
        found += unknown_servers(request.receivers, topology, "receivers")
        if len(set(request.receivers)) < len(request.receivers):
            twice = [name for name, count in Counter(request.receivers).items() if count > 1]
            found.append(f"receivers named more than once: {listed(map(_short, twice))}; name each one once")
    if request.sender in request.receivers:
        found.append(f"{_short(request.sender)} is sender and receiver; a server already has what it sends")
    if request.origin not in (REST, request.sender):
        found.append(
            f"the agent of {request.origin} asked for a path from {_short(request.sender)}; "
            "only that server's agent can"
        )
    if request.protocol is Protocol.RDCM and len(request.receivers) < 2 and not request.streams:
        found.append("protocol rdcm is for two or more receivers, who mend each other's losses; leave it to auto")
    if request.protocol is Protocol.RDCM and request.wanted is Wanted.CIRCUIT:
        found.append("protocol rdcm runs on packet trees; leave out kind circuit, or the protocol")
    if request.protocol is Protocol.WAN and request.wanted is Wanted.CIRCUIT:
        found.append("protocol wan runs on packet trees; leave out kind circuit, or the protocol")
    if request.protocol is Protocol.WAN and request.streams:
        found.append("a stream goes by rdcm; leave out the protocol")
    if topology.sites and (far := sites.spans(topology, request.sender, request.receivers)):
        found.append(f"{far}: no path leads to another site; an agent that knows sites sends there by a relay")
    found += _tenants(request, topology)
    found += _sizes(request)
    found += _spans(request, settings)
    return found


def _tenants(request: PathRequest, topology: Topology) -> list[str]:
    if not topology.tenants:
        return []
    tenant = topology.tenant_of(request.sender)
    others = [one for one in request.receivers if one in topology.servers and topology.tenant_of(one) != tenant]
    found = []
    if others:
        found.append(f"{listed(map(_short, others), 4)} not of {tenant or 'the tenant'}; a path stays within a tenant")
    if request.tenant in topology.tenants and request.tenant != tenant and request.sender in topology.servers:
        found.append(f"{_short(request.sender)} is not of {request.tenant}, whose caller asks")
    return found


def servers_by_address(topology: Topology) -> dict[str, frozenset[str]]:
    """The servers that an address belongs to: in the networks of data and of management."""
    found: dict[str, frozenset[str]] = {}
    for server in topology.servers.values():
        for address in {str(server.address), str(server.management)}:
            found[address] = found.get(address, frozenset()) | {server.name}
    return found


def unknown_servers(names: Iterable[str], topology: Topology, what: str) -> list[str]:
    servers = topology.servers
    unknown = [name for name in names if name not in servers]
    if not unknown:
        return []
    close = difflib.get_close_matches(unknown[0][:64], topology.servers, n=1)
    hint = f"; did you mean {close[0]}?" if close else f"; it has {listed(topology.servers, 4)}"
    return [f"{what}: {listed(map(_short, unknown), 4)} not in topology {topology.name}{hint}"]


def _sizes(request: PathRequest) -> list[str]:
    if not 0 <= request.data_size <= SIZE_MAX:
        return [f"data size {request.data_size} is out of range: 0 to {SIZE_MAX} bytes"]
    if not 0 <= request.remaining_size <= request.data_size:
        return [f"remaining size {request.remaining_size} is not between 0 and the data size {request.data_size}"]
    return []


def _spans(request: PathRequest, settings: Settings) -> list[str]:
    found = []
    limit = settings.wait_max_ns // 1_000_000
    if request.wait_ms is not None and not 0 <= request.wait_ms <= limit:
        found.append(f"wait_ms {request.wait_ms} is out of range: 0 to {limit} ({seconds(settings.wait_max_ns)})")
    if request.deadline_ms is not None and not 0 < request.deadline_ms <= SPAN_MAX_MS:
        found.append(f"deadline_ms {request.deadline_ms} is out of range: 1 to {SPAN_MAX_MS}")
    if request.lease_ms is not None and not 0 < request.lease_ms <= SPAN_MAX_MS:
        found.append(f"lease_ms {request.lease_ms} is out of range: 1 to {SPAN_MAX_MS}; without it, until released")
    return found


def _short(name: str) -> str:
    return name if name.isprintable() and 0 < len(name) <= 40 else shown(name)
