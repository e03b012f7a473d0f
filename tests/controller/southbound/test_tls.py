"""OpenFlow and P4Runtime over TLS: who shows the right certificate gets through, nobody else does."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from rostrum.controller.commands.pki import pki
from rostrum.controller.core.model import Pair, SouthboundError
from rostrum.controller.southbound import tls
from rostrum.controller.southbound.openflow.switches import OpenFlowFabric
from rostrum.controller.southbound.p4runtime.switches import P4RuntimeFabric
from rostrum.lab import intruder

from tests.controller.certificates import Authority
from tests.controller.southbound.conftest import wait_until
from tests.controller.southbound.p4_servers import FakeServer
from tests.controller.southbound.p4_world import PIPELINE, topology
from tests.controller.timeline import hybrid

HELLO = bytes.fromhex("0400000800000001")  # OpenFlow 1.3


def files(authority: Authority, name: str) -> tuple[Path, Path, Path]:
    certificate, key = authority.sign(name)
    return certificate, key, authority.folder / f"{authority.name}-{authority.name}.pem"


def client(found: tuple[Path, Path, Path], own: bool = True) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=found[2])
    if own:
        made.load_cert_chain(found[0], found[1])
    return made


async def greeted(port: int, context: ssl.SSLContext | None) -> bytes:
    """What the manager says first to a switch that says hello; empty if it ends the connection."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        try:
            writer.write(HELLO)
            return (await asyncio.wait_for(reader.readexactly(8), 60))[:2]
        finally:
            writer.close()
    return b""


async def test_openflow__only_switches_with_a_certificate_of_ours(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    context = tls.door_trust(files(ours, "manager"))
    fabric = OpenFlowFabric(hybrid(), lambda _: None, lambda *_: None, tls=context)
    await fabric.start("127.0.0.1", 0)
    try:
        good, bad = files(ours, "tor1"), files(theirs, "tor1")
        assert await greeted(fabric.port, client(good)) == HELLO[:2]
        assert await greeted(fabric.port, client(good, own=False)) == b""
        assert await greeted(fabric.port, None) == b""
        stranger = client(bad)
        stranger.load_verify_locations(good[2])
        assert await greeted(fabric.port, stranger) == b""
        assert await greeted(fabric.port, client(good)) == HELLO[:2]
    finally:
        await fabric.close()


def features(dpid: int) -> bytes:
    """What a switch says to end the handshake."""
    reply = struct.pack("!BBHIQIBBHII", 4, 6, 32, 1, dpid, 256, 254, 0, 0, 0, 0)
    return reply + struct.pack("!BBHIHHI", 4, 19, 16, 1, 13, 0, 0)


@pytest.mark.parametrize(
    ("name", "uris", "taken"),
    [
        ("tor1", ["rostrum:switch:tor1"], True),
        ("tor1", ["rostrum:switch"], True),
        ("tor1", [], True),  # as before there were roles: by its name
        ("tor2", ["rostrum:switch:tor2"], False),
        ("h1", ["rostrum:agent:h1"], False),
        ("tor1", ["rostrum:agent:tor1"], False),
        ("h1", [], False),
    ],
)
async def test_openflow__a_certificate_is_good_for_the_switch_it_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, uris: list[str], taken: bool
) -> None:
    """Any certificate of the CA could be any switch."""
    ours = Authority(tmp_path, "ours")
    topology = hybrid()
    fabric = OpenFlowFabric(topology, lambda _: None, lambda *_: None, tls=tls.door_trust(files(ours, "manager")))
    await fabric.start("127.0.0.1", 0)
    try:
        certificate = (*ours.sign(name, uris=uris), ours.certificate)
        reader, writer = await asyncio.open_connection("127.0.0.1", fabric.port, ssl=client(certificate))
        dpid = topology.switches["tor1"].dpid
        assert dpid is not None
        writer.write(HELLO + features(dpid))
        if taken:
            await wait_until(lambda: "tor1" in fabric._links)
        else:
            await asyncio.wait_for(reader.read(), 60)  # to its end
            await wait_until(lambda: "its certificate is for" in caplog.text)
            assert "it is tor1" in caplog.text and "URI:rostrum:switch:tor1" in caplog.text
            assert not fabric._links
        writer.close()
    finally:
        await fabric.close()


@pytest.mark.parametrize(("name", "role", "taken"), [("tor1", "switch", True), ("h1", "agent", False)])
async def test_openflow__only_a_switch_is_given_work(tmp_path: Path, name: str, role: str, taken: bool) -> None:
    """Whoever ends the handshake as a switch would, with an agent's certificate, is asked and told nothing."""
    ours = Authority(tmp_path, "ours")
    topology = hybrid()
    fabric = OpenFlowFabric(topology, lambda _: None, lambda *_: None, tls=tls.door_trust(files(ours, "manager")))
    await fabric.start("127.0.0.1", 0)
    try:
        certificate, key = ours.sign(name, uris=[f"rostrum:{role}:{name}"])
        own = intruder.client({"certificate": certificate, "key": key, "authority": ours.certificate})
        dpid = topology.switches["tor1"].dpid
        assert dpid is not None
        door = intruder.switch_door("OpenFlow", "127.0.0.1", fabric.port, own, dpid)
        assert await asyncio.to_thread(intruder.gets_in, door) == taken
    finally:
        await fabric.close()


async def test_openflow__with_tls_nobody_comes_in_behind_the_door(tmp_path: Path) -> None:
    """The plain port behind it is on loopback, where others of this machine could find it."""
    ours = Authority(tmp_path, "ours")
    fabric = OpenFlowFabric(hybrid(), lambda _: None, lambda *_: None, tls=tls.door_trust(files(ours, "manager")))
    await fabric.start("127.0.0.1", 0)
    try:
        assert fabric._door
        reader, writer = await asyncio.open_connection("127.0.0.1", fabric._door._port)
        dpid = hybrid().switches["tor1"].dpid
        assert dpid is not None
        writer.write(HELLO + features(dpid))
        await asyncio.wait_for(reader.read(), 60)
        assert not fabric._links
        writer.close()
    finally:
        await fabric.close()


async def test_openflow__required_takes_no_older_tls(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    trust = tls.door_trust(files(ours, "manager"), strict=True)
    fabric = OpenFlowFabric(hybrid(), lambda _: None, lambda *_: None, tls=trust)
    await fabric.start("127.0.0.1", 0)
    try:
        good = files(ours, "tor1")
        assert await greeted(fabric.port, client(good)) == HELLO[:2]
        older = client(good)
        older.maximum_version = ssl.TLSVersion.TLSv1_2
        assert await greeted(fabric.port, older) == b""
    finally:
        await fabric.close()


async def until_true(ask: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    end = asyncio.get_running_loop().time() + 60
    while await ask() != wanted:
        assert asyncio.get_running_loop().time() < end
        await asyncio.sleep(0.05)


def issued(folder: Path, *words: str) -> None:
    done = CliRunner().invoke(pki, [*words, "--dir", str(folder)])
    assert done.exit_code == 0, done.output


async def test_openflow__renewal_and_revocation_need_no_restart(tmp_path: Path) -> None:
    """Who is revoked is out, connected or not; who is not stays connected; a new certificate is shown at once."""
    ca = tmp_path / "ca"
    assert CliRunner().invoke(pki, ["init", str(ca)]).exit_code == 0
    issued(ca, "issue", "manager", "manager", "--address", "127.0.0.1")
    issued(ca, "issue", "switch", "tor1", "tor2")
    ours = (ca / "manager.pem", ca / "manager.key", ca / "ca.pem")
    fabric = OpenFlowFabric(hybrid(), lambda _: None, lambda *_: None, tls=tls.door_trust(ours, strict=True))
    await fabric.start("127.0.0.1", 0)
    writers = {}
    try:
        for name in ("tor1", "tor2"):
            context = client((ca / f"{name}.pem", ca / f"{name}.key", ca / "ca.pem"))
            _, writers[name] = await asyncio.open_connection("127.0.0.1", fabric.port, ssl=context)
            dpid = hybrid().switches[name].dpid
            writers[name].write(HELLO + features(dpid))
            await wait_until(lambda name=name: name in fabric._links)
        stays = fabric._links["tor2"].connection
        issued(ca, "issue", "manager", "manager", "--address", "127.0.0.1", "--replace")
        new = ssl.PEM_cert_to_DER_cert((ca / "manager.pem").read_text())

        async def shown() -> bytes | None:
            context = client((ca / "tor2.pem", ca / "tor2.key", ca / "ca.pem"))
            _, writer = await asyncio.open_connection("127.0.0.1", fabric.port, ssl=context)
            writer.close()
            return writer.get_extra_info("ssl_object").getpeercert(True)  # type: ignore[no-any-return]

        await until_true(shown, new)
        assert set(fabric._links) >= {"tor1", "tor2"}
        issued(ca, "revoke", "tor1")
        await wait_until(lambda: "tor1" not in fabric._links)
        assert fabric._links["tor2"].connection is stays
        gone = client((ca / "tor2.pem", ca / "tor1.key", ca / "ca.pem"), own=False)
        gone.load_cert_chain(ca / "tor1.revoked", ca / "tor1.key")
        assert await greeted(fabric.port, gone) == b""
    finally:
        for writer in writers.values():
            writer.close()
        await fabric.close()


async def test_tl1__behind_tls_and_only_to_the_switch_that_is_meant(
    make_switch: Any, make_driver: Any, until: Any, tmp_path: Path
) -> None:
    ours = Authority(tmp_path, "ours")
    trust = tls.way_trust(files(ours, "manager"), strict=True)
    for uris, text in ((["rostrum:switch:ocs"], ""), (["rostrum:agent:h1"], "its certificate is for h1 (agent)")):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*ours.sign("ocs", uris=uris))
        context.load_verify_locations(ours.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        switch = await make_switch("glimmerglass", tls=context)
        driver, heard = await make_driver(switch.ocs, wait=not text, tls=trust)
        if text:
            await until(lambda driver=driver, text=text: text in driver._cause)
            assert not heard.ups and not switch.server.commands  # no password either
        else:
            assert [row.pair for row in await driver.connect([Pair(1, 2)])] == [Pair(1, 2)]
            plain, nothing = await make_driver(switch.ocs, wait=False)
            await until(lambda plain=plain: "not started" not in plain._cause and plain._cause != "connecting")
            assert not nothing.ups


def server_credentials(found: tuple[Path, Path, Path]) -> Any:
    pair = [(found[1].read_bytes(), found[0].read_bytes())]
    return grpc.ssl_server_credentials(pair, root_certificates=found[2].read_bytes(), require_client_auth=True)


async def test_p4runtime__a_device_with_the_certificate_of_another_is_refused_with_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = Authority(tmp_path, "ours")
    server = FakeServer()
    server.tls = server_credentials((*ours.sign("h1", uris=["rostrum:agent:h1"]), ours.certificate))
    await server.start()
    ups: list[str] = []
    trust = tls.way_trust(files(ours, "manager"), strict=True)
    fabric = P4RuntimeFabric(topology(tor1=server.port), ups.append, lambda *_: None, pipeline=PIPELINE, tls=trust)
    await fabric.start("127.0.0.1", 0)
    try:
        await wait_until(lambda: "its certificate is for h1 (agent)" in caplog.text)
        assert "URI:rostrum:switch:tor1" in caplog.text and not ups
    finally:
        await fabric.close()
        await server.stop()


@pytest.mark.parametrize("trusted", [True, False])
async def test_p4runtime__over_mutual_tls(tmp_path: Path, trusted: bool) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    server = FakeServer()
    server.tls = server_credentials(files(ours, "tor1"))
    await server.start()
    ups: list[str] = []
    trust = tls.way_trust(files(ours if trusted else theirs, "manager"))
    fabric = P4RuntimeFabric(topology(tor1=server.port), ups.append, lambda *_: None, pipeline=PIPELINE, tls=trust)
    await fabric.start("127.0.0.1", 0)
    try:
        if trusted:
            await wait_until(lambda: ups == ["tor1"])
        else:
            await asyncio.sleep(0.5)  # nothing will happen, which takes a while
            assert not ups
    finally:
        await fabric.close()
        await server.stop()


def test_files__what_is_wrong_is_named(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    certificate, key, authority = files(ours, "manager")
    (tmp_path / "empty").write_text("")
    for wrong in ((tmp_path / "none", key, authority), (certificate, tmp_path / "empty", authority)):
        with pytest.raises(SouthboundError, match="TLS of switches"):
            tls.door_trust(wrong)
