"""Objects in pieces: late servers fetch them from holders, a killed receiver goes on, disks keep up with the link."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rostrum.client import Agent, RostrumError, sync_folder
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import LabError
from rostrum.lab.results import save
from rostrum.topologies import TopologyError

MIB = 1 << 20
HOLDERS, LATE = ("h1", "h3", "h5"), ("h2", "h4", "h6", "h8")
KILLED = "h7"
BOUND_S = 120.0
FILES, FILE_BYTES = 10_000, 4096
SYNCED = ("h3", "h5")
GOALS = {
    "fetch_over_ideal": ("<=", 1.3), "resume_resent_share": ("<=", 0.52), "small_files_ratio": (">=", 0.5),
    "disk_ratio": (">=", 0.9),
}  # fmt: skip
OUT = Console(highlight=False, soft_wrap=True)


@click.command()
@click.option("--size", "size_mib", default=256, show_default=True, type=click.IntRange(8, 4096), help="MiB an object.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 50), help="Of each; the best counts.")
@click.option("--quick", is_flag=True, help="96 MiB, fewer rounds.")
@click.option("--disk", type=click.Path(file_okay=False, exists=True, path_type=Path), default="/var/tmp",
              show_default=True, help="A folder on a disk.")  # fmt: skip
@click.option("--seed", default=1, show_default=True, help="Of the data.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), default="build/pieces.json",
              show_default=True, help="Where the figures go.")  # fmt: skip
def command(size_mib: int, rounds: int, quick: bool, disk: Path, seed: int, json_file: Path) -> None:
    """Measure late fetches, a transfer that goes on after a kill, and disks, in labs of their own (1 Gbit/s links).

    \b
    fetch_over_ideal     four servers fetch what three hold: time, over that of one transfer to these four
    fetch_holders_share  bytes that the three holders sent for that, over those of the object
    pieces_over_ideal    the same in pieces, from holders that are named
    resume_resent_share  a receiver is killed at half of a transfer: bytes that it fetches again, of all
    small_files_ratio    rostrum sync of 10,000 files of 4 KB: rate, over that of one file of the same size
    disk_ratio           from disk to disk: rate, over that from memory to memory or of dd, whichever is less

    The best of the rounds counts: on a busy machine others' work is in the rest.
    """
    size, rounds = (96 * MIB, 2) if quick else (size_mib * MIB, rounds)
    parameters = {"size": size, "rounds": rounds, "disk": str(disk)}
    try:
        report = run(size, rounds, disk, seed)
    except (LabError, RostrumError, TopologyError, OSError) as error:
        raise click.ClickException(str(error)) from error
    json_file.parent.mkdir(parents=True, exist_ok=True)
    save({"experiment": "pieces", "manifest": manifest(seed, parameters), **report}, json_file)
    for name, (sign, goal) in GOALS.items():
        OUT.print(f"{name} {report['summary'][name]:.3f} (goal {sign} {goal})")
    OUT.print(f"figures in {json_file}")


def run(size: int, rounds: int, disk: Path, seed: int) -> dict[str, Any]:
    """All figures. Raises LabError if something does not arrive."""
    made = random.Random(seed)
    data = b"".join(made.randbytes(MIB) for _ in range(size // MIB))  # more than 255 MiB at once it does not make
    with Lab.start("hybrid-4x2", name="pieces", or_another=True, seed=seed) as lab:
        memory = [late_fetch(lab, number, data) for number in range(1, max(3, rounds) + 1)]
        synced = [many_files(lab, seed + number) for number in range(max(5, rounds))]
    with tempfile.TemporaryDirectory(prefix="rostrum-pieces-", dir=disk) as folder:
        with Lab.start("hybrid-4x2", name="pieces", or_another=True, seed=seed, to_disk=folder) as lab:
            resumed = [resume(lab, 100 + number, data) for number in range(rounds)]
            disks = [from_disk_to_disk(lab, 200 + number, data, Path(folder)) for number in range(max(5, rounds))]
        written = [dd(Path(folder), size) for _ in range(rounds)]
    transfer_s, ideal_s = (min(row[key] for row in memory) for key in ("transfer_s", "transfer_to_four_s"))
    reachable = min(size / transfer_s, max(written))
    summary = {
        "fetch_over_ideal": min(row["fetch_s"] for row in memory) / ideal_s,
        "fetch_holders_share": min(row["fetch_holders_share"] for row in memory),
        "pieces_over_ideal": min(row["pieces_s"] for row in memory) / ideal_s,
        "resume_resent_share": min(row["fetched"] for row in resumed) / size,
        "small_files_ratio": min(row["one_s"] for row in synced) / min(row["many_s"] for row in synced),
        "disk_ratio": size / min(row["transfer_s"] for row in disks) / reachable,
    }
    return {
        "summary": summary,
        "late": memory,
        "resume": resumed,
        "sync": synced,
        "disk": disks,
        "dd_bytes_per_s": written,
    }


def _connected(lab: Lab, server: str) -> Agent:
    """The agent, which may be starting."""
    until = time.monotonic() + BOUND_S
    while True:
        try:
            return Agent(lab.agent_socket(server))
        except RostrumError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def _read(lab: Lab, server: str, data_id: int, data: bytes) -> None:
    with Agent(lab.agent_socket(server)) as agent, agent.read(data_id, wait=BOUND_S) as there:
        if there.size != len(data) or there.mmap()[:] != data:
            raise LabError(f"{server} has another object {data_id} than was sent")


def _delete(lab: Lab, servers: Sequence[str], data_id: int) -> None:
    for server in servers:
        with Agent(lab.agent_socket(server)) as agent:
            until = time.monotonic() + BOUND_S
            while True:
                try:
                    agent.delete(data_id)
                    break
                except RostrumError as error:  # a holder gives the last pieces
                    if time.monotonic() > until:
                        raise LabError(f"{server}: {error}") from error
                    time.sleep(0.05)


def _send(agent: Agent, data_id: int, receivers: Sequence[str]) -> float:
    began = time.monotonic()
    result = agent.send(data_id, receivers).wait(BOUND_S)
    if not result.ok:
        raise LabError(f"a send to {', '.join(receivers)} failed: {result.cause}")
    return time.monotonic() - began


def late_fetch(lab: Lab, data_id: int, data: bytes) -> dict[str, float]:
    """One transfer to two receivers, and one to four others. These fetch it then: in pieces from all three that they
    name, and once more from whom the manager knows, without naming anybody. With the bytes that the holders' links
    carried."""
    with Agent(lab.agent_socket(HOLDERS[0])) as sender:
        sender.add(data_id, data)
        transfer_s = _send(sender, data_id, HOLDERS[1:])
        transfer_to_four_s = _send(sender, data_id, LATE)
    _delete(lab, LATE, data_id)
    addresses = _addresses(lab)
    holders = [f"{name}@{addresses[name]}" for name in HOLDERS]
    before = _sent_bytes(lab)
    pieces_s = _fetch_at_once(lab, data_id, holders)
    between = _sent_bytes(lab)
    for name in LATE:
        _read(lab, name, data_id, data)
    _delete(lab, LATE, data_id)
    _until_known(lab, data_id, len(HOLDERS))
    again = _sent_bytes(lab)
    fetch_s = _fetch_at_once(lab, data_id, ())
    after = _sent_bytes(lab)
    for name in LATE:
        _read(lab, name, data_id, data)
    _delete(lab, (*LATE, *HOLDERS), data_id)
    return {
        "transfer_s": transfer_s,
        "transfer_to_four_s": transfer_to_four_s,
        "pieces_s": pieces_s,
        "fetch_s": fetch_s,
        "pieces_holders_share": (between - before) / len(data),
        "fetch_holders_share": (after - again) / len(data),
    }


def _sent_bytes(lab: Lab) -> int:
    """By the holders' NICs, all together."""
    total = 0
    for name in HOLDERS:
        rows = lab.execute(name, ["cat", "/proc/net/dev"]).splitlines()
        total += sum(int(row.partition(":")[2].split()[8]) for row in rows if ":" in row and "lo:" not in row)
    return total


def _until_known(lab: Lab, data_id: int, count: int) -> None:
    """The manager knows of so many holders."""
    until = time.monotonic() + BOUND_S
    while lab.rest.get(f"/v1/objects/{data_id}").get("holder_count") != count:
        if time.monotonic() > until:
            raise LabError(f"the manager does not learn that {count} servers hold object {data_id}")
        time.sleep(0.05)


def _fetch_at_once(lab: Lab, data_id: int, holders: Sequence[str]) -> float:
    """By all that are late; seconds until the last has it."""
    failed: list[str] = []

    def fetch(agent: Agent) -> None:
        try:
            agent.fetch(data_id, holders, wait=BOUND_S).close()
        except RostrumError as error:
            failed.append(str(error))

    agents = [Agent(lab.agent_socket(name)) for name in LATE]
    threads = [threading.Thread(target=fetch, args=(agent,)) for agent in agents]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fetch_s = time.monotonic() - began
    for agent in agents:
        agent.close()
    if failed:
        raise LabError(failed[0])
    return fetch_s


def resume(lab: Lab, data_id: int, data: bytes) -> dict[str, float]:
    """A receiver is killed in the middle, and started again: how much it fetches."""
    with Agent(lab.agent_socket("h1")) as sender:
        sender.add(data_id, data)
        handle = sender.send(data_id, [KILLED])
        with Agent(lab.agent_socket(KILLED)) as receiver:
            until = time.monotonic() + BOUND_S
            while not any(t.data_id == data_id and t.bytes >= len(data) // 2 for t in receiver.status().transfers):
                if handle.done or time.monotonic() > until:
                    raise LabError("a transfer ended before its receiver could be killed at half of it")
                time.sleep(0.005)
        lab.kill(KILLED)
        handle.wait(BOUND_S)  # it fails
        lab.start_program(KILLED)
        began = time.monotonic()
        _connected(lab, KILLED).close()
        _read(lab, KILLED, data_id, data)
        took_s = time.monotonic() - began
    fetched = _metric(lab, KILLED, "fetched_bytes_total")
    _delete(lab, (KILLED, "h1"), data_id)
    return {"fetched": fetched, "took_s": took_s}


def many_files(lab: Lab, seed: int) -> dict[str, float]:
    """Many small files to two receivers by a sync, and one file of their size: until both have written them."""
    data = random.Random(seed).randbytes(FILES * FILE_BYTES)
    with tempfile.TemporaryDirectory(prefix="rostrum-sync-", dir="/dev/shm") as folder:
        sources = {"one": Path(folder) / "one", "many": Path(folder) / "many"}
        for source in sources.values():
            source.mkdir()
        (sources["one"] / "file").write_bytes(data)
        for number in range(FILES):
            path = sources["many"] / f"{number // 100:03}" / f"{number}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data[number * FILE_BYTES : (number + 1) * FILE_BYTES])
        took = {f"{name}_s": sync(lab, name, source, Path(folder)) for name, source in sources.items()}
        for server in SYNCED:
            for number in (0, FILES // 2, FILES - 1):
                there = Path(folder) / f"many-{server}" / f"{number // 100:03}" / f"{number}"
                if there.read_bytes() != data[number * FILE_BYTES : (number + 1) * FILE_BYTES]:
                    raise LabError(f"{server} has another {there.name} than was sent")
    return took


def sync(lab: Lab, name: str, source: Path, folder: Path) -> float:
    """Seconds of one sync to folders that are not there yet."""
    command = [sys.executable, "-m", "rostrum.client.cli", "sync", name, "--once"]
    receivers = [
        subprocess.Popen(
            [*command, "--into", str(folder / f"{name}-{server}"), "--socket", str(lab.agent_socket(server))],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for server in SYNCED
    ]  # fmt: skip
    try:
        for server in SYNCED:
            with Agent(lab.agent_socket(server)) as agent:
                until = time.monotonic() + BOUND_S
                while agent.status().clients < 2:
                    if time.monotonic() > until:
                        raise LabError(f"no rostrum sync --into began at {server}")
                    time.sleep(0.05)
        with Agent(lab.agent_socket("h1")) as sender:
            result = sync_folder(sender, source, SYNCED, name=name)
        if not result.ok:
            raise LabError(f"a sync failed: {'; '.join(row.cause for row in result.receivers)}")
        for receiver in receivers:
            _, text = receiver.communicate(timeout=BOUND_S)
            if receiver.returncode:
                raise LabError(f"a receiver of a sync failed: {text}")
    finally:
        for receiver in receivers:
            receiver.kill()
            receiver.wait()
    return result.took_s


def from_disk_to_disk(lab: Lab, data_id: int, data: bytes, folder: Path) -> dict[str, float]:
    """One transfer of a file on disk to two receivers with disks."""
    source = folder / "source"
    source.write_bytes(data)
    descriptor = os.open(source, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        with Agent(lab.agent_socket("h1")) as sender:
            began = time.monotonic()
            result = sender.send(data_id, HOLDERS[1:], source=descriptor).wait(BOUND_S)
            took_s = time.monotonic() - began
            if not result.ok:
                raise LabError(f"a send from disk failed: {result.cause}")
        for name in HOLDERS[1:]:
            _read(lab, name, data_id, data)
    finally:
        os.close(descriptor)
        source.unlink()
    _delete(lab, HOLDERS, data_id)
    return {"transfer_s": took_s}


def dd(folder: Path, size: int) -> float:
    """Bytes a second that dd writes into a new file there."""
    target = folder / "dd"
    began = time.monotonic()
    subprocess.run(
        ["dd", "if=/dev/zero", f"of={target}", "bs=1M", f"count={size // MIB}", "conv=fdatasync"],
        check=True, capture_output=True,
    )  # fmt: skip
    took_s = time.monotonic() - began
    target.unlink()
    return size / took_s


def _addresses(lab: Lab) -> dict[str, str]:
    return {name: str(server.address) for name, server in lab.topology.servers.items()}


def _metric(lab: Lab, server: str, name: str) -> float:
    """A counter of an agent."""
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(lab.agent_socket(server).with_name("metrics.sock")))
        one.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        page = b"".join(iter(lambda: one.recv(1 << 16), b"")).decode()
    for line in page.splitlines():
        if not line.startswith("#") and line.split("{")[0].split(" ")[0].endswith(name):
            return float(line.rsplit(" ", 1)[1])
    raise LabError(f"the agent of {server} does not tell {name}")
