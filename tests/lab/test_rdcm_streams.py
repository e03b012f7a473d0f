"""Continuing streams through agents, manager and switches of a lab that loses a hundredth of all data packets."""

from __future__ import annotations

import hashlib
import itertools
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
SILENCE_S = 2.0
_names = itertools.count()


@pytest.fixture(scope="module")
def lab():
    options = ("--loss", "uniform:0.01", "--silence-bound", f"{SILENCE_S:g}s")
    with Lab.start("hybrid-4x2", name="t-streams", seed=1, agent_options=options) as lab:
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
        end = time.monotonic() + 2.5 * SILENCE_S
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


def test_without_a_program_that_reads_a_receiver_fails_in_words(lab: Lab) -> None:
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
