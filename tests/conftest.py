"""For every test: one seed per run, printed and settable, and an honest skip where a lab cannot be built.

`ROSTRUM_TEST_SEED=N pytest ...` repeats a run: the `random` module, the `rng` fixture and hypothesis all follow it.
"""

from __future__ import annotations

import functools
import os
import random
import secrets
import shutil
import subprocess
from collections.abc import Iterator

import hypothesis
import pytest

SEED_VARIABLE = "ROSTRUM_TEST_SEED"


def _run_seed() -> int:
    given = os.environ.get(SEED_VARIABLE)
    return int(given, 0) if given else secrets.randbits(32)


def pytest_configure(config: pytest.Config) -> None:
    seed = _run_seed()
    os.environ[SEED_VARIABLE] = str(seed)  # the C programs and agents that tests start read it too
    config.stash[_SEED] = seed
    if getattr(config.option, "hypothesis_seed", None) is None and hasattr(config.option, "hypothesis_seed"):
        config.option.hypothesis_seed = seed
    # How long an example takes says how busy the machine is; pytest's own time-out stays.
    hypothesis.settings.register_profile("rostrum", deadline=None)
    hypothesis.settings.load_profile("rostrum")


_SEED = pytest.StashKey[int]()


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.stash[_SEED]} (repeat with {SEED_VARIABLE}={config.stash[_SEED]})"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of this test's own, from the run's seed and the test's name."""
    return random.Random(f"{request.config.stash[_SEED]}/{request.node.nodeid}").getrandbits(32)


@pytest.fixture
def rng(seed: int) -> random.Random:
    """A random generator of this test's own."""
    return random.Random(seed)


@pytest.fixture(autouse=True)
def _seeded(seed: int) -> Iterator[None]:
    random.seed(seed)
    yield


@functools.cache
def lab_obstacle() -> str | None:
    """Why no lab can be built here; None if one can."""
    if os.geteuid() != 0:
        return "needs root: private namespaces and Open vSwitch"
    missing = [name for name in ("unshare", "ip", "ovs-vswitchd", "ovsdb-server") if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)}: run .ci/setup"
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "true"]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    if tried.returncode != 0:
        return f"private namespaces cannot be made: {tried.stderr.strip() or tried.returncode}"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    labs = [item for item in items if item.get_closest_marker("lab")]
    obstacle = lab_obstacle() if labs else None
    if obstacle:
        for item in labs:
            item.add_marker(pytest.mark.skip(reason=obstacle))
