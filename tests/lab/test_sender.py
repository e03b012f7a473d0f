"""The experiments on what a sender's server pays and shares (attempt-cost, sharing), short, in real labs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from rostrum.lab.experiments import attempt_cost, sharing
from rostrum.lab.experiments.sharing import goodput
from rostrum.lab.namespace import LabError

pytestmark = pytest.mark.lab


@pytest.mark.timeout(300)
def test_attempts_cost_little_and_a_dark_phase_that_is_too_short_is_told(tmp_path: Path) -> None:
    file = tmp_path / "attempt.json"
    done = CliRunner().invoke(attempt_cost.command, ["--repeats", "1", "--name", "t-attempt", "--json", str(file)])
    assert done.exit_code == 0, done.output
    report = json.loads(file.read_text())
    (row,) = report["runs"]
    assert 0 <= row["idle"] < 1 and row["idle"] < row["cpu"] < 1, row
    assert row["attempt_ms"] > 1900, "the emulated OCS is dark for 2 s"
    assert 100 < row["packets_per_s"] < 1500, "one every 0.7 ms, or less often where the processor is busy"
    with pytest.raises(LabError, match="--reconfiguration"):
        attempt_cost.share([(0, 0), (10**8, 10**6)], 0, 2 * 10**8)
    assert attempt_cost.share([(n * 10**8, n * 10**7) for n in range(20)], 0, 2 * 10**9) == 0.1


@pytest.mark.timeout(300)
def test_tcp_of_the_senders_server_gets_its_part_of_the_nic(tmp_path: Path) -> None:
    file = tmp_path / "sharing.json"
    options = ["--flows", "2", "--size", "32M", "--rate", "50M", "--repeats", "1", "--name", "t-sharing"]
    done = CliRunner().invoke(sharing.command, [*options, "--json", str(file)])
    assert done.exit_code == 0, done.output
    summary = json.loads(file.read_text())["summary"]
    assert summary["0"]["unicast"] == 0 and summary["0"]["multicast"] > summary["2"]["multicast"]
    # 4 MiB that might wait in the sender's host left TCP 13 % of the NIC.
    assert summary["2"]["unicast"] > 0.3 and summary["2"]["multicast"] > 0.1, summary


def test_goodput_needs_two_points_of_the_window() -> None:
    progress = [[n * 10**9, n * 1000] for n in range(10)]
    assert goodput(progress, 2e9, 6e9) == 8000
    with pytest.raises(LabError, match="--size"):
        goodput(progress, 2.5e9, 3.5e9)
