"""Plain UDP over a lab's network, by programs that know nothing of rostrum (`datagrams.py`)."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rostrum.lab.lab import Lab
from rostrum.lab.namespace import Entered
from rostrum.lab.network import WIRE_OVERHEAD_BYTES

PROGRAM = str(Path(__file__).with_name("datagrams.py"))
PORT = 7070
OTHER_PORT = 7777  # for traffic that is not what a test counts
SIZE = 8944
QUIET_S = 1.0  # after the last was sent, nothing more comes


def send_argv(
    lab: Lab,
    sender: str,
    target: str,
    count: int,
    interval_s: float,
    *,
    size: int = SIZE,
    port: int = PORT,
    dscp: int = 0,
) -> list[str]:
    """The command line of a sender; to be run on its server."""
    nic = str(lab.topology.servers[sender].address)
    return [sys.executable, PROGRAM, "send", target, str(port), str(count), str(size), str(interval_s), nic, str(dscp)]


def listen(lab: Lab, name: str, target: str, count: int, port: int = PORT) -> Entered:
    """A receiver on a server that listens already; `heard` tells what came."""
    nic = str(lab.topology.servers[name].address)
    argv = [sys.executable, PROGRAM, "receive", target, str(port), str(count), str(QUIET_S), nic]
    program = lab.popen(name, argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert program.stdout.readline() == "listening\n"
    return program


def heard(program: Entered) -> dict[str, Any]:
    """All has been sent: waits for a receiver's end, as datagrams.py defines it; what it got."""
    with program:
        program.stdin.close()
        got = dict(json.loads(program.stdout.readline()))
        assert program.wait(60) == 0
    return got


@contextlib.contextmanager
def overload(lab: Lab, senders: list[str], victim: str, dscp: int = 0) -> Iterator[None]:
    """Unicast from each of the senders to one server, as fast as they can, from beginning to end.

    It goes to OTHER_PORT; what the server's port does not carry is lost there.
    """
    address = str(lab.topology.servers[victim].address)
    with contextlib.ExitStack() as stack:
        floods = []
        for name in senders:
            argv = send_argv(lab, name, address, 10**9, 0, port=OTHER_PORT, dscp=dscp)
            floods.append(stack.enter_context(lab.popen(name, argv)))
            stack.callback(floods[-1].kill)
        yield
        assert all(flood.poll() is None for flood in floods)


@contextlib.contextmanager
def slower(lab: Lab, interface: str, rate: str, usual: str = "1gbit") -> Iterator[None]:
    """A switch port's rate, for a while: one that a busy machine's programs can fill, too."""

    def change(to: str) -> None:
        fields = f"tc class change dev {interface} parent 1: classid 1:1 htb rate {to} ceil {to} burst 250k cburst 250k"
        lab.execute("manager", [*fields.split(), "quantum", "60000", "overhead", str(WIRE_OVERHEAD_BYTES)])

    change(rate)
    try:
        yield
    finally:
        change(usual)


def deliver_through_full_port(
    lab: Lab, sender: str, receivers: list[str], target: str, port: str, *, count: int, interval_s: float
) -> dict[str, dict[str, Any]]:
    """As `deliver`, during which the port drops unicast: done again until it did, at most ten times. Each must be
    whole: the caller looks at the last, and this at those before it.
    """
    for _ in range(10):
        before = drops(lab, port)
        got = deliver(lab, sender, receivers, target, count=count, interval_s=interval_s)
        now = drops(lab, port)
        assert now["10:"] == before["10:"] and all(row["distinct"] == count for row in got.values()), (got, now)
        if now["20:"] > before["20:"]:
            return got
    raise AssertionError(f"{port} was never full")


def drops(lab: Lab, interface: str) -> dict[str, int]:
    """Packets dropped so far by each queue of a switch port: "5:" of DSCP 48, "10:" of DSCP 46, "20:" of the rest
    (lab network.py).
    """
    shown = json.loads(lab.execute("manager", ["tc", "-s", "-j", "qdisc", "show", "dev", interface]))
    return {row["handle"]: row["drops"] for row in shown if row["handle"] != "0:"}


def deliver(
    lab: Lab,
    sender: str,
    receivers: list[str],
    target: str,
    *,
    count: int,
    size: int = SIZE,
    interval_s: float = 0.0005,
    dscp: int = 0,
) -> dict[str, dict[str, Any]]:
    """Sends numbered datagrams from one server to listening ones; what each got, as datagrams.py says it."""
    programs = {name: listen(lab, name, target, count) for name in receivers}
    lab.execute(sender, send_argv(lab, sender, target, count, interval_s, size=size, dscp=dscp))
    for program in programs.values():
        program.stdin.close()
    return {name: heard(program) for name, program in programs.items()}
