"""The process inside the private namespace: `python -m rostrum.bench.receivers_inside JOB`.

A manager as `rostrum bench manager` measures it, one real agent, and behind a pair of virtual interfaces a program that
plays its receivers, `bench/native/agent_receivers.c`. JOB is a JSON file: {"counts", "mib", "repeat", "folder",
"programs", "results"}; the rows are written to `results`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from rostrum.client import Agent, RostrumError
from rostrum.lab.namespace import LabError
from rostrum.lab.processes import agent_program
from rostrum.topologies.generate import Hybrid

SENDER, GATE = "10.0.1.1", "10.0.255.254"
DATA, PLAYED = "data0", "played0"  # interfaces
PER_RACK = 100
RATE = "2G"
SAMPLE_S = 0.005
START_S, SEND_S = 120.0, 200.0

# Whatever is sent to the servers' network is for the program, but for the sender's own address.
THERE = f"""read moved
echo 32768 >/proc/sys/net/core/somaxconn
ip link set lo up && ip link set {PLAYED} mtu 9000 up && ip address add {GATE}/32 dev {PLAYED} &&
ip route add table local {SENDER}/32 dev {PLAYED} && ip route add local 10.0.0.0/16 dev lo &&
exec "$0" {PLAYED} "$1"
"""


def servers(count: int) -> list[tuple[str, str]]:
    """Names and addresses of the first `count` servers behind the sender, as `Hybrid` gives them."""
    return [(f"h{n + 1}", f"10.0.{n // PER_RACK + 1}.{n % PER_RACK + 1}") for n in range(1, count + 1)]


def run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{' '.join(argv)}: {done.stderr.strip()}")


@contextlib.contextmanager
def process(argv: list[str], folder: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{name}.log").open("wb") as log:
        one = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        assert one.stdin and one.stdout
        try:
            yield one
        finally:
            with contextlib.suppress(OSError):
                one.stdin.close()
            one.terminate()
            try:
                one.wait(20)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
            one.stdout.close()


def line_of(one: subprocess.Popen[bytes], what: str, folder: Path) -> str:
    assert one.stdout
    line = one.stdout.readline().decode()
    if not line:
        raise LabError(f"{what} did not start; logs are in {folder}")
    return line


@contextlib.contextmanager
def receivers(program: Path, most: int, folder: Path) -> Iterator[None]:
    file = folder / "servers.txt"
    file.write_text("".join(f"{name} {address}\n" for name, address in servers(most)))
    run("ip", "link", "add", "name", DATA, "mtu", "9000", "type", "veth", "peer", "name", PLAYED)
    with process(["unshare", "--net", "sh", "-c", THERE, str(program), str(file)], folder, "receivers") as one:
        here, until = os.readlink("/proc/self/ns/net"), time.monotonic() + START_S
        while os.readlink(f"/proc/{one.pid}/ns/net") == here:
            if time.monotonic() > until:
                raise LabError("the receivers got no network of their own")
            time.sleep(0.01)
        run("ip", "link", "set", PLAYED, "netns", str(one.pid))
        run("ip", "link", "set", DATA, "up")
        run("ip", "address", "add", f"{SENDER}/32", "dev", DATA)
        run("ip", "route", "add", f"{GATE}/32", "dev", DATA)
        run("ip", "route", "add", "10.0.0.0/16", "via", GATE)
        assert one.stdin
        one.stdin.write(b"moved\n")
        one.stdin.flush()
        line_of(one, "the program that plays receivers", folder)
        yield


@contextlib.contextmanager
def manager(most: int, folder: Path) -> Iterator[int]:
    """The port of its agents."""
    size = Hybrid(-(-(most + 1) // PER_RACK), PER_RACK, ocs_ports=0, splitters=0, rate="10G")
    for old in folder.glob("hybrid-*.pickle"):  # perhaps of another version
        old.unlink()
    job = folder / "manager.json"
    case = {"wait_s": 0.0, "journal": False}
    job.write_text(json.dumps({"hybrid": asdict(size), "folder": str(folder), "place": str(folder), "case": case}))
    with process([sys.executable, "-m", "rostrum.bench.manager.serve", str(job)], folder, "manager") as one:
        yield json.loads(line_of(one, "the manager", folder))["thrift"]


@contextlib.contextmanager
def agent(port: int, quota: int, folder: Path) -> Iterator[tuple[int, Path]]:
    """Its process, and its socket."""
    socket = folder / "agent.sock"
    (folder / "store").mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", "mode=0710,huge=within_size", "rostrum", str(folder / "store"))
    argv = [str(agent_program()), "--server", "h1", "--interface", DATA, "--address", SENDER, "--socket", str(socket)]
    argv += ["--manager", f"127.0.0.1:{port}", "--store", str(folder / "store"), "--quota", str(quota)]
    argv += ["--nic-rate", RATE, "--seed", "1"]
    with process(argv, folder, "agent") as one:
        until, log = time.monotonic() + START_S, folder / "agent.log"
        while not re.search(r"manager up=1", log.read_text()):
            if one.poll() is not None or time.monotonic() > until:
                raise LabError(f"the agent did not start: {log.read_text()[-500:]}")
            time.sleep(0.05)
        yield one.pid, socket


def spent_ns(pid: int) -> int:
    """Processor time of a process, of all its threads that live."""
    return sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def own_bytes(pid: int) -> int:
    """Memory of the process that is no file's: objects are files in memory."""
    _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


class Sample(NamedTuple):
    time_ns: int
    spent_ns: int  # processor time by then
    sent_bytes: int  # by the data interface
    own_bytes: int


def look(pid: int) -> Sample:
    sent = int(Path(f"/sys/class/net/{DATA}/statistics/tx_bytes").read_text())
    return Sample(time.time_ns(), spent_ns(pid), sent, own_bytes(pid))


@contextlib.contextmanager
def sampled(pid: int) -> Iterator[list[Sample]]:
    """What the process had spent and sent, every few milliseconds."""
    samples, over = [look(pid)], threading.Event()

    def sample() -> None:
        while not over.wait(SAMPLE_S):
            samples.append(look(pid))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
        samples.append(look(pid))


def flow_of(samples: list[Sample], begin: int, end: int) -> tuple[Sample, Sample]:
    """The first and the last sample of that time. Raises LabError: it was too short."""
    within = [one for one in samples if begin <= one.time_ns <= end]
    if len(within) < 2 or within[-1].sent_bytes == within[0].sent_bytes:
        raise LabError("the object was sent before all receivers had light: take a larger one")
    return within[0], within[-1]


def send(client: Agent, pid: int, number: int, count: int, data: bytes) -> dict[str, float]:
    """One send. Raises LabError, RostrumError."""
    client.add(number, data)
    with sampled(pid) as samples:
        names = [name for name, _ in servers(count)]
        result = client.send(number, names, protocol="republic", wait=SEND_S).wait(SEND_S)
    client.delete(number)
    if not result.ok:
        wrong = next((f"{one.name}: {one.cause}" for one in result.receivers if one.state != "done"), "")
        raise LabError(f"{count} receivers: {result.cause}; {wrong}")
    if not result.high_rate_ns:
        raise LabError(f"{count} receivers: no data packet came to them; the object went to each by itself")
    all_lit = max(result.high_rate_ns, *(one.first_light_ns for one in result.receivers))
    first, last = flow_of(samples, all_lit, result.data_done_ns)
    us_per_mb = (last.spent_ns - first.spent_ns) / 1e3 / ((last.sent_bytes - first.sent_bytes) / 1e6)
    spent_us = (samples[-1].spent_ns - samples[0].spent_ns) / 1e3
    return {
        "cpu_us_per_mb": us_per_mb,
        "fixed_us_per_receiver": (spent_us - us_per_mb * len(data) / 1e6) / count,
        "own_bytes": max(one.own_bytes for one in samples),
        "seconds": (result.done_ns - result.requested_ns) / 1e9,
        "opening_s": (result.high_rate_ns - result.accepted_ns) / 1e9,
        "reports": result.acks_received,
        "packets": result.packets_sent,
    }


def measure(job: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """One row for each number of receivers: of its rounds the one that cost least. Raises LabError, RostrumError."""
    counts, size = job["counts"], job["mib"] << 20
    data = os.urandom(size)
    best: dict[int, dict[str, float]] = {}
    run("ip", "link", "set", "lo", "up")
    with contextlib.ExitStack() as stack:
        stack.enter_context(receivers(Path(job["programs"]) / "agent_receivers", max(counts), folder))
        port = stack.enter_context(manager(max(counts), folder))
        pid, socket = stack.enter_context(agent(port, 4 * size + (64 << 20), folder))
        client = stack.enter_context(Agent(socket))
        number = before = 0
        for turn in range(job["repeat"] + 1):  # the first opens the connections
            for count in counts:
                number += 1
                got = {"receivers": count, **send(client, pid, number, count, data)}
                before = before or int(got["own_bytes"])  # with the fewest receivers, before there were more
                if turn == 1 or (turn and got["cpu_us_per_mb"] < best[count]["cpu_us_per_mb"]):
                    best[count] = got
    fewest = best[counts[0]]["cpu_us_per_mb"]
    return [
        {
            **best[count],
            "cpu_ratio": best[count]["cpu_us_per_mb"] / fewest,
            "bytes_per_receiver": (best[count]["own_bytes"] - before) / count if count > counts[0] else 0,
        }
        for count in counts
    ]


def main(job: dict[str, Any]) -> int:
    folder = Path(job["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    try:
        rows = measure(job, folder)
    except (LabError, RostrumError) as error:
        print(error, file=sys.stderr)
        return 1
    Path(job["results"]).write_text(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
