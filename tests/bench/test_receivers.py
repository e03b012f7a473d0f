"""What one more receiver costs a sender: memory and messages, which are the same on every machine."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from rostrum.bench.receivers import receivers


def test_ten_thousand_receivers_cost_little_memory_and_no_reports(tmp_path: Path) -> None:
    file = tmp_path / "receivers.json"
    argv = ["-n", "10", "-n", "100", "-n", "10000", "--size", "64", "--repeat", "1", "--json", str(file)]
    result = CliRunner().invoke(receivers, argv)
    assert result.exit_code == 0, result.output
    few, _, many = json.loads(file.read_text())["runs"]
    assert many["bytes_per_receiver"] < 1024, "of those whose reports others collect"
    assert few["reports"] > 0
    assert many["reports"] < 2 * few["reports"], "the sender reads as many reports as of ten receivers"
