"""Ends what pytest-timeout cannot: it fires once a test, and what comes after (an end of a fixture that waits, a thread
that the interpreter waits for at its exit) has no bound. One stuck test then takes the results of all others with it.

A test that goes on for GRACE_S after its own timeout fails, again and again until it is over. If that does not help,
what it started is killed: a lock of the interpreter is not interrupted, but what it waits for is. A process that needs
more memory than MEMORY_MAX fails its test; at twice that it ends. Threads that keep it alive after the last test are
named, and left. The stacks of all threads are written each time.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from types import FrameType

import pytest

GRACE_S = 45.0
AGAIN_S = 20.0
KILLED_AT = 4  # of these
LEFT_S = 10.0  # for threads after the last test
MEMORY_MAX = 6 << 30  # bytes resident; the largest test needs a tenth
SIGNAL = signal.SIGUSR2


class Watchdog:
    """A plugin; a thread of its own looks each second."""

    def __init__(self, config: pytest.Config) -> None:
        self._out = os.dup(sys.stderr.fileno())  # pytest captures what tests write
        self._timeout_s = float(config.getini("timeout") or 0.0)
        self._end, self._asked = float("inf"), 0  # when the running test is to be failed (again), and how often it was
        self._test = self._why = ""
        self._inside = False
        self._status = 0
        signal.signal(SIGNAL, self._fail)
        threading.Thread(target=self._look, name="watchdog", daemon=True).start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        marker = item.get_closest_marker("timeout")
        given = (marker.args[0] if marker.args else marker.kwargs.get("timeout")) if marker else None
        bound = self._timeout_s if given is None else float(given)
        self._asked, self._test = 0, item.nodeid
        self._end = time.monotonic() + bound + GRACE_S if bound else float("inf")
        try:
            return (yield)
        finally:
            self._end, self._test = float("inf"), ""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        return (yield from self._phase())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        return (yield from self._phase())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        return (yield from self._phase())

    def _phase(self) -> Generator[None, object, object]:
        """What is raised here is this test's failure; elsewhere it would be pytest's own, and end the run."""
        self._inside = True
        try:
            return (yield)
        finally:
            self._inside = False

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._status = int(exitstatus)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        end = time.monotonic() + LEFT_S
        for thread in self._others():
            thread.join(max(0.0, end - time.monotonic()))
        if left := [thread.name for thread in self._others()]:
            self._dump(f"threads that do not end: {', '.join(left)}")
            sys.stdout.flush()
            os._exit(self._status)

    @staticmethod
    def _others() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]

    def _look(self) -> None:
        page, ask_again = resource.getpagesize(), 0.0
        while True:
            time.sleep(1.0)
            with open("/proc/self/statm") as file:
                resident = int(file.read().split()[1]) * page
            if resident > 2 * MEMORY_MAX:
                self._dump(f"{resident >> 20} MiB of memory: ended in {self._test}")
                os._exit(3)
            if resident > MEMORY_MAX and self._test and time.monotonic() > ask_again:
                ask_again = time.monotonic() + AGAIN_S
                self._ask(f"{resident >> 20} MiB of memory, at most {MEMORY_MAX >> 20}")
            if time.monotonic() > self._end:
                self._end = time.monotonic() + AGAIN_S
                self._asked += 1
                if self._asked == KILLED_AT:
                    kill_children(os.getpid())
                self._ask(f"still there {GRACE_S:.0f} s after its timeout, or later")

    def _ask(self, why: str) -> None:
        """Is asked again until the test is over: a signal just before a call that waits does not wake it."""
        self._why = why
        self._dump(f"{self._test}: {why}")
        signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)

    def _fail(self, _: int, __: FrameType | None) -> None:
        if self._inside:
            pytest.fail(f"watchdog: {self._why}")

    def _dump(self, words: str) -> None:
        os.write(self._out, f"\nwatchdog: {words}\n".encode())
        faulthandler.dump_traceback(self._out, all_threads=True)


def kill_children(of: int) -> None:
    for task in Path(f"/proc/{of}/task").iterdir():
        with contextlib.suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                kill_children(child)
                os.kill(child, signal.SIGKILL)
