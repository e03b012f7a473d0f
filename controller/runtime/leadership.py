"""One of several managers of a topology: stands by until it leads, leads until it is deposed, and stands by again.

While it stands by, OpenFlow switches may connect (as to a SLAVE), agents find nobody at its Thrift port and try the
next address, and REST says where the leader is. P4 switches and OCSs are connected to by the leader only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, Request, Response
from rostrum.controller import required
from rostrum.controller.app import App, Memory
from rostrum.controller.config import Cluster, Config
from rostrum.controller.core import events as ev
from rostrum.controller.keyvalue import line
from rostrum.controller.northbound.rest import problems
from rostrum.controller.northbound.rest.access import Access
from rostrum.controller.northbound.rest.http_server import HttpServer
from rostrum.controller.northbound.thrift import tls as thrift_tls
from rostrum.controller.northbound.thrift.gate import AgentGate
from rostrum.controller.runtime import drivers
from rostrum.controller.runtime.etcd import Etcd, Tls, read_user
from rostrum.controller.runtime.shared_store import Election, Facts, SharedStore
from rostrum.controller.runtime.store import StoreError, StoreRefused
from rostrum.controller.southbound.fabric import MixedFabric
from rostrum.controller.speed.memory import settle_memory

log = logging.getLogger("rostrum.manager")

ORDER_MARGIN = 0.25  # of the lease: an order to an OCS, which knows no terms, leaves only while so much of it is left
AGAIN_S = 1.0  # before a member that was deposed, or could not begin to lead, stands by again
AGAIN_MAX_S = 30.0  # the same, when etcd refused what it wrote, and will again


class Relay:
    """Where the drivers' events go: nowhere, until there is a manager."""

    def __init__(self) -> None:
        self.post: Callable[[ev.Event], None] | None = None

    def __call__(self, event: ev.Event) -> None:
        if self.post:
            self.post(event)


async def run(config: Config, stop: asyncio.Event) -> None:
    """Until `stop`. Raises OSError, AccessError, SouthboundError if it cannot even stand by."""
    assert config.cluster is not None
    cluster = config.cluster
    _check(config)
    user = read_user(cluster.user) if cluster.user else None
    etcd = Etcd(cluster.etcd, Tls(*cluster.tls) if cluster.tls else None, config.topology.secure, user)
    prefix = f"/rostrum/{config.topology.name}"
    pause_s = AGAIN_S
    try:
        while not stop.is_set():
            election = Election(etcd, prefix, _facts(config, cluster), cluster.lease_s)
            relay = Relay()
            fabric = drivers.switches(config, relay)
            try:
                if await _stand_by(config, election, fabric, stop):
                    await _lead(config, etcd, prefix, election, fabric, relay, stop)
                pause_s = AGAIN_S
            except StoreError as error:
                pause_s = min(2 * pause_s, AGAIN_MAX_S) if isinstance(error, StoreRefused) else AGAIN_S
                log.warning(line("deposed", cause=error))
            finally:
                await fabric.close()
                await election.resign()
            if not stop.is_set():
                await _first(asyncio.sleep(pause_s), stop)
    finally:
        await etcd.close()


def _check(config: Config) -> None:
    """Of files that only a leader uses it is better told now that they are of no use."""
    required.check(config)
    AgentGate(config.security.agent_tokens)
    if config.security.thrift_tls:
        thrift_tls.read(config.security.thrift_tls)


async def _stand_by(config: Config, election: Election, fabric: MixedFabric, stop: asyncio.Event) -> bool:
    """True once this member leads; False if it is to stop."""
    topology = config.topology
    access = Access(config.access, topology.secure)
    http = HttpServer(_pointing(election))
    rest_port = topology.manager.rest_port if config.rest_port is None else config.rest_port
    openflow_port = topology.manager.openflow_port if config.openflow_port is None else config.openflow_port
    config.run.mkdir(parents=True, exist_ok=True)
    try:
        await fabric.stand_by(config.addresses[0], openflow_port)
        for address in config.addresses:
            door = access.door(address)
            await http.listen_tcp(address, rest_port, door, access.tls(door))
        await http.listen_unix(config.run / "manager.sock")
        log.info(line("standing by", listen=",".join(config.addresses), rest=rest_port))
        election.on_leader = fabric.follow
        return await _first(election.campaign(), stop)
    finally:
        election.on_leader = None
        await http.close()


async def _lead(
    config: Config,
    etcd: Etcd,
    prefix: str,
    election: Election,
    fabric: MixedFabric,
    relay: Relay,
    stop: asyncio.Event,
) -> None:
    """Until it is to stop. Raises StoreError when another manager has to lead."""
    store = SharedStore(etcd, prefix, election)
    records = await store.load()
    log.info(line("leading", term=election.term, records=sum(map(len, records.values())), complete=store.complete))
    fabric.lead(election.term)
    # Ids made by this leader differ from those of the one before, whatever the machines' clocks say.
    settings = replace(config.settings, boot_id=config.settings.boot_id + 100 * election.term)
    memory = Memory(
        store, records, store.complete, election.leads, term=election.term, margin_s=election.ttl_s * ORDER_MARGIN
    )
    app = App(replace(config, settings=settings), lambda *_: fabric, memory=memory)
    relay.post = app.runtime.post
    tending = asyncio.create_task(store.tend(config.settings.grace / 1e9))
    try:
        await app.start()
        settle_memory()
        assert app.lost is not None and election.lost is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, app.reload)
        election.lost.add_done_callback(lambda done: app.give_up(done.result()))
        await app.until(stop)
    finally:
        relay.post = None
        tending.cancel()
        await app.close()


async def _first(campaign: Any, stop: asyncio.Event) -> bool:
    won, stopped = asyncio.ensure_future(campaign), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((won, stopped), return_when=asyncio.FIRST_COMPLETED)
        return won.done() and not stop.is_set()
    finally:
        for task in (won, stopped):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _facts(config: Config, cluster: Cluster) -> Facts:
    manager, address = config.topology.manager, config.addresses[0]
    scheme = "https" if config.access.tls else "http"
    rest = f"{scheme}://{address}:{config.rest_port or manager.rest_port}"
    name = cluster.member or f"{socket.gethostname()}-{address}"
    return Facts(name, rest, f"{address}:{config.thrift_port or manager.thrift_port}")


def _pointing(election: Election) -> FastAPI:
    """REST of a standby: every request is answered with where the leader is."""
    app = FastAPI(openapi_url=None)

    async def elsewhere(request: Request) -> Response:
        leader = election.leader
        if leader is None:
            why = f" ({election.obstacle})" if election.obstacle else ""
            answer = problems.answer(503, f"this manager stands by, and none leads yet{why}; ask again in a second")
            answer.headers["Retry-After"] = "1"
            return answer
        where = f"{leader.rest}{request.url.path}" + (f"?{request.url.query}" if request.url.query else "")
        answer = problems.answer(307, f"this manager stands by; {leader.member} leads, at {leader.rest}")
        answer.headers["Location"] = where
        return answer

    app.add_route("/{path:path}", elsewhere, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    return app
