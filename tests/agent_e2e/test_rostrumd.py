"""Whole agents against each other over a real multicast network: what an application sees when all goes well."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from rostrum.topologies.version import VERSION

from tests.agent_e2e.agents import (
    ROSTRUMD,
    App,
    RostrumError,
    World,
    content,
    memory_file,
    metrics,
    wait_until,
    with_metrics,
)
from tests.agent_e2e.fake_manager import Answer, on_loop
from tests.agent_e2e.network import Network, network

ALL = ["h2", "h3", "h4"]


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(4) as it:
        yield it


def phases(events: list) -> list[str]:
    return [event.subject for event in events if event.kind == "phase"]


def test_object_reaches_three_receivers(lab: World) -> None:
    lab.start_all()
    data = content(3_000_000, 1)
    sender = lab.app("h1")
    sender.add(7, data)
    result, events = sender.finish_send(sender.start_send(7, ALL, events=True))
    assert result.ok, result
    assert [receiver.digest_ok for receiver in result.receivers] == [True] * 3
    for name in ALL:
        assert lab.app(name).read(7) == data
    order = [name for name in phases(events) if name != "patching"]
    assert order == ["requested", "accepted", "attempt", "high-rate", "data-done", "released", "done"]
    assert 0 < result.requested_ns <= result.accepted_ns <= result.high_rate_ns <= result.data_done_ns <= result.done_ns
    assert {event.subject for event in events if event.kind == "receiver" and event.state == "done"} == set(ALL)
    lab.manager.wait_for(lambda calls: any(c.name == "release" for c in calls), "release of the path")
    assert not lab.manager.paths
    last = lab.manager.heard("report")[-1].args["report"]
    assert last["phase"] == "done"
    assert [receiver["state"] for receiver in last["receivers"]] == ["done"] * 3


def test_hello_names_the_agent_by_its_token(lab: World, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-of-more-than-16-letters\nand a line that says nothing\n")
    lab.start("h1", "--manager-token", str(file))
    lab.manager.wait_for(lambda calls: any(c.name == "hello" for c in calls), "hello")
    info = lab.manager.heard("hello", "h1")[-1].args["info"]
    assert (info["token"], info["software"], info["knows_probes"]) == ("a-token-of-more-than-16-letters", VERSION, True)


@pytest.mark.parametrize("spec", ["uniform:0.05:seed=3", "gilbert:0.05:8:seed=4", "burst:0.2:20:seed=5", "first:25"])
def test_losses_are_mended(lab: World, spec: str) -> None:
    lab.start("h1")
    for name in ALL:
        lab.start(name, "--loss", spec, "--seed", "11")
    data = content(6_000_001, 2)
    sender = lab.app("h1")
    sender.add(1, data)
    result = sender.send(1, ALL)
    assert result.ok, result
    for name in ALL:
        assert lab.app(name).read(1) == data
    if spec.startswith("first"):
        assert all(receiver.initial_sn >= 25 for receiver in result.receivers)
    else:
        assert all(receiver.patched_fragments > 0 for receiver in result.receivers)


@pytest.mark.parametrize("size", [0, 1, 8895, 8896, 8897, 1 << 20, (1 << 20) + 1])
def test_sizes_at_the_edges(lab: World, size: int) -> None:
    lab.start_all()
    data = content(size, size)
    sender = lab.app("h1")
    sender.add(size, data)
    result = sender.send(size, ALL)
    assert result.ok, result
    assert result.size == size
    for name in ALL:
        assert lab.app(name).read(size) == data


def test_partial_acceptance_takes_several_sessions(lab: World) -> None:
    lab.manager.answer = lambda request: Answer(accept_bytes=1_000_000)
    lab.start_all()
    data = content(3_500_000, 3)
    sender = lab.app("h1")
    sender.add(1, data)
    result, events = sender.finish_send(sender.start_send(1, ALL, events=True))
    assert result.ok, result
    assert result.sessions == 4
    for name in ALL:
        assert lab.app(name).read(1) == data
    requests = [call.args["request"] for call in lab.manager.heard("request")]
    assert requests[0]["remaining_size"] == 3_500_000
    assert len({request["request_id"] for request in requests}) == 4
    lab.manager.wait_for(lambda calls: sum(c.name == "release" for c in calls) == 4, "release of four paths")
    assert not lab.manager.paths
    assert phases(events).count("accepted") == 4


def test_circuit_that_comes_late(lab: World) -> None:
    """Attempts go on while the path is dark."""
    lab.manager.answer = lambda request: Answer(reconfiguration_ms=70, light_bound_ms=2000)
    lab.start_all()
    data = content(2_000_000, 4)
    sender = lab.app("h1")
    sender.add(1, data)
    lab.net.cut("h3")
    tag = sender.start_send(1, ["h2", "h4"])
    result, _ = sender.finish_send(tag)
    lab.net.cut("h3", cut=False)
    assert result.ok, result
    assert result.packets_attempt > 0
    assert result.reconfiguration_ns == 70_000_000


def test_three_transfers_at_once(lab: World) -> None:
    lab.start_all()
    objects = {"h1": content(3_000_000, 5), "h2": content(2_500_000, 6), "h3": content(2_000_000, 7)}
    senders = {name: lab.app(name) for name in objects}
    tags = {}
    for number, (name, data) in enumerate(objects.items()):
        senders[name].add(number, data)
    for number, name in enumerate(objects):
        tags[name] = senders[name].start_send(number, [other for other in ("h1", *ALL) if other != name])
    for name in objects:
        result, _ = senders[name].finish_send(tags[name])
        assert result.ok, result
    for number, (name, data) in enumerate(objects.items()):
        for other in ("h1", *ALL):
            if other != name:
                assert lab.app(other).read(number) == data


def test_the_first_forty_objects_without_a_manager_go_at_once(lab: World) -> None:
    """Each tries whether multicast gets through, and a receiver hears so many tests at a time."""
    for name in ("h1", "h2", "h3"):
        lab.start(name, "--standalone", "true", manager=False)
    sender = lab.app("h1")
    for number in range(40):
        sender.add(number, content(1000, number))
    tags = [sender.start_send(number, ["h2", "h3"]) for number in range(40)]
    for tag in tags:
        result = sender.finish_send(tag)[0]
        assert result.ok, result


def test_two_sends_of_one_application_share_the_nic(lab: World) -> None:
    lab.start_all()
    data = [content(2_000_000, 8), content(2_000_000, 9)]
    sender = lab.app("h1")
    tags = []
    for number in (0, 1):
        sender.add(number, data[number])
    for number in (0, 1):
        tags.append(sender.start_send(number, ALL))
    for tag in tags:
        result, _ = sender.finish_send(tag)
        assert result.ok, result
    for number in (0, 1):
        assert lab.app("h4").read(number) == data[number]


def test_many_readers_share_one_transfer(lab: World) -> None:
    lab.start_all()
    data = content(2_000_000, 10)
    sender = lab.app("h1")
    readers = [lab.app("h2", f"reader-{number}") for number in range(30)]
    waiting = [(reader, reader.start_read(1)) for reader in readers]
    sender.add(1, data)
    assert sender.send(1, ["h2"]).ok
    for reader, tag in waiting:
        assert reader.finish_read(tag) == data
    assert len(lab.manager.heard("request")) == 1


def test_sender_reads_its_own_object(lab: World) -> None:
    lab.start_all()
    data = content(100_000, 11)
    sender = lab.app("h1")
    sender.add(1, data)
    assert sender.send(1, ["h2"]).ok
    assert lab.app("h1").read(1) == data


def test_object_that_is_there_already_counts_as_done(lab: World) -> None:
    lab.start_all()
    data = content(500_000, 12)
    sender = lab.app("h1")
    sender.add(1, data)
    assert sender.send(1, ["h2"]).ok
    result = sender.send(1, ["h2", "h3"])
    assert result.ok, result
    assert lab.app("h3").read(1) == data


@pytest.mark.parametrize("digest", ["xxh3", "sha256"])
def test_a_file_is_sent_while_its_digest_is_taken(lab: World, digest: str) -> None:
    """Who has it already, and who has another by that id, knows when the digest is told; the others have begun."""
    for name in ("h1", *ALL):
        lab.start(name, "--digest", digest)
    data, other = content(40_000_000, 21), content(40_000_000, 22)
    lab.app("h2").add(1, data)
    lab.app("h4").add(1, other)
    sender, fd = lab.app("h1"), memory_file(data)
    result, _ = sender.finish_send(sender.start_send(1, ALL, fd=fd))
    os.close(fd)
    states = {receiver.name: receiver.state for receiver in result.receivers}
    assert states == {"h2": "done", "h3": "done", "h4": "failed"}, result
    assert "another object" in next(one for one in result.receivers if one.name == "h4").cause
    assert {receiver.name for receiver in result.receivers if receiver.had_it} == {"h2"}
    assert [lab.app(name).read(1) == data for name in ("h1", "h2", "h3", "h4")] == [True, True, True, False]
    again = sender.send(1, ["h3"])  # its digest is known now
    assert again.ok and again.bytes_sent < len(data) // 10 and again.receivers[0].had_it


def test_other_object_by_the_same_id_is_refused(lab: World) -> None:
    lab.start_all()
    lab.app("h2").add(1, b"mine")
    sender = lab.app("h1")
    sender.add(1, content(100_000, 13))
    result = sender.send(1, ["h2", "h3"])
    assert not result.ok
    failed = next(receiver for receiver in result.receivers if receiver.name == "h2")
    assert failed.state == "failed"
    assert "another object" in failed.cause and "delete it there" in failed.cause
    assert lab.app("h3").read(1)
    assert lab.app("h2").read(1) == b"mine"


def test_status_tells_transfers_and_objects(lab: World) -> None:
    lab.manager.answer = lambda request: Answer(rate_bps=20_000_000)
    lab.start_all()
    sender = lab.app("h1")
    sender.add(1, content(1_500_000, 14))
    tag = sender.start_send(1, ["h2"])
    watcher, receiver = lab.app("h1"), lab.app("h2")
    sending = wait_until(lambda: watcher.status()[1], "a transfer in the sender's status")
    assert sending[0].sending
    assert sending[0].size == 1_500_000
    receiving = wait_until(lambda: receiver.status()[1], "a transfer in the receiver's status")
    assert not receiving[0].sending
    assert receiving[0].peer == "h1"
    state, _, objects = watcher.status()
    assert state.manager_up
    assert [stored.data_id for stored in objects] == [1]
    assert sender.finish_send(tag)[0].ok
    assert watcher.status()[1] == []


def test_restarted_manager_learns_of_live_paths(lab: World) -> None:
    lab.manager.answer = lambda request: Answer(rate_bps=20_000_000)
    lab.start_all()
    sender = lab.app("h1")
    sender.add(1, content(2_000_000, 15))
    tag = sender.start_send(1, ["h2", "h3"])
    lab.agents["h1"].wait_log("phase=high-rate")
    on_loop(lab.manager, lab.manager.drop_agents)
    lab.manager.wait_for(
        lambda calls: any(c.name == "hello" and c.args["info"]["live_paths"] for c in calls), "hello with a live path"
    )
    hello = next(c for c in lab.manager.heard("hello", "h1") if c.args["info"]["live_paths"])
    (live,) = hello.args["info"]["live_paths"]
    assert sorted(live["receivers"]) == ["h2", "h3"]
    assert live["accepted_size"] == 2_000_000
    assert sender.finish_send(tag)[0].ok


def test_ends_in_order_on_sigterm(lab: World) -> None:
    agent = lab.start("h1")
    lab.app("h1").add(1, b"data")
    assert agent.stop() == 0
    assert not agent.socket.exists()
    assert "ended" in agent.log[-1]


def test_ends_in_order_in_the_middle_of_transfers(lab: World) -> None:
    lab.manager.answer = lambda request: Answer(rate_bps=20_000_000)
    lab.start_all()
    sender, receiver = lab.app("h1"), lab.app("h3")
    sender.add(1, content(3_000_000, 16))
    receiver.add(2, content(3_000_000, 17))
    tag = sender.start_send(1, ["h2", "h3"])
    other = receiver.start_send(2, ["h1"])
    lab.agents["h1"].wait_log("phase=high-rate")
    assert lab.agents["h1"].stop() == 0
    with pytest.raises((AssertionError, ConnectionError)):  # told before the socket closes, or closed
        sender.finish_send(tag)
        raise ConnectionError
    result, _ = receiver.finish_send(other)
    assert not result.ok
    lab.agents["h2"].wait_log("failed cause=")
    assert lab.agents["h2"].objects() == []
    wait_until(lambda: not lab.manager.paths, "release of both paths")


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--interface", "nosuch0", "no network interface"),
        ("--address", "10.99.0.1", "cannot send from 10.99.0.1"),
        ("--store", "/nonexistent/objects", "/nonexistent/objects"),
        ("--store", "/etc", "tmpfs"),
        ("--socket", "/nonexistent/agent.sock", "/nonexistent/agent.sock"),
        ("--mtu", "9999", "9000"),
    ],
)
def test_what_it_cannot_use_is_said(lab: World, option: str, value: str, text: str) -> None:
    host = lab.net.hosts["h1"]
    store = lab.folder / "objects"
    store.mkdir()
    options = {
        "--server": "h1", "--interface": "eth0", "--address": host.address, "--store": str(store),
        "--socket": str(lab.folder / "a.sock"),
    }  # fmt: skip
    options[option] = value
    command = [*host.namespace.prefix(), str(ROSTRUMD), *(part for pair in options.items() for part in pair)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert text in done.stderr.splitlines()[-1]


def test_second_agent_on_the_same_port_is_refused(lab: World) -> None:
    agent = lab.start("h1")
    other = lab.folder / "other"
    (other / "objects").mkdir(parents=True)
    command = [
        *agent.host.namespace.prefix(),
        str(ROSTRUMD),
        "--server",
        "h9",
        "--interface",
        "eth0",
        "--address",
        agent.host.address,
    ]
    command += ["--store", str(other / "objects"), "--socket", str(other / "a.sock")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "in use" in done.stderr.splitlines()[-1]


def test_applications_come_and_go_while_a_transfer_runs(lab: World) -> None:
    """A send goes on when its client is gone."""
    lab.manager.answer = lambda request: Answer(rate_bps=50_000_000)
    lab.start_all()
    data = content(2_000_000, 18)
    sender = lab.app("h1")
    sender.add(1, data)
    sender.start_send(1, ["h2"])
    lab.agents["h1"].wait_log("phase=attempt")
    sender.close()

    def come_and_go() -> None:
        for number in range(20):
            with App(lab.agents["h2"], process=f"passer-by-{number}") as app, pytest.raises(RostrumError):
                app.read(999, wait_ms=1)

    threads = [threading.Thread(target=come_and_go) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert lab.app("h2").read(1) == data
    for thread in threads:
        thread.join(60)


def test_socket_and_objects_are_their_groups(lab: World) -> None:
    agent = lab.start("h2", "--socket-group", "4", "--socket-mode", "0620")
    lab.start("h1")
    sender = lab.app("h1")
    sender.add(1, b"data")
    assert sender.send(1, ["h2"]).ok
    [name] = agent.objects()
    found = agent.socket.stat()
    assert (found.st_gid, found.st_mode & 0o777) == (4, 0o620)
    for path, mode in ((agent.store, 0o710), (agent.store / name, 0o440), ((agent.store / name).parent, 0o710)):
        assert (path.stat().st_gid, path.stat().st_mode & 0o777) == (4, mode), path


def test_a_store_that_others_can_list_and_that_is_not_its_own_is_refused(lab: World) -> None:
    shared = lab.folder / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    agent = lab.net.hosts["h2"]
    command = [
        *agent.namespace.prefix(), str(ROSTRUMD), "--server", "h2", "--interface", agent.interface, "--address",
        agent.address, "--socket", str(lab.folder / "a.sock"), "--store", str(shared), "--nic-rate", "1G",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "others can list" in done.stderr and "install -d -m 0710" in done.stderr
    assert shared.stat().st_mode & 0o7777 == 0o1777


def test_metrics__each_family_is_one_group_with_its_help(lab: World) -> None:
    """As Prometheus wants them: what stands apart from its family has neither help nor type."""
    lab.start("h2", *with_metrics(lab, "h2"))
    families: dict[str, str] = {}
    family = ""
    for line in metrics(lab, "h2"):
        if line.startswith("# HELP "):
            _, _, family, about = line.split(" ", 3)
            assert family not in families and about
            families[family] = about
        elif line and not line.startswith("#"):
            name = re.split(r"[{ ]", line)[0]
            assert name in (family, *(f"{family}_{one}" for one in ("bucket", "sum", "count"))), line
    assert len(families) > 50
