"""Memory that is backed already, for receivers to put the object into.

A virtual machine's memory is backed by its host when it is first touched, and may be taken back soon after it was
freed. Touching it then is slower than most networks, and would meet whichever tool runs after a pause. So between runs
the bench holds as much as the receivers will need, in huge pages; during a transfer it gives that back a step ahead of
what they take: for every tool alike. (rostrumd can do the same for itself, `--reserve`: the tool rostrum-ready.)
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections.abc import Sequence
from pathlib import Path

MADV_POPULATE_WRITE = 23  # Linux 5.14; Python has no name for it
HELD_MAX = 16 << 30
PIECE = 8 << 20
AHEAD = 96 << 20
STEP_S = 0.004  # at 10 Gbit/s to three receivers, 15 MB


class Pool:
    """Populated memory, given back piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[mmap.mmap] = []

    def hold(self, size: int) -> None:
        """Has at least `size` bytes (at most HELD_MAX) populated."""
        while len(self._pieces) * PIECE < min(size, HELD_MAX):
            self._pieces.append(_populated())

    def release(self, size: int) -> int:
        """Gives that much back, or all there is, to whoever allocates next; how much."""
        given = 0
        while given < size and self._pieces:
            self._pieces.pop().close()
            given += PIECE
        return given


class Feeding:
    """While it is entered, memory of a pool is free a step ahead of what the disks (tmpfs) in `folders` take."""

    def __init__(self, pool: Pool, folders: Sequence[Path]) -> None:
        self._pool, self._folders = pool, folders
        self._before = self._used()
        self._given = pool.release(AHEAD)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="memory-ahead")

    def __enter__(self) -> Feeding:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _feed(self) -> None:
        while not self._done.wait(STEP_S):
            lacking = self._used() - self._before + AHEAD - self._given
            if lacking > 0:
                self._given += self._pool.release(lacking)

    def _used(self) -> int:
        total = 0
        for folder in self._folders:
            facts = os.statvfs(folder)
            total += (facts.f_blocks - facts.f_bfree) * facts.f_frsize
        return total


def rehearse(folders: Sequence[Path], size: int) -> None:
    """Stores as much as a run will, and removes it: then what the kernel hands out first is backed."""
    block = bytes(PIECE)
    for folder in folders:
        path = folder / "rehearsal"
        with path.open("wb", buffering=0) as file:
            for at in range(0, size, PIECE):
                file.write(block[: size - at])
        path.unlink()


def _populated() -> mmap.mmap:
    held = mmap.mmap(-1, PIECE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # without huge pages it is slower, not wrong
        held.madvise(mmap.MADV_HUGEPAGE)
    try:
        held.madvise(MADV_POPULATE_WRITE)
    except OSError:
        for at in range(0, PIECE, mmap.PAGESIZE):
            held[at] = 0
    return held
