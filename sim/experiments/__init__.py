"""Experiments: each module here is one, with a module-level click command called `command`."""

from __future__ import annotations

import click
from rostrum.lab import registry


def commands() -> dict[str, click.Command]:
    """The experiments by name: `some_thing.py` is called some-thing."""
    return registry.commands(__name__, __path__)
