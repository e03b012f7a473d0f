"""`make packages` in a clean Debian: installed, started as the units start them, upgraded, removed."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from rostrum.topologies import load

pytestmark = [pytest.mark.apps, pytest.mark.timeout(900)]

TREE = Path(__file__).parents[2]
SERVERS = ("h1", "h3", "h5")
INSTALLED = ("rostrum-agent", "rostrum-client", "rostrum-manager", "librostrum-dev")
TIMEOUT_S = 60


def run(*fields: object, **options: Any) -> str:
    done = subprocess.run(
        [str(word) for word in fields], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    assert done.returncode == 0, f"{shlex.join(map(str, fields))}\n{done.stdout}"
    return done.stdout


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < end, f"not in {TIMEOUT_S} s: {what}"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The packages of this tree, and the newer ones to upgrade to, as <name>-new."""
    out = tmp_path_factory.mktemp("packages")
    run(TREE / "build/venv/bin/python", TREE / ".ci/package", "--out", out)
    found = {file.name.split("_")[0]: file for file in out.glob("*.deb")}
    for name in INSTALLED:
        content = out / "newer" / name
        content.parent.mkdir(exist_ok=True)
        run("dpkg-deb", "--raw-extract", found[name], content)
        control = content / "DEBIAN/control"
        version = run("dpkg-deb", "--field", found[name], "Version").strip()
        control.write_text(control.read_text().replace(version, version + "+1"))
        newer = out / f"{name}-new.deb"
        run("dpkg-deb", "--root-owner-group", "-Znone", "--build", content, newer)
        found[name + "-new"] = newer
    shutil.rmtree(out / "newer")
    return found | {"wheel": next(out.glob("rostrum_client-*.whl"))}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A minimal Debian with Python and nothing else."""
    folder = tmp_path_factory.mktemp("clean") / "root"
    arguments = ["--variant=minbase", "--include=python3,libssl3", "bookworm", folder, "http://deb.debian.org/debian"]
    run("debootstrap", *arguments)
    yield folder
    shutil.rmtree(folder)


def inside(root: Path, *fields: object) -> str:
    return run("chroot", root, *fields, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"})


def install(root: Path, *files: Path) -> None:
    for file in files:
        shutil.copy(file, root / "root")
    inside(root, "dpkg", "--install", *(f"/root/{file.name}" for file in files))


def command_line(root: Path, name: str) -> str:
    """What systemd runs for this unit; the shell splits $OPTIONS as systemd does."""
    for row in (root / "lib/systemd/system" / name).read_text().splitlines():
        if row.startswith("ExecStart="):
            return row.removeprefix("ExecStart=")
    raise AssertionError(f"{name} starts nothing")


class Place:
    """Network namespaces on one bridge; a program in one sees /run and /srv/rostrum of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.tag = root, f"pk{os.getpid()}"
        self.programs: list[subprocess.Popen[bytes]] = []
        self.names: list[str] = []

    def __enter__(self) -> Place:
        self.add("lan")
        run("ip", "-n", f"{self.tag}-lan", "link", "add", "name", "lan0", "type", "bridge")
        run("ip", "-n", f"{self.tag}-lan", "link", "set", "lan0", "up")
        return self

    def add(self, name: str, *addresses: str) -> None:
        space = f"{self.tag}-{name}"
        run("ip", "netns", "add", space)
        self.names.append(space)
        run("ip", "-n", space, "link", "set", "lo", "up")
        if addresses:
            lan = f"{self.tag}-lan"
            run("ip", "-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", name, "netns", lan)
            run("ip", "-n", lan, "link", "set", name, "master", "lan0", "up")
            for address in addresses:
                run("ip", "-n", space, "address", "add", address, "dev", "eth0")
            run("ip", "-n", space, "link", "set", "eth0", "up")

    def start(self, name: str, script: str, line: str) -> subprocess.Popen[bytes]:
        """`script` makes the place as root, `line` runs there as the unit's user, until __exit__."""
        user = "setpriv --reuid rostrum --regid rostrum --init-groups --inh-caps +net_admin --ambient-caps +net_admin"
        shell = f"{script}\nexec chroot {self.root} /usr/bin/env -i PATH=/usr/bin:/bin {user} sh -c {shlex.quote(line)}"
        text = ["ip", "netns", "exec", f"{self.tag}-{name}", "unshare", "--mount", "sh", "-ec", shell]
        with (self.root.parent / f"{name}.log").open("ab") as log:
            program = subprocess.Popen(text, stdout=log, stderr=log)
        self.programs.append(program)
        return program

    def stop(self) -> None:
        for program in self.programs:
            with contextlib.suppress(ProcessLookupError):
                program.send_signal(signal.SIGTERM)
        for program in self.programs:
            program.wait(TIMEOUT_S)
        self.programs.clear()

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            for program in self.programs:
                program.kill()
            for space in self.names:
                subprocess.run(["ip", "netns", "delete", space], check=False)


def start_all(place: Place) -> httpx.Client:
    """Manager and agents, from the units' command lines and files in /etc; REST as members of the group have it."""
    root = place.root
    state = f"mkdir -p {root}/run/rostrum-manager {root}/var/lib/rostrum-manager"
    own = f"chroot {root} chown rostrum:rostrum /run/rostrum-manager /var/lib/rostrum-manager"
    place.start("manager", f"{state}; {own}", "exec " + command_line(root, "rostrum-manager.service"))
    for name in SERVERS:
        folders = (
            f"mount -t tmpfs none {root}/run; mkdir {root}/run/rostrum; mount -t tmpfs -o size=64M none {root}/srv"
        )
        folders += f"; mkdir {root}/srv/rostrum; chroot {root} chown rostrum:rostrum /run/rostrum /srv/rostrum"
        conf = f"mount --bind {root}/etc/rostrum/{name}.conf {root}/etc/rostrum/agent.conf"
        line = f"set -a; . /etc/rostrum/agent.conf; exec {command_line(root, 'rostrumd.service')}"
        place.start(name, f"{folders}; {conf}", line)
    transport = httpx.HTTPTransport(uds=str(root / "run/rostrum-manager/manager.sock"))
    return httpx.Client(transport=transport, base_url="http://manager", timeout=TIMEOUT_S)


def connected(rest: httpx.Client) -> set[str]:
    try:
        agents = rest.get("/v1/agents").json()
    except httpx.TransportError:
        return set()
    agents = agents.get("agents", agents) if isinstance(agents, dict) else agents
    return {agent["server"] for agent in agents if agent.get("connected", True)}


def test_installed_from_packages_they_work_survive_an_upgrade_and_leave_nothing(
    packages: dict[str, Path], root: Path
) -> None:
    before = {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_relative_to(root / "var")}
    users = (root / "etc/passwd").read_text(), (root / "etc/group").read_text()
    install(root, *(packages[name] for name in INSTALLED))
    network = load("hybrid-4x2")
    conf = (root / "etc/rostrum/agent.conf").read_text()
    with Place(root) as place:
        place.add("manager", "10.255.0.1/8")
        for name in SERVERS:
            address = str(network.servers[name].address)
            place.add(name, f"{address}/8")
            own = conf.replace("SERVER=h1", f"SERVER={name}").replace("ADDRESS=10.0.1.1", f"ADDRESS={address}")
            (root / "etc/rostrum" / f"{name}.conf").write_text(own)
        (root / "etc/rostrum/agent.conf").write_text(conf + "# ours\n")
        rest = start_all(place)
        until(lambda: connected(rest) == set(SERVERS), "three agents at the manager")
        made = rest.post("/v1/groups", json={"name": "ticks"})
        assert made.is_success, made.text
        assert "ticks" in inside(root, "rostrum", "groups", "list")
        place.stop()

        newer = [packages[name + "-new"] for name in INSTALLED]
        install(root, *newer)
        assert (root / "etc/rostrum/agent.conf").read_text() == conf + "# ours\n"
        rest = start_all(place)
        until(lambda: connected(rest) == set(SERVERS), "three agents at the new manager")
        assert "ticks" in rest.get("/v1/groups").text
    for name in SERVERS:
        (root / "etc/rostrum" / f"{name}.conf").unlink()
    inside(root, "dpkg", "--purge", *INSTALLED)
    (root / "run/rostrum-manager").is_dir() and shutil.rmtree(root / "run/rostrum-manager")  # systemd does it
    after = {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_relative_to(root / "var")}
    left = {path for path in after - before if not path.startswith(("root/", "etc/ld.so.cache")) and path[-1] != "-"}
    assert not left
    assert not [path for path in (root / "var").rglob("*rostrum*") if "dpkg" not in path.parts]
    assert users == ((root / "etc/passwd").read_text(), (root / "etc/group").read_text())


def test_what_comes_with_the_programs(packages: dict[str, Path], tmp_path: Path) -> None:
    """Manual pages that man can format, completion that shells can read, an example that compiles as installed."""
    place = tmp_path / "all"
    for name in (*INSTALLED, "rostrum-lab"):
        run("dpkg-deb", "--extract", packages[name], place)
    for page in ("man1/rostrum.1", "man8/rostrumd.8", "man8/rostrum-manager.8"):
        assert "usage" in run("zcat", place / f"usr/share/man/{page}.gz").lower()
    run("bash", "-n", place / "usr/share/bash-completion/completions/rostrum")
    assert "#compdef rostrum" in (place / "usr/share/zsh/vendor-completions/_rostrum").read_text()
    configs = next(place.rglob("rostrum.pc")).parent
    environment = {**os.environ, "PKG_CONFIG_PATH": str(configs), "PKG_CONFIG_SYSROOT_DIR": str(place)}
    flags = run("pkg-config", "--cflags", "--libs", "rostrum", env=environment).split()
    example = place / "usr/share/doc/librostrum-dev/examples/send.c"
    run("gcc", "-D_GNU_SOURCE", example, "-o", tmp_path / "send", *flags)
    said = subprocess.run([tmp_path / "send"], env={"LD_LIBRARY_PATH": str(configs.parent)}, capture_output=True)
    assert said.returncode == 2
    assert b"usage:" in said.stderr


def test_the_client_is_a_distribution_of_its_own(packages: dict[str, Path], tmp_path: Path) -> None:
    """With click and rich it works, and a type checker believes it."""
    run("python3", "-m", "venv", tmp_path / "venv")
    run(tmp_path / "venv/bin/pip", "install", "-q", "--disable-pip-version-check", packages["wheel"])
    brought = run(tmp_path / "venv/bin/pip", "list", "--format=freeze", "--disable-pip-version-check").lower()
    for heavy in ("numpy", "matplotlib", "grpcio", "fastapi", "pydantic"):
        assert heavy not in brought
    python = tmp_path / "venv/bin/python"
    run(
        python,
        "-c",
        "import rostrum.client, importlib.resources as r; r.files(rostrum.client).joinpath('py.typed').read_text()",
    )
    listed = run(tmp_path / "venv/bin/rostrum", "--help")
    assert "send" in listed
    assert "  lab" not in listed
