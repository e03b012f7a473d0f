"""The unreliable baseline of Fig. 14: one sender's datagrams over a path's multicast group into files on the receivers,
numbered but without a protocol: nobody acknowledges, repairs or checks anything. Programs: `bench/native/raw`.
"""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rostrum.lab.lab import Lab
from rostrum.lab.namespace import Entered, LabError
from rostrum.lab.processes import bench_programs

BOUND_S = 120.0
READY_S = 10.0
LOOK_NS = 400_000  # between two looks at the socket, as in agents (agent/daemon/data/data.c)
WINDOW_BYTES = 1 << 20  # that the sender is ahead of the slowest: it learns that for nothing (raw.h)
FILE = "plain-multicast"


@dataclass
class Plain:
    """What one run took. `cpu_s`: of all receivers together, user and kernel."""

    cpu_s: float
    seconds: float
    packets: int


def send(lab: Lab, sender: str, receivers: list[str], file: Path, *, keep: bool) -> Plain:
    """Sends a file once, as fast as the links and the slowest receiver take it.

    `keep`: receivers write it to files in their stores (which go again), and pay for the memory of these; else into a
    small piece of memory, over and over. Raises LabError if a packet is lost: then the run is none.
    """
    status, path = lab.rest.call("POST", "/v1/paths", {"sender": sender, "receivers": receivers, "kind": "packet"})
    if status != 201:
        raise LabError(f"no path for plain multicast: {path}")
    shared = lab.run / f"{FILE}.shared"
    shared.write_bytes(bytes(4096))
    running: list[Entered] = []
    try:
        group = _active(lab, path["id"])
        common = ["--method", "udp-gso", "--group", group, "--shared", str(shared)]
        for number, server in enumerate(receivers):
            target = ["--file", str(lab.run / server / "objects" / FILE)] if keep else ["--scratch"]
            given = [*target, "--number", str(number), "--size", str(file.stat().st_size), "--pause", str(LOOK_NS)]
            running.append(_start(lab, server, ["receive", *common, *given]))
        for one in running:
            _until_ready(one)
        given = ["--file", str(file), "--receivers", str(len(receivers)), "--window", str(WINDOW_BYTES)]
        output = lab.execute(sender, _command(lab, sender, ["send", *common, *given]), timeout_s=BOUND_S)
        spent = [_cpu_s(one) for one in running]
        facts: dict[str, Any] = json.loads(output.splitlines()[-1])
        return Plain(sum(spent), facts["seconds"], facts["packets"])
    finally:
        for one in running:
            one.kill()
        for server in receivers:
            lab.execute(server, ["rm", "-f", str(lab.run / server / "objects" / FILE)])
        shared.unlink(missing_ok=True)
        lab.rest.call("DELETE", f"/v1/paths/{path['id']}")


def digest_cpu_s_per_gib(lab: Lab, server: str, file: Path) -> float:
    """What xxh3-128 of a file in memory takes: the part of an agent's receiver that the baseline does not do."""
    repeats = max(1, (1 << 28) // file.stat().st_size)
    spent = lab.execute(server, [*_timed(), str(bench_programs() / "digests"), *[str(file)] * repeats])
    return float(spent.splitlines()[-1]) / (repeats * file.stat().st_size / (1 << 30))


def _timed() -> list[str]:
    """Prints the processor time of a command, in seconds, after what it prints."""
    script = (
        "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]);"
        " used = resource.getrusage(resource.RUSAGE_CHILDREN); print(used.ru_utime + used.ru_stime, flush=True);"
        " sys.exit(code)"
    )
    return ["python3", "-c", script]


def _command(lab: Lab, server: str, arguments: list[str]) -> list[str]:
    side, *rest = arguments
    address = str(lab.topology.servers[server].address)
    where = ["--interface", f"{server}-eth0", "--address", address]
    return [str(bench_programs() / "raw"), side, *where, *rest]


def _start(lab: Lab, server: str, arguments: list[str]) -> Entered:
    command = [*_timed(), *_command(lab, server, arguments)]
    return lab.popen(server, command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def _until_ready(process: Entered) -> None:
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        raise LabError("a receiver of plain multicast did not start")


def _cpu_s(process: Entered) -> float:
    output, _ = process.communicate(timeout=READY_S)
    if process.returncode:
        raise LabError(f"a receiver of plain multicast failed: {output}")
    return float(output.splitlines()[-1])


def _active(lab: Lab, path_id: str) -> str:
    """The path's group, once its rules are in."""
    deadline = time.monotonic() + READY_S
    while (path := lab.rest.get(f"/v1/paths/{path_id}"))["state"] != "active":
        if path["state"] not in ("queued", "configuring") or time.monotonic() > deadline:
            raise LabError(f"the path of plain multicast is {path['state']}: {path.get('cause')}")
        time.sleep(0.02)
    return str(path["group"])
