"""A REST request on its way to the switches: how many files have it in their hands (walk.py)."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.tidy.tree import ROOT, text

CROSSED_MAX = 12
ASKED_MAX = 28


@pytest.fixture(scope="module")
def walk() -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.controller.walk"], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    for what in ("crossed", "asked"):
        print(f"{what}: {len(found[what])}", *(f"controller/{name}" for name in found[what]), sep="\n  ")
    return found


def test_request__crosses_at_most_twelve_files(walk: dict[str, list[str]]) -> None:
    assert len(walk["crossed"]) <= CROSSED_MAX
    assert walk["crossed"][0].endswith("http_server.py") and walk["crossed"][-1].endswith("openflow/thread.py")


def test_request__asks_no_more_files_than_before(walk: dict[str, list[str]]) -> None:
    assert len(walk["asked"]) <= ASKED_MAX


def test_request__enters_and_leaves_the_runtime_once_and_is_validated_once(
    walk: dict[str, list[str]],
) -> None:
    assert walk["counts"] == [[["RequestReceived"], 1, 1]] * 3


def test_walk__in_the_documents_is_the_one_that_it_takes(walk: dict[str, list[str]]) -> None:
    page = text("docs/architecture.md").split("\n## A REST request\n")[1].split("\n## ")[0]
    named = re.findall(r"`controller/([\w/]+\.py)`", page)
    crossed = [name for name in named if name not in walk["asked"]]
    assert crossed == [name for name in walk["crossed"] if name in crossed] and len(crossed) >= 8
