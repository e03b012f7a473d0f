"""CONTRIBUTING.md, followed to the letter in a copy of the tree: what it adds runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, files, text

COPIED = (
    "controller/",
    "topologies/",
    "mininet/",
    "sim/",
    "agent/client/python/",
    ".ci/links",
    "pyproject.toml",
    "VERSION",
)


def steps(title: str) -> str:
    """The commands of a section."""
    section = text("CONTRIBUTING.md").split(f"\n## {title}\n")[1].split("\n## ")[0]
    found: list[str] = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"one block of commands under {title!r}"
    return found[0]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in files():
        if name.startswith(COPIED):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    run(tmp_path, ".ci/links")
    return tmp_path


def run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder / "build" / "python"), "ROSTRUM_PURE_PYTHON": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rostrum(folder: Path, *fields: str) -> str:
    return run(folder, sys.executable, "-c", "from rostrum.client.cli import main; main()", *fields)


@pytest.mark.parametrize("name", ["clone", "ein Ordner mit Umläuten", "long" * 40])
def test_commands__run_from_a_clone_in_any_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    for file in (".ci/commands", "pyproject.toml"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, folder / file)
    python = folder / "build/venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    subprocess.run([folder / ".ci/commands"], check=True, timeout=60)
    asked = subprocess.run([python.with_name("rostrum"), "send", "--help"], capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0 and asked.stdout.startswith("Usage: rostrum send"), asked


def test_contributing__a_scheduler_serves_a_trace(copy: Path) -> None:
    run(copy, "sh", "-ec", steps("Add a scheduler"))
    figures = copy / "figures.json"
    options = ["--requests", "20", "--scheduler", "newest", "--topology", "hybrid-4x2"]
    rostrum(copy, "sim", "run", "schedulers", *options, "--json", str(figures), "--png", str(copy / "x.png"))
    assert len(json.loads(figures.read_text())["completion_s"]["newest"]) == 20


def test_contributing__an_experiment_has_a_name_and_writes_a_result(copy: Path) -> None:
    run(copy, "sh", "-ec", steps("Add an experiment"))
    assert "busy-racks" in rostrum(copy, "sim", "list")
    rostrum(copy, "sim", "run", "busy-racks", "--json", str(copy / "out.json"))
    report = json.loads((copy / "out.json").read_text())
    assert [row["load"] for row in report["runs"]] == [0.2, 0.8] and report["manifest"]["seed"] == 1


DEVICE = """
from rostrum.controller.southbound.ocs import driver
from rostrum.topologies.loader import FOLDER, load_text
text = (FOLDER / "hybrid-4x2.yaml").read_text().replace("dialect: glimmerglass", "dialect: acme")
text = "\\n".join(line for line in text.splitlines() if "management_port" not in line)
ocs = load_text(text).ocs["ocs"]
made = driver.OcsDriver(ocs, lambda *_: None, lambda *_: None)
print(ocs.management_port, type(driver.DIALECTS[ocs.dialect](ocs, "SYNC")).__name__, made.ocs.dialect, driver.__file__)
"""


def test_contributing__a_device_is_known_to_topology_files_and_driven(copy: Path) -> None:
    run(copy, "sh", "-ec", steps("Add a device"))
    port, kind, dialect, where = run(copy, sys.executable, "-c", DEVICE).split()
    assert (port, kind, dialect) == ("3083", "Acme", "acme") and where.startswith(str(copy))


def test_contributing__names_programs_and_files_that_exist() -> None:
    content = text("CONTRIBUTING.md")
    names = set(re.findall(r"(?<![\w/])((?:agent|controller|mininet|sim|tests|docs|bench|\.ci)/[\w./-]*\w)", content))
    made = set(re.findall(r"^cat >(\S+)", content, re.MULTILINE))
    missing = sorted(name for name in names - made if not (ROOT / name).exists())
    assert not missing, f"CONTRIBUTING.md names what is not there: {missing}"
