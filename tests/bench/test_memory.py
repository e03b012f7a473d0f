"""The bench's own memory: held, and given back a step ahead of what is stored."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rostrum.bench import memory
from rostrum.bench.memory import PIECE, Feeding, Pool, rehearse


class Counting(Pool):
    """Knows what was given back, and has no memory."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.left, self.given = size, 0

    def release(self, size: int) -> int:
        wanted = min(self.left, -(-size // PIECE) * PIECE)
        self.left -= wanted
        self.given += wanted
        return wanted


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_pool_holds_what_it_should_and_gives_it_back() -> None:
    pool, before = Pool(), resident_bytes()
    pool.hold(3 * PIECE)
    assert resident_bytes() - before >= 3 * PIECE * 0.9
    pool.hold(2 * PIECE)  # enough already
    assert pool.release(PIECE + 1) == 2 * PIECE
    assert pool.release(10 * PIECE) == PIECE
    assert pool.release(1) == 0
    assert resident_bytes() - before < PIECE


def test_feeding_stays_a_step_ahead(tmp_path: Path) -> None:
    pool = Counting(10 * memory.AHEAD)
    used = [0]
    feeding = Feeding(pool, [tmp_path])
    feeding._used = lambda: used[0] + feeding._before  # type: ignore[method-assign]
    assert pool.given == memory.AHEAD
    with feeding:
        used[0] = 200 << 20
        until = time.monotonic() + 10
        while pool.given < used[0] + memory.AHEAD:
            assert time.monotonic() < until, f"{pool.given} given"
            time.sleep(0.005)
    assert pool.given < used[0] + memory.AHEAD + 2 * PIECE


def test_a_rehearsal_leaves_nothing(tmp_path: Path) -> None:
    rehearse([tmp_path], 3 * PIECE + 1)
    assert list(tmp_path.iterdir()) == []
