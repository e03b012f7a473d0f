"""`rostrum sim run group-guarantees` in small; tests/sim/test_guarantees.c runs a thousand seeds."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from rostrum.sim.experiments.group_guarantees import command, run


def test_runs_are_counted_and_nobody_disagrees(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    result = CliRunner().invoke(command, ["--runs", "60", "--json", str(file)])
    assert result.exit_code == 0, result.output
    summary = json.loads(file.read_text())["summary"]
    assert (summary["runs"], summary["disagreements"], summary["stuck"]) == (60, 0, 0), summary
    assert summary["deliveries"] > 1000 and summary["views"] > 100 and summary["crashes"] > 10, summary


def test_a_seed_says_all() -> None:
    assert run(8, None, "seed") == run(8, None, "seed")
    assert run(8, "plain", "total") != run(9, "plain", "total")
