"""Python's collector of reference cycles, for a process that keeps much and makes few of them."""

from __future__ import annotations

import gc

THRESHOLDS = (20_000, 20, 100)  # objects more than before; then of the young and the middle generation, how often


def settle_memory() -> None:
    """What is there now (modules, topology, tables) stays for good: it is not looked through again and again. New
    cycles are rare (an exception's frames), so they are looked for less often than for programs that make many.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
