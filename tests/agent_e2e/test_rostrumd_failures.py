"""Whole agents against each other over a real multicast network: what an application sees when something fails."""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections.abc import Iterator

import pytest
from rostrum.client import wire
from rostrum.client.values import Denied, Receiver, RostrumError, SendResult, TimedOut, Unavailable

from tests.agent_e2e.agents import World, content, wait_until
from tests.agent_e2e.fake_manager import Answer, on_loop
from tests.agent_e2e.network import Network, network

ALL = ["h2", "h3", "h4"]
SLOW = 30_000_000  # bits/s: a transfer of a few MB lasts long enough for something to happen
QUICK = ("--silence-bound", "1s")


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(4) as it:
        yield it


def of(result: SendResult, name: str) -> Receiver:
    return next(receiver for receiver in result.receivers if receiver.name == name)


def test_killed_receiver_fails_alone(lab: World) -> None:
    lab.manager.answer = lambda request: Answer(rate_bps=SLOW)
    lab.start_all(*QUICK)
    data = content(3_000_000, 1)
    sender = lab.app("h1")
    sender.add(1, data)
    tag = sender.start_send(1, ALL)
    lab.agents["h1"].wait_log("phase=high-rate")
    lab.agents["h3"].kill()
    result, _ = sender.finish_send(tag)
    assert not result.ok
    assert of(result, "h3").state == "failed"
    assert "reached" in of(result, "h3").cause or "said nothing" in of(result, "h3").cause
    for name in ("h2", "h4"):
        assert of(result, name).digest_ok
        assert lab.app(name).read(1) == data
    wait_until(lambda: not lab.manager.paths, "release of the path")
    assert lab.manager.heard("report")[-1].args["report"]["phase"] == "failed"


def test_receiver_that_is_cut_off_fails_alone(lab: World) -> None:
    lab.manager.answer = lambda request: Answer(rate_bps=SLOW)
    lab.start_all(*QUICK)
    sender = lab.app("h1")
    sender.add(1, content(3_000_000, 2))
    tag = sender.start_send(1, ALL)
    lab.agents["h1"].wait_log("phase=high-rate")
    lab.net.cut("h4")
    try:
        result, _ = sender.finish_send(tag)
    finally:
        lab.net.cut("h4", cut=False)
    assert of(result, "h4").state == "failed"
    assert of(result, "h2").digest_ok
    assert of(result, "h3").digest_ok
    lab.agents["h4"].wait_log("failed cause=")
    assert lab.agents["h4"].objects() == []


@pytest.mark.parametrize("size", [100_000, 10_000_000])
def test_a_switch_that_drops_long_packets_and_says_nothing_fails_nobody(lab: World, size: int) -> None:
    """Small ones get through: the sender's connection to h4 comes up again and again, and nothing long goes by it."""
    lab.start_all(*QUICK)
    lab.net.middle.ip("link", "set", "port4", "mtu", "1500")
    lab.net.hosts["h1"].namespace.ip("link", "set", "dev", "eth0", "gso_max_segs", "1")  # or they pass, joined
    try:
        sender = lab.app("h1")
        sender.add(1, content(size, 3))
        assert sender.send(1, ALL).ok
    finally:
        lab.net.middle.ip("link", "set", "port4", "mtu", "9000")
        lab.net.hosts["h1"].namespace.ip("link", "set", "dev", "eth0", "gso_max_segs", "65535")
    assert lab.app("h4").read(1) == content(size, 3)


def test_receiver_that_was_never_there(lab: World) -> None:
    for name in ("h1", "h2"):
        lab.start(name, *QUICK)
    data = content(500_000, 3)
    sender = lab.app("h1")
    sender.add(1, data)
    result = sender.send(1, ["h2", "h3"])
    assert of(result, "h2").digest_ok
    assert of(result, "h3").state == "failed"
    assert "refused" in of(result, "h3").cause
    assert lab.app("h2").read(1) == data


def test_killed_sender_leaves_no_partial_object(lab: World) -> None:
    lab.manager.answer = lambda request: Answer(rate_bps=SLOW)
    lab.start_all(*QUICK)
    sender, reader = lab.app("h1"), lab.app("h2")
    sender.add(1, content(3_000_000, 4))
    tag = reader.start_read(1, 8000)
    sender.start_send(1, ALL)
    lab.agents["h1"].wait_log("phase=high-rate")
    lab.agents["h1"].kill()
    for name in ALL:
        lab.agents[name].wait_log("failed cause=")
        assert lab.agents[name].objects() == []
        assert lab.app(name).status()[0].store_used == 0
    with pytest.raises(TimedOut) as failure:
        reader.finish_read(tag)
    assert "h1" in str(failure.value) or "sender" in str(failure.value)


def test_restarted_agents_find_each_other_again(lab: World) -> None:
    lab.start_all(*QUICK)
    sender = lab.app("h1")
    sender.add(1, content(300_000, 5))
    assert sender.send(1, ["h2"]).ok
    lab.agents["h2"].kill()
    lab.start("h2", *QUICK)
    result = sender.send(1, ["h2"])
    assert result.ok, result
    lab.agents["h1"].kill()
    lab.start("h1", *QUICK)
    again = lab.app("h1")
    data = content(300_000, 6)
    again.add(2, data)
    assert again.send(2, ["h2", "h3"]).ok
    assert lab.app("h2").read(2) == data


def test_manager_gone(lab: World) -> None:
    lab.manager.answer = lambda request: Answer(rate_bps=SLOW)
    lab.start_all()
    sender = lab.app("h1")
    sender.add(1, content(2_000_000, 7))
    sender.add(2, content(10_000, 8))
    running = sender.start_send(1, ["h2", "h3"])
    lab.agents["h1"].wait_log("phase=high-rate")
    on_loop(lab.manager, lab.manager.stop)
    lab.agents["h1"].wait_log("manager up=0")
    with pytest.raises(Unavailable) as failure:
        sender.send(2, ["h2"], wait_ms=100)
    assert "the manager did not come back" in str(failure.value)
    assert lab.endpoint in str(failure.value)
    assert sender.finish_send(running)[0].ok  # what runs goes on
    on_loop(lab.manager, lab.manager.start)
    wait_until(lambda: lab.app("h1").status()[0].manager_up, "link to the manager")
    assert sender.send(2, ["h2"]).ok
    lab.manager.wait_for(lambda calls: sum(c.name == "release" for c in calls) >= 2, "release of both paths")


def test_send_waits_for_a_manager_that_is_away(lab: World) -> None:
    """`rostrum send` while the manager stands still and restarts: it says that it waits, and goes on."""
    lab.start_all()
    sender = lab.app("h1")
    sender.add(1, content(10_000, 30))
    sender.add(2, content(10_000, 31))
    lab.manager.answer = lambda request: Answer(silent=True)
    asked = sender.start_send(1, ["h2"], events=True)  # not answered before it goes
    lab.manager.wait_for(lambda calls: any(c.name == "request" for c in calls), "the request")
    lab.manager.stopped = True  # connected, and nothing is answered
    lab.agents["h1"].wait_log("manager silent=1")
    lab.manager.stopped = False
    lab.agents["h1"].wait_log("manager silent=0")
    on_loop(lab.manager, lab.manager.stop)
    lab.agents["h1"].wait_log("manager up=0")
    meanwhile = sender.start_send(2, ["h3"], events=True, wait_ms=60_000)
    lab.agents["h1"].wait_log("waiting for the manager")
    lab.manager.answer = lambda request: Answer()
    on_loop(lab.manager, lab.manager.start)
    for tag in (asked, meanwhile):
        result, events = sender.finish_send(tag)
        assert result.ok, result
        fields = [event.text for event in events if event.subject == "queued"]
        assert any("waiting for the manager" in one and lab.endpoint in one for one in fields), fields
        assert fields[-1].startswith("the manager is there"), fields
        assert any("has not answered for" in one for one in fields) == (tag == asked), fields


@pytest.mark.parametrize("word", ["failed", "moved"])
def test_next_sessions_path_fails_or_moves_before_its_turn(lab: World, word: str) -> None:
    lab.manager.answer = lambda request: Answer(rate_bps=SLOW, accept_bytes=1_500_000)
    lab.start_all()
    data = content(3_000_000, 32)
    sender = lab.app("h1")
    sender.add(1, data)
    tag = sender.start_send(1, ["h2", "h3"])
    wait_until(lambda: len(lab.manager.paths) == 2, "paths of both sessions")
    following = list(lab.manager.paths)[-1]
    if word == "failed":
        assert on_loop(lab.manager, lambda: lab.manager.failed(following, "tor3 is gone"))
    else:
        assert on_loop(lab.manager, lambda: lab.manager.moved(following, "packet", "it is dark"))
    result, _ = sender.finish_send(tag)
    assert result.ok, result
    assert result.sessions == (3 if word == "failed" else 2)  # of three granted, two were used
    assert len(lab.manager.heard("request")) == result.sessions
    assert lab.app("h3").read(1) == data


@pytest.mark.parametrize("who", ["h1", "h2"])
@pytest.mark.parametrize("phase", ["high-rate", "patching"])
def test_agent_that_was_stopped_goes_on(lab: World, who: str, phase: str) -> None:
    """The sender for longer than the bound on silence, a receiver for less."""
    lab.manager.answer = lambda request: Answer(rate_bps=SLOW)
    lab.start_all(*QUICK, *(("--loss", "uniform:0.02:seed=1") if phase == "patching" else ()))  # something to patch
    data = content(3_000_000, 33)
    sender = lab.app("h1")
    sender.add(1, data)
    tag = sender.start_send(1, ALL)
    lab.agents["h1"].wait_log(f"phase={phase}")
    lab.agents[who].pause(2.5 if who == "h1" else 0.6)
    result, _ = sender.finish_send(tag)
    assert result.ok, result
    for name in ALL:
        assert lab.app(name).read(1) == data
    if who == "h1":
        lab.agents["h1"].wait_log("this process did not run for 2.")


def test_sender_whose_path_was_taken_back_while_it_was_stopped_sends_nothing_on_it(lab: World) -> None:
    lab.manager.answer = lambda request: Answer(rate_bps=SLOW)
    lab.start_all()
    data = content(3_000_000, 34)
    sender = lab.app("h1")
    sender.add(1, data)
    tag = sender.start_send(1, ALL)
    agent = lab.agents["h1"]
    agent.wait_log("phase=high-rate")
    (path,) = lab.manager.paths

    def taken() -> None:
        on_loop(lab.manager, lambda: lab.manager.failed(path, "lease over"))

    agent.pause(2.5, taken)
    result, _ = sender.finish_send(tag)
    assert result.ok, result
    agent.wait_log("this process did not run for 2.")
    agent.wait_log("by unicast")
    for name in ALL:
        assert lab.app(name).read(1) == data


def test_without_a_manager_it_receives_but_does_not_send(lab: World) -> None:
    lab.start("h1")
    lab.start("h2", manager=False)
    sender, other = lab.app("h1"), lab.app("h2")
    sender.add(1, content(10_000, 9))
    assert sender.send(1, ["h2"]).ok
    other.add(2, b"x")
    with pytest.raises(Unavailable, match="--manager"):
        other.send(2, ["h1"])


def test_denied_queued_and_silent_managers(lab: World) -> None:
    lab.start_all()
    sender = lab.app("h1")
    sender.add(1, content(10_000, 10))
    lab.manager.answer = lambda request: Answer(deny="every splitter is in use until Tuesday")
    with pytest.raises(Denied, match="until Tuesday"):
        sender.send(1, ["h2"])
    with pytest.raises(Denied, match="h9"):
        lab.manager.answer = lambda request: Answer()
        sender.send(1, ["h9"])
    lab.manager.answer = lambda request: Answer(queued=["waits for splitter s1"], silent=True)
    with pytest.raises(TimedOut, match="splitter s1"):
        sender.send(1, ["h2"], wait_ms=200)
    lab.manager.wait_for(lambda calls: any(c.name == "cancel" for c in calls), "cancel of the request")
    lab.manager.answer = lambda request: Answer(queued=["waits for splitter s1"], delay_s=0.1)
    result, events = sender.finish_send(sender.start_send(1, ["h2"], events=True))
    assert result.ok
    assert any(event.subject == "queued" and event.text == "waits for splitter s1" for event in events)


def test_longer_wait_for_a_path_than_the_silence_bound(lab: World) -> None:
    lab.start_all("--silence-bound", "500ms")
    lab.manager.answer = lambda request: Answer(delay_s=1.5)
    sender = lab.app("h1")
    sender.add(1, content(10_000, 11))
    result = sender.send(1, ALL)
    assert result.ok, result


def test_wrong_receivers(lab: World) -> None:
    lab.start_all()
    sender = lab.app("h1")
    sender.add(1, b"data")
    with pytest.raises(RostrumError, match="h1 is the sender"):
        sender.send(1, ["h2", "h1"])
    with pytest.raises(RostrumError, match="twice"):
        sender.send(1, ["h2", "h2"])
    with pytest.raises(RostrumError):
        sender.send(5, ["h2"])  # no such object
    assert sender.send(1, ["h2"]).ok


def test_full_store_refuses_and_others_go_on(lab: World) -> None:
    for name in ("h1", "h2"):
        lab.start(name)
    lab.start("h3", "--quota", "1M")
    data = content(2_000_000, 12)
    sender = lab.app("h1")
    sender.add(1, data)
    result = sender.send(1, ["h2", "h3"])
    assert of(result, "h3").state == "failed"
    assert "room" in of(result, "h3").cause
    assert lab.app("h2").read(1) == data
    assert lab.app("h3").status()[0].store_used == 0


def test_cancelled_send(lab: World) -> None:
    lab.manager.answer = lambda request: Answer(rate_bps=SLOW)
    lab.start_all()
    sender = lab.app("h1")
    sender.add(1, content(3_000_000, 13))
    tag = sender.start_send(1, ALL)
    lab.agents["h1"].wait_log("phase=high-rate")
    other = lab.app("h1")
    other.cancel(1)
    result, _ = sender.finish_send(tag)
    assert not result.ok
    assert "cancelled" in result.cause
    for name in ALL:
        lab.agents[name].wait_log("failed cause=")
        assert lab.agents[name].objects() == []
    wait_until(lambda: not lab.manager.paths, "release of the path")
    other.delete(1)  # nothing holds it any more
    lab.manager.answer = lambda request: Answer(silent=True)
    sender.add(2, b"data")
    tag = sender.start_send(2, ALL)
    wait_until(lambda: lab.manager.heard("request")[-1].args["request"]["data_id"] == 2, "request")
    sender.cancel(2)
    result, _ = sender.finish_send(tag)  # the same as with a path
    assert not result.ok and "cancelled" in result.cause
    assert {receiver.state for receiver in result.receivers} == {"failed"}


def test_no_light_is_told_and_patches_finish(lab: World) -> None:
    """A path that never carries anything: the manager hears of it, and the object still gets there."""
    lab.manager.answer = lambda request: Answer(light_bound_ms=200)
    for name in ("h1", "h2"):
        lab.start(name)
    lab.start("h3", "--loss", "uniform:1")
    data = content(400_000, 14)
    sender = lab.app("h1")
    sender.add(1, data)
    result = sender.send(1, ["h2", "h3"])
    assert result.ok, result
    assert lab.app("h3").read(1) == data
    assert any("h3" in call.args["receivers"] for call in lab.manager.heard("no_light"))
    assert all("h2" not in call.args["receivers"] for call in lab.manager.heard("no_light"))


def test_moved_and_failed_paths(lab: World) -> None:
    lab.start_all()
    data = content(2_000_000, 15)
    sender = lab.app("h1")
    sender.add(1, data)
    lab.manager.answer = lambda request: Answer(
        rate_bps=SLOW, moved_after_s=0.1, moved_reason="cross-connect 10001->20005 in FAULT"
    )
    result, events = sender.finish_send(sender.start_send(1, ["h2"], events=True))
    assert result.ok, result
    assert result.path == "packet"
    assert "FAULT" in result.reason
    assert any("FAULT" in event.text for event in events)
    sender.add(2, data)
    lab.manager.answer = lambda request: Answer(rate_bps=SLOW, failed_after_s=0.1, failed_reason="tor3 is gone")
    result, events = sender.finish_send(sender.start_send(2, ["h2", "h3"], events=True))
    assert result.ok, result  # finished by patches
    assert any("tor3 is gone" in event.text for event in events)
    assert lab.app("h3").read(2) == data


def stranger(lab: World, to: str, kind: int) -> socket.socket:
    """A socket on another host of the network."""
    made: list[socket.socket] = []

    def make() -> None:
        lab.net.hosts["h4"].namespace.enter_thread()
        made.append(socket.socket(socket.AF_INET, kind))
        made[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made[0].settimeout(5)
        if kind == socket.SOCK_STREAM:
            made[0].connect((lab.net.hosts[to].address, 7071))

    import threading

    thread = threading.Thread(target=make)
    thread.start()
    thread.join(60)
    return made[0]


def test_garbage_on_the_network_harms_nobody(lab: World) -> None:
    seed = int(time.time())
    print("seed", seed)
    dice = random.Random(seed)
    lab.manager.answer = lambda request: Answer(rate_bps=SLOW)
    lab.start_all()
    data = content(2_000_000, 16)
    sender = lab.app("h1")
    sender.add(1, data)
    tag = sender.start_send(1, ["h2", "h3"])
    lab.agents["h1"].wait_log("phase=high-rate")
    group = next(iter(lab.manager.paths.values())).group
    with stranger(lab, "h2", socket.SOCK_DGRAM) as datagrams:
        right = bytes.fromhex("53520200") + bytes(4)
        for _ in range(300):
            noise = dice.randbytes(dice.choice([0, 1, 31, 32, 33, 1000, 8900, 8928]))
            datagrams.sendto(noise, (group, 7070))
            sn = dice.choice([0, 3, 2**64 - 1, dice.randrange(2**64)])
            forged = right + dice.randbytes(8) + sn.to_bytes(8, "little") + bytes(8)
            forged += dice.randbytes(dice.choice([0, 5, 8895, 8950]))
            datagrams.sendto(forged, (group, 7070))
    for to in ("h1", "h2"):
        for size in (1, 3, 64, 5000, 200_000):
            with stranger(lab, to, socket.SOCK_STREAM) as stream:
                try:
                    stream.sendall(dice.randbytes(size))
                    stream.shutdown(socket.SHUT_WR)
                    while stream.recv(4096):
                        pass
                except OSError:
                    pass  # closed on us: that is what it is for
    result, _ = sender.finish_send(tag)
    assert result.ok, result
    assert lab.app("h2").read(1) == data
    assert lab.app("h3").read(1) == data
    assert lab.app("h2").status()[0].packets_bad > 0


def test_file_shortened_while_its_digest_is_taken(lab: World) -> None:
    lab.manager.answer = lambda request: Answer(rate_bps=SLOW)
    lab.start_all(*QUICK, "--digest", "sha256")
    sender, fd = lab.app("h1"), os.memfd_create("object")
    os.truncate(fd, 100 << 20)
    tag = sender.start_send(1, ["h2"], fd=fd)
    lab.agents["h1"].wait_log("phase=high-rate")
    os.truncate(fd, 100_000)
    os.close(fd)
    result, _ = sender.finish_send(tag)
    assert not result.ok and "shorte" in result.cause
    with pytest.raises(RostrumError, match="no object"):
        sender.call(wire.DELETE, struct.pack("<Q", 1))
    sender.add(1, b"x")
    assert sender.send(1, ["h2", "h3"]).ok
    assert lab.app("h2").read(1) == b"x"


def test_object_shortened_while_it_is_sent(lab: World) -> None:
    """An application that breaks its promise harms its own transfer only."""
    lab.manager.answer = lambda request: Answer(rate_bps=SLOW)
    lab.start_all(*QUICK)
    sender = lab.app("h1")
    good = content(1_000_000, 18)
    sender.add(2, good)
    fd = os.memfd_create("object")
    os.write(fd, content(3_000_000, 17))
    sender.call(wire.ADD, struct.pack("<Q", 1), [fd])
    tag, other = sender.start_send(1, ["h2"]), sender.start_send(2, ["h3"])
    lab.agents["h1"].wait_log("phase=high-rate")
    os.ftruncate(fd, 100_000)
    os.close(fd)
    result, _ = sender.finish_send(tag)
    assert not result.ok
    assert "shorter" in result.cause
    assert sender.finish_send(other)[0].ok
    assert lab.app("h3").read(2) == good
    assert lab.agents["h2"].objects() == []
