"""The experiment of Fig. 8, short, on a real lab."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from rostrum.lab.experiments.fig8_attempt_interval import command

pytestmark = pytest.mark.lab


@pytest.mark.timeout(300)  # a lab and twelve transfers
def test_two_intervals_once(tmp_path: Path) -> None:
    json_file, png_file = tmp_path / "fig8.json", tmp_path / "fig8.png"
    options = ["--intervals", "700us,7ms", "--repeats", "2", "--size", "4M", "--seed", "5", "--wait-quiet", "0"]
    files = ["--name", "t-fig8", "--no-defaults", "--json", str(json_file), "--png", str(png_file)]
    done = CliRunner().invoke(command, [*options, *files])
    assert done.exit_code == 0, done.output
    report = json.loads(json_file.read_text())
    assert [(row["interval_us"], row["start_on"]) for row in report["configurations"]] == [
        (700, "last"), (7000, "last"), (700, "first"), (7000, "first"),
    ]  # fmt: skip
    runs = [dict(zip(report["columns"], row, strict=True)) for row in report["runs"]]
    # Each configuration: two circuits that had to be made, and the second one used again.
    assert len(runs) + len(report["excluded"]) == 12 and not report["failed"]
    for run in runs:
        assert len(run["lost"]) == len(run["light_ms"]) == 3
        assert 0 < run["attempt_ms"] < run["total_ms"] and run["extra_ms"] < run["total_ms"]
        assert run["reused"] or max(run["light_ms"]) >= 49  # the emulated OCS is dark that long
    assert report["manifest"]["seed"] == 5 and report["manifest"]["parameters"]["ringing"] == "1ms:0.5"
    assert png_file.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--intervals", "70"], "no duration"),
        (["--intervals", "20s"], "1us to 10s"),
        (["--reconfiguration", "soon"], "no reconfiguration time"),
        (["--ringing", "1ms"], "no ringing"),
        (["--seed", "0"], "seed"),
        (["--receivers", "7", "--name", "t-fig8-bad"], "1 to 6 servers"),
    ],
)
def test_wrong_options_are_refused_with_a_reason(options: list[str], text: str) -> None:
    done = CliRunner().invoke(command, [*options, "--repeats", "1"])
    assert done.exit_code != 0 and text in done.output, done.output
