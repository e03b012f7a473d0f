"""tests/watchdog.py: a stuck test is one failure, not the loss of a run."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SETTINGS = """
import pytest
from tests import watchdog
watchdog.GRACE_S, watchdog.AGAIN_S, watchdog.LEFT_S, watchdog.MEMORY_MAX = 1.0, 2.0, 1.0, 300 << 20
watchdog.KILLED_AT = 2

def pytest_configure(config):
    config.pluginmanager.register(watchdog.Watchdog(config))
"""
TESTS = """
import subprocess, threading, time
import pytest

@pytest.fixture
def waits_at_its_end():
    yield
    with subprocess.Popen(["sleep", "100"]) as child:
        try:
            child.wait()
        finally:
            child.kill()

@pytest.mark.timeout(1)
def test_a_fixture_waits(waits_at_its_end):
    time.sleep(100)

@pytest.mark.timeout(1)
def test_a_timeout_is_swallowed():
    for _ in range(2):
        try:
            time.sleep(100)
        except BaseException:
            pass

@pytest.mark.timeout(1)
def test_a_thread_is_left():
    thread = threading.Thread(target=time.sleep, args=[100])
    thread.start()
    thread.join()

@pytest.mark.timeout(1)
def test_a_lock_that_no_signal_ends():
    with subprocess.Popen(["sleep", "100"], stdout=subprocess.PIPE) as child:
        threading.Thread(target=child.stdout.read, daemon=True).start()
        time.sleep(0.5)
        child.stdout.close()  # waits for the thread's read

def test_memory():
    taken = b"x" * (400 << 20)
    time.sleep(100)

def test_that_is_good():
    pass
"""


def test_stuck__tests_fixtures_threads_and_memory_are_failures_and_the_rest_has_results(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(SETTINGS)
    (tmp_path / "test_it.py").write_text(TESTS)
    xml = tmp_path / "out.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", tmp_path]
    done = subprocess.run(
        [*command, "-o", "timeout=100", f"--junitxml={xml}", tmp_path],
        cwd=ROOT, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    cases = ElementTree.parse(xml).getroot().iter("testcase")
    bad = {
        str(case.get("name")) for case in cases if case.find("failure") is not None or case.find("error") is not None
    }
    stuck = {"test_a_fixture_waits", "test_a_thread_is_left", "test_a_lock_that_no_signal_ends", "test_memory"}
    assert bad == stuck, done.stdout
    for words in ("threads that do not end: Thread-1", "MiB of memory, at most 300", "after its timeout"):
        assert words in done.stderr, done.stderr
