"""Experiments by name: each module of a package that has a click command called `command` is one, and each of those in
a module's table `commands`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable

import click


def commands(package: str, path: Iterable[str]) -> dict[str, click.Command]:
    """Of a package, by its `__name__` and `__path__`: `fig8_attempt_interval.py` is called fig8-attempt-interval."""
    found: dict[str, click.Command] = {}
    for module in pkgutil.iter_modules(path):
        there = importlib.import_module(f"{package}.{module.name}")
        command = getattr(there, "command", None)
        if isinstance(command, click.Command):
            found[module.name.replace("_", "-")] = command
        found |= getattr(there, "commands", {})
    return found
