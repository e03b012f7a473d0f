"""`rostrum lab` as people type it, and the demo from its command line to its figures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rostrum.lab.lab import Lab, labs, run_folder
from rostrum.lab.namespace import LabError

from tests.lab.objects import check, data_of, send, until

pytestmark = pytest.mark.lab

RUN = [sys.executable, "-c", "from rostrum.lab.commands import lab; lab(prog_name='rostrum lab')"]
NAME = "t-commands"


def rostrum_lab(*arguments: str, status: int = 0) -> str:
    done = subprocess.run([*RUN, *arguments], capture_output=True, text=True, timeout=100)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_detached_lab_from_up_to_down() -> None:
    try:
        shown = rostrum_lab("up", "--detach", "--name", NAME)
        assert "8 servers ready" in shown
        assert NAME in labs()
        assert "10.0.2.1" in rostrum_lab("exec", "--name", NAME, "h3", "--", "hostname", "-I")
        assert "priority=100" in rostrum_lab("exec", "--name", NAME, "manager", "--", "ovs-ofctl", "dump-flows", "-O",
                                             "OpenFlow13", "tor1")  # fmt: skip
        assert rostrum_lab("exec", "--name", NAME, "h1", "--", "sh", "-c", "exit 3", status=3) == ""
        status = json.loads(rostrum_lab("status", "--json"))[NAME]
        assert {row["state"] for row in status["programs"].values()} == {"running"}
        assert set(status["programs"]) == {"ocs", "manager", *(f"h{n}" for n in range(1, 9))}
        rostrum_lab("kill", "--name", NAME, "--signal", "STOP", "h4")
        rostrum_lab("kill", "--name", NAME, "--signal", "CONT", "h4")
        assert json.loads(rostrum_lab("status", "--json"))[NAME]["programs"]["h4"]["state"] == "running"
        rostrum_lab("kill", "--name", NAME, "h4")
        assert "killed" in rostrum_lab("status", "--name", NAME)
        rostrum_lab("start", "--name", NAME, "h4")
        assert json.loads(rostrum_lab("status", "--json"))[NAME]["programs"]["h4"]["state"] == "running"
        assert "is running; stop it" in rostrum_lab("up", "--detach", "--name", NAME, status=1)
        assert json.loads((run_folder(NAME) / "lab.json").read_text())["agents"]["h1"].endswith("/h1/agent.sock")
    finally:
        rostrum_lab("down", "--name", NAME)
    assert NAME not in labs()
    assert not list(run_folder(NAME).glob("*/agent.sock"))
    assert f"no lab called {NAME} is running; start one" in rostrum_lab("down", "--name", NAME, status=1)


def test_lab_commands_print_json() -> None:
    try:
        facts = json.loads(rostrum_lab("up", "--detach", "--name", NAME, "--json"))
        assert facts["name"] == NAME and set(facts["agents"]) == {f"h{n}" for n in range(1, 9)}
        assert all(Path(path).is_socket() for path in [*facts["agents"].values(), facts["rest"]])
        done = subprocess.run([*RUN, "exec", "--json", "--name", NAME, "h3", "sh", "-c", "hostname -I; exit 3"],
                              capture_output=True, text=True, timeout=30)  # fmt: skip
        value = json.loads(done.stdout)
        assert done.returncode == value["status"] == 3 and "10.0.2.1" in value["output"] and value["where"] == "h3"
        fault = rostrum_lab("ocs", "--name", NAME, "fault", "kind=dim-splitter", "splitter=s1", "db=3")
        assert json.loads(fault)["id"] in json.loads(rostrum_lab("ocs", "--name", NAME, "state"))["faults"]
        assert "there are: dead-port" in rostrum_lab("ocs", "--name", NAME, "fault", "kind=odd", status=1)
        assert "NAME=VALUE" in rostrum_lab("ocs", "--name", NAME, "fault", "odd", status=2)
        assert "--detach" in rostrum_lab("up", "--json", "--name", NAME, status=2)
    finally:
        assert json.loads(rostrum_lab("down", "--name", NAME, "--json")) == {"stopped": [NAME]}


def test_foreground_lab_ends_with_ctrl_c() -> None:
    with subprocess.Popen([*RUN, "up", "--name", NAME], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert "8 servers ready" in process.stdout.readline()
            init = json.loads((run_folder(NAME) / "lab.json").read_text())["init_pid"]
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        finally:
            process.kill()
    assert not Path(f"/proc/{init}").exists() and NAME not in labs()


def test_killed_foreground_lab_leaves_nothing_that_the_next_start_minds() -> None:
    with subprocess.Popen([*RUN, "up", "--name", NAME], stdout=subprocess.PIPE, text=True) as process:
        assert "8 servers ready" in process.stdout.readline()
        init = json.loads((run_folder(NAME) / "lab.json").read_text())["init_pid"]
        process.send_signal(signal.SIGKILL)
    until(lambda: not Path(f"/proc/{init}").exists(), "the killed lab's first process to be gone")
    assert NAME not in labs()
    with Lab.start(name=NAME, parts=()) as lab:
        assert "10.0.1.1" in lab.execute("h1", ["hostname", "-I"])


def test_two_labs_at_once(seed: int) -> None:
    """The same addresses, names and ports twice, and each object arrives where it belongs."""
    sent = {}
    with Lab.start(name="t-one", seed=1) as one, Lab.start(name="t-two", seed=2) as two:
        for lab in (one, two):
            sent[lab.name] = data_of(2_000_000, seed + len(sent))
            check(lab, send(lab, "h1", ["h3", "h5"], sent[lab.name]), ["h3", "h5"], sent[lab.name])
        one.stop()
        check(two, send(two, "h3", ["h1"], sent["t-two"]), ["h1"], sent["t-two"])


def test_a_lab_that_cannot_start_says_what_it_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROSTRUM_AGENT", "/bin/false")
    with pytest.raises(LabError, match=r"h\d ended: exit status 1; the end of .*agent.log"):
        Lab.start(name=NAME)
    monkeypatch.setenv("ROSTRUM_AGENT", "/bin/cat")
    with pytest.raises(LabError, match=r"h\d ended"):
        Lab.start(name=NAME)
    monkeypatch.setenv("ROSTRUM_AGENT", "/no/such/rostrumd")
    with pytest.raises(LabError, match=r"/no/such/rostrumd is not built; run make build"):
        Lab.start(name=NAME)
    assert NAME not in labs()
    assert not [file for file in run_folder(NAME).rglob("*") if file.is_socket()]


def test_wrong_topology_is_refused_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("rostrum: 1\nname: wrong\n")
    shown = rostrum_lab("up", "--name", NAME, "--topology", str(file), status=1)
    assert "lacks links; add it" in shown and "Traceback" not in shown


def test_experiments_are_listed_and_explained() -> None:
    assert "demo" in rostrum_lab("run", "--list")
    assert "--ocs-delay" in rostrum_lab("run", "demo", "--help")
    assert "no experiment is called nothing" in rostrum_lab("run", "nothing", status=1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--receivers", "7"], "1 to 6 servers"),
        (["--sender", "h9"], "no server h9"),
        (["--size", "lots"], "not a size"),
        (["--ocs-delay", "3"], "no duration"),
        (["--topology", "nowhere"], "cannot be read"),
    ],
)
def test_demo_refuses_what_makes_no_sense(arguments: list[str], text: str, tmp_path: Path) -> None:
    file = tmp_path / "demo.json"
    command = [*RUN, "run", "demo", "--name", NAME, "--json", str(file), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2) and text in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and not file.exists()


def test_experiments_find_a_free_name_and_print_json() -> None:
    """Two demos at once, by their default name: the second one does not stumble over the first."""
    arguments = ["run", "demo", "--size", "1M", "--receivers", "2", "--ocs-delay", "10ms", "--once", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*RUN, *arguments], **pipes) as one, subprocess.Popen([*RUN, *arguments], **pipes) as two:
        reports = []
        for process in (one, two):
            output, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
            reports.append(json.loads(output))
    assert all(report["ok"] and len(report["receivers"]) == 2 for report in reports)
    assert reports[0]["logs"] != reports[1]["logs"]


def test_demo(tmp_path: Path) -> None:
    file = tmp_path / "demo.json"
    # It takes 0.1 s, so that on a busy machine, too, the manager hears of steady light before the path is released.
    shown = rostrum_lab("run", "demo", "--name", NAME, "--size", "16M", "--receivers", "3", "--ocs-delay", "20ms",
                        "--seed", "7", "--json", str(file))  # fmt: skip
    assert "first light at h5" in shown and "right" in shown
    report = json.loads(file.read_text())
    assert report["ok"] and report["bytes"] == 16 << 20 and report["path"] == "circuit"
    # The OCS begins before the agent hears ACCEPTED, and light may be confirmed while it still rings (a fourteenth).
    assert report["reconfiguration_ms"] == 20 and report["setup_ms"] > 15
    assert report["total_ms"] > report["setup_ms"] and report["extra_ms"] > 0 and report["goodput_bps"] > 0
    assert report["cross_connects"] == 4 and report["rules"] == 4
    assert [row["host"] for row in report["receivers"]] == ["h3", "h5", "h7"]
    keys = {"host", "digest_ok", "initial_sn", "patched_fragments", "complete_ms"}
    assert all(keys <= set(row) and row["digest_ok"] for row in report["receivers"])
    what = [row["what"] for row in report["timeline"]]
    for stage in ("requested", "accepted", "rules in", "cross-connects steady", "high rate", "path released"):
        assert stage in what
    assert report["reused"]["ok"] and report["reused"]["reconfiguration_ms"] == 0
    assert report["manifest"]["seed"] == 7 and report["manifest"]["machine"]["cores"] == os.cpu_count()


def test_response_counts_every_request(tmp_path: Path) -> None:
    file = tmp_path / "response.json"
    shown = rostrum_lab(
        "run", "response", "--requests", "5", "--receivers", "2", "--topology", "hybrid-4x2", "--json", str(file)
    )
    report = json.loads(file.read_text())
    assert report["manager"]["count"] == 5 and "in the manager: p50" in shown
    assert 0 < report["agent"]["p50_ms"] <= report["agent"]["p99_ms"] <= report["agent"]["max_ms"]
    assert report["manifest"]["parameters"]["requests"] == 5
