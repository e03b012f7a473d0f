"""Run Python code of this process in another network namespace: sockets made there stay there, and work from here."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import TypeVar

_CLONE_NEWNET = 0x4000_0000
_T = TypeVar("_T")


def call_in_network(pid: int, function: Callable[[], _T]) -> _T:
    """Call `function` in a thread that is in the network namespace of process `pid`; return its result, or raise what
    it raised. Threads and processes it starts are there too; mounts and processes seen are this process' own."""
    results: list[_T] = []
    errors: list[BaseException] = []

    def enter() -> None:
        try:
            _set_network(pid)
            results.append(function())
        except BaseException as error:  # for the caller, in its own thread
            errors.append(error)

    thread = threading.Thread(target=enter, name=f"network-of-{pid}")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _set_network(pid: int) -> None:
    fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(fd, _CLONE_NEWNET):
            code = ctypes.get_errno()
            raise OSError(code, f"cannot enter the network of process {pid}: {os.strerror(code)}")
    finally:
        os.close(fd)
