"""What the process may take: memory, by Python's collector of reference cycles, and descriptors."""

from __future__ import annotations

import contextlib
import gc
import resource

# Objects more than before; then of the young and the middle generation, how often. One turn of the loop makes some
# thousands and frees them again; with less than many times that the collector runs often and finds nothing. Looking
# through what is young and alive takes 10 to 20 ms, in which nobody is answered.
THRESHOLDS = (50_000, 20, 100)


def settle_memory() -> None:
    """What is there now (modules, topology, tables) stays for good: it is not looked through again and again. New
    cycles are rare (an exception's frames), so they are looked for less often than for programs that make many.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def raise_descriptor_limit() -> None:
    """To what it may be (the default is 1,024, for programs that use select(2)); fewer than the bounds of the doors
    together are no disaster: nobody new is taken while there are none.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
