"""A standalone Spark whose workers each use the agent of another host; all its processes are on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.agent_e2e.agents import ROOT, wait_until

SPARK = Path(os.environ.get("ROSTRUM_SPARK", ROOT / "build" / "spark"))  # an environment with pyspark
BOUND_S = 120.0
PROGRAM = ROOT / "tests" / "client" / "spark_driver.py"
JAR = ROOT / "build" / "rostrum-spark.jar"


def home() -> Path | None:
    """Where Spark is, if .ci/setup apps installed it."""
    return next(iter(SPARK.glob("lib/python3*/site-packages/pyspark")), None)


class Cluster:
    """Master and workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        found = home()
        assert found
        self.home = found
        self.url = ""
        self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0", socket="")
        said = wait_until(lambda: re.search(r"Starting Spark master at (\S+)", self.log("master")), "master", BOUND_S)
        self.url = said.group(1)

    def scala(self) -> str:
        return scala_of(self.home)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _start(self, name: str, what: str, *words: str, socket: str) -> None:
        options = ["-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command = ["java", *options, "-cp", f"{self.home}/jars/*", what, "--host", "127.0.0.1", "--webui-port", "0"]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [*command, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env=environment(self.home, socket), cwd=self.folder,
            )  # fmt: skip

    def worker(self, name: str, socket: Path | str, cores: int = 1) -> None:
        """A server's; its executors use that socket."""
        words = ["--cores", str(cores), "--memory", "1G", "--work-dir", str(self.folder / f"work-{name}"), self.url]
        self._start(name, "org.apache.spark.deploy.worker.Worker", *words, socket=str(socket))

    def executor_log(self, name: str) -> str:
        """What executors of a worker have said."""
        logs = sorted((self.folder / f"work-{name}").glob("app-*/*/std*"))
        return "\n".join(log.read_text(errors="replace") for log in logs)

    def executor_pids(self, name: str) -> list[int]:
        """Of a worker."""
        worker = str(self.processes[name].pid)
        return [
            int(pid) for pid in subprocess.run(["pgrep", "-P", worker], capture_output=True, text=True).stdout.split()
        ]

    def stop(self, name: str) -> None:
        """With its executors."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(BOUND_S)

    def close(self) -> None:
        for name in list(self.processes):
            self.stop(name)


def scala_of(spark: Path) -> str:
    """The Scala that a Spark is made with: 2.12, 2.13."""
    version = next((spark / "jars").glob("scala-library-*.jar")).name.removeprefix("scala-library-")
    return ".".join(version.split(".")[:2])


def environment(spark: Path, socket: str) -> dict[str, str]:
    given = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYTHON", "ROSTRUM_"))}
    given |= {
        "SPARK_HOME": str(spark),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(ROOT / "build" / "python"),
        "PYSPARK_PYTHON": str(SPARK / "bin" / "python"),
        "ROSTRUM_SOCKET": socket,
        "OMP_NUM_THREADS": "1",
        "SPARK_SCALA_VERSION": scala_of(spark),
    }
    return given


class Driver:
    """tests/client/spark_driver.py, told what to do."""

    def __init__(self, cluster: Cluster, socket: Path | str, **settings: str) -> None:
        self.cluster = cluster
        self.file = cluster.folder / f"driver-{id(self)}.log"
        with self.file.open("wb") as log:
            self.process = subprocess.Popen(
                [str(SPARK / "bin" / "python"), str(PROGRAM)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True, cwd=cluster.folder,
                env=environment(cluster.home, str(socket)),
            )  # fmt: skip
        self.answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        usual = {
            "spark.master": cluster.url, "spark.app.name": "rostrum", "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.executor.cores": "1",
            "spark.ui.enabled": "false", "spark.jars": str(JAR), "spark.plugins": "org.rostrum.spark.RostrumPlugin",
            "spark.locality.wait": "0s",
            "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Djava.io.tmpdir={cluster.folder}",
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }  # fmt: skip
        self.tell("start", usual | settings)

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("error null")

    def log(self) -> str:
        return self.file.read_text(errors="replace")

    def tell(self, *words: Any, bound_s: float = BOUND_S) -> Any:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        while True:
            kind, _, text = self.answers.get(timeout=bound_s).partition(" ")
            if kind in ("answer", "error"):
                break
        assert kind == "answer", f"{words[0]}: {json.loads(text)}\n{self.log()[-3000:]}"
        return json.loads(text)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(BOUND_S)
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()


@contextlib.contextmanager
def cluster_in(folder: Path) -> Iterator[Cluster]:
    it = Cluster(folder)
    try:
        yield it
    finally:
        it.close()
