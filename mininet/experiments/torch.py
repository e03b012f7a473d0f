"""A large tensor to the processes of torch.distributed on other servers: the backend rostrum beside Gloo."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rostrum.client import RostrumError
from rostrum.lab.experiments.preheat import RATE_MOST, slow_links
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import Entered, LabError
from rostrum.lab.results import rounded, save
from rostrum.topologies import TopologyError
from rostrum.topologies.places import build_folder

MIB = 1 << 20
SERVERS = ("h1", "h3", "h5", "h7", "h2", "h4", "h6", "h8")  # of four racks
COUNTS = (1, 3, 7)
GOALS = {"1": 1.05, "3": 0.55, "7": 0.40}
EGRESS_MOST = 1.05
PORT = 29500
BOUND_S = 300.0
INTERPRETER = "/usr/bin/python3"  # Debian's, which has Debian's PyTorch: not the environment of the manager
OUT = Console(highlight=False, soft_wrap=True)
PROGRAM = """
import datetime, hashlib, json, os, sys, time
import torch, torch.distributed as dist
import rostrum.torch
rank, size, address, port, backend, count, rounds = sys.argv[1:]
rank, size, count, rounds = int(rank), int(size), int(count), int(rounds)
wait = datetime.timedelta(seconds=240)
store = dist.TCPStore(address, int(port), size, rank == 0, timeout=wait)
dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=wait)
group = dist.distributed_c10d._get_default_group()
if backend == "rostrum" and group.why_gloo:
    sys.exit(group.why_gloo)
torch.manual_seed(int(os.environ["SEED"]))

def sent():
    rows = open("/proc/net/dev").read().splitlines()
    return sum(int(row.partition(":")[2].split()[8]) for row in rows if ":" in row and "lo:" not in row)

took = []
for number in range(rounds):
    some = torch.randint(0, 256, (1 << 20,), dtype=torch.uint8)  # a MiB of it: more takes longer than the rest
    right = some.repeat(count >> 20)
    tensor = right.clone() if rank == 0 else torch.zeros(count, dtype=torch.uint8)
    dist.barrier()
    before, began = sent(), time.monotonic()
    dist.broadcast(tensor, 0)
    mine = time.monotonic() - began
    store.set("done/%d/%d" % (number, rank), "1")
    if rank == 0:  # the last one has it
        for other in range(size):
            store.wait(["done/%d/%d" % (number, other)])
        mine = time.monotonic() - began
    dist.barrier()
    took.append({"s": mine, "egress": sent() - before, "exact": bool(torch.equal(tensor, right))})
print(json.dumps(took), flush=True)
if os.environ.get("LEFT") == "1":  # one is killed under way: the others have the tensor all the same
    tensor = torch.full((count,), 7, dtype=torch.uint8) if rank == 0 else torch.zeros(count, dtype=torch.uint8)
    dist.barrier()
    print("ready", flush=True)
    dist.broadcast(tensor, 0)
    print(json.dumps({"exact": bool((tensor == 7).all())}), flush=True)
    os._exit(0)
dist.destroy_process_group()
"""


@click.command()
@click.option("--size", "size_mib", default=256, show_default=True, type=click.IntRange(2, 4096), help="MiB of tensor.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 20), help="Of each; the best counts.")
@click.option("--rate", "rate_mbps", default=300, show_default=True, type=click.IntRange(10, RATE_MOST // 1_000_000),
              help="Mbit/s of every link: the lab's soft switches are not the limit then.")  # fmt: skip
@click.option("--quick", is_flag=True, help="128 MiB, two rounds.")
@click.option("--seed", default=1, show_default=True, help="Of the data.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), default="build/torch.json",
              show_default=True, help="Where the figures go.")  # fmt: skip
def command(size_mib: int, rounds: int, rate_mbps: int, quick: bool, seed: int, json_file: Path) -> None:
    """Measure torch.distributed.broadcast to 1, 3 and 7 servers by rostrum and by Gloo, in a lab of its own.

    \b
    vs_gloo      seconds until the last rank has the tensor by rostrum, over Gloo's, by number of receivers
    root_egress  bytes that the root's link carried, over those of the tensor; the largest of the three
    exact        every rank has every byte
    others       a receiver is killed while the tensor is on its way: the others have it

    Processes are those of Debian's PyTorch (python3-torch). The best of the rounds counts.
    """
    size_mib, rounds = (128, 2) if quick else (size_mib, rounds)
    tried = subprocess.run([INTERPRETER, "-c", "import torch.distributed"], capture_output=True, text=True, check=False)
    if tried.returncode:
        raise click.ClickException(f"{INTERPRETER} has no PyTorch: apt install python3-torch")
    parameters = {"size": size_mib * MIB, "rounds": rounds, "rate_bps": rate_mbps * 1_000_000}
    try:
        report = run(size_mib * MIB, rounds, rate_mbps, seed)
    except (LabError, RostrumError, TopologyError, OSError) as error:
        raise click.ClickException(str(error)) from error
    save({"experiment": "torch", "manifest": manifest(seed, parameters), **rounded(report)}, json_file)
    for count, goal in GOALS.items():
        OUT.print(f"vs_gloo {count}: {report['summary']['vs_gloo'][count]:.3f} (goal <= {goal})")
    OUT.print(f"root_egress {report['summary']['root_egress']:.3f} (goal <= {EGRESS_MOST})")
    OUT.print(f"figures in {json_file}")


def run(size: int, rounds: int, rate_mbps: int, seed: int, counts: Sequence[int] = COUNTS) -> dict[str, Any]:
    """All figures. Raises LabError if a process fails."""
    rows: list[dict[str, Any]] = []
    with Lab.start(slow_links(rate_mbps), name="torch", or_another=True, seed=seed) as lab:
        for number, count in enumerate(counts):
            for other, backend in enumerate(("gloo", "rostrum")):
                given = ranks(lab, backend, count, size, rounds, seed, PORT + 2 * number + other)
                rows.append({"backend": backend, "receivers": count, **given})
        others = killed(lab, counts[-1], size, seed)
    best = {(row["backend"], row["receivers"]): min(row["s"]) for row in rows}
    ratios = {str(count): best["rostrum", count] / best["gloo", count] for count in counts}
    egress = max(min(row["egress"]) for row in rows if row["backend"] == "rostrum") / size
    exact = all(row["exact"] for row in rows)
    verdicts = {f"vs_gloo {count}": ratio <= GOALS[count] for count, ratio in ratios.items() if count in GOALS}
    verdicts |= {"root_egress": egress <= EGRESS_MOST, "exact": exact, "others": others}
    summary = {"vs_gloo": ratios, "root_egress": egress, "exact": exact, "others": others}
    return {"summary": summary, "verdicts": verdicts, "goals": {"vs_gloo": GOALS, "root_egress": EGRESS_MOST},
            "rounds": rows, "link_s": size * 8 / rate_mbps / 1e6}  # fmt: skip


def _start(
    lab: Lab, backend: str, count: int, size: int, rounds: int, seed: int, port: int, left: bool
) -> list[Entered]:
    root = str(lab.topology.servers[SERVERS[0]].address)
    programs = []
    for rank, name in enumerate(SERVERS[: count + 1]):
        settings = {
            "PYTHONPATH": f"{build_folder() / 'python'}",
            "ROSTRUM_SOCKET": str(lab.agent_socket(name)),
            "GLOO_SOCKET_IFNAME": _interface(lab, name),
            "SEED": str(seed),
            "LEFT": "1" if left else "",
            "OMP_NUM_THREADS": "1",
        }
        words = ["env", *(f"{key}={value}" for key, value in settings.items()), INTERPRETER, "-c", PROGRAM]
        words += [str(one) for one in (rank, count + 1, root, port, backend, size, rounds)]
        with (lab.run / f"torch-{rank}.log").open("ab") as log:
            programs.append(
                lab.popen(name, words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
            )
    return programs


def _interface(lab: Lab, name: str) -> str:
    """The one of the data network: Gloo asks for its name."""
    address = str(lab.topology.servers[name].address)
    for row in json.loads(lab.execute(name, ["ip", "-json", "address"])):
        if any(one.get("local") == address for one in row["addr_info"]):
            return str(row["ifname"])
    raise LabError(f"{name} has no interface with {address}")


def ranks(lab: Lab, backend: str, count: int, size: int, rounds: int, seed: int, port: int) -> dict[str, Any]:
    """A process on each server; seconds and the root's bytes of each round."""
    programs = _start(lab, backend, count, size, rounds, seed, port, False)
    answers = []
    try:
        for rank, program in enumerate(programs):
            output, _ = program.communicate(timeout=BOUND_S)
            if program.returncode:
                log = (lab.run / f"torch-{rank}.log").read_text(errors="replace")
                raise LabError(f"rank {rank} of {backend} ended with status {program.returncode}: {log[-1000:]}")
            answers.append(json.loads(output.splitlines()[-1]))
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{backend} to {count} servers: not over after {BOUND_S:g} s") from error
    finally:
        for program in programs:
            program.kill()
            program.wait()
    return {
        "s": [row["s"] for row in answers[0]],
        "egress": [row["egress"] for row in answers[0]],
        "exact": all(row["exact"] for rows in answers for row in rows),
    }


def killed(lab: Lab, count: int, size: int, seed: int) -> bool:
    """The last rank is killed while the tensor comes: whether all others have it."""
    programs = _start(lab, "rostrum", count, size, 0, seed, PORT + 50, True)
    try:
        for program in programs:
            assert program.stdout
            while (line := program.stdout.readline()) and line.strip() != "ready":
                pass
        time.sleep(size * 8 / 300e6 / 3)  # about a third of it is there; whenever it is, the others have it
        programs[-1].kill()
        found = []
        for program in programs[:-1]:
            output, _ = program.communicate(timeout=BOUND_S)
            lines = output.strip().splitlines()
            found.append(program.returncode == 0 and bool(lines) and json.loads(lines[-1])["exact"])
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise LabError(f"a receiver was killed, and the others did not end: {error}") from error
    finally:
        for program in programs:
            program.kill()
            program.wait()
    return all(found)
