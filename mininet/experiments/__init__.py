"""Experiments: each module here is one, with a module-level click command called `command`."""

from __future__ import annotations

import click
from rostrum.lab import registry


def commands() -> dict[str, click.Command]:
    """The experiments by name: `fig8_attempt_interval.py` is called fig8-attempt-interval."""
    return registry.commands(__name__, __path__)
