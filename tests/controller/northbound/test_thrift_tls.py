"""Agents by TLS: who shows a certificate of ours speaks as the server it names; everybody else is told why not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop
from click.testing import CliRunner
from rostrum.controller.access_options import SecurityOptions
from rostrum.controller.app import main
from rostrum.controller.certificates import Identity, identity
from rostrum.controller.northbound.rest.access import AccessError
from rostrum.controller.northbound.thrift import service
from rostrum.controller.northbound.thrift import tls as thrift_tls
from rostrum.controller.northbound.thrift.codec import FRAME_MAX, BadMessage, decode, encode, idl

from tests.controller.certificates import Authority
from tests.controller.fakes import Running, running, until

CHECK = "certificate"  # of the doctor


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


def shown(*uris: str) -> Identity:
    return identity({"subjectAltName": tuple(("URI", f"rostrum:{uri}") for uri in uris)})


@pytest.mark.parametrize(
    ("own", "tenant", "text"),
    [
        (shown("agent:h1", "tenant:blue"), "blue", ""),
        (shown("agent:h1"), "", ""),
        (shown("agent:h1", "tenant:blue"), None, ""),  # nothing is required
        (shown("agent:h1", "tenant:blue"), "red", "of tenant blue, .* of tenant red: .*--tenant red"),
        (shown("agent:h1"), "red", "of no tenant, .*--tenant red"),
        (shown("agent:h1", "tenant:blue"), "", "of tenant blue, .* of no tenant"),
        (shown("agent:h1", "tenant:blue", "tenant:red"), "red", "of tenant blue"),
    ],
)
def test_admit__agents_are_of_their_servers_tenant(own: Identity, tenant: str | None, text: str) -> None:
    with pytest.raises(BadMessage, match=text) if text else contextlib.nullcontext():
        thrift_tls.admit("h1", own, tenant)


@contextlib.asynccontextmanager
async def guarded(run: Path, ours: Authority) -> AsyncIterator[Running]:
    security = SecurityOptions(thrift_tls=(*ours.sign("manager"), run / "ours-ours.pem"))
    async with running(run, security=security) as manager:
        yield manager


def client(trusts: Authority, pair: tuple[Path, Path] | None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=trusts.folder / f"{trusts.name}-{trusts.name}.pem")
    made.check_hostname = False
    if pair:
        made.load_cert_chain(*pair)
    return made


async def exchanged(port: int, first: bytes) -> bytes:
    """What comes back until the manager ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(first)
        return await asyncio.wait_for(reader.read(1 << 20), 60)
    finally:
        writer.close()


Silent = list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]


async def three_silent(manager: Running) -> tuple[thrift_tls.TlsDoor, Silent]:
    """Connections that do not begin their handshakes, and the door that waits for them."""
    door = manager.app.thrift.tls
    assert door is not None
    silent = [await asyncio.open_connection("127.0.0.1", manager.app.thrift_port) for _ in range(3)]
    await until(lambda: len(door.shaking) == 3, "three handshakes")
    return door, silent


def shake_hands(port: int, context: ssl.SSLContext) -> None:
    """As OpenSSL does by itself: asyncio's client does not send its alerts."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as raw, context.wrap_socket(raw):
        pass


async def refusal(port: int, context: ssl.SSLContext) -> str:
    """How the connection ends for an agent that says hello at once: TLS's text."""
    with pytest.raises((ssl.SSLError, ConnectionError)) as caught:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(encode("Manager", "keepalive", {}))
        try:
            await asyncio.wait_for(reader.readexactly(1), 60)
        finally:
            writer.close()
    return str(caught.value)


async def test_many_calls__wait_in_tls_too(tmp_path: Path, ours: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 2000
    monkeypatch.setattr(service, "SLICE_NS", 0)
    async with guarded(tmp_path, ours) as manager:
        agent = await manager.agent("h1", tls=client(ours, ours.sign("h1")), group_engines=[idl.Engine("plain", [])])
        for number in range(calls):
            agent.say("join_group", group=idl.GroupUse(group=f"g{number}"))
        agent.say("keepalive")
        await agent.expect("alive")
        assert manager.app.runtime.manager.core.counts["group_joins"] == calls


async def test_agents__speak_as_the_servers_their_certificates_name(tmp_path: Path, ours: Authority) -> None:
    async with guarded(tmp_path, ours) as manager:
        by_name = client(ours, ours.sign("h1", dns=()))
        by_dns = client(ours, ours.sign("rack 3", dns=("h3", "h4")))
        first = await manager.agent("h1", tls=by_name)
        third, fourth = [await manager.agent(name, tls=by_dns) for name in ("h3", "h4")]
        first.request("r1", "h1", "h3", "h4")
        assert (await first.response("r1", 1)).group
        impostor = await manager.agent(tls=by_dns)
        impostor.hello("h1", boot_id=9)
        reason = (await impostor.expect("goodbye")).reason
        assert "calls itself h1, and its certificate is for h3, h4, rack 3" in reason and "DNS:h1" in reason
        await impostor.until_closed()
        assert set(manager.app.thrift.agents) == {"h1", "h3", "h4"}
        assert manager.app.thrift.turned_away == 1
        for agent in (first, third, fourth):
            await agent.close()
        await until(lambda: not manager.app.thrift.connections, "connections gone")


async def test_certificates__that_are_refused_are_named_at_both_ends(
    tmp_path: Path, ours: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = Authority(tmp_path, "theirs")
    cases = [
        (client(ours, None), "certificate required|handshake failure", "it shows no certificate"),
        (client(ours, theirs.sign("h1")), "unknown ca", "unable to get local issuer certificate"),
        (client(ours, ours.sign("h1", hours=(-2, -1))), "certificate expired", "certificate has expired"),
        (client(ours, ours.sign("h1", hours=(1, 2))), "alert", "not yet valid"),
    ]
    async with guarded(tmp_path, ours) as manager:
        for number, (context, fields, logged) in enumerate(cases, 1):
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                context.minimum_version = context.maximum_version = version
                said = (await refusal(manager.app.thrift_port, context)).lower()
                assert any(one in said for one in fields.split("|")), said
            assert caplog.text.count(logged) == 2, caplog.text
            assert manager.app.thrift.turned_away == 2 * number
        suspicious = client(theirs, ours.sign("h1"))
        with pytest.raises(ssl.SSLError):
            await asyncio.to_thread(shake_hands, manager.app.thrift_port, suspicious)
        await until(lambda: "it refuses this manager's certificate or TLS (unknown ca)" in caplog.text, "a line")
        await (await manager.agent("h1", tls=client(ours, ours.sign("h1")))).close()


async def test_old_tls__is_refused(tmp_path: Path, ours: Authority, caplog: pytest.LogCaptureFixture) -> None:
    old = client(ours, ours.sign("h1"))
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    async with guarded(tmp_path, ours) as manager:
        assert "version" in (await refusal(manager.app.thrift_port, old)).lower()
    assert "it speaks no TLS from 1.2 on" in caplog.text


async def test_plain_agents__are_told_what_to_do(
    tmp_path: Path, ours: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with guarded(tmp_path, ours) as manager:
        agent = await manager.agent()
        agent.hello("h1")
        assert (await agent.expect("goodbye")).reason == thrift_tls.PLAIN
        await agent.until_closed()
        assert not manager.app.thrift.agents and not manager.app.thrift.connections
    assert "--manager-tls CERTIFICATE KEY CA" in caplog.text


async def test_tls_agents__of_a_plain_manager_are_told_too(tmp_path: Path, ours: Authority) -> None:
    async with running(tmp_path) as manager:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with pytest.raises(ssl.SSLWantReadError):
            client(ours, None).wrap_bio(incoming, outgoing).do_handshake()
        answer = await exchanged(manager.app.thrift_port, outgoing.read())
        assert decode("Agent", answer[4:])[1].reason == thrift_tls.SPOKE_TLS


async def test_garbage__ends_its_own_connection_only(tmp_path: Path, ours: Authority, rng: random.Random) -> None:
    """Random bytes, and a real handshake with a byte changed or its end left out."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        client(ours, None).wrap_bio(incoming, outgoing).do_handshake()
    real = outgoing.read()
    async with guarded(tmp_path, ours) as manager:
        context = client(ours, ours.sign("h1"))
        agent = await manager.agent("h1", tls=context)
        port = manager.app.thrift_port
        for _ in range(150):
            damaged = bytearray(real)
            damaged[rng.randrange(len(real))] ^= rng.randrange(1, 256)
            noise = b"\x16\x03" * rng.randrange(2) + rng.randbytes(rng.randrange(1, 400))
            for first in (bytes(damaged[: rng.randrange(1, len(real) + 1)]), noise):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(first)
                await writer.drain()
                writer.write_eof()
                writer.close()
        agent.request("r1", "h1", "h3")
        await agent.response("r1", 1)
        assert manager.app.thrift.tls is not None
        await until(lambda: not manager.app.thrift.tls.shaking, "handshakes over")
        await (await manager.agent("h3", tls=client(ours, ours.sign("h3")))).close()
        await agent.close()


async def test_garbage__inside_a_connection_ends_it(
    tmp_path: Path, ours: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with guarded(tmp_path, ours) as manager:
        agent = await manager.agent("h1", tls=client(ours, ours.sign("h1")))
        record = b"\x17\x03\x03\x00\x20" + bytes(32)  # never encrypted
        os.write(agent.writer.get_extra_info("socket").fileno(), record)
        await agent.until_closed()
        await until(lambda: not manager.app.thrift.agents, "agent gone")
        await until(lambda: "bad record mac" in caplog.text, "a line")


async def test_handshake__has_a_bound_in_time_and_number(
    tmp_path: Path, ours: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(thrift_tls, "HANDSHAKES_MAX", 3)
    monkeypatch.setattr(thrift_tls, "STALL_S", 3600.0)
    async with guarded(tmp_path, ours) as manager:
        door, silent = await three_silent(manager)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await manager.agent("h1", tls=client(ours, ours.sign("h1")))
        for one in list(door.shaking):
            one._late()
        for reader, writer in silent:
            assert await asyncio.wait_for(reader.read(), 60) == b""
            writer.close()
        assert "handshake was not done in 5 s" in caplog.text
        await until(lambda: not door.shaking, "room")
        await (await manager.agent("h1", tls=client(ours, ours.sign("h1")))).close()


async def test_handshake__whoever_is_silent_makes_room(
    tmp_path: Path, ours: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(thrift_tls, "HANDSHAKES_MAX", 3)
    monkeypatch.setattr(thrift_tls, "STALL_S", 0.0)
    async with guarded(tmp_path, ours) as manager:
        door, silent = await three_silent(manager)
        await (await manager.agent("h1", tls=client(ours, ours.sign("h1")))).close()
        assert await asyncio.wait_for(silent[0][0].read(), 60) == b""
        assert len(door.shaking) == 2 and "and others wait" in caplog.text
        for _, writer in silent:
            writer.close()


async def test_frames__of_every_size_pass_in_pieces(tmp_path: Path, ours: Authority) -> None:
    """Both ways, whatever the records; what is too large ends with the reason."""
    async with guarded(tmp_path, ours) as manager:
        agent = await manager.agent("h1", tls=client(ours, ours.sign("h1")))
        agent._listener.cancel()
        (connection,) = manager.app.thrift.connections
        for size in (1, 16383, 16384, 16385, FRAME_MAX):
            calls = b"".join(encode("Manager", "cancel", {"request_id": f"r{n}"}) for n in range(size // 50))
            agent.writer.write(calls)
            frame = encode("Agent", "light", {"response_id": "y" * size})
            connection.send(frame)
            assert await asyncio.wait_for(agent.reader.readexactly(len(frame)), 60) == frame
            agent.request(f"q{size}", "h1", "h3")
            answered = ""
            while answered != f"q{size}":  # those that waited 2 s for a circuit get packets in between
                length = int.from_bytes(await asyncio.wait_for(agent.reader.readexactly(4), 60), "big")
                answered = decode("Agent", await agent.reader.readexactly(length))[1].response.request_id
        agent.writer.write((FRAME_MAX + 1).to_bytes(4, "big"))
        assert f"1 to {FRAME_MAX} are possible".encode() in await asyncio.wait_for(agent.reader.read(), 60)


async def test_slow_agents__that_read_nothing_are_cut_off(tmp_path: Path, ours: Authority) -> None:
    async with guarded(tmp_path, ours) as manager:
        agent = await manager.agent("h1", tls=client(ours, ours.sign("h1")))
        agent._listener.cancel()
        agent.writer.transport.pause_reading()  # type: ignore[attr-defined]
        (connection,) = manager.app.thrift.connections
        frame = encode("Agent", "light", {"response_id": "y" * (1 << 20)})
        for _ in range(40):
            connection.send(frame)
        await until(lambda: not manager.app.thrift.connections, "connection gone")


async def test_files__are_read_anew_when_they_change(
    tmp_path: Path, ours: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with guarded(tmp_path, ours) as manager:
        port = manager.app.thrift_port
        certificate, authority = tmp_path / "ours-manager.pem", tmp_path / "ours-ours.pem"
        before = certificate.read_bytes()
        stays = await manager.agent("h1", tls=client(ours, ours.sign("h1")))

        async def shown() -> bytes | None:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client(ours, ours.sign("h3")))
            writer.close()
            tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
            return tls.getpeercert(binary_form=True)

        first = await shown()
        certificate.write_text("no certificate\n")
        assert await shown() == first and "the old one stays" in caplog.text
        certificate.write_bytes(before)
        ours.sign("manager")
        second = await shown()
        assert second != first
        theirs = Authority(tmp_path, "theirs")
        trusted = client(ours, theirs.sign("h3"))
        authority.write_bytes(authority.read_bytes() + (tmp_path / "theirs-theirs.pem").read_bytes())
        await (await manager.agent("h3", tls=trusted)).close()
        stays.request("r1", "h1", "h4")
        await stays.response("r1", 1)
        await stays.close()


@pytest.mark.parametrize("harm", ["none", "empty", "key", "authority"])
def test_files__that_are_wrong_are_named(tmp_path: Path, ours: Authority, harm: str) -> None:
    certificate, key = ours.sign("manager")
    authority = tmp_path / "ours-ours.pem"
    spoil: dict[str, Callable[[], object]] = {
        "none": certificate.unlink,
        "empty": lambda: certificate.write_text(""),
        "key": lambda: key.write_bytes((tmp_path / "ours-ours.key").read_bytes()),
        "authority": lambda: authority.write_text(""),
    }
    spoil[harm]()
    with pytest.raises(AccessError, match=f"--thrift-tls {certificate}"):
        thrift_tls.read((certificate, key, authority))
    options = ["--topology", "hybrid-4x2", "--run", str(tmp_path / "run"), "--rest-open", "--thrift-tls"]
    for more in ([], ["--etcd", "http://127.0.0.1:9"]):  # a standby learns it before it is to lead
        result = CliRunner().invoke(main, [*options, str(certificate), str(key), str(authority), *more])
        assert result.exit_code == 1 and "Error: --thrift-tls" in result.output


def test_admit__knows_names_letter_by_letter() -> None:
    for names in ({"h1"}, {"h1", "h2"}):
        thrift_tls.admit("h1", Identity(names=frozenset(names)))
    thrift_tls.admit("h1", None)
    for names in (set[str](), {"H1"}, {"h1.example.org"}, {"*"}):
        with pytest.raises(BadMessage, match="its certificate is for"):
            thrift_tls.admit("h1", Identity(names=frozenset(names)))


@pytest.mark.parametrize(
    ("name", "uris", "welcome"),
    [
        ("h1", ["rostrum:agent:h1"], True),
        ("h1", ["rostrum:agent"], True),
        ("rack 1", ["rostrum:agent:h2", "rostrum:agent:h1"], True),
        ("h1", ["rostrum:agent:h2"], False),
        ("h1", ["rostrum:operator:h1"], False),
        ("h1", ["rostrum:switch"], False),
        ("h1", ["rostrum:"], False),
        ("h1", ["spiffe://example.org/h1"], True),  # others may say in URIs what they like
    ],
)
async def test_roles__agents_are_those_whose_certificates_say_so(
    tmp_path: Path, ours: Authority, name: str, uris: list[str], welcome: bool
) -> None:
    async with guarded(tmp_path, ours) as manager:
        agent = await manager.agent(tls=client(ours, ours.sign(name, uris=uris)))
        agent.hello("h1")
        if welcome:
            await agent.expect("welcome")
        else:
            reason = (await agent.expect("goodbye")).reason
            assert "calls itself h1, and its certificate is for" in reason and "URI:rostrum:agent:h1" in reason
        await agent.close()


async def test_doctor__tells_certificates_that_end_soon(tmp_path: Path, ours: Authority) -> None:
    async with guarded(tmp_path, ours) as manager:
        day = 24.0
        for name, hours in {"h1": 3.5 * day, "h2": 3.5 * day, "h3": 15 * day}.items():
            await manager.agent(name, tls=client(ours, ours.sign(name, hours=(-1, hours))), knows_probes=False)
        async with httpx.AsyncClient(base_url=manager.url, trust_env=False) as http:

            async def told() -> list[tuple[str, str, str]]:
                findings = (await http.get("/v1/doctor", timeout=60)).json()["findings"]
                return [(one["severity"], one["subject"], one["what"]) for one in findings if one["check"] == CHECK]

            shows = "the certificate that the manager shows agents"
            assert await told() == [
                ("warning", "h1, h2", "the certificate that the agent of h1, h2 showed expires in 3 days"),
                ("warning", "manager", f"{shows} expires in 0 days"),
            ]
            page = (await http.get("/metrics")).text
            left = dict(re.findall(r'^rostrum_certificate_left_seconds\{of="(\w+)"\} (\S+)$', page, re.MULTILINE))
            hours = {of: float(seconds) / 3600 for of, seconds in left.items()}
            assert 0 < hours["manager"] <= 1 and 3.4 * day < hours["agents"] <= 3.5 * day and len(hours) == 2
            ours.sign("manager", hours=(-3, -1))
            assert ("error", "manager", f"{shows} has expired") in await told()
            ours.sign("manager", hours=(-1, 20 * day))
            assert [subject for _, subject, _ in await told()] == ["h1, h2"]


@pytest.mark.parametrize("what", ["certificates", "garbage", "frames", "slow agents"])
def test_uvloop__is_served_as_well(tmp_path: Path, ours: Authority, rng: random.Random, what: str) -> None:
    """The manager's own event loop: its transports are not asyncio's."""
    scenarios: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "certificates": lambda: test_agents__speak_as_the_servers_their_certificates_name(tmp_path, ours),
        "garbage": lambda: test_garbage__ends_its_own_connection_only(tmp_path, ours, rng),
        "frames": lambda: test_frames__of_every_size_pass_in_pieces(tmp_path, ours),
        "slow agents": lambda: test_slow_agents__that_read_nothing_are_cut_off(tmp_path, ours),
    }
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenarios[what]())
