"""Waiting for programs: a bench's times are no better than this."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from rostrum.bench import account
from rostrum.bench.run import ended


def test_the_end_of_a_program_is_seen() -> None:
    process = subprocess.Popen(["sleep", "0.05"])
    assert ended(process, time.monotonic() + 30)
    assert process.wait() == 0


def test_a_program_that_ended_before_is_seen() -> None:
    process = subprocess.Popen(["true"], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.read() == b""
    process.stdout.close()
    assert ended(process, float("inf"))
    assert process.wait() == 0
    assert ended(process, float("inf")), "also when it was waited for"


def test_waiting_has_a_bound() -> None:
    process = subprocess.Popen(["sleep", "1000"])
    try:
        assert not ended(process, time.monotonic() + 0.05)
        assert not ended(process, time.monotonic() - 1)
    finally:
        process.kill()
        process.wait()


def test_control_groups__of_a_bench_that_runs_stay_and_of_one_that_was_killed_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "must", lambda *_: "")  # nothing is mounted: folders do
    (tmp_path / "rostrum-bench-dead" / "sender").mkdir(parents=True)
    first = account.Groups(tmp_path)
    side = first.side("sender")
    second = account.Groups(tmp_path)
    assert side.folder.is_dir() and not (tmp_path / "rostrum-bench-dead").exists()
    first.close()
    second.close()
    assert not list(tmp_path.iterdir())
