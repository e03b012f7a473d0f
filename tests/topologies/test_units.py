"""Quantities as people write them: one meaning everywhere, and text for what has none."""

from __future__ import annotations

import click
import pytest
from rostrum.topologies import units


def test_durations() -> None:
    assert [units.duration_ns(text) for text in ("2s", "70 ms", "500us", "1.5m", "2min", "1h", "3ns", "0s")] == [
        2 * 10**9,
        7 * 10**7,
        500_000,
        9 * 10**10,
        12 * 10**10,
        3600 * 10**9,
        3,
        0,
    ]
    assert units.duration_s("5", bare="s") == 5.0 and units.duration_s("5ms", bare="s") == 0.005
    for text in ("", "2", "-1s", "2 weeks", "1e9s", "s", "1s2", "nan", "1" * 99 + "s"):
        with pytest.raises(ValueError, match="write a number"):
            units.duration_ns(text)


def test_sizes() -> None:
    wanted = {"64M": 64 << 20, "8896": 8896, "1GiB": 1 << 30, "2K": 2048, "1.5K": 1536, "1TB": 1 << 40, "0": 0}
    assert {text: units.size_bytes(text) for text in wanted} == wanted
    assert units.size_bytes("9007199254740993") == 9007199254740993  # beyond what a float can tell apart
    for text in ("", "-5", "5X", "M", "1e3", "0x10", "5 0"):
        with pytest.raises(ValueError, match="not a size"):
            units.size_bytes(text)


def test_texts() -> None:
    assert [units.rate_text(rate) for rate in (0, 9.4e8, 1e10, 2e12)] == [
        "0 bit/s",
        "940 Mbit/s",
        "10 Gbit/s",
        "2 Tbit/s",
    ]
    assert [units.size_text(size) for size in (5, 64 << 20, 10 << 30)] == ["5 bytes", "64 MiB", "10 GiB"]


def test_options_say_what_is_wrong() -> None:
    @click.command()
    @click.option("--wait", type=units.Duration(least_s=0.001, bare="s"), default="60s")
    @click.option("--size", type=units.Size(least=1), default="1M")
    def command(wait: float, size: int) -> tuple[float, int]:
        return wait, size

    assert command.main([], standalone_mode=False) == (60.0, 1 << 20)
    assert command.main(["--wait", "1.5", "--size", "3K"], standalone_mode=False) == (1.5, 3072)
    for arguments, text in (
        (["--wait", "0"], "less than 0.001 s"),
        (["--wait", "soon"], "no duration"),
        (["--size", "0"], "less than 1"),
        (["--size", "lots"], "not a size"),
    ):
        with pytest.raises(click.BadParameter, match=text):
            command.main(arguments, standalone_mode=False)
