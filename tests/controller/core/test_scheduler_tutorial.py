"""The plug-in of docs/scheduler-tutorial.md: taken out of the page, installed, run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "scheduler-tutorial.md"


def run(*argv: str, path: Path | None = None) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(path or ""), *sys.path]))}
    done = subprocess.run(
        [sys.executable, *argv], capture_output=True, text=True, timeout=100, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that pip installed the page's package into."""
    package, target = tmp_path_factory.mktemp("package"), tmp_path_factory.mktemp("site")
    for name, code in re.findall(r"^`(\S+)`:\n```\w+\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text(code)
    assert {one.name for one in package.iterdir()} == {"fewest_racks", "pyproject.toml"}
    fields = ["-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--no-index"]
    run(*fields, "--target", str(target), str(package))
    return target


def test_tutorial__the_plug_in_is_known_by_its_name(site: Path) -> None:
    code = "from rostrum.controller.core import schedulers; print(schedulers.create('fewest-racks').name)"
    assert run("-c", code, path=site).strip() == "fewest-racks"


def test_tutorial__the_page_s_own_test_runs(site: Path) -> None:
    code = re.findall(r"^## Test it\n.*?```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)[0]
    assert "p-" in run("-c", code, path=site)


def test_tutorial__serves_a_whole_trace_in_the_simulator(site: Path, tmp_path: Path) -> None:
    code = (
        "from rostrum.sim import workload; from rostrum.sim.experiments.schedulers import run_all\n"
        "from rostrum.topologies import load; t = load('hybrid-4x2')\n"
        "r = run_all(t, workload.generate(t, 40, 0.8, 5), ['fewest-racks'], None)['fewest-racks']\n"
        "print(sum(one.done > 0 for one in r.outcomes))"
    )
    assert run("-c", code, path=site).strip() == "40"
