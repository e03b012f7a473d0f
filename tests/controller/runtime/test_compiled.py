"""Modules compiled ahead of time: taken only when they were made of the sources that are there, and told apart."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from rostrum import controller
from rostrum.controller.core import manager
from rostrum.controller.speed import compiled


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of two modules, one of them compiled; returns its folder."""
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    monkeypatch.delenv(compiled.PURE, raising=False)
    package, lib = tmp_path / "controller", tmp_path / "build" / "compiled" / "lib"
    for name in ("slow", "quick"):
        package.mkdir(exist_ok=True)
        (package / f"{name}.py").write_text(f"NAME = {name!r}\n")
    (lib / "rostrum" / "controller").mkdir(parents=True)
    (lib / "rostrum" / "controller" / f"quick{EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    (lib / "digest").write_text(compiled.digest(package) + "\n")
    return package


def test_of_these_sources__they_are_found_and_the_others_left_to_python(tree: Path) -> None:
    assert compiled.use(tree) == ""
    finder = sys.meta_path[0]
    found = finder.find_spec("rostrum.controller.quick", None)
    assert found is not None and found.origin and found.origin.endswith(EXTENSION_SUFFIXES[0])
    assert finder.find_spec("rostrum.controller.slow", None) is None


def test_of_other_sources__nothing_is_taken_and_the_reason_said(tree: Path) -> None:
    before = sys.meta_path.copy()
    (tree / "slow.py").write_text("NAME = 'changed'\n")
    assert "other sources" in compiled.use(tree)
    assert sys.meta_path == before


def test_not_compiled__is_said(tree: Path) -> None:
    shutil.rmtree(tree.parent / "build")
    assert "not compiled" in compiled.use(tree)


def test_by_environment__python_alone(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.PURE, "1")
    assert compiled.PURE in compiled.use(tree)


def test_this_run__has_what_it_was_asked_for() -> None:
    """.ci/test runs the core's tests both ways; neither may be the other by mistake."""
    if os.environ.get("ROSTRUM_COMPILED"):
        assert controller.NOT_COMPILED == "" and not str(manager.__file__).endswith(".py")
    elif os.environ.get(compiled.PURE):
        assert str(manager.__file__).endswith(".py")


def test_compile__is_told_what_cannot_be_compiled(tmp_path: Path) -> None:
    """Two exceptions of one name in one function are one variable to mypyc."""
    script = Path(__file__).resolve().parents[3] / ".ci" / "compile"
    bad = tmp_path / "bad.py"
    bad.write_text(
        "def f() -> None:\n    try:\n        pass\n    except KeyError as e:\n        print(e)\n"
        "    except OSError as e:\n        print(e)\n"
    )
    text = f"import runpy, pathlib; runpy.run_path({str(script)!r})['refuse'](pathlib.Path({str(bad)!r}))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "name the exceptions of f apart" in done.stderr
