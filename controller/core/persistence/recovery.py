"""Paths, circuits, cross-connects being taken down, and agents: what of them survives a crash, and how they come back.

A restored path is granted, as its agent believes, and is *configuring* until what it needs was seen on the devices:
each switch, once it is read, either has the path's rules or gets them again (devices.py), and a circuit is live once
its OCS has told that every cross-connect is steady. Rules kept for reuse are not remembered: they are taken out as
stale, which costs the next path some milliseconds and every request of today nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Any

from rostrum.controller.core.circuits.circuits import Circuit, CircuitState, Conflict
from rostrum.controller.core.circuits.splitters import Cascade, TorPort
from rostrum.controller.core.model import Pair, PathKind
from rostrum.controller.core.packet import trees
from rostrum.controller.core.packet.trees import Hop
from rostrum.controller.core.persistence.persistence import Json
from rostrum.controller.core.rdcm import views
from rostrum.controller.core.requests.paths import Path, Transfer
from rostrum.controller.core.state import Agent, Core
from rostrum.controller.core.text import dotted
from rostrum.controller.core.values import (
    AGENT_BACKOFF_NS,
    MS,
    REST,
    TENANT,
    Budget,
    PathRequest,
    Protocol,
    Stamps,
    State,
    Wanted,
)


class Circuits:
    """Key: the circuit's id. Who uses it, the paths say."""

    name = "circuit"

    def dump(self, core: Core, key: str) -> Json | None:
        circuit = core.resources.circuits.get(key)
        if circuit is None:
            return None
        made = circuit.cascade
        return {
            "ocs": circuit.ocs,
            "uplink": [made.uplink.tor, made.uplink.tor_port, made.uplink.ocs_port],
            "downlinks": [[one.tor, one.tor_port, one.ocs_port] for one in made.downlinks],
            "splitters": list(made.splitters),
            "pairs": [[pair.input, pair.output] for pair in made.pairs],
            "budgets": [[b.tor, b.port, list(b.splitters), b.power_dbm, b.margin_db] for b in made.budgets],
        }

    def restore(self, core: Core, records: Mapping[str, Json], now: int) -> None:
        for key, record in records.items():
            core.resources.known_serial(key)
            try:
                circuit = _circuit(core, key, record, now)
                core.resources.circuits.add(circuit)
            except (KeyError, Conflict) as error:
                core.persistence.mark(self.name, key)
                core.warn("circuit not restored", circuit=key, cause=f"it does not fit this topology: {error}")
                continue
            core.unread_circuits.add(key)


def _circuit(core: Core, key: str, record: Any, now: int) -> Circuit:
    """Raises KeyError if the topology has no such ports (any more)."""
    ocs = core.topology.ocs[record["ocs"]]
    uplink = TorPort(*record["uplink"])
    downlinks = tuple(TorPort(*one) for one in record["downlinks"])
    for end in (uplink, *downlinks):
        attached = ocs.attached[end.ocs_port]
        if (attached.node, attached.port) != (end.tor, end.tor_port):
            raise KeyError(f"port {end.ocs_port} of {ocs.name} leads to {attached.node}:{attached.port}")
    through = tuple(ocs.splitters[name].name for name in record["splitters"])
    budgets = tuple(Budget(tor, port, tuple(by), power, margin) for tor, port, by, power, margin in record["budgets"])
    made = Cascade(uplink, downlinks, through, tuple(Pair(*one) for one in record["pairs"]), budgets)
    return Circuit(key, ocs.name, made, CircuitState.SETTING, core.next_serial(), (), now)


class Leaving:
    """Cross-connects of ours that are being taken down, or could not be. Key: the OCS and a number. Earlier releases
    had a record for each of them, of key `ocs input>output`.
    """

    name = "leaving"

    def dump(self, core: Core, key: str) -> Json | None:
        known = core.leaving.get(key)
        if known is None:
            return None
        ocs, pairs = known
        for pair in [one for one in pairs if not core.leaves(ocs, one)]:
            pairs.remove(pair)
            del core.leaving_in[ocs, pair]
        if not pairs:
            del core.leaving[key]
            return None
        return {"ocs": ocs, "pairs": [[pair.input, pair.output] for pair in pairs]}

    def restore(self, core: Core, records: Mapping[str, Json], now: int) -> None:
        kept = {(one.ocs, pair) for one in core.resources.circuits for pair in one.cascade.pairs}
        for key, record in records.items():
            if record:
                ocs, pairs = record["ocs"], [Pair(*one) for one in record["pairs"]]
            else:
                ocs, _, ends = key.rpartition(" ")
                pairs = [Pair(*map(int, ends.split(">")))]
            left = {pair for pair in pairs if (ocs, pair) not in kept} if ocs in core.topology.ocs else set()
            if left:
                core.to_leave.setdefault(ocs, set()).update(left)
                core.mark_leaving(ocs, left)
            core.persistence.mark(self.name, key)


class Agents:
    """Key: the server. Whether an agent that comes back is the one that was there, its boot says."""

    name = "agent"

    def dump(self, core: Core, key: str) -> Json | None:
        agent = core.agents.get(key)
        return None if agent is None else {"boot": agent.boot_id, "port": agent.control_port}

    def restore(self, core: Core, records: Mapping[str, Json], now: int) -> None:
        for key, record in records.items():
            if key not in core.topology.servers:
                core.persistence.mark(self.name, key)
                continue
            heard = now + AGENT_BACKOFF_NS  # it needs so long to come back; its lease begins then
            cause = "not back since the manager's restart"
            core.agents[key] = Agent(key, record["boot"], record["port"], False, heard, now, cause)
            core.wake_at(heard + core.settings.lease_ns)


class Paths:
    """Key: the path's id. Paths that ended are forgotten."""

    name = "path"

    def dump(self, core: Core, key: str) -> Json | None:
        path = core.paths.get(key)
        if path is None or path.final:
            return None
        wall = core.persistence.wall
        record: dict[str, Json] = {"request": _request_record(path.request), "requested": wall(path.stamps.requested)}
        if path.transfer_id:
            record["transfer"] = path.transfer_id
        if path.state is State.QUEUED:
            waits = (path.waiting_since, path.circuit_until, path.wait_until)
            return {**record, "waits": [wall(at) for at in waits], "follows": path.follows}
        record |= {
            "accepted": wall(path.stamps.accepted or path.stamps.requested),
            "kind": path.kind_name,
            "group": dotted(path.group) if path.group else "",
            "reason": path.reason,
            "hops": path.hops,
            "size": path.accepted_size,
            "rate_bps": path.rate_bps,
            "reconfiguration_ns": path.reconfiguration_ns,
        }
        if path.circuit_id:
            record["circuit"] = path.circuit_id
        if path.adopted:
            record["adopted"] = True
        if path.protocol is Protocol.WAN:
            record["protocol"] = path.protocol.value
        if path.backup:
            record["overlay"] = path.backup.version
        return record

    def restore(self, core: Core, records: Mapping[str, Json], now: int) -> None:
        """In the order in which they were asked for."""
        for key, record in sorted(records.items(), key=lambda one: (one[1]["requested"], _serial(one[0]))):
            request = _request(record["request"])
            unknown = [n for n in (request.sender, *request.receivers) if n not in core.topology.servers]
            path = Path(key, request, Stamps(core.persistence.monotonic(record["requested"])))
            cause = f"unknown servers {', '.join(unknown[:4])}" if unknown else ""
            cause = cause or (_queue(core, path, record, now) if "waits" in record else _hold(core, path, record, now))
            if cause:
                core.persistence.mark(self.name, key)
                core.warn("path not restored", path=key, request=request.request_id, cause=cause)
                continue
            core.paths[key] = path
            core.by_request[request.origin, request.request_id] = key
            _belongs(core, path, record.get("transfer", ""), now)
            core.counts["restored"] += 1


def _queue(core: Core, path: Path, record: Any, now: int) -> str:
    """A request that waits goes on waiting; what its time was over meanwhile is denied at the first look."""
    path.waiting_since, path.circuit_until, path.wait_until = (core.persistence.monotonic(at) for at in record["waits"])
    path.follows = record["follows"]
    core.queue.append(path.id)
    core.wake_at(max(path.wait_until, now))
    return ""


def _hold(core: Core, path: Path, record: Any, now: int) -> str:
    """A granted path has again what it had; returns what is in the way."""
    kind, group = PathKind(record["kind"]), IPv4Address(record["group"])
    hops: tuple[Hop, ...] = tuple((switch, port, tuple(out)) for switch, port, out in record["hops"])
    gone = [switch for switch, _, _ in hops if switch not in core.topology.switches]
    if gone:
        return f"unknown switches {', '.join(gone[:4])}"
    circuit_id = record.get("circuit")
    circuit = core.resources.circuits.get(circuit_id) if circuit_id else None
    if circuit_id and circuit is None:
        return f"its circuit {circuit_id} is not there"
    if not core.groups.adopt(group):
        return f"{group} belongs to another path"
    if circuit:
        core.resources.circuits.use(circuit.id, path.id, now, record["rate_bps"], share=True)
        path.ocs, path.circuit_id, path.cascade, path.circuit_op = circuit.ocs, circuit.id, circuit.cascade, circuit.op
    core.resources.share_ports(path.id, path.request.sender, path.request.receivers)
    path.kind, path.group, path.hops, path.reason = kind, group, hops, record["reason"]
    path.accepted_size, path.rate_bps = record["size"], record["rate_bps"]
    path.reconfiguration_ns, path.adopted = record["reconfiguration_ns"], record.get("adopted", False)
    if "protocol" in record:
        path.protocol = Protocol(record["protocol"])
    path.stamps.accepted = core.persistence.monotonic(record["accepted"])
    path.to(State.CONFIGURING, now)
    if hops:
        core.set_rules(path)
    if hops and kind is PathKind.PACKET:
        path.tree = trees.nodes_of(core.resources.fabric, path.request.sender, hops)
        if "overlay" in record:
            path.protocol = Protocol.RDCM
            views.begin(core, path, now, record["overlay"])
    path.unread = {switch for switch, _, _ in hops}
    if path.request.origin == REST and path.request.lease_ms is not None:
        # Nobody could renew it while there was no manager.
        path.lease_until = now + path.request.lease_ms * MS
        core.expires(path, path.lease_until)
    return ""


def _belongs(core: Core, path: Path, transfer_id: str, now: int) -> None:
    """The path is a session of its transfer; what its agent reported comes with the next report."""
    if not transfer_id:
        return
    path.transfer_id, request = transfer_id, path.request
    known = core.transfers.get(transfer_id)
    if known:
        known.sessions.append(path.id)
        known.receivers = tuple(dict.fromkeys(known.receivers + request.receivers))
        return
    core.add_transfer(Transfer.of(path, request.data_size, path.stamps.requested))


def _request_record(request: PathRequest) -> dict[str, Json]:
    record: dict[str, Json] = {
        "id": request.request_id,
        "origin": request.origin,
        "sender": request.sender,
        "receivers": list(request.receivers),
        "size": request.data_size,
        "rest": request.remaining_size,
        "app": request.app_id.hex(),
        "data": request.data_id,
    }
    if request.wanted is not Wanted.AUTO:
        record["wanted"] = request.wanted.value
    if request.protocol is not Protocol.AUTO:
        record["protocol"] = request.protocol.value
    if request.tenant != TENANT:
        record["tenant"] = request.tenant
    if request.splits:
        record["splits"] = True
    if request.round_trip_us:
        record["round_trip_us"] = request.round_trip_us
    for name in ("wait_ms", "deadline_ms", "lease_ms"):
        if (value := getattr(request, name)) is not None:
            record[name] = value
    return record


def _request(record: Any) -> PathRequest:
    return PathRequest(
        record["id"],
        record["origin"],
        record["sender"],
        tuple(record["receivers"]),
        record["size"],
        record["rest"],
        bytes.fromhex(record["app"]),
        record["data"],
        wait_ms=record.get("wait_ms"),
        deadline_ms=record.get("deadline_ms"),
        wanted=Wanted(record.get("wanted", Wanted.AUTO.value)),
        lease_ms=record.get("lease_ms"),
        protocol=Protocol(record.get("protocol", Protocol.AUTO.value)),
        tenant=record.get("tenant", TENANT),
        splits=record.get("splits", False),
        round_trip_us=record.get("round_trip_us", 0),
    )


def _serial(path_id: str) -> int:
    tail = path_id.rpartition("-")[2]
    return int(tail) if tail.isdecimal() else 0
