"""Experiments: each module here is one, with a module-level click command called `command`."""

from __future__ import annotations

import importlib
import pkgutil

import click


def commands() -> dict[str, click.Command]:
    """The experiments by name: `fig8_attempt_interval.py` is called fig8-attempt-interval."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        command = getattr(importlib.import_module(f"{__name__}.{module.name}"), "command", None)
        if isinstance(command, click.Command):
            found[module.name.replace("_", "-")] = command
    return found
