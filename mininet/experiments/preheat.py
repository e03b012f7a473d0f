"""An image to seven servers: rostrum preheat, beside pulls by all of them at once from a real registry."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import yaml
from rich.console import Console
from rostrum.client import Agent, RostrumError
from rostrum.client.oci import LAYOUT, MANIFEST_TYPE, REF_NAME, Layout, merged_index
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import Entered, LabError
from rostrum.lab.results import rounded, save
from rostrum.topologies import TopologyError
from rostrum.topologies.loader import builtin_file

MIB = 1 << 20
SENDER, RECEIVERS = "h1", ("h2", "h3", "h4", "h5", "h6", "h7", "h8")
LAYERS = 8
PORT = 5000  # of the registry
MIRROR = "127.0.0.1:5055"
RATE_MOST = 300_000_000
BOUND_S = 600.0
GOALS = {"vs_pulls": 0.35, "changed_over_layer": 1.01, "sender_egress": 1.05}
PROGRAMS = {"docker-registry": "docker-registry", "skopeo": "skopeo"}  # of Debian, by command
OUT = Console(highlight=False, soft_wrap=True)


@click.command()
@click.option("--size", "size_mib", default=512, show_default=True, type=click.IntRange(8, 8192), help="MiB of image.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 20), help="Of each; the best counts.")
@click.option("--rate", "rate_mbps", default=300, show_default=True, type=click.IntRange(10, RATE_MOST // 1_000_000),
              help="Mbit/s of every link: the lab's soft switches are not the limit then.")  # fmt: skip
@click.option("--quick", is_flag=True, help="One round.")
@click.option("--disk", type=click.Path(file_okay=False, exists=True, path_type=Path), default="/dev/shm",
              show_default=True, help="Where the images are: a disk may be slower than the links.")  # fmt: skip
@click.option("--seed", default=1, show_default=True, help="Of the data.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), default="build/preheat.json",
              show_default=True, help="Where the figures go.")  # fmt: skip
def command(size_mib: int, rounds: int, rate_mbps: int, quick: bool, disk: Path, seed: int, json_file: Path) -> None:
    """Measure an image's way to seven servers, in a lab of its own: preheat, and pulls from docker-registry by skopeo.

    \b
    vs_pulls            seconds until all have it by rostrum preheat, over those of seven pulls at once
    changed_over_layer  bytes sent when one of eight layers changed, over those of that layer
    sender_egress       bytes that the sender's link carried for a preheat, over those of the image

    The best of the rounds counts. At the end the mirror of one server gives skopeo the image.
    """
    rounds = 1 if quick else rounds
    parameters = {"size": size_mib * MIB, "rounds": rounds, "rate_bps": rate_mbps * 1_000_000, "layers": LAYERS}
    missing = [package for package, program in PROGRAMS.items() if not shutil.which(program)]
    if missing:
        raise click.ClickException(f"this compares with Debian's {', '.join(missing)}: apt install {' '.join(missing)}")
    needed = size_mib * MIB * (len(RECEIVERS) + 4)
    if shutil.disk_usage(disk).free < needed:
        raise click.ClickException(f"{disk} has no room for eleven images ({needed >> 20} MiB): see --disk, --size")
    try:
        with tempfile.TemporaryDirectory(prefix="rostrum-preheat-", dir=disk) as folder:
            report = run(size_mib * MIB, rounds, rate_mbps, Path(folder), seed)
    except (LabError, RostrumError, TopologyError, OSError) as error:
        raise click.ClickException(str(error)) from error
    save({"experiment": "preheat", "manifest": manifest(seed, parameters), **rounded(report)}, json_file)
    for name, goal in GOALS.items():
        OUT.print(f"{name} {report['summary'][name]:.3f} (goal <= {goal})")
    OUT.print(f"figures in {json_file}")


def slow_links(rate_mbps: int) -> dict[str, Any]:
    """The topology hybrid-4x2 with links of that rate."""
    value: dict[str, Any] = yaml.safe_load(builtin_file("hybrid-4x2").read_text())
    for link in value["links"]:
        link["rate"] = f"{rate_mbps}M"
    return value


def run(size: int, rounds: int, rate_mbps: int, folder: Path, seed: int) -> dict[str, Any]:
    """All figures. Raises LabError if something does not arrive."""
    made = random.Random(seed)
    image = folder / "image"
    layers = [layer(made, size // LAYERS) for _ in range(LAYERS)]
    whole = write_image(image, layers, "v1")
    rows = []
    with Lab.start(slow_links(rate_mbps), name="preheat", or_another=True, seed=seed) as lab:
        with registry(lab, folder, image):
            for number in range(rounds):
                rows.append({"pulls_s": pulls(lab, folder / f"pulled-{number}", whole)})
        for number, row in enumerate(rows):
            row |= preheats(lab, folder, number, image, whole)
        layers[-1] = layer(made, size // LAYERS)
        changed = preheats(lab, folder, 0, image, write_image(image, layers, "v2"), "v2")
        served = from_mirror(lab, folder, rounds)
    summary = {
        "vs_pulls": min(row["preheat_s"] for row in rows) / min(row["pulls_s"] for row in rows),
        "changed_over_layer": changed["sent"] / len(layers[-1]),
        "sender_egress": min(row["egress"] for row in rows) / whole,
        "mirror_gave_the_image": served,
    }
    verdicts = {name: summary[name] <= goal for name, goal in GOALS.items()} | {"mirror_gave_the_image": served}
    return {"summary": summary, "verdicts": verdicts, "goals": GOALS, "rounds": rows, "changed": changed,
            "link_s": whole * 8 / rate_mbps / 1e6}  # fmt: skip


def layer(made: random.Random, size: int) -> bytes:
    """A tar archive with a file of random bytes, packed as layers are: it cannot become smaller."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        member = tarfile.TarInfo(f"data-{made.getrandbits(64):x}")
        member.size = size
        archive.addfile(member, io.BytesIO(b"".join(made.randbytes(min(MIB, size - at)) for at in range(0, size, MIB))))
    return gzip.compress(tar.getvalue(), compresslevel=0, mtime=0)


def write_image(top: Path, layers: Sequence[bytes], tag: str) -> int:
    """Into an OCI layout; its bytes."""
    folder = top / "blobs" / "sha256"
    folder.mkdir(parents=True, exist_ok=True)
    total = 0

    def put(content: bytes, kind: str) -> dict[str, Any]:
        nonlocal total
        total += len(content)
        digest = hashlib.sha256(content).hexdigest()
        (folder / digest).write_bytes(content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    contents = [f"sha256:{hashlib.sha256(gzip.decompress(one)).hexdigest()}" for one in layers]
    config = {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": contents}}
    rows = [put(one, "application/vnd.oci.image.layer.v1.tar+gzip") for one in layers]
    value = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "layers": rows,
             "config": put(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json")}  # fmt: skip
    row = put(json.dumps(value).encode(), MANIFEST_TYPE)
    there = [one for _, _, one in Layout(top).images()] if (top / "index.json").exists() else []
    (top / "oci-layout").write_bytes(LAYOUT)
    (top / "index.json").write_bytes(merged_index(there, [{**row, "annotations": {REF_NAME: tag}}]))
    return total


@contextlib.contextmanager
def registry(lab: Lab, folder: Path, image: Path) -> Iterator[None]:
    """docker-registry on the sender, with the image."""
    settings = {
        "version": "0.1",
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "registry")}},
        "http": {"addr": f"0.0.0.0:{PORT}"},
    }
    (folder / "registry.yml").write_text(yaml.safe_dump(settings))
    with open(folder / "registry.log", "wb") as log:
        server = lab.popen(SENDER, ["docker-registry", "serve", str(folder / "registry.yml")], stdin=subprocess.DEVNULL,
                           stdout=log, stderr=log)  # fmt: skip
    try:
        _listens(lab, SENDER, f"127.0.0.1:{PORT}", server, folder / "registry.log")
        to = f"docker://127.0.0.1:{PORT}/app:v1"
        copy = ["skopeo", "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false", f"oci:{image}:v1", to]
        lab.execute(SENDER, copy, timeout_s=BOUND_S)
        yield
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder / "registry", ignore_errors=True)


def _listens(lab: Lab, server: str, address: str, program: Entered, log: Path) -> None:
    until = time.monotonic() + BOUND_S
    while True:
        answer = lab.execute(server, ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"http://{address}/v2/"],
                             check=False)  # fmt: skip
        if answer.endswith("200"):
            return
        if program.poll() is not None or time.monotonic() > until:
            raise LabError(f"{server}: nothing serves at {address}: {log.read_text(errors='replace')[-1000:]}")
        time.sleep(0.1)


def pulls(lab: Lab, folder: Path, whole: int) -> float:
    """All receivers at once; seconds until the last has it."""
    folder.mkdir()
    address = lab.topology.servers[SENDER].address
    began = time.monotonic()
    running = [
        lab.popen(name, ["skopeo", "--insecure-policy", "copy", "--quiet", "--src-tls-verify=false",
                         f"docker://{address}:{PORT}/app:v1", f"oci:{folder / name}:v1"], stdin=subprocess.DEVNULL,
                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for name in RECEIVERS
    ]  # fmt: skip
    for name, program in zip(RECEIVERS, running, strict=True):
        _, text = program.communicate(timeout=BOUND_S)
        if program.returncode:
            raise LabError(f"{name}: a pull failed: {text[-1000:]}")
    took_s = time.monotonic() - began
    for name in RECEIVERS:
        _complete(folder / name, whole)
    shutil.rmtree(folder)
    return took_s


def _complete(layout: Path, whole: int) -> None:
    images = Layout(layout).images()
    size = sum(blob.size for blob in Layout(layout).blobs(images[-1][1]))
    if abs(size - whole) > 4096:  # a registry's client may write the manifest otherwise
        raise LabError(f"{layout} has an image of {size} bytes, not {whole}")


def _command(lab: Lab, server: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "rostrum.client.cli", *words, "--socket", str(lab.agent_socket(server))]


def preheats(lab: Lab, folder: Path, number: int, image: Path, whole: int, tag: str = "v1") -> dict[str, float]:
    """`rostrum preheat` to mirrors on all receivers; seconds of the command."""
    mirrors = {}
    try:
        for name in RECEIVERS:
            place = str(folder / f"preheated-{number}" / name)
            words = _command(lab, name, "mirror", place, "--listen", MIRROR)
            mirrors[name] = lab.popen(name, words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)  # fmt: skip
        for name in RECEIVERS:
            with Agent(lab.agent_socket(name)) as agent:
                until = time.monotonic() + BOUND_S
                while agent.status().clients < 2:
                    if mirrors[name].poll() is not None or time.monotonic() > until:
                        raise LabError(f"no rostrum mirror began at {name}")
                    time.sleep(0.05)
        before = _egress(lab)
        began = time.monotonic()
        to = ("--name", "app", "--to", ",".join(RECEIVERS), "--json")
        words = _command(lab, SENDER, "preheat", f"oci:{image}:{tag}", *to)
        answer = json.loads(lab.execute(SENDER, words, timeout_s=BOUND_S))
        took_s = time.monotonic() - began
        egress = _egress(lab) - before
        if not answer["ok"]:
            raise LabError(f"a preheat failed: {[one['cause'] or one['refused'] for one in answer['receivers']]}")
        for name in RECEIVERS:
            _complete(folder / f"preheated-{number}" / name, whole)
    finally:
        for program in mirrors.values():
            program.kill()
            program.wait()
    return {"preheat_s": took_s, "sent": answer["sent"], "egress": egress}


def _egress(lab: Lab) -> int:
    rows = lab.execute(SENDER, ["cat", "/proc/net/dev"]).splitlines()
    return sum(int(row.partition(":")[2].split()[8]) for row in rows if ":" in row and "lo:" not in row)


def from_mirror(lab: Lab, folder: Path, rounds: int) -> bool:
    """skopeo gets the image of the mirror of its own server."""
    name, place = RECEIVERS[0], folder / "preheated-0" / RECEIVERS[0]
    log = folder / "mirror.log"
    with log.open("wb") as output:
        words = _command(lab, name, "mirror", str(place), "--listen", MIRROR)
        server = lab.popen(name, words, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        _listens(lab, name, MIRROR, server, log)
        lab.execute(name, ["skopeo", "--insecure-policy", "copy", "--quiet", "--src-tls-verify=false",
                           f"docker://{MIRROR}/app:v2", f"oci:{folder / 'given'}:v2"], timeout_s=BOUND_S)  # fmt: skip
    finally:
        server.kill()
        server.wait()
    given, there = Layout(folder / "given").images()[-1][1], Layout(place).images()[-1][1]
    return given.digest == there.digest
