"""A manager that runs out of something (descriptors, disk, a reader of its log), and gets it back: all is well again.
Real processes.
"""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.controller.programs import Program, program

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
