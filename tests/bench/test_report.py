"""Table, picture, summary, and the command that makes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from rostrum.bench import install
from rostrum.bench.cases import base, limited
from rostrum.bench.commands import bench
from rostrum.bench.session import alone
from rostrum.bench.summary import summarize
from rostrum.bench.table import figures, markdown, table

from tests.bench.records import failed, record


def cells(text: str, tool: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {tool}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_table__medians_with_least_and_most() -> None:
    case = limited(9000, 1.0, 125_000_000)
    times = (1.25, 1.0, 2.0)
    runs = [
        record(case, "rostrum", time_s, round=number, frames_passed=990, frames_dropped=10)
        for number, time_s in enumerate(times)
    ]
    row = cells(table(runs), "rostrum")
    assert row[:5] == ["rostrum (udp)", "3/3", "1.250 (1.000..2.000)", "0.800 (0.500..1.000)", "1.250"]
    assert row[9] == "1.00"


def test_table__what_did_not_work_is_shown_with_its_reason() -> None:
    case = base(9000)
    runs = [
        record(case, "rostrum"),
        failed(case, "aeron", "missing", "maven cannot be installed: no | network"),
        failed(case, "uftp", "timeout", "uftp on h1: not done within 71 s"),
        record(case, "norm", round=0),
        {**failed(case, "norm", "corrupt", "other bytes"), "round": 1},
    ]
    text = table(runs)
    assert cells(text, "aeron")[1:3] == ["0/1", "missing: maven cannot be installed: no / network"]
    assert cells(text, "uftp")[2].startswith("timeout: uftp on h1")
    assert cells(text, "norm")[1] == "1/2 (corrupt)"


def test_table__a_fixed_start_is_told_apart() -> None:
    assert (
        cells(table([record(base(9000), "udpcast", 3.0, facts={"data_s": 1.0})]), "udpcast")[2] == "3.000, data 1.000"
    )


def test_figures__what_was_not_measured_is_named_and_no_more() -> None:
    text = figures(summarize([record(base(9000), "rostrum"), record(base(9000), "uftp", 3.0)]))
    assert cells(text, "vs_best_tool_9000_loss0")[:4] == ["vs_best_tool_9000_loss0", "3.000", ">= 2.5", "met"]
    assert "| limited_9000_loss0" not in text and "not measured: limited_9000_loss0," in text


def test_markdown__lines_up() -> None:
    lines = markdown(("a", "long head", "end"), [("value", "b", "c")]).splitlines()
    assert lines[0].index("| end") == lines[2].index("| c")


def test_command__results_become_table_picture_and_summary(tmp_path: Path) -> None:
    runs = [record(base(9000), tool, time_s) for tool, time_s in (("rostrum", 1.0), ("uftp", 2.5), ("raw-udp", 0.9))]
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"manifest": {"commit": "c", "time": "t", "machine": {}}, "runs": runs}))
    done = CliRunner().invoke(bench, ["datapath", "--from", str(results), "--folder", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["vs_best_tool_9000_loss0"] == 2.5 and summary["raw_ratio_9000"] == 0.9
    assert (tmp_path / "out" / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert "9000-off-free-loss0-r3-512M" in (tmp_path / "out" / "table.md").read_text()
    assert "vs_best_tool_9000_loss0" in done.output


def test_command__two_benches_do_not_share_a_folder(tmp_path: Path) -> None:
    with alone(tmp_path):
        done = CliRunner().invoke(bench, ["datapath", "--quick", "--folder", str(tmp_path)])
    assert done.exit_code == 1 and "another bench is running" in done.output
    with alone(tmp_path):
        pass


def test_command__help_teaches() -> None:
    done = CliRunner().invoke(bench, ["datapath", "--help"])
    assert done.exit_code == 0
    for word in ("--quick", "--resume", "--only", "9000-off-free-loss1-r3-512M", "rostrum bench datapath --list"):
        assert word in done.output


def test_command__list_shows_and_runs_nothing() -> None:
    done = CliRunner().invoke(bench, ["datapath", "--list", "--only", "9000,1000mbit", "--tools", "ours,uftp"])
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert len(lines) == 4 and all("rostrum-packet, uftp" in line for line in lines)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (["--tools", "rsync"], "no such tool: rsync"),
        (["--case", "fast"], "no case; write one like"),
        (["--only", "9001"], "no case is left"),
    ],
)
def test_command__wrong_arguments_are_explained(fields: list[str], says: str) -> None:
    done = CliRunner().invoke(bench, ["datapath", "--list", *fields])
    assert done.exit_code == 2 and says in done.output


def test_install__what_cannot_be_had_is_missing_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    need = install.Need("no-such-package", lambda: False)
    monkeypatch.setattr(install, "NEEDS", {"uftp": (need,)})
    monkeypatch.setattr(install, "_install_packages", lambda packages, say: f"no {packages[0]} anywhere")
    said: list[str] = []
    missing = install.install(["uftp", "rostrum"], tmp_path, said.append)
    assert missing == {"uftp": "no-such-package cannot be installed: no no-such-package anywhere"}


def test_install__drivers_are_built_where_the_benchs_programs_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = tmp_path / "agent" / "bench" / "native"
    native.mkdir(parents=True)

    def run(*command: str) -> str:
        if command[0] == "ninja" and Path(command[-1]) == tmp_path / "agent":
            (native / "norm_messages").touch()
        return ""

    monkeypatch.setattr(install, "NEEDS", {"norm_messages": ()})
    monkeypatch.setattr(install, "_quiet", run)
    monkeypatch.setattr(install, "bench_programs", lambda: native)
    assert install.install(["norm_messages"], tmp_path, lambda text: None) == {}


def test_install__packages_are_explained_to_people() -> None:
    explained = (Path(__file__).parents[2] / "docs" / "dependencies.md").read_text()
    packages = {need.package for needs in install.NEEDS.values() for need in needs}
    assert {package for package in packages if f"`{package}`" not in explained} == set()
