"""Images and models that agents brought, for the programs that use them: containerd, skopeo, huggingface_hub."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from rostrum.client.oci import Layout
from rostrum.lab.experiments.preheat import layer, write_image

from tests.agent_e2e.agents import ROOT, World, wait_until
from tests.agent_e2e.network import Network, network

pytestmark = [pytest.mark.apps, pytest.mark.timeout(300)]
BOUND_S = 120
ROSTRUM = ROOT / "build" / "venv" / "bin" / "rostrum"
HUB = ROOT / "build" / "hub" / "bin" / "python"
READS = ROOT / "tests" / "client" / "hub_reads.py"
CONTAINERD = """version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.internal.v1.restart"]
[grpc]
address = "{folder}/containerd.sock"
[ttrpc]
address = "{folder}/containerd.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
path = "{folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
disable_tcp_service = true
stream_server_port = "0"
containerd = {{snapshotter = "native"}}
cni = {{bin_dir = "{folder}/cni", conf_dir = "{folder}/cni"}}
registry = {{config_path = "{folder}/certs.d"}}
"""
HOSTS = """[host."http://{mirror}"]
  capabilities = ["pull", "resolve"]
"""
REGISTRY = """version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "{address}"}}
"""


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(3) as it:
        yield it


class Program:
    """One that stays, with its log."""

    def __init__(self, log: Path, *command: object) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def said(self, pattern: str) -> re.Match[str] | None:
        text = self.log.read_text(errors="replace")
        assert self.process.poll() is None, f"{self.process.args}: {text}"
        return re.search(pattern, text)

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(BOUND_S)
        print(f"-- {self.log.name}:", self.log.read_text(errors="replace")[-3000:])


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    running: list[Program] = []

    def one(name: str, *command: object) -> Program:
        running.append(Program(tmp_path / f"{name}.log", *command))
        return running[-1]

    yield one
    for program in reversed(running):
        program.end()


def run(*command: object, fails: bool = False, **settings: str) -> str:
    """What it printed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=BOUND_S, check=False,
                          env={**os.environ, **settings})  # fmt: skip
    assert bool(done.returncode) == fails, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return f"127.0.0.1:{found.getsockname()[1]}"


def answers(address: str) -> bool:
    host, _, port = address.partition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
        return True
    return False


def receiving(lab: World, name: str, count: int) -> None:
    """That many receivers of preheats are connected to an agent."""
    app = lab.app(name)
    wait_until(lambda: app.status()[0].clients > count, f"a receiver at {name}")
    app.close()


def mirror(lab: World, begin: Callable[..., Program], name: str, folder: Path) -> str:
    """Its address; it is ready for what comes."""
    socket_path = lab.agents[name].socket
    program = begin(f"mirror-{name}", ROSTRUM, "mirror", folder, "--listen", "127.0.0.1:0", "--socket", socket_path)
    found = wait_until(lambda: program.said(r"serving .* at http://(\S+)"), "mirror")
    receiving(lab, name, 1)
    return str(found[1])


def pull_as_kubelet(containerd: Path, name: str) -> str:
    """By containerd's Container Runtime Interface: a PullImageRequest, whose image is an ImageSpec, with a name."""

    def field_1(content: bytes) -> bytes:
        assert len(content) < 128
        return bytes((1 << 3 | 2, len(content))) + content

    with grpc.insecure_channel(f"unix://{containerd}") as channel:
        call = channel.unary_unary("/runtime.v1.ImageService/PullImage")
        answer: bytes = call(field_1(field_1(name.encode())), timeout=BOUND_S)
    return answer[2:].decode()


def needs(*programs: str) -> None:
    lacking = [one for one in programs if not shutil.which(one)]
    if lacking:
        pytest.skip(f"needs {', '.join(lacking)}: run .ci/setup apps")


def test_containerd_pulls_what_came_from_the_mirror_and_the_rest_where_it_did_before(
    lab: World, begin: Callable[..., Program], tmp_path: Path, rng: random.Random
) -> None:
    needs("containerd", "ctr", "skopeo", "docker-registry")
    lab.start_all()
    layers = [layer(rng, 300_000), layer(rng, 5000)]
    write_image(tmp_path / "app", layers, "v1")
    address = mirror(lab, begin, "h2", tmp_path / "h2")
    mirror(lab, begin, "h3", tmp_path / "h3")
    upstream = free_address()  # nothing is there yet
    sent = json.loads(run(ROSTRUM, "preheat", f"oci:{tmp_path / 'app'}:v1", "--name", f"{upstream}/team/app",
                          "--to", "h2,h3", "--socket", lab.agents["h1"].socket, "--json"))  # fmt: skip
    assert sent["ok"]

    own = tmp_path / "containerd"
    own.mkdir()
    (own / "config.toml").write_text(CONTAINERD.format(folder=own))
    (own / "certs.d/_default").mkdir(parents=True)
    (own / "certs.d/_default/hosts.toml").write_text(HOSTS.format(mirror=address))
    begin("containerd", "containerd", "--config", own / "config.toml")
    ctr = ("ctr", "--address", own / "containerd.sock", "--namespace", "rostrum-test")

    def ready() -> bool:
        return (
            subprocess.run([str(word) for word in (*ctr, "version")], capture_output=True, check=False).returncode == 0
        )

    def pull(tag: str, fails: bool = False) -> str:
        return run(*ctr, "images", "pull", "--hosts-dir", own / "certs.d", "--snapshotter", "native",
                   "--platform", "linux/amd64", f"{upstream}/team/app:{tag}", fails=fails)  # fmt: skip

    wait_until(ready, "containerd")
    config = pull_as_kubelet(own / "containerd.sock", f"{upstream}/team/app:v1")
    pull("v1")
    manifest = Layout(tmp_path / "h2").images()[0][1]
    assert manifest.digest in run(*ctr, "images", "list")
    assert config in {blob.digest for blob in Layout(tmp_path / "h2").blobs(manifest)}
    have = run(*ctr, "content", "list", "--quiet").split()
    assert {blob.digest for blob in Layout(tmp_path / "h2").blobs(manifest)} <= set(have)
    run(*ctr, "images", "mount", "--snapshotter", "native", f"{upstream}/team/app:v1", own)  # layers are what they say
    try:
        assert len(list(own.glob("data-*"))) == len(layers)
    finally:
        run("umount", own)
    assert "refused" in pull("v2", fails=True)  # the mirror has it not, and upstream is away: that is what is said

    (tmp_path / "registry.yml").write_text(REGISTRY.format(folder=tmp_path / "registry", address=upstream))
    begin("registry", "docker-registry", "serve", tmp_path / "registry.yml")
    wait_until(lambda: answers(upstream), "registry")
    for number in (2, 3):
        layers.append(layer(rng, 4000))
        write_image(tmp_path / "app", layers, f"v{number}")
        run("skopeo", "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false",
            f"oci:{tmp_path / 'app'}:v{number}", f"docker://{upstream}/team/app:v{number}")  # fmt: skip
    pull("v2")
    (own / "certs.d/_default/hosts.toml").write_text(HOSTS.format(mirror=free_address()))  # a mirror that is away
    pull("v3")
    images = run(*ctr, "images", "list", "--quiet").split()
    assert images == [f"{upstream}/team/app:v{number}" for number in (1, 2, 3)]


def test_skopeo_copies_what_came_by_the_mirror(
    lab: World, begin: Callable[..., Program], tmp_path: Path, rng: random.Random
) -> None:
    needs("skopeo")
    lab.start_all()
    write_image(tmp_path / "app", [layer(rng, 200_000)], "v1")
    addresses = {name: mirror(lab, begin, name, tmp_path / name) for name in ("h2", "h3")}
    to = ("--to", "h2,h3", "--socket", lab.agents["h1"].socket)
    run(ROSTRUM, "preheat", f"oci:{tmp_path / 'app'}:v1", "--name", "registry.example/team/app", *to)
    copy = ("skopeo", "--insecure-policy", "copy", "--quiet", "--src-tls-verify=false")
    for name, address in addresses.items():
        run(*copy, f"docker://{address}/team/app:v1", f"oci:{tmp_path / 'copy'}:{name}")
    digests = {one[1].digest for top in ("app", "copy") for one in Layout(tmp_path / top).images()}
    assert len(digests) == 1
    gone = run(*copy, f"docker://{addresses['h2']}/team/app:v2", f"oci:{tmp_path / 'copy'}:v2", fails=True)
    assert "manifest unknown" in gone


def test_huggingface_hub_reads_offline_what_came_into_its_cache(
    lab: World, begin: Callable[..., Program], tmp_path: Path, rng: random.Random
) -> None:
    if not HUB.exists():
        pytest.skip("needs build/hub: run .ci/setup apps")
    lab.start_all()
    files = {"config.json": b'{"a": 1}', "model.safetensors": rng.randbytes(400_000), "onnx/config.json": b'{"a": 1}'}
    for path, content in files.items():
        (tmp_path / "model" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "model" / path).write_bytes(content)
    caches = {name: tmp_path / name / "hub" for name in ("h1", "h2", "h3")}
    for name in ("h2", "h3"):
        begin(f"hub-{name}", "env", f"HF_HUB_CACHE={caches[name]}", ROSTRUM, "preheat", "hf", "--into", "cache",
              "--socket", lab.agents[name].socket)  # fmt: skip
        receiving(lab, name, 1)

    def read(name: str, revision: str) -> dict[str, object]:
        said = run(HUB, READS, "org/name", revision, *files, HF_HUB_CACHE=str(caches[name]), HF_HUB_OFFLINE="1",
                   HF_HOME=str(tmp_path / "home"), HF_HUB_DISABLE_PROGRESS_BARS="1")  # fmt: skip
        found: dict[str, object] = json.loads(said.splitlines()[-1])
        return found

    def preheat(source: str, *words: str, to: str = "h2,h3") -> None:
        run(ROSTRUM, "preheat", source, *words, "--to", to, "--socket", lab.agents["h1"].socket,
            HF_HUB_CACHE=str(caches["h2"]))  # fmt: skip

    preheat(f"hf:{tmp_path / 'model'}", "--name", "org/name@v1.5", to="h2")
    first = read("h2", "v1.5")
    assert first["digests"] == {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    assert first["only"] == first["commit"] and first["refs"] == {"v1.5": first["commit"]}
    preheat("hf:org/name@v1.5")  # from the hub's cache, as it was laid out, into another
    assert read("h3", "v1.5") == first
    preheat(f"hf:{tmp_path / 'model'}", "--name", "datasets/org/name", to="h2")
    preheat(f"hf:{tmp_path / 'model'}", "--name", "org/name")
    assert read("h3", "main")["refs"] == {"v1.5": first["commit"], "main": first["commit"]}
