"""Spark's broadcasts to six servers: by rostrum over packets and over circuits, by Torrent, by HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rostrum.client import Agent, RostrumError
from rostrum.lab.experiments.preheat import RATE_MOST, slow_links
from rostrum.lab.lab import Lab
from rostrum.lab.manifest import manifest
from rostrum.lab.namespace import Entered, LabError
from rostrum.lab.results import rounded, save
from rostrum.topologies import TopologyError
from rostrum.topologies.places import build_folder

MIB = 1 << 20
DRIVER, WORKERS, LATE = "h1", ("h3", "h5", "h7", "h2", "h4", "h6"), "h8"
SIZES = {"64k": 64 << 10, "16M": 16 * MIB, "64M": 64 * MIB, "256M": 256 * MIB}
SMALL = "64k"
NEAR = {"64k": 64 << 10, "1M": MIB, "4M": 4 * MIB}  # small, and from where on `auto` takes them
JOBS = ("word2vec", "lda", "joins")
PARTS = ("broadcasts", "http", "small", "jobs", "late", "packets")  # the last without circuits
PORT = 7077
BOUND_S = 240.0
FREE_S = 30.0
GOALS = {"vs_torrent": 0.5, "driver_egress_over_value": 1.05, "small_slower_ms": 10.0}
SOURCE = Path(__file__).with_name("SparkStudy.java")
OUT = Console(highlight=False, soft_wrap=True)


@click.command()
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 20), help="Of each; the best counts.")
@click.option("--rate", "rate_mbps", default=150, show_default=True, type=click.IntRange(10, RATE_MOST // 1_000_000),
              help="Mbit/s of every link: the limit is neither soft switches nor two cores then.")  # fmt: skip
@click.option("--quick", is_flag=True, help="One round, without 64 MB.")
@click.option("--only", "parts", multiple=True, type=click.Choice(PARTS),
              help="This part alone; may be repeated. What the file lacks then has no verdict.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on with the file: parts that are in it are not measured again.")
@click.option("--disk", type=click.Path(file_okay=False, exists=True, path_type=Path), default="/dev/shm",
              show_default=True, help="Where Spark has its files.")  # fmt: skip
@click.option("--seed", default=1, show_default=True, help="Of the lab.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), default="build/spark.json",
              show_default=True, help="Where the figures go.")  # fmt: skip
def command(
    rounds: int, rate_mbps: int, quick: bool, parts: tuple[str, ...], resume: bool, disk: Path, seed: int,
    json_file: Path,
) -> None:  # fmt: skip
    """Measure Spark's broadcasts to six executors, each on a server of its own, in two labs: with circuits and without.

    \b
    vs_torrent                seconds from the call until the last executor holds the value, over circuits, over those
                              of the better Torrent (blocks of 4 and 16 MB), by size
    vs_torrent_packets        the same over packets alone
    vs_http                   over circuits, over a GET of each executor from one server
    driver_egress_over_value  bytes that the driver's link carried for the largest value, over its own
    small_slower_ms           of values of 64 kB (left to Spark), 1 MB and 4 MB: the median of pairs with Torrent
    jobs                      seconds of jobs that broadcast: like Word2Vec, like LDA, joins like TPC-H's
    late_fetched              an executor that came after a broadcast got it from those that had it

    Values are random bytes, compression is off; a Spark of its own (.ci/setup apps, or $SPARK_HOME) runs standalone.
    The file is written after each part, which --resume goes on with, if commit and parameters are the same: a study of
    several sittings.
    """
    rounds = 1 if quick else rounds
    home, jar = _programs()
    sizes = {name: size for name, size in SIZES.items() if not quick or name != "64M"}
    about = manifest(seed, {"rounds": rounds, "rate_bps": rate_mbps * 1_000_000, "sizes": sizes})
    measured = measured_in(json_file, about) if resume else {}
    wanted = [part for part in PARTS if part not in measured and (not parts or part in parts)]

    def keep(part: str, figures: Any, seconds: float) -> None:
        measured[part] = {"s": seconds, "time": manifest(seed, {})["time"], "figures": figures}
        ordered = {name: measured[name] for name in PARTS if name in measured}
        save({"experiment": "spark", "manifest": about, **rounded(report(ordered))}, json_file)

    try:
        with tempfile.TemporaryDirectory(prefix="rostrum-spark-", dir=disk) as folder:
            run(Path(folder), home, jar, rounds, rate_mbps, seed, tuple(sizes), wanted, keep, pairs=25 if quick else 75,
                scale=0.5 if quick else 1.0)  # fmt: skip
    except (LabError, RostrumError, TopologyError, OSError) as error:
        raise click.ClickException(str(error)) from error
    found = report(measured)
    for name, value in found["summary"].items():
        OUT.print(f"{name} {json.dumps(rounded(value))}")
    for name, holds in found["verdicts"].items():
        OUT.print(f"{name}: {'holds' if holds else 'does not hold'} (goal: {GOALS.get(name, 'true')})")
    if found["missing"]:
        OUT.print(f"not measured: {', '.join(found['missing'])}; --resume goes on with the file")
    OUT.print(f"figures in {json_file}")


def measured_in(file: Path, about: dict[str, Any]) -> dict[str, Any]:
    """Parts that a file has. Raises ClickException if they are of another study."""
    if not file.exists():
        return {}
    try:
        there = json.loads(file.read_text())
        was, parts = there["manifest"], dict(there["parts"])
        unlike = [name for name in ("commit", "seed", "parameters", "versions", "machine") if was[name] != about[name]]
        figures = {part: {**row, "figures": there[part]} for part, row in parts.items() if part in PARTS}
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise click.ClickException(f"{file} has no figures of this study: measure without --resume") from error
    if unlike:
        raise click.ClickException(f"{file} is of another {', '.join(unlike)}: measure without --resume")
    return figures


def _programs() -> tuple[Path, Path]:
    """Spark's folder, and the jar."""
    given = os.environ.get("SPARK_HOME")
    found = [Path(given)] if given else sorted(build_folder().glob("spark/lib/python3*/site-packages/pyspark"))
    if not found or not (found[0] / "jars").is_dir():
        raise click.ClickException("this needs Spark 3.5: SPARK_HOME, or .ci/setup apps (pip install pyspark==3.5.9)")
    jar = build_folder() / "rostrum-spark.jar"
    if not jar.exists():
        raise click.ClickException(f"{jar} is not there: make jvm")
    if not shutil.which("javac"):
        raise click.ClickException("no javac: apt install openjdk-17-jdk-headless")
    return found[0], jar


def run(
    folder: Path, home: Path, jar: Path, rounds: int, rate_mbps: int, seed: int, sizes: Sequence[str],
    parts: Sequence[str], keep: Callable[[str, Any, float], None], pairs: int, scale: float,
) -> None:  # fmt: skip
    """Measures parts, and gives each to `keep`: its name, figures, seconds. Raises LabError if a program fails."""
    jar = Path(shutil.copy(jar, folder))  # a build meanwhile changes nothing
    program = _compile(folder, home, jar)
    large = [size for size in sizes if size != SMALL]

    def broadcasts(study: Study, sizes: Iterable[str], ways: Sequence[str], path: str) -> list[dict[str, Any]]:
        return [row for number in range(rounds) for size in sizes for row in study.broadcasts(number, size, ways, path)]

    how: dict[str, Callable[[Study], Any]] = {
        "broadcasts": lambda study: broadcasts(study, sizes, ("torrent4", "rostrum", "torrent16"), "circuit"),
        "small": lambda study: study.small(pairs),
        "jobs": lambda study: study.jobs(scale, rounds),
        "late": lambda study: study.late(),
        "http": lambda study: broadcasts(study, sizes, ("http",), "circuit"),
        "packets": lambda study: broadcasts(study, large, ("rostrum",), "packet"),
    }
    for circuits in (True, False):
        of_these = [part for part in parts if (part != "packets") == circuits]
        if not of_these:
            continue
        topology = slow_links(rate_mbps) if circuits else without_circuits(slow_links(rate_mbps))
        with _study(topology, folder, home, program, jar, seed) as study:
            for part in of_these:
                began = time.monotonic()
                figures = how[part](study)
                keep(part, figures, time.monotonic() - began)


@contextlib.contextmanager
def _study(topology: dict[str, Any], folder: Path, home: Path, program: Path, jar: Path, seed: int) -> Iterator[Study]:
    """A warm Spark in a lab."""
    with Lab.start(topology, name="spark", or_another=True, seed=seed) as lab, Cluster(lab, folder, home) as cluster:
        study = Study(cluster, program, jar)
        study.warm()
        yield study


def report(measured: dict[str, Any]) -> dict[str, Any]:
    """Ratios and verdicts of the parts that there are."""
    figures = {part: row["figures"] for part, row in measured.items()}
    rows = [row for part in ("broadcasts", "http", "packets") for row in figures.get(part, [])]
    best: dict[tuple[str, str, str], float] = {}
    for row in rows:
        key = (row["way"], row["path"], row["size"])
        best[key] = min(best.get(key, row["s"]), row["s"])
    torrent = {
        size: min(best["torrent4", "circuit", size], best["torrent16", "circuit", size])
        for size in SIZES
        if size != SMALL and ("torrent4", "circuit", size) in best
    }
    summary: dict[str, Any] = {}

    def over(path: str, others: dict[str, float]) -> dict[str, float]:
        return {
            size: best["rostrum", path, size] / seconds
            for size, seconds in others.items()
            if ("rostrum", path, size) in best
        }

    if torrent:
        largest = list(torrent)[-1]
        egress = [row["egress"] for row in rows if row["way"] == "rostrum" and row["size"] == largest]
        summary["vs_torrent"] = over("circuit", torrent)
        summary["driver_egress_over_value"] = max(egress) / SIZES[largest]
    if torrent and "packets" in figures:
        summary["vs_torrent_packets"] = over("packet", torrent)
    if torrent and "http" in figures:
        summary["vs_http"] = over("circuit", {size: best["http", "circuit", size] for size in torrent})
    if "small" in figures:
        summary["small_slower_ms"] = {row["size"]: row["slower_ms"] for row in figures["small"]}
    if "jobs" in figures:
        summary |= _of_jobs(figures["jobs"])
    if rows:
        summary["exact"] = all(row["exact"] for row in rows)
    if "late" in figures:
        summary["late_fetched"] = figures["late"]
    required = ("exact", "jobs_agree", "late_fetched")
    verdicts: dict[str, bool] = {name: summary[name] for name in required if name in summary}
    if torrent:
        verdicts["vs_torrent"] = summary["vs_torrent"][largest] <= GOALS["vs_torrent"]
        verdicts["driver_egress_over_value"] = summary["driver_egress_over_value"] <= GOALS["driver_egress_over_value"]
    if "small" in figures:
        verdicts["small_slower_ms"] = max(summary["small_slower_ms"].values()) <= GOALS["small_slower_ms"]
    parts = {part: {key: value for key, value in row.items() if key != "figures"} for part, row in measured.items()}
    return {"summary": summary, "verdicts": verdicts, "goals": GOALS, "parts": parts,
            "missing": [part for part in PARTS if part not in measured], **figures}  # fmt: skip


def _of_jobs(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Time over Torrent's, of the best of each; do all compute the same?"""
    names = list(dict.fromkeys(row["job"] for row in rows))
    best = {(row["job"], row["way"]): row["s"] for row in sorted(rows, key=lambda row: -row["s"])}
    results = {name: {row["result"] for row in rows if row["job"] == name} for name in names}
    return {
        "jobs": {name: best[name, "rostrum"] / best[name, "torrent4"] for name in names},
        "jobs_agree": all(len(found) == 1 for found in results.values()),
    }


def without_circuits(topology: dict[str, Any]) -> dict[str, Any]:
    """The same network with its packet switches alone."""
    value = {key: part for key, part in topology.items() if key not in ("ocs", "emulation")}
    value["links"] = [one for one in topology["links"] if not one["b"].startswith("ocs:")]
    return value


def _compile(folder: Path, home: Path, jar: Path) -> Path:
    """The application's jar."""
    classes, program = folder / "classes", folder / "study.jar"
    words = ["javac", "--release", "17", "-nowarn", "-cp", f"{jar}:{home}/jars/*", "-d", str(classes), str(SOURCE)]
    for command_line in (words, ["jar", "--create", "--file", str(program), "-C", str(classes), "."]):
        ended = subprocess.run(command_line, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise LabError(f"{command_line[0]} failed: {ended.stderr[-1000:]}")
    return program


class Cluster:
    """Spark's master and workers on servers of the lab; each worker's executors use the agent of theirs."""

    def __init__(self, lab: Lab, folder: Path, home: Path) -> None:
        self.lab, self.home = lab, home
        self.folder = Path(tempfile.mkdtemp(prefix="cluster-", dir=folder))
        self.programs: list[Entered] = []
        self.url = f"spark://{self.address(DRIVER)}:{PORT}"

    def __enter__(self) -> Cluster:
        self._start(DRIVER, "master.Master", "--port", str(PORT))
        for name in WORKERS:
            self.worker(name)
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.programs:
            program.kill()
            program.wait()

    def address(self, server: str) -> str:
        return str(self.lab.topology.servers[server].address)

    def worker(self, server: str) -> None:
        """One core: an executor."""
        words = ("--cores", "1", "--memory", "2G", "--work-dir", str(self.folder / server), self.url)
        self._start(server, "worker.Worker", *words)

    def _start(self, server: str, what: str, *words: str) -> None:
        command_line = ["java", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{self.home}/jars/*",
                        f"org.apache.spark.deploy.{what}", "--host", self.address(server), "--webui-port", "0",
                        *words]  # fmt: skip
        with (self.folder / f"{server}-{what}.log").open("wb") as log:
            program = self.lab.popen(server, [*self.settings(server), *command_line], stdin=subprocess.DEVNULL,
                                     stdout=log, stderr=log)  # fmt: skip
        self.programs.append(program)

    def settings(self, server: str) -> list[str]:
        values = {
            "SPARK_HOME": str(self.home), "SPARK_LOCAL_IP": self.address(server), "SPARK_SCALA_VERSION": "2.12",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"), "ROSTRUM_SOCKET": str(self.lab.agent_socket(server)),
        }  # fmt: skip
        return ["env", *(f"{key}={value}" for key, value in values.items())]

    def executor_log(self, server: str) -> str:
        logs = sorted((self.folder / server).glob("app-*/*/stderr"))
        return "\n".join(one.read_text(errors="replace") for one in logs)


class Study:
    """SparkStudy.java in the driver."""

    def __init__(self, cluster: Cluster, program: Path, jar: Path) -> None:
        self.cluster = cluster
        self.log = cluster.folder / "driver.log"
        conf = {
            "spark.driver.host": cluster.address(DRIVER), "spark.driver.memory": "2g", "spark.ui.enabled": "false",
            "spark.executor.memory": "1600m", "spark.executor.cores": "1", "spark.broadcast.compress": "false",
            "spark.plugins": "org.rostrum.spark.RostrumPlugin", "spark.jars": f"{program},{jar}",
            "spark.locality.wait": "0s", "spark.sql.shuffle.partitions": "6", "spark.sql.adaptive.enabled": "false",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
        }  # fmt: skip
        words = [str(cluster.home / "bin" / "spark-submit"), "--master", cluster.url, "--class", "SparkStudy"]
        for key, value in conf.items():
            words += ["--conf", f"{key}={value}"]
        words += [str(program), str(cluster.folder), cluster.address(DRIVER)]
        with self.log.open("wb") as log:
            self.program = cluster.lab.popen(
                DRIVER, [*cluster.settings(DRIVER), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        cluster.programs.append(self.program)
        self._pending = b""
        self._answer()

    def ask(self, *words: Any) -> str:
        assert self.program.stdin
        self.program.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self.program.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self.program.stdout
        until = time.monotonic() + BOUND_S
        while True:
            line, newline, rest = self._pending.partition(b"\n")
            if newline:
                self._pending = rest
                if line.startswith(b"answer "):
                    return line.decode().removeprefix("answer ")
                continue
            ready, _, _ = select.select([self.program.stdout], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self.program.stdout.fileno(), 65536) if ready else b""
            if not data:
                text = self.log.read_text(errors="replace")
                raise LabError(f"Spark's driver {'ended' if ready else 'did not answer'}: {text[-2000:]}")
            self._pending += data

    def warm(self) -> None:
        """All executors are there; each way was used once."""
        self.wait_for("servers", len(WORKERS))
        for way in ("torrent4", "rostrum", "torrent4", "rostrum"):
            self.broadcast(way, 8 * MIB)

    def wait_for(self, what: str, count: int) -> None:
        until = time.monotonic() + BOUND_S
        while (found := int(self.ask(what))) < count:
            if time.monotonic() > until:
                raise LabError(f"{found} of {count} {what}: {self.log.read_text(errors='replace')[-1000:]}")
            time.sleep(0.2)

    def broadcast(self, way: str, size: int, executors: int = len(WORKERS)) -> dict[str, Any]:
        """One, and until its objects are freed everywhere."""
        seconds, egress, exact, kind = self.ask("broadcast", way, size, executors).split()
        until = time.monotonic() + FREE_S
        for server in (DRIVER, *WORKERS):
            with Agent(self.cluster.lab.agent_socket(server)) as agent:
                while agent.status().store_used:
                    if time.monotonic() > until:
                        raise LabError(f"{server}: the object of a broadcast that was destroyed is still there")
                    time.sleep(0.1)
        return {"s": float(seconds), "egress": int(egress), "exact": exact == "true", "kind": kind}

    def broadcasts(self, number: int, size: str, ways: Sequence[str], path: str) -> list[dict[str, Any]]:
        """By several ways. Raises LabError if rostrum's goes another way."""
        rows = []
        for way in ways:
            row = {"round": number, "size": size, "way": way, "path": path, **self.broadcast(way, SIZES[size])}
            if way == "rostrum" and size != SMALL:
                paths = re.findall(r"servers by (\w+) \(", self.log.read_text(errors="replace"))
                if row["kind"] != "RostrumBroadcast" or not paths:
                    raise LabError(f"{size} went by {row['kind']}: {self.log.read_text(errors='replace')[-1000:]}")
                row["path_taken"] = paths[-1]
            OUT.print(f"{size} {way} ({row.get('path_taken', row['kind'])}): {row['s']:.2f} s")
            rows.append(row)
        return rows

    def small(self, pairs: int) -> list[dict[str, Any]]:
        """Small values, by turns: the median of what rostrum takes more than the Torrent beside it."""
        found = []
        ways = (("torrent4", "rostrum"), ("rostrum", "torrent4"))
        for name, size in NEAR.items():
            rows = [{way: self.broadcast(way, size) for way in ways[one % 2]} for one in range(pairs)]
            slower = [1000 * (row["rostrum"]["s"] - row["torrent4"]["s"]) for row in rows]
            torrent = [1000 * row["torrent4"]["s"] for row in rows]
            kinds = sorted({row["rostrum"]["kind"] for row in rows})
            found.append({"size": name, "pairs": pairs, "slower_ms": statistics.median(slower),
                          "torrent_ms": statistics.median(torrent), "went_by": kinds})  # fmt: skip
            OUT.print(f"{name} by {', '.join(kinds)}: {statistics.median(slower):.1f} ms more than Torrent's")
        return found

    def jobs(self, scale: float, rounds: int) -> list[dict[str, Any]]:
        """Jobs that broadcast, by both ways."""
        rows = []
        for job in JOBS:
            for way in ("rostrum", "torrent4"):  # its code is compiled, whichever way is measured first
                self.ask("job", job, way, 0.02)
            for number in range(rounds):
                for way in ("torrent4", "rostrum"):
                    seconds, result = self.ask("job", job, way, scale).split()
                    OUT.print(f"{job} {way}: {float(seconds):.2f} s")
                    row = {"round": number, "job": job, "way": way, "s": float(seconds), "result": float(result)}
                    rows.append(row)
        return rows

    def late(self) -> bool:
        """An executor that was not there when the value was sent has it, from agents."""
        self.ask("keep", 32 * MIB)
        self.cluster.worker(LATE)
        self.wait_for("executors", len(WORKERS) + 1)
        if self.ask("kept", len(WORKERS) + 1) != "true":
            raise LabError("an executor that came late has another value")
        return "fetched from those that have it" in self.cluster.executor_log(LATE)
