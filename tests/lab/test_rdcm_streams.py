"""Continuing streams through agents, manager and switches of a lab that loses a hundredth of all data packets."""

from __future__ import annotations

import hashlib
import itertools
import json
import signal
import subprocess
import sys
import threading
import time

import pytest
from rostrum.client import Agent, RostrumError, SendResult
from rostrum.lab.lab import Lab

from tests.lab.objects import data_of, until

pytestmark = pytest.mark.lab

RECEIVERS = ["h3", "h4", "h5", "h7"]
BOUND_S = 60.0
SILENCE_S = 5.0  # the default of rostrumd: these labs give it no bound of their own
STREAM = [sys.executable, "-c", "from rostrum.client.stream_commands import stream; stream(prog_name='rostrum stream')"]
_names = itertools.count()


@pytest.fixture(scope="module")
def lab():
    with Lab.start("hybrid-4x2", name="t-streams", seed=1, agent_options=("--loss", "uniform:0.01")) as lab:
        yield lab


class Reader:
    """Reads a stream on a server, as fast as it comes; what came of it."""

    def __init__(self, lab: Lab, server: str, name: str) -> None:
        self.hash, self.bytes, self.error = hashlib.sha256(), 0, ""
        self._thread = threading.Thread(target=self._run, args=(lab, server, name), daemon=True)
        self._thread.start()

    def _run(self, lab: Lab, server: str, name: str) -> None:
        try:
            with Agent(lab.agent_socket(server)) as agent, agent.stream_receive(name, wait=BOUND_S) as stream:
                for piece in stream:
                    self.hash.update(piece)
                    self.bytes += len(piece)
        except RostrumError as error:
            self.error = str(error)

    def end(self) -> Reader:
        self._thread.join(BOUND_S)
        assert not self._thread.is_alive()
        return self

    def has(self, data: bytes) -> bool:
        return not self.error and self.bytes == len(data) and self.hash.digest() == hashlib.sha256(data).digest()


def begin(lab: Lab, servers: list[str]) -> tuple[str, dict[str, Reader]]:
    name = f"stream-{next(_names)}"
    return name, {server: Reader(lab, server, name) for server in servers}


def restart(lab: Lab, server: str) -> None:
    def is_back() -> bool:
        try:
            with Agent(lab.agent_socket(server)) as agent:
                return agent.status().manager_up
        except RostrumError:
            return False

    lab.start_program(server)
    until(is_back, f"the agent of {server}")


def failed(result: SendResult) -> dict[str, str]:
    return {row.name: row.cause for row in result.receivers if row.state == "failed"}


def test_many_windows_come_to_all_and_keep_no_more_than_a_window(lab: Lab, seed: int) -> None:
    data = data_of(60_000_000, seed)
    name, readers = begin(lab, RECEIVERS)
    with Agent(lab.agent_socket("h1")) as agent, agent.stream_send(name, RECEIVERS) as out:
        out.write(data[:20_000_000])
        row = next(row for row in agent.status().transfers if row.phase == "streaming")
        assert row.protocol == "rdcm" and row.bytes >= 10_000_000
        out.write(data[20_000_000:])
        result = out.finish(BOUND_S)
    assert result.ok and result.size == len(data) and (result.path, result.protocol) == ("packet", "rdcm")
    assert all(reader.end().has(data) for reader in readers.values())


def test_what_is_written_comes_at_once_and_pauses_are_nothing(lab: Lab) -> None:
    name = f"stream-{next(_names)}"
    with (
        Agent(lab.agent_socket("h1")) as agent,
        Agent(lab.agent_socket("h5")) as other,
        other.stream_receive(name, wait=BOUND_S) as stream,
        agent.stream_send(name, ["h5"]) as out,
    ):
        out.write(b"first\n")
        assert stream.read() == b"first\n"
        end = time.monotonic() + 1.5 * SILENCE_S
        while time.monotonic() < end:  # neither side takes the other for dead
            assert [row.phase for one in (agent, other) for row in one.status().transfers] == ["streaming"] * 2
            time.sleep(0.1)
        out.write(b"second\n")
        assert stream.read() == b"second\n"
        done: list[SendResult] = []
        finisher = threading.Thread(target=lambda: done.append(out.finish(BOUND_S)), daemon=True)
        finisher.start()
        assert stream.read() == b""
        finisher.join(BOUND_S)
    assert done[0].ok


def test_a_reader_that_comes_two_seconds_late_gets_all(lab: Lab) -> None:
    """`(echo a; sleep 2) | rostrum stream send s --to h3`, and its reader after that."""
    name = f"stream-{next(_names)}"
    run = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    where = ["--socket", str(lab.agent_socket("h1"))]
    with subprocess.Popen([*STREAM, "send", name, "--to", "h3", "--json", *where], **run) as writer:
        assert writer.stdin and writer.stdout and writer.stderr
        writer.stdin.write("a\n")
        writer.stdin.flush()
        with Agent(lab.agent_socket("h3")) as other:
            until(lambda: other.status().transfers, "a stream at h3")
            end = time.monotonic() + 2.0
            while time.monotonic() < end:  # nobody reads, and nothing fails
                assert [row.phase for row in other.status().transfers] == ["streaming"]
                time.sleep(0.1)
        where = ["--socket", str(lab.agent_socket("h3"))]
        with subprocess.Popen([*STREAM, "receive", name, *where], **run) as reader:
            assert reader.stdout and reader.stderr
            assert reader.stdout.readline() == "a\n"
            writer.stdin.write("b\n")
            writer.stdin.close()
            assert reader.stdout.read() == "b\n"
            assert reader.wait(BOUND_S) == 0, reader.stderr.read()
        value = json.loads(writer.stdout.read())
        assert writer.wait(BOUND_S) == 0, writer.stderr.read()
    assert value["ok"] and [row["had_it"] for row in value["receivers"]] == [False] and value["goodput_bps"] > 0


def test_a_slow_reader_within_the_bound_gets_all(lab: Lab, seed: int) -> None:
    """It takes some, nothing for seconds, and some again; the quick one waits for it, and nobody fails."""
    data = data_of(24_000_000, seed)
    name, readers = begin(lab, ["h3"])
    got = bytearray()
    done: list[SendResult] = []
    with (
        Agent(lab.agent_socket("h1")) as agent,
        Agent(lab.agent_socket("h5")) as slow,
        slow.stream_receive(name, wait=BOUND_S) as stream,
        agent.stream_send(name, ["h3", "h5"]) as out,
    ):

        def write() -> None:
            out.write(data)
            done.append(out.finish(BOUND_S))

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        for part, pause in ((1, 0.3), (2, 1.6)):  # the bound is twice the silence bound
            while len(got) < part * 6_000_000:
                got += stream.read()
            end = time.monotonic() + pause * SILENCE_S
            while time.monotonic() < end:
                assert [row.phase for row in slow.status().transfers] == ["streaming"]
                time.sleep(0.1)
        for piece in stream:
            got += piece
        writer.join(BOUND_S)
    assert done and done[0].ok, done
    assert got == data and readers["h3"].end().has(data)


def test_its_path_is_taken_back_and_all_get_all(lab: Lab, seed: int) -> None:
    """It goes on to each receiver by its control channel."""
    data = data_of(30_000_000, seed)
    name, readers = begin(lab, RECEIVERS)
    with Agent(lab.agent_socket("h1")) as agent, agent.stream_send(name, RECEIVERS) as out:
        out.write(data[:10_000_000])
        (path,) = lab.rest.get("/v1/paths?state=active")["paths"]
        status, _ = lab.rest.call("DELETE", f"/v1/paths/{path['id']}")
        assert status == 200
        out.write(data[10_000_000:])
        result = out.finish(BOUND_S)
    assert result.ok and result.size == len(data), failed(result)
    assert all(reader.end().has(data) for reader in readers.values())
    assert not lab.rest.get("/v1/paths?state=active")["paths"]


@pytest.mark.parametrize(("server", "size", "seconds"), [
    ("h1", 20_000_000, 4.0), ("h1", 20_000_000, 10.0), ("h5", 60_000_000, 0.7 * SILENCE_S),
])  # fmt: skip
def test_an_agent_is_stopped_and_all_get_all(lab: Lab, seed: int, server: str, size: int, seconds: float) -> None:
    """The sender's: readers and writer wait. A receiver's, within its bound, while more is written than what the
    stream's windows hold: the others wait for it, and it lacks nothing.
    """
    data = data_of(size, seed)
    name, readers = begin(lab, RECEIVERS)
    with Agent(lab.agent_socket("h1")) as agent, agent.stream_send(name, RECEIVERS) as out:
        out.write(data[:5_000_000])
        lab.signal(server, signal.SIGSTOP)
        timer = threading.Timer(seconds, lab.signal, (server, signal.SIGCONT))
        timer.start()
        try:
            out.write(data[5_000_000:])
            result = out.finish(BOUND_S)
        finally:
            timer.join()
    assert result.ok and result.size == len(data), failed(result)
    assert all(reader.end().has(data) for reader in readers.values())


def test_a_killed_receiver_does_not_stop_the_others(lab: Lab, seed: int) -> None:
    data = data_of(30_000_000, seed)
    name, readers = begin(lab, RECEIVERS)
    with Agent(lab.agent_socket("h1")) as agent, agent.stream_send(name, RECEIVERS) as out:
        out.write(data[:5_000_000])
        until(lambda: readers["h4"].bytes > 1_000_000, "bytes at h4")
        lab.kill("h4")
        out.write(data[5_000_000:])
        result = out.finish(BOUND_S)
    restart(lab, "h4")
    assert list(failed(result)) == ["h4"], failed(result)
    assert all(readers[server].end().has(data) for server in RECEIVERS if server != "h4")
    assert "went away" in readers["h4"].end().error


def test_a_program_that_does_not_read_fails_and_the_others_go_on(lab: Lab, seed: int) -> None:
    data = data_of(40_000_000, seed)
    quick = [server for server in RECEIVERS if server != "h7"]
    name, readers = begin(lab, quick)
    with (
        Agent(lab.agent_socket("h1")) as agent,
        Agent(lab.agent_socket("h7")) as slow,
        slow.stream_receive(name, wait=BOUND_S) as stream,
        agent.stream_send(name, RECEIVERS) as out,
    ):
        out.write(data)  # more than windows and sockets hold: it waits until h7 has failed
        result = out.finish(BOUND_S)
        assert list(failed(result)) == ["h7"], failed(result)
        assert "took nothing" in failed(result)["h7"]
        with pytest.raises(RostrumError, match="took nothing"):
            for _ in stream:
                pass
    assert all(reader.end().has(data) for reader in readers.values())


def test_the_end_of_the_writing_program_is_no_end_of_the_stream(lab: Lab) -> None:
    name, readers = begin(lab, RECEIVERS)
    script = (
        "import sys, time; from rostrum.client import Agent; a = Agent(sys.argv[1]);"
        " out = a.stream_send(sys.argv[2], sys.argv[3:]); out.write(bytes(1 << 20)); time.sleep(600)"
    )
    command = [sys.executable, "-c", script, str(lab.agent_socket("h1")), name, *RECEIVERS]
    with subprocess.Popen(command) as program:
        until(lambda: all(reader.bytes > 0 for reader in readers.values()), "bytes at all receivers")
        program.kill()
    for reader in readers.values():
        assert "program that wrote the stream went away" in reader.end().error


def test_a_writer_and_a_reader_that_start_again_at_once_have_a_stream_again(lab: Lab) -> None:
    name, readers = begin(lab, ["h3"])
    with Agent(lab.agent_socket("h1")) as agent, agent.stream_send(name, ["h3"]) as out:
        out.write(bytes(1 << 20))
        until(lambda: readers["h3"].bytes > 0, "bytes at h3")
    assert "program that wrote the stream went away" in readers["h3"].end().error  # before, its place is taken
    with Agent(lab.agent_socket("h1")) as agent, agent.stream_send(name, ["h3"]) as out:  # under the same name
        again = Reader(lab, "h3", name)
        out.write(b"again")
        assert out.finish(BOUND_S).ok
    assert again.end().has(b"again")


def test_without_a_program_that_reads_a_receiver_fails_with_a_reason(lab: Lab) -> None:
    name, readers = begin(lab, ["h3"])
    with Agent(lab.agent_socket("h1")) as agent, agent.stream_send(name, ["h3", "h5"]) as out:
        out.write(b"x")
        result = out.finish(BOUND_S)
    assert "no program read the stream" in failed(result)["h5"] and list(failed(result)) == ["h5"]
    assert readers["h3"].end().has(b"x")
    with (
        Agent(lab.agent_socket("h3")) as agent,
        agent.stream_receive("never", wait=0) as stream,
        pytest.raises(RostrumError, match="not coming in here"),
    ):
        stream.read()


def test_the_sender_dies_and_programs_hear_it(lab: Lab) -> None:
    name, readers = begin(lab, RECEIVERS)
    with Agent(lab.agent_socket("h1")) as agent, agent.stream_send(name, RECEIVERS) as out:
        out.write(bytes(1 << 20))
        until(lambda: all(reader.bytes > 0 for reader in readers.values()), "bytes at all receivers")
        lab.kill("h1")
        with pytest.raises(RostrumError):
            out.finish(BOUND_S)
    for reader in readers.values():
        assert "ended after" in reader.end().error
    restart(lab, "h1")
