"""What tests with real agents share. The network, `net`, is each file's own: they want more or fewer servers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent_e2e.agents import World, world
from tests.agent_e2e.network import Network


@pytest.fixture
def lab(net: Network) -> Iterator[World]:
    with world(net) as it:
        yield it


@pytest.fixture
def disk() -> Iterator[Path]:
    """On a disk, not on a tmpfs."""
    folder = Path(tempfile.mkdtemp(prefix="rostrum-test-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)
