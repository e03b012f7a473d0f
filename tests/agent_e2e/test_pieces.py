"""Objects in pieces: on disk, larger than memory, found again after a restart, fetched from whoever has them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import select
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from rostrum.client import Agent as Client
from rostrum.client import wire
from rostrum.client.cli import main as rostrum
from rostrum.client.names import data_id_of
from rostrum.client.values import Code, RostrumError

from tests.agent_e2e.agents import APP, BUILD, Agent, App, World, content, counter, wait_until, with_metrics
from tests.agent_e2e.fake_manager import Answer
from tests.agent_e2e.network import Network, network

MIB = 1 << 20
CGROUPS = (  # of either version
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(4) as it:
        yield it


def to_disk(disk: Path, name: str) -> tuple[str, str]:
    folder = disk / name
    folder.mkdir(exist_ok=True)
    return ("--to-disk", str(folder))


@contextlib.contextmanager
def memory_of(agent: Agent, limit: int) -> Iterator[None]:
    """The running agent in a memory cgroup of its own."""
    top, bound = next((top, bound) for top, bound in CGROUPS if (top / "cgroup.procs").exists())
    group = top / f"rostrum-test-{agent.process.pid}"
    try:
        group.mkdir()
        (group / bound).write_text(str(limit))
        (group / "cgroup.procs").write_text(str(agent.process.pid))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        yield
    finally:
        (top / "cgroup.procs").write_text(str(agent.process.pid))
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "end of the cgroup")
        group.rmdir()


def file_of(disk: Path, data: bytes) -> int:
    path = disk / "source"
    path.write_bytes(data)
    return os.open(path, os.O_RDONLY)


@pytest.mark.skipif(
    not any((top / "cgroup.procs").exists() for top, _ in CGROUPS), reason="this machine has no memory cgroups"
)
def test_an_object_of_ten_times_the_memory_goes_from_disk_to_disk_and_outlives_the_agent(
    lab: World, disk: Path
) -> None:
    size = 240 * MIB
    data = content(size, 1)
    sender = lab.start("h1")
    receiver = lab.start("h2", *to_disk(disk, "h2"))
    fd = file_of(disk, data)
    with memory_of(receiver, size // 10), memory_of(sender, size // 10):
        result = lab.app("h1").send(7, ["h2"], fd=fd)
        assert result.ok, result
        with App(receiver) as app:
            read = app.call(wire.READ, struct.pack("<QI", 7, 1000))
            with open(read.fds[0], "rb") as file:
                assert all(file.read(MIB) == data[at : at + MIB] for at in range(0, size, MIB))
    os.close(fd)
    assert receiver.objects() == []  # nothing of it is in memory
    receiver.kill()
    again = lab.start("h2", *to_disk(disk, "h2"))
    with App(again) as app:
        assert app.read(7, 60_000) == data
        app.delete(7)
        with pytest.raises(RostrumError) as caught:
            app.read(7, 1)
        assert caught.value.code == Code.TIMEOUT
    assert [path for path in (disk / "h2").rglob("*") if path.is_file()] == []


@pytest.mark.apps
@pytest.mark.skipif(
    not any((top / "cgroup.procs").exists() for top, _ in CGROUPS), reason="this machine has no memory cgroups"
)
@pytest.mark.parametrize("protocol", ["republic", "rdcm", "wan"])
def test_each_engine_streams_ten_times_the_memory_from_disk_to_two_disks(lab: World, disk: Path, protocol: str) -> None:
    size = 240 * MIB
    data = content(size, 2)
    lab.manager.answer = lambda request: Answer(kind="packet", protocol=protocol)
    sender = lab.start("h1")
    receivers = [lab.start(name, *to_disk(disk, name)) for name in ("h2", "h3")]
    fd = file_of(disk, data)
    with contextlib.ExitStack() as bounds:
        for agent in (sender, *receivers):
            bounds.enter_context(memory_of(agent, size // 10))
        result = lab.app("h1").send(7, ["h2", "h3"], fd=fd)
        assert result.ok and result.protocol == protocol, result
        for agent in receivers:
            with App(agent) as app, open(app.call(wire.READ, struct.pack("<QI", 7, 1000)).fds[0], "rb") as file:
                assert all(file.read(MIB) == data[at : at + MIB] for at in range(0, size, MIB))
    os.close(fd)


@pytest.mark.apps
@pytest.mark.skipif(
    not any((top / "cgroup.procs").exists() for top, _ in CGROUPS), reason="this machine has no memory cgroups"
)
def test_ten_times_the_memory_is_fetched_from_disk_to_disk(lab: World, disk: Path) -> None:
    size = 240 * MIB
    data = content(size, 4)
    holder, late = lab.start("h1"), lab.start("h2", *to_disk(disk, "h2"))
    fd = file_of(disk, data)
    with memory_of(holder, size // 10), memory_of(late, size // 10):
        lab.app("h1").call(wire.ADD, struct.pack("<Q", 7), [fd])
        app = lab.app("h2")
        with open(app.next(start_fetch(app, 7, at(lab, "h1"), 60_000), 60).fds[0], "rb") as file:
            assert all(file.read(MIB) == data[at : at + MIB] for at in range(0, size, MIB))
    os.close(fd)


def start_fetch(app: App, data_id: int, holders: list[str], wait_ms: int = 30_000) -> int:
    return app.start(wire.FETCH, wire.fetch_body(data_id, holders, wait_ms))


def at(lab: World, *names: str) -> list[str]:
    return [f"{name}@{lab.net.hosts[name].address}" for name in names]


def test_late_servers_fetch_from_several_holders_and_from_each_other(lab: World) -> None:
    lab.start_all()
    data = content(24 * MIB + 777, 3)
    lab.app("h1").add(7, data)
    lab.app("h2").add(7, data)
    apps = {name: lab.app(name) for name in ("h3", "h4")}
    tags = {name: start_fetch(app, 7, at(lab, "h1", "h2")) for name, app in apps.items()}
    for name, app in apps.items():
        assert app.finish_read(tags[name]) == data
        line = lab.agents[name].wait_log("fetched=")
        assert f"fetched={len(data)} kept=0" in line
    assert apps["h3"].finish_read(start_fetch(apps["h3"], 7, [])) == data  # it is here: nobody is asked
    apps["h3"].delete(7)


def test_a_fetch_from_nobody_says_what_each_said(lab: World) -> None:
    lab.start_all()
    app = lab.app("h3")
    for holders, text in (
        (at(lab, "h1", "h2"), "h1: it is not here"),
        ([], "nobody is named"),
        (["h1@1.2.3"], "no IPv4 address"),
        (["h9"], "does not know where h9 is"),
    ):
        with pytest.raises(RostrumError, match=text):
            app.next(start_fetch(app, 9, holders))


def pieces_on(disk: Path) -> int:
    """By the manifests."""
    found = [path.read_bytes() for path in disk.rglob("*.pieces")]
    return sum(any(one[at : at + 48]) for one in found for at in range(256, len(one), 48))


def kill_at_half(lab: World, disk: Path, data: bytes) -> int:
    """A receiver with a disk is killed in the middle of a send, which is slow enough for that; its pieces on disk."""
    lab.start("h1", "--silence-bound", "1s", "--nic-rate", "100M")
    receiver = lab.start("h2", *to_disk(disk, "h2"))
    sender = lab.app("h1")
    sender.add(7, data)
    tag = sender.start_send(7, ["h2"])
    wait_until(lambda: pieces_on(disk) >= len(data) // MIB // 2, "half of the pieces")
    receiver.kill()
    result, _ = sender.finish_send(tag)
    assert not result.ok
    return pieces_on(disk)


def test_a_receiver_that_was_killed_fetches_what_is_missing_by_itself(lab: World, disk: Path) -> None:
    size = 32 * MIB
    data = content(size, 5)
    kept = kill_at_half(lab, disk, data)
    again = lab.start("h2", *to_disk(disk, "h2"))
    with App(again) as app:
        assert app.read(7, 60_000) == data
    line = again.wait_log("fetched=")
    assert kept >= size // MIB // 2 and f"fetched={size - kept * MIB} kept={kept * MIB}" in line


def test_what_was_kept_of_a_send_that_failed_does_not_harm_the_next_one(lab: World, disk: Path) -> None:
    data = content(32 * MIB, 8)
    kill_at_half(lab, disk, data)
    sender = lab.app("h1")
    sender.delete(7)  # there is nobody to fetch it from
    again = lab.start("h2", *to_disk(disk, "h2"))
    again.wait_log("pieces on disk")
    sender.add(7, data)
    assert sender.send(7, ["h2"]).ok
    with App(again) as app:
        assert app.read(7) == data


def test_a_sender_that_was_restarted_sends_what_is_missing_and_nothing_twice(lab: World, disk: Path) -> None:
    size = 32 * MIB
    data = content(size, 9)
    sender = lab.start("h1", "--nic-rate", "100M")
    for name in ("h2", "h3"):
        lab.start(name, "--silence-bound", "1s", *to_disk(disk, name))
    lab.start("h4")
    app = lab.app("h1")
    app.add(7, data)
    app.start_send(7, ["h2", "h3"])
    wait_until(lambda: min(pieces_on(disk / name) for name in ("h2", "h3")) >= 16, "half of the pieces")
    sender.kill()
    for name in ("h2", "h3"):
        lab.agents[name].wait_log(" failed cause=")
    kept = {name: pieces_on(disk / name) for name in ("h2", "h3")}
    sender = lab.start("h1")
    app = lab.app("h1")
    app.add(7, data)
    result = app.send(7, ["h2", "h3"])
    assert result.ok, result
    assert result.packets_sent < size // 1400 // 20, result  # beside attempts nothing came by multicast
    for name in ("h2", "h3"):
        line = lab.agents[name].wait_log("fetched=")
        assert f"fetched={size - kept[name] * MIB} kept={kept[name] * MIB}" in line
        with App(lab.agents[name]) as there:
            assert there.read(7) == data
    result = app.send(7, ["h2", "h3", "h4"])
    assert result.ok and [one.had_it for one in result.receivers] == [True, True, False]
    result = app.send(7, ["h2", "h3"])
    assert result.ok and result.packets_patched == 0 and result.packets_sent < 100, result


GIVEN, FETCHED = "fetch_served_bytes_total", "fetched_bytes_total"


@pytest.mark.parametrize("protocol", ["republic", "rdcm"])
def test_a_late_server_hears_the_rest_of_a_transfer_and_gets_what_it_missed_from_the_others(
    lab: World, protocol: str
) -> None:
    data = content(40 * MIB, 10)
    lab.manager.answer = lambda request: Answer(kind="packet", protocol=protocol)
    lab.start("h1", "--nic-rate", "150M", *with_metrics(lab, "h1"))
    for name in ("h2", "h3", "h4"):
        lab.start(name, *with_metrics(lab, name))
    sender = lab.app("h1")
    sender.add(7, data)
    tag = sender.start_send(7, ["h2", "h3"])
    receiver = lab.app("h2")
    wait_until(
        lambda: any(one.bytes > len(data) // 4 for one in receiver.status()[1] if one.data_id == 7), "a quarter of it"
    )
    late = lab.app("h4")
    fetching = start_fetch(late, 7, at(lab, "h1"))
    result, _ = sender.finish_send(tag)
    assert result.ok and result.packets_redundant + result.packets_patched < result.packets_sent // 10, result
    assert late.finish_read(fetching) == data
    line = lab.agents["h4"].wait_log("heard=")
    heard = int(line.split("heard=")[1].split(" ")[0])
    assert heard > len(data) // 4, line  # the rest of it, but for what was under way when it came
    others = counter(lab, "h2", GIVEN) + counter(lab, "h3", GIVEN)
    assert others > counter(lab, "h1", GIVEN), line  # to which it turns when these are slow


def test_who_joins_takes_spare_capacity_while_the_others_receive_and_all_afterwards(lab: World) -> None:
    """What it missed came at whatever rate holders had, while they were receiving and sending the same object."""
    data, rate = content(60 * MIB, 12), 200_000_000
    lab.manager.answer = lambda request: Answer(kind="packet", protocol="republic")
    for name in ("h1", "h2", "h3", "h4"):
        lab.start(name, "--nic-rate", f"{rate}", *with_metrics(lab, name))
    sender = lab.app("h1")
    sender.add(7, data)
    tag = sender.start_send(7, ["h2", "h3"])
    receiver = lab.app("h2")
    wait_until(
        lambda: any(one.bytes > len(data) // 2 for one in receiver.status()[1] if one.data_id == 7), "half of it"
    )
    began = time.monotonic()
    late = lab.app("h4")
    fetching = start_fetch(late, 7, at(lab, "h1"))
    result, _ = sender.finish_send(tag)
    given = sum(counter(lab, name, GIVEN) for name in ("h1", "h2", "h3"))
    assert counter(lab, "h1", GIVEN) == 0  # its link is what the others wait for: they give what they have
    took_s = time.monotonic() - began
    assert result.ok, result
    assert late.finish_read(fetching) == data
    assert given <= 3 * (rate / 8 / 8 * took_s + MIB), (given, took_s)
    assert sum(counter(lab, name, GIVEN) for name in ("h1", "h2", "h3")) >= len(data) // 3


@pytest.mark.parametrize("protocol", ["republic", "rdcm"])
def test_a_receiver_leaves_and_the_others_go_on(lab: World, protocol: str) -> None:
    data = content(24 * MIB, 11)
    lab.manager.answer = lambda request: Answer(kind="packet", protocol=protocol)
    lab.start("h1", "--nic-rate", "200M")
    for name in ("h2", "h3", "h4"):
        lab.start(name)
    sender = lab.app("h1")
    sender.add(7, data)
    tag = sender.start_send(7, ["h2", "h3", "h4"])
    leaver = lab.app("h3")
    reading = leaver.start_read(7, 60_000)
    wait_until(lambda: any(one.bytes > len(data) // 4 for one in leaver.status()[1]), "a quarter of it")
    leaver.leave(7)
    result, _ = sender.finish_send(tag)
    assert result.ok and {one.name: one.state for one in result.receivers} == {"h2": "done", "h3": "left", "h4": "done"}
    lab.manager.wait_for(lambda calls: any(one.name == "receiver_change" for one in calls), "who left")
    told = [one.args for one in lab.manager.calls if one.name == "receiver_change"]
    assert [(args["server"], args["joins"]) for args in told] == [("h3", False)]
    for name in ("h2", "h4"):
        assert lab.app(name).read(7) == data
    wait_until(lambda: leaver.status()[2] == [], "nothing of it there")
    with pytest.raises(RostrumError, match="not coming in here"):
        leaver.leave(7)
    assert sender.send(7, ["h3"]).ok  # it may want it again
    assert leaver.finish_read(reading) == data


def test_a_reader_of_a_stream_leaves_and_the_others_have_all_of_it(lab: World) -> None:
    lab.manager.answer = lambda request: Answer(kind="packet", protocol="rdcm")
    lab.start_all()
    data = content(4 * MIB, 12)
    with contextlib.ExitStack() as stack:
        sender, *readers = (stack.enter_context(Client(lab.agents[name].socket)) for name in ("h1", "h2", "h3", "h4"))
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(2))
        came = [pool.submit(lambda agent: b"".join(agent.stream_receive(1, wait=20)), agent) for agent in readers[:2]]
        leaver = readers[2].stream_receive(1, wait=20)
        with sender.stream_send(1, ["h2", "h3", "h4"]) as out:
            out.write(data)
            assert leaver.read()
            leaver.leave()
            out.write(data)
            result = out.finish()
        assert result.ok and [one.state for one in result.receivers] == ["done", "done", "left"], result
        assert all(one.result(20) == 2 * data for one in came)


def test_holders_keep_to_their_rate_and_two_that_fetch_get_alike(lab: World) -> None:
    rate, size = 16_000_000, 6 * MIB
    for name in ("h1", "h2"):
        lab.start(name, "--fetch-rate", f"{rate}", *with_metrics(lab, name))
    for name in ("h3", "h4"):
        lab.start(name, *with_metrics(lab, name))
    data = {"h3": (7, content(size, 21)), "h4": (8, content(size, 22))}
    for number, one in data.values():
        for name in ("h1", "h2"):
            lab.app(name).add(number, one)
    apps = {name: lab.app(name) for name in data}
    began = time.monotonic()
    tags = {name: start_fetch(apps[name], data[name][0], at(lab, "h1", "h2")) for name in data}
    wait_until(lambda: max(counter(lab, name, FETCHED) for name in data) >= 4 * MIB, "most of one")
    assert min(counter(lab, name, FETCHED) for name in data) >= 2 * MIB  # none waits for the other's end
    for name, (_, one) in data.items():
        assert apps[name].finish_read(tags[name]) == one
    took_s = time.monotonic() - began
    given = {name: counter(lab, name, GIVEN) for name in ("h1", "h2")}
    assert sum(given.values()) == 2 * size
    for name, bytes_given in given.items():
        assert size // 2 < bytes_given <= rate / 8 * took_s + MIB, (name, given, took_s)


def test_a_program_in_c_fetches_by_name(lab: World) -> None:
    lab.start("h1")
    fetching = lab.start("h3")
    data = content(3 * MIB + 5, 23)
    with Client(lab.agents["h1"].socket, APP) as app:
        app.add("model.bin", data)
    example = BUILD / "agent" / "client" / "rostrum-example-fetch"
    command = [example, str(APP), "model.bin", *at(lab, "h1")]
    out = subprocess.run(command, env={"ROSTRUM_SOCKET": str(fetching.socket)}, check=True, capture_output=True)
    assert out.stdout == data
    command[2] = "another.bin"
    out = subprocess.run(command, env={"ROSTRUM_SOCKET": str(fetching.socket)}, check=False, capture_output=True)
    assert out.returncode == 1 and b"it is not here" in out.stderr


@pytest.mark.parametrize("multicast", ["heard", "unheard"])
def test_a_stream_is_joined_under_way_at_nobodys_cost(lab: World, multicast: str) -> None:
    """What came before is in the windows of its receivers, what comes later is heard, or comes from these too."""
    lab.manager.answer = lambda request: Answer(kind="packet", protocol="rdcm")
    lab.start("h1", *with_metrics(lab, "h1"))
    for name in ("h2", "h3"):
        lab.start(name, *with_metrics(lab, name))
    lab.start("h4", *(["--loss", "uniform:1"] if multicast == "unheard" else []))
    data = content(24 * MIB, 13)
    with contextlib.ExitStack() as stack:
        sender, *readers = (stack.enter_context(Client(lab.agents[name].socket)) for name in ("h1", "h2", "h3", "h4"))
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(3))
        came = [pool.submit(lambda agent: b"".join(agent.stream_receive(1, wait=20)), agent) for agent in readers[:2]]
        with sender.stream_send(1, ["h2", "h3"]) as out:
            out.write(data[: 4 * MIB])
            with readers[2].stream_join(1, at(lab, "h1"), wait=20) as late:
                first = late.read()
                joined = pool.submit(lambda: first + b"".join(late))
                for start in range(4 * MIB, len(data), MIB):
                    out.write(data[start : start + MIB])
                    time.sleep(0.05)  # a program's pace: who has joined must keep up, nobody waits for it
                result = out.finish()
                assert result.ok and [one.name for one in result.receivers] == ["h2", "h3"], result
                assert all(one.result(20) == data for one in came)
                assert joined.result(20) == data  # from its first byte: the windows held all of it
    line = lab.agents["h4"].wait_log("joined=whole")
    heard, missed = (int(line.split(f"{what}=")[1].split(" ")[0]) for what in ("heard", "missed"))
    assert heard > missed if multicast == "heard" else heard == 0, line
    gave = counter(lab, "h2", GIVEN) + counter(lab, "h3", GIVEN)
    asked = 256  # fragments at a time, of which some may be heard before they are given: nothing else comes twice
    assert gave < (missed + asked) * result.fragment_size, (line, gave, result.fragment_size)
    assert counter(lab, "h1", GIVEN) == 0, line
    assert result.packets_redundant + result.packets_patched < result.packets_sent // 10, result


class Liar:
    """A holder that gives what another holder gives, but for the bytes of streams: these are wrong, or another's; or
    it says that it has no piece yet."""

    PORT, HAS, RUN, STREAM = 7999, 2, 13, 11

    def __init__(self, lab: World, host: str, of: str, how: str) -> None:
        self.how, self.runs, self.fragment = how, 0, 0
        self._namespace, self._of = lab.net.hosts[host].namespace, (lab.net.hosts[of].address, 7072)
        self.text = f"liar@{lab.net.hosts[host].address}:{self.PORT}"
        self._listens = threading.Event()
        self._end, self._ended = socket.socketpair()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Liar:
        self._thread.start()
        assert self._listens.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()
        self._thread.join(20)
        self._ended.close()
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        self._namespace.enter_thread()
        with socket.create_server(("0.0.0.0", self.PORT)) as listener, contextlib.ExitStack() as stack:
            self._listens.set()
            other: dict[socket.socket, socket.socket] = {}
            coming: dict[socket.socket, bytearray] = {}  # of the true holders
            while True:
                for ready in select.select([listener, self._ended, *other], [], [])[0]:
                    if ready is self._ended:
                        return
                    if ready is listener:
                        client = stack.enter_context(listener.accept()[0])
                        true = stack.enter_context(socket.create_connection(self._of))
                        other.update({client: true, true: client})
                        coming[true] = bytearray()
                    elif ready in other:
                        self._pass_on(ready, other, coming)

    def _pass_on(
        self, link: socket.socket, other: dict[socket.socket, socket.socket], coming: dict[socket.socket, bytearray]
    ) -> None:
        to = other[link]
        try:
            data = link.recv(1 << 16)
            if not data:
                raise ConnectionError
            if link not in coming:
                to.sendall(data)
                return
            coming[link] += data
            while len(coming[link]) >= 8:
                length = 8 + struct.unpack_from("<I", coming[link], 4)[0]
                if len(coming[link]) < length:
                    return
                message = coming[link][:length]
                del coming[link][:length]
                to.sendall(self._changed(message))
        except OSError:
            for one in (link, to):
                other.pop(one, None)
                one.close()

    def _changed(self, message: bytearray) -> bytearray:
        at, size = 16, self.fragment  # behind the head and the first fragment's number
        if message[3] == self.STREAM:
            self.fragment = struct.unpack_from("<I", message, 8)[0]
        elif message[3] == self.HAS and self.how == "has nothing yet":
            message[18] &= ~1  # "complete", behind size and digest
        elif message[3] == self.RUN:
            self.runs += 1
            if self.how == "of another place" and len(message) >= at + 2 * size:
                message[at : at + 2 * size] = message[at + size : at + 2 * size] + message[at : at + size]
            else:
                message[-1 if self.how == "wrong at the end" else at + 100] ^= 1
        return message


def whole_stream(agent: Client, number: int) -> bytes:
    return b"".join(agent.stream_receive(number, wait=20))


@pytest.mark.parametrize("how", ["wrong", "wrong at the end", "of another place"])
def test_who_joins_a_stream_leaves_a_peer_that_gives_wrong_bytes_and_delivers_none_of_them(
    lab: World, how: str
) -> None:
    lab.manager.answer = lambda request: Answer(kind="packet", protocol="rdcm")
    for name in ("h1", "h2", "h3", "h4"):
        lab.start(name)
    data = content(12 * MIB, 14)
    with contextlib.ExitStack() as stack:
        sender, *readers = (stack.enter_context(Client(lab.agents[name].socket)) for name in ("h1", "h2", "h3", "h4"))
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(3))
        liar = stack.enter_context(Liar(lab, "h4", "h2", how))
        for number in range(1, 6):  # who joins may take a peer that answers sooner
            came = [pool.submit(whole_stream, agent, number) for agent in readers[:2]]
            with sender.stream_send(number, ["h2", "h3"]) as out:
                out.write(data[: 4 * MIB])
                with readers[2].stream_join(number, [liar.text], wait=20) as late:  # of the others it hears from there
                    first = late.read()
                    joined = pool.submit(b"".join, late)
                    for start in range(4 * MIB, len(data), MIB):
                        out.write(data[start : start + MIB])
                        time.sleep(0.05)  # a program's pace: who has joined must keep up, nobody waits for it
                    assert out.finish().ok
                    assert first + joined.result(20) == data
            assert all(one.result(20) == data for one in came)
            if liar.runs:
                break
        assert liar.runs >= 1  # it was believed until its first bytes came


def test_a_holder_to_which_nothing_comes_is_given_up_with_that_cause(lab: World) -> None:
    """The cause was empty."""
    lab.start_all()
    lab.app("h1").add(7, content(3 * MIB, 5))
    with Liar(lab, "h2", "h1", "has nothing yet") as liar:
        app = lab.app("h3")
        with pytest.raises(RostrumError, match="liar: it has no more than 0 of 3 pieces itself"):
            app.next(start_fetch(app, 7, [liar.text]))


def test_a_stream_that_nobody_has_is_not_joined(lab: World) -> None:
    lab.start_all()
    with (
        Client(lab.agents["h4"].socket) as app,
        app.stream_join(1, at(lab, "h1", "h2"), wait=0.5) as late,
        pytest.raises(RostrumError, match="h1: it is"),
    ):
        late.read()


def test_a_holder_of_other_bytes_is_left_for_one_that_has_the_right_ones(lab: World) -> None:
    lab.start_all()
    data = content(8 * MIB, 6)
    lab.app("h1").add(7, data)
    fd = os.memfd_create("object")
    os.write(fd, data)
    liar = lab.app("h2")
    liar.call(wire.ADD, struct.pack("<Q", 7), [fd])
    for piece in range(8):  # after its digest was taken
        os.pwrite(fd, b"x", piece * MIB + 10)
    app = lab.app("h3")
    assert app.finish_read(start_fetch(app, 7, at(lab, "h2", "h1"))) == data
    assert not [line for line in lab.agents["h3"].log if "from=h1 has a wrong digest" in line]
    os.close(fd)


def test_a_full_store_says_so_makes_room_as_was_told_and_shows_nothing_half_written(lab: World) -> None:
    lab.start("h1")
    receiver = lab.start("h2", "--quota", "40M", "--evict", "1s")
    sender, reader = lab.app("h1"), lab.app("h2")
    data = {number: content(10 * MIB, number) for number in range(1, 6)}
    for number, one in data.items():
        sender.add(number, one)
    for number in (1, 2, 3):
        assert sender.send(number, ["h2"]).ok
    reader.call(wire.PIN, struct.pack("<QI", 1, wire.PIN_ON))
    assert reader.read(2) == data[2]
    result = sender.send(4, ["h2"])  # 40 of 40 MB; the next look finds it more than 9/10 full
    assert result.ok, result
    receiver.wait_log("/3 goes bytes=")
    refused = sender.send(5, ["h2"])
    assert not refused.ok and "room is being made" in refused.receivers[0].cause, refused
    assert len(receiver.objects()) <= 4 and not [one for one in receiver.objects() if one.endswith("/5")]
    receiver.wait_log("/3 gone")
    wait_until(lambda: sender.send(5, ["h2"]).ok, "room for it")
    for number in (1, 5):
        assert reader.read(number) == data[number]


def test_a_full_disk_ends_a_transfer_with_a_reason_and_leaves_no_object(lab: World, disk: Path) -> None:
    folder = disk / "h2"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=0710", "tmpfs", str(folder)], check=True)
    try:
        lab.start("h1")
        lab.start("h2", "--to-disk", str(folder))
        sender = lab.app("h1")
        sender.add(7, content(16 * MIB, 7))
        (folder / "others").write_bytes(bytes(12 * MIB))
        result = sender.send(7, ["h2"])
        assert not result.ok and "bytes are free in the disk at" in result.receivers[0].cause, result
        assert [path.name for path in folder.rglob("*") if path.is_file()] == ["others"]
        late = lab.app("h2")
        with pytest.raises(RostrumError, match="bytes are free in the disk at"):
            late.finish_read(start_fetch(late, 7, at(lab, "h1")))
        assert [path.name for path in folder.rglob("*") if path.is_file()] == ["others"] and not late.status()[2]
        (folder / "others").unlink()
        assert sender.send(7, ["h2"]).ok and lab.app("h2").read(7) == content(16 * MIB, 7)
    finally:
        for agent in lab.agents.values():
            agent.stop()
        subprocess.run(["umount", str(folder)], check=True)


def names(agent: Agent) -> list[str]:
    with Client(agent.socket, app_id=APP) as client:
        return [one.name for one in client.status().objects]


def test_names_come_with_objects_and_outlive_the_agent(lab: World, disk: Path) -> None:
    """`rostrum status` showed numbers of 20 digits for what a server had received."""
    sender, receiver, other = lab.start("h1"), lab.start("h2", *to_disk(disk, "h2")), lab.start("h3")
    with Client(sender.socket, app_id=APP) as client:
        client.send("mod\u00e8le.bin", ["h2", "h3"], source=content(2 * MIB, 5)).wait()
        client.send(9, ["h3"], source=content(MIB, 6)).wait()
        client.send(data_id_of("late.bin"), ["h2"], source=content(MIB, 7)).wait()
        client._name("late.bin")  # a small object is whole there before the program's name for it has come
    for agent, wanted in ((receiver, ["late.bin", "mod\u00e8le.bin"]), (other, ["", "mod\u00e8le.bin"])):
        wait_until(lambda agent=agent, wanted=wanted: sorted(names(agent)) == wanted, "the names of what came")
    late = lab.start("h4")
    fields = ["fetch", "mod\u00e8le.bin", "--from", *at(lab, "h1"), "--socket", str(late.socket), "--app", str(APP)]
    fetched = CliRunner().invoke(rostrum, fields)
    assert fetched.exit_code == 0 and names(late) == ["mod\u00e8le.bin"], fetched.output
    with Client(other.socket, app_id=APP.__class__(int=1)) as stranger:  # as root, who sees all
        assert len(stranger.status().objects) == 2
    receiver.kill()
    again = lab.start("h2", *to_disk(disk, "h2"))
    wait_until(lambda: sorted(names(again)) == ["late.bin", "mod\u00e8le.bin"], "the names of what is on disk")
