"""A lab as its users see it from outside: start it, use its agents and its manager, break parts of it, stop it.

    with Lab("hybrid-4x2", name="mine") as lab:
        lab.host("h1").run("ping -c1 10.0.2.1")
        lab.host("h1").send(size="64M", to=["h3", "h5"])
        lab.transfers.csv("transfers.csv")

Everything runs in private namespaces; the folder `<run>` (build/lab/<name>) holds sockets, logs and `lab.json`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import itertools
import json
import os
import re
import secrets
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
from rostrum.client import SendResult
from rostrum.lab import links, p4switches, processes
from rostrum.lab.host import Host, Undone, delivery_rows, transfer_row
from rostrum.lab.namespace import Entered, LabError, PrivateNamespace, check_machine, enter_argv
from rostrum.lab.ocs.control import ask
from rostrum.lab.options import Options
from rostrum.lab.records import Rows, samples
from rostrum.lab.rest import Rest, page
from rostrum.lab.topo import from_mininet, is_topo
from rostrum.topologies import circuit_kinds, load, load_text
from rostrum.topologies.completion import complete
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


TopologyLike = str | Path | dict[str, Any] | Any  # the last: a Mininet Topo


class Lab:
    """A running lab: it runs when this is made. It ends with the `with` block, by `stop`, or with this process.

    `topology`: a file, the name of one that comes with rostrum, the value of a file, or a Mininet Topo. What it leaves
    out is filled in (topologies/completion.py). `or_another`: if a lab of this name runs, take name-2, name-3 ...
    `switch`: make its switches OpenFlow ones ("openflow"), P4 ones ("p4"), or P4 only at the top of racks ("mixed");
    with P4 switches, links that are faster than these can take become slower (p4switches.RATE_MAX). `p4_target`: what
    plays P4 switches, if it is not to be chosen (p4switches.choose). `changes`: values of the topology file to replace,
    such as {"emulation.ringing.loss": 0.9}. `detached`: it does not end with this process. `options`: those of
    `options.Options` (parts, quota, core_links, bound_s, manager_options, agent_options, certificates, secure).

    Raises LabError saying what was waited for.
    """

    name: str
    run: Path
    topology: Topology
    init_pid: int  # first process of the lab's namespaces, as seen from here
    switch: str  # what forwards: `openvswitch`, `bmv2`, `p4-reference-target`, or two joined by `+`
    namespace: PrivateNamespace | None  # set in the process that started it undetached: it ends with that one

    def __init__(
        self,
        topology: TopologyLike = "hybrid-4x2",
        *,
        name: str = "lab",
        or_another: bool = False,
        switch: str | None = None,
        p4_target: str = "",
        changes: dict[str, Any] | None = None,
        progress: Progress = lambda _: None,
        detached: bool = False,
        **options: Any,
    ) -> None:
        unknown = sorted(set(options) - {field.name for field in dataclasses.fields(Options)})
        if unknown:
            known = ", ".join(field.name for field in dataclasses.fields(Options))
            raise LabError(f"a lab has no option {', '.join(unknown)}; there are {known}")
        check_machine()
        with _starting(name, or_another) as run:
            shutil.rmtree(run, ignore_errors=True)
            run.mkdir(parents=True)
            target = p4_target or p4switches.choose()
            if options.get("secure"):
                changes = {**(changes or {}), "security": "required"}
            file = _topology_file(topology, switch, target, changes or {}, run)
            parsed = load(file)
            if parsed.secure:
                parsed = _secured(file, run)
            if parsed.secure:
                options["secure"] = True
                if given_folder := options.get("certificates"):
                    (run / "certificates").symlink_to(given_folder)
                options["certificates"] = given_folder or processes.certificates(parsed, run)
            _check_socket_paths(parsed, run)
            target = target if any(one.p4 for one in parsed.switches.values()) else ""
            given = Options(topology=str(file), run=str(run), p4_target=target, **options)
            namespace = _open(run, given)
            self._set(run, parsed, namespace.pid, p4switches.forwarding(parsed, target), namespace)
            try:
                self._wait_ready(progress)
                self._write_state()
            except BaseException:
                namespace.stop()
                self._remove_sockets()
                raise
        if detached:
            namespace.detach()
            self.namespace = None

    def _set(
        self, run: Path, topology: Topology, init_pid: int, switch: str, namespace: PrivateNamespace | None
    ) -> None:
        self.name, self.run, self.topology = run.name, run, topology
        self.init_pid, self.switch, self.namespace = init_pid, switch, namespace
        self.transfers, self.deliveries = Rows(), Rows()
        self._hosts: dict[str, Host] = {}
        self._numbers = itertools.count(1)
        self._began = time.time()

    @classmethod
    def start(cls, topology: TopologyLike = "hybrid-4x2", **options: Any) -> Lab:
        """The same as Lab(...)."""
        return cls(topology, **options)

    @classmethod
    def attach(cls, name: str = "lab") -> Lab:
        """The running lab of this name. Raises LabError if there is none."""
        run = run_folder(name)
        state = _alive(run)
        if not state:
            raise LabError(f"no lab called {name} is running; start one: rostrum lab up --name {name} --detach")
        lab = cls.__new__(cls)
        lab._set(run, load(run / "topology.yaml"), state["init_pid"], state["switch"], None)
        return lab

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Asks the programs to end, then ends the namespaces and with them all that is left."""
        for host in self._hosts.values():
            host.close()
        with contextlib.suppress(LabError):
            self.ask("stop")
            _wait_gone(self.init_pid, ANSWER_BOUND_S)
        if self.namespace:
            self.namespace.stop()
        elif _alive(self.run):
            os.kill(self.init_pid, signal.SIGKILL)
            _wait_gone(self.init_pid, ANSWER_BOUND_S)
        self._remove_sockets()

    def _remove_sockets(self) -> None:
        """Killed programs leave them, and a client that looks for a lab would find them."""
        for file in [
            self.run / "lab.json",
            *self.run.glob("*.sock"),
            *self.run.glob("*/agent.sock"),
            *self.run.glob("*/metrics.sock"),
            *self.run.glob("*.ctl"),
        ]:
            file.unlink(missing_ok=True)

    def host(self, name: str) -> Host:
        """A server, to send from it, to run commands on it, to break it (host.py). Raises LabError if there is none."""
        if name not in self.topology.servers:
            raise LabError(f"no server {name} in {self.topology.name}; there are {', '.join(self.topology.servers)}")
        return self._hosts.setdefault(name, Host(self, name))

    @property
    def hosts(self) -> list[Host]:
        return [self.host(name) for name in self.topology.servers]

    def next_number(self) -> int:
        """For the name of an object that has none."""
        return next(self._numbers)

    def record(self, sender: str, name: str, began: float, result: SendResult) -> None:
        """Adds a transfer to `transfers` and its receivers to `deliveries`."""
        path = None
        if result.response_id:
            with contextlib.suppress(LabError):
                status, found = self.rest.call("GET", f"/v1/paths/{result.response_id}?wait=ended&timeout_ms=2000")
                path = found if status == 200 else None
        self.transfers.append(transfer_row(sender, name, began - self._began, result, path))
        self.deliveries.extend(delivery_rows(sender, name, result))

    def metrics(self) -> Rows:
        """What manager and agents count, now; those that do not run are left out."""
        found = Rows()
        agents = [(name, self.run / name / "metrics.sock") for name in self.topology.servers]
        for source, path in [("manager", self.run / "manager.sock"), *agents]:
            with contextlib.suppress(LabError):
                found.extend(samples(page(path), source))
        return found

    def cut(self, a: str, b: str) -> Undone:
        """All that crosses the link of two nodes is lost, and nobody is told, until `mend` or the end of a block."""
        links.cut(self, a, b)
        return Undone(lambda: self.mend(a, b))

    def mend(self, a: str, b: str) -> None:
        links.up(self, a, b)

    def pause(self, program: str) -> Undone:
        """A program (as of `kill`) stands still until `resume`, or to the end of a block."""
        self.signal(program, signal.SIGSTOP)
        return Undone(lambda: self.resume(program))

    def resume(self, program: str) -> None:
        self.signal(program, signal.SIGCONT)

    @property
    def rest(self) -> Rest:
        """The manager's REST interface."""
        return Rest(self.run)

    def agent_socket(self, server: str) -> Path:
        return self.run / server / "agent.sock"

    def status(self) -> dict[str, Any]:
        """{"topology", "hosts": {server: pid inside}, "programs": {name: {"pid", "state", "log"}}}."""
        return dict(self.ask("status"))

    def kill(self, program: str, number: int = signal.SIGKILL) -> Undone:
        """Ends "ocs", "manager", a P4 switch or a server's agent by a signal, and waits for its end. At the end of a
        block it is started again."""
        self.ask("kill", name=program, signal=int(number))
        return Undone(lambda: self.start_program(program))

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
        """A request to an emulated OCS (ocs/control.py) and its answer. Raises LabError with its text."""
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
                raise LabError(f"the lab's supervisor ended; {self._supervisor_text()}")
            if time.monotonic() > deadline:
                raise LabError(
                    f"the lab's supervisor did not answer within {ANSWER_BOUND_S:.0f} s; {self._supervisor_text()}"
                )
            time.sleep(0.01)
        # Each condition has its own bound inside; this one is for a supervisor that hangs.
        with _connect(self.run / "lab.sock", 600.0) as stream:
            stream.write(b'{"op": "wait"}\n')
            stream.flush()
            while "ready" not in (news := _answer(stream, f"the lab to be ready; {self._supervisor_text()}")):
                progress(news["progress"])

    def _supervisor_text(self) -> str:
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
            said = (run / "lab.log").read_text(errors="replace").strip().splitlines()[-1:]
            raise LabError(f"{error}; {run / 'lab.log'} ends with: {said[0] if said else 'nothing'}") from error
    return namespace


def _topology_file(
    topology: TopologyLike, switch: str | None, p4_target: str, changes: dict[str, Any], run: Path
) -> Path:
    """A copy of the topology in the run folder, with its switches of this kind and `changes` made: the one that every
    program of the lab reads.
    """
    target = run / "topology.yaml"
    if isinstance(topology, str | Path):
        source = builtin_file(topology)
        load(source, completed=True)  # errors name its lines
        text = source.read_text()
        whole = yaml.safe_load(text)
        made = complete(whole)
        text = text if made == whole else yaml.safe_dump(made, sort_keys=False)
    else:
        value = from_mininet(topology) if is_topo(topology) else topology
        if not isinstance(value, dict):
            raise LabError(f"{value!r:.80} is no topology: a file, a name, a dict or a Mininet Topo (an object) is one")
        text = yaml.safe_dump(complete(value), sort_keys=False)
        load_text(text, str(value.get("name", "topology")))
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


def _secured(file: Path, run: Path) -> Topology:
    """The same topology, in the file too, with what `security: required` asks of OCSs: TLS, and a password that nobody
    finds in the topology.
    """
    value, secret = yaml.safe_load(file.read_text()), run / "ocs.password"
    for ocs in value.get("ocs", {}).values():
        if "password_file" not in ocs and "password_env" not in ocs:
            ocs.pop("password", None)
            ocs["password_file"] = str(secret)
        if circuit_kinds.kind(ocs.get("dialect", "glimmerglass")).grpc is False:
            ocs.setdefault("tls", True)
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_urlsafe(18) + "\n")
    file.write_text(yaml.safe_dump(value, sort_keys=False))
    return load(file)


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
