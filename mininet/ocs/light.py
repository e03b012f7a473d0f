"""The model's light paths in the kernel: loads light.bpf.c, attaches it to the port interfaces, writes its map."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import struct
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from rostrum.lab.ocs import bpf
from rostrum.lab.ocs.model import Branch
from rostrum.topologies.model import Ocs

MAX_PORTS = 1024  # light.bpf.c: MAX_PORTS
MAX_OUTPUTS = 64  # light.bpf.c: MAX_OUTPUTS
TOOL_S = 30  # clang, bpftool and tc each finish within this

_OUTPUT = struct.Struct("=QQIIII")  # light.bpf.c: struct output
_CIRCUIT = struct.Struct("=II")  # light.bpf.c: struct circuit, without its outputs
_COUNTERS = struct.Struct("=8Q")  # light.bpf.c: struct counters
COUNTERS = ("rx_frames", "rx_bytes", "no_circuit", "forwarded", "forwarded_bytes", "dark", "ringing_lost", "lost")

Paths = Mapping[int, tuple[Branch, ...]]


class LightError(Exception):
    """Light cannot be had on this machine or in this place; the text says what failed."""


class Light(Protocol):
    """Where the model's light goes."""

    def apply(self, paths: Paths) -> None:
        """Let light go these ways from now on."""

    def counters(self) -> dict[int, dict[str, int]]:
        """By port: what came in (rx_*, no_circuit) and what left or was lost there (the others)."""

    def close(self) -> None: ...


class NoLight:
    """No interfaces: the TL1 side alone."""

    def apply(self, paths: Paths) -> None:
        pass

    def counters(self) -> dict[int, dict[str, int]]:
        return {}

    def close(self) -> None:
        pass


class KernelLight:
    """tc-bpf on the interfaces `<ocs>-p<N>`, one per cabled port, in this network namespace.

    Nothing stays behind: `close` takes the program off its interfaces, and what is pinned while loading is unpinned at
    once. Raises LightError.
    """

    def __init__(self, ocs: Ocs, cache: Path) -> None:
        self._interfaces = {port: f"{ocs.name}-p{port}" for port in sorted(ocs.attached)}
        if max(self._interfaces, default=0) >= MAX_PORTS:
            raise LightError(f"{ocs.name} has more than {MAX_PORTS - 1} ports")
        self._index = {port: _ifindex(name) for port, name in self._interfaces.items()}
        self._written: dict[int, bytes] = {}
        self._attached: list[str] = []
        try:
            self._load(ocs.name, _compiled(cache))
            self.apply({})
        except BaseException:
            self.close()
            raise

    def _load(self, name: str, program: Path) -> None:
        if not os.path.ismount("/sys/fs/bpf"):
            raise LightError("/sys/fs/bpf is not mounted here: mount -t bpf bpf /sys/fs/bpf")
        pins = Path(tempfile.mkdtemp(prefix=f"rostrum-{name}-", dir="/sys/fs/bpf"))
        try:
            _run("bpftool", "prog", "load", str(program), str(pins / "light"), "type", "classifier",
                 "pinmaps", str(pins))  # fmt: skip
            self._circuits = bpf.Map(pins / "circuits")
            self._counters = bpf.Map(pins / "counters")
            for interface in self._interfaces.values():
                _run("tc", "qdisc", "replace", "dev", interface, "clsact")
                self._attached.append(interface)
                _run("tc", "filter", "replace", "dev", interface, "ingress", "prio", "1", "handle", "1",
                     "bpf", "direct-action", "object-pinned", str(pins / "light"))  # fmt: skip
        except OSError as error:
            raise LightError(f"cannot reach the light program's maps: {error}") from error
        finally:
            for pin in pins.iterdir():
                pin.unlink()
            pins.rmdir()

    def apply(self, paths: Paths) -> None:
        for port, index in self._index.items():
            value = self._pack(port, paths.get(port, ()))
            if self._written.get(port) != value:
                self._circuits.update(struct.pack("=I", index), value)
                self._written[port] = value

    def _pack(self, port: int, branches: tuple[Branch, ...]) -> bytes:
        if len(branches) > MAX_OUTPUTS:
            raise LightError(f"light from input {port} reaches {len(branches)} ToRs; {MAX_OUTPUTS} is the most")
        value = _CIRCUIT.pack(port, len(branches))
        for b in branches:
            value += _OUTPUT.pack(
                b.dark_until_ns, b.ringing_until_ns, self._index[b.output], b.output, _ppm(b.ringing_loss), _ppm(b.loss)
            )
        return value.ljust(_CIRCUIT.size + MAX_OUTPUTS * _OUTPUT.size, b"\0")

    def counters(self) -> dict[int, dict[str, int]]:
        result = {}
        for port in self._index:
            raw = self._counters.lookup(struct.pack("=I", port), _COUNTERS.size * bpf.possible_cpus())
            totals = map(sum, zip(*_COUNTERS.iter_unpack(raw), strict=True))
            result[port] = dict(zip(COUNTERS, totals, strict=True))
        return result

    def close(self) -> None:
        for interface in self._attached:
            # An interface that went away took the program with it, so there is nothing to be done about a failure here.
            subprocess.run(
                ("tc", "qdisc", "del", "dev", interface, "clsact"), capture_output=True, timeout=TOOL_S, check=False
            )
        self._attached.clear()
        for name in ("_circuits", "_counters"):
            opened = getattr(self, name, None)
            if opened is not None:
                opened.close()


def _ppm(share: float) -> int:
    return round(share * 1_000_000)


def _ifindex(interface: str) -> int:
    try:
        return socket.if_nametoindex(interface)
    except OSError:
        raise LightError(
            f"there is no interface {interface} in this network namespace; start the emulator where the OCS' port "
            f"interfaces are, or with --no-light"
        ) from None


def _compiled(cache: Path) -> Path:
    """The program's object file, compiled unless this version is in `cache` already."""
    source = Path(__file__).resolve().with_name("light.bpf.c")
    version = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    target = cache / f"light-{version}.bpf.o"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            made = Path(folder) / "light.o"
            include = f"/usr/include/{sysconfig.get_config_var('MULTIARCH')}"
            _run("clang", "-O2", "-g", "-Wall", "-Werror", "-target", "bpf", f"-I{include}", "-c", str(source),
                 "-o", str(made))  # fmt: skip
            made.replace(target)
    return target


def _run(*command: str) -> None:
    if shutil.which(command[0]) is None:
        raise LightError(f"{command[0]} is not installed (see .ci/packages)")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_S, check=False)
    except subprocess.TimeoutExpired:
        raise LightError(f"{' '.join(command)} did not finish within {TOOL_S} s") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise LightError(f"{' '.join(command)}: {said or f'exit status {done.returncode}'}")
