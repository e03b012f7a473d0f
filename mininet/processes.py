"""The programs of one lab, as its supervisor sees them: what to start where, what became of it, and its log."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rostrum.lab.namespace import BUILD, LabError
from rostrum.topologies.model import Server, Topology
from rostrum.topologies.places import short

LOG_TAIL_BYTES = 2000
ETCD_PORT = 2379
# One program is all bridges, and one all OCSs, so that each shows one certificate for all of them.
OPEN_VSWITCH, OCS_EMULATOR = "open-vswitch", "ocs-emulator"


def agent_program() -> Path:
    """rostrumd as built, else as installed; ROSTRUM_AGENT names another one, for example a build with sanitizers."""
    if given := os.environ.get("ROSTRUM_AGENT"):
        return Path(given)
    built = BUILD / "agent" / "agent" / "daemon" / "rostrumd"
    installed = None if built.exists() else shutil.which("rostrumd")
    return Path(installed) if installed else built


def bench_programs() -> Path:
    """Where the programs of `bench/native` were built: beside the agent that is measured. Raises LabError."""
    agent = agent_program()
    folder = agent.parents[2] / "bench" / "native"
    if not agent.exists() or not (folder / "raw").exists():
        raise LabError(f"{short(folder)} lacks the bench's programs, or there is no {short(agent)}: make build")
    return folder


def data_interface(server: str) -> str:
    """The data NIC of a server, inside it."""
    return f"{server}-eth0"


@dataclass
class Program:
    """One program of the lab. `name` is what people call it: "ocs", "manager", or the server whose agent it is."""

    name: str
    argv: list[str]
    log: Path
    pid: int = 0  # in the lab's process namespace; 0 = not running
    state: str = "not started"  # "running", "killed" (on request), "ended: ..." (by itself)
    starts: int = 0
    _process: asyncio.subprocess.Process | None = field(default=None, repr=False)
    _watch: asyncio.Task[None] | None = field(default=None, repr=False)

    async def start(self, ended: Callable[[Program], None]) -> None:
        """Starts it, appending to its log. `ended` is called when it ends without having been asked to."""
        if self.pid:
            raise LabError(f"{self.name} is already running (pid {self.pid})")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.argv, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.pid, self.state, self.starts = self._process.pid, "running", self.starts + 1
        self._watch = asyncio.create_task(self._wait(self._process, ended))

    async def _wait(self, process: asyncio.subprocess.Process, ended: Callable[[Program], None]) -> None:
        status = await process.wait()
        self.pid = 0
        if self.state == "running":
            self.state = f"ended: {f'signal {signal.Signals(-status).name}' if status < 0 else f'exit status {status}'}"
            ended(self)

    async def stop(self, number: int = signal.SIGTERM, bound_s: float = 3.0) -> None:
        """Sends it a signal and waits for its end, for `bound_s`; then kills it."""
        if not self.pid or self._watch is None:
            return
        self.state = "killed"
        for sent in (number, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sent)
            done, _ = await asyncio.wait([self._watch], timeout=bound_s)
            if done:
                return
        raise LabError(f"{self.name} (pid {self.pid}) did not end {bound_s:.0f} s after SIGKILL")

    def log_tail(self) -> str:
        """The end of its log, for an error message."""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").strip()
        return ""


def tls(option: str, folder: str, name: str) -> list[str]:
    """The option with what `name` shows and whom it trusts; `folder` "": none."""
    if not folder:
        return []
    found = [Path(folder) / file for file in (f"{name}.pem", f"{name}.key", "ca.pem")]
    if missing := next((file for file in found if not file.exists()), None):
        raise LabError(f"{missing} is missing; docs/care.md shows how certificates are made")
    return [option, *map(str, found)]


def certificates(topology: Topology, run: Path) -> str:
    """A folder of a CA of the lab's own, and what it signed for all that speak TLS there; `operator` may use REST."""
    folder, managers = run / "certificates", [f"--address={one}" for one in topology.manager.addresses]
    said = [["init", str(folder)], ["issue", "manager", "manager", *managers]]
    tenants = {name: [f"--tenant={name}", *one.servers] for name, one in topology.tenants.items()}
    said += [["issue", "agent", *servers] for servers in tenants.values() or [[*topology.servers]]]
    said += [["issue", "operator", "operator"], ["issue", "reader", "reader"]]
    if bridges := [name for name, one in topology.switches.items() if one.southbound == "openflow"]:
        said.append(["issue", "switch", OPEN_VSWITCH, *(f"--also={name}" for name in bridges)])
    at = {one.name: one.p4.address for one in topology.switches.values() if one.p4}
    said += [["issue", "switch", name, f"--address={address}"] for name, address in at.items()]
    if topology.ocs:
        named = [f"--also={name}" for name in topology.ocs]
        reached = [f"--address={one.address}" for one in topology.ocs.values()]
        said.append(["issue", "switch", OCS_EMULATOR, *named, *reached])
    if topology.manager.standbys:
        said.append(["issue", "etcd", "etcd", f"--address={topology.manager.address}"])
    for words in [said[0], *([*words, "--dir", str(folder)] for words in said[1:])]:
        done = subprocess.run([sys.executable, "-m", "rostrum.controller.commands.pki", *words],
                              capture_output=True, text=True, timeout=60)  # fmt: skip
        if done.returncode:
            raise LabError(f"rostrum pki {' '.join(words)}: {done.stderr.strip()}")
    return str(folder)


def secured(topology: Topology, folder: str) -> list[str]:
    """What a manager is started with by whom `security: required` holds: certificates at each of its doors and ways."""
    ca = str(Path(folder, "ca.pem"))
    found = [*tls("--rest-tls", folder, "manager")[:3], "--rest-client-ca", ca]
    for option in ("--thrift-tls", "--openflow-tls", "--p4runtime-tls", "--gnmi-tls", "--tl1-tls"):
        found += tls(option, folder, "manager")
    if topology.manager.standbys:
        found += ["--etcd-tls", ca, *tls("", folder, "manager")[1:3]]
    return found


def ocs_emulator(file: Path, run: Path, certificates: str = "") -> Program:
    """`certificates`: of a lab with security required."""
    command = [sys.executable, "-m", "rostrum.lab.ocs", "--topology", str(file), "--run", str(run)]
    command += tls("--tls", certificates, OCS_EMULATOR)
    return Program("ocs", command, run / "ocs.log")


def managers(topology: Topology, file: Path, run: Path, extra: list[str], certificates: str = "") -> list[Program]:
    """The manager; where the topology has standbys, them ("manager2", ...) and the etcd that they share, first."""
    # --rest-open: the lab's networks are namespaces of its own, which nothing else reaches.
    doors = secured(topology, certificates) if certificates else ["--rest-open"]
    command = [sys.executable, "-m", "rostrum.controller", "--topology", str(file), *doors, *extra]
    if not topology.manager.standbys:
        # A new lab knows nothing of one of the same name before it.
        for left in run.glob("manager.journal*"):
            left.unlink()
        return [Program("manager", [*command, "--run", str(run)], run / "manager.log")]
    shutil.rmtree(run / "etcd", ignore_errors=True)
    url = f"{'https' if certificates else 'http'}://{topology.manager.address}:{ETCD_PORT}"
    peer = f"http://127.0.0.1:{ETCD_PORT + 1}"
    etcd = [
        *("etcd", "--data-dir", str(run / "etcd"), "--listen-client-urls", url, "--advertise-client-urls", url),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"),
    ]
    if certificates:
        _, *pair, ca = tls("", certificates, "etcd")
        etcd += ["--cert-file", pair[0], "--key-file", pair[1], "--trusted-ca-file", ca, "--client-cert-auth"]
        etcd += ["--client-cert-allowed-hostname", "manager"]  # an agent's certificate is worth nothing here
    found = [Program("etcd", etcd, run / "etcd.log")]
    for number, address in enumerate(topology.manager.addresses, 1):
        name = f"manager{number}" if number > 1 else "manager"
        home = run / name if number > 1 else run
        own = ["--run", str(home), "--listen", str(address), "--etcd", url, "--member", name]
        found.append(Program(name, [*command, *own], run / f"{name}.log"))
    return found


def agent(
    topology: Topology, server: Server, host_pid: int, run: Path, quota: str, reserve: str, extra: list[str]
) -> Program:
    """rostrumd on a server: its store is a tmpfs of its own, seen only there."""
    home = run / server.name
    command = [
        # Before other work on this machine, like the switches: a real server's agent does not wait for strangers.
        *("nice", "-n", "-8", "mnexec", "-a", str(host_pid), str(agent_program())),
        *("--server", server.name, "--interface", data_interface(server.name), "--address", str(server.address)),
        *("--control-port", str(topology.control_port), "--data-port", str(topology.data_port)),
        *("--manager", ",".join(f"{one}:{topology.manager.thrift_port}" for one in topology.manager.addresses)),
        *("--socket", str(home / "agent.sock"), "--store", str(home / "objects"), "--quota", quota),
        *("--reserve", reserve, "--metrics", str(home / "metrics.sock")),
        # A veth says it is a 10 Gbit/s NIC.
        *("--nic-rate", str(server.rate_bps), *extra),
    ]
    return Program(server.name, command, home / "agent.log")
