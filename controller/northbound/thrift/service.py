"""The agent-manager interface (rostrum.thrift): agents call Manager, and on the same connection the manager calls
Agent.

All calls are oneway, so a connection is two independent streams of frames. Whoever sends what cannot be understood gets
Agent.goodbye with the reason and is disconnected; others do not notice.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from rostrum.controller.audit import LIST_MAX, Audit, Value
from rostrum.controller.certificates import Files, Identity
from rostrum.controller.core import events as ev
from rostrum.controller.core.circuits.circuits import FOREVER
from rostrum.controller.core.groups.values import GroupPeer, GroupRegion, GroupView
from rostrum.controller.core.model import PathKind
from rostrum.controller.core.requests.sites import Present
from rostrum.controller.core.requests.validation import ID_MAX, servers_by_address, unknown_servers
from rostrum.controller.core.values import TENANT, OverlayView, PathRequest, PathResponse
from rostrum.controller.keyvalue import Sparing, line
from rostrum.controller.northbound.metrics.stats import Latency
from rostrum.controller.northbound.rest.access import AccessError
from rostrum.controller.northbound.thrift import groups, values
from rostrum.controller.northbound.thrift import tls as thrift_tls
from rostrum.controller.northbound.thrift.codec import FRAME_MAX, BadMessage, decode, encode, idl
from rostrum.controller.northbound.thrift.gate import AgentGate
from rostrum.controller.northbound.thrift.keys import Keys, Told
from rostrum.controller.northbound.thrift.objects import ObjectsDoor, fetched
from rostrum.controller.northbound.thrift.probes import Probes
from rostrum.controller.northbound.thrift.sites import Sites
from rostrum.controller.runtime.run_clock import CLOCK
from rostrum.controller.runtime.runtime import Runtime
from rostrum.controller.speed import thrift_request, thrift_response

log = logging.getLogger("rostrum.thrift")

HELLO_BOUND_S = 5.0  # a connection that has not said hello by then is closed, whatever else it said
SILENCE_LEASES = 3  # so is one that says nothing for this many leases
RENEWALS = 50  # of a lease at most in its time, however much the agent says
UNSENT_MAX = 4 << 20  # bytes an agent may leave unread
KEYS_MAX = 1024  # of one call
CONNECTIONS_MAX = 4096  # or two for each server
STRANGERS_LINES = (20, 10.0)  # goodbyes logged in so many seconds to those who never said who they are
SWEEP_S = 0.5
# So long an agent's calls are carried out at a time, and those of all that have more waiting: ten thousand joins of one
# hold up neither what others say nor the answer to their keepalives.
SLICE_NS, TURN_NS = 5_000_000, 20_000_000
# Calls that are written down, and what of them, besides requests and hellos: not renewals and reports.
AUDITED: dict[str, tuple[str, ...]] = {
    "release": ("response_id", "request_id"),
    "cancel": ("request_id",),
    "receiver_change": ("response_id", "server", "joins"),
    "join_group": ("group",),
    "leave_group": ("group",),
    "use_group": ("group",),
    "unuse_group": ("group",),
    "failure": ("response_id",),
}
ARRIVALS_MAX = 10_000
REASON_MAX = 1000  # characters; agents take 4096 bytes
NOT_SEALING = (
    "the topology file says `security: required`, and this agent does not seal its packets: start rostrumd with "
    "--security required"
)
SEALS_ALONE = (
    "seals its packets (--security required), and nobody else here does: say `security: required` in the manager's "
    "topology file, or start it without"
)


class ThriftService:
    """The Thrift server; implements `runtime.Agents`."""

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        boot_id: int,
        gate: AgentGate | None = None,
        tls: Files | None = None,
        audit: Audit | None = None,
    ) -> None:
        """`tls`: agents come by TLS only. Raises access.AccessError."""
        required = runtime.manager.core.topology.secure
        if required and tls is None:
            raise AccessError(
                "the topology file says `security: required`, so agents come by TLS alone: start rostrum-manager with "
                "--thrift-tls CERTIFICATE KEY CA (rostrum pki issue manager makes them)"
            )
        topology = runtime.manager.core.topology
        servers = topology.servers.items()
        self.keys = (
            Keys(CLOCK.s, {name: one.address for name, one in servers}, tenant_of=topology.tenant_of)
            if required
            else None
        )
        self.runtime = runtime
        self.name = name
        self.boot_id = boot_id
        self.audit = audit
        self.gate = gate or AgentGate(None)
        self.probes = Probes(self._probe)
        self.objects = ObjectsDoor(runtime.manager.core.topology, runtime.clock, self._tell, self._piece_ports)
        self.sites = Sites(
            topology, self._say, self._present, lambda name: name in self.agents, self.objects.digest,
            self.objects.holders, self._noted,
        )  # fmt: skip
        self.latency = Latency()
        self.connections: set[AgentConnection] = set()
        self.agents: dict[str, AgentConnection] = {}
        self.refused = 0
        self.connections_max = max(CONNECTIONS_MAX, 2 * len(runtime.manager.core.topology.servers))
        self.strangers = Sparing(*STRANGERS_LINES)
        self.tls = thrift_tls.TlsDoor(tls, self.strangers, self._trust_changed if required else None) if tls else None
        self.servers_at = servers_by_address(runtime.manager.core.topology)
        self._arrived: dict[tuple[str, str], int] = {}
        self._servers: list[asyncio.Server] = []
        self._sweeper: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)
        self._behind: deque[AgentConnection] = deque()  # have more to be carried out, and are not read meanwhile

    async def start(self, host: str, port: int) -> int:
        """Listens on `host`:`port` too; returns the port (useful with port 0)."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._connection, host, port)
        self._servers.append(server)
        if self._sweeper is None:
            self.sites.restored(self.runtime.manager.core.relay_parts.values(), CLOCK.s())
            self._sweeper = asyncio.create_task(self._sweep())
        bound: int = cast(Any, server).sockets[0].getsockname()[1]
        return bound

    @property
    def turned_away(self) -> int:
        """Connections that were ended with the reason, since the start."""
        return self.refused + (self.tls.refused if self.tls else 0)

    def _connection(self) -> asyncio.Protocol:
        made = AgentConnection(self, next(self._numbers))
        return self.tls.wrap(made) if self.tls else made

    async def close(self) -> None:
        """Agents keep what they have, and connect again when the manager is back."""
        for server in self._servers:
            server.close()
        if self._sweeper:
            self._sweeper.cancel()
        self.objects.close()
        for connection in list(self.connections):
            connection.drop("the manager stops")
        if self.tls:
            self.tls.close()
        await asyncio.sleep(0)

    def respond(self, server: str, response: PathResponse) -> None:
        arrived = self._arrived.pop((server, response.request_id), None)
        connection = self.agents.get(server)
        if connection:
            connection.send(thrift_response.response(response, REASON_MAX))
        if self.audit:
            facts = {"request": response.request_id, "path": response.response_id, "why": response.reason}
            self.audit.note("agents", server, "", response.decision.name.lower(), **facts)
        if arrived is not None:
            self.latency.add(time.perf_counter_ns() - arrived)

    def moved(self, server: str, path_id: str, kind: PathKind, reason: str) -> None:
        connection = self.agents.get(server)
        if connection:
            code = values.kind_code(kind)
            connection.call("moved", {"response_id": path_id, "kind": code, "reason": reason[:REASON_MAX]})

    def light(self, server: str, path_id: str) -> None:
        connection = self.agents.get(server)
        if connection:
            connection.call("light", {"response_id": path_id})

    def view(self, server: str, view: OverlayView) -> None:
        if self.keys:
            self._tell_keys(self.keys.named(server, [one.server for one in view.addresses]))
        connection = self.agents.get(server)
        if connection:
            connection.call("view", {"view": values.overlay_view(view)})

    def group_view(
        self, server: str, peers: Sequence[GroupPeer], views: Sequence[GroupView], regions: Sequence[GroupRegion]
    ) -> None:
        if self.keys:
            self._tell_keys(self.keys.views(server, peers, views, regions))
        connection = self.agents.get(server)
        if connection:
            if regions:
                connection.call("group_regions", groups.regions(peers, regions))
            if views or not regions:
                connection.call("group_view", groups.views(() if regions else peers, views))

    def group_refused(self, server: str, group: str, reason: str) -> None:
        connection = self.agents.get(server)
        if connection:
            connection.call("group_refused", {"group": group[:ID_MAX], "reason": reason[:REASON_MAX]})

    def failed(self, server: str, path_id: str, reason: str) -> None:
        connection = self.agents.get(server)
        if connection:
            connection.call("failed", {"response_id": path_id, "reason": reason[:REASON_MAX]})

    def _probe(self, server: str, order: Any) -> bool:
        connection = self.agents.get(server)
        if connection is None or not connection.knows_probes:
            return False
        connection.call("probe", {"order": order})
        return True

    def _say(self, server: str, method: str, arguments: dict[str, Any]) -> bool:
        """To an agent that knows sites."""
        connection = self.agents.get(server)
        if connection is None or not connection.knows_sites:
            return False
        connection.call(method, arguments)
        return True

    def _noted(self, event: ev.RelaysNoted) -> asyncio.Future[None] | None:
        self.runtime.post(event)
        return None if event.later else self.runtime.writing()

    def _tell(self, server: str, method: str, arguments: dict[str, Any]) -> bool:
        """To an agent that tells of its objects."""
        connection = self.agents.get(server)
        if connection is None or connection.piece_port is None:
            return False
        connection.call(method, arguments)
        return True

    def _piece_ports(self) -> dict[str, int]:
        return {name: one.piece_port for name, one in self.agents.items() if one.piece_port}

    def _present(self) -> dict[str, Present]:
        agents = self.runtime.manager.core.agents
        return {
            name: Present(agents[name].control_port, one.relay, one.address, one.knows_terms)
            for name, one in self.agents.items()
            if one.knows_sites and name in agents
        }

    def request_arrived(self, server: str, request_id: str, at: int) -> None:
        if len(self._arrived) < ARRIVALS_MAX:
            self._arrived[server, request_id] = at

    def greet(self, connection: AgentConnection, info: Any) -> None:
        """Checks a hello and takes the connection as its server's agent. Raises BadMessage."""
        version = values.need(info, "version", int)
        if version != idl.VERSION:
            raise BadMessage(
                f"the agent speaks version {version}, this manager {idl.VERSION}; install the same release"
            )
        server = values.need(info, "server", str)
        boot_id = values.need(info, "boot_id", int)
        port = values.need(info, "control_port", int)
        topology = self.runtime.manager.core.topology
        wrong = unknown_servers([server], topology, "server")
        if wrong:
            raise BadMessage(wrong[0])
        thrift_tls.admit(server, connection.certified, topology.tenant_of(server) if topology.secure else None)
        connection.seals = info.seals is True
        if connection.seals != (self.keys is not None):
            raise BadMessage(NOT_SEALING if self.keys else f"the agent of {server} {SEALS_ALONE}")
        tenant = self.gate.admit(server, info.token)
        tenant = topology.tenant_of(server) or tenant
        if connection.certified is None and self.gate.open:
            self._not_from_another(server, connection)
        if not 0 < port < 65536:
            raise BadMessage(f"control_port {port} is out of range: 1 to 65535")
        live = values.live_paths(info)
        if any(not 0 < len(one.request_id) <= ID_MAX or not 0 < len(one.response_id) <= ID_MAX for one in live):
            raise BadMessage(f"ids of live paths must have 1 to {ID_MAX} characters")
        older = self.agents.get(server)
        if older and older is not connection:
            if boot_id < older.boot_id:
                raise BadMessage(f"a newer agent of {server} is connected already, from {older.peer}")
            older.server = ""  # its end is no news of the server
            older.close(f"a newer agent of {server} connected from {connection.peer}")
        connection.server, connection.boot_id, connection.tenant = server, boot_id, tenant
        connection.knows_probes = info.knows_probes is True
        connection.knows_sites, connection.relay = info.knows_sites is True, info.relay is True
        connection.knows_terms = info.knows_terms is True
        port_of_pieces = info.piece_port if isinstance(info.piece_port, int) else None
        if port_of_pieces is not None and not 0 <= port_of_pieces < 65536:
            raise BadMessage(f"piece_port {port_of_pieces} is out of range: 0 to 65535")
        connection.piece_port = port_of_pieces
        connection.software = str(info.software or "")[:64]
        self.agents[server] = connection
        self.objects.objects.agent_up(server, bool(port_of_pieces), info.serves is True)
        welcome = encode("Agent", "welcome", {"manager": self.name, "manager_boot_id": self.boot_id})
        if connection.knows_sites and topology.sites:  # at once: an agent must not think for a moment that it is alone
            welcome += encode("Agent", "site", {"site": topology.site_of(server)})
        connection.send(welcome)
        if self.keys:
            self._tell_keys(self.keys.hello(server, info.signer))
        if connection.piece_port is not None:
            connection.call("tell_objects", {})
        self.sites.back(server)
        self.runtime.post(
            ev.AgentUp(
                server,
                boot_id,
                port,
                live,
                wants_light=info.wants_light is True,
                protocols=groups.protocols(info, "protocols"),
                group_engines=groups.engines(info),
                round_trip_us=max(info.round_trip_us or 0, 0),
            )
        )

    def _not_from_another(self, server: str, connection: AgentConnection) -> None:
        """Nobody proves who it is, so a program on one server would be taken for the agent of any other. Addresses that
        the topology does not know are let in: there may be a translation of addresses on the way.
        """
        owners = self.servers_at.get(connection.address)
        if owners and server not in owners:
            raise BadMessage(
                f"by its hello it is the agent of {server}, and it comes from {connection.address}, which is "
                f"{min(owners)}'s address in the topology; start rostrumd with the --server of its own machine"
            )

    def _tell_keys(self, told: Told) -> None:
        for server, keys in told:
            connection = self.agents.get(server)
            for at in range(0, len(keys) if connection else 0, KEYS_MAX):
                cast(AgentConnection, connection).call("keys", {"keys": keys[at : at + KEYS_MAX]})

    def _trust_changed(self) -> None:
        """The CA's file is another: whoever is revoked, or was signed by one that is gone, must not stay, nor read what
        the others seal from now on. They come again at once, and show their certificates anew.
        """
        for connection in list(self.connections):
            connection.drop("certificates are looked at again")
        if self.keys:
            self.keys.rekey()

    def gone(self, connection: AgentConnection, cause: str) -> None:
        self.connections.discard(connection)
        if connection.server and self.agents.get(connection.server) is connection:
            del self.agents[connection.server]
            self.objects.objects.agent_down(connection.server)
            self.runtime.post(ev.AgentDown(connection.server, connection.boot_id, cause))

    def later(self, connection: AgentConnection) -> None:
        """It has more to be carried out, in its turn."""
        self._behind.append(connection)
        if len(self._behind) == 1:
            asyncio.get_running_loop().call_soon(self._catch_up)

    def _catch_up(self) -> None:
        end = time.perf_counter_ns() + TURN_NS
        while self._behind:
            connection = self._behind.popleft()
            try:
                if connection.catch_up():
                    self._behind.append(connection)
            except Exception:  # others' calls wait behind it
                log.exception(line("call could not be handled", agent=connection.server or "-"))
                connection.drop("one of its calls could not be handled")
            if time.perf_counter_ns() >= end:
                break
        for connection in self._behind:
            connection.renew()  # what it said is here, if not yet looked at
        if self._behind:
            asyncio.get_running_loop().call_soon(self._catch_up)

    def crowded_out(self, newest: AgentConnection) -> None:
        """There is one connection too many: the oldest that has not said hello goes, at worst the newest."""
        strangers = (one for one in self.connections if not one.boot_known and not one.closing)
        oldest = min(strangers, key=lambda one: one.number, default=newest)
        oldest.close(f"{self.connections_max} connections are open already")

    async def _sweep(self) -> None:
        """Closes connections that do not speak."""
        settings = self.runtime.manager.core.settings
        lease_s, away_s = settings.lease_ns / 1e9, settings.away / 1e9
        while True:
            await asyncio.sleep(SWEEP_S)
            now = CLOCK.s()
            self.sites.due(now)
            if self.tls:
                self.tls.reload()
            if self.keys:
                self._tell_keys(self.keys.due())
            for connection in list(self.connections):
                silent = now - connection.heard
                if not connection.boot_known and now - connection.connected > HELLO_BOUND_S:
                    connection.close(f"no hello within {HELLO_BOUND_S:g} s")
                elif silent > max(SILENCE_LEASES * lease_s, away_s, HELLO_BOUND_S):
                    connection.close(f"nothing heard for {silent:.1f} s; send keepalive at least three times per lease")


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Has TCP end the connection some 10 s after the agent's machine is gone. A stopped agent's machine answers."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 4), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


class AgentConnection(asyncio.Protocol):
    """One TCP connection. `server` is empty until a good hello."""

    def __init__(self, service: ThriftService, number: int) -> None:
        self.service = service
        self.number = number
        self.server = ""
        self.tenant = TENANT
        self.software = ""
        self.knows_probes = False
        self.knows_sites = self.relay = self.knows_terms = False
        self.seals = False
        self.piece_port: int | None = None  # None: it does not tell what it holds
        self.certified: Identity | None = None  # as its certificate says; None: no TLS
        self.boot_id = 0
        self.boot_known = False
        self.connected = self.heard = CLOCK.s()
        self._renew_at = 0.0
        self._arrived = 0  # the last bytes, by time.perf_counter_ns
        self.peer = "?"
        self.address = ""
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._cause = "closed by the agent"
        self._closing = False
        self._behind = False  # it is in its service's turn, and not read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods, not by its class
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        self.address = str(peer[0]) if peer else ""
        self.certified = transport.get_extra_info("certified")
        keep_alive(transport)
        self.service.connections.add(self)
        if len(self.service.connections) > self.service.connections_max:
            self.service.crowded_out(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self._behind:
            self._carry_out(FOREVER)
        self._closing = True
        self.service.gone(self, str(error) if error else self._cause)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._arrived = time.perf_counter_ns()
        self._buffer += data
        self.renew()
        if self._behind:
            return
        if self._carry_out(self._arrived + SLICE_NS):
            self._behind = True
            if self._transport is not None:
                self._transport.pause_reading()
            self.service.later(self)

    def renew(self) -> None:
        """Every word renews the lease."""
        self.heard = CLOCK.s()
        if self.server and self.heard >= self._renew_at and not self._closing:
            self._renew_at = self.heard + self.service.runtime.manager.core.settings.lease_ns / 1e9 / RENEWALS
            self.service.runtime.post(ev.KeepAlive(self.server))

    def catch_up(self) -> bool:
        """In its turn. True: there is more to be carried out."""
        self._behind = self._carry_out(time.perf_counter_ns() + SLICE_NS)
        if not self._behind and not self._closing and self._transport is not None:
            self._transport.resume_reading()
        return self._behind

    def _carry_out(self, until: int) -> bool:
        """Calls that are here whole. True: there are more, and it is late."""
        source, at, late = self._buffer, 0, False
        while len(source) - at >= 4 and not self._closing:
            length = int.from_bytes(source[at : at + 4], "big")
            if not 0 < length <= FRAME_MAX:
                wrong = f"a frame of {length} bytes; 1 to {FRAME_MAX} are possible (framed binary Thrift)"
                self.close(thrift_tls.SPOKE_TLS if thrift_tls.meant_tls(length) else wrong)
                break
            if len(source) - at - 4 < length:
                break
            if late:
                del source[:at]
                return True
            frame = bytes(source[at + 4 : at + 4 + length])
            at += 4 + length
            try:
                self._handle(frame, self._arrived)
            except BadMessage as error:
                self.close(str(error))
                break
            late = time.perf_counter_ns() >= until
        del source[:at]
        return False

    def call(self, method: str, arguments: dict[str, Any]) -> None:
        """Agent.`method` at the other end."""
        if not self._closing:
            self.send(encode("Agent", method, arguments))

    def send(self, frame: bytes) -> None:
        """An agent that does not read is disconnected."""
        if self._closing or self._transport is None:
            return
        self._transport.write(frame)
        if self._transport.get_write_buffer_size() > UNSENT_MAX:
            self._cause = f"it left {UNSENT_MAX >> 20} MiB unread"
            log.warning(line("agent too slow", agent=self.server or "-", peer=self.peer, cause=self._cause))
            self._closing = True
            self._transport.abort()

    def close(self, reason: str) -> None:
        """Says goodbye with the reason, and ends the connection."""
        if self._closing or self._transport is None:
            return
        left_out = 0 if self.server else self.service.strangers.may(time.monotonic())
        if left_out is not None:
            more = {"not_logged": left_out} if left_out else {}
            log.warning(line("goodbye", agent=self.server or "-", peer=self.peer, cause=reason, **more))
        self.service.refused += 1
        self._note("refused", why=reason)
        self.call("goodbye", {"reason": reason[:REASON_MAX]})
        self._closing, self._cause = True, reason
        self._transport.close()
        # What the peer does not take in a while is dropped with the connection.
        asyncio.get_running_loop().call_later(1.0, self._transport.abort)

    @property
    def closing(self) -> bool:
        return self._closing

    def drop(self, cause: str) -> None:
        """Ends the connection without a message, as a manager that died would."""
        if not self._closing and self._transport is not None:
            self._closing, self._cause = True, cause
            self._transport.close()

    def _handle(self, frame: bytes, arrived: int) -> None:
        if self.server and self._handled(frame, arrived):
            return
        method, args = decode("Manager", frame)
        if method == "hello":
            if self.server:
                raise BadMessage(f"hello twice on the connection of {self.server}")
            self.service.greet(self, values.need(args, "info", idl.AgentInfo))
            self._note("hello")
            self.boot_known = True
            return
        if not self.server:
            raise BadMessage(f"{method} before hello; say Manager.hello first")
        if method in AUDITED and self.service.audit:
            self._note(method, **{key: _named(getattr(args, key, "")) for key in AUDITED[method]})
        _CALLS[method](self, args, arrived)

    def _handled(self, frame: bytes, arrived: int) -> bool:
        """The two calls that come most, if they look as they mostly do."""
        if thrift_request.is_release(frame):
            ids = thrift_request.release(frame)
            if ids is not None:
                self._note("release", path=ids[0], request=ids[1])
                self.service.runtime.post(ev.Released(ids[0], ids[1], self.server))
            return ids is not None
        if thrift_request.is_request(frame):
            request = thrift_request.request(frame, self.server, self.tenant)
            if request is not None:
                self._ask(request, arrived)
            return request is not None
        return False

    def _note(self, what: str, **facts: Value) -> None:
        if self.service.audit:
            who = str(self.certified) if self.certified else self.server
            self.service.audit.note("agents", who, self.peer, what, server=self.server, tenant=self.tenant, **facts)

    def _ask(self, request: PathRequest, arrived: int) -> None:
        self._note(
            "request",
            request=request.request_id,
            sender=request.sender,
            receivers=list(request.receivers[:LIST_MAX]),
            receiver_count=len(request.receivers),
            size=request.data_size,
        )
        self.service.request_arrived(self.server, request.request_id, arrived)
        self.service.runtime.post(ev.RequestReceived(request))

    def on_request(self, args: Any, arrived: int) -> None:
        self._ask(values.request(args, self.server, self.tenant), arrived)

    def on_release(self, args: Any, arrived: int) -> None:
        path_id, request_id = values.need(args, "response_id", str), values.need(args, "request_id", str)
        self.service.runtime.post(ev.Released(path_id, request_id, self.server))

    def on_cancel(self, args: Any, arrived: int) -> None:
        self.service.runtime.post(ev.Cancelled(values.need(args, "request_id", str), self.server))

    def on_keepalive(self, args: Any, arrived: int) -> None:
        """The agent may have another manager to go to, or was stopped itself: by this answer it knows that it has read
        all that it was told meanwhile.
        """
        self.call("alive", {})

    def on_no_light(self, args: Any, arrived: int) -> None:
        path_id = values.need(args, "response_id", str)
        self.service.runtime.post(ev.NoLight(path_id, values.texts(args, "receivers"), self.server))

    def on_receiver_change(self, args: Any, arrived: int) -> None:
        path_id, server = values.need(args, "response_id", str), values.need(args, "server", str)
        change = ev.ReceiverJoins if values.need(args, "joins", bool) else ev.ReceiverLeaves
        self.service.runtime.post(change(path_id, server, self.server))

    def on_report(self, args: Any, arrived: int) -> None:
        self.service.runtime.post(ev.ReportReceived(values.report(args), self.server))

    def on_join_group(self, args: Any, arrived: int) -> None:
        self.service.runtime.post(ev.GroupJoined(self.server, groups.use(args)))

    def on_leave_group(self, args: Any, arrived: int) -> None:
        self.service.runtime.post(ev.GroupLeft(self.server, values.need(args, "group", str)))

    def on_use_group(self, args: Any, arrived: int) -> None:
        self.service.runtime.post(ev.GroupJoined(self.server, groups.use(args), sends_only=True))

    def on_unuse_group(self, args: Any, arrived: int) -> None:
        self.service.runtime.post(ev.GroupLeft(self.server, values.need(args, "group", str), sends_only=True))

    def on_group_trouble(self, args: Any, arrived: int) -> None:
        self.service.runtime.post(ev.GroupTroubled(self.server, *groups.trouble(args)))

    def on_probe_report(self, args: Any, arrived: int) -> None:
        self.service.probes.reported(self.server, args)

    def on_split(self, args: Any, arrived: int) -> None:
        self.service.sites.split(self.server, args)
        one = args.request
        self._note("split", request=one.request_id, object=fetched(args), receiver_count=len(one.receivers))

    def on_relayed(self, args: Any, arrived: int) -> None:
        self.service.sites.relayed(self.server, args, CLOCK.s())

    def on_whose(self, args: Any, arrived: int) -> None:
        self.service.sites.whose(self.server, args)

    def on_holds(self, args: Any, arrived: int) -> None:
        self.service.objects.holds(self.server, args)
        self.service.sites.held(self.server, args)

    def on_fetch(self, args: Any, arrived: int) -> None:
        self.service.objects.fetch(self.server, args)
        self._note("fetch", object=fetched(args))

    def on_peer_keys(self, args: Any, arrived: int) -> None:
        if self.service.keys:
            wished = self.service.keys.wish(self.server, values.texts(args, "servers"))
            self.service._tell_keys([(self.server, wished)])

    def on_view_used(self, args: Any, arrived: int) -> None:
        path_id, version = values.need(args, "response_id", str), values.need(args, "version", int)
        self.service.runtime.post(ev.ViewUsed(path_id, version, self.server))

    def on_failure(self, args: Any, arrived: int) -> None:
        self.service.runtime.post(ev.FailureReported(values.failure(args), self.server))


def _named(value: Any) -> str:
    """Of a use of a group its name."""
    return str(getattr(value, "group", value))


_CALLS: dict[str, Callable[[AgentConnection, Any, int], None]] = {
    "request": AgentConnection.on_request,
    "release": AgentConnection.on_release,
    "cancel": AgentConnection.on_cancel,
    "keepalive": AgentConnection.on_keepalive,
    "no_light": AgentConnection.on_no_light,
    "receiver_change": AgentConnection.on_receiver_change,
    "report": AgentConnection.on_report,
    "probe_report": AgentConnection.on_probe_report,
    "split": AgentConnection.on_split,
    "relayed": AgentConnection.on_relayed,
    "whose": AgentConnection.on_whose,
    "holds": AgentConnection.on_holds,
    "fetch": AgentConnection.on_fetch,
    "peer_keys": AgentConnection.on_peer_keys,
    "view_used": AgentConnection.on_view_used,
    "failure": AgentConnection.on_failure,
    "join_group": AgentConnection.on_join_group,
    "leave_group": AgentConnection.on_leave_group,
    "use_group": AgentConnection.on_use_group,
    "unuse_group": AgentConnection.on_unuse_group,
    "group_trouble": AgentConnection.on_group_trouble,
}
