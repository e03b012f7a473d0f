"""Lock files: what is installed is what was locked, to the byte."""

from __future__ import annotations

import re

import pytest

from tests.tidy.tree import ROOT, text

LOCKS = sorted(str(file.relative_to(ROOT)) for file in [*ROOT.glob("*.lock"), *ROOT.glob("*/*.lock"),
                                                        *ROOT.glob("tests/*/*.lock")])  # fmt: skip


def entries(lock: str) -> list[str]:
    lines = text(lock).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("lock", LOCKS)
def test_each_package_has_an_exact_version_and_hashes(lock: str) -> None:
    assert entries(lock)
    for entry in entries(lock):
        assert re.fullmatch(r"[A-Za-z0-9._-]+==\S+( +--hash=sha256:[0-9a-f]{64})+ *", entry), entry


def test_nothing_is_installed_from_a_lock_file_without_its_hashes() -> None:
    installs = [line for line in text(".ci/setup").splitlines() if "pip" in line and ".lock" in line]
    assert len(installs) == len(LOCKS)
    assert all("--require-hashes" in line and "--no-deps" in line for line in installs)
