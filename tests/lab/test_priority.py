"""The experiment priority-protection, short, at a P4 top-of-rack switch; its summaries without a lab."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rostrum.lab.experiments import priority_plot
from rostrum.lab.experiments.priority_protection import Run, command, summaries

RUN = Run("p4", "bmv2", "tagged", 2, 0, 100, 0.0, 25e6, 0.0, 20e6, 7)


def test_summaries__median_and_range_of_each_case(tmp_path: Path) -> None:
    losses = (0.4, 0.1, 0.3)
    runs = [RUN, *(replace(RUN, tagging="untagged", victim_loss=loss) for loss in losses)]
    tagged, untagged = summaries(runs)
    assert (tagged["tagging"], tagged["runs"], tagged["victim_loss"]["p50"]) == ("tagged", 1, 0.0)
    assert untagged["victim_loss"] == {"p50": 0.3, "least": 0.1, "most": 0.4} and untagged["runs"] == 3
    parameters = {"rate": "50M", "multicast_share": 0.5, "rival_share": 0.9}
    report = {"cases": [tagged, untagged], "manifest": {"parameters": parameters}}
    priority_plot.draw(tmp_path / "a.png", report)
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.lab
def test_marks_protect_multicast_at_a_p4_switch(tmp_path: Path) -> None:
    json_file, png_file = tmp_path / "priority.json", tmp_path / "priority.png"
    options = ["--switch", "mixed", "--p4-target", "p4-reference-target", "--rounds", "1", "--repeats", "1"]
    files = ["--name", "t-priority", "--json", str(json_file), "--png", str(png_file)]
    done = CliRunner().invoke(command, [*options, "--seconds", "3", "--seed", "1", *files])
    assert done.exit_code == 0, done.output
    report = json.loads(json_file.read_text())
    found = {(row["tagging"], row["rivals"]): row for row in report["runs"]}
    assert len(found) == 4 and {row["switch"] for row in report["runs"]} == {"p4-reference-target+openvswitch"}
    assert found["tagged", 2]["victim_loss"] < 0.02 < 0.1 < found["untagged", 2]["victim_loss"], found
    assert found["tagged", 2]["unicast_goodput_bps"] > 0, "unicast has the rest of the port"
    assert all(row["witness_loss"] < 0.02 for row in report["runs"]), "a port without rivals loses nothing"
    assert report["manifest"]["seed"] == 1 and png_file.read_bytes()[:4] == b"\x89PNG"
