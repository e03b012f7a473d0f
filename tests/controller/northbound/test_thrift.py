"""Agents' side of the manager, over real sockets on loopback."""

from __future__ import annotations

import asyncio
import os
import random
import struct
from pathlib import Path

import pytest
from rostrum.controller.core.model import PathKind
from rostrum.controller.core.values import (
    MS,
    Decision,
    OverlayView,
    PathResponse,
    Protocol,
    RingPlace,
    ServerAddress,
    Settings,
    State,
)
from rostrum.controller.northbound.thrift import service
from rostrum.controller.northbound.thrift.codec import FRAME_MAX, BadMessage, decode, encode, idl
from rostrum.controller.northbound.thrift.values import addresses, overlay_view
from rostrum.controller.speed.thrift_response import response

from tests.controller.fakes import FakeAgent, running, until
from tests.controller.network import Network
from tests.controller.timeline import hybrid

ACCEPTED, DENIED, QUEUED = 1, 2, 3
SIX = ("h3", "h4", "h5", "h6", "h7", "h8")


async def test_request__accepted_configured_released(tmp_path: Path) -> None:
    async with running(tmp_path) as manager:
        agent = await manager.agent("h1")
        agent.request("r1", "h1", *SIX, size=64 << 20)
        response = await agent.response("r1", ACCEPTED)
        assert (response.kind, response.reconfiguration_ns) == (1, 70_000_000)
        assert response.accepted_size == 64 << 20 and response.data_port == 7070
        assert (response.receivers[0].server, response.receivers[0].address) == ("h3", "10.0.2.1")
        path = manager.app.runtime.path(response.response_id)
        assert path is not None
        await until(lambda: path.state is State.ACTIVE, "active")
        assert manager.network.deliver("h1", path.group) == dict.fromkeys(SIX, 1)  # type: ignore[arg-type]
        agent.say("release", request_id="r1", response_id=response.response_id)
        await until(lambda: path.state is State.RELEASED, "released")
        agent.request("r2", "h1", *SIX)
        assert (await agent.response("r2", ACCEPTED)).reconfiguration_ns == 0


async def test_request__queued_with_the_reason_then_accepted(tmp_path: Path) -> None:
    async with running(tmp_path) as manager:
        one, two = await manager.agent("h1"), await manager.agent("h2")
        one.request("r1", "h1", "h3")
        first = await one.response("r1", ACCEPTED)
        path = manager.app.runtime.path(first.response_id)
        await until(lambda: path and path.state is State.ACTIVE, "active")
        two.request("r2", "h2", "h3")
        queued = await two.response("r2", QUEUED)
        assert "tor1's uplink" in queued.reason and first.response_id in queued.reason
        assert queued.group is None
        one.say("release", request_id="r1", response_id=first.response_id)
        assert (await two.response("r2", ACCEPTED)).reconfiguration_ns == 0


async def test_fault__the_agent_hears_that_its_path_moved(tmp_path: Path) -> None:
    async with running(tmp_path) as manager:
        agent = await manager.agent("h1")
        manager.ocs["ocs"].broken = "DENY SROF"
        agent.request("r1", "h1", *SIX)
        response = await agent.response("r1", ACCEPTED)
        moved = await agent.expect("moved")
        assert (moved.response_id, moved.kind) == (response.response_id, 2)
        assert "DENY SROF" in moved.reason
        path = manager.app.runtime.path(response.response_id)
        assert path is not None
        await until(lambda: path.state is State.ACTIVE, "active on the packet network")
        assert manager.network.deliver("h1", path.group) == dict.fromkeys(SIX, 1)  # type: ignore[arg-type]


async def test_fault__a_switch_that_refuses_fails_the_path(tmp_path: Path) -> None:
    async with running(tmp_path) as manager:
        agent = await manager.agent("h1")
        manager.fabric.broken["tor3"] = "group table full"
        agent.request("r1", "h1", *SIX)
        failed = await agent.expect("failed")
        assert "rules not set on tor3: tor3: group table full" in failed.reason


async def test_hello__wrong_ones_get_a_reason(tmp_path: Path) -> None:
    async with running(tmp_path) as manager:
        for hello, text in [
            ({"server": "h77"}, "h77 not in topology hybrid-4x2"),
            ({"server": "h1", "version": 9}, "the agent speaks version 9, this manager 1"),
            ({"server": "h1", "control_port": 0}, "control_port 0 is out of range"),
            ({"server": None}, "AgentInfo.server is missing"),
        ]:
            agent = await manager.agent()
            agent.hello(**{"boot_id": 1, **hello})  # type: ignore[arg-type]
            assert text in (await agent.expect("goodbye")).reason
            await agent.until_closed()
        agent = await manager.agent()
        agent.say("keepalive")
        assert "say Manager.hello first" in (await agent.expect("goodbye")).reason
        assert not manager.app.thrift.agents


async def test_hello__of_a_server_comes_from_no_other_server(tmp_path: Path) -> None:
    """Whatever the boot id: the agent keeps its connection and its paths."""
    async with running(tmp_path) as manager:
        assert manager.app.thrift.servers_at["10.255.1.2"] == manager.app.thrift.servers_at["10.0.1.2"] == {"h2"}
        manager.app.thrift.servers_at = {"127.0.0.2": frozenset({"h2"})}
        own = await manager.agent("h1", boot_id=5)
        own.request("r1", "h1", "h3")
        path = manager.app.runtime.path((await own.response("r1", ACCEPTED)).response_id)
        for server, welcome in (("h1", False), ("h2", True)):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", manager.app.thrift_port, local_addr=("127.0.0.2", 0)
            )
            impostor = FakeAgent(reader, writer)
            impostor.hello(server, boot_id=2**63 - 1)
            if welcome:
                await impostor.expect("welcome")
            else:
                assert "which is h2's address" in (await impostor.expect("goodbye")).reason
            await impostor.close()
        assert path and path.state is not State.RELEASED
        own.request("r2", "h1", "h4")
        await own.response("r2", ACCEPTED)


async def test_hello__the_newer_boot_wins(tmp_path: Path) -> None:
    async with running(tmp_path) as manager:
        old = await manager.agent("h1", boot_id=5)
        old.request("r1", "h1", "h3")
        path = manager.app.runtime.path((await old.response("r1", ACCEPTED)).response_id)
        new = await manager.agent("h1", boot_id=6)
        assert "a newer agent of h1" in (await old.expect("goodbye")).reason
        assert path and path.state is State.RELEASED and "was restarted" in path.cause
        late = await manager.agent()
        late.hello("h1", boot_id=4)
        assert "a newer agent of h1 is connected already" in (await late.expect("goodbye")).reason
        new.request("r2", "h1", "h3")
        await new.response("r2", ACCEPTED)


async def test_restart__agents_keep_their_paths(tmp_path: Path) -> None:
    """A second manager on the same devices: the path is adopted, with its circuit, and nothing else survives."""
    topology = hybrid()
    network = Network(topology)
    async with running(tmp_path, Settings(boot_id=1_000), topology, network) as manager:
        one, other = await manager.agent("h1"), await manager.agent("h7")
        one.request("r1", "h1", "h3", "h5")
        response = await one.response("r1", ACCEPTED)
        other.request("r2", "h7", "h1")
        await other.response("r2", ACCEPTED)
        await until(lambda: len(network.pairs()) == 4 and len(network.rules()) == 5, "both set")
    settings = Settings(boot_id=2_000_000, lease_ns=300_000_000, grace_ns=300_000_000)
    async with running(tmp_path, settings, topology, network) as manager:
        live = idl.LivePath(
            request_id="r1",
            response_id=response.response_id,
            group=response.group,
            kind=response.kind,
            receivers=["h3", "h5"],
            accepted_size=1000,
        )
        agent = await manager.agent("h1", live_paths=[live])
        path = manager.app.runtime.path(response.response_id)
        assert path and path.state is State.ACTIVE and path.circuit_id and len(path.pairs) == 3

        def alone() -> bool:
            agent.say("keepalive")
            return len(network.pairs()) == 3 and len(network.rules()) == 3

        await until(alone, "what nobody claimed is gone")
        assert network.deliver("h1", path.group) == {"h3": 1, "h5": 1}  # type: ignore[arg-type]
        assert path.state is State.ACTIVE
        await agent.close()
        await until(lambda: path.final, "lease over")


async def test_lease__a_silent_agent_loses_its_paths(tmp_path: Path) -> None:
    async with running(tmp_path, Settings(lease_ns=200_000_000, away_ns=400_000_000)) as manager:
        agent = await manager.agent("h1")
        agent.request("r1", "h1", "h3")
        path = manager.app.runtime.path((await agent.response("r1", ACCEPTED)).response_id)
        assert path is not None
        await until(lambda: path.state is State.RELEASED, "released")
        assert path.cause.startswith("lease over: the agent of h1 is silent for")


async def test_hello__is_due_from_the_start_whatever_dribbles_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte every now and then is not silence, and does not hold a place."""
    monkeypatch.setattr(service, "HELLO_BOUND_S", 0.3)
    monkeypatch.setattr(service, "SWEEP_S", 0.02)
    async with running(tmp_path) as manager:
        stranger = await manager.agent()

        async def dribble() -> None:
            stranger.writer.write(struct.pack(">I", 4096))
            while True:
                stranger.writer.write(b"x")
                await asyncio.sleep(0.02)

        task = asyncio.create_task(dribble())
        try:
            assert "no hello within" in (await stranger.expect("goodbye")).reason
        finally:
            task.cancel()


async def test_places__strangers_make_room_for_agents(tmp_path: Path) -> None:
    async with running(tmp_path) as manager:
        manager.app.thrift.connections_max = 4
        known = await manager.agent("h1")
        strangers = [await manager.agent() for _ in range(3)]
        await until(lambda: len(manager.app.thrift.connections) == 4, "all are there")
        late = await manager.agent("h2")
        assert "connections are open already" in (await strangers[0].expect("goodbye")).reason
        for one, server in ((known, "h1"), (late, "h2")):
            one.request("r1", server, "h5")
            await one.response("r1", ACCEPTED)


@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("http", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("oversize", struct.pack(">I", FRAME_MAX + 1) + b"x" * 100),
        ("empty", struct.pack(">I", 0)),
        ("zeros", struct.pack(">I", 64) + bytes(64)),
        ("unknown", b"\0\0\0\x1c\x80\x01\0\x04\0\0\0\x0bformat_disk\0\0\0\0\0" + b"\0\0\0\0"),
        ("nested", struct.pack(">I", 17 + 3 * 1000) + b"\x80\x01\0\x04\0\0\0\x05hello\0\0\0\0" + b"\x0c\0\1" * 1000),
        (
            "huge list",
            struct.pack(">I", 25) + b"\x80\x01\0\x04\0\0\0\x05hello\0\0\0\0" + b"\x0f\0\x09\0\x7f\xff\xff\xff",
        ),
    ],
)
async def test_garbage__goodbye_and_others_untouched(tmp_path: Path, name: str, frame: bytes) -> None:
    async with running(tmp_path) as manager:
        good = await manager.agent("h1")
        bad = await manager.agent()
        bad.writer.write(frame)
        goodbye = await bad.expect("goodbye")
        assert goodbye.reason and goodbye.reason.isprintable()
        await bad.until_closed()
        good.request("r1", "h1", "h3")
        await good.response("r1", ACCEPTED)


async def test_garbage__random_frames(tmp_path: Path) -> None:
    """Mutations of good frames, and noise: the manager lives on, and answers at most with goodbye."""
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    info = idl.AgentInfo(version=1, server="h2", boot_id=1, control_port=7071, live_paths=[])
    request = idl.PathRequest(
        request_id="x", app_id=b"a" * 16, data_id=1, data_size=9, remaining_size=9, sender="h2", receivers=["h3"]
    )
    good = [encode("Manager", "hello", {"info": info}), encode("Manager", "request", {"request": request})]
    async with running(tmp_path) as manager:
        for _ in range(150):
            agent = await manager.agent()
            frames = b"".join(good) if rng.random() < 0.8 else rng.randbytes(rng.randrange(1, 400))
            mutated = bytearray(frames)
            for _ in range(rng.randrange(0, 6)):
                mutated[rng.randrange(len(mutated))] = rng.randrange(256)
            agent.writer.write(bytes(mutated[: rng.randrange(1, len(mutated) + 1)]))
            agent.writer.write_eof()
            await agent.until_closed()
            agent.writer.close()
        await until(lambda: not manager.app.thrift.connections, "all closed")
        last = await manager.agent("h1")
        last.request("r1", "h1", "h5")
        await last.response("r1", ACCEPTED)


def test_codec__no_mutation_hangs_or_crashes() -> None:
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    receivers = [idl.ReceiverReport(f"h{n}", "done", "", 1, 2, 3, 4) for n in range(6)]
    report = idl.TransferReport("r", "p", "done", "", 1, 2, 3, 4, receivers)
    frame = encode("Manager", "report", {"report": report})[4:]
    assert decode("Manager", frame)[0] == "report"
    for _ in range(20_000):
        mutated = bytearray(frame)
        for _ in range(rng.randrange(1, 4)):
            mutated[rng.randrange(len(mutated))] = rng.randrange(256)
        try:
            decode("Manager", bytes(mutated[: rng.randrange(len(mutated) + 1)]))
        except BadMessage:
            continue


async def test_requests__absurd_ones_are_denied_with_a_reason(tmp_path: Path) -> None:
    async with running(tmp_path) as manager:
        agent = await manager.agent("h1")
        for number, (more, text) in enumerate(
            [
                ({"data_size": -1, "remaining_size": -1}, "out of range"),
                ({"data_size": 2**63 - 1, "remaining_size": 1}, "out of range"),
                ({"wait_ms": -1}, "wait_ms -1"),
                ({"sender": "h3"}, "only that server's agent can"),
                ({"receivers": []}, "there are no receivers"),
                ({"receivers": ["h1"]}, "sender and receiver"),
                ({"receivers": ["h" * 4000]}, "not in topology"),
            ]
        ):
            agent.request(f"r{number}", "h1", "h3", **more)
            response = await agent.response(f"r{number}", DENIED)
            assert text in response.reason and len(response.reason) < 500
        agent.say("release", request_id="none", response_id="none")
        agent.say("no_light", response_id="none", receivers=["h3"])
        agent.request("last", "h1", "h3")
        await agent.response("last", ACCEPTED)


async def test_slow_reader__is_disconnected_alone(tmp_path: Path) -> None:
    """An agent that repeats its requests and reads no answer."""
    async with running(tmp_path) as manager:
        reader, writer = await asyncio.open_connection("127.0.0.1", manager.app.thrift_port, limit=1024)
        del reader
        lazy = FakeAgent.__new__(FakeAgent)
        lazy.writer = writer
        FakeAgent.hello(lazy, "h2")
        await until(lambda: "h2" in manager.app.thrift.agents, "hello")
        connection = manager.app.thrift.agents["h2"]
        text = "x" * 10_000
        for _ in range(2_000):
            connection.call("goodbye", {"reason": text})
        assert connection._closing
        await until(lambda: "h2" not in manager.app.thrift.agents, "gone")
        writer.close()
        good = await manager.agent("h1")
        good.request("r1", "h1", "h3")
        await good.response("r1", ACCEPTED)


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
async def test_many_calls__of_one_hold_up_nobody(tmp_path: Path, leaves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent whose programs enter thousands of groups at once: others are answered meanwhile, and all its calls are
    carried out, also when it ends right behind them."""
    calls = 8000
    monkeypatch.setattr(service, "SLICE_NS", 0)
    monkeypatch.setattr(service, "TURN_NS", 0)
    settings = Settings(boot_id=12345, groups_per_server=calls)
    async with running(tmp_path, settings) as manager:
        counts = manager.app.runtime.manager.core.counts
        busy = await manager.agent("h1", group_engines=[idl.Engine("plain", [])])
        other = await manager.agent("h2")
        for number in range(calls):
            busy.say("join_group", group=idl.GroupUse(group=f"g{number}"))
        await until(lambda: counts["group_joins"], "the first join")
        if leaves:
            busy.writer.write_eof()  # and reads on: a connection with anything unread takes back what it said last
        other.say("keepalive")
        await other.expect("alive")
        assert counts["group_joins"] < calls
        await until(lambda: counts["group_joins"] == calls, "all joins", timeout_s=60)


async def test_many_calls__renew_the_lease_while_they_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = 100 * MS
    async with running(tmp_path, Settings(boot_id=12345, lease_ns=lease)) as manager:
        waits = await manager.agent("h1")
        monkeypatch.setattr(service.AgentConnection, "_carry_out", lambda connection, until: True)
        waits.say("keepalive")
        known = manager.app.runtime.manager.core.agents["h1"]
        before = known.heard
        await until(lambda: known.heard > before + 2 * lease, "its lease is renewed twice")


async def test_latency__is_recorded(tmp_path: Path) -> None:
    async with running(tmp_path) as manager:
        agent = await manager.agent("h1")
        for number in range(200):
            agent.request(f"r{number}", "h1", *SIX)
            response = await agent.response(f"r{number}", ACCEPTED)
            agent.heard.clear()
            agent.say("release", request_id=f"r{number}", response_id=response.response_id)
        latency = manager.app.thrift.latency
        assert latency.count == 200
        print(f"thrift response p50 {latency.percentile_ms(50):.3f} ms, p99 {latency.percentile_ms(99):.3f} ms")


def test_response__is_written_as_the_idl_says(rng: random.Random) -> None:
    """Also when a server's agent has another port than when it was written last."""
    for _ in range(200):
        value = PathResponse(
            request_id="r" * rng.randint(0, 64),
            response_id=f"p-{rng.getrandbits(40)}",
            decision=rng.choice(list(Decision)),
            reason="Grüße, 光 " * rng.randint(0, 3),
            accepted_size=rng.getrandbits(62),
            kind=rng.choice(list(PathKind)),
            group=f"239.192.0.{rng.randint(0, 255)}",
            data_port=rng.randint(1, 65535),
            reconfiguration_ns=rng.getrandbits(40),
            rate_bps=rng.getrandbits(50),
            lease_ms=rng.getrandbits(30),
            light_bound_ms=rng.getrandbits(30),
            receivers=tuple(
                ServerAddress(f"h{number}", f"10.0.0.{number}", rng.randint(1, 65535), rng.randint(0, 3))
                for number in rng.sample(range(256), rng.randint(0, 40))
            ),
            protocol=rng.choice([Protocol.REPUBLIC, Protocol.RDCM]),
            dark=tuple(f"h{number}" for number in range(rng.choice([0, 0, 1, 40]))),
            sender_rack=rng.choice([0, 1, 10000]),
            tree_links=rng.choice([0, 3, 30000]),
            path_links=rng.randint(1, 1 << 20),
        )
        wanted = idl.PathResponse(
            request_id=value.request_id,
            response_id=value.response_id,
            decision=value.decision.value,
            reason=value.reason[:20],
        )
        if value.decision is Decision.ACCEPTED:
            plain = ("accepted_size", "group", "data_port", "reconfiguration_ns", "rate_bps", "lease_ms")
            for name in (*plain, "light_bound_ms"):
                setattr(wanted, name, getattr(value, name))
            wanted.kind = idl.PathKind.CIRCUIT if value.kind is PathKind.CIRCUIT else idl.PathKind.PACKET
            wanted.receivers = addresses(value.receivers)
            wanted.protocol = value.protocol.value
            wanted.dark = list(value.dark) or None
            wanted.sender_rack = value.sender_rack or None
            wanted.tree_links = value.tree_links or None
            wanted.path_links = value.path_links if value.tree_links else None
        assert response(value, 20) == encode("Agent", "response", {"response": wanted})


def test_view__every_name_and_the_absent_ones_survive_the_wire() -> None:
    """An overlay view as the manager encodes it, read by the IDL."""
    h2, h3 = ServerAddress("h2", "10.0.1.2", 7071), ServerAddress("h3", "10.0.2.1", 7071)
    view = OverlayView(
        "p-1", 7, "239.192.0.5", bytes(16), 9, "h1", RingPlace("h3", "h2", "h1"), None, ("h3",), (h2, h3)
    )
    frame = encode("Agent", "view", {"view": overlay_view(view)})
    name, args = decode("Agent", frame[4:])
    read = args.view
    assert name == "view" and (read.response_id, read.version, read.group, read.sender) == (
        "p-1",
        7,
        "239.192.0.5",
        "h1",
    )
    assert (read.leaf_predecessor, read.leaf_successor, read.leaf_parent) == ("h3", "h2", "h1")
    assert (read.proxy_predecessor, read.proxy_successor, read.proxy_parent) == (None, None, None)
    assert read.children == ["h3"] and [one.server for one in read.addresses] == ["h2", "h3"]


async def test_failure__of_an_unknown_kind_is_refused_with_a_reason(tmp_path: Path) -> None:
    async with running(tmp_path) as manager:
        agent = await manager.agent("h1")
        report = idl.FailureReport(response_id="p-1", version=1, kind=9, ring=1, server="h2")
        agent.say("failure", report=report)
        assert "there is no FailureKind 9" in (await agent.expect("goodbye")).reason
