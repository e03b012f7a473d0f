"""Gets the tools that a bench compares with: Debian's packages, Java's from Maven's registry, our small drivers built.

What cannot be had is no error: the bench reports the tool as missing, with the reason.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rostrum.bench.account import FOLDER
from rostrum.bench.tools.aeron import VERSION as AERON
from rostrum.lab.processes import bench_programs

NATIVE = FOLDER / "native"
BOUND_S = 600
JGROUPS = "5.3.18.Final"
POLICY = Path("/usr/sbin/policy-rc.d")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Need:
    """What a tool takes: `there` says if a package is not needed any more (it may be here by other ways)."""

    package: str
    there: Callable[[], bool]


def _program(*names: str) -> Callable[[], bool]:
    return lambda: all(shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin") for name in names)


def _library(name: str) -> Callable[[], bool]:
    return lambda: _quiet("pkg-config", "--exists", name) == ""


JAVA = (Need("default-jdk-headless", _program("java", "javac")), Need("maven", _program("mvn")))
NEEDS: dict[str, tuple[Need, ...]] = {
    "uftp": (Need("uftp", _program("uftp", "uftpd")),),
    "udpcast": (Need("udpcast", _program("udp-sender", "udp-receiver")),),
    "norm": (Need("libnorm-dev", _library("norm")),),
    "norm_messages": (Need("libnorm-dev", _library("norm")),),
    "pgm": (Need("libpgm-dev", _library("openpgm-5.3")),),
    "http": (Need("nginx-light", _program("nginx")), Need("curl", _program("curl"))),
    "aeron": JAVA,
    "jgroups": JAVA,
    "jgroups_order": JAVA,
    "corosync": (Need("corosync", _program("corosync")), Need("libcpg-dev", _library("libcpg"))),
}


@dataclass(frozen=True)
class Java:
    """A library from Maven's registry, and our programs for it."""

    artifact: str
    programs: tuple[str, ...]


JARS = {
    "aeron": Java(f"io.aeron:aeron-all:{AERON}", ("AeronCopy", "Stamps", "AeronMessages")),
    "jgroups": Java(f"org.jgroups:jgroups:{JGROUPS}", ("Stamps", "JGroupsMessages")),
    "jgroups_order": Java(f"org.jgroups:jgroups:{JGROUPS}", ("JGroupsOrder",)),
}


def install(tools: Iterable[str], place: Path, say: Say) -> dict[str, str]:
    """Installs what the tools need. `place`: for what no package has. Why tools are missing, by name."""
    wanted = [name for name in NEEDS if name in set(tools)]
    lacking = sorted({need.package for name in wanted for need in NEEDS[name] if not need.there()})
    text = _install_packages(lacking, say) if lacking else ""
    missing = {
        name: f"{', '.join(absent)} cannot be installed: {text}"
        for name in wanted
        if (absent := [need.package for need in NEEDS[name] if not need.there()])
    }
    drivers: list[str] = [name for name in ("norm", "norm_messages", "pgm") if name in wanted and name not in missing]
    programs = bench_programs()
    build = programs.parents[1]
    if not all((programs / name).exists() for name in drivers):
        say(f"building the drivers of {' and '.join(drivers)}")
        text = _quiet("meson", "setup", "--reconfigure", str(build)) or _quiet("ninja", "-C", str(build))
        for name in drivers:
            if not (programs / name).exists():
                missing[name] = f"its driver cannot be built: {text}"
    for name, java in JARS.items():
        if name in wanted and name not in missing and (text := _install_java(java, place, say)):
            missing[name] = text
    return missing


def _install_packages(packages: list[str], say: Say) -> str:
    if os.geteuid() != 0:
        return "that takes root"
    say(f"installing Debian packages: {' '.join(packages)}")
    with _no_services():
        text = _quiet("apt-get", "update", "-qq")
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends"]
        # One by one if not all at once: one that is not to be had should not keep the others away.
        if _quiet(*install, *packages):
            text = "; ".join(filter(None, (_quiet(*install, package) for package in packages))) or text
    return text


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    """Packages start no services (nginx, uftpd) while this is entered."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def _install_java(java: Java, place: Path, say: Say) -> str:
    """The jar by Maven, our programs compiled against it; why not, or ""."""
    place.mkdir(parents=True, exist_ok=True)
    group, name, version = java.artifact.split(":")
    jar = place / f"{name}-{version}.jar"
    if not jar.exists():
        say(f"getting {name} {version} with Maven")
        plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
        if text := _quiet("mvn", "-q", "-B", plugin, f"-Dartifact={java.artifact}", f"-DoutputDirectory={place}"):
            return f"{group}:{name} cannot be had: {text}"
    sources = [NATIVE / f"{program}.java" for program in java.programs]
    compiled = place / f"{java.programs[-1]}.class"
    if compiled.exists() and compiled.stat().st_mtime > max(source.stat().st_mtime for source in sources):
        return ""
    text = _quiet("javac", "-cp", str(jar), "-d", str(place), *map(str, sources))
    return f"{compiled.stem}.java does not compile: {text}" if text else ""


def _quiet(*command: str) -> str:
    """Runs a command; "" if it succeeds, else its final messages."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    if done.returncode == 0:
        return ""
    return (done.stderr or done.stdout).strip()[-300:] or f"{command[0]} ended with status {done.returncode}"
