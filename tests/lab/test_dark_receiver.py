"""A server whose host drops multicast (a firewall): it gets its objects by unicast, the others do not wait for it, no
part of the fabric is blamed for it, and doctor and the send's result name it. With default options, by commands.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rostrum.lab.lab import Lab

from tests.lab.firewall import MULTICAST, firewall
from tests.lab.objects import data_of

pytestmark = pytest.mark.lab

NAME = "t-dark"
ROSTRUM = [str(Path(sys.executable).parent / "rostrum")]
DARK = "h5"
OTHERS_LATER_MS = 1_000  # far less than the seconds of a receiver that is waited for, far more than a busy machine's
NUMBERS = itertools.count()  # one object each


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.start("hybrid-4x2", name=NAME, seed=1) as made:
        yield made


@pytest.fixture
def files(tmp_path: Path, seed: int) -> Iterator[Path]:
    """Objects that nobody has yet."""

    def made() -> Iterator[Path]:
        for number in NUMBERS:
            found = tmp_path / f"object-{number}"
            found.write_bytes(data_of(20_000_000, seed + number))
            yield found

    return made()


def rostrum(*arguments: str, status: int | None = 0) -> Any:
    done = subprocess.run([*ROSTRUM, *arguments, "--json"], capture_output=True, text=True, timeout=100)
    assert status is None or done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout)


def send(files: Iterator[Path], *receivers: str, sender: str = "h1") -> dict[str, Any]:
    result = rostrum("send", str(next(files)), "--lab", NAME, "--server", sender, "--to", ",".join(receivers))
    assert result["ok"] and all(row["digest_ok"] for row in result["receivers"]), result
    return dict(result)


def complete_ms(result: dict[str, Any]) -> dict[str, float]:
    return {row["name"]: row["complete_ms"] for row in result["receivers"]}


def quarantined(lab: Lab) -> list[str]:
    """What the manager leaves alone."""
    found = rostrum("doctor", "--lab", NAME, status=None)["findings"]
    return [row["what"] for row in found if row["check"] in ("optics", "light", "cross-connect")]


def test_dark_receiver__others_are_not_held_up_and_nothing_healthy_is_blamed(lab: Lab, files: Iterator[Path]) -> None:
    others = ("h3", "h6", "h7")
    without = [send(files, *others) for _ in range(2)]  # the first makes the circuit
    assert {one["path"] for one in without} == {"circuit"}
    with firewall(lab, DARK, MULTICAST):
        late = []
        for _ in range(3):
            result = send(files, *others, DARK)
            assert result["path"] == "circuit" and "no light" not in result["reason"], result
            late.append(
                max(complete_ms(result)[name] - max(complete_ms(one)[name] for one in without) for name in others)
            )
            row = next(row for row in result["receivers"] if row["name"] == DARK)
            assert row["patched_fragments"] > 0 and "firewall" in row["cause"], row
        assert min(late) <= OTHERS_LATER_MS, late
        assert not quarantined(lab)
        found = rostrum("doctor", "--lab", NAME, status=None)["findings"]
        (finding,) = [row for row in found if row["check"] == "dark"]
        assert finding["subject"] == DARK and "firewall" in finding["mend"] and "IGMP" in finding["mend"]
        assert send(files, "h1", "h7", sender="h3")["path"] == "circuit"
    lit = send(files, *others, DARK)
    assert next(row for row in lit["receivers"] if row["name"] == DARK)["cause"] == ""
    assert not [row for row in rostrum("doctor", "--lab", NAME, status=None)["findings"] if row["check"] == "dark"]


def test_dark_receiver__alone_is_served_by_unicast_and_blames_nothing(lab: Lab, files: Iterator[Path]) -> None:
    with firewall(lab, DARK, MULTICAST):
        for _ in range(3):
            result = send(files, DARK, sender="h7")
            assert "firewall" in result["receivers"][0]["cause"], result
        assert not quarantined(lab)
        assert send(files, "h6", "h3", sender="h7")["path"] == "circuit"
        assert send(files, "h6", sender="h8")["path"] == "circuit"
