"""A bench for real, small: our agents, the raw ceiling and TCP copies over the bench's own network."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rostrum.bench.commands import bench
from rostrum.lab.namespace import PrivateNamespace

pytestmark = pytest.mark.lab

HANGING = Path(__file__).with_name("hanging_tool.py")
CLEAN, LOSSY = "9000-off-free-loss0-r2-4M", "9000-off-1000mbit-loss5-r2-4M"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a small bench has left its results."""
    where = tmp_path_factory.mktemp("bench")
    run(where)
    return where


def run(where: Path, *more: str) -> str:
    """The bench as people call it, in a process of its own: it ends with its namespaces."""
    fields = ["datapath", "--case", CLEAN, "--case", LOSSY, "--tools", "rostrum,raw-udp,tcp-cubic", "--repeat", "1"]
    program = "from rostrum.bench.commands import bench; bench()"
    argv = [sys.executable, "-c", program, *fields, "--folder", str(where), *more]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def runs(where: Path) -> dict[tuple[str, str], dict[str, Any]]:
    records = json.loads((where / "results.json").read_text())["runs"]
    return {(record["case"]["name"], record["tool"]): record for record in records}


def test_every_copy_is_checked_and_its_cost_known(folder: Path) -> None:
    for (case, tool), record in runs(folder).items():
        if (case, tool) == (LOSSY, "raw-udp"):
            continue
        assert record["outcome"] == "ok" and record["digests"] == "equal", record
        assert record["time_s"] > 0 and record["sender_s"] > 0 and record["receivers_s"] > 0, record
        assert 0 < max(record["resident_mb"].values()) < 1000, record


def test_what_a_tool_cannot_do_is_told(folder: Path) -> None:
    record = runs(folder)[LOSSY, "raw-udp"]
    assert record["outcome"] == "missing" and "repairs nothing" in record["text"]


def test_loss_and_limit_are_real(folder: Path) -> None:
    found = runs(folder)
    assert found[CLEAN, "rostrum"]["frames_dropped"] == 0
    for tool in ("rostrum", "tcp-cubic"):
        record = found[LOSSY, tool]
        share = record["frames_dropped"] / (record["frames_dropped"] + record["frames_passed"])
        assert 0.01 < share < 0.12, record
        assert record["time_s"] > record["case"]["size"] * 8 / record["case"]["rate_bps"] * 0.98, "faster than the link"


def test_what_was_run_is_not_run_again(folder: Path) -> None:
    before = (folder / "results.json").read_text()
    assert "[" not in run(folder, "--resume").split("min\n")[0]
    assert json.loads((folder / "results.json").read_text())["runs"] == json.loads(before)["runs"]


def test_table_summary_and_picture_are_there(folder: Path) -> None:
    assert json.loads((folder / "summary.json").read_text())["max_rss_mb"] > 0
    assert "raw sending repairs nothing" in (folder / "table.md").read_text()
    assert (folder / "bench.png").exists()
    done = CliRunner().invoke(bench, ["datapath", "--from", str(folder / "results.json"), "--folder", str(folder)])
    assert done.exit_code == 0, done.output


def test_a_tool_that_hangs_is_ended_and_written_down(tmp_path: Path) -> None:
    with PrivateNamespace(log=tmp_path / "switches") as inside:
        said = inside.run([sys.executable, str(HANGING), str(tmp_path)]).stdout
    record, left = json.loads(said)
    assert record["outcome"] == "timeout" and "sleep on h1" in record["text"], record
    assert left == [], "processes of the tool are left"


def test_a_real_agents_receivers_are_played_over_sockets(tmp_path: Path) -> None:
    """In a process of its own, which ends with its namespace. Of 10 receivers each reports, of 40 those at the top."""
    file = tmp_path / "receivers.json"
    program = "from rostrum.bench.receivers import receivers; receivers()"
    argv = ["--agent", "-n", "10", "-n", "40", "--size", "8", "--repeat", "1", "--json", str(file)]
    done = subprocess.run(
        [sys.executable, "-c", program, *argv], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    few, many = json.loads(file.read_text())["runs"]
    assert few["packets"] >= 943 and many["packets"] >= 943, "all of the data"
    assert many["reports"] > 0, "by the tree"
