"""A private world for a lab or a test: network, mount and process namespaces with an Open vSwitch of their own.

    with PrivateNamespace() as ns:
        ns.run(["ovs-vsctl", "add-br", "s1", "--", "set", "bridge", "s1", "datapath_type=netdev"])

The machine sees nothing of it, and all of it ends with its first process, however that dies: nothing is left to
clean up. This module is also that first process (`python -m rostrum.lab.namespace`).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from rostrum.topologies.places import build_folder

FOLDER = Path(__file__).resolve().parent
BUILD = build_folder()
START_BOUND_S = 30.0
# Open vSwitch allocates and frees a batch of jumbo buffers at each look at a port; by default the C library gives that
# memory back to the kernel every time, and the page faults cost a third of what the switch can forward.
SWITCH_MALLOC = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_TOP_PAD_": str(64 << 20)}
TOOLS = [
    "unshare",
    "nsenter",
    "mount",
    "ip",
    "tc",
    "ovsdb-tool",
    "ovsdb-server",
    "ovs-vswitchd",
    "ovs-vsctl",
    "setpriv",
]


class LabError(Exception):
    """Something of the lab did not come up or did not do what was asked; the text says what, and what to look at."""


class PrivateNamespace:
    """Namespaces whose first process waits (until `stop` or the end of this process) or runs `command` to its end.

    `switches`: start an Open vSwitch (user-space datapath) in them. `log`: a folder for the logs of its daemons.
    They end with this process unless it calls `detach`. `pid` is the first process as seen from here.
    """

    def __init__(
        self,
        *,
        switches: bool = True,
        log: Path | None = None,
        command: Sequence[str] = (),
        output: IO[Any] | int | None = None,
    ) -> None:
        self.switches, self.log, self.command, self.output = switches, log, list(command), output
        self.pid = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._alive_fd = -1

    def __enter__(self) -> PrivateNamespace:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when the namespaces and the switches in them are ready. Raises LabError."""
        check_machine()
        if self.log:
            self.log.mkdir(parents=True, exist_ok=True)
        options = {"switches": self.switches, "log": str(self.log or ""), "command": self.command}
        ready_read, ready_write = os.pipe()
        alive_read, self._alive_fd = os.pipe()
        try:
            self._process = subprocess.Popen(
                [
                    *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"),
                    *(sys.executable, "-m", "rostrum.lab.namespace", str(ready_write), json.dumps(options)),
                ],
                stdin=alive_read,
                stdout=self.output,
                stderr=self.output,
                pass_fds=[ready_write],
                start_new_session=True,
            )
        finally:
            os.close(ready_write)
            os.close(alive_read)
        try:
            answer = _read_line(ready_read, START_BOUND_S)
        finally:
            os.close(ready_read)
        if answer != "ready":
            self.stop()
            raise LabError(f"private namespaces did not come up: {answer}")
        self.pid = _only_child(self._process.pid)

    def stop(self) -> None:
        """Ends everything in the namespaces, at once."""
        if self._process:
            if self._alive_fd >= 0:
                os.close(self._alive_fd)
                self._alive_fd = -1
            if self._process.poll() is None:
                # unshare takes the first process with it (--kill-child), and the kernel all the others.
                self._process.kill()
            self._process.wait()
            self._process = None

    def detach(self) -> None:
        """Lets the namespaces go on when this process ends, or calls `stop` no more."""
        os.write(self._alive_fd, b"d")

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self, timeout_s: float | None = None) -> int:
        """Waits for the end of `command`; its exit status. Raises subprocess.TimeoutExpired."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def enter(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` in these namespaces; it ends with its caller."""
        return enter_argv(self.pid, argv)

    def run(
        self, argv: Sequence[str], *, check: bool = True, timeout_s: float = 60.0, input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in the namespaces to its end. Raises LabError with its output if it fails under `check`."""
        pipe = subprocess.PIPE
        process = self.popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        try:
            output, errors = process.communicate(input, timeout_s)
        except subprocess.TimeoutExpired as error:
            process.kill()
            output, errors = process.communicate()
            raise LabError(
                f"{' '.join(argv)}: not done after {timeout_s:g} s; it said: {(errors or output)[-2000:]}"
            ) from error
        if check and process.returncode:
            raise LabError(f"{' '.join(argv)}: exit {process.returncode}: {(errors or output).strip()[-2000:]}")
        return subprocess.CompletedProcess(list(argv), process.returncode, output, errors)

    def popen(self, argv: Sequence[str], **options: Any) -> Entered:
        """Starts a command in the namespaces; killing it, or the end of this process, ends it."""
        return Entered(self.enter(argv), **options)


class Entered(subprocess.Popen[Any]):
    """A command behind `nsenter`, which forks to enter a process namespace and passes no signals on to it: we do."""

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            try:
                os.kill(_only_child(self.pid), sig)
            except (OSError, IndexError):  # not forked yet, or ended already
                super().send_signal(sig)


def enter_argv(pid: int, argv: Sequence[str], *, of: int | None = None) -> list[str]:
    """The command line that runs `argv` in the namespaces of process `pid`.

    With `of`: in the network and mount namespaces of the process that has this number in there.
    """
    inner = ["nsenter", f"--target={of}", "--net", "--mount", "--"] if of else []
    # Whatever ends nsenter (which stays outside and waits) ends the command too.
    return [
        *("nsenter", f"--target={pid}", "--net", "--mount", "--pid", f"--wdns={Path.cwd()}", "--"),
        *("setpriv", "--pdeathsig", "KILL", "--", *inner, *argv),
    ]


def check_machine() -> None:
    """Raises LabError if this process cannot make a lab, saying what is missing."""
    if os.geteuid() != 0:
        raise LabError("the lab needs root (network namespaces); run it with sudo")
    try:
        os.getcwd()
    except FileNotFoundError:
        raise LabError("the current folder is there no more, and programs cannot begin in it: cd to another") from None
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise LabError(f"not installed: {', '.join(missing)}; run .ci/setup")
    if importlib.util.find_spec("mininet") is None or importlib.util.find_spec("mininet.net") is None:
        raise LabError(
            "this Python has no Mininet, which is a module of Debian's own: make the environment by "
            "/usr/bin/python3 -m venv --system-site-packages"
        )


def buffers_library(switch: str = "vswitchd") -> Path:
    """The library that gives a software switch larger packet buffers, compiled when its source is new."""
    source = FOLDER / f"{switch}_buffers.c"
    name = f"{switch}_buffers-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}.so"
    library = BUILD / "lab-tools" / name
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        scratch = library.with_suffix(f".{os.getpid()}")
        _must(["cc", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", str(scratch), str(source), "-ldl"])
        scratch.rename(library)
    return library


def preloaded(library: Path, folder: Path = Path("/run")) -> str:
    """Its name for LD_PRELOAD, where spaces and colons part names: of such a path a link in the private /run."""
    if not set(str(library)) & set(" :"):
        return str(library)
    link = folder / library.name
    if not link.is_symlink():
        link.symlink_to(library)
    return str(link)


def _read_line(fd: int, bound_s: float) -> str:
    deadline, text = time.monotonic() + bound_s, b""
    while b"\n" not in text:
        readable, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            return f"nothing heard from their first process for {bound_s:.0f} s"
        part = os.read(fd, 4096)
        if not part:
            return text.decode(errors="replace").strip() or "their first process ended at once"
        text += part
    return text.split(b"\n")[0].decode(errors="replace")


def _only_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


# --- from here on: the first process inside ---


def _must(argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=START_BOUND_S, check=False)
    if done.returncode:
        raise LabError(f"{' '.join(argv)}: exit {done.returncode}: {(done.stderr or done.stdout).strip()[-1000:]}")


def _mounts() -> None:
    """A /run of its own (Open vSwitch's sockets, named namespaces), and /sys and BPF objects of the new network."""
    _must(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"])
    for folder in ("/run/openvswitch", "/run/netns", "/run/lock"):
        Path(folder).mkdir()
    _must(["mount", "-t", "sysfs", "sysfs", "/sys"])
    _must(["mount", "-t", "bpf", "bpf", "/sys/fs/bpf"])


def _start_switches(log: str) -> None:
    database, folder = "/run/openvswitch/conf.db", log or "/run/openvswitch"
    _must(["ovsdb-tool", "create", database, "/usr/share/openvswitch/vswitch.ovsschema"])
    daemon = ["--pidfile", "--detach", "--no-chdir", "-vconsole:off", "-vsyslog:off"]
    remote = "--remote=punix:/run/openvswitch/db.sock"
    _must(["ovsdb-server", database, remote, f"--log-file={folder}/ovsdb-server.log", *daemon])
    _must(["ovs-vsctl", "--no-wait", "init"])
    # Forwarding competes with the agents for the same cores; a real switch does not.
    _must(
        ["nice", "-n", "-10", "ovs-vswitchd", f"--log-file={folder}/ovs-vswitchd.log", *daemon],
        env={**os.environ, **SWITCH_MALLOC, "LD_PRELOAD": preloaded(buffers_library())},
    )


def _main(ready_fd: int, options: dict[str, Any]) -> int:
    """Sets the namespaces up, says so on `ready_fd`, and is their init until standard input or the command ends."""
    # From a terminal, Ctrl-C is for the program that started this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _mounts()
        _must(["ip", "link", "set", "lo", "up"])
        Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
        if options["switches"]:
            _start_switches(options["log"])
    except (LabError, OSError, subprocess.SubprocessError) as error:
        os.write(ready_fd, f"{error}".replace("\n", " ").encode()[:4000] + b"\n")
        return 1
    command: subprocess.Popen[bytes] | None = None
    if options["command"]:
        command = subprocess.Popen(options["command"], stdin=subprocess.DEVNULL)
    os.write(ready_fd, b"ready\n")
    os.close(ready_fd)
    return _reap(command.pid if command else 0)


def _reap(command: int) -> int:
    """Reaps its children and the orphans it inherits, until `command` ended or the starter closed standard input.

    A starter that detaches writes a byte there first.
    """
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    watched = [wake_read, 0]
    while True:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == command:
                    return os.waitstatus_to_exitcode(ended[1]) & 0xFF
        readable, _, _ = select.select(watched, [], [])
        if wake_read in readable:
            os.read(wake_read, 4096)
        if 0 in readable:
            if not os.read(0, 1):
                return 0
            watched = [wake_read]


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1]), json.loads(sys.argv[2])))
