"""A lab as its users see it from outside: start it, use its agents and its manager, break parts of it, stop it.

    with Lab.start("hybrid-4x2", name="mine") as lab:
        lab.execute("h1", ["ping", "-c1", "10.0.2.1"])

Everything runs in private namespaces; the folder `<run>` (build/lab/<name>) holds sockets, logs and `lab.json`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import yaml
from rostrum.lab import p4switches
from rostrum.lab.namespace import Entered, LabError, PrivateNamespace, enter_argv
from rostrum.lab.ocs.control import ask
from rostrum.lab.options import Options
from rostrum.lab.rest import Rest
from rostrum.topologies import load
from rostrum.topologies.kinds import with_kind
from rostrum.topologies.loader import builtin_file
from rostrum.topologies.model import Topology
from rostrum.topologies.places import labs_folder

LABS = labs_folder()
SOCKET_PATH_MAX = 107
LABS_MAX = 100  # of one name and its numbers
ANSWER_BOUND_S = 15.0

Progress = Callable[[str], None]


def run_folder(name: str) -> Path:
    """Where the lab of this name keeps its sockets and logs."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,40}", name):
        raise LabError(f"{name!r} is not a name for a lab: letters, digits, - and _, at most 41")
    return LABS / name


@dataclasses.dataclass
class Lab:
    """A running lab. `namespace` is set in the process that started it undetached: it ends with that one."""

    name: str
    run: Path
    topology: Topology
    init_pid: int  # first process of the lab's namespaces, as seen from here
    switch: str  # what forwards: `openvswitch`, `bmv2`, `p4-reference-target`, or two joined by `+`
    namespace: PrivateNamespace | None = None

    @classmethod
    def start(
        cls,
        topology: str | Path = "hybrid-4x2",
        *,
        name: str = "lab",
        or_another: bool = False,
        switch: str | None = None,
        p4_target: str = "",
        changes: dict[str, Any] | None = None,
        progress: Progress = lambda _: None,
        detached: bool = False,
        **options: Any,
    ) -> Lab:
        """Starts a lab and returns when it is ready. Raises LabError saying what was waited for.

        `or_another`: if a lab of this name runs, take name-2, name-3 ... `switch`: make its switches OpenFlow ones
        ("openflow"), P4 ones ("p4"), or P4 only at the top of racks ("mixed"); with P4 switches, links that are faster
        than these can take become slower (p4switches.RATE_MAX). `p4_target`: what plays P4 switches, if it is not to be
        chosen (p4switches.choose). `changes`: values of the topology file
        to replace, such as {"emulation.ringing.loss": 0.9}. `options`: those of `options.Options` (parts, quota,
        core_links, bound_s, manager_options, agent_options, certificates).
        """
        with _starting(name, or_another) as run:
            shutil.rmtree(run, ignore_errors=True)
            run.mkdir(parents=True)
            target = p4_target or p4switches.choose()
            file = _topology_file(topology, switch, target, changes or {}, run)
            parsed = load(file)
            _check_socket_paths(parsed, run)
            target = target if any(one.p4 for one in parsed.switches.values()) else ""
            given = Options(topology=str(file), run=str(run), p4_target=target, **options)
            namespace = _open(run, given)
            forwards = p4switches.forwarding(parsed, target)
            lab = cls(run.name, run, parsed, namespace.pid, forwards, namespace)
            try:
                lab._wait_ready(progress)
                lab._write_state()
            except BaseException:
                namespace.stop()
                raise
        if detached:
            namespace.detach()
            lab.namespace = None
        return lab

    @classmethod
    def attach(cls, name: str = "lab") -> Lab:
        """The running lab of this name. Raises LabError if there is none."""
        run = run_folder(name)
        state = _alive(run)
        if not state:
            raise LabError(f"no lab called {name} is running; start one: rostrum lab up --name {name} --detach")
        return cls(name, run, load(run / "topology.yaml"), state["init_pid"], state["switch"])

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Asks the programs to end, then ends the namespaces and with them all that is left."""
        with contextlib.suppress(LabError):
            self.ask("stop")
            _wait_gone(self.init_pid, ANSWER_BOUND_S)
        if self.namespace:
            self.namespace.stop()
        elif _alive(self.run):
            os.kill(self.init_pid, signal.SIGKILL)
            _wait_gone(self.init_pid, ANSWER_BOUND_S)
        # Killed programs leave their sockets, and a client that looks for a lab would find them.
        for file in [
            self.run / "lab.json",
            *self.run.glob("*.sock"),
            *self.run.glob("*/agent.sock"),
            *self.run.glob("*/metrics.sock"),
            *self.run.glob("*.ctl"),
        ]:
            file.unlink(missing_ok=True)

    @property
    def rest(self) -> Rest:
        """The manager's REST interface."""
        return Rest(self.run)

    def agent_socket(self, server: str) -> Path:
        return self.run / server / "agent.sock"

    def status(self) -> dict[str, Any]:
        """{"topology", "hosts": {server: pid inside}, "programs": {name: {"pid", "state", "log"}}}."""
        return dict(self.ask("status"))

    def kill(self, program: str, number: int = signal.SIGKILL) -> None:
        """Ends "ocs", "manager", a P4 switch or a server's agent by a signal, and waits for its end."""
        self.ask("kill", name=program, signal=int(number))

    def signal(self, program: str, number: int) -> None:
        """Sends a signal that does not end the program, such as SIGSTOP."""
        self.ask("signal", name=program, signal=int(number))

    def start_program(self, program: str) -> None:
        """Starts a program again that was killed or ended."""
        self.ask("start", name=program)

    def ocs_fault(self, ocs: str = "ocs", **fault: Any) -> str:
        """Puts a fault (ocs/faults.py) into an emulated OCS, for example kind="dead-port", port=3; its id."""
        return str(self.ask_ocs(ocs, {"op": "fault", **fault})["id"])

    def ocs_clear(self, ocs: str = "ocs") -> None:
        """Takes all faults out of an emulated OCS."""
        self.ask_ocs(ocs, {"op": "clear"})

    def ocs_state(self, ocs: str = "ocs") -> dict[str, Any]:
        """Cross-connects, light paths, faults and timing of an emulated OCS (ocs/control.py)."""
        return self.ask_ocs(ocs, {"op": "state"})

    def ask_ocs(self, ocs: str, request: dict[str, Any]) -> dict[str, Any]:
        """A request to an emulated OCS (ocs/control.py) and its answer. Raises LabError with its words."""
        try:
            return ask(self.run / f"ocs-{ocs}.ctl", request)
        except (OSError, ValueError) as error:
            raise LabError(f"OCS {ocs}: {request['op']}: {error}") from error

    def argv(self, server: str, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` on a server, or where the manager and the switches are ("manager")."""
        if server == "manager":
            return enter_argv(self.init_pid, argv)
        if server not in self.topology.servers:
            raise LabError(
                f"no server {server} in {self.topology.name}; there are {', '.join(self.topology.servers)}, manager"
            )
        return enter_argv(self.init_pid, argv, of=self.status()["hosts"][server])

    def popen(self, server: str, argv: Sequence[str], **options: Any) -> Entered:
        """Starts a command on a server or at the manager; killing it, or the end of this process, ends it."""
        return Entered(self.argv(server, argv), **options)

    def execute(self, server: str, argv: Sequence[str], *, timeout_s: float = 60.0, check: bool = True) -> str:
        """Runs a command on a server or at the manager; its output. Raises LabError if it fails."""
        process = self.popen(
            server, argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            process.kill()
            output, _ = process.communicate()
            raise LabError(f"{server}: {' '.join(argv)}: not done after {timeout_s:g} s: {output[-1000:]}") from error
        if check and process.returncode:
            raise LabError(f"{server}: {' '.join(argv)}: exit {process.returncode}: {output[-1000:]}")
        return str(output)

    def ask(self, op: str, **arguments: Any) -> Any:
        """A request to the lab's supervisor. Raises LabError with its reason."""
        with _connect(self.run / "lab.sock", ANSWER_BOUND_S) as stream:
            stream.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
            stream.flush()
            return _answer(stream, f"{op} {arguments or ''}")["ok"]

    def _wait_ready(self, progress: Progress) -> None:
        deadline = time.monotonic() + ANSWER_BOUND_S
        while not _listens(self.run / "lab.sock"):
            if self.namespace and not self.namespace.alive():
                raise LabError(f"the lab's supervisor ended; {self._supervisor_words()}")
            if time.monotonic() > deadline:
                raise LabError(
                    f"the lab's supervisor did not answer within {ANSWER_BOUND_S:.0f} s; {self._supervisor_words()}"
                )
            time.sleep(0.01)
        # Each condition has its own bound inside; this one is for a supervisor that hangs.
        with _connect(self.run / "lab.sock", 600.0) as stream:
            stream.write(b'{"op": "wait"}\n')
            stream.flush()
            while "ready" not in (news := _answer(stream, f"the lab to be ready; {self._supervisor_words()}")):
                progress(news["progress"])

    def _supervisor_words(self) -> str:
        log = self.run / "lab.log"
        text = log.read_text(errors="replace")[-2000:].strip() if log.exists() else ""
        return f"{log} says:\n{text}" if text else f"see {log}"

    def facts(self) -> dict[str, Any]:
        """What `lab.json` says: who runs, where its sockets are."""
        return {
            "name": self.name,
            "run": str(self.run),
            "topology": self.topology.name,
            "switch": self.switch,
            "init_pid": self.init_pid,
            "init_started": _started(self.init_pid),
            "agents": {server: str(self.agent_socket(server)) for server in self.topology.servers},
            "rest": str(self.run / "manager.sock"),
            **self.status(),
        }

    def _write_state(self) -> None:
        scratch = self.run / "lab.json.new"
        scratch.write_text(json.dumps(self.facts(), indent=1) + "\n")
        scratch.rename(self.run / "lab.json")


def labs() -> list[str]:
    """Names of the labs that are running."""
    return sorted(file.parent.name for file in LABS.glob("*/lab.json") if _alive(file.parent))


def _open(run: Path, options: Options) -> PrivateNamespace:
    with (run / "lab.log").open("ab") as log:
        namespace = PrivateNamespace(
            log=run / "switches",
            command=[sys.executable, "-m", "rostrum.lab.inside", json.dumps(dataclasses.asdict(options))],
            output=log,
        )
        try:
            namespace.start()
        except LabError as error:
            raise LabError(f"{error}; see {run / 'lab.log'}") from error
    return namespace


def _topology_file(
    topology: str | Path, switch: str | None, p4_target: str, changes: dict[str, Any], run: Path
) -> Path:
    """A copy of the topology in the run folder, with its switches of this kind and `changes` made: the one that every
    program of the lab reads.
    """
    source, target = builtin_file(topology), run / "topology.yaml"
    load(source)
    text = source.read_text()
    if switch is not None:
        text = with_kind(text, switch)
    value = yaml.safe_load(text)
    slow = switch in ("p4", "mixed")
    if slow:
        value["links"] = p4switches.slowed(value["links"], p4_target)
    if changes or slow:
        for place, new in changes.items():
            *way, last = place.split(".")
            inner = value
            for step in way:
                inner = inner.setdefault(step, {})
            inner[last] = new
        text = yaml.safe_dump(value, sort_keys=False)
    target.write_text(text)
    return target


def _check_socket_paths(topology: Topology, run: Path) -> None:
    longest = max((str(run / name / "agent.sock") for name in topology.servers), key=len)
    if len(longest.encode()) > SOCKET_PATH_MAX:
        raise LabError(
            f"{longest}: too long for a unix socket ({SOCKET_PATH_MAX} bytes); use a shorter --name or folder"
        )


@contextlib.contextmanager
def _starting(name: str, or_another: bool) -> Iterator[Path]:
    """The folder of a lab that does not run; nobody else can start one of that name meanwhile."""
    problem = ""
    for one in [name, *(f"{name}-{n}" for n in range(2, LABS_MAX) if or_another)]:
        run = run_folder(one)
        run.parent.mkdir(parents=True, exist_ok=True)
        with (run.parent / f".{one}.lock").open("w") as lock:
            problem = _why_taken(run, lock)
            if not problem:
                yield run
                return
    raise LabError(problem)


def _why_taken(run: Path, lock: IO[str]) -> str:
    """Takes the lock and returns nothing, or returns why no lab can be started in this folder."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return f"lab {run.name} is just being started by another command"
    if not _alive(run):
        return ""
    return f"lab {run.name} is running; stop it (rostrum lab down --name {run.name}) or choose another --name"


def _started(pid: int) -> int:
    """When a process started (clock ticks since boot): tells it from a later one of that number. 0 = none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def _alive(run: Path) -> dict[str, Any]:
    """The state file of the lab that runs in this folder; empty if none does."""
    try:
        state = dict(json.loads((run / "lab.json").read_text()))
        return state if state["init_started"] and _started(state["init_pid"]) == state["init_started"] else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _wait_gone(pid: int, bound_s: float) -> None:
    started, deadline = _started(pid), time.monotonic() + bound_s
    while started and _started(pid) == started and not _is_zombie(pid):
        if time.monotonic() > deadline:
            raise LabError(f"the lab's first process {pid} is still there after {bound_s:.0f} s")
        time.sleep(0.01)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _listens(path: Path) -> bool:
    """A socket that is bound but does not listen yet has a file already."""
    with socket.socket(socket.AF_UNIX) as link, contextlib.suppress(OSError):
        link.connect(str(path))
        return True
    return False


@contextlib.contextmanager
def _connect(path: Path, bound_s: float) -> Iterator[BinaryIO]:
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(bound_s)
        try:
            link.connect(str(path))
            with link.makefile("rwb") as stream:
                yield cast(BinaryIO, stream)
        except OSError as error:
            raise LabError(f"no answer from the lab's supervisor at {path}: {error}") from error


def _answer(stream: BinaryIO, what: str) -> dict[str, Any]:
    line = stream.readline()
    if not line:
        raise LabError(f"the lab's supervisor ended while asked for {what}")
    answer = dict(json.loads(line))
    if "error" in answer:
        raise LabError(answer["error"])
    return answer
