"""Plain UDP over a lab's network, by programs that know nothing of rostrum (`datagrams.py`)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rostrum.lab.lab import Lab

PROGRAM = str(Path(__file__).with_name("datagrams.py"))
PORT = 7070


def send_argv(lab: Lab, sender: str, target: str, count: int, size: int, interval_s: float) -> list[str]:
    """The command line of a sender; to be run on its server."""
    nic = str(lab.topology.servers[sender].address)
    return [sys.executable, PROGRAM, "send", target, str(PORT), str(count), str(size), str(interval_s), nic]


def deliver(
    lab: Lab,
    sender: str,
    receivers: list[str],
    target: str,
    *,
    count: int,
    size: int = 8944,
    interval_s: float = 0.0005,
) -> dict[str, dict[str, Any]]:
    """Sends numbered datagrams from one server to listening ones; what each got, as datagrams.py says it."""
    programs = {}
    for name in receivers:
        nic = str(lab.topology.servers[name].address)
        argv = [sys.executable, PROGRAM, "receive", target, str(PORT), str(count), "2", nic]
        programs[name] = lab.popen(name, argv, stdout=subprocess.PIPE, text=True)
        assert programs[name].stdout.readline() == "listening\n"
    lab.execute(sender, send_argv(lab, sender, target, count, size, interval_s))
    got = {name: json.loads(program.stdout.readline()) for name, program in programs.items()}
    for program in programs.values():
        assert program.wait(10) == 0
        program.stdout.close()
    return got
