"""Circles of files that call each other: what is in one can only be read, tested and changed together."""

from __future__ import annotations

import pytest

from tests.tidy.calls import BUILD, calls, circles, source_of
from tests.tidy.tree import ROOT, complaint

CIRCLE_FILES = 4
# Circles that are there today, by the number of their files: none may grow, and what is taken apart is taken out here.
TODAY = {"agent/core": 18, "agent/daemon": 12}


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    assert (BUILD / "build.ninja").exists(), "build/agent is missing; make build"


def test_source_of__objects_are_named_after_files() -> None:
    assert source_of(BUILD / "agent" / "core" / "libcore.a.p" / "transfer_node.c.o") == "agent/core/transfer/node.c"
    assert source_of(BUILD / "agent" / "core" / "libcore.a.p" / "repair_xor.c.o") == "agent/core/repair/xor.c"
    assert source_of(BUILD / "agent" / "core" / "libcore.a.p" / "node.c.o") == "", "there is none outside a room"
    assert (ROOT / "agent" / "core" / "transfer" / "node.c").exists()


def test_circles__are_found() -> None:
    edges = {"a": {"b": {"f"}}, "b": {"c": {"g"}}, "c": {"a": {"h"}, "d": {"i"}}, "d": {"e": {"j"}}, "e": {"d": {"k"}}}
    assert circles(edges) == [["a", "b", "c"], ["d", "e"]]
    assert circles({"a": {"b": {"f"}}, "b": {}}) == []


@pytest.mark.parametrize("under", ["agent/core", "agent/io", "agent/daemon", "agent/client", "agent/api"])
def test_no_large_circle_of_calls(under: str) -> None:
    edges = calls(under)
    large = [circle for circle in circles(edges) if len(circle) > CIRCLE_FILES]
    offenders = [f"{len(one)} files: {', '.join(one)}" for one in large if len(one) > TODAY.get(under, 0)]
    assert not offenders, complaint(f"circles of more than {CIRCLE_FILES} files, or of more than before:", offenders)
