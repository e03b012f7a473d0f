"""Labs shared by the tests of a module: one is built for each set of options, and what a test broke it mends."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def needs_root(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("lab") and os.geteuid() != 0:
        pytest.fail("lab tests need root (network namespaces); run them with sudo")
