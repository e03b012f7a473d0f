"""The agent's link (C) and a manager in Python (thriftpy2) understand each other, over loopback."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent_e2e.fake_manager import Answer, Call, FakeManager, on_loop, running

ROOT = Path(__file__).resolve().parents[2]
PROBE = ROOT / "build" / "agent" / "tests" / "agent" / "link_probe"
SERVERS = {"h1": ("10.0.0.1", 7071), "h3": ("10.0.2.1", 7071), "h5": ("10.0.3.1", 7072)}


class Probe:
    """link_probe and the lines it wrote."""

    def __init__(self, port: int) -> None:
        self.process = subprocess.Popen(
            [PROBE, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def expect(self, start: str, timeout_s: float = 60.0) -> str:
        """The first line (from now on not seen again) that begins so."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: next((line for line in self.lines if line.startswith(start)), None), timeout_s
            )
            assert found, f"no line {start!r} in {timeout_s} s, but {self.lines}"
            self.lines.remove(found)
            return found

    def close(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        status = self.process.wait(60)
        self._reader.join(10)
        return status


@pytest.fixture
def manager() -> Iterator[FakeManager]:
    with running(FakeManager(SERVERS)) as started:
        yield started


@pytest.fixture
def probe(manager: FakeManager) -> Iterator[Probe]:
    if not PROBE.exists():
        pytest.fail(f"{PROBE.relative_to(ROOT)} is not built: run make build")
    started = Probe(manager.listen[1])
    started.expect("up connected to manager")
    yield started
    assert started.close() == 0


def named(name: str, number: int = 1) -> tuple[Callable[[list[Call]], bool], str]:
    def enough(calls: list[Call]) -> bool:
        return sum(call.name == name for call in calls) >= number

    return enough, f"{name} (number {number})"


def test_hello_and_every_call_arrive_as_they_were_meant(manager: FakeManager, probe: Probe) -> None:
    [hello] = manager.heard("hello", "h1")
    info = {"version": 1, "server": "h1", "boot_id": 1, "control_port": 7071, "live_paths": [], "wants_light": None}
    info |= {"knows_probes": True, "token": None}
    assert {key: hello.args["info"][key] for key in info} == info
    probe.say("request r1 h3 h5")
    manager.wait_for(*named("request"))
    [request] = manager.heard("request")
    meant = {
        "request_id": "r1",
        "app_id": b"\xab" + bytes(15),
        "data_id": -1,  # 2^64 - 1: Thrift has no unsigned type
        "data_size": 1_000_000,
        "remaining_size": 600_000,
        "sender": "h1",
        "receivers": ["h3", "h5"],
        "wait_ms": None,
        "deadline_ms": None,
    }
    assert {key: request.args["request"][key] for key in meant} == meant
    probe.say("no_light path-1 h5")
    probe.say("report r1 path-1 attempt")
    probe.say("release r1 path-1")
    probe.say("cancel r2")
    for name in ("no_light", "report", "release", "cancel"):
        manager.wait_for(*named(name))
    assert manager.heard("no_light")[0].args == {"response_id": "path-1", "receivers": ["h5"]}
    report = manager.heard("report")[0].args["report"]
    assert (report["phase"], report["cause"]) == ("attempt", "étoile")
    assert report["receivers"][0]["first_light_ns"] == 1_700_000_000_000_000_000
    assert not manager.paths


def test_answers_arrive_as_they_were_meant(manager: FakeManager, probe: Probe) -> None:
    answers = {
        "whole": Answer(),
        "part": Answer(accept_bytes=1000, kind="packet", reason="no splitter free: packet path"),
        "queued": Answer(queued=["waiting for tor1's uplink"], deny="no splitter free in 250 ms"),
        "moved": Answer(moved_after_s=0.01, failed_after_s=0.01),
    }
    manager.answer = lambda request: answers[request["request_id"]]
    probe.say("request whole h3")
    assert probe.expect("response whole") == "response whole path-1 accepted 600000 239.192.1.1 7070 "
    probe.say("request part h3 h5")
    assert probe.expect("response part").startswith("response part path-2 accepted 1000 239.192.1.2 7070 no splitter")
    probe.say("request queued h3")
    assert probe.expect("response queued - queued").endswith("waiting for tor1's uplink")
    assert probe.expect("response queued - denied").endswith("no splitter free in 250 ms")
    probe.say("request moved h3")
    assert probe.expect("moved path-3") == "moved path-3 packet cross-connect in FAULT"
    assert probe.expect("failed path-3") == "failed path-3 the path is gone"


def test_unknown_receivers_are_denied_by_name(manager: FakeManager, probe: Probe) -> None:
    probe.say("request r1 h3 h9")
    assert probe.expect("response r1 - denied").endswith("unknown receivers: h9")


def test_a_manager_that_restarts_gets_the_open_request_again(manager: FakeManager, probe: Probe) -> None:
    manager.answer = lambda request: Answer(silent=True)
    probe.say("request r1 h3")
    manager.wait_for(*named("request"))
    on_loop(manager, manager.stop)
    assert "closed the connection" in probe.expect("down manager")
    probe.say("request r2 h3")
    probe.say("release r0 path-0")
    manager.answer = lambda request: Answer()
    on_loop(manager, manager.start)
    probe.expect("up")
    assert probe.expect("response r1").startswith("response r1 path-1 accepted")
    probe.expect("response r2 path-2 accepted")
    manager.wait_for(*named("release"))
    assert [call.args["request"]["request_id"] for call in manager.heard("request")] == ["r1", "r1", "r2"]


def test_goodbye_and_garbage_end_in_a_reconnect(manager: FakeManager, probe: Probe) -> None:
    on_loop(manager, lambda: manager.say_raw(b"\x00\x00\x00\x05HTTP/"))
    assert "malformed call" in probe.expect("down")
    probe.expect("up")
    on_loop(manager, lambda: manager.goodbye("h1", "version 2 wanted"))
    assert probe.expect("goodbye") == "goodbye version 2 wanted"
    assert "refused this agent" in probe.expect("down")
    probe.expect("up")
    manager.wait_for(*named("hello", 3))
