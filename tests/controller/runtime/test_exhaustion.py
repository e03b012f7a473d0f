"""A manager that runs out of something (descriptors, disk, a reader of its log), and gets it back: all is well again.
Real processes.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.controller.programs import BOUND_S, Program, program

DESCRIPTORS = 96


def dial_all(ports: list[int], count: int) -> list[socket.socket]:
    """Connections that say nothing, to each port in turn."""
    made = []
    for number in range(count):
        sock = socket.socket()
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect(("127.0.0.1", ports[number % len(ports)]))
        made.append(sock)
    return made


DOORS: dict[str, tuple[str, Callable[[Program], bool]]] = {
    "agents": ("thrift_port", Program.welcomes),
    "rest": ("rest_port", Program.rest_answers),
    "switches": ("openflow_port", Program.greets_switches),
}


@pytest.mark.parametrize("door", [*DOORS, "all"])
def test_descriptors__run_out_and_come_back_at_each_door(tmp_path: Path, door: str) -> None:
    """Nobody can connect for a while; those who try later can, at every door."""
    with program(tmp_path, limits={resource.RLIMIT_NOFILE: DESCRIPTORS}) as manager:
        ports = [manager.facts[port] for name, (port, _) in DOORS.items() if door in (name, "all")]
        before = manager.descriptors()
        crowd = dial_all(ports, 3 * DESCRIPTORS)
        manager.until(lambda: manager.descriptors() >= DESCRIPTORS - 2, "no descriptors are left")
        for sock in crowd:
            sock.close()
        for _, answers in DOORS.values():
            manager.until(lambda answers=answers: answers(manager), "the door is open again")  # type: ignore[misc]
        manager.until(lambda: manager.descriptors() <= before, "it holds as many descriptors as before")
        assert manager.stop() == 0
        assert "Traceback" not in manager.log


def ask_for_what_is_not_there(folder: Path, count: int) -> None:
    """By keep-alive connections, a hundred requests ahead: some 300 bytes of log each."""
    request = b"DELETE /v1/paths/" + b"p" * 150 + b" HTTP/1.1\r\nHost: manager\r\n\r\n"
    for _ in range(count // 1000):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(BOUND_S)
            sock.connect(str(folder / "manager.sock"))
            for _ in range(10):
                sock.sendall(request * 100)
                answers = b""
                while answers.count(b"HTTP/1.1 404 ") < 100 or not answers.endswith(b"}"):
                    part = sock.recv(1 << 16)
                    assert part, answers[-500:]
                    answers += part


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_log_that_nobody_reads__stops_nothing(tmp_path: Path, kind: str) -> None:
    """As when journald hangs: a write to its socket or pipe waited, and with it everybody."""
    if kind == "pipe":
        ends = os.pipe()
    else:
        pair = socket.socketpair()
        ends = (pair[0].detach(), pair[1].detach())
    with program(tmp_path, stderr=ends[1]) as manager, os.fdopen(ends[0], "rb", buffering=0) as reader:
        os.close(ends[1])
        ask_for_what_is_not_there(tmp_path, 8000)  # a pipe holds 64 KiB
        assert manager.welcomes() and manager.rest_answers()
        os.set_blocking(reader.fileno(), False)
        read = bytearray()

        def told() -> bool:
            while part := reader.read(1 << 16):
                read.extend(part)
            return b"log lines left out: " in read

        manager.until(told, "the log goes on, and says that some of it is missing")
        manager.rest("DELETE", "/v1/paths/the-last-one", by_socket=True)
        manager.until(lambda: told() and b"the-last-one" in read, "what is logged after that is there")
        lines = read.decode().splitlines()
        lost = sum(int(line.split("left out: ")[1].split(";")[0]) for line in lines if "log lines left out: " in line)
        assert sum("rostrum.audit" in line for line in lines) + lost >= 8001
        assert manager.stop() == 0


def test_log__full_of_lines_at_the_end_is_no_reason_to_stay(tmp_path: Path) -> None:
    ends = os.pipe()
    with program(tmp_path, stderr=ends[1]) as manager:
        os.close(ends[1])
        ask_for_what_is_not_there(tmp_path, 1000)
        assert manager.stop() == 0
        os.close(ends[0])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """A file that takes what room there is."""
    file = folder / "filler"
    with file.open("wb", buffering=0) as out, contextlib.suppress(OSError):
        while True:
            out.write(bytes(4096))
    return file


@pytest.mark.lab
@pytest.mark.parametrize("sync", ["normal", "full"])
def test_disk_full_under_the_journal__ends_the_manager_and_loses_nothing(
    tmp_path: Path, small_disk: Path, sync: str
) -> None:
    """What it cannot write it tells nobody; when there is room again, all that it told is there."""
    options = ("--journal", str(small_disk / "manager.journal"), "--journal-sync", sync)
    told: dict[str, str] = {}  # path by key

    def ask(manager: Program, key: str) -> None:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(tmp_path / "manager.sock")), timeout=60) as client:
            body = {"sender": "h1", "receivers": ["h3"], "wait_ms": 600_000}
            answer = client.post("http://manager/v1/paths", json=body, headers={"Idempotency-Key": key})
            if answer.status_code == 201:
                told[key] = answer.json()["id"]

    with program(tmp_path, *options) as manager:
        ask(manager, "first")
        filler = fill(small_disk)
        with contextlib.suppress(httpx.HTTPError):
            for number in range(2000):
                ask(manager, f"key-{number}")
        assert manager.process.wait(BOUND_S) == 1
        assert "takes nothing any more: database or disk is full" in manager.log and "Traceback" not in manager.log
    (tmp_path / "manager.log").unlink()
    with program(tmp_path, *options, wait=False) as manager:  # systemd starts it again and again
        with contextlib.suppress(AssertionError):
            manager.until(lambda: manager.started() or manager.process.poll() is not None, "it starts, or does not")
        assert "Traceback" not in manager.log
        if manager.process.poll() is not None:
            assert str(small_disk) in manager.log and "full" in manager.log
    filler.unlink()
    with program(tmp_path, *options) as manager:
        known = set(told)
        for key in known:
            before = told[key]
            ask(manager, key)
            assert told[key] == before, "an acknowledged path was forgotten"
        assert "first" in known
        ask(manager, "after")
        assert "after" in told
        assert manager.stop() == 0
