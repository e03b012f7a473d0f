"""OpenFlow and P4Runtime over TLS: who shows the right certificate gets through, nobody else does."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from pathlib import Path
from typing import Any

import grpc
import pytest
from rostrum.controller.core.model import SouthboundError
from rostrum.controller.southbound import tls
from rostrum.controller.southbound.openflow.switches import OpenFlowFabric
from rostrum.controller.southbound.p4runtime.switches import P4RuntimeFabric

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
    context = tls.server_context(files(ours, "manager"))
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
    fabric = OpenFlowFabric(topology, lambda _: None, lambda *_: None, tls=tls.server_context(files(ours, "manager")))
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


async def test_openflow__with_tls_nobody_comes_in_behind_the_door(tmp_path: Path) -> None:
    """The plain port behind it is on loopback, where others of this machine could find it."""
    ours = Authority(tmp_path, "ours")
    fabric = OpenFlowFabric(hybrid(), lambda _: None, lambda *_: None, tls=tls.server_context(files(ours, "manager")))
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


def server_credentials(found: tuple[Path, Path, Path]) -> Any:
    pair = [(found[1].read_bytes(), found[0].read_bytes())]
    return grpc.ssl_server_credentials(pair, root_certificates=found[2].read_bytes(), require_client_auth=True)


@pytest.mark.parametrize("trusted", [True, False])
async def test_p4runtime__over_mutual_tls(tmp_path: Path, trusted: bool) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    server = FakeServer()
    server.tls = server_credentials(files(ours, "tor1"))
    await server.start()
    ups: list[str] = []
    credentials = tls.channel_credentials(files(ours if trusted else theirs, "manager"))
    fabric = P4RuntimeFabric(
        topology(tor1=server.port), ups.append, lambda *_: None, pipeline=PIPELINE, credentials=credentials
    )
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
            tls.server_context(wrong)
