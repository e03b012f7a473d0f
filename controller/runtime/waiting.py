"""Waiting for what the runtime of the manager's state does. By itself, because runtime.py is compiled, which coroutines
cannot be (.ci/compile).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rostrum.controller.core.requests.paths import Path
from rostrum.controller.runtime.runtime import Runtime


async def settled(runtime: Runtime) -> None:
    """Returns when all that was posted so far is in the store, and what follows from it under way. Raises
    StoreError.
    """
    written = runtime.writing()
    if written is not None:
        await written


async def path_until(runtime: Runtime, path_id: str, reached: Callable[[Path], bool], timeout_s: float) -> Path | None:
    """The path once `reached` holds or it has ended, or as it is after `timeout_s`; None if there is none."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        path = runtime.path(path_id)
        left = deadline - asyncio.get_running_loop().time()
        if path is None or path.final or reached(path) or left <= 0:
            return path
        change = runtime.watch(path_id)
        try:
            await asyncio.wait((change,), timeout=left)
        finally:
            runtime.unwatch(path_id, change)
