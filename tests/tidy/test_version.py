"""One version: all programs and packages say what stands in VERSION."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from rostrum.topologies.version import VERSION

from tests.tidy.tree import ROOT, files, text

AGENT = ROOT / "build" / "agent" / "agent" / "daemon" / "rostrumd"
PYTHON = {
    "rostrum": "from rostrum.client.cli import main; main()",
    "rostrum-manager": "from rostrum.controller.app import main; main()",
    "rostrum-ocs-emulator": "from rostrum.lab.ocs.__main__ import main; main()",
}


def said(*command: str) -> str:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip().split()[-1]


def test_version__stands_in_one_file() -> None:
    assert text("VERSION").strip() == VERSION and re.fullmatch(r"\d+\.\d+\.\d+", VERSION)
    assert 'version = { file = "VERSION" }' in text("pyproject.toml") and "files('VERSION')" in text("meson.build")
    sources = [name for name in files(".py", ".h", ".c") if not name.startswith("tests/")]
    spelt = [name for name in sources if f'"{VERSION}"' in text(name)]
    assert not spelt, f"the version is spelt out in {spelt}"


@pytest.mark.parametrize("program", PYTHON)
def test_version__of_programs_in_python(program: str) -> None:
    assert said(sys.executable, "-c", PYTHON[program]) == VERSION
    assert f"{program} = " in text("pyproject.toml")


@pytest.mark.skipif(not AGENT.exists(), reason="the agent is not built")
def test_version__of_the_agent() -> None:
    assert said(str(AGENT)) == VERSION
