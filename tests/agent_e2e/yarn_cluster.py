"""A YARN whose node managers each use the agent of another host; all its processes are on this machine.

Its programs are Hadoop's own (`.ci/setup apps`), of the version that Spark's client is of.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from pathlib import Path

from tests.agent_e2e.agents import ROOT
from tests.agent_e2e.spark_cluster import BOUND_S

JARS = ROOT / "build" / "yarn"
MANAGER = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
SCHEDULER = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
NODE = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
PORTS = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


class Yarn:
    """`spark`: its jars have what Hadoop's stand on."""

    def __init__(self, folder: Path, spark: Path) -> None:
        self.folder, self.spark = folder, spark
        self.settings = {
            "fs.defaultFS": "file:///",
            "hadoop.tmp.dir": str(folder / "tmp"),
            "yarn.resourcemanager.scheduler.class": SCHEDULER,
            "yarn.scheduler.minimum-allocation-mb": "128",
            **{f"yarn.resourcemanager.{name}": f"127.0.0.1:{port}"
               for name, port in zip(PORTS, free_ports(len(PORTS)), strict=True)},
        }  # fmt: skip
        self.processes: list[subprocess.Popen[bytes]] = []
        self._start("manager", MANAGER, {}, {})

    @property
    def conf(self) -> Path:
        """HADOOP_CONF_DIR."""
        return self.folder / "manager"

    def node(self, name: str, agent: Path) -> None:
        """A node manager, whose containers use that agent."""
        at = self.folder / name
        self._start(name, NODE, {"ROSTRUM_SOCKET": str(agent)}, {
            "yarn.nodemanager.hostname": "127.0.0.1",
            **{f"yarn.nodemanager.{what}address": "127.0.0.1:0" for what in ("", "localizer.", "webapp.")},
            "yarn.nodemanager.local-dirs": str(at / "local"),
            "yarn.nodemanager.log-dirs": str(at / "logs"),
            "yarn.nodemanager.resource.memory-mb": "1024",
            "yarn.nodemanager.resource.cpu-vcores": "1",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.enable": "false",
            "yarn.nodemanager.env-whitelist": "JAVA_HOME,ROSTRUM_SOCKET,PYTHONPATH",
        })  # fmt: skip

    def _start(self, name: str, what: str, environment: dict[str, str], more: dict[str, str]) -> None:
        at = self.folder / name
        at.mkdir(parents=True)
        rows = "".join(
            f"<property><name>{key}</name><value>{value}</value></property>"
            for key, value in {**self.settings, **more}.items()
        )
        for file in ("core-site.xml", "yarn-site.xml"):
            (at / file).write_text(f"<configuration>{rows}</configuration>")
        words = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        words += ["--add-opens", "java.base/java.lang=ALL-UNNAMED", "-cp", f"{at}:{JARS}/*:{self.spark}/jars/*", what]
        given = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "ROSTRUM_"))}
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                 env={**given, "PYTHONPATH": str(ROOT / "build" / "python"), **environment}, cwd=at)
            )  # fmt: skip

    def said(self) -> str:
        """What its programs and their containers have."""
        logs = [*self.folder.glob("*.log"), *self.folder.glob("*/logs/*/*/std*")]
        return "\n".join(f"-- {log}\n{log.read_text(errors='replace')[-2500:]}" for log in sorted(logs))

    def close(self) -> None:
        for process in self.processes:  # nodes end their containers when they are asked to end
            process.terminate()
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(BOUND_S / 4)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(BOUND_S)
