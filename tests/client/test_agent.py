"""The Python client against the real application interface."""

from __future__ import annotations

import ctypes
import io
import mmap
import os
import random
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from rostrum.client import (
    Agent,
    AlreadyThere,
    Busy,
    Cancelled,
    Code,
    CreatedFile,
    Event,
    NoRoom,
    NotFound,
    RostrumError,
    TimedOut,
    TransferFailed,
    Unavailable,
    wire,
)
from rostrum.client.objects import flat

from tests.client.conftest import APP, OTHER_APP, QUOTA, Server


def random_bytes(rng: random.Random, size: int) -> bytes:
    return rng.randbytes(size)


def test_register_tells_who_the_agent_is(agent: Agent) -> None:
    assert (agent.server, agent.version, agent.boot_id) == ("h1", "0.1.0-test", 77)


@pytest.mark.parametrize("size", [0, 1, 4096, 3 * (1 << 20) + 17])
def test_what_is_added_is_read_by_every_process_of_the_application(
    server: Server, agent: Agent, rng: random.Random, size: int
) -> None:
    data = random_bytes(rng, size)
    agent.add(1, data)
    with server.agent(process="another") as other, other.read(1) as copy:
        assert copy.size == size
        assert copy.bytes() == data
        assert copy.digest.startswith("xxh3-128-tree:")
        assert copy.file().read() == data


def test_objects_of_another_application_are_out_of_reach(server: Server, agent: Agent) -> None:
    agent.add(1, b"mine")
    with server.agent(OTHER_APP) as other:
        with pytest.raises(NotFound):
            other.read(1, wait=0)
        with pytest.raises(NotFound):
            other.delete(1)
        other.add(1, b"theirs")
    with agent.read(1) as copy:
        assert copy.bytes() == b"mine"


def test_readers_cannot_write(agent: Agent) -> None:
    agent.add(1, b"precious")
    with agent.read(1) as copy:
        with pytest.raises(OSError):
            os.pwrite(copy.fd, b"x", 0)
        with pytest.raises(PermissionError):
            mmap.mmap(copy.fd, copy.size)
        assert copy.mmap()[:] == b"precious"


@pytest.mark.parametrize("kind", ["path", "file", "stream", "memfd", "created", "array"])
def test_add_takes_many_kinds_of_sources(agent: Agent, tmp_path: Path, rng: random.Random, kind: str) -> None:
    data = random_bytes(rng, 100_001)
    path = tmp_path / "source"
    path.write_bytes(data)
    if kind == "path":
        agent.add("a name", path)
    elif kind == "file":
        with path.open("rb") as file:
            file.seek(1)
            agent.add("a name", file)
        data = data[1:]
    elif kind == "stream":
        agent.add("a name", io.BytesIO(data))
    elif kind == "memfd":
        fd = os.memfd_create("test")
        os.write(fd, data)
        agent.add("a name", fd)
        os.close(fd)
    elif kind == "created":
        with agent.create(len(data)) as created:
            created.mmap()[:] = data
            agent.add("a name", created)
    else:
        agent.add("a name", memoryview(bytearray(data)))
    with agent.read("a name") as copy:
        copy.copy_to(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == data


def test_add_refuses_files_that_are_not_in_memory_with_advice(agent: Agent, tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    with pytest.raises(RostrumError, match="create") as caught:
        agent.add(1, read_end)
    assert caught.value.code == Code.INVALID
    os.close(read_end)
    os.close(write_end)


def test_add_of_the_same_id_twice(agent: Agent) -> None:
    agent.add(1, b"a")
    with pytest.raises(AlreadyThere, match="object 1"):
        agent.add(1, b"b")
    with agent.read(1) as copy:
        assert copy.bytes() == b"a"


def test_quota_counts_created_files_until_they_are_dropped(agent: Agent) -> None:
    with agent.create(QUOTA - (1 << 20)) as created:
        with pytest.raises(NoRoom, match="quota"):
            agent.create(2 << 20)
        assert agent.status().store_used == created.size
    assert agent.status().store_used == 0
    agent.add(1, bytes(QUOTA))
    agent.delete(1)
    agent.add(1, bytes(QUOTA))


@pytest.mark.parametrize("size", [QUOTA + 1, 2**40, 2**62, 2**63 - 1])
def test_absurd_sizes(agent: Agent, size: int) -> None:
    with pytest.raises(RostrumError) as caught:
        agent.create(size)
    assert caught.value.code in (Code.NO_ROOM, Code.INVALID)
    assert agent.status().store_used == 0


def test_send_tells_events_and_the_result(agent: Agent) -> None:
    agent.add(1, bytes(100_000))
    handle = agent.send(1, ["h3", "h4"], wait=1.5, deadline=2)
    events = list(handle.events(timeout=60))
    result = handle.wait(60)
    phases = [event.subject for event in events if event.kind == "phase"]
    assert phases == ["requested", "accepted", "done"]
    assert all(event.data_id == 1 and event.time_ns > 0 and event.sending for event in events)
    progress = [event.bytes for event in events if event.kind == "progress"]
    assert progress and progress == sorted(progress)
    assert result.ok and result.raise_for_failure() is result
    assert [(one.name, one.state, one.digest_ok, one.patched_fragments) for one in result.receivers] == [
        ("h3", "done", True, 3),
        ("h4", "done", True, 3),
    ]
    assert (result.path, result.sessions, result.size) == ("circuit", 1, 100_000)
    assert result.response_id == "wait 1500 deadline 2000"
    assert result.requested_ns < result.accepted_ns < result.done_ns


@pytest.mark.parametrize("kind", ["bytes", "path", "created", "descriptor"])
def test_a_file_is_sent_while_its_digest_is_taken(agent: Agent, tmp_path: Path, rng: random.Random, kind: str) -> None:
    data = random_bytes(rng, 30_000_000)
    source: bytes | Path | CreatedFile | int = data
    if kind == "path":
        source = tmp_path / "file"
        source.write_bytes(data)
    elif kind == "created":
        source = agent.create(len(data))
        source.write(data)
    elif kind == "descriptor":
        source = os.memfd_create("source")
        os.write(source, data)
    handle = agent.send(1, ["h3"], source=source)
    phases = [event.subject for event in handle.events(timeout=60) if event.kind == "phase"]
    assert phases[0] == "requested" and phases[-1] == "done" and "digest" in phases
    assert handle.wait(60).ok
    with agent.read(1) as copy:
        assert copy.bytes() == data
    with pytest.raises(AlreadyThere):
        agent.add(1, b"")
    agent.delete(1)
    assert agent.status().store_used == 0


def test_a_file_that_cannot_be_sent_leaves_nothing(agent: Agent) -> None:
    with pytest.raises(Unavailable, match="manager"):
        agent.send(1, ["refuse"], source=b"x").wait(60)
    with pytest.raises(NotFound):
        agent.delete(1)
    agent.add(1, b"kept")
    with pytest.raises(AlreadyThere):
        agent.send(1, ["h3"], source=b"other").wait(60)
    with agent.read(1) as copy:
        assert copy.bytes() == b"kept"
    with pytest.raises(Unavailable):
        agent.send(2, ["refuse"], source=agent.create(1 << 20)).wait(60)
    agent.delete(1)
    assert agent.status().store_used == 0


def test_a_file_whose_send_is_over_can_be_deleted_before_its_digest_is_taken(agent: Agent) -> None:
    created = agent.create(30_000_000)
    body, ask = wire.send_body(1, ["slow"], 0, 0, 0), agent._connection.start
    calls = [
        ask(wire.SEND, body, "send", created.fd),
        ask(wire.CANCEL, struct.pack("<Q", 1), "cancel"),
        ask(wire.DELETE, struct.pack("<Q", 1), "delete"),
    ]
    assert [call.result(20).type for _, call in calls] == [wire.SENT, wire.DONE, wire.DONE]
    os.close(created.fd)
    assert agent.status().store_used == 0


def test_what_is_being_added_may_be_sent(agent: Agent) -> None:
    created = agent.create(30_000_000)
    _, adding = agent._connection.start(wire.ADD, struct.pack("<Q", 1), "add", created.fd)
    handle = agent.send(1, ["h3"])
    phases = [event.subject for event in handle.events(timeout=60) if event.kind == "phase"]
    assert "digest" in phases and handle.wait(60).ok
    assert adding.result(20).value[0] == created.size
    os.close(created.fd)


def test_send_to_ten_thousand_receivers(agent: Agent) -> None:
    agent.add(1, b"x")
    names = [f"h{number}.rack{number // 40:03}" for number in range(10_000)]
    result = agent.send(1, names).wait(60)
    assert [one.name for one in result.receivers] == names


def test_a_failed_receiver_is_named(agent: Agent) -> None:
    agent.add(1, b"x")
    seen: list[str] = []
    result = agent.send(1, ["h3", "bad1"], on_event=lambda event: seen.append(event.subject)).wait(60)
    assert not result.ok
    assert {one.name: one.state for one in result.receivers} == {"h3": "done", "bad1": "failed"}
    with pytest.raises(TransferFailed, match="bad1: no light at tor3 port 5") as caught:
        result.raise_for_failure()
    assert caught.value.result is result
    assert "accepted" in seen


def test_an_exception_of_on_event_ends_nothing_but_itself(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    caught: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: caught.append(args.exc_value))
    agent.add(1, b"x")
    seen: list[str] = []

    def fails(event: Event) -> None:
        seen.append(event.subject)
        raise ZeroDivisionError(event.subject)

    assert agent.send(1, ["h3"], on_event=fails).wait(60).ok
    assert len(seen) > 1 and [str(error) for error in caught] == seen
    assert agent.status().server == "h1"  # later calls are answered
    assert agent.send(1, ["h3"]).wait(60).ok


def test_on_event_may_call_the_agent(agent: Agent) -> None:
    agent.add(1, b"x")
    seen: list[str] = []
    handle = agent.send(1, ["h3"], on_event=lambda _: seen.append(agent.status().server))
    assert handle.wait(60).ok
    assert set(seen) == {"h1"}


def test_an_agent_that_was_closed_here__did_not_go_away(server: Server) -> None:
    with server.agent() as agent:
        pass
    with pytest.raises(Unavailable, match=r"the connection to the agent at .* was closed"):
        agent.status()


def test_addresses_of_python_objects_are_no_content(agent: Agent) -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(RostrumError, match="an array of Python objects has their addresses"):
        agent.send("objects", ["h3"], source=numpy.array([object(), 1]))


def test_names_of_fields_are_no_objects() -> None:
    class Order(ctypes.Structure):
        _fields_ = (("Offset", ctypes.c_int32), ("O", ctypes.c_double))

    assert flat(Order(7, 0.5)).nbytes == ctypes.sizeof(Order)


def test_a_slow_on_event_holds_back_its_own_call_alone(agent: Agent) -> None:
    agent.add(1, b"x")
    go_on, began = threading.Event(), threading.Event()

    def waits(_: Event) -> None:
        began.set()
        assert go_on.wait(60)

    handle = agent.send(1, ["h3"], on_event=waits)
    assert began.wait(60)
    assert agent.status().server == "h1"
    agent.add(2, b"y")
    assert agent.send(2, ["h3"]).wait(60).ok
    assert not handle.done
    go_on.set()
    assert handle.wait(60).ok


def test_sends_that_cannot_start(agent: Agent) -> None:
    with pytest.raises(NotFound, match="add it first"):
        agent.send(1, ["h3"]).wait(60)
    agent.add(1, b"x")
    with pytest.raises(Unavailable, match="manager"):
        agent.send(1, ["refuse"]).wait(60)
    for receivers in ([], ["h3", "h3"], ["h\x00"], ["h\n"], [f"h{number}" for number in range(16385)]):
        with pytest.raises(RostrumError) as caught:
            agent.send(1, receivers).wait(60)
        assert caught.value.code == Code.INVALID
    for names in ([""], ["x" * 256]):
        with pytest.raises(RostrumError, match="name"):
            agent.send(1, names)
    assert agent.send(1, ["h3"]).wait(60).ok


def test_delete_is_refused_while_a_transfer_runs_and_cancel_ends_it(agent: Agent) -> None:
    agent.add(1, b"x")
    handle = agent.send(1, ["slow"])
    with pytest.raises(TimedOut):
        handle.wait(0.01)
    with pytest.raises(Busy, match="being sent"):
        agent.delete(1)
    assert [row.data_id for row in agent.status().transfers] == [1]
    handle.cancel()
    result = handle.wait(60)
    assert not result.ok and "cancelled" in result.cause
    agent.delete(1)
    with pytest.raises(NotFound):
        agent.cancel(1)


def test_delete_spares_readers(agent: Agent, server: Server) -> None:
    agent.add(1, b"still here")
    with agent.read(1) as copy:
        agent.delete(1)
        assert copy.bytes() == b"still here"
    with pytest.raises(NotFound):
        agent.delete(1)
    assert agent.status().objects == ()


def test_what_an_ephemeral_application_leaves_goes_with_its_last_process(server: Server) -> None:
    def there() -> set[tuple[UUID, int]]:
        return {(row.app, row.data_id) for row in watcher.status().objects}

    def until_there(wanted: set[tuple[UUID, int]]) -> None:
        end = time.monotonic() + 60
        while there() != wanted:
            assert time.monotonic() < end, (there(), wanted)
            time.sleep(0.02)

    with server.agent(process="watcher") as watcher:  # one that did not ask
        first, second, another = server.agent(), server.agent(), server.agent(OTHER_APP)
        first.ephemeral()
        second.ephemeral()
        first.add(1, b"sent")
        first.add(2, b"x")
        another.add(1, b"of another application, which did not ask")
        second.send(1, ["slow"])
        first.close()
        until_there({(APP, 1), (APP, 2), (OTHER_APP, 1)})
        another.close()
        second.close()
        until_there({(APP, 1), (OTHER_APP, 1)})  # it is being sent
        watcher.add(3, b"what comes later")
        until_there({(APP, 1), (OTHER_APP, 1)})
        watcher.cancel(1)
        until_there({(OTHER_APP, 1)})

        third, other = server.agent(), server.agent(OTHER_APP)  # the application runs again
        third.ephemeral()
        other.ephemeral()
        third.add(4, b"of one that lives")
        other.close()
        until_there({(APP, 4)})
        third.close()
        until_there(set())


def test_reads_wait_until_the_object_is_whole(server: Server, agent: Agent) -> None:
    agent.add(1, b"to be copied")
    found: list[bytes] = []

    def read_it(connected: Agent) -> None:
        with connected.read(9, wait=30) as copy:
            found.append(copy.bytes())

    with server.agent(process="other") as other:
        readers = [threading.Thread(target=read_it, args=[who]) for who in (agent, other, other)]
        for thread in readers:
            thread.start()
        agent.send(1, ["copy-9"]).wait(60)
        for thread in readers:
            thread.join(60)
    assert found == [b"to be copied"] * 3


def test_reads_have_a_bound_and_say_what_they_waited_for(agent: Agent) -> None:
    with pytest.raises(TimedOut, match="object 5 is not whole on h1 after 20 ms: nobody has sent it here"):
        agent.read(5, wait=0.02)
    with pytest.raises(NotFound):
        agent.read(5, wait=None)


def test_subscribers_hear_of_sends_of_others(server: Server, agent: Agent) -> None:
    with server.agent(process="watcher") as watcher, watcher.subscribe(1) as news:
        agent.add(1, b"x")
        agent.send(1, ["h3"]).wait(60)
        subjects = []
        while "done" not in subjects:
            event = news.next(20)
            subjects += [event.subject] if event.kind == "phase" else []
        assert subjects == ["requested", "accepted", "done"]


def test_status(agent: Agent, server: Server) -> None:
    agent.add(3, b"x" * 10)
    agent.send(3, ["copy-4"]).wait(60)
    now = agent.status()
    assert (now.server, now.manager_up, now.manager) == ("h1", True, "10.255.0.1:9090, up")
    assert (now.store, now.store_quota, now.packets_bad, now.clients) == (str(server.store), QUOTA, 2, 1)
    rows = {row.data_id: (row.complete, row.received, row.size, row.holds) for row in now.objects}
    assert rows == {3: (True, False, 10, 0), 4: (True, True, 10, 0)}
    assert len({row.digest for row in now.objects}) == 1 and now.as_dict()["objects"][0]["app"] == str(agent.app_id)


def test_many_requests_at_once_from_two_clients(server: Server) -> None:
    errors: list[BaseException] = []

    def work(number: int, connected: Agent) -> None:
        try:
            data = bytes([number]) * (number * 1000)
            connected.add(number, data)
            assert connected.send(number, ["h3", f"copy-{number + 1000}"]).wait(60).ok
            with connected.read(number + 1000, wait=60) as copy:
                assert copy.bytes() == data
            connected.delete(number)
        except BaseException as error:
            errors.append(error)

    with server.agent() as one, server.agent(OTHER_APP) as two:
        threads = [threading.Thread(target=work, args=(i, one if i % 2 else two)) for i in range(1, 41)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
    assert not errors


def test_the_agent_goes_away(start: Callable[..., Server]) -> None:
    server = start()
    agent = server.agent()
    agent.add(1, b"x")
    handle = agent.send(1, ["slow"])
    server.kill()
    with pytest.raises(Unavailable, match=r"went away|reset"):
        handle.wait(60)
    with pytest.raises(Unavailable):
        agent.status()
    agent.close()
    with pytest.raises(Unavailable, match=r"is rostrumd running"):
        server.agent()
    # A new agent takes over the socket and the store that the dead one left, and clears its objects.
    again = start(folder=server.socket.parent)
    with again.agent() as fresh:
        assert fresh.status().objects == ()
        fresh.add(1, b"y")


def test_two_agents_do_not_share_a_store_or_a_socket(start: Callable[..., Server]) -> None:
    server = start()
    with pytest.raises(AssertionError, match="used by another running agent"):
        start(folder=server.socket.parent)
    with server.agent() as agent:
        assert agent.server == "h1"


def test_unregister_ends_waiting_reads(server: Server) -> None:
    from rostrum.client import wire  # no public call: closing does it

    with server.agent() as agent:
        connection = agent._connection
        _, call = connection.start(wire.READ, (5).to_bytes(8, "little") + (60_000).to_bytes(4, "little"), "read")
        connection.ask(wire.UNREGISTER, b"", "unregister", 20)
        with pytest.raises(Cancelled):
            call.result(20)
        with pytest.raises(RostrumError, match="register"):
            agent.delete(1)
