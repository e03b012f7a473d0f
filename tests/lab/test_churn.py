"""Churn for minutes, on request: ROSTRUM_CHURN_MINUTES=10 .ci/test lab/churn (docs/lab.md, "Churn")."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from rostrum.lab.experiments.churn import command

MINUTES = float(os.environ.get("ROSTRUM_CHURN_MINUTES", "0"))

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not MINUTES, reason="takes minutes: ROSTRUM_CHURN_MINUTES=10 says how many"),
    pytest.mark.timeout(60 * MINUTES + 600),
]


def test_churn__nothing_leaks_and_nothing_fails_without_a_cause(tmp_path: Path, seed: int) -> None:
    file = tmp_path / "churn.json"
    options = ["--minutes", str(MINUTES), "--seed", str(seed), "--name", "t-churn", "--json", str(file)]
    done = CliRunner().invoke(command, options)
    assert file.exists(), done.output
    report = json.loads(file.read_text())
    without = [row for row in report["failures"] if row["excused_by"] is None]
    assert not without and not report["summary"]["leaks"] and not report["summary"]["ended_by_themselves"], done.output
