"""The machine's socket limits come back, whoever ends last."""

from __future__ import annotations

from pathlib import Path

import pytest
from rostrum.bench.limits import BYTES, large_socket_buffers


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, Path]:
    """A setting, and where its value is kept."""
    setting = tmp_path / "rmem_max"
    setting.write_text("212992\n")
    return setting, tmp_path / "kept.json"


def test_limits_are_raised_and_put_back(machine: tuple[Path, Path]) -> None:
    setting, kept = machine
    with large_socket_buffers((setting,), kept):
        assert int(setting.read_text()) == BYTES
    assert setting.read_text() == "212992"
    assert not kept.exists()


def test_two_benches_at_once__the_last_puts_back(machine: tuple[Path, Path]) -> None:
    setting, kept = machine
    first, second = large_socket_buffers((setting,), kept), large_socket_buffers((setting,), kept)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert int(setting.read_text()) == BYTES, "the second still needs it"
    second.__exit__(None, None, None)
    assert setting.read_text() == "212992"


def test_a_larger_limit_stays(machine: tuple[Path, Path]) -> None:
    setting, kept = machine
    setting.write_text(str(2 * BYTES))
    with large_socket_buffers((setting,), kept):
        assert int(setting.read_text()) == 2 * BYTES
