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
from rostrum.topologies import loader
from rostrum.topologies.model import Topology

from tests.watchdog import Watchdog

SEED_VARIABLE = "ROSTRUM_TEST_SEED"


def _run_seed() -> int:
    given = os.environ.get(SEED_VARIABLE)
    return int(given, 0) if given else secrets.randbits(32)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--yang", metavar="DIR", help="YANG modules of OCSs, with those they import: answers are checked")


def pytest_configure(config: pytest.Config) -> None:
    seed = _run_seed()
    os.environ.setdefault("ROSTRUM_LAB_RESERVE", "0")  # no test measures rates with it
    os.environ[SEED_VARIABLE] = str(seed)  # the C programs and agents that tests start read it too
    config.stash[_SEED] = seed
    if getattr(config.option, "hypothesis_seed", None) is None and hasattr(config.option, "hypothesis_seed"):
        config.option.hypothesis_seed = seed
    # How long an example takes says how busy the machine is; pytest's own time-out stays.
    hypothesis.settings.register_profile("rostrum", deadline=None)
    hypothesis.settings.load_profile("rostrum")
    config.pluginmanager.register(Watchdog(config), "rostrum-watchdog")


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


TEXT_KEPT_MAX = 64 << 10  # larger topology files belong to one test each


@pytest.fixture(scope="session", autouse=True)
def _topologies_are_read_once() -> Iterator[None]:
    """Who loads the same file again gets the same topology: reading one takes longer than most tests. Topologies do not
    change, which is looked at in the end.
    """
    read, kept = loader.load_text, dict[str, Topology]()

    def load_text(text: str, source: str = "topology", *, completed: bool = False) -> Topology:
        if completed:
            return read(text, source, completed=True)
        if text not in kept:
            topology = read(text, source)
            if len(text) > TEXT_KEPT_MAX or len(kept) >= 64:
                return topology
            kept[text] = topology
        return kept[text]

    loader.load_text = load_text
    yield
    loader.load_text = read
    changed = [topology.name for text, topology in kept.items() if topology != read(text)]
    assert not changed, f"tests changed topologies that others have too: {changed}"


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
