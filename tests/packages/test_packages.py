"""`make packages` in a clean Debian: installed, started as the units start them, upgraded, removed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.apps, pytest.mark.timeout(900)]

TREE = Path(__file__).parents[2]
MANAGER = "10.0.0.100"
SERVERS = ("h1", "h2", "h3")
ADDRESSES = {"manager": MANAGER, "h1": "10.0.0.1", "h2": "10.0.0.2", "h3": "10.0.0.3"}
INSTALLED = ("rostrum-agent", "rostrum-client", "rostrum-manager", "librostrum-dev")
UNITS = ("rostrumd.service", "srv-rostrum.mount")
TIMEOUT_S = 60
TOPOLOGY = """rostrum: 1
name: clean
network: {data: 10.0.0.0/24, management: 10.0.0.0/24, multicast: 239.192.0.0/16, mtu: 1500}
manager: {address: 10.0.0.100, openflow_port: 6653, thrift_port: 9090, rest_port: 8080}
agent: {control_port: 7071, data_port: 7070}
switches:
  lan: {role: tor, southbound: none}
servers:
  h1: {address: 10.0.0.1, management: 10.0.0.1}
  h2: {address: 10.0.0.2, management: 10.0.0.2}
  h3: {address: 10.0.0.3, management: 10.0.0.3}
links:
  - {a: h1, b: "lan:1", rate: 1G}
  - {a: h2, b: "lan:2", rate: 1G}
  - {a: h3, b: "lan:3", rate: 1G}
"""
DISK = """install -d -o rostrum -g rostrum /data/rostrum
install -d /etc/systemd/system/rostrumd.service.d
printf '%s\\n' [Unit] RequiresMountsFor=/data/rostrum [Service] ReadWritePaths=/data/rostrum \\
    >/etc/systemd/system/rostrumd.service.d/disk.conf
systemctl daemon-reload
"""


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
    """A minimal Debian with systemd and Python, and nothing else."""
    folder = tmp_path_factory.mktemp("clean") / "root"
    arguments = [
        "--variant=minbase",
        "--include=python3,libssl3,systemd" + (",libipsec-mb1" if platform.machine() == "x86_64" else ""),
        "bookworm",
        folder,
        "http://deb.debian.org/debian",
    ]
    run("debootstrap", *arguments)
    yield folder
    shutil.rmtree(folder)


BOOT = """
mkdir -p {base}; mount -t tmpfs none {base}; cd {base}; mkdir upper work root
mount -t overlay overlay -o lowerdir={clean},upperdir=upper,workdir=work root; cd root
mount -t proc proc proc; mount -t sysfs -o ro sysfs sys; mount -t cgroup2 cgroup2 sys/fs/cgroup
for each in run tmp dev; do mount -t tmpfs none $each; done
chmod 755 run dev; chmod 1777 tmp; mkdir dev/shm dev/pts
for each in null zero full random urandom tty; do touch dev/$each; mount --bind /dev/$each dev/$each; done
mount -t tmpfs none dev/shm; mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx; ln -s /proc/self/fd dev/fd
echo {name} >etc/hostname; mkdir old; pivot_root . old; umount -l old; rmdir old
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --log-target=null
"""


def unified() -> Path:
    """Where the second kind of control groups is mounted, beside the first kind or alone."""
    rows = (row.split() for row in Path("/proc/self/mounts").read_text().splitlines())
    return next(Path(row[1]) for row in rows if row[2] == "cgroup2")


class Machine:
    """A server of its own: systemd, over a copy of the clean Debian in memory, with eth0 on the LAN. Nothing of it is
    on this machine's disk."""

    def __init__(self, clean: Path, name: str, lan: str, address: str) -> None:
        self.name, self.group = name, unified() / f"{lan}-{name}"
        self.group.mkdir()
        join = f"echo $$ >{self.group}/cgroup.procs; exec unshare --pid --mount --cgroup --ipc --uts --net --fork"
        script = BOOT.format(base=clean.parent / "machine", clean=clean, name=name)
        line = f"{join} --kill-child --propagation private sh -ec {shlex.quote(script)}"
        self.program = subprocess.Popen(["sh", "-ec", line], stdin=subprocess.DEVNULL)
        children = Path(f"/proc/{self.program.pid}/task/{self.program.pid}/children")
        until(lambda: bool(children.read_text()), "a child in namespaces of its own")
        self.pid = int(children.read_text())
        until(lambda: Path(f"/proc/{self.pid}/comm").read_text() == "systemd\n", f"systemd of {name}")
        run("ip", "-n", lan, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", self.pid)
        run("ip", "-n", lan, "link", "set", name, "master", "lan0", "up")
        space = ["nsenter", "--net", "--target", str(self.pid), "ip"]
        run(*space, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            run(*space, "link", "set", device, "up")
        until(lambda: self.says("systemctl", "is-system-running") in ("running", "degraded"), f"{name} is up")
        assert self.says("systemctl", "list-units", "--failed", "--no-legend") == ""

    def enter(self, *fields: object) -> list[str]:
        environment = ["/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/root"]
        return ["nsenter", "--all", "--target", str(self.pid), *environment, *map(str, fields)]

    def says(self, *fields: object) -> str:
        """What it prints, whatever its status is."""
        return subprocess.run(self.enter(*fields), capture_output=True, text=True).stdout.strip()

    def run(self, *fields: object) -> str:
        return run(*self.enter(*fields))

    def write(self, path: str, text: str) -> None:
        subprocess.run(self.enter("tee", path), input=text, text=True, check=True, stdout=subprocess.DEVNULL)

    def install(self, *files: str) -> None:
        self.run("dpkg", "--install", *(f"/var/tmp/{file}.deb" for file in files))

    def process(self, service: str) -> str:
        return self.says("systemctl", "show", "--property", "MainPID", "--value", service)

    def has(self) -> set[str]:
        """Files and folders, users and groups; not what dpkg and the linker remember."""
        leave = ("/var/lib/dpkg/", "/var/log/", "/var/cache/", "/etc/ld.so.cache", "/var/tmp/")
        files = self.run("find", "/", "/run", "-xdev", "!", "-path", "/run/systemd/*").splitlines()
        names = self.run("cat", "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow").splitlines()
        return {file for file in files if not file.startswith(leave) and file[-1] != "-"} | set(names)

    def kill(self) -> None:
        self.program.kill()
        self.program.wait()

    def is_gone(self) -> bool:
        """Its control groups can be removed once nothing runs in them any more, and are."""
        groups = sorted(folder for folder in self.group.rglob("*") if folder.is_dir())
        with contextlib.suppress(OSError):
            for group in [*reversed(groups), self.group]:
                group.rmdir()
        return not self.group.exists()


@contextlib.contextmanager
def machines(clean: Path) -> Iterator[dict[str, Machine]]:
    """The manager and three servers on a bridge."""
    lan = f"pk{os.getpid()}"
    run("ip", "netns", "add", lan)
    made: dict[str, Machine] = {}
    try:
        run("ip", "-n", lan, "link", "add", "name", "lan0", "type", "bridge", "mcast_snooping", "0")
        run("ip", "-n", lan, "link", "set", "lan0", "up")
        for name, address in ADDRESSES.items():
            made[name] = Machine(clean, name, lan, address)
        yield made
    finally:
        for machine in made.values():
            machine.kill()
        run("ip", "netns", "delete", lan)
        until(lambda: all(machine.is_gone() for machine in made.values()), "no program of a machine is left")


def all_ready(manager: Machine) -> None:
    wanted = f"{len(SERVERS)} connected"
    until(lambda: wanted in manager.says("rostrum", "manager", "status"), f"agents at the manager: {wanted}")


def test_the_java_package_is_a_repository_for_spark_submit(packages: dict[str, Path], tmp_path: Path) -> None:
    if "librostrum-java" not in packages:
        pytest.skip("needs a JDK and Spark's archives: run .ci/setup apps")
    run("dpkg-deb", "-x", packages["librostrum-java"], tmp_path)
    version = (TREE / "VERSION").read_text().strip()
    for name in ("rostrum-client", "rostrum-spark_2.12", "rostrum-spark_2.13"):
        folder = tmp_path / "usr/share/maven-repo/org/rostrum" / name / version
        for end in ("jar", "pom"):
            file = folder / f"{name}-{version}.{end}"
            assert file.with_name(f"{file.name}.sha1").read_text() == hashlib.sha1(file.read_bytes()).hexdigest()
        assert f"<artifactId>{name}</artifactId>" in (folder / f"{name}-{version}.pom").read_text()
    classes = zipfile.ZipFile(tmp_path / "usr/share/java/rostrum-spark.jar").namelist()
    assert {"org/rostrum/spark/RostrumPlugin.class", "org/rostrum/client/Agent.class"} <= set(classes)


def test_installed_from_packages_they_work_survive_an_upgrade_and_leave_nothing(
    packages: dict[str, Path], root: Path
) -> None:
    """By systemd, as docs/operating.md says: units, default files, a send; newer packages; a purge."""
    for name, file in packages.items():
        if file.suffix == ".deb":
            shutil.copy(file, root / "var/tmp" / f"{name}.deb")
    with machines(root) as place:
        manager, servers = place["manager"], [place[name] for name in SERVERS]
        before = {name: machine.has() for name, machine in place.items()}
        manager.install("rostrum-client", "rostrum-manager")
        manager.write("/etc/rostrum/topology.yaml", TOPOLOGY)
        manager.run("systemctl", "enable", "--now", "rostrum-manager")
        for server in servers:
            server.install("rostrum-agent", "rostrum-client", "librostrum-dev")
            server.run("systemd-analyze", "verify", *(f"/lib/systemd/system/{name}" for name in UNITS))
            conf = server.run("cat", "/etc/rostrum/agent.conf")
            for old, new in (("h1", server.name), ("10.0.1.1", ADDRESSES[server.name]), ("10.255.0.1", MANAGER)):
                conf = conf.replace(old, new)
            conf = conf.replace("OPTIONS=", "OPTIONS=--to-disk /data/rostrum")
            server.write("/etc/rostrum/agent.conf", conf)
            server.run("sh", "-ec", DISK)
            server.run("systemctl", "enable", "--now", "srv-rostrum.mount", "rostrumd")
        all_ready(manager)
        servers[0].run("sh", "-c", "head -c 3000000 /dev/urandom >/var/tmp/first.bin")
        servers[0].run("rostrum", "send", "/var/tmp/first.bin", "--to", "h2,h3")
        manager.run("rostrum", "groups", "create", "ticks")
        services = {machine.name: "rostrumd.service" for machine in servers} | {"manager": "rostrum-manager.service"}
        ran = {name: place[name].process(service) for name, service in services.items()}

        manager.install("rostrum-client-new", "rostrum-manager-new")
        for server in servers:
            server.install("rostrum-agent-new", "rostrum-client-new", "librostrum-dev-new")
            assert ADDRESSES[server.name] in server.run("cat", "/etc/rostrum/agent.conf")
        for name, service in services.items():
            assert place[name].process(service) not in ("0", ran[name]), f"{name}: the new one does not run"
        all_ready(manager)
        assert "ticks" in manager.run("rostrum", "groups", "list")
        until(lambda: "first.bin" in manager.says("rostrum", "objects"), "the manager knows who holds it")
        digest = servers[0].run("sha256sum", "/var/tmp/first.bin").split()[0]
        for server in servers[1:]:
            assert "first.bin" in server.run("rostrum", "status")
            server.run("rostrum", "read", "first.bin", "-o", "/var/tmp/copy.bin")
            assert digest in server.run("sha256sum", "/var/tmp/copy.bin")
        servers[2].run("rostrum", "send", "/etc/os-release", "--to", "h1")

        for machine in place.values():
            names = [name for name in INSTALLED if machine.says("dpkg-query", "--show", name)]
            machine.run("rm", "-rf", "/data", "/etc/systemd/system/rostrumd.service.d")
            machine.run("dpkg", "--purge", *names)
            assert machine.has() == before[machine.name]
            assert "rostrum" not in machine.run("systemctl", "list-units", "--all", "rostrum*", "srv-rostrum*")


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
