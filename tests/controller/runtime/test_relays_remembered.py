"""What relays were told outlives the manager that told it: the next one believes them no more than it did."""

from __future__ import annotations

import dataclasses
import json
import ssl
from pathlib import Path
from typing import Any

from rostrum.controller.access_options import SecurityOptions
from rostrum.controller.northbound.rest.access import AccessOptions
from rostrum.controller.northbound.thrift.codec import idl
from rostrum.controller.runtime import journal

from tests.controller.certificates import Authority
from tests.controller.fakes import FakeAgent, running, until
from tests.controller.northbound.test_thrift_tls import client
from tests.controller.runtime.test_etcd_cluster import NAMES, Cluster
from tests.controller.runtime.test_shared_store import free_port, managing
from tests.topologies import three_sites

APP, DATA = b"0123456789abcdef", 7
OURS, OTHERS = "sha256-tree:aa", "sha256-tree:bb"
SENDER, RELAY, RECEIVER = "home-1", "east-1", "east-2"
TOPOLOGY = dataclasses.replace(three_sites.topology("east: relays: [east-1]"), secure=True)


class Agents:
    """Those three, of one authority. The relay is a liar from the second manager on."""

    def __init__(self, folder: Path, ours: Authority) -> None:
        self.tls: dict[str, ssl.SSLContext] = {}
        for name in (SENDER, RELAY, RECEIVER):
            self.tls[name] = client(ours, ours.sign(name, dns=(), uris=[f"rostrum:agent:{name}"], common=False))
        self.here: dict[str, FakeAgent] = {}

    async def connect(self, port: int, boot_id: int = 1) -> None:
        for name, tls in self.tls.items():
            self.here[name] = await FakeAgent.connect(
                port, name, boot_id, tls, seals=True, knows_sites=True, piece_port=7073
            )

    def holds(self, server: str, digest: str) -> None:
        one = idl.HeldObject(APP, DATA, 1000, digest)
        self.here[server].say("holds", objects=[one], reset=False)

    async def ordered(self) -> Any:
        """The relay has its order: home-1 sends to east-2 by it."""
        self.holds(SENDER, OURS)
        self.here[SENDER].say("split", request=idl.SplitRequest("a", APP, DATA, [RECEIVER], []))
        order = (await self.here[RELAY].expect("relay")).order
        assert order.receivers == [RECEIVER]
        return order

    async def check_the_liar(self, leg_id: str) -> None:
        """It passes on another object, and says that all have theirs. The sender's agent is not there yet."""
        self.here[RECEIVER].say("whose", app_id=APP, data_id=DATA, sender=RELAY, digest="")
        told = (await self.here[RECEIVER].expect("origin")).origin
        assert (told.origin, told.digest) == (SENDER, OURS)
        row = idl.ReceiverReport(RECEIVER, "done", "", 0, 0, 0, 0)
        self.here[RELAY].say("relayed", report=idl.RelayReport(leg_id, SENDER, RELAY, "done", "", 1000, [row]))
        heard = (await self.here[SENDER].expect("relayed")).report
        assert (heard.state, heard.receivers[0].state) == ("passing", "receiving")
        self.holds(RECEIVER, OURS)  # and so it is done all the same
        await self.here[SENDER].expect("relayed", lambda said: said.report.receivers[0].state == "done")


async def test_a_relay_that_lies_to_a_manager_that_was_killed_and_came_back(tmp_path: Path) -> None:
    ours, file = Authority(tmp_path, "ours"), tmp_path / "journal"
    manager_of = ours.sign("manager", uris=["rostrum:manager"], common=False)
    files = (*manager_of, tmp_path / "ours-ours.pem")
    audit = tmp_path / "audit"
    security = SecurityOptions(thrift_tls=files, openflow_tls=files, audit=audit)
    agents = Agents(tmp_path, ours)
    async with running(tmp_path / "one", topology=TOPOLOGY, security=security, journal=file) as first:
        await agents.connect(first.app.thrift_port)
        leg_id = (await agents.ordered()).leg_id
        # Before the relay heard of it: what is killed now has lost nothing.
        assert journal.show(file)["records"]["relay"][leg_id]["origin"] == SENDER
        (asked,) = (one for one in map(json.loads, audit.read_text().splitlines()) if one["what"] == "split")
        assert (asked["who"], asked["request"], asked["receiver_count"]) == (f"{SENDER} (agent)", "a", 1)
        assert APP.hex() not in audit.read_text()
        agents.here[RECEIVER].say("whose", app_id=APP, data_id=DATA, sender=RELAY, digest="")
        await agents.here[RECEIVER].expect("origin")
        await until(lambda: journal.show(file)["records"]["relay"][leg_id]["digest"], "the digest in the journal")
    async with running(tmp_path / "two", topology=TOPOLOGY, security=security, journal=file) as second:
        await agents.connect(second.app.thrift_port, 1)
        await agents.check_the_liar(leg_id)


async def test_a_relay_that_lies_to_the_standby_that_took_over(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    cluster = Cluster(tmp_path, authority)
    files = (*authority.sign("own", uris=["rostrum:manager"], common=False), authority.certificate)
    closed = {
        "security": SecurityOptions(thrift_tls=files, openflow_tls=files),
        "access": AccessOptions(tls=files[:2], client_ca=authority.certificate),
    }
    etcd = (authority.certificate, *files[:2])
    agents = Agents(tmp_path, authority)

    async def port_of(run: Path) -> int:
        await until(lambda: (run / "manager.json").exists(), f"{run.name} to lead", 60.0)
        return int(json.loads((run / "manager.json").read_text())["thrift_port"])

    try:
        for name in NAMES:
            cluster.start(name)
        await cluster.leader()
        one, two = tmp_path / "one", tmp_path / "two"
        async with managing(TOPOLOGY, cluster.urls, one, "a", free_port(), etcd, 10, **closed) as stop:
            await agents.connect(await port_of(one))
            leg_id = (await agents.ordered()).leg_id
            agents.here[RECEIVER].say("whose", app_id=APP, data_id=DATA, sender=RELAY, digest="")
            await agents.here[RECEIVER].expect("origin")
            async with managing(TOPOLOGY, cluster.urls, two, "b", free_port(), etcd, 10, **closed):
                stop.set()
                await agents.connect(await port_of(two))
                agents.holds(SENDER, OURS)
                await agents.check_the_liar(leg_id)
    finally:
        cluster.close()
