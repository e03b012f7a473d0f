"""What a run costs: processor time of the two sides and of the machine, softirq time by host, memory.

Processor time of a side is that of its control group: all its processes, ended ones too, and the work the kernel does
while they run. That includes forwarding packets (softirq): a sent packet crosses the bridge and comes to the receivers'
sockets in the sender's time. `Softirq` tells that part apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import struct
import subprocess
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from rostrum.lab.namespace import LabError
from rostrum.lab.ocs import bpf

FOLDER = Path(__file__).resolve().parent
SAMPLE_S = 0.1
KILL_BOUND_S = 10.0
MB = 1 << 20


class Groups:
    """Control groups (version 2) of this bench, one for each side of a run. They go with `close`."""

    def __init__(self, mount: Path) -> None:
        mount.mkdir(parents=True, exist_ok=True)
        must("mount", "-t", "cgroup2", "none", str(mount))
        for old in mount.glob("rostrum-bench-*"):
            if (lock := _lock(old)) is not None:  # else of a bench that still runs
                os.close(lock)
                _remove(old)
        self._lock: int | None = None
        while self._lock is None:  # another one may take it for an old one before it is locked
            self.root = mount / f"rostrum-bench-{os.urandom(4).hex()}"
            self.root.mkdir()
            self._lock = _lock(self.root)

    def side(self, name: str) -> Side:
        return Side(self.root / name)

    def close(self) -> None:
        _remove(self.root)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _lock(folder: Path) -> int | None:
    """A descriptor that holds it until it is closed, or its process ends; None: another bench has it, or it is gone."""
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return None
    return held


class Side:
    """The processes of one side of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    @property
    def procs(self) -> Path:
        """The file to write a process' number to, so that it and its children belong here."""
        return self.folder / "cgroup.procs"

    def pids(self) -> list[int]:
        return [int(word) for word in self.procs.read_text().split() if word != "0"]

    def cpu_s(self) -> float:
        """Processor time so far, also of processes that ended."""
        found = re.search(r"usage_usec (\d+)", (self.folder / "cpu.stat").read_text())
        return int(found[1]) / 1e6 if found else 0.0

    def resident_mb(self) -> float:
        """Memory of the largest process but that of mapped objects: heap, stacks, rings, program text."""
        return max((_resident(pid) for pid in self.pids()), default=0.0)

    def kill(self) -> None:
        """Ends all its processes. Raises LabError if they stay."""
        until = time.monotonic() + KILL_BOUND_S
        while left := self.pids():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > until:
                raise LabError(f"processes {left} do not end {KILL_BOUND_S:.0f} s after SIGKILL")
            time.sleep(0.005)

    def remove(self) -> None:
        """After `kill`: the kernel may need a moment to let the last process go."""
        until = time.monotonic() + KILL_BOUND_S
        while self.folder.exists():
            try:
                self.folder.rmdir()
            except OSError as error:
                if time.monotonic() > until:
                    raise LabError(f"control group {self.folder.name} stays: {error}") from error
                time.sleep(0.005)


class Peak:
    """Samples the resident memory of both sides while it is entered; `mb` is the most that was seen of each."""

    def __init__(self, sides: dict[str, Side]) -> None:
        self.sides = sides
        self.mb = dict.fromkeys(sides, 0.0)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory")

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            for name, side in self.sides.items():
                self.mb[name] = max(self.mb[name], side.resident_mb())
            if self._done.wait(SAMPLE_S):
                return


class Softirq:
    """Time spent on packets in softirq, by the network namespace of the task that was interrupted.

    Where the kernel cannot (no BPF type information), `why` says so and every host's time is None.
    """

    def __init__(self, cache: Path) -> None:
        self.why = ""
        self._links: list[int] = []
        try:
            program = compiled("softirq.bpf.c", cache)
            with pinned(program, "loadall") as pins:
                self._spent = bpf.Map(pins / "spent")
                self._links = [bpf.attach_tracing(pins / name) for name in ("entry", "leave")]
        except (LabError, OSError) as error:
            self.why = f"softirq time is not told apart: {error}"

    def by_namespace(self) -> dict[int, float] | None:
        """Seconds so far, by the namespace's inode number; that of the kernel's own threads is under the machine's."""
        if self.why:
            return None
        found = {}
        for key in self._spent.keys(4):
            values = struct.unpack(f"={bpf.possible_cpus()}Q", self._spent.lookup(key, 8 * bpf.possible_cpus()))
            found[struct.unpack("=I", key)[0]] = sum(values) / 1e9
        return found

    def close(self) -> None:
        for link in self._links:
            os.close(link)


def machine_busy_s() -> float:
    """Processor time of the whole machine so far, all but idle and waiting for disks; in steps of 10 ms."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = dict(re.findall(r"^(RssAnon|RssFile):\s+(\d+) kB", status, re.MULTILINE))
    return sum(int(value) for value in found.values()) / 1024


def _remove(folder: Path) -> None:
    for inner in [*folder.glob("*/"), folder]:
        with contextlib.suppress(OSError):
            inner.rmdir()


# --- programs for the kernel ---


def compiled(name: str, cache: Path) -> Path:
    """The object file of a BPF program beside this module. Raises LabError."""
    target = cache / f"{name.removesuffix('.c')}.o"
    source = FOLDER / name
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            made = Path(folder) / "program.o"
            include = f"/usr/include/{sysconfig.get_config_var('MULTIARCH')}"
            machine = {"x86_64": "x86", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
            must("clang", "-O2", "-g", "-Wall", "-Werror", "-target", "bpf", f"-D__TARGET_ARCH_{machine}",
                 f"-I{include}", "-c", str(source), "-o", str(made))  # fmt: skip
            made.replace(target)
    return target


@contextlib.contextmanager
def pinned(program: Path, how: str, *options: str) -> Iterator[Path]:
    """Loads an object file's programs, pinned with their maps in a folder that is gone afterwards."""
    pins = Path(tempfile.mkdtemp(prefix="rostrum-bench-", dir="/sys/fs/bpf"))
    try:
        target = pins if how == "loadall" else pins / "program"
        must("bpftool", "prog", how, str(program), str(target), *options, "pinmaps", str(pins))
        yield pins
    finally:
        for pin in pins.iterdir():
            pin.unlink()
        pins.rmdir()


def must(*command: str) -> str:
    """Runs a command; its output. Raises LabError with its text."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        raise LabError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-1000:] or done.returncode}")
    return done.stdout
