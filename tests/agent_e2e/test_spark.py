"""Spark's broadcasts by rostrum: a standalone Spark whose executors have agents of their own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent_e2e import spark_cluster
from tests.agent_e2e.agents import ROOT, World, content, wait_until
from tests.agent_e2e.network import Network, network
from tests.agent_e2e.spark_cluster import Cluster, Driver, cluster_in
from tests.agent_e2e.yarn_cluster import JARS, Yarn

pytestmark = [
    pytest.mark.apps,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not spark_cluster.home(), reason="Spark is not installed: .ci/setup apps"),
]
MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def jar() -> None:
    subprocess.run([str(ROOT / ".ci" / "jvm")], check=True, timeout=180)


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(4) as it:
        yield it


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with cluster_in(tmp_path) as it:
        yield it


@pytest.fixture
def drivers(lab: World, cluster: Cluster) -> Iterator[Callable[..., Driver]]:
    """Makes one on h1, with executors on h2 and h3."""
    lab.start_all()
    made: list[Driver] = []

    def make(executors: tuple[str, ...] = ("h2", "h3"), socket: Any = None, **settings: str) -> Driver:
        for name in executors:
            cluster.worker(name, lab.agents[name].socket)
        driver = Driver(
            cluster,
            socket or lab.agents["h1"].socket,
            **{key.replace("_", "."): value for key, value in settings.items()},
        )
        made.append(driver)
        wait_until(lambda: driver.tell("executors") >= len(executors), "executors", 90)
        if not socket and not {"spark_plugins", "spark_io_encryption_enabled"} & set(settings):
            known = sorted(executors) or ["h2", "h3"]  # a second driver's are those that are there
            wait_until(lambda: driver.tell("servers") == known, "servers", 90)
        return driver

    try:
        yield make
    finally:
        for driver in made:
            print("-- the driver said:", driver.log()[-3000:])
            driver.close()
        for name in list(cluster.processes):
            print(f"-- executors of {name} said:", cluster.executor_log(name)[-3000:])


def stored(lab: World, *names: str) -> dict[str, int]:
    """How many objects each agent has, of any application."""
    found = {}
    for name in names:
        with contextlib.closing(lab.app(name)) as app:
            found[name] = len(app.status()[2])
    return found


def begins(seed: int, size: int) -> str:
    return content(size, seed)[:4].hex()


def test_values_go_once_to_all_servers_and_are_freed(lab: World, drivers: Callable[..., Driver]) -> None:
    driver = drivers()
    wait_until(lambda: driver.tell("servers") == ["h2", "h3"], "servers", 60)
    assert driver.tell("broadcast", "small", 100_000, 1) == "TorrentBroadcast"
    assert driver.tell("broadcast", "large", 8 * MIB, 2) == "RostrumBroadcast"
    wait_until(lambda: stored(lab, "h1", "h2", "h3") == {"h1": 1, "h2": 1, "h3": 1}, "objects")
    rows = driver.tell("read", "large", 8)
    assert {(row[1], row[2]) for row in rows} == {(begins(2, 8 * MIB), 8 * MIB)}
    assert {Path(row[0]) for row in rows} == {lab.agents[name].socket for name in ("h2", "h3")}
    assert driver.tell("here", "large") > 8 * MIB
    assert stored(lab, "h4") == {"h4": 0}
    driver.tell("unpersist", "large")
    wait_until(lambda: stored(lab, "h2", "h3") == {"h2": 0, "h3": 0}, "end of copies")
    assert stored(lab, "h1") == {"h1": 1}
    assert len(driver.tell("read", "large", 4)) == 4  # again, from the driver's server
    driver.tell("destroy", "large")
    wait_until(lambda: stored(lab, "h1", "h2", "h3") == {"h1": 0, "h2": 0, "h3": 0}, "end of objects")
    assert driver.tell("broadcast", "left", 4 * MIB, 3) == "RostrumBroadcast"
    driver.tell("read", "left", 4)
    driver.tell("leave", "left")
    wait_until(lambda: driver.tell("collect") or not any(stored(lab, "h1", "h2", "h3").values()), "a collection")
    driver.tell("broadcast", "last", 4 * MIB, 4)
    driver.tell("broadcast", "under way", 48 * MIB, 5)
    driver.tell("broadcast", "ended under way", 48 * MIB, 6)
    driver.tell("destroy", "ended under way")
    driver.tell("stop")
    wait_until(lambda: not any(stored(lab, "h1", "h2", "h3").values()), "nothing is left by the application")


def readers(driver: Driver, name: str, tasks: int = 8) -> set[str]:
    """Hosts whose executors read it, each with the right bytes."""
    rows = driver.tell("read", name, tasks)
    assert len(rows) == tasks
    assert len({(row[1], row[2]) for row in rows}) == 1, rows
    return {Path(row[0]).parent.name for row in rows}


def test_an_executor_that_comes_late_fetches_and_one_that_is_killed_hurts_nobody(
    lab: World, cluster: Cluster, drivers: Callable[..., Driver]
) -> None:
    driver = drivers()
    assert driver.tell("broadcast", "value", 8 * MIB, 5) == "RostrumBroadcast"
    assert readers(driver, "value") == {"h2", "h3"}
    cluster.worker("h4", lab.agents["h4"].socket)
    wait_until(lambda: driver.tell("servers") == ["h2", "h3", "h4"], "a late executor", 90)
    assert stored(lab, "h4") == {"h4": 0}
    assert readers(driver, "value", 12) >= {"h4"}
    assert stored(lab, "h4") == {"h4": 1}
    for pid in cluster.executor_pids("h3"):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: "h3" not in driver.tell("servers"), "an executor that is gone", 90)
    wait_until(lambda: "h3" in driver.tell("servers"), "another one", 90)
    assert "h3" in readers(driver, "value", 12)
    cluster.stop("h4")  # with its executor: the object that it leaves is not read any more
    wait_until(lambda: "h4" not in driver.tell("servers"), "a worker that is gone", 90)
    assert driver.tell("broadcast", "next", 4 * MIB, 6) == "RostrumBroadcast"
    assert readers(driver, "next") <= {"h2", "h3"}
    driver.tell("destroy", "value")
    driver.tell("destroy", "next")
    wait_until(lambda: not any(stored(lab, "h1", "h2", "h3").values()), "end of objects")


def test_executors_without_agents_get_values_by_spark(
    lab: World, cluster: Cluster, drivers: Callable[..., Driver]
) -> None:
    driver = drivers()
    cluster.worker("h4", cluster.folder / "nothing.sock")
    wait_until(lambda: driver.tell("executors") == 3, "an executor without an agent", 90)
    assert driver.tell("broadcast", "value", 4 * MIB, 7) == "RostrumBroadcast"
    rows = driver.tell("read", "value", 12)
    assert str(cluster.folder / "nothing.sock") in {row[0] for row in rows}
    assert {(row[1], row[2]) for row in rows} == {(begins(7, 4 * MIB), 4 * MIB)}
    assert driver.tell("metrics")["executorFallbacks"] == 1
    assert "by Spark's own means" in driver.log()
    assert "nothing.sock" in cluster.executor_log("h4")
    lab.agents["h3"].kill()  # what it had is lost, and what it is to get does not come
    assert driver.tell("broadcast", "other", 4 * MIB, 8) == "RostrumBroadcast"
    assert len(driver.tell("read", "other", 12)) == 12
    lab.agents["h1"].kill()
    assert driver.tell("broadcast", "third", 4 * MIB, 9) == "TorrentBroadcast"
    assert len(driver.tell("read", "third", 12)) == 12
    assert driver.tell("here", "other") > 4 * MIB
    driver.tell("destroy", "value")


def test_what_a_killed_driver_leaves_is_freed(lab: World, cluster: Cluster, drivers: Callable[..., Driver]) -> None:
    driver = drivers()
    assert driver.tell("broadcast", "value", 64 * MIB, 1) == "RostrumBroadcast"
    wait_until(lambda: stored(lab, "h1", "h2", "h3") == {"h1": 1, "h2": 1, "h3": 1}, "objects")
    driver.close()  # while it is under way: executors end before they have it
    wait_until(lambda: not any(stored(lab, "h2", "h3").values()), "executors' end", 90)
    assert stored(lab, "h1") == {"h1": 1}
    assert len(list(cluster.folder.glob("rostrum-spark-*.app"))) == 1
    other = drivers(())
    wait_until(lambda: stored(lab, "h1") == {"h1": 0}, "end of what was left")
    other.tell("stop")
    assert not list(cluster.folder.glob("rostrum-spark-*.app"))


def test_without_an_agent_at_the_driver_all_is_as_without_rostrum(
    cluster: Cluster, drivers: Callable[..., Driver]
) -> None:
    driver = drivers(socket=cluster.folder / "nothing.sock")
    assert driver.tell("broadcast", "value", 4 * MIB, 1) == "TorrentBroadcast"
    assert len(driver.tell("read", "value", 4)) == 4
    assert "broadcasts go by Spark's own means" in driver.log()
    assert "nothing.sock" in driver.log()


def test_broadcast_joins_of_sql_go_by_rostrum(lab: World, drivers: Callable[..., Driver]) -> None:
    driver = drivers(spark_rostrum_threshold="100k")
    is_broadcast, total, right = driver.tell("join", 200_000)
    assert is_broadcast
    assert total == right
    assert driver.tell("metrics")["broadcasts"] >= 1
    assert driver.tell("metrics")["fallbacks"] == 0
    wait_until(lambda: driver.tell("collect") or not any(stored(lab, "h1", "h2", "h3").values()), "a collection")


def test_what_must_stay_secret_stays_with_spark(drivers: Callable[..., Driver]) -> None:
    driver = drivers(spark_io_encryption_enabled="true")
    assert driver.tell("broadcast", "value", 4 * MIB, 1) == "TorrentBroadcast"
    assert "spark.io.encryption.enabled is set" in driver.log()


def test_python_processes_of_a_server_share_one_copy(
    lab: World, cluster: Cluster, drivers: Callable[..., Driver]
) -> None:
    driver = drivers()
    way, size = driver.tell("handle", "value", 8 * MIB, 11)
    assert way == "rostrum"
    assert size < 200
    rows = driver.tell("handle_read", "value", 8)
    assert {(row[1], row[2], row[3], row[4]) for row in rows} == {(begins(11, 8 * MIB), 8 * MIB, False, "value")}
    assert {Path(row[0]).parent.name for row in rows} == {"h2", "h3"}
    cluster.worker("h4", lab.agents["h4"].socket)  # comes late, and gets what is there
    wait_until(lambda: stored(lab, "h1", "h2", "h3", "h4") == dict.fromkeys(("h1", "h2", "h3", "h4"), 1), "objects", 90)
    rows = driver.tell("handle_read", "value", 12)
    assert "h4" in {Path(row[0]).parent.name for row in rows}
    driver.tell("destroy", "value")
    wait_until(lambda: not any(stored(lab, "h1", "h2", "h3", "h4").values()), "end of objects")
    cluster.stop("h4")
    cluster.worker("h4", cluster.folder / "nothing.sock")
    wait_until(lambda: driver.tell("without_agents") == 1, "an executor without an agent", 90)
    assert driver.tell("handle", "other", 2 * MIB, 12)[0] == "spark"
    assert {row[2] for row in driver.tell("handle_read", "other", 12)} == {2 * MIB}
    assert "1 of the executors have no agent" in driver.log()


def test_python_values_without_the_plugin_go_by_spark(cluster: Cluster, drivers: Callable[..., Driver]) -> None:
    driver = drivers(("h2",), spark_plugins="")
    assert driver.tell("handle", "value", 2 * MIB, 13)[0] == "spark"
    assert {row[2] for row in driver.tell("handle_read", "value", 2)} == {2 * MIB}
    assert "spark.plugins=org.rostrum.spark.RostrumPlugin" in driver.log()


def submit(home: Path, socket: Path, words: list[str], conf: dict[str, Any], **settings: str) -> str:
    """What spark-submit says of tests/client/spark_packages.py."""
    options = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    command = [str(home / "bin" / "spark-submit"), *words, *options]
    process = subprocess.Popen(
        [*command, str(ROOT / "tests" / "client" / "spark_packages.py")], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, env=spark_cluster.environment(home, str(socket)) | settings, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=150)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, said
    return said


def test_executors_of_yarn_use_the_agents_of_their_nodes(lab: World, tmp_path: Path) -> None:
    home = spark_cluster.home()
    assert home
    if not JARS.is_dir() or not list(home.glob("jars/hadoop-client-api-3.3.*.jar")):
        pytest.skip("needs Hadoop's programs, of the version of Spark's: run .ci/setup apps, with Maven")
    lab.start_all()
    yarn = Yarn(tmp_path / "yarn", home)
    try:
        for name in ("h2", "h3"):
            yarn.node(name, lab.agents[name].socket)
        conf = {
            "spark.plugins": "org.rostrum.spark.RostrumPlugin", "spark.driver.host": "127.0.0.1",
            "spark.yarn.jars": f"local:{home}/jars/*", "spark.yarn.stagingDir": tmp_path / "staging",
            "spark.executor.instances": "2", "spark.executor.memory": "512m", "spark.executor.cores": "1",
            "spark.yarn.am.memory": "384m", "spark.yarn.am.cores": "1", "spark.ui.enabled": "false",
            "spark.rostrum.broadcast": "always", "spark.rostrum.threshold": "64k", "spark.locality.wait": "0s",
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={tmp_path}",
        }  # fmt: skip
        said = submit(home, lab.agents["h1"].socket, ["--master", "yarn", "--jars", str(spark_cluster.JAR)], conf,
                      HADOOP_CONF_DIR=str(yarn.conf))  # fmt: skip
        assert re.search(r"answer RostrumBroadcast h[23] 4194304 4194304 4194304 4194304", said), said
    finally:
        print(yarn.said()[-8000:])
        yarn.close()
    wait_until(lambda: not any(stored(lab, "h1", "h2", "h3").values()), "an end of objects")


def test_spark_submit_gets_the_plugin_as_a_package(lab: World, cluster: Cluster, tmp_path: Path) -> None:
    lab.start_all()
    cluster.worker("h2", lab.agents["h2"].socket)
    version = (ROOT / "VERSION").read_text().strip()
    package = f"org.rostrum:rostrum-spark_{cluster.scala()}:{version}"
    conf = {
        "spark.jars.ivy": tmp_path / "ivy", "spark.plugins": "org.rostrum.spark.RostrumPlugin",
        "spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", "spark.ui.enabled": "false",
        "spark.rostrum.broadcast": "always", "spark.rostrum.threshold": "64k",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={tmp_path}",
    }  # fmt: skip
    words = ["--master", cluster.url, "--packages", package, "--repositories", (ROOT / "build" / "maven").as_uri()]
    said = submit(cluster.home, lab.agents["h1"].socket, words, conf)
    print(cluster.executor_log("h2")[-3000:])
    assert f"found {package.replace(':', '#', 1).replace(':', ';')} in repo-1" in said, said
    assert "answer RostrumBroadcast h2 4194304 4194304 4194304 4194304" in said, said
    assert not any(stored(lab, "h1", "h2").values())


def exercise(folder: Path, name: str, *words: object) -> str:
    """What a program of tests/client/jvm in the plugin's package says."""
    path = f"{spark_cluster.JAR}:{spark_cluster.home()}/jars/*"
    source = ROOT / "tests" / "client" / "jvm" / f"{name}.java"
    subprocess.run(["javac", "--release", "17", "-cp", path, "-d", str(folder), str(source)], check=True, timeout=120)
    command = ["java", "-Xmx900m", "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED", "-cp", f"{folder}:{path}"]
    command += [f"org.rostrum.spark.{name}", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    return done.stdout or done.stderr


@pytest.mark.parametrize("seed", [1])
def test_arrays_go_as_they_are(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    assert exercise(tmp_path, "RawExercise", tmp_path, seed) == "right\n"


def test_an_untried_version_of_spark_is_refused_with_the_reason(tmp_path: Path) -> None:
    assert exercise(tmp_path, "VersionExercise") == "right\n"
