"""The reference target against BMv2: programs of p4c's, random entries and frames, all that comes out and is counted.

What BMv2 made of them was recorded, so that every machine compares; where BMv2 is installed, it runs too.
"""

from __future__ import annotations

import os
import random
import shutil

import pytest

from tests.p4.target_bmv2 import MISSING, compare, reference
from tests.p4.target_programs import COMPILER, FOLDER, NAMES, SEED, compiled, frames, recorded


@pytest.mark.parametrize("name", NAMES)
def test_frames__come_out_as_bmv2_was_seen_to_send_them(name: str) -> None:
    bmv2 = recorded(name)
    assert bmv2["seed"] == SEED
    out, rest = reference(name, SEED, bmv2["accepted"])
    wrong = [
        f"frame {number}, {data.hex()} at {port}: BMv2 {theirs}, ours {ours}"
        for number, ((port, data), ours, theirs) in enumerate(zip(frames(name, SEED), out, bmv2["out"], strict=True))
        if ours != theirs
    ]
    assert not wrong, "\n".join(wrong)
    assert rest["counters"] == bmv2["counters"]
    assert rest["digests"] == bmv2["digests"]


@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"p4c is not installed (no {COMPILER} on the PATH)")
@pytest.mark.parametrize("name", NAMES)
def test_programs__are_what_the_compiler_makes(name: str) -> None:
    for file, text in compiled(name).items():
        assert (FOLDER / file).read_text() == text, "stale: python -m tests.p4.target_programs"


@pytest.mark.lab
@pytest.mark.skipif(bool(MISSING), reason=MISSING or "BMv2 is there")
@pytest.mark.parametrize("name", NAMES)
def test_frames__come_out_as_bmv2_sends_them(name: str) -> None:
    seed = int(os.environ.get("ROSTRUM_SEED") or random.randrange(1 << 30))
    print(f"seed {seed}: ROSTRUM_SEED={seed} repeats this")
    differences = compare(name, seed)["differences"]
    assert not differences, "\n".join([f"seed {seed}", *differences])
